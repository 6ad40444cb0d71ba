//! The newest state of what changed, as one reader is told it. Rows of jobs are made once for all who see all jobs.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};

use axum::response::sse::Event;
use headway_api::v1;
use headway_engine::view::{JobView, View};
use headway_types::{JobId, NodeId};
use uuid::Uuid;

use super::row::{JOB, Kind, NODE, Row, Told};
use super::wanted::Wanted;
use crate::asking::Foretold;
use crate::http::auth::Principal;
use crate::http::{conversions, waiting};

/// Rows of which one reader's patches are made (half a kilobyte each); what is beyond is told whole.
const TOLD_AT_MOST: usize = 10_000;

/// Rows of live jobs as they are told whoever sees all of them, each with what it was made of: it serves as long as that is the newest.
#[derive(Clone, Default)]
pub struct Rows(Arc<Mutex<Made>>);

/// What a row was made of, and the row.
type Made = BTreeMap<JobId, (Arc<JobView>, Arc<Row>)>;

impl Rows {
    fn of(&self, jobs: &[Arc<JobView>], view: &View, foretold: &Foretold) -> Vec<Arc<Row>> {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() > 2 * view.jobs.len() {
            known.retain(|job, _| view.jobs.contains_key(job));
        }
        let row = |live: &Arc<JobView>| match known.get(&live.job.id) {
            Some((made_of, row)) if Arc::ptr_eq(made_of, live) => Arc::clone(row),
            _ => {
                let row = Arc::new(Row::of(&JOB, live.job.id.0, &waiting::live_job(live, view, foretold)));
                known.insert(live.job.id, (Arc::clone(live), Arc::clone(&row)));
                row
            }
        };
        jobs.iter().map(row).collect()
    }
}

/// What one reader has been told.
#[derive(Default)]
pub struct Reader {
    /// Of whoever takes patches.
    told: BTreeMap<Uuid, Told>,
    /// Of whoever looks at one node: jobs that were on it, whose leaving is told.
    here: BTreeSet<JobId>,
}

/// What has changed since the reader was told, as it is now.
pub struct News {
    pub view: Arc<View>,
    pub foretold: Arc<Foretold>,
    pub live: Vec<Arc<JobView>>,
    /// Already as the reader sees them.
    pub ended: Vec<v1::Job>,
    pub nodes: BTreeSet<NodeId>,
}

impl Reader {
    pub fn forget(&mut self) {
        *self = Self::default();
    }

    /// Whether a job that has ended is the reader's to hear of.
    pub fn follows(&self, job: JobId, wanted: &Wanted) -> bool {
        wanted.part.node.is_none() || self.here.contains(&job)
    }

    /// Takes milliseconds for a thousand rows.
    pub fn tell(&mut self, news: News, rows: &Rows, reader: &Principal, wanted: &Wanted) -> Vec<Event> {
        let News { view, foretold, mut live, ended, nodes } = news;
        live.retain(|one| self.concerns(one, wanted));
        let live = match reader.sees_all(&view) {
            true => rows.of(&live, &view, &foretold),
            false => {
                let seen = |one: &Arc<JobView>| reader.sight(&view, waiting::live_job(one, &view, &foretold));
                live.iter().filter_map(seen).map(|job| Arc::new(Row::of(&JOB, job.id, &job))).collect()
            }
        };
        let mut told: Vec<Event> = live.iter().filter_map(|row| self.row("job", &JOB, row, wanted)).collect();
        for job in ended {
            told.extend(self.row("job", &JOB, &Row::of(&JOB, job.id, &job), wanted));
            self.told.remove(&job.id);
            self.here.remove(&JobId(job.id));
        }
        for id in nodes {
            told.extend(match view.nodes.get(&id) {
                Some(node) => self.row("node", &NODE, &Row::of(&NODE, id.0, &conversions::node(node, &view)), wanted),
                None => {
                    self.told.remove(&id.0);
                    Some(super::named("node_gone", &v1::NodeGone { id: id.0 }))
                }
            });
        }
        told
    }

    fn concerns(&mut self, job: &JobView, wanted: &Wanted) -> bool {
        let has = wanted.part.has_job(job);
        if wanted.part.node.is_none() {
            return has;
        }
        let id = job.job.id;
        if has { self.here.insert(id) || has } else { self.here.remove(&id) }
    }

    fn row(&mut self, name: &str, kind: &'static Kind, row: &Row, wanted: &Wanted) -> Option<Event> {
        let columns = if std::ptr::eq(kind, &*JOB) { &wanted.job_columns } else { &wanted.node_columns };
        let whole = || Some(Event::default().event(name).data(row.whole(columns)));
        let Some(acuity) = wanted.patches else { return whole() };
        let id = row.id;
        if let Some(told) = self.told.get_mut(&id) {
            return Some(Event::default().event(format!("{name}_patch")).data(row.patch(columns, told, acuity)?));
        }
        if self.told.len() < TOLD_AT_MOST {
            self.told.insert(id, row.told(columns));
        }
        whole()
    }
}
