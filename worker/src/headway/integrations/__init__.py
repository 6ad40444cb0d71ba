"""Training frameworks that a job may use instead of a loop of its own. Each module needs its framework."""
