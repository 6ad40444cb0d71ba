-- Values that jobs are given by name. What is stored is sealed with AES-256-GCM under a key that is not in this database, bound to whose it is and what it
-- is called: whoever reads the table learns no value, and a row that is moved to another owner or name opens no more. A release before this one knows no
-- secrets and does not look here.
CREATE TABLE secrets (
    owner_kind text NOT NULL CHECK (owner_kind IN ('user', 'project')),
    owner text NOT NULL,
    name text NOT NULL,
    -- Which key of the key file it is sealed with.
    key_id text NOT NULL,
    nonce bytea NOT NULL CHECK (length(nonce) = 12),
    sealed bytea NOT NULL,
    set_at timestamptz NOT NULL,
    set_by text NOT NULL,
    -- When it was last given to a job or signed a notice; to the minute.
    used_at timestamptz,
    PRIMARY KEY (owner_kind, owner, name)
);
