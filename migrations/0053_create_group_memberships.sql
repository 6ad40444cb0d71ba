-- Which memberships of projects groups gave; all others somebody gave by hand, and no login touches them. What a project says of its members is in
-- `projects`, as before: a row here that does not agree with it (a hand has changed it, or a release before this one) gives nothing and is dropped at the next login.
CREATE TABLE group_memberships (
    user_name text NOT NULL REFERENCES users (name),
    project text NOT NULL,
    role text NOT NULL,
    -- What it is changed from: written before the project is, so that a crash between the two makes no group's membership a hand's.
    former_role text,
    PRIMARY KEY (user_name, project)
);
CREATE INDEX group_memberships_by_project ON group_memberships (project);
