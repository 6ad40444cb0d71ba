-- Usage is asked of a span of time, most often of one that ends now: what had ended before it is passed over.
CREATE INDEX allocations_by_end ON allocations (ended_at);
