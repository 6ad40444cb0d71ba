// A job's configuration in words.

import type { Job } from "../../api/client";
import { count, layoutOf, si } from "../../lib/format";
import type { Configuration } from "./asks";

/** What happened to a job, without its name: that stands above all of its page. */
export function without(name: string, message: string): string {
  return message.startsWith(`${name} `) ? message.slice(name.length + 1) : message;
}

/** "dp4 pp2 · b256". */
export function configurationOf(of: Configuration | null | undefined): string {
  return of ? `${layoutOf(of.layout, of.execution, true)} · b${count(of.global_batch_sequences)}` : "";
}

export function gpusOf(gpus: number): string {
  return gpus === 1 ? "1 GPU" : `${count(gpus)} GPUs`;
}

/** "256 sequences = 1.05M tokens: 4 × 16 × dp4"; of uneven shares "36 sequences: 2 × (2 replicas × 3 + 2 × 6)". */
export function batchOf(job: Job): string | undefined {
  const { global_batch_sequences: batch, micro_batch_sequences: micro, accumulation, layout } = job;
  if (batch == null) return undefined;
  const tokens = job.global_batch_tokens == null ? "" : ` = ${si(job.global_batch_tokens)} tokens`;
  const shares = job.execution?.shares;
  let made = micro != null && accumulation != null && layout ? `: ${micro} × ${accumulation} × dp${layout.dp}` : "";
  if (micro != null && shares && layout) {
    const [slower, faster] = [layout.dp - shares.of_faster, shares.of_faster];
    const cycles = batch / (micro * (slower * shares.slower + faster * shares.faster));
    made = `: ${micro} × (${slower} replicas × ${shares.slower * cycles} + ${faster} × ${shares.faster * cycles})`;
  }
  return `${count(batch)} sequences${tokens}${made}`;
}

/** Tokens of a sequence, as far as it can be told from what the job has done. */
export function sequenceTokens(job: Job): number | undefined {
  if (job.global_batch_tokens && job.global_batch_sequences) return job.global_batch_tokens / job.global_batch_sequences;
  return job.samples_seen && job.seen_tokens > 0 ? job.seen_tokens / job.samples_seen : undefined;
}

/** What the server says, with a full stop where it has none. */
export function sentence(text: string): string {
  return /[.!?…]$/.test(text) ? text : `${text}.`;
}
