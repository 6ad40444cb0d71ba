//! Requests of people and scripts. A refusal has changed nothing.

mod arrays;
mod change;
mod deeds;
mod deletion;
mod dry_run;
mod jobs;
mod labels;
mod members;
mod nodes;
mod once;
mod policy;
mod projects;
mod requeue;
mod reservations;
mod resize;
mod submit;

use std::sync::Arc;

use headway_types::JobId;

use crate::engine::Engine;
use crate::event::{Actor, Request};
use crate::outcome::{Refusal, Reply};
use crate::record::Job;

impl Engine {
    pub(crate) fn answer(&mut self, actor: &Actor, body: Request) -> Reply {
        let reply = match body {
            Request::Submit { jobs, idempotency, known } => self.submit(actor, jobs, idempotency, &known),
            Request::Cancel { job, reason, grace } => self.cancel(actor, job, reason, grace),
            Request::Hold { job, reason } => self.hold(actor, job, reason),
            Request::Release { job } => self.release_job(actor, job),
            Request::Array { array, deed } => self.do_with_array(actor, array, deed),
            Request::ChangeArray { array, parallel, expected } => self.change_array(actor, array, parallel, expected),
            Request::Requeue { job, reason, known } => self.requeue(actor, job, reason, &known),
            Request::Checkpoint { job } => self.save_now(actor, job),
            Request::Change { job, change, expected } => self.change_job(actor, job, change, expected),
            Request::Resize { job, min, max, reason } => self.resize(actor, job, (min, max), reason),
            Request::Pin { job, reason } => self.pin(actor, job, reason),
            Request::Unpin { job } => self.unpin(actor, job),
            Request::Drain { node, reason, deadline } => self.drain(actor, node, reason, deadline),
            Request::Cordon { node, reason } => self.cordon(actor, node, reason),
            Request::Uncordon { node } => self.uncordon(actor, node),
            Request::LabelNode { node, labels, expected } => self.label_node(actor, node, &labels, expected),
            Request::MarkLost { node, reason } => self.mark_lost(actor, node, reason),
            Request::DeleteNode { node, reason } => self.delete_node(actor, node, reason),
            Request::Readmit { reason } => self.readmit(actor, reason),
            Request::Rebalance { terms } => self.rebalance(actor, *terms).map(Reply::Rebalance),
            Request::Approve { plan } => self.approve(actor, plan),
            Request::Reject { plan, reason } => self.reject(actor, plan, reason),
            Request::Pause { reason } => self.pause(actor, reason),
            Request::Resume { reason } => self.resume(actor, reason),
            Request::SetPolicy { settings, expected } => self.set_policy(actor, *settings, expected),
            Request::PutProject { name, rules, expected } => self.put_project(actor, name, rules, expected),
            Request::DeleteProject { name, expected } => self.delete_project(actor, &name, expected),
            Request::SetMember { project, user, role, expected, groups } => {
                self.set_member(actor, &project, (user, role), expected, groups.is_some())
            }
            Request::SetPrivate { project, private, expected } => self.set_private(actor, &project, private, expected),
            Request::Reserve { reservation } => self.reserve(actor, reservation),
            Request::CancelReservation { reservation } => self.cancel_reservation(actor, reservation),
            Request::DryRun { body } => Ok(self.dry_run(actor, *body)),
            Request::Because { reason, body } => self.because(actor, reason, *body),
            Request::Once { key, body } => self.once(actor, key, *body),
        };
        reply.unwrap_or_else(Reply::Refused)
    }

    fn live_job(&self, id: JobId) -> Result<&Arc<Job>, Refusal> {
        let job = self.facts.jobs.get(&id).ok_or(Refusal::NoSuchJob(id))?;
        if job.state.is_final() {
            return Err(Refusal::WrongState(job.ended_in_words()));
        }
        Ok(job)
    }

    fn job_reply(&self, id: JobId) -> Result<Reply, Refusal> {
        Ok(Reply::Job(self.facts.jobs.get(&id).ok_or(Refusal::NoSuchJob(id))?.clone()))
    }
}
