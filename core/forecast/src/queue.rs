//! One future as a queue would make it, for clusters too large to plan many times: GPUs per class are counted, not
//! placed. Jobs start at their smallest size in the order of patience, priority and submission, and whoever fits may
//! start before whoever does not. It stands in for the planner; it does not know what the planner would shrink.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use headway_planner::{PlanInput, PlanJob, Tree};
use headway_types::spec::Priority;
use headway_types::{GpuCount, GpuType, JobId, NodeCount, NodeId, Plan, Seconds, Timestamp};

use crate::chance::{self, Ending};
use crate::future::Prospect;
use crate::start::Effort;

/// Starts and ends of one future at most.
const MOST_EVENTS: usize = 20_000;

/// What does not differ between futures.
pub(crate) struct Queue<'a> {
    input: &'a PlanInput,
    effort: &'a Effort,
    prospect: &'a Prospect<'a>,
    /// GPUs per type that nothing holds.
    free: BTreeMap<GpuType, u32>,
    /// In the order in which they start: by priority, then by submission.
    jobs: Vec<Known<'a>>,
    /// What newcomers are like.
    like: Vec<Known<'a>>,
    /// The smallest size of all.
    least: GpuCount,
}

#[derive(Clone)]
struct Known<'a> {
    /// A newcomer's is one like it, under another id.
    job: &'a PlanJob,
    id: JobId,
    submitted_at: Timestamp,
    /// What it starts with.
    size: GpuCount,
    /// What it has by the plan, of each type.
    holds: Option<ByType>,
    /// Running time that its work takes, where it has a target.
    work: Option<Seconds>,
    /// Its project and all above.
    lineage: Vec<usize>,
}

impl<'a> Queue<'a> {
    pub fn new(input: &'a PlanInput, plan: &'a Plan, effort: &'a Effort, prospect: &'a Prospect<'a>) -> Self {
        let types: BTreeMap<NodeId, &GpuType> =
            input.nodes.iter().map(|node| (node.node, &node.class.gpu_type)).collect();
        let mut free: BTreeMap<GpuType, u32> = BTreeMap::new();
        for node in input.nodes.iter().filter(|node| !node.draining && node.is_sound()) {
            *free.entry(node.class.gpu_type.clone()).or_default() += node.gpus.len() as u32;
        }
        let tree = Tree::new(&input.projects);
        let known = |job: &'a PlanJob| {
            let at = plan.assignments.get(&job.job);
            let holds = at.and_then(|at| {
                let mut held = ByType::new();
                for slice in at.placement.slices() {
                    held.entry((*types.get(&slice.node)?).clone()).or_default().0 += slice.gpus.len() as u32;
                }
                Some(held)
            });
            let size = job.least();
            let goodput = match at {
                Some(at) => Some(at.predicted.goodput.0),
                None => goodput_of(input, job, size),
            };
            let tokens = job.remaining.filter(|_| !job.work.is_opaque());
            let work = tokens.zip(goodput).filter(|(_, goodput)| *goodput > 0.0);
            let work = work.map(|(tokens, goodput)| Seconds(tokens.0 / goodput));
            let (id, submitted_at) = (job.job, job.submitted_at);
            let lineage = tree.lineage_of(&job.claim.project).to_vec();
            Known { job, id, submitted_at, size, holds, work, lineage }
        };
        let mut jobs: Vec<Known<'a>> = input.jobs.iter().map(known).collect();
        jobs.sort_by_key(Known::order);
        // What came before may run now: newcomers hold nothing.
        let like: Vec<Known<'a>> = prospect.like().iter().map(|&job| Known { holds: None, ..known(job) }).collect();
        let least = jobs.iter().chain(&like).map(|of| of.size).min().unwrap_or_default();
        for (gpu_type, gpus) in jobs.iter().filter_map(|job| job.holds.as_ref()).flatten() {
            if let Some(left) = free.get_mut(gpu_type) {
                *left = left.saturating_sub(gpus.0);
            }
        }
        Self { input, effort, prospect, free, jobs, like, least }
    }

    /// The first start of each job asked about, in one sample, and how many waiting jobs were looked at for it. The future ends early, as at
    /// its horizon, where that would be more than `most`.
    pub fn future(&self, sample: u32, asked: &[JobId], most: u64) -> (BTreeMap<JobId, Timestamp>, u64) {
        let mut line = Line::new(self, sample);
        let wanted: BTreeSet<JobId> = asked.iter().copied().collect();
        let mut starts = BTreeMap::new();
        let end = self.input.now + self.effort.horizon;
        for _ in 0..MOST_EVENTS {
            let Some(next) = line.next().filter(|next| *next <= end) else { break };
            line.advance(next);
            for job in line.start() {
                let id = line.jobs[job].id;
                if wanted.contains(&id) {
                    starts.entry(id).or_insert(next);
                }
            }
            if starts.len() == wanted.len() || line.looks >= most {
                break;
            }
        }
        (starts, line.looks)
    }
}

/// GPUs by type.
type ByType = BTreeMap<GpuType, GpuCount>;

fn total(gpus: &ByType) -> u32 {
    gpus.values().map(|gpus| gpus.0).sum()
}

/// What a running job has.
struct Held {
    gpus: ByType,
    ends: Timestamp,
    /// Until then it makes room for nobody: it had waited long itself.
    sure_until: Timestamp,
}

impl Known<'_> {
    /// Who starts first.
    fn order(&self) -> (Reverse<Priority>, Timestamp, JobId) {
        (Reverse(self.job.priority), self.submitted_at, self.id)
    }
}

/// The queue and what runs, at one moment of one future.
struct Line<'q, 'a> {
    queue: &'q Queue<'a>,
    /// Those of the round and those of this future, in the order in which they start.
    jobs: Vec<Known<'a>>,
    /// Who has yet to come.
    to_come: BTreeSet<(Timestamp, usize)>,
    now: Timestamp,
    free: BTreeMap<GpuType, u32>,
    used: Vec<u32>,
    /// How long each job runs from its start.
    runs: Vec<Seconds>,
    /// Ends of what runs.
    ends: BTreeSet<(Timestamp, usize)>,
    holds: BTreeMap<usize, Held>,
    /// Since when what does not run waits.
    waits: BTreeMap<usize, Timestamp>,
    /// The same, longest first.
    since: BTreeSet<(Timestamp, usize)>,
    /// Of those, who was stopped just now for one that had waited longer: they wait for the next moment.
    stopped: BTreeSet<usize>,
    /// Waiting jobs looked at so far.
    looks: u64,
}

impl<'q, 'a> Line<'q, 'a> {
    fn new(queue: &'q Queue<'a>, sample: u32) -> Self {
        let (effort, now, prospect) = (queue.effort, queue.input.now, queue.prospect);
        let newcomers = prospect.newcomers(sample, now + effort.horizon).into_iter();
        let newcomers =
            newcomers.map(|one| Known { id: one.job, submitted_at: one.at, ..queue.like[one.like].clone() });
        let mut jobs: Vec<Known<'a>> = queue.jobs.iter().cloned().chain(newcomers).collect();
        jobs.sort_by_key(Known::order);
        let runs = jobs.iter().map(|of| match (prospect.ending(of.job, of.id, sample), of.work) {
            (Ending::Work { factor }, Some(work)) => Seconds(work.0 * factor),
            (Ending::Work { .. }, None) => prospect.lasting(&mut chance::of_job(effort.seed, sample, of.id)),
            (Ending::Time { left }, _) => left,
        });
        let (runs, used) = (runs.collect(), vec![0; queue.input.projects.len()]);
        let (free, ends, holds) = (queue.free.clone(), BTreeSet::new(), BTreeMap::new());
        let (waits, to_come) = (BTreeMap::new(), BTreeSet::new());
        let (since, stopped) = (BTreeSet::new(), BTreeSet::new());
        let mut line =
            Self { queue, jobs, to_come, now, free, used, runs, ends, holds, waits, since, stopped, looks: 0 };
        for job in 0..line.jobs.len() {
            let of = &line.jobs[job];
            match of.holds.clone() {
                Some(held) => {
                    let right = Seconds(of.job.claim.waited.0 - of.job.claim.ran.0);
                    line.hold(job, held, right);
                }
                None if of.submitted_at > now => drop(line.to_come.insert((of.submitted_at, job))),
                None => {
                    let since = now - of.job.claim.waited;
                    line.wait(job, since);
                }
            }
        }
        line
    }

    fn wait(&mut self, job: usize, since: Timestamp) {
        self.waits.insert(job, since);
        self.since.insert((since, job));
    }

    /// It waits no more; since when it did.
    fn leave(&mut self, job: usize) -> Option<Timestamp> {
        let since = self.waits.remove(&job)?;
        self.since.remove(&(since, job));
        Some(since)
    }

    /// `right`: for how long it is sure of it, if it has waited so long that it may be.
    fn hold(&mut self, job: usize, gpus: ByType, right: Seconds) {
        let since = self.leave(job);
        let of = &self.jobs[job];
        for &project in &of.lineage {
            self.used[project] += total(&gpus);
        }
        let waited = since.map_or(of.job.claim.waited, |since| self.now.since(since));
        let patient = self.queue.input.policy.patience.is_some_and(|patience| waited.0 >= patience.0);
        let sure_until = if patient { self.now + right } else { self.now };
        let ends = self.now + self.runs[job];
        self.ends.insert((ends, job));
        self.holds.insert(job, Held { gpus, ends, sure_until });
    }

    fn release(&mut self, job: usize) {
        let Some(held) = self.holds.remove(&job) else { return };
        for &project in &self.jobs[job].lineage {
            self.used[project] -= total(&held.gpus);
        }
        for (gpu_type, gpus) in held.gpus {
            *self.free.entry(gpu_type).or_default() += gpus.0;
        }
    }

    /// The next end or newcomer, or the next moment somebody's patience is over.
    fn next(&self) -> Option<Timestamp> {
        let patience = self.queue.input.policy.patience;
        let over = patience.and_then(|patience| {
            let next =
                self.since.range((self.now - patience, usize::MAX)..).find(|(since, _)| *since + patience > self.now);
            next.map(|(since, _)| *since + patience)
        });
        let over = over.into_iter();
        let comes = self.to_come.first().map(|(at, _)| *at);
        over.chain(self.ends.first().map(|(at, _)| *at)).chain(comes).min()
    }

    fn advance(&mut self, to: Timestamp) {
        self.now = to;
        while let Some((_, job)) = self.ends.first().copied().filter(|(at, _)| *at <= to) {
            self.ends.pop_first();
            self.release(job);
        }
        while let Some((at, job)) = self.to_come.first().copied().filter(|(at, _)| *at <= to) {
            self.to_come.pop_first();
            self.wait(job, at);
        }
    }

    /// Those whose patience is over, in the order in which they start.
    fn patient(&self) -> BTreeSet<usize> {
        let Some(patience) = self.queue.input.policy.patience else { return BTreeSet::new() };
        let over = self.since.iter().take_while(|(since, _)| *since + patience <= self.now);
        over.map(|(_, job)| *job).collect()
    }

    /// Starts all that fits, in order, and makes room for the patient.
    fn start(&mut self) -> Vec<usize> {
        let patient = self.patient();
        self.stopped.clear();
        let mut started = Vec::new();
        // Of those for whom no room could be made, who else has no hope: same types, no smaller, no higher priority.
        let mut hopeless: Vec<usize> = Vec::new();
        for &job in &patient {
            self.looks += 1;
            let like = |other: &usize| {
                let (of, than) = (&self.jobs[job], &self.jobs[*other]);
                of.size >= than.size
                    && of.job.priority <= than.job.priority
                    && of.job.range.types == than.job.range.types
            };
            let (room, known) = match self.room(job) {
                None if hopeless.iter().any(like) => (None, true),
                None => (self.make_room(job), false),
                found => (found, false),
            };
            match room {
                Some(gpu_type) => started.extend(self.begin(job, gpu_type)),
                None if known => {}
                None => hopeless.push(job),
            }
        }
        let mut next = 0;
        while let Some(job) = self.waits.range(next..).next().map(|(job, _)| *job) {
            next = job + 1;
            if patient.contains(&job) || self.stopped.contains(&job) {
                continue;
            }
            self.looks += 1;
            if self.free.values().all(|left| *left < self.queue.least.0) {
                break;
            }
            if let Some(gpu_type) = self.room(job) {
                started.extend(self.begin(job, gpu_type));
            }
        }
        started
    }

    fn begin(&mut self, job: usize, gpu_type: GpuType) -> Option<usize> {
        let size = self.jobs[job].size;
        let left = self.free.get_mut(&gpu_type)?;
        *left = left.saturating_sub(size.0);
        let waited = self.waits.get(&job).map_or(Seconds(0.0), |since| self.now.since(*since));
        self.hold(job, [(gpu_type, size)].into(), waited);
        Some(job)
    }

    /// The accepted type that has most GPUs left, if they are enough and quotas allow them.
    fn room(&self, job: usize) -> Option<GpuType> {
        let of = &self.jobs[job];
        let quota = |&project: &usize| {
            let of_project = &self.queue.input.projects[project];
            of_project.quota.is_none_or(|quota| self.used[project] + of.size.0 <= quota.0 + of_project.borrow.0)
        };
        if !of.lineage.iter().all(quota) {
            return None;
        }
        let accepted = self.free.iter().filter(|(gpu_type, _)| of.job.range.accepts(gpu_type));
        accepted.filter(|(_, left)| **left >= of.size.0).max_by_key(|(_, left)| **left).map(|(of, _)| of.clone())
    }

    /// Stops jobs of no higher priority, the lowest and latest first, until the patient one fits.
    fn make_room(&mut self, job: usize) -> Option<GpuType> {
        let of = &self.jobs[job];
        let mut victims: Vec<usize> = self
            .holds
            .iter()
            .filter(|(other, held)| {
                let below = self.jobs[**other].job.priority <= of.job.priority;
                below && held.sure_until <= self.now && held.gpus.keys().any(|has| of.job.range.accepts(has))
            })
            .map(|(other, _)| *other)
            .collect();
        victims.sort_by_key(|&other| {
            let one = self.jobs[other].job;
            (one.priority, Reverse(one.submitted_at), Reverse(other))
        });
        let mut freed: BTreeMap<&GpuType, u32> = self.free.iter().map(|(of, left)| (of, *left)).collect();
        let mut stopped = Vec::new();
        for other in victims {
            let held = &self.holds[&other];
            for (gpu_type, gpus) in &held.gpus {
                *freed.entry(gpu_type).or_default() += gpus.0;
            }
            stopped.push(other);
            let enough = |has: &&GpuType| of.job.range.accepts(has) && freed[*has] >= of.size.0;
            if let Some(chosen) = held.gpus.keys().find(enough).cloned() {
                stopped.retain(|other| self.holds[other].gpus.contains_key(&chosen));
                for other in stopped {
                    self.stop(other);
                }
                return self.room(job);
            }
        }
        None
    }

    fn stop(&mut self, job: usize) {
        if let Some(held) = self.holds.get(&job) {
            self.ends.remove(&(held.ends, job));
            self.runs[job] = held.ends.since(self.now);
        }
        self.release(job);
        self.wait(job, self.now);
        self.stopped.insert(job);
    }
}

/// Goodput at a size on the first node class that offers it.
fn goodput_of(input: &PlanInput, job: &PlanJob, size: GpuCount) -> Option<f64> {
    let model = job.work.model()?;
    let mut classes: Vec<_> = input.nodes.iter().map(|node| &node.class).collect();
    classes.dedup();
    let accepted = classes.into_iter().filter(|class| job.range.accepts(&class.gpu_type)).take(4);
    accepted
        .filter_map(|class| {
            let nodes = NodeCount(size.0.div_ceil(class.gpus_per_node.0.max(1)));
            model.best(class, size, nodes).ok()
        })
        .map(|offer| offer.prediction.goodput.0)
        .next()
}
