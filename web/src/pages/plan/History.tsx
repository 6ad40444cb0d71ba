// Plans that were carried out, what was promised of them and what came; and all that were made, those that came to nothing too.

import { useNavigate } from "@tanstack/react-router";
import { type ReactNode, useState } from "react";
import { count, fixed, signedPercent } from "../../lib/format";
import { type Column, DataTable } from "../../parts/DataTable";
import { PlanLink } from "../../parts/Name";
import { Empty, Panel } from "../../parts/Panel";
import { Ago } from "../../parts/Time";
import { type PastPlan, type PlanSummary, useAllPlans, useReceipts } from "./asks";
import { change, objective, stateOf } from "./words";

interface Props {
  shown: string | undefined;
  past: boolean;
}

export function History(props: Props) {
  const [all, setAll] = useState(false);
  const switcher = (
    <span className="row" role="group" aria-label="Which plans">
      <button className="link" aria-pressed={!all} onClick={() => setAll(false)}>
        carried out
      </button>
      <button className="link" aria-pressed={all} onClick={() => setAll(true)}>
        all
      </button>
    </span>
  );
  return all ? <All {...props} tools={switcher} /> : <Receipts {...props} tools={switcher} />;
}

const RECEIPTS: Column<PastPlan>[] = [
  { id: "plan", header: "Plan", width: "90px", cell: (one) => <PlanLink id={one.id} /> },
  { id: "adopted", header: "Adopted", width: "120px", cell: (one) => <Ago at={one.adopted_at} /> },
  { id: "by", header: "By", width: "110px", from: "desktop", cell: (one) => <span title={one.adopted_by ?? undefined}>{one.adopted_by ?? "–"}</span> },
  { id: "starts", header: "Starts", number: true, width: "70px", from: "tablet", cell: (one) => count(one.starts) },
  { id: "moves", header: "Moves done", hint: "of running jobs", number: true, width: "130px", cell: (one) => <Done of={one} /> },
  {
    id: "gain",
    header: "Gain came",
    hint: "of the goodput of moves that were measured before and after, together",
    number: true,
    width: "90px",
    cell: (one) => <Came of={one} />,
  },
  { id: "promised", header: "Promised", number: true, width: "90px", cell: (one) => signedPct(one.predicted_gain_pct) },
  { id: "lost", header: "GPU-h lost", hint: "that moved jobs stood still, of those whose standstill is known", number: true, width: "100px", from: "tablet", cell: (one) => fixed(one.realised_lost_gpu_hours) },
  { id: "said", header: "Said", hint: "GPU-hours that they were to stand still", number: true, width: "80px", from: "tablet", cell: (one) => fixed(one.predicted_lost_gpu_hours) },
  { id: "because", header: "Because", from: "tablet", cell: (one) => <Because of={one} /> },
];

function Because({ of: { trigger, undoes, forced } }: { of: PastPlan }) {
  if (!undoes) return <span title={trigger}>{forced ? `forced: ${trigger}` : trigger}</span>;
  return (
    <span className="row">
      takes back <PlanLink id={undoes} />
    </span>
  );
}

function signedPct(percents: number | null | undefined): string {
  return signedPercent(percents == null ? undefined : percents / 100);
}

/** What came is held against what was promised. */
function Came({ of: { realised_gain_pct: came, predicted_gain_pct: said } }: { of: PastPlan }) {
  if (came == null) return <>–</>;
  const kept = said == null || came >= said;
  return (
    <span className={kept ? "good" : "warn"} title={kept ? "as much as was promised, or more" : "less than was promised"}>
      <span aria-hidden>{kept ? "✓" : "▼"}</span> {signedPct(came)}
    </span>
  );
}

function Done({ of }: { of: PastPlan }) {
  if (of.moves === 0) return <>–</>;
  const rest = [of.under_way > 0 && `${count(of.under_way)} under way`, of.overtaken > 0 && `${count(of.overtaken)} overtaken`].filter(Boolean);
  const tone = of.under_way > 0 ? "warn" : of.done === of.moves ? "good" : "muted";
  return (
    <span className={tone} title={rest.join(", ") || undefined}>
      <span aria-hidden>{of.under_way > 0 ? "◌" : of.done === of.moves ? "✓" : "⊘"}</span> {count(of.done)} of {count(of.moves)}
    </span>
  );
}

function useOpen(): (plan: { id: string }) => void {
  const navigate = useNavigate();
  return ({ id }) => void navigate({ to: "/plan", search: { plan: id } });
}

function Receipts({ shown, past, tools }: Props & { tools: ReactNode }) {
  const asked = useReceipts();
  const open = useOpen();
  const plans = asked.data?.pages.flatMap((page) => page.items) ?? [];
  return (
    <Panel
      title="Receipts"
      id="plan-history"
      className="span-12"
      asked={asked}
      everySeconds={15}
      note={note(plans.length, asked.hasNextPage, past)}
      tools={tools}
    >
      {() => (
        <>
          {plans.length > 0 ? (
            <DataTable
              label="Plans that were carried out"
              rows={plans}
              columns={RECEIPTS}
              keyOf={(one) => one.id}
              onOpen={open}
              selected={shown}
              height={364}
              testId="plan-receipts"
            />
          ) : (
            <Empty>
              {asked.hasNextPage
                ? "Among the newest plans none moved or started a job."
                : "No plan has started or moved a job yet. Here stands what was promised of those that did, and what came of it."}
            </Empty>
          )}
          <More asked={asked} />
        </>
      )}
    </Panel>
  );
}

const ALL: Column<PlanSummary>[] = [
  { id: "plan", header: "Plan", width: "90px", cell: (one) => <PlanLink id={one.id} /> },
  { id: "made", header: "Made", width: "120px", cell: (one) => <Ago at={one.made_at} /> },
  { id: "state", header: "State", width: "240px", cell: (one) => <PlanState of={one} /> },
  { id: "by", header: "Decided by", width: "120px", from: "desktop", cell: (one) => <span title={one.decided_by ?? undefined}>{one.decided_by ?? "–"}</span> },
  { id: "moves", header: "Moves", number: true, width: "70px", cell: (one) => count(one.moves) },
  { id: "objective", header: "Objective", number: true, width: "160px", from: "tablet", cell: (one) => change(one.objective_before, one.objective, objective) },
  { id: "because", header: "Because", from: "tablet", cell: (one) => <span title={one.trigger}>{one.forced ? `forced: ${one.trigger}` : one.trigger}</span> },
];

function PlanState({ of }: { of: PlanSummary }) {
  const { glyph, tone, word } = stateOf(of.state);
  const whole = of.state_reason ? `${word}: ${of.state_reason}` : word;
  return (
    <span className={tone} title={whole}>
      <span aria-hidden>{glyph}</span> {whole}
    </span>
  );
}

function All({ shown, past, tools }: Props & { tools: ReactNode }) {
  const asked = useAllPlans();
  const open = useOpen();
  const plans = asked.data?.pages.flatMap((page) => page.items) ?? [];
  return (
    <Panel title="All plans" id="plan-history" className="span-12" asked={asked} everySeconds={15} note={note(plans.length, asked.hasNextPage, past)} tools={tools}>
      {() => (
        <>
          {plans.length > 0 ? (
            <DataTable label="All plans" rows={plans} columns={ALL} keyOf={(one) => one.id} onOpen={open} selected={shown} height={364} testId="plan-all" />
          ) : (
            <Empty>No plan has been made yet. The first comes with the first job.</Empty>
          )}
          <More asked={asked} />
        </>
      )}
    </Panel>
  );
}

function note(shown: number, more: boolean, past: boolean): string {
  const many = more ? `the newest ${count(shown)}; there are more` : `all ${count(shown)} that are kept`;
  return past ? `${many}; of the present` : many;
}

function More({ asked }: { asked: { hasNextPage: boolean; isFetchingNextPage: boolean; fetchNextPage: () => unknown } }) {
  if (!asked.hasNextPage) return null;
  return (
    <button className="button plan-more" onClick={() => void asked.fetchNextPage()} disabled={asked.isFetchingNextPage}>
      {asked.isFetchingNextPage ? "asking …" : "Older plans"}
    </button>
  );
}
