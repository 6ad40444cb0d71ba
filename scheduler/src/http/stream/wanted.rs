//! What a reader of the stream asks for: topics, a part of the cluster, a form.

use std::collections::BTreeSet;

use axum::http::HeaderMap;
use headway_engine::record::EventRecord;
use headway_engine::view::JobView;
use headway_types::{JobId, NodeId};
use serde::Deserialize;

use super::row::{Acuity, JOB, NODE};
use crate::cluster::{Cluster, Feed};
use crate::http::listing::Fields;
use crate::http::lookup;
use crate::http::problem::Problem;

/// Jobs that one reader may follow by name, to the last digit.
const JOBS_AT_MOST: usize = 50;

#[derive(Debug, Default, Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
pub struct StreamQuery {
    /// Comma-separated: jobs, nodes, plans, events. All if absent.
    topics: Option<String>,
    /// Only these jobs and their events: comma-separated ids, 50 at most.
    job: Option<String>,
    /// Only jobs of this project and their events.
    project: Option<String>,
    /// Only this node (id or name), jobs that have GPUs of it, and its events.
    node: Option<String>,
    /// Comma-separated fields that each job shall have, beside its id; all if absent.
    fields: Option<String>,
    /// Tell of a job or a node the whole row once (`job`, `node`) and then only what has changed of it: `job_patch` and `node_patch`, JSON merge
    /// patches (RFC 7396) with the `id` of the row. Measured numbers are told when they have changed by a hundredth, to four digits, or all of them
    /// where `job` names whom to follow.
    #[serde(default)]
    patch: bool,
    /// Resume after this event; `Last-Event-ID` takes precedence.
    since: Option<u64>,
}

/// The same, read and held to what there is.
pub struct Wanted {
    pub topics: Topics,
    pub part: Part,
    /// Places of the fields wanted.
    pub job_columns: Vec<usize>,
    pub node_columns: Vec<usize>,
    /// Of whoever takes patches.
    pub patches: Option<Acuity>,
}

impl Wanted {
    /// With the event to resume after.
    pub fn of(query: StreamQuery, headers: &HeaderMap, cluster: &Cluster) -> Result<(Self, Option<u64>), Problem> {
        let topics = Topics::parse(query.topics.as_deref())?;
        let since = resume_point(headers)?.or(query.since);
        let fields = query.fields.as_deref().map(Fields::read).transpose()?;
        let jobs = query.job.as_deref().map(jobs).transpose()?;
        let node = query.node.as_deref().map(|node| lookup::node(cluster, node)).transpose()?;
        let acuity = if jobs.is_some() { Acuity::Exact } else { Acuity::Hundredth };
        let wanted = Self {
            topics,
            part: Part { jobs, project: query.project, node },
            job_columns: JOB.columns(|name| fields.as_ref().is_none_or(|fields| fields.admit(name))),
            node_columns: NODE.columns(|_| true),
            patches: query.patch.then_some(acuity),
        };
        Ok((wanted, since))
    }
}

/// Which kinds of change a reader wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Topics {
    pub jobs: bool,
    pub nodes: bool,
    pub plans: bool,
    pub events: bool,
}

impl Topics {
    pub fn parse(text: Option<&str>) -> Result<Self, Problem> {
        let Some(text) = text.filter(|text| !text.is_empty()) else {
            return Ok(Self { jobs: true, nodes: true, plans: true, events: true });
        };
        let mut topics = Self { jobs: false, nodes: false, plans: false, events: false };
        for name in text.split(',') {
            match name.trim() {
                "jobs" => topics.jobs = true,
                "nodes" => topics.nodes = true,
                "plans" => topics.plans = true,
                "events" => topics.events = true,
                other => {
                    return Err(Problem::bad_request(format!("there is no topic \"{other}\""))
                        .field("topics")
                        .hint("topics are jobs, nodes, plans, events"));
                }
            }
        }
        Ok(topics)
    }

    /// Whether anything but events is wanted, whose newest state a reader keeps.
    pub fn have_states(self) -> bool {
        self.jobs || self.nodes || self.plans
    }
}

/// The part of the cluster that a reader looks at; what is absent bounds nothing.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Part {
    pub jobs: Option<BTreeSet<JobId>>,
    pub project: Option<String>,
    pub node: Option<NodeId>,
}

impl Part {
    fn is_all(&self) -> bool {
        *self == Self::default()
    }

    /// Whether a change can be of this part, as far as it tells by itself.
    pub fn may_have(&self, feed: &Feed) -> bool {
        match feed {
            Feed::Job(job) => self.jobs.as_ref().is_none_or(|jobs| jobs.contains(job)),
            Feed::Node(node) => self.node.is_none_or(|wanted| wanted == *node),
            Feed::Plan(_) | Feed::Event(_) => true,
        }
    }

    pub fn has_job(&self, of: &JobView) -> bool {
        let slices = || of.allocation.iter().flat_map(|held| held.placement.slices());
        self.project.as_ref().is_none_or(|project| *project == of.job.spec.project)
            && self.node.is_none_or(|node| slices().any(|slice| slice.node == node))
    }

    /// Leaves out events of others. Of jobs whose project cannot be found out it leaves them out too: the log has them.
    pub async fn keep_own(&self, cluster: &Cluster, events: &mut Vec<EventRecord>) {
        if self.is_all() {
            return;
        }
        events.retain(|event| {
            let named = self.jobs.as_ref().is_none_or(|jobs| event.job.is_some_and(|job| jobs.contains(&job)));
            named && self.node.is_none_or(|node| event.node == Some(node))
        });
        let Some(project) = &self.project else { return };
        let whose = lookup::whose(cluster, events.iter().filter_map(|event| event.job)).await.unwrap_or_default();
        let own = |job: JobId| whose.get(&job).is_some_and(|(of, _)| of == project);
        events.retain(|event| event.job.is_some_and(own));
    }
}

fn jobs(text: &str) -> Result<BTreeSet<JobId>, Problem> {
    let ids = text.split(',').map(|id| id.trim().parse::<JobId>());
    let jobs: Result<BTreeSet<JobId>, _> = ids.collect();
    let wrong = |detail: String| Problem::bad_request(detail).field("job");
    let jobs = jobs
        .map_err(|_| wrong(format!("\"{text}\" names no jobs")).hint("comma-separated ids, as GET /jobs shows them"))?;
    if jobs.len() > JOBS_AT_MOST {
        return Err(wrong(format!("at most {JOBS_AT_MOST} jobs at once"))
            .hint("leave job out to follow all, with patch=true and fields="));
    }
    Ok(jobs)
}

fn resume_point(headers: &HeaderMap) -> Result<Option<u64>, Problem> {
    let Some(value) = headers.get("last-event-id") else { return Ok(None) };
    let seq = value.to_str().ok().and_then(|text| text.parse().ok());
    seq.map(Some).ok_or_else(|| Problem::bad_request("Last-Event-ID is not a sequence number").field("last-event-id"))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::http::fixtures;

    #[test]
    fn absent_topics_are_all_topics() {
        let all = Topics { jobs: true, nodes: true, plans: true, events: true };
        assert_eq!(Topics::parse(None).unwrap(), all);
        assert_eq!(Topics::parse(Some("jobs,nodes,plans,events")).unwrap(), all);
        assert!(Topics::parse(Some("jobs,gpu")).is_err());
    }

    #[test]
    fn a_resume_point_is_a_number() {
        let headers =
            |value: &'static str| HeaderMap::from_iter([("last-event-id".parse().unwrap(), value.parse().unwrap())]);
        assert_eq!(resume_point(&headers("17")).unwrap(), Some(17));
        assert!(resume_point(&headers("x")).is_err());
        assert_eq!(resume_point(&HeaderMap::new()).unwrap(), None);
    }

    #[test]
    fn a_part_is_jobs_by_name_by_project_and_by_node() {
        let view = fixtures::running();
        let job = view.jobs.values().next().unwrap();
        let of = |project: Option<&str>, node| Part { jobs: None, project: project.map(str::to_owned), node };
        assert!(of(None, None).has_job(job) && of(Some("nlp"), Some(fixtures::node_id())).has_job(job));
        assert!(!of(Some("cv"), None).has_job(job));
        let elsewhere = headway_types::IdSource::seeded(9).node(fixtures::NOW);
        assert!(!of(None, Some(elsewhere)).has_job(job));
        let named = jobs(&job.job.id.to_string()).unwrap();
        assert!(Part { jobs: Some(named), ..Part::default() }.may_have(&Feed::Job(job.job.id)));
        assert!(
            jobs("first").is_err() && jobs(&vec!["0190aaaa-0000-7000-8000-000000000000"; 60].join(",")).is_ok(),
            "named twice is one"
        );
    }
}
