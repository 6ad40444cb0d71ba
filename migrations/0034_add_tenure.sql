-- Accounts of GPU-time read every allocation of their span, and of each a tenth of its record: `tenure` keeps that beside it, made from the record whatever
-- release writes it. It is what `headway_engine::Tenure::of` makes; a test holds them together. About five seconds per 100,000 allocations, for which commits wait.
CREATE FUNCTION tenure_of(body jsonb) RETURNS jsonb LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT jsonb_strip_nulls(jsonb_build_object(
        'moments', jsonb_build_object(
            'granted_at', body -> 'granted_at',
            'worked_at', COALESCE(NULLIF(body -> 'training_at', 'null'), body -> 'launched_at'),
            'saved_at', body -> 'saved_at',
            'idle_since', body -> 'idle_since',
            'stopping_at', body -> 'stopping_at',
            'lost', NULLIF(body -> 'ended_at', 'null') IS NOT NULL AND NOT COALESCE((body ->> 'complete')::boolean, false)),
        'gpu_type', body -> 'gpu_type',
        'displaced_by', CASE WHEN body -> 'stopped_for' ->> 'cause' IN ('preempt', 'rescale')
            AND body -> 'displaced_by' -> 0 IS NOT NULL
            THEN jsonb_build_object(
                'job', body -> 'displaced_by' -> 0 -> 'job', 'owner', body -> 'displaced_by' -> 0 -> 'owner') END
    )) || jsonb_build_object('gpus', (
        SELECT jsonb_agg(jsonb_build_array(
            jsonb_array_length(slice -> 'gpus'), body -> 'released' -> (slice ->> 'node') -> 'at') ORDER BY place)
        FROM jsonb_array_elements(body -> 'placement') WITH ORDINALITY AS slices (slice, place)))
$$;
ALTER TABLE allocations ADD COLUMN tenure jsonb NOT NULL GENERATED ALWAYS AS (tenure_of(body)) STORED;
