//! The round as it would be. Each supposition is an edit of the input, so that what is solved is a round like any other.

use headway_types::{GpuCount, GpuUuid, IdSource, JobId, NodeId};

use super::AskError;
use super::question::{Question, Supposition};
use crate::input::{Freedom, PlanInput, PlanJob, PlanNode};

/// The round that an answer is read off.
///
/// # Errors
/// A question about what the round does not know.
pub fn supposed(input: &PlanInput, question: &Question) -> Result<PlanInput, AskError> {
    let mut supposed = input.clone();
    let is_job = |one: &Supposition| matches!(one, Supposition::Job { .. });
    for run in question.suppose.chunk_by(|one, other| is_job(one) && is_job(other)) {
        match &run[0] {
            Supposition::Job { .. } => submit(&mut supposed, run),
            one => apply(&mut supposed, one)?,
        }
    }
    if let Some(force) = &question.force {
        let job = supposed.force(force.clone()).ok_or(AskError::NoSuchJob(force.job))?;
        job.freedom = Freedom::Free;
    }
    Ok(supposed)
}

fn apply(input: &mut PlanInput, supposition: &Supposition) -> Result<(), AskError> {
    match supposition {
        Supposition::Priority { job, priority } => self::job(input, *job)?.priority = *priority,
        Supposition::Accepts { job, gpus } => {
            let range = &mut self::job(input, *job)?.range;
            if range.allows(*gpus) {
                return Ok(());
            }
            // Of sizes between that one and its own nothing is supposed.
            if range.sizes.is_empty() {
                range.sizes = (range.min.0..=range.max.0).map(GpuCount).collect();
            }
            range.sizes.push(*gpus);
            range.sizes.sort_unstable();
            range.sizes.dedup();
            range.min = range.min.min(*gpus);
            range.max = range.max.max(*gpus);
        }
        Supposition::TimeLimit { job, limit } => self::job(input, *job)?.bounds.time_left = Some(*limit),
        Supposition::AcceptsType { job, gpu_type } => {
            let range = &mut self::job(input, *job)?.range;
            if !range.accepts(gpu_type) {
                range.types.push(gpu_type.clone());
            }
        }
        Supposition::Resized { job, min, max } => {
            let job = self::job(input, *job)?;
            (job.range.min, job.range.max) = (*min, *max);
            job.freedom = Freedom::Free;
            // What it holds is no choice any more.
            let held = job.current.as_ref().map(|current| current.placement.gpus());
            if held.is_some_and(|held| !job.range.allows(held)) {
                job.current = None;
            }
        }
        Supposition::Quota { project, quota } => {
            let found = input.projects.iter_mut().find(|one| one.name == *project);
            found.ok_or_else(|| AskError::NoSuchProject(project.clone()))?.quota = *quota;
        }
        Supposition::Row { row, at_most } => {
            let rows = &mut input.policy.rows;
            let at = rows.iter().position(|one| one.name == *row).ok_or_else(|| AskError::NoSuchRow(row.clone()))?;
            match at_most {
                Some(at_most) => rows[at].at_most = *at_most,
                None => drop(rows.remove(at)),
            }
        }
        Supposition::NodeBack { node } => {
            let node = self::node(input, *node)?;
            node.draining = false;
            complete(node);
        }
        Supposition::NodeGone { node } => {
            let node = self::node(input, *node)?;
            node.draining = true;
        }
        Supposition::NodesLike { node, count } => {
            let like = self::node(input, *node)?.clone();
            add(input, &like, *count);
        }
        Supposition::Job { .. } => submit(input, std::slice::from_ref(supposition)),
        Supposition::JobGone { job } => {
            self::job(input, *job)?;
            input.jobs.retain(|one| one.job != *job);
        }
    }
    Ok(())
}

/// Jobs that are supposed one after the other: all at once, since each would move those behind it. Of one id the last counts.
fn submit(input: &mut PlanInput, run: &[Supposition]) {
    let jobs = run.iter().filter_map(|one| match one {
        Supposition::Job { job } => Some(PlanJob::clone(job)),
        _ => None,
    });
    input.jobs.extend(jobs);
    input.jobs.sort_by_key(|job| job.job);
    input.jobs.dedup_by(|later, earlier| {
        let same = later.job == earlier.job;
        if same {
            std::mem::swap(later, earlier);
        }
        same
    });
}

fn job(input: &mut PlanInput, id: JobId) -> Result<&mut PlanJob, AskError> {
    input.jobs.iter_mut().find(|job| job.job == id).ok_or(AskError::NoSuchJob(id))
}

fn node(input: &mut PlanInput, id: NodeId) -> Result<&mut PlanNode, AskError> {
    input.nodes.iter_mut().find(|node| node.node == id).ok_or(AskError::NoSuchNode(id))
}

/// Gives a node as many GPUs as it was built with; those that are missing have names of their own.
fn complete(node: &mut PlanNode) {
    let missing = (node.class.gpus_per_node.0 as usize).saturating_sub(node.gpus.len());
    node.gpus.extend((0..missing).map(|number| GpuUuid(format!("{}/supposed-{number}", node.node))));
}

fn add(input: &mut PlanInput, like: &PlanNode, count: u32) {
    let mut ids = IdSource::seeded(u64::from(count));
    for number in 1..=count {
        let id = ids.node(input.now);
        let mut node = PlanNode { node: id, name: format!("{}+{number}", like.name), ..like.clone() };
        (node.draining, node.gpus) = (false, Vec::new());
        complete(&mut node);
        input.nodes.push(node);
    }
    input.nodes.sort_by_key(|node| node.node);
}
