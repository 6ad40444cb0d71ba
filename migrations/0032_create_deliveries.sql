-- What webhooks are to be told, written in the transaction of the event that it tells of: a notice is as durable as its event, and whoever leads
-- sends what is due. A release before this one makes none and leaves those that wait to the next.
CREATE TABLE deliveries (
    event_seq bigint NOT NULL,
    -- Place of the webhook in the job's specification.
    webhook integer NOT NULL,
    job_id uuid NOT NULL,
    -- Whom it goes to, so that one that does not answer holds up nobody else.
    host text NOT NULL,
    -- The notice whole. Addresses of webhooks may hold secrets of their own.
    body jsonb NOT NULL,
    made_at timestamptz NOT NULL,
    state text NOT NULL CHECK (state IN ('waiting', 'delivered', 'given_up')),
    attempts integer NOT NULL DEFAULT 0,
    -- When it is due, while it waits.
    next_at timestamptz NOT NULL,
    -- When it was delivered or given up.
    ended_at timestamptz,
    last_error text,
    PRIMARY KEY (event_seq, webhook)
);
CREATE INDEX deliveries_due ON deliveries (next_at) WHERE state = 'waiting';
CREATE INDEX deliveries_by_job ON deliveries (job_id, event_seq);
CREATE INDEX deliveries_by_end ON deliveries (ended_at) WHERE ended_at IS NOT NULL;
