-- Nodes that are gone for good can be deleted: their rows go, so that no later leader knows of them, this release's or the one
-- before. What is kept is who they were, since the history of jobs, events and past moments names nodes by id alone.
-- A node that registers again under the id is known by its own row first.
CREATE TABLE former_nodes (
    node_id uuid PRIMARY KEY,
    name text NOT NULL
);
CREATE INDEX former_nodes_by_name ON former_nodes (name);
