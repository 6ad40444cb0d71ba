-- Browsers that have logged in with a token. The cookie's secret itself is never stored: whoever reads this table cannot act with it. A row is gone with
-- its session, and what it opens is its token's to say, so a release before this one, which knows no cookies, is not concerned.
CREATE TABLE browser_sessions (
    session_id uuid PRIMARY KEY,
    token_id uuid NOT NULL REFERENCES tokens,
    user_name text NOT NULL REFERENCES users (name),
    secret_sha256 bytea NOT NULL UNIQUE CHECK (length(secret_sha256) = 32),
    created_at timestamptz NOT NULL,
    used_at timestamptz NOT NULL,
    -- Unless it is used before; never after ends_at.
    expires_at timestamptz NOT NULL CHECK (expires_at <= ends_at),
    -- However much it is used; never after the token's end.
    ends_at timestamptz NOT NULL
);
CREATE INDEX browser_sessions_by_user ON browser_sessions (user_name);
CREATE INDEX browser_sessions_by_token ON browser_sessions (token_id);

-- Which cluster this is, whatever it is reached by: names its cookie, which browsers send to every port of a host.
ALTER TABLE cluster ADD COLUMN identity uuid NOT NULL DEFAULT gen_random_uuid();
