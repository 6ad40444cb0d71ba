//! What `headway top` knows and shows: rows from the stream, the cluster's figures, what is selected, and what keys do to it. Pure: messages and keys in,
//! what is to be done out.

use std::cmp::{Ordering, Reverse};
use std::collections::BTreeMap;

use chrono::{DateTime, Utc};
use headway_api::v1::{Explanation, Job, JobStateKind, Overview, StreamMessage};
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use serde::Deserialize as _;
use serde_json::{Map, Value};
use uuid::Uuid;

/// How the newest word came.
#[derive(Clone, Debug, PartialEq)]
pub enum Link {
    /// Nothing has come yet.
    Connecting,
    Live,
    /// Nothing comes, since when by the scheduler's clock, and why.
    Lost {
        since: Option<DateTime<Utc>>,
        why: String,
    },
}

/// What rows are sorted by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::VariantArray, strum::IntoStaticStr)]
#[strum(serialize_all = "lowercase")]
pub enum Sort {
    State,
    Name,
    Owner,
    Gpus,
    Goodput,
    Done,
    Eta,
    Age,
}

/// What a key asks of whoever owns the terminal and the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Deed {
    Quit,
    Show,
}

/// A row as the stream tells it, and as it reads.
#[derive(Clone, Debug)]
struct Row {
    told: Map<String, Value>,
    job: Job,
}

/// A message that does not fit what is known: everything is to be fetched again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OutOfStep;

#[derive(Clone, Debug)]
pub struct State {
    rows: BTreeMap<Uuid, Row>,
    pub overview: Option<Overview>,
    pub link: Link,
    pub sort: Sort,
    pub turned: bool,
    pub detail: bool,
    pub help: bool,
    selected: Option<Uuid>,
    why: Option<(Uuid, Result<Explanation, String>)>,
    /// Jobs that have ended since it was begun to look.
    pub ended: usize,
    /// Rows of the table that fit, by the last drawing.
    pub page: usize,
}

impl Default for State {
    fn default() -> Self {
        Self {
            rows: BTreeMap::new(),
            overview: None,
            link: Link::Connecting,
            sort: Sort::State,
            turned: false,
            detail: true,
            help: false,
            selected: None,
            why: None,
            ended: 0,
            page: 10,
        }
    }
}

impl State {
    /// Takes over what was fetched afresh.
    pub fn fetched(&mut self, overview: Overview, jobs: Vec<Job>) {
        self.overview = Some(overview);
        let live = jobs.into_iter().filter(|job| !job.state.is_final());
        self.rows = live.filter_map(|job| Some((job.id, Row { told: map(&job)?, job }))).collect();
        self.link = Link::Live;
        self.keep_selection(0);
    }

    pub fn figures(&mut self, overview: Overview) {
        self.overview = Some(overview);
        self.link = Link::Live;
    }

    pub fn lost(&mut self, why: String) {
        let since = match &self.link {
            Link::Lost { since, .. } => *since,
            Link::Live => self.now(),
            Link::Connecting => None,
        };
        self.link = Link::Lost { since, why };
    }

    /// A message of the stream.
    pub fn heard(&mut self, message: StreamMessage) -> Result<(), OutOfStep> {
        match message {
            StreamMessage::Job(job) => {
                let told = map(&job).ok_or(OutOfStep)?;
                self.put(Row { told, job: *job });
            }
            StreamMessage::JobPatch(patch) => {
                let id = patch.get("id").and_then(Value::as_str).and_then(|id| id.parse::<Uuid>().ok());
                // Of one that has ended there is nothing to show any more.
                let Some(row) = self.rows.get(&id.ok_or(OutOfStep)?) else { return Ok(()) };
                let mut told = Value::Object(row.told.clone());
                merge(&mut told, Value::Object(patch));
                let job = Job::deserialize(&told).map_err(|_| OutOfStep)?;
                let Value::Object(told) = told else { return Err(OutOfStep) };
                self.put(Row { told, job });
            }
            StreamMessage::Reset => return Err(OutOfStep),
            StreamMessage::Node(_)
            | StreamMessage::NodePatch(_)
            | StreamMessage::NodeGone(_)
            | StreamMessage::Plan(_)
            | StreamMessage::Event(_)
            | StreamMessage::NotLeading(_) => {}
        }
        self.link = Link::Live;
        Ok(())
    }

    fn put(&mut self, row: Row) {
        let (id, over) = (row.job.id, row.job.state.is_final());
        let at = self.position();
        if !over {
            self.rows.insert(id, row);
        } else if self.rows.remove(&id).is_some() {
            self.ended += 1;
        }
        self.keep_selection(at);
    }

    /// Where what was selected is gone, what took its place is.
    fn keep_selection(&mut self, at: usize) {
        if self.selected.is_some_and(|id| !self.rows.contains_key(&id)) {
            let jobs = self.jobs();
            self.selected = jobs.get(at.min(jobs.len().saturating_sub(1))).map(|job| job.id);
        }
    }

    /// By the scheduler's clock, which runs faster where a cluster is emulated.
    pub fn now(&self) -> Option<DateTime<Utc>> {
        self.overview.as_ref().map(|overview| overview.at)
    }

    /// In the order shown.
    pub fn jobs(&self) -> Vec<&Job> {
        let mut jobs: Vec<&Job> = self.rows.values().map(|row| &row.job).collect();
        jobs.sort_by(|one, other| {
            let order = self.order(one, other);
            let order = if self.turned { order.reverse() } else { order };
            order.then_with(|| one.name.cmp(&other.name)).then(one.id.cmp(&other.id))
        });
        jobs
    }

    /// What people look for first: the largest, the nearest to its end.
    fn order(&self, one: &Job, other: &Job) -> Ordering {
        let most = |of: fn(&Job) -> Option<f64>| {
            of(other).unwrap_or(f64::NEG_INFINITY).total_cmp(&of(one).unwrap_or(f64::NEG_INFINITY))
        };
        match self.sort {
            Sort::State => (rank(one), Reverse(one.gpus)).cmp(&(rank(other), Reverse(other.gpus))),
            Sort::Name => one.name.cmp(&other.name),
            Sort::Owner => one.owner.cmp(&other.owner),
            Sort::Gpus => other.gpus.cmp(&one.gpus),
            Sort::Goodput => most(|job| job.goodput_tokens_per_second),
            Sort::Done => most(|job| job.progress_fraction),
            Sort::Eta => {
                let left = |job: &Job| job.eta_seconds.unwrap_or(f64::INFINITY);
                left(one).total_cmp(&left(other))
            }
            Sort::Age => one.submitted_at.cmp(&other.submitted_at),
        }
    }

    /// The row that is selected; the first unless somebody has chosen.
    pub fn position(&self) -> usize {
        let selected = self.selected.and_then(|id| self.jobs().iter().position(|job| job.id == id));
        selected.unwrap_or(0)
    }

    pub fn selected(&self) -> Option<&Job> {
        match self.selected.and_then(|id| self.rows.get(&id)) {
            Some(row) => Some(&row.job),
            None => self.jobs().first().copied(),
        }
    }

    /// Of which job it is to be found out why it has what it has.
    pub fn wonders(&self) -> Option<Uuid> {
        self.selected().filter(|_| self.detail).map(|job| job.id)
    }

    pub fn explained(&mut self, job: Uuid, why: Result<Explanation, String>) {
        self.why = Some((job, why));
    }

    /// What is known of the selected one.
    pub fn why(&self) -> Option<&Result<Explanation, String>> {
        let id = self.selected()?.id;
        self.why.as_ref().filter(|(of, _)| *of == id).map(|(_, why)| why)
    }

    pub fn key(&mut self, key: KeyEvent) -> Deed {
        let control = key.modifiers.contains(KeyModifiers::CONTROL);
        match key.code {
            KeyCode::Char('c') if control => return Deed::Quit,
            KeyCode::Char('q') => return Deed::Quit,
            KeyCode::Esc if self.help => self.help = false,
            KeyCode::Esc => return Deed::Quit,
            KeyCode::Char('?') => self.help = !self.help,
            KeyCode::Char('j') | KeyCode::Down => self.step(1),
            KeyCode::Char('k') | KeyCode::Up => self.step(-1),
            KeyCode::PageDown => self.step(self.page as isize),
            KeyCode::PageUp => self.step(-(self.page as isize)),
            KeyCode::Char('g') | KeyCode::Home => self.step(isize::MIN / 2),
            KeyCode::Char('G') | KeyCode::End => self.step(isize::MAX / 2),
            KeyCode::Char('s') | KeyCode::Right => self.sort_by(1),
            KeyCode::Char('S') | KeyCode::Left => self.sort_by(-1),
            KeyCode::Char('r') => self.turned = !self.turned,
            KeyCode::Enter | KeyCode::Char('d') => self.detail = !self.detail,
            _ => {}
        }
        Deed::Show
    }

    fn step(&mut self, by: isize) {
        let at = self.position().saturating_add_signed(by);
        let jobs = self.jobs();
        self.selected = jobs.get(at.min(jobs.len().saturating_sub(1))).map(|job| job.id);
    }

    fn sort_by(&mut self, by: isize) {
        use strum::VariantArray;
        let all = Sort::VARIANTS;
        let at = all.iter().position(|one| *one == self.sort).unwrap_or(0) as isize;
        self.sort = all[(at + by).rem_euclid(all.len() as isize) as usize];
        self.turned = false;
    }
}

/// Who trains before who waits.
fn rank(job: &Job) -> u8 {
    match job.state {
        JobStateKind::Running => 0,
        JobStateKind::Starting => 1,
        JobStateKind::Stopping => 2,
        JobStateKind::Queued => 3,
        JobStateKind::Held => 4,
        JobStateKind::Succeeded | JobStateKind::Failed | JobStateKind::Cancelled => 5,
    }
}

fn map(job: &Job) -> Option<Map<String, Value>> {
    match serde_json::to_value(job) {
        Ok(Value::Object(map)) => Some(map),
        _ => None,
    }
}

/// JSON merge patch (RFC 7396).
fn merge(target: &mut Value, patch: Value) {
    let Value::Object(patch) = patch else {
        *target = patch;
        return;
    };
    if !target.is_object() {
        *target = Value::Object(Map::new());
    }
    let Some(members) = target.as_object_mut() else { return };
    for (key, value) in patch {
        match value {
            Value::Null => drop(members.remove(&key)),
            value => merge(members.entry(key).or_insert(Value::Null), value),
        }
    }
}

#[cfg(test)]
pub mod tests {
    #![allow(clippy::unwrap_used)]
    use serde_json::json;

    use super::*;

    /// As `headway ps` is tested with.
    pub fn jobs() -> Vec<Job> {
        serde_json::from_str(include_str!("../../tests/jobs.json")).unwrap()
    }

    pub fn overview() -> Overview {
        serde_json::from_value(json!({
            "at": "2026-03-01T14:02:00Z", "nodes_total": 3, "nodes_available": 2, "gpus_total": 24, "gpus_healthy": 23,
            "gpus_busy": 12, "gpus_by_activity": {"training": 10, "starting": 2, "idle_waiting": 4}, "jobs_by_state": {"running": 2, "queued": 3},
            "gpus_waited_for": 40, "goodput_tokens_per_second": 1_234_567.0, "throughput_tokens_per_second": 1_400_000.0, "speed_up_sum": 2.5,
            "goodput_mfu": 0.31, "plan_id": null, "plans_waiting": [], "policy_mode": "auto", "planning_trouble": null,
            "attention": [{"kind": "node_lost", "severity": "error", "name": "h100-07", "since": null, "gpu_hours": 12.0,
                "headline": "Node h100-07 with 8 GPUs has been given up as lost for 1h", "next_step": "Bring its agent back"}],
            "attention_by_kind": {"node_lost": 1}, "seq": 7,
        }))
        .unwrap()
    }

    pub fn live() -> State {
        let mut state = State::default();
        state.fetched(overview(), jobs());
        state
    }

    pub fn press(state: &mut State, code: KeyCode) -> Deed {
        state.key(KeyEvent::from(code))
    }

    #[test]
    fn patches_change_rows_and_what_ends_leaves() {
        let mut state = live();
        let count = state.jobs().len();
        let id = state.selected().unwrap().id;
        let patch = |value: Value| StreamMessage::JobPatch(value.as_object().unwrap().clone());
        state.heard(patch(json!({"id": id, "gpus": 3, "eta_seconds": null}))).unwrap();
        let job = state.jobs().into_iter().find(|job| job.id == id).unwrap();
        assert_eq!((job.gpus, job.eta_seconds), (3, None));
        state.heard(patch(json!({"id": id, "state": "succeeded"}))).unwrap();
        assert_eq!((state.jobs().len(), state.ended), (count - 1, 1));
        assert_eq!(state.heard(patch(json!({"id": id, "gpus": 1}))), Ok(()), "it is not shown any more");
        assert_eq!(state.heard(patch(json!({"gpus": 1}))), Err(OutOfStep), "of nobody");
        assert_eq!(state.heard(StreamMessage::Reset), Err(OutOfStep));
    }

    #[test]
    fn keys_move_sort_and_leave() {
        let mut state = live();
        let last = state.jobs().len() - 1;
        press(&mut state, KeyCode::Char('j'));
        assert_eq!(state.position(), 1);
        press(&mut state, KeyCode::End);
        press(&mut state, KeyCode::Down);
        assert_eq!(state.position(), last, "there is nothing below the last");
        let chosen = state.selected().unwrap().id;
        press(&mut state, KeyCode::Char('s'));
        assert_eq!((state.sort, state.selected().unwrap().id), (Sort::Name, chosen), "what is selected stays so");
        let names: Vec<String> = state.jobs().iter().map(|job| job.name.clone()).collect();
        assert!(names.is_sorted());
        press(&mut state, KeyCode::Char('r'));
        assert_eq!(state.jobs()[0].name, *names.last().unwrap());
        assert_eq!(press(&mut state, KeyCode::Char('?')), Deed::Show);
        assert_eq!((press(&mut state, KeyCode::Esc), state.help), (Deed::Show, false));
        assert_eq!(press(&mut state, KeyCode::Char('q')), Deed::Quit);
        assert_eq!(state.key(KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL)), Deed::Quit);
    }

    #[test]
    fn what_is_lost_is_old_since_it_was_lost() {
        let mut state = live();
        state.lost("no reply".into());
        state.lost("no reply again".into());
        assert_eq!(state.link, Link::Lost { since: state.now(), why: "no reply again".into() });
        state.figures(overview());
        assert_eq!(state.link, Link::Live);
    }

    #[test]
    fn every_order_holds_all_jobs_whatever_is_missing_of_them() {
        use strum::VariantArray;
        let mut state = live();
        let count = state.jobs().len();
        for _ in Sort::VARIANTS {
            press(&mut state, KeyCode::Char('s'));
            assert_eq!(state.jobs().len(), count, "{:?}", state.sort);
        }
        assert_eq!(state.sort, Sort::State);
    }
}
