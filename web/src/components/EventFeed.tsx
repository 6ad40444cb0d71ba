import { Skeleton } from "@mantine/core";
import type { EventRecord, Job } from "../api/client";
import { clock } from "../lib/format";

interface Props {
  events: EventRecord[] | undefined;
  jobs: Job[];
  colours: Map<string, string>;
}

/** The event log, newest first. */
export function EventFeed({ events, jobs, colours }: Props) {
  if (!events) return <Skeleton height={120} />;
  if (events.length === 0) return <p className="muted">Nothing has happened yet.</p>;
  const names = new Map(jobs.map((job) => [job.id, job.name]));
  return (
    <ol className="events" tabIndex={0} data-testid="events">
      {[...events]
        .sort((a, b) => b.seq - a.seq)
        .map((event) => {
          const name = event.job_id ? (names.get(event.job_id) ?? event.job_id.slice(-8)) : undefined;
          return (
          <li key={event.seq}>
            <span className="muted" title={event.at}>
              {clock(event.at)}
            </span>{" "}
            {event.job_id && (
              <>
                <span className="swatch" style={{ background: colours.get(event.job_id) ?? "var(--muted)" }} />
                <strong>{name}</strong>{" "}
              </>
            )}
            {withoutName(event.message, name)} <span className="verb">{event.verb}</span>
          </li>
          );
        })}
    </ol>
  );
}

/** Most messages begin with the job's name, which stands before them already. */
function withoutName(message: string, name: string | undefined): string {
  return name && message.startsWith(`${name} `) ? message.slice(name.length + 1) : message;
}
