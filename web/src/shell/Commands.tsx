// Ctrl-K: pages, jobs and nodes by name, and what can be done.

import { Modal } from "@mantine/core";
import { useDebouncedValue } from "@mantine/hooks";
import { useQuery } from "@tanstack/react-query";
import { useNavigate } from "@tanstack/react-router";
import { type KeyboardEvent, useId, useMemo, useState } from "react";
import { type NodeList, api, unwrap } from "../api/client";
import { useJobList } from "../api/queries";
import { useReservations } from "../api/reservations";
import { State } from "../parts/State";
import { PAGES } from "./pages";

interface Choice {
  key: string;
  kind: string;
  label: string;
  state?: string;
  go: () => void;
}

const MOST_NODES = 6;

export function Commands({ onClose, onHelp }: { onClose: () => void; onHelp: () => void }) {
  const [text, setText] = useState("");
  const [at, setAt] = useState(0);
  const [asked] = useDebouncedValue(text.trim(), 150);
  const navigate = useNavigate();
  const list = useId();
  const jobs = useJobList(asked ? { q: asked, limit: 8 } : { state: "live", limit: 8 });
  const nodes = useQuery({
    queryKey: ["nodes", "list", {}],
    queryFn: async () => (await unwrap(api.GET("/api/v1/nodes"))) as NodeList,
    staleTime: 30_000,
  });

  const reservations = useReservations();

  const choices = useMemo<Choice[]>(() => {
    const wanted = text.trim().toLowerCase();
    const fits = (name: string) => name.toLowerCase().includes(wanted);
    return [
      ...PAGES.filter((page) => fits(page.name)).map((page) => ({
        key: page.to,
        kind: "page",
        label: page.name,
        go: () => void navigate({ to: page.to, search: {} }),
      })),
      // The list before may stand still while the one that was asked for comes.
      ...(jobs.data?.items ?? []).filter((job) => fits(job.name)).map((job) => ({
        key: job.id,
        kind: "job",
        label: job.name,
        state: job.state,
        go: () => void navigate({ to: "/jobs/$id", params: { id: job.id }, search: {} }),
      })),
      ...(wanted ? (nodes.data?.items ?? []).filter((node) => fits(node.name)) : []).slice(0, MOST_NODES).map((node) => ({
        key: node.id,
        kind: "node",
        label: node.name,
        go: () => void navigate({ to: "/nodes/$node", params: { node: node.id }, search: {} }),
      })),
      ...(wanted ? (reservations.data?.items ?? []).filter((one) => fits(one.name)) : []).slice(0, MOST_NODES).map((one) => ({
        key: one.id,
        kind: "reservation",
        label: one.name,
        go: () => void navigate({ to: "/reservations", search: { reservation: one.name } }),
      })),
      ...[{ key: "help", kind: "help", label: "Keys", go: onHelp }].filter((one) => fits(one.label)),
    ];
  }, [text, jobs.data, nodes.data, reservations.data, navigate, onHelp]);

  const chosen = Math.min(at, Math.max(choices.length - 1, 0));
  const take = (choice: Choice | undefined) => {
    if (!choice) return;
    onClose();
    choice.go();
  };
  const onKey = (event: KeyboardEvent) => {
    if (event.key === "ArrowDown") setAt(Math.min(chosen + 1, choices.length - 1));
    else if (event.key === "ArrowUp") setAt(Math.max(chosen - 1, 0));
    else if (event.key === "Enter") take(choices[chosen]);
    else return;
    event.preventDefault();
  };

  return (
    <Modal opened onClose={onClose} withCloseButton={false} size="lg" padding="xs" yOffset="10vh" aria-label="Search and commands">
      <input
        className="field commands-input"
        role="combobox"
        aria-label="Search jobs, nodes and pages"
        aria-expanded
        aria-controls={list}
        aria-activedescendant={choices[chosen] && `${list}-${chosen}`}
        placeholder="A job, a node, a page …"
        value={text}
        data-autofocus
        onChange={(event) => {
          setText(event.target.value);
          setAt(0);
        }}
        onKeyDown={onKey}
      />
      <ul className="commands" id={list} role="listbox" aria-label="Found">
        {choices.map((choice, index) => (
          <li
            key={choice.key}
            id={`${list}-${index}`}
            role="option"
            aria-selected={index === chosen}
            onMouseMove={() => setAt(index)}
            onClick={() => take(choice)}
          >
            <span className="muted commands-kind">{choice.kind}</span>
            <span className="commands-label">{choice.label}</span>
            {choice.state && <State state={choice.state} />}
          </li>
        ))}
        {choices.length === 0 && <li className="muted">Nothing is called so.</li>}
      </ul>
    </Modal>
  );
}
