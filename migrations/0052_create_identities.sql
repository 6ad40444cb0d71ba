-- Who is who at the site's identity provider. A person is (issuer, subject), whatever name the provider gives today: a user of a name that somebody there has
-- too is not taken over, an admin links them. Tokens that a login made, and those made with such a token, name the identity and are revoked when it may not log in any
-- more; what an admin made by hand stays. A release before this one logs nobody in here, and reads and writes all else as before; a role that it gives somebody whose role
-- comes from groups lasts until that person's next login.
CREATE TABLE identities (
    identity_id uuid PRIMARY KEY,
    issuer text NOT NULL,
    subject text NOT NULL,
    user_name text NOT NULL UNIQUE REFERENCES users (name),
    created_at timestamptz NOT NULL,
    -- The last login.
    seen_at timestamptz,
    UNIQUE (issuer, subject)
);

-- Whether an admin gave the role, which no login changes, or groups, from which each login sets it anew.
ALTER TABLE users ADD COLUMN role_from text NOT NULL DEFAULT 'hand' CHECK (role_from IN ('hand', 'groups'));

ALTER TABLE tokens ADD COLUMN identity_id uuid REFERENCES identities ON DELETE SET NULL;
CREATE INDEX tokens_by_identity ON tokens (identity_id) WHERE identity_id IS NOT NULL;
-- Made for one browser session, with a secret that nobody has; it ends with the session.
ALTER TABLE tokens ADD COLUMN of_session boolean NOT NULL DEFAULT false;
