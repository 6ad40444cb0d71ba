-- What measured jobs have shown of each GPU type, for jobs of the same shape (`core/engine/src/peers.rs`): one document, so that
-- another leader plans its first round with it, and what ended jobs have shown is kept. It was seen, not decided: a crash may
-- lose the last second of it.
CREATE TABLE peer_lessons (
    only_row boolean PRIMARY KEY DEFAULT true CHECK (only_row),
    updated_at timestamptz NOT NULL,
    body jsonb NOT NULL
);
