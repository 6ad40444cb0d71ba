-- Who jobs count for, and nodes set aside. Both are small tables that the engine loads whole. A project that only jobs
-- name has no row and binds nothing, so jobs of a release before this one go on as they were.

CREATE TABLE projects (
    name text PRIMARY KEY,
    -- No reference: the engine changes several rows of the tree in one transaction, in no order.
    parent text,
    quota_gpus integer CHECK (quota_gpus >= 0),
    borrow_gpus integer NOT NULL CHECK (borrow_gpus >= 0),
    floor_gpus integer NOT NULL CHECK (floor_gpus >= 0),
    weight double precision NOT NULL CHECK (weight >= 0),
    max_per_user_gpus integer CHECK (max_per_user_gpus >= 0),
    -- GPU-time used until used_at, decayed to that moment; written with the release of every allocation it counts.
    used_gpu_seconds double precision NOT NULL CHECK (used_gpu_seconds >= 0),
    used_at timestamptz NOT NULL,
    version bigint NOT NULL,
    body jsonb NOT NULL
);

CREATE TABLE reservations (
    reservation_id uuid PRIMARY KEY,
    name text NOT NULL UNIQUE,
    starts_at timestamptz NOT NULL,
    ends_at timestamptz NOT NULL CHECK (ends_at > starts_at),
    body jsonb NOT NULL
);
