-- Idle GPUs of a node that a reservation closes to others are free for its members alone, so they are counted apart from
-- the GPUs that any job could have. Null: not counted then, as in rows of a release before this one, which counts them as
-- idle.

ALTER TABLE cluster_series ADD COLUMN gpus_reserved integer;
