// The form of a new reservation as it is typed, and the request that it stands for. Pure.

import type { components } from "../../api/schema";
import { word } from "../../lib/commands";

export type ReservationRequest = components["schemas"]["ReservationRequest"];

export interface ReservationForm {
  name: string;
  /** Names or ids, with commas or spaces between them, as are projects, users and jobs. */
  nodes: string;
  /** Local time, as a field of the type `datetime-local` has it. Empty: now. */
  from: string;
  amount: string;
  /** Seconds of one unit of the amount. */
  unit: number;
  maintenance: boolean;
  projects: string;
  users: string;
  jobs: string;
}

export const UNITS = [
  { seconds: 60, word: "minutes", letter: "m" },
  { seconds: 3_600, word: "hours", letter: "h" },
  { seconds: 86_400, word: "days", letter: "d" },
] as const;

export function emptyForm(nodes: readonly string[]): ReservationForm {
  return { name: "", nodes: nodes.join(" "), from: "", amount: "2", unit: 3_600, maintenance: true, projects: "", users: "", jobs: "" };
}

/** Returns the names in a text that has commas, spaces or lines between them, each once. */
export function namesIn(text: string): string[] {
  return [...new Set(text.split(/[\s,]+/).filter((name) => name !== ""))];
}

/** Returns what the form lacks, as a sentence; `undefined`: it can be sent. */
export function lackingIn(form: ReservationForm): string | undefined {
  if (form.name.trim() === "") return "Give the reservation a name.";
  if (namesIn(form.nodes).length === 0) return "Name at least one node.";
  if (!(Number(form.amount) > 0)) return "Give a duration above 0.";
  if (!form.maintenance && [form.projects, form.users, form.jobs].every((text) => namesIn(text).length === 0)) return "Name a project, a user or a job as a member, or choose maintenance.";
  return undefined;
}

export function requestOf(form: ReservationForm): ReservationRequest {
  const members = form.maintenance ? {} : { projects: namesIn(form.projects), users: namesIn(form.users), jobs: namesIn(form.jobs) };
  return {
    name: form.name.trim(),
    nodes: namesIn(form.nodes),
    ...(form.from === "" ? {} : { from: new Date(form.from).toISOString() }),
    duration_seconds: Number(form.amount) * form.unit,
    maintenance: form.maintenance,
    ...members,
  };
}

/** Returns the command that makes the same reservation. */
export function commandOf(form: ReservationForm): string {
  const request = requestOf(form);
  const each = (option: string, names: readonly string[] = []) => names.map((name) => ` --${option} ${word(name)}`).join("");
  const unit = UNITS.find((one) => one.seconds === form.unit) ?? UNITS[1];
  const from = request.from ? ` --from ${request.from}` : "";
  const members = form.maintenance ? " --maintenance" : each("project", request.projects) + each("user", request.users) + each("job", request.jobs);
  return `headway reservation create ${word(request.name || "NAME")}${each("node", request.nodes)}${from} --for ${form.amount}${unit.letter}${members}`;
}
