//! Requests as the audit keeps them.

use std::sync::Arc;

use crate::engine::Engine;
use crate::event::{Actor, ArrayDeed, Request, RequestId};
use crate::outcome::{NodeDeleted, Refusal, Reply};
use crate::record::{Deed, Job, Row};

impl Engine {
    /// Answers a request, and notes what it did.
    pub(crate) fn answer_noting(&mut self, request: RequestId, actor: &Actor, body: Request) -> Reply {
        let asked = body.itself();
        let (before, reason, ends) = (self.row_named(asked), body.reason().cloned(), asked.ends_its_subject());
        let reply = self.answer(actor, body);
        let after = if ends { None } else { row_of(&reply) };
        let subjects = match &reply {
            Reply::Submitted { jobs } => {
                let subject = |job: &Arc<Job>| match &job.element {
                    Some(element) => format!("array:{}", element.array),
                    None => format!("job:{}", job.id),
                };
                let mut subjects: Vec<String> = jobs.iter().map(subject).collect();
                subjects.dedup();
                subjects
            }
            Reply::Array(done) if !done.touched.is_empty() => vec![format!("array:{}", done.array.id)],
            Reply::Readmitted(_) => vec!["cluster".into()],
            Reply::Rebalance(plan) => vec![format!("plan:{plan}")],
            Reply::Refused(_) | Reply::DryRun(_) | Reply::Replayed { .. } | Reply::Repeated { .. } => Vec::new(),
            _ if before == after => Vec::new(),
            _ => after.iter().chain(&before).take(1).map(Row::subject).collect(),
        };
        if !subjects.is_empty() {
            let (at, actor) = (self.facts.now, actor.clone());
            self.facts.draft.deeds.push(Deed { request, at, actor, subjects, reason, before, after, origin: None });
        }
        reply
    }

    /// What a request is about, as it is now.
    fn row_named(&self, request: &Request) -> Option<Row> {
        let facts = &self.facts;
        Some(match request {
            Request::Cancel { job, .. }
            | Request::Hold { job, .. }
            | Request::Release { job }
            | Request::Checkpoint { job }
            | Request::Change { job, .. }
            | Request::Resize { job, .. }
            | Request::Pin { job, .. }
            | Request::Unpin { job } => Row::Job(facts.jobs.get(job)?.clone()),
            Request::Array { array, .. } | Request::ChangeArray { array, .. } => {
                Row::Array(facts.array(*array)?.clone())
            }
            Request::Requeue { job, known, .. } => {
                let kept = facts.jobs.get(job).cloned();
                Row::Job(kept.or_else(|| facts.newest_job(*job, known))?)
            }
            Request::Drain { node, .. }
            | Request::Cordon { node, .. }
            | Request::Uncordon { node }
            | Request::LabelNode { node, .. }
            | Request::MarkLost { node, .. }
            | Request::DeleteNode { node, .. } => Row::Node(facts.nodes.get(node)?.clone()),
            Request::Approve { plan } | Request::Reject { plan, .. } => Row::Plan(facts.proposals.get(plan)?.clone()),
            Request::SetPolicy { .. } | Request::Pause { .. } | Request::Resume { .. } => {
                Row::Policy(Box::new(facts.policy.clone()))
            }
            Request::PutProject { name: project, .. }
            | Request::DeleteProject { name: project, .. }
            | Request::SetMember { project, .. }
            | Request::SetPrivate { project, .. } => Row::Project(facts.projects.get(project)?.clone()),
            Request::CancelReservation { reservation } => {
                Row::Reservation(facts.reservations.get(reservation)?.clone())
            }
            Request::Submit { .. }
            | Request::Readmit { .. }
            | Request::Rebalance { .. }
            | Request::Reserve { .. }
            | Request::DryRun { .. }
            | Request::Because { .. }
            | Request::Once { .. } => return None,
        })
    }
}

impl Engine {
    /// Whatever the request tells in a person's name is told with the reason.
    pub(super) fn because(&mut self, actor: &Actor, reason: String, body: Request) -> Result<Reply, Refusal> {
        self.facts.draft.because = Some(reason);
        let reply = self.answer(actor, body);
        self.facts.draft.because = None;
        Ok(reply)
    }
}

impl Request {
    /// With why it is made; as it is where nobody says why, or where it says so itself.
    #[must_use]
    pub fn because(self, reason: Option<String>) -> Self {
        match reason.filter(|reason| !reason.is_empty() && self.reason().is_none()) {
            Some(reason) => Self::Because { reason, body: Box::new(self) },
            None => self,
        }
    }

    /// What is asked for, whatever is said of how often and why.
    #[must_use]
    pub fn itself(&self) -> &Self {
        match self {
            Self::Because { body, .. } | Self::Once { body, .. } => body.itself(),
            asked => asked,
        }
    }

    fn reason(&self) -> Option<&String> {
        match self {
            Self::Cancel { reason, .. }
            | Self::Hold { reason, .. }
            | Self::Requeue { reason, .. }
            | Self::Resize { reason, .. }
            | Self::Pin { reason, .. }
            | Self::Drain { reason, .. }
            | Self::Cordon { reason, .. }
            | Self::MarkLost { reason, .. }
            | Self::DeleteNode { reason, .. }
            | Self::Readmit { reason }
            | Self::SetMember { groups: reason, .. }
            | Self::Pause { reason }
            | Self::Resume { reason }
            | Self::Reject { reason, .. } => reason.as_ref(),
            Self::Array { deed: ArrayDeed::Cancel { reason, .. } | ArrayDeed::Hold { reason }, .. } => reason.as_ref(),
            Self::Rebalance { terms } => terms.reason.as_ref(),
            Self::Reserve { reservation } => reservation.reason.as_ref(),
            Self::Because { reason, .. } => Some(reason),
            Self::Once { body, .. } => body.reason(),
            _ => None,
        }
    }

    fn ends_its_subject(&self) -> bool {
        matches!(self, Self::DeleteNode { .. } | Self::DeleteProject { .. } | Self::CancelReservation { .. })
    }
}

fn row_of(reply: &Reply) -> Option<Row> {
    Some(match reply {
        Reply::Job(job) => Row::Job(job.clone()),
        Reply::Array(done) => Row::Array(done.array.clone()),
        Reply::Node(node) | Reply::NodeDeleted(NodeDeleted { node, .. }) => Row::Node(node.clone()),
        Reply::Plan(record) => Row::Plan(record.clone()),
        Reply::Policy(policy) => Row::Policy(policy.clone()),
        Reply::Project(project) => Row::Project(project.clone()),
        Reply::Reservation(one) => Row::Reservation(one.clone()),
        _ => return None,
    })
}
