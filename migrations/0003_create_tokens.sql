-- Bearer tokens. The secret itself is never stored: whoever reads this table cannot act with it.
CREATE TABLE tokens (
    token_id uuid PRIMARY KEY,
    name text NOT NULL,
    scope text NOT NULL CHECK (scope IN ('agent', 'viewer', 'user', 'admin')),
    secret_sha256 bytea NOT NULL UNIQUE CHECK (length(secret_sha256) = 32),
    created_at timestamptz NOT NULL,
    expires_at timestamptz,
    revoked_at timestamptz
);
