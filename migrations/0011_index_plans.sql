-- Plans that have been decided are pruned by age, oldest first. Only keys are read for it (a plan's body lies apart), so the index is made
-- in about a second per million plans, for which commits wait.
CREATE INDEX plans_by_age ON plans (made_at);
