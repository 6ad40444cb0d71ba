//! Lanes of jobs and of nodes: what they entered, in words, as bars. Each lane takes time in proportion to what it entered.

use std::collections::BTreeMap;
use std::sync::Arc;

use headway_api::v1;
use headway_engine::record::{Allocation, Entered};
use headway_engine::view::View;
use headway_types::{
    AvailabilityKind, Generation, JobId, JobStateKind, NodeId, NodePolicyKind, StandingKind, Timestamp,
};
use uuid::Uuid;

use super::Frame;
use super::drawing::{self, Bar};
use crate::asking::Foretold;
use crate::http::conversions::{self, time};
use crate::store::{Entries, SpannedJob};

/// A page of jobs with all that is known of it.
pub struct Jobs {
    /// Each with whether its reader sees all of it, or that it exists.
    pub shown: Vec<(SpannedJob, bool)>,
    pub entries: Entries,
    pub held: Vec<Allocation>,
    pub view: Arc<View>,
    pub foretold: Arc<Foretold>,
}

/// A page of nodes, by name.
pub struct Nodes {
    pub shown: Vec<(String, NodeId)>,
    pub entries: Entries,
    pub held: BTreeMap<NodeId, Vec<v1::TimelineHeld>>,
    pub view: Arc<View>,
}

/// What a job's bar tells.
#[derive(Clone, Debug, PartialEq)]
struct JobShade {
    state: JobStateKind,
    generation: Generation,
}

/// What a node's bar tells.
#[derive(Clone, Debug, PartialEq)]
struct NodeShade {
    word: &'static str,
    gpus: u32,
    healthy: u32,
}

impl Jobs {
    pub fn draw(&self, frame: Frame) -> Vec<v1::TimelineLane> {
        let held: BTreeMap<(JobId, Generation), &Allocation> =
            self.held.iter().map(|one| ((one.job, one.generation), one)).collect();
        self.shown.iter().map(|(job, whole)| self.lane(job, *whole, frame, &held)).collect()
    }

    fn lane(
        &self,
        job: &SpannedJob,
        whole: bool,
        frame: Frame,
        held: &BTreeMap<(JobId, Generation), &Allocation>,
    ) -> v1::TimelineLane {
        let bars = bars(&self.entries, job.id.0, frame, job_shade, |one, other| one.state == other.state);
        let bar = |bar: &Bar<JobShade>| {
            let JobShade { state, generation } = bar.state;
            let has = matches!(state, JobStateKind::Starting | JobStateKind::Running | JobStateKind::Stopping);
            let allocation = held.get(&(job.id, generation)).filter(|_| has);
            let cause = allocation.map(|one| match &one.stopped_for {
                Some(cause) if state == JobStateKind::Stopping => conversions::stop_in_words(cause),
                _ => one.cause.clone(),
            });
            v1::TimelineBar {
                cause: cause.filter(|_| whole),
                generation: has.then_some(generation.0),
                gpus: allocation.map(|one| one.placement.gpus().0),
                layout: allocation.and_then(|one| one.configuration).map(|one| one.layout.into()).filter(|_| whole),
                ..plain(bar, |shade| shade.state.to_string())
            }
        };
        v1::TimelineLane {
            project: Some(job.project.clone()),
            owner: Some(job.owner.clone()),
            bars: bars.iter().map(bar).collect(),
            predicted_start: self.predicted_start(job.id),
            predicted_end: self.predicted_end(job.id),
            ..lane(job.id.0, job.name.clone())
        }
    }

    /// By the newest forecast.
    fn predicted_start(&self, job: JobId) -> Option<v1::TimelinePrediction> {
        let waits = self.view.jobs.get(&job)?.job.state.kind() == JobStateKind::Queued;
        let (_, start) = self.foretold.starts.get(&job).filter(|_| waits)?;
        Some(v1::TimelinePrediction { p10: Some(time(start.p10)), p50: start.p50.map(time), p90: start.p90.map(time) })
    }

    /// As fast as it goes now.
    fn predicted_end(&self, job: JobId) -> Option<v1::TimelinePrediction> {
        let left = self.view.jobs.get(&job)?.live.remaining.filter(|left| left.0.is_finite())?;
        Some(v1::TimelinePrediction { p10: None, p50: Some(time(self.view.at + left)), p90: None })
    }
}

impl Nodes {
    pub fn draw(mut self, frame: Frame) -> Vec<v1::TimelineLane> {
        let shown = std::mem::take(&mut self.shown);
        shown.into_iter().map(|(name, id)| self.lane(name, id, frame)).collect()
    }

    fn lane(&mut self, name: String, id: NodeId, frame: Frame) -> v1::TimelineLane {
        let bars = bars(&self.entries, id.0, frame, node_shade, |one, other| one.word == other.word);
        let bar = |bar: &Bar<NodeShade>| v1::TimelineBar {
            gpus: Some(bar.state.gpus),
            gpus_healthy: Some(bar.state.healthy),
            ..plain(bar, |shade| shade.word.to_owned())
        };
        v1::TimelineLane {
            deleted: !self.view.nodes.contains_key(&id),
            bars: bars.iter().map(bar).collect(),
            held: self.held.remove(&id).unwrap_or_default(),
            ..lane(id.0, name)
        }
    }
}

fn job_shade(entered: &Entered) -> Option<JobShade> {
    match entered {
        Entered::Job { state, generation, .. } if !state.is_final() => {
            Some(JobShade { state: *state, generation: *generation })
        }
        _ => None,
    }
}

/// The worst first: what keeps work away from a node for longest.
fn node_shade(entered: &Entered) -> Option<NodeShade> {
    let Entered::Node { availability, policy, standing, gpus, healthy, .. } = entered else { return None };
    let word = match (availability, policy, standing) {
        (AvailabilityKind::Lost, ..) => "lost",
        (AvailabilityKind::Unreachable, ..) => "unreachable",
        (AvailabilityKind::Registering, ..) => "registering",
        (_, NodePolicyKind::Draining, _) => "draining",
        (.., StandingKind::Quarantined) => "quarantined",
        (_, NodePolicyKind::Cordoned, _) => "cordoned",
        (.., StandingKind::Probation) => "probation",
        _ => "available",
    };
    Some(NodeShade { word, gpus: *gpus, healthy: *healthy })
}

/// The bars of one subject, of what it entered.
fn bars<S: Clone + PartialEq>(
    entries: &Entries,
    of: Uuid,
    frame: Frame,
    shade: impl Fn(&Entered) -> Option<S>,
    alike: impl Fn(&S, &S) -> bool,
) -> Vec<Bar<S>> {
    let entered = entries.get(&of).map(Vec::as_slice).unwrap_or_default();
    let entered: Vec<(Timestamp, Option<S>)> = entered.iter().map(|(at, entered)| (*at, shade(entered))).collect();
    drawing::bars(drawing::spans(&entered, frame.from, frame.end()), frame.resolution, alike)
}

fn plain<S>(bar: &Bar<S>, word: impl Fn(&S) -> String) -> v1::TimelineBar {
    v1::TimelineBar {
        from: time(bar.from),
        to: time(bar.to),
        state: word(&bar.state),
        cause: None,
        generation: None,
        gpus: None,
        gpus_healthy: None,
        layout: None,
        seconds_by_state: bar.times.iter().map(|(state, time)| (word(state), time.0)).collect(),
    }
}

fn lane(id: Uuid, name: String) -> v1::TimelineLane {
    v1::TimelineLane {
        id,
        name,
        project: None,
        owner: None,
        deleted: false,
        bars: Vec::new(),
        held: Vec::new(),
        predicted_start: None,
        predicted_end: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_is_told_by_what_keeps_work_away_for_longest() {
        let node = headway_types::IdSource::seeded(1).node(Timestamp(0));
        let word = |availability, policy, standing| {
            let entered = Entered::Node { node, availability, policy, standing, gpus: 8, healthy: 7 };
            node_shade(&entered).map(|shade| shade.word)
        };
        use {AvailabilityKind as A, NodePolicyKind as P, StandingKind as S};
        assert_eq!(word(A::Available, P::Schedulable, S::Good), Some("available"));
        assert_eq!(word(A::Unreachable, P::Draining, S::Quarantined), Some("unreachable"));
        assert_eq!(word(A::Available, P::Draining, S::Probation), Some("draining"));
        assert_eq!(word(A::Available, P::Schedulable, S::Probation), Some("probation"));
        assert_eq!(node_shade(&Entered::NodeGone { node }), None);
    }
}
