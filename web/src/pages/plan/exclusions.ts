// Moves that are left out: which are ticked off stands in the URL, the round is solved again without them, and what that costs is told against
// the proposal with all of them. Only a hand on the page solves; a link that is opened does not.

import { useMutation, useQueryClient } from "@tanstack/react-query";
import { useNavigate } from "@tanstack/react-router";
import { useEffect, useMemo, useRef, useState } from "react";
import type { Plan } from "../../api/client";
import { type Move, keepProposal, propose } from "./asks";

/** Several ticks in a row make one round. */
const GATHER_MS = 800;
/** Of an id, what tells the jobs of a plan apart: an address has room for dozens. */
const END = 8;

export interface Compared {
  /** The proposal with nothing left out. */
  with: Plan;
  /** How long the answer took. */
  seconds: number;
}

export interface Exclusions {
  /** Jobs that are to stay as they are. */
  out: ReadonlySet<string>;
  /** Whether the plan that is shown was made with others. */
  pending: boolean;
  solving: boolean;
  error: Error | null;
  compared: Compared | undefined;
  toggle: (job: string) => void;
  /** Solves again, on the plan's own terms and without those that are out. */
  solve: () => void;
}

/** The jobs that an address names, by the ends of their ids. */
export function named(exclude: string, among: readonly string[]): string[] {
  const ends = exclude.split(",").filter((end) => end !== "");
  return among.filter((id) => ends.some((end) => id.endsWith(end)));
}

/** Why a move cannot be left out. */
export function mustStay(move: Move, plan: Plan): string | undefined {
  if (plan.terms?.undoes) return "what is taken back is taken back whole";
  if (plan.terms?.force.some((one) => one.job_id === move.job_id)) return "the terms of this plan force it";
  if (move.kind === "start") return "a job that starts has nothing to stay with: hold it to leave it out";
  return undefined;
}

export function useExclusions(plan: Plan, exclude: string | undefined): Exclusions {
  const queries = useQueryClient();
  const navigate = useNavigate();
  const [compared, setCompared] = useState<Compared & { plan: string }>();
  const timer = useRef<ReturnType<typeof setTimeout>>(undefined);
  useEffect(() => () => clearTimeout(timer.current), [plan.id]);

  const made = useMemo(() => new Set(plan.terms?.exclude), [plan]);
  const out = useMemo(() => {
    if (exclude === undefined) return made;
    return new Set(named(exclude, [...plan.moves.map((move) => move.job_id), ...made]));
  }, [exclude, plan, made]);

  const solving = useMutation({
    mutationFn: async (without: ReadonlySet<string>) => {
      const began = performance.now();
      const answer = await propose(plan.terms, [...without], crypto.randomUUID());
      return { answer, seconds: (performance.now() - began) / 1_000 };
    },
    onSuccess: ({ answer, seconds }, without) => {
      const whole = compared?.plan === plan.id ? compared.with : made.size === 0 ? plan : undefined;
      setCompared(whole && without.size > 0 ? { plan: answer.id, with: whole, seconds } : undefined);
      keepProposal(queries, answer);
      void queries.invalidateQueries({ type: "active" });
      void navigate({ to: "/plan", search: (before) => ({ ...before, plan: answer.id, exclude: undefined }), resetScroll: false });
    },
  });

  const toggle = (job: string) => {
    if (solving.isPending) return;
    const next = new Set(out);
    if (!next.delete(job)) next.add(job);
    const as = same(next, made) ? undefined : [...next].map((id) => id.slice(-END)).join(",");
    solving.reset();
    void navigate({ to: "/plan", search: (before) => ({ ...before, plan: plan.id, exclude: as }), replace: true, resetScroll: false });
    clearTimeout(timer.current);
    if (as !== undefined) timer.current = setTimeout(() => solving.mutate(next), GATHER_MS);
  };

  return {
    out,
    pending: !same(out, made),
    solving: solving.isPending,
    error: solving.error,
    compared: compared?.plan === plan.id ? compared : undefined,
    toggle,
    solve: () => solving.mutate(out),
  };
}

function same(one: ReadonlySet<string>, other: ReadonlySet<string>): boolean {
  return one.size === other.size && [...one].every((id) => other.has(id));
}
