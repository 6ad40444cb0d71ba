//! The last statement of a commit: adds to the event log, the idempotency keys, the audit and the transitions.
//!
//! Nearly every commit adds to most of them. One statement for all of them is one answer of Postgres to wait for.
//! No part of it may need statistics: on a new or restored database there are none yet.

use chrono::{DateTime, Utc};
use headway_engine::record::{Deed, EventRecord, IdempotencyRecord, Job};
use sqlx::PgConnection;
use uuid::Uuid;

use crate::store::audit::deeds_document;
use crate::store::events::EventColumns;
use crate::store::idempotency::KeyColumns;
use crate::store::transitions::Transitions;

/// What a commit adds to the history.
pub(super) struct History<'a> {
    pub events: &'a [&'a EventRecord],
    pub keys: &'a [&'a IdempotencyRecord],
    pub deeds: &'a [&'a Deed],
    pub transitions: &'a Transitions,
}

impl History<'_> {
    fn is_empty(&self) -> bool {
        self.events.is_empty() && self.keys.is_empty() && self.deeds.is_empty() && self.transitions.is_empty()
    }
}

/// Adds all of it, after the jobs that the events are about. `jobs`: those that this commit writes.
pub(super) async fn write(
    connection: &mut PgConnection,
    history: &History<'_>,
    jobs: &[&Job],
) -> Result<(), sqlx::Error> {
    if history.is_empty() {
        return Ok(());
    }
    let events = EventColumns::from_events(history.events, jobs);
    let keys = KeyColumns::from_records(history.keys);
    let entered = history.transitions.to_columns();
    sqlx::query!(
        "WITH logged AS (
            INSERT INTO events (seq, happened_at, verb, job_id, node_id, plan_id, project, body)
            SELECT new.seq, new.happened_at, new.verb, new.job_id, new.node_id, new.plan_id,
                CASE WHEN new.project IS NOT NULL THEN new.project
                    WHEN new.job_id IS NOT NULL THEN (SELECT project FROM jobs WHERE jobs.job_id = new.job_id) END,
                new.body::jsonb
            FROM UNNEST($1::bigint[], $2::timestamptz[], $3::text[], $4::uuid[], $5::uuid[], $6::uuid[], $7::text[],
                $8::text[]) AS new (seq, happened_at, verb, job_id, node_id, plan_id, project, body)
        ), used AS (
            INSERT INTO idempotency_keys (principal, route, key, request_hash, job_ids, used_at, reply)
            SELECT principal, route, key, request_hash, job_ids::uuid[], used_at, reply
            FROM UNNEST($9::text[], $10::text[], $11::text[], $12::text[], $13::text[], $14::timestamptz[], $15::text[])
                AS new (principal, route, key, request_hash, job_ids, used_at, reply)
            ON CONFLICT (principal, route, key) DO UPDATE SET
                request_hash = excluded.request_hash, job_ids = excluded.job_ids, used_at = excluded.used_at,
                reply = excluded.reply
        ), done AS (
            INSERT INTO audit (done_at, actor, token_id, address, action, subjects, reason, before, after, request_id,
                result, code)
            SELECT done_at, actor, token_id, address, action, ARRAY(SELECT jsonb_array_elements_text(subjects)), reason,
                nullif(before, 'null'), nullif(after, 'null'), request_id, result, code
            FROM jsonb_to_recordset($16::text::jsonb) AS new (done_at timestamptz, actor text, token_id uuid,
                address text, action text, subjects jsonb, reason text, before jsonb, after jsonb, request_id text,
                result text, code text)
        ), entered AS (
            SELECT subject, subject_id, generation, valid_from, valid_to, entered
            FROM UNNEST($17::text[], $18::uuid[], $19::bigint[], $20::timestamptz[], $21::timestamptz[], $22::text[])
                AS new (subject, subject_id, generation, valid_from, valid_to, entered)
        ), closed AS (
            UPDATE transitions AS former SET valid_to = first.valid_from
            FROM (
                SELECT subject, subject_id, generation, min(valid_from) AS valid_from
                FROM entered GROUP BY subject, subject_id, generation
            ) AS first
            WHERE (former.subject, former.subject_id, former.generation)
                = (first.subject, first.subject_id, first.generation)
                AND former.valid_to IS NULL AND former.valid_from < first.valid_from
        )
        INSERT INTO transitions (subject, subject_id, generation, valid_from, valid_to, entered)
        SELECT subject, subject_id, generation, valid_from, valid_to, entered::jsonb FROM entered
        ON CONFLICT (subject, subject_id, generation, valid_from) DO UPDATE SET
            valid_to = COALESCE(transitions.valid_to, excluded.valid_to), entered = excluded.entered",
        &events.numbers,
        &events.times,
        &events.verbs,
        &events.jobs as &[Option<Uuid>],
        &events.nodes as &[Option<Uuid>],
        &events.plans as &[Option<Uuid>],
        &events.projects as &[Option<String>],
        &events.bodies,
        &keys.principals,
        &keys.routes,
        &keys.keys,
        &keys.hashes,
        &keys.subjects,
        &keys.used,
        &keys.replies as &[Option<String>],
        deeds_document(history.deeds),
        &entered.subjects,
        &entered.ids,
        &entered.generations,
        &entered.starts,
        &entered.ends as &[Option<DateTime<Utc>>],
        &entered.states,
    )
    .execute(connection)
    .await?;
    Ok(())
}
