//! What people would ask next: of a job that waits, what would start it; of one that runs, what one size up or down
//! would mean. Asks no more than that takes.

use std::collections::BTreeSet;

use headway_types::spec::Priority;
use headway_types::{GpuCount, GpuType, JobId, NodeId, Plan, Seconds};

use super::question::{Question, Supposition};
use super::{Answer, AskError, ask};
use crate::candidate;
use crate::check::check_job;
use crate::cluster::Cluster;
use crate::curves::CurveCache;
use crate::ending;
use crate::force::Force;
use crate::input::{PlanInput, PlanJob};
use crate::project::Tree;
use crate::round::Round;

/// Halves of the minimum that are tried.
const HALVES: u32 = 3;
/// Priorities that are tried.
const PRIORITIES: [u8; 2] = [75, 100];
const HOUR: f64 = 3_600.0;
/// Time limits that are tried, longest first.
const TIME_LIMITS: [Seconds; 9] = [
    Seconds(72.0 * HOUR),
    Seconds(48.0 * HOUR),
    Seconds(24.0 * HOUR),
    Seconds(12.0 * HOUR),
    Seconds(8.0 * HOUR),
    Seconds(4.0 * HOUR),
    Seconds(2.0 * HOUR),
    Seconds(HOUR),
    Seconds(0.5 * HOUR),
];

/// The answers to what people would ask about a job; none for one that rounds leave out.
///
/// # Errors
/// A job the round does not know.
pub fn usual(input: &PlanInput, plan: &Plan, curves: &mut CurveCache, job: JobId) -> Result<Vec<Answer>, AskError> {
    let found = input.jobs.binary_search_by_key(&job, |one| one.job);
    let of = &input.jobs[found.map_err(|_| AskError::NoSuchJob(job))?];
    if check_job(of).is_err() {
        return Ok(Vec::new());
    }
    let mut asking = Asking { input, plan, curves, answers: Vec::new() };
    if plan.assignments.contains_key(&job) {
        asking.running(of)?
    } else {
        asking.waiting(of)?
    }
    Ok(asking.answers)
}

struct Asking<'a> {
    input: &'a PlanInput,
    plan: &'a Plan,
    curves: &'a mut CurveCache,
    answers: Vec<Answer>,
}

impl Asking<'_> {
    fn ask(&mut self, question: &Question) -> Result<Answer, AskError> {
        ask(self.input, self.plan, self.curves, question)
    }

    /// Asks one after the other until one would do; keeps that one only.
    fn first_possible(&mut self, questions: Vec<Supposition>) -> Result<(), AskError> {
        for one in questions {
            let answer = self.ask(&Question::suppose(one))?;
            if answer.possible {
                self.answers.push(answer);
                break;
            }
        }
        Ok(())
    }

    fn waiting(&mut self, of: &PlanJob) -> Result<(), AskError> {
        let job = of.job;
        let forced = self.ask(&Question::force(Force::start(job)))?;
        self.answers.push(forced);
        if !of.work.is_opaque() {
            let halves = (1..=HALVES).map(|power| GpuCount(of.range.min.0 >> power)).filter(|gpus| gpus.0 > 0);
            self.first_possible(halves.map(|gpus| Supposition::Accepts { job, gpus }).collect())?;
        }
        self.first_possible(self.time_limits(of))?;
        let types: BTreeSet<&GpuType> = self.input.nodes.iter().map(|node| &node.class.gpu_type).collect();
        let others = types.into_iter().filter(|gpu_type| !of.range.accepts(gpu_type));
        let others = others.map(|gpu_type| Supposition::AcceptsType { job, gpu_type: gpu_type.clone() });
        self.first_possible(others.collect())?;
        let higher = PRIORITIES.into_iter().map(Priority).filter(|priority| *priority > of.priority);
        self.first_possible(higher.map(|priority| Supposition::Priority { job, priority }).collect())?;
        self.limits(of)?;
        let back = self.most_missing(of).map(|node| Supposition::NodeBack { node });
        self.first_possible(back.into_iter().collect())
    }

    /// Time limits with which the job would end before reservations begin that close nodes to it: for each of them the
    /// longest one, the longest of all first.
    fn time_limits(&self, of: &PlanJob) -> Vec<Supposition> {
        let (cluster, tree) = (Cluster::new(self.input), Tree::new(&self.input.projects));
        let round = Round::new(self.input, &cluster, &tree);
        let now = self.input.now;
        let accepted = (0..cluster.classes.len()).filter(|&one| of.range.accepts(&cluster.classes[one].alike.gpu_type));
        let closed = accepted.filter_map(|class| round.closed_by(of, class));
        let longest = closed.filter_map(|one| ending::longest_limit(of, now, one.from));
        let fitting = longest.filter_map(|most| TIME_LIMITS.into_iter().find(|limit| limit.0 <= most.0));
        let limits: BTreeSet<u64> = fitting.map(|limit| limit.0 as u64).collect();
        let supposed = |limit| Supposition::TimeLimit { job: of.job, limit: Seconds(limit as f64) };
        limits.into_iter().rev().map(supposed).collect()
    }

    /// Larger quotas, one project after the other, and wider rows of the site.
    fn limits(&mut self, of: &PlanJob) -> Result<(), AskError> {
        let (cluster, tree) = (Cluster::new(self.input), Tree::new(&self.input.projects));
        let more = |limit: GpuCount| Some(GpuCount(limit.0.saturating_add(of.range.min.0.max(1))));
        let quotas = tree.lineage_of(&of.claim.project).iter().filter_map(|&at| {
            let project = &self.input.projects[at];
            Some(Supposition::Quota { project: project.name.clone(), quota: more(project.quota?) })
        });
        let rows = cluster.site.rows_of(of).iter().map(|&at| {
            let row = &self.input.policy.rows[at];
            Supposition::Row { row: row.name.clone(), at_most: more(row.at_most) }
        });
        for one in quotas.chain(rows).collect::<Vec<_>>() {
            let answer = self.ask(&Question::suppose(one))?;
            // A limit names no job: whether this one runs is what is asked.
            let starts = answer.winners.iter().any(|shift| shift.job == of.job);
            self.answers.extend(starts.then_some(answer));
        }
        Ok(())
    }

    /// The node that lacks most GPUs of a type the job accepts.
    fn most_missing(&self, of: &PlanJob) -> Option<NodeId> {
        let missing = |node: &&crate::input::PlanNode| {
            let open = if node.draining { 0 } else { node.gpus.len() as u32 };
            node.class.gpus_per_node.0.saturating_sub(open)
        };
        let suits = self.input.nodes.iter().filter(|node| of.range.accepts(&node.class.gpu_type) && missing(node) > 0);
        suits.max_by_key(|node| (missing(node), std::cmp::Reverse(node.node))).map(|node| node.node)
    }

    fn running(&mut self, of: &PlanJob) -> Result<(), AskError> {
        let now = self.plan.assignments[&of.job].placement.gpus();
        let sizes = self.sizes(of);
        let up = sizes.iter().copied().find(|gpus| *gpus > now);
        let down = sizes.iter().copied().rfind(|gpus| *gpus < now);
        let most = sizes.last().copied().filter(|most| *most > now && Some(*most) != up);
        for gpus in up.into_iter().chain(down).chain(most) {
            let answer = self.ask(&Question::force(Force::size(of.job, gpus)))?;
            self.answers.push(answer);
        }
        Ok(())
    }

    /// Sizes the job could run at on this cluster, ascending.
    fn sizes(&mut self, of: &PlanJob) -> Vec<GpuCount> {
        let (cluster, tree) = (Cluster::new(self.input), Tree::new(&self.input.projects));
        let round = Round::new(self.input, &cluster, &tree);
        candidate::options(&round, of, self.curves).sizes.into_iter().map(|(gpus, _)| gpus).collect()
    }
}
