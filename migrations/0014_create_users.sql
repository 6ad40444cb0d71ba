-- People. A token belongs to a user, whose name owns jobs; the token's own name is a label and lends no identity.
-- Tokens of a release before this one were identities by their names: each name becomes a user, with the most that its tokens open.
-- An agent's token belongs to nobody. A token that a binary of that release makes meanwhile has no user and opens nothing for people.

CREATE TABLE users (
    name text PRIMARY KEY,
    role text NOT NULL CHECK (role IN ('viewer', 'user', 'operator', 'admin')),
    created_at timestamptz NOT NULL
);

ALTER TABLE tokens DROP CONSTRAINT tokens_scope_check;
ALTER TABLE tokens ADD CONSTRAINT tokens_scope_check CHECK (scope IN ('agent', 'viewer', 'user', 'operator', 'admin'));
ALTER TABLE tokens ADD COLUMN user_name text REFERENCES users (name);

-- What was revoked opens nothing, so it lends a role only where nothing else does.
INSERT INTO users (name, role, created_at)
SELECT name,
    (ARRAY['viewer', 'user', 'operator', 'admin'])[coalesce(max(opens) FILTER (WHERE revoked_at IS NULL), max(opens))],
    min(created_at)
FROM (SELECT *, array_position(ARRAY['viewer', 'user', 'operator', 'admin'], scope) AS opens FROM tokens WHERE scope <> 'agent') AS people
GROUP BY name;
UPDATE tokens SET user_name = name WHERE scope <> 'agent';
CREATE INDEX tokens_by_user ON tokens (user_name);
