-- Arrays: jobs of one specification that differ in their index. Elements are rows of jobs like any other and name their array; whoever waits for an
-- array, changes how many run, or looks at all of it needs what the elements have in common. Columns without defaults are added at once, whatever the
-- table holds, and are null in every row of the binary before this one, which writes rows without them.
CREATE TABLE arrays (
    array_id uuid PRIMARY KEY,
    name text NOT NULL,
    project text NOT NULL,
    owner text NOT NULL,
    submitted_at timestamptz NOT NULL,
    version bigint NOT NULL,
    body jsonb NOT NULL
);
CREATE INDEX arrays_by_name ON arrays (name, project, owner, array_id DESC);

ALTER TABLE jobs ADD COLUMN array_id uuid, ADD COLUMN array_place integer;
CREATE INDEX jobs_by_array ON jobs (array_id, array_place) WHERE array_id IS NOT NULL;
