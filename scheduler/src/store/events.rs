//! Table `events`: the append-only log.

use std::collections::BTreeMap;

use chrono::{DateTime, Utc};
use headway_engine::record::{EventRecord, Job};
use headway_types::{JobId, NodeId, PlanId, Timestamp};
use sqlx::types::Json;
use uuid::Uuid;

use super::column::{document, integer, text, time, unsigned};
use super::{Page, Store, StoreError};

/// Events that one query may have to look at, where no index tells it all: tens of milliseconds.
const WINDOW: u64 = 200_000;
/// Windows that one page may take.
const WINDOWS: u32 = 10;
const READING: &str = "reading events";

/// Which part of the log to read; what is absent is any.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct EventFilter {
    /// Oldest first, from here on (exclusive).
    pub after: Option<u64>,
    /// Newest first, before this (exclusive); with `after` only the end of what is read.
    pub before: Option<u64>,
    pub job: Option<JobId>,
    pub node: Option<NodeId>,
    pub plan: Option<PlanId>,
    pub project: Option<String>,
    /// "user:ada", "scheduler", "node:<id>".
    pub actor: Option<String>,
    /// One of these; empty: any.
    pub verbs: Vec<String>,
    /// From this moment on.
    pub since: Option<Timestamp>,
    /// Before this moment.
    pub until: Option<Timestamp>,
    pub limit: u32,
}

impl EventFilter {
    /// Whether one index has what is wanted in the order of the log, or so little of it that the order does not matter.
    fn is_indexed(&self) -> bool {
        let few = self.job.is_some() || self.plan.is_some();
        let told = [self.node.is_some(), self.project.is_some(), self.actor.is_some(), !self.verbs.is_empty()];
        few || self.verbs.len() <= 1 && told.into_iter().filter(|told| *told).count() <= 1
    }
}

/// A stretch of the log, both ends exclusive.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Stretch {
    after: u64,
    before: u64,
}

impl Stretch {
    fn is_empty(self) -> bool {
        self.after.saturating_add(1) >= self.before
    }

    /// The first so many numbers of it in the order of reading, and the rest.
    fn split(self, width: u64, oldest_first: bool) -> (Self, Self) {
        if oldest_first {
            let end = self.after.saturating_add(width).saturating_add(1).min(self.before);
            (Self { before: end, ..self }, Self { after: end - 1, ..self })
        } else {
            let begin = self.before.saturating_sub(width).saturating_sub(1).max(self.after);
            (Self { after: begin, ..self }, Self { before: begin + 1, ..self })
        }
    }
}

struct Row {
    body: Json<EventRecord>,
}

impl Store {
    /// Events in the order the filter asks for; `next` is the number to go on from. A page of a search that no index answers may hold fewer than
    /// its limit although there are more: it ends where so much of the log has been looked at.
    pub async fn events(&self, filter: &EventFilter) -> Result<Page<EventRecord, u64>, StoreError> {
        let oldest_first = filter.after.is_some();
        let width = if filter.is_indexed() { u64::MAX } else { WINDOW };
        let mut left = self.stretch(filter).await?;
        let mut found = Vec::new();
        for _ in 0..WINDOWS {
            if left.is_empty() || found.len() > filter.limit as usize {
                break;
            }
            let (now, rest) = left.split(width, oldest_first);
            let missing = i64::from(filter.limit) + 1 - found.len() as i64;
            found.extend(self.events_within(filter, now, missing).await?);
            left = rest;
        }
        let mut page = Page::of(found, filter.limit, |event| event.seq);
        if page.next.is_none() && !left.is_empty() {
            page.next = Some(if oldest_first { left.after } else { left.before });
        }
        Ok(page)
    }

    /// What kinds of events tell of a node, the newest first. All of those kinds are looked at, so they should be ones that are few.
    pub async fn node_events(&self, node: NodeId, verbs: &[&str], limit: u32) -> Result<Vec<EventRecord>, StoreError> {
        let verbs: Vec<String> = verbs.iter().map(|verb| (*verb).to_owned()).collect();
        let rows = sqlx::query_as!(
            Row,
            r#"SELECT body AS "body: Json<EventRecord>" FROM events
            WHERE seq IN (SELECT seq FROM events WHERE node_id = $1 AND verb = ANY($2) ORDER BY seq DESC LIMIT $3)
            ORDER BY seq DESC"#,
            node.0,
            &verbs,
            i64::from(limit),
        );
        let rows = rows.fetch_all(&self.pool).await.map_err(StoreError::during(READING))?;
        Ok(rows.into_iter().map(|row| row.body.0).collect())
    }

    /// Forgets the oldest events of before this moment; returns how many.
    pub async fn prune_events(&self, before: Timestamp, most: u32) -> Result<u64, StoreError> {
        let done = sqlx::query!(
            "DELETE FROM events WHERE seq IN (
                SELECT seq FROM events WHERE happened_at < $1 ORDER BY happened_at, seq LIMIT $2
            )",
            time(before),
            i64::from(most),
        )
        .execute(&self.pool)
        .await
        .map_err(StoreError::during("pruning events"))?;
        Ok(done.rows_affected())
    }

    pub async fn event(&self, seq: u64) -> Result<Option<EventRecord>, StoreError> {
        let row = sqlx::query_as!(
            Row,
            r#"SELECT body AS "body: Json<EventRecord>" FROM events WHERE seq = $1"#,
            integer(seq)
        );
        let row = row.fetch_optional(&self.pool).await.map_err(StoreError::during(READING))?;
        Ok(row.map(|row| row.body.0))
    }

    /// The log between the ends that a filter gives. It has an end before it is read, so that a search for what is not there ends.
    async fn stretch(&self, filter: &EventFilter) -> Result<Stretch, StoreError> {
        let ends = sqlx::query!(
            "SELECT (SELECT seq FROM events ORDER BY seq DESC LIMIT 1) AS newest,
                (SELECT seq FROM events WHERE happened_at >= $1 ORDER BY happened_at, seq LIMIT 1) AS since,
                (SELECT seq FROM events WHERE happened_at >= $2 ORDER BY happened_at, seq LIMIT 1) AS until",
            filter.since.map(time),
            filter.until.map(time),
        )
        .fetch_one(&self.pool)
        .await
        .map_err(StoreError::during(READING))?;
        let end = ends.newest.map_or(0, unsigned) + 1;
        // No event has come since a moment after the newest.
        let place = |seq: Option<i64>| seq.map_or(end, unsigned);
        let since = filter.since.map_or(0, |_| place(ends.since));
        let until = filter.until.map_or(end, |_| place(ends.until));
        Ok(Stretch {
            after: filter.after.unwrap_or(0).max(since.saturating_sub(1)),
            before: filter.before.unwrap_or(u64::MAX).min(until),
        })
    }

    async fn events_within(
        &self,
        filter: &EventFilter,
        within: Stretch,
        limit: i64,
    ) -> Result<Vec<EventRecord>, StoreError> {
        let verbs: Vec<String> = filter.verbs.iter().map(|verb| text(verb)).collect();
        // The texts are one but for the order, which no parameter may choose: a text that did would use no index.
        macro_rules! events {
            ($order:literal) => {
                sqlx::query_as!(
                    Row,
                    "SELECT body AS \"body: Json<EventRecord>\" FROM events
                    WHERE seq > $1 AND seq < $2
                      AND ($3::uuid IS NULL OR job_id = $3)
                      AND ($4::uuid IS NULL OR node_id = $4)
                      AND ($5::uuid IS NULL OR plan_id = $5)
                      AND ($6::text IS NULL OR project = $6)
                      AND ($7::text IS NULL
                        OR (body #>> '{actor,actor}') || COALESCE(':' || (body #>> '{actor,name}'), '') = $7)
                      AND (cardinality($8::text[]) = 0 OR verb = ANY($8))
                    ORDER BY "
                        + $order
                        + " LIMIT $9",
                    integer(within.after),
                    integer(within.before),
                    filter.job.map(|job| job.0),
                    filter.node.map(|node| node.0),
                    filter.plan.map(|plan| plan.0),
                    filter.project.as_deref().map(text),
                    filter.actor.as_deref().map(text),
                    &verbs,
                    limit,
                )
                .fetch_all(&self.pool)
                .await
            };
        }
        let rows = if filter.after.is_some() { events!("seq") } else { events!("seq DESC") };
        let rows = rows.map_err(StoreError::during(READING))?;
        Ok(rows.into_iter().map(|row| row.body.0).collect())
    }
}

/// The columns of events to be appended; a number used twice fails the whole commit.
pub(super) struct EventColumns {
    pub numbers: Vec<i64>,
    pub times: Vec<DateTime<Utc>>,
    pub verbs: Vec<String>,
    pub jobs: Vec<Option<Uuid>>,
    pub nodes: Vec<Option<Uuid>>,
    pub plans: Vec<Option<Uuid>>,
    /// Of the event's job, where the same commit writes the job. Of other jobs the row is asked.
    pub projects: Vec<Option<String>>,
    pub bodies: Vec<String>,
}

impl EventColumns {
    pub fn from_events(events: &[&EventRecord], jobs: &[&Job]) -> Self {
        let projects: BTreeMap<JobId, &str> = jobs.iter().map(|job| (job.id, job.spec.project.as_str())).collect();
        let project = |event: &EventRecord| projects.get(&event.job?).map(|name| text(name));
        Self {
            numbers: events.iter().map(|event| integer(event.seq)).collect(),
            times: events.iter().map(|event| time(event.at)).collect(),
            verbs: events.iter().map(|event| text(&event.verb)).collect(),
            jobs: events.iter().map(|event| event.job.map(|job| job.0)).collect(),
            nodes: events.iter().map(|event| event.node.map(|node| node.0)).collect(),
            plans: events.iter().map(|event| event.plan.map(|plan| plan.0)).collect(),
            projects: events.iter().map(|event| project(event)).collect(),
            bodies: events.iter().map(document).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn windows_cover_a_stretch_once_and_in_order(
            after in 0u64..50,
            length in 0u64..200,
            width in proptest::sample::select(vec![1u64, 7, 40, u64::MAX]),
            oldest_first in any::<bool>(),
        ) {
            let mut left = Stretch { after, before: after + length };
            let mut read = Vec::new();
            while !left.is_empty() {
                let (now, rest) = left.split(width, oldest_first);
                let numbers = now.after + 1..now.before;
                prop_assert!(!numbers.is_empty() && numbers.end - numbers.start <= width);
                if oldest_first { read.extend(numbers) } else { read.extend(numbers.rev()) }
                left = rest;
            }
            if !oldest_first {
                read.reverse();
            }
            prop_assert_eq!(read, (after + 1..after + length).collect::<Vec<_>>());
        }
    }
}
