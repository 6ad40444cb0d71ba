-- A plan of 1,000 jobs is a megabyte of JSON. A list of plans shows a line of each, so the line has a column of its own,
-- written with the row. NULL: the row was written by an earlier binary, and the line is read off its body.
ALTER TABLE plans ADD COLUMN summary jsonb;

-- Of the plans that are there the newest get theirs now, which are those that people list. All of them could be
-- minutes of reading, during which nobody schedules.
UPDATE plans SET summary = jsonb_build_object(
    'id', body #> '{plan,id}',
    'parent', body #> '{plan,parent}',
    'made_at', body #> '{plan,made_at}',
    'state', body -> 'state',
    'decided_at', body -> 'decided_at',
    'decided_by', body -> 'decided_by',
    'trigger', body #> '{plan,report,trigger}',
    'objective_before', body #> '{plan,report,objective_before}',
    'objective', body #> '{plan,report,objective}',
    'bound', body #> '{plan,report,bound}',
    'gap', body #> '{plan,report,gap}',
    'moves', jsonb_array_length(body #> '{plan,report,moves}')
)
WHERE plan_id IN (SELECT plan_id FROM plans ORDER BY plan_id DESC LIMIT 400);
