// What a plan gains and costs, in GPU-hours of its first day; the lines add up.

import type { Plan } from "../../api/client";
import { count, duration } from "../../lib/format";
import { Box } from "../../parts/Panel";
import { type Account, accountOf } from "./account";
import { signedHours } from "./words";

export function Ledger({ plan }: { plan: Plan }) {
  const account = accountOf(plan.moves);
  const { faster, slower, standstillHours, standing, untold } = account;
  return (
    <Box title="Gain and cost" id="plan-ledger" className="span-5" note="GPU-hours, first day">
      <table className="plan-ledger">
        <tbody>
          <Row name={`faster or started: ${jobs(faster.moves)}`} hint={worth(faster.gpus)} hours={faster.dayHours} />
          <Row name={`slower or stopped: ${jobs(slower.moves)}`} hint={worth(slower.gpus)} hours={slower.dayHours} />
          <Row name={`standstill and rework: ${jobs(standing)}`} hint="until they train again, with the work since their last checkpoints" hours={-standstillHours} />
        </tbody>
        <tfoot>
          <Row name="net" hours={account.firstDayHours} />
        </tfoot>
      </table>
      <p className="muted plan-note">
        {pays(account)} Predicted; goodput is counted in the GPUs that a job has now, at what they do now, and a started job by the GPUs that it gets.
        {untold > 0 && ` ${untold === 1 ? "1 move" : `${count(untold)} moves`} of which nothing is told to you are not in it.`}
      </p>
    </Box>
  );
}

function jobs(many: number): string {
  return many === 1 ? "1 job" : `${count(many)} jobs`;
}

function worth(gpus: number): string {
  return `${gpus < 0 ? "−" : "+"}${Math.abs(gpus).toFixed(1)} GPUs' worth, from when they train again`;
}

function pays({ paysBackSeconds, standing, faster }: Account): string {
  if (paysBackSeconds !== null) return `Paid back after ${duration(paysBackSeconds)}.`;
  if (standing > 0) return "By goodput alone it never pays back: it serves priorities, quotas or jobs that are due.";
  return faster.moves > 0 ? "Nobody stands still for it." : "";
}

function Row({ name, hint, hours }: { name: string; hint?: string; hours: number }) {
  return (
    <tr title={hint}>
      <th scope="row">{name}</th>
      <td className={`number ${hours < 0 ? "warn" : hours > 0 ? "good" : "muted"}`}>{hours === 0 ? "0" : signedHours(hours)}</td>
    </tr>
  );
}
