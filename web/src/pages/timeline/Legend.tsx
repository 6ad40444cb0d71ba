// What the looks of bars mean. Each look is a small drawing beside its word.

const JOBS = [
  { look: "queued", words: "waiting" },
  { look: "held", words: "held" },
  { look: "starting", words: "starting" },
  { look: "running", words: "running, in the job's colour" },
  { look: "stopping", words: "stopping" },
  { look: "predicted", words: "predicted" },
  { look: "fault", words: "fault" },
] as const;
const NODES = [
  { look: "running", words: "GPUs of a job, in its colour" },
  { look: "lost", words: "lost or unreachable" },
  { look: "queued", words: "draining or cordoned" },
  { look: "quarantined", words: "quarantined" },
  { look: "reserved", words: "reserved" },
  { look: "fault", words: "fault, or GPUs that are broken" },
] as const;

export function Legend({ byNode, most }: { byNode: boolean; most: number }) {
  return (
    <ul className="timeline-legend" aria-label="Legend">
      {(byNode ? NODES : JOBS).map(({ look, words }) => (
        <li key={words}>
          <i className={`timeline-look ${look}`} aria-hidden /> {words}
        </li>
      ))}
      <li className="muted">{byNode ? "as high as GPUs of the node" : `thicker: more GPUs (logarithmic, ${most} at most)`}; ▲ on the axis: a plan</li>
    </ul>
  );
}
