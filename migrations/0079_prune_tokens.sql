-- Ended tokens are pruned (`headway server --token-days`). A token that a server was started with stays: a server that is
-- started with it again must not open it. Former releases do not record which tokens these are. They have no end of their own,
-- so tokens without one stay too, and so does what a former binary writes beside this one.
ALTER TABLE tokens ADD COLUMN given_to_server boolean NOT NULL DEFAULT true;
UPDATE tokens SET given_to_server = false WHERE expires_at IS NOT NULL;
CREATE INDEX tokens_by_end ON tokens (LEAST(expires_at, revoked_at)) WHERE NOT given_to_server;
