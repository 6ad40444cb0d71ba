-- Who leads and who stands by, so that whoever reaches another server can be told. The release before begins terms without naming anybody: who is named
-- led `led_term`, and leads only while that is the newest. Times are Postgres' own: servers are compared by them, whose clocks differ.
ALTER TABLE cluster
    ADD COLUMN leader_id uuid,
    ADD COLUMN led_term bigint,
    ADD COLUMN led_since timestamptz;

CREATE TABLE servers (
    server_id uuid PRIMARY KEY,
    url text NOT NULL,
    agents_url text NOT NULL,
    version text NOT NULL,
    started_at timestamptz NOT NULL DEFAULT now(),
    seen_at timestamptz NOT NULL DEFAULT now(),
    stopped_at timestamptz
);
