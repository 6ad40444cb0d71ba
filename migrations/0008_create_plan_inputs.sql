-- What each round that made a stored plan was decided from, and the planner's own answer, so that it can be decided
-- again: `headway plan replay`. Written after the commit of the plan and never in its way, so a plan may lack its row
-- (a crash between the two, a database too slow); pruned by age. Earlier binaries neither read nor write it.

CREATE TABLE plan_inputs (
    plan_id uuid PRIMARY KEY REFERENCES plans,
    made_at timestamptz NOT NULL,
    -- JSON as `GET /plans/{id}/input` serves it, gzip.
    body bytea NOT NULL
);
-- Compressed already: Postgres need not try again.
ALTER TABLE plan_inputs ALTER COLUMN body SET STORAGE EXTERNAL;
CREATE INDEX plan_inputs_by_age ON plan_inputs (made_at);
