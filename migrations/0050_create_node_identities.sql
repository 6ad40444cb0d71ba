-- Who a node is, by certificate. A release before this one knows no certificates and does not look here.

-- What signs nodes' certificates. The key is sealed as secrets are, under a key that is not in this database.
CREATE TABLE node_authorities (
    fingerprint text PRIMARY KEY,
    -- PEM.
    certificate text NOT NULL,
    key_id text NOT NULL,
    nonce bytea NOT NULL CHECK (length(nonce) = 12),
    sealed bytea NOT NULL,
    made_at timestamptz NOT NULL,
    expires_at timestamptz NOT NULL,
    -- Since then another signs; what it has signed is believed until it must have been renewed.
    replaced_at timestamptz,
    -- Since then nothing that it has signed is believed.
    retired_at timestamptz
);

-- One signs, of however many servers begin at once.
CREATE UNIQUE INDEX node_authorities_signing ON node_authorities ((true)) WHERE replaced_at IS NULL;

CREATE TABLE node_identities (
    -- The node's id; of a fleet of emulated nodes one of its own.
    identity_id uuid PRIMARY KEY,
    kind text NOT NULL CHECK (kind IN ('node', 'fleet')),
    name text NOT NULL,
    -- Rises with every join: a certificate of an earlier one opens nothing.
    epoch bigint NOT NULL CHECK (epoch > 0),
    -- Of the newest certificate.
    authority text NOT NULL,
    issued_at timestamptz NOT NULL,
    expires_at timestamptz NOT NULL,
    revoked_at timestamptz
);

-- A name is one node's.
CREATE UNIQUE INDEX node_identities_name ON node_identities (name) WHERE revoked_at IS NULL;

CREATE TABLE join_tokens (
    join_token_id uuid PRIMARY KEY,
    secret_sha256 bytea NOT NULL UNIQUE,
    kind text NOT NULL CHECK (kind IN ('node', 'fleet')),
    -- Whom alone it admits, and whom it admits again though he is known.
    name text,
    uses_left integer NOT NULL CHECK (uses_left >= 0),
    created_by text NOT NULL,
    created_at timestamptz NOT NULL,
    expires_at timestamptz NOT NULL
);
