-- Which arrays are live is asked by lists and at each take-over: of an array that has ended nothing is read.
CREATE INDEX jobs_live_of_array ON jobs (array_id)
    WHERE array_id IS NOT NULL AND state IN ('queued', 'held', 'starting', 'running', 'stopping');

-- Faults and incidents of a node are few among the events of its jobs. About five seconds per million events, for which commits wait.
CREATE INDEX events_of_nodes ON events (node_id, verb, seq) WHERE node_id IS NOT NULL;

-- Whose notices they are: one owner's may not hold up another's.
ALTER TABLE deliveries ADD COLUMN owner text NOT NULL GENERATED ALWAYS AS (body ->> 'owner') STORED;
CREATE INDEX deliveries_due_by_owner ON deliveries (owner, next_at) WHERE state = 'waiting';
DROP INDEX deliveries_due;
