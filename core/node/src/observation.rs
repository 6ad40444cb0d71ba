//! Step reports and rank times on their way out, summed up so that the scheduler hears of a job once per interval and
//! not once per step. They are observations: a group that is not open is not listened to, and nothing here is stored.

use std::collections::BTreeMap;

use headway_types::{
    Bytes, Configuration, Generation, GpuUuid, JobId, NodeReport, NoiseSample, Seconds, StepReport, Timestamp, Tokens,
};

/// Rank times are reported once in so many intervals.
const RANK_INTERVALS: f64 = 3.0;

type Key = (JobId, Generation);

/// What the workers of this node said and the scheduler was not yet told.
#[derive(Clone, Debug)]
pub struct Observations {
    every: Seconds,
    groups: BTreeMap<Key, Group>,
}

#[derive(Clone, Debug, Default)]
struct Group {
    /// The configuration of the last report; `None` before the first step, which is news at once.
    reported: Option<Configuration>,
    sum: Option<Sum>,
    ranks: BTreeMap<u32, Busy>,
    ranks_since: Option<Timestamp>,
    /// While nobody but the devices tells of memory, and what they tell is of one configuration.
    watch: Option<MemoryWatch>,
}

/// The GPUs a group has to itself, and the most that was in use on one of them.
#[derive(Clone, Debug)]
struct MemoryWatch {
    gpus: Vec<GpuUuid>,
    highest: Option<Bytes>,
}

/// Reports of one configuration, and for how many of their steps loss and noise are known.
#[derive(Clone, Debug)]
struct Sum {
    since: Timestamp,
    report: StepReport,
    loss_steps: u32,
    noise_steps: u32,
    preconditioned_steps: u32,
}

#[derive(Clone, Copy, Debug, Default)]
struct Busy {
    steps: f64,
    seconds: f64,
}

impl Observations {
    /// `every`: how long reports are summed up.
    #[must_use]
    pub fn new(every: Seconds) -> Self {
        Self { every, groups: BTreeMap::new() }
    }

    /// Listens to a group from now on. Opening it again changes nothing. `gpus`: those of this node, of a group that has just begun; of
    /// one that has gone on for a while nothing is said, since its processes may keep what earlier configurations needed.
    pub fn open(&mut self, job: JobId, generation: Generation, gpus: &[GpuUuid]) {
        let watch = (!gpus.is_empty()).then(|| MemoryWatch { gpus: gpus.to_vec(), highest: None });
        self.groups.entry((job, generation)).or_insert_with(|| Group { watch, ..Group::default() });
    }

    /// Takes how much of each GPU's memory is in use. It counts from a group's first step on: before, it is still filling.
    pub fn memory(&mut self, used: &BTreeMap<GpuUuid, Bytes>) {
        for group in self.groups.values_mut().filter(|group| group.reported.is_some()) {
            let Some(watch) = &mut group.watch else { continue };
            let fullest = watch.gpus.iter().filter_map(|gpu| used.get(gpu).copied()).max();
            watch.highest = watch.highest.max(fullest);
        }
    }

    /// Takes a worker's report. The first one of a generation and the first one of a configuration go out at once.
    #[must_use]
    pub fn steps(&mut self, now: Timestamp, mut report: StepReport) -> Vec<NodeReport> {
        report.loss = report.loss.filter(|loss| loss.is_finite());
        report.noise = report.noise.filter(is_finite);
        report.preconditioned = report.preconditioned.filter(is_finite);
        let Some(group) = self.groups.get_mut(&(report.job, report.generation)) else { return Vec::new() };
        let known = group.reported == Some(report.configuration);
        // The script's own figure wins; what the devices say after a change is still of what was before.
        if report.memory_peak.is_some() || (group.reported.is_some() && !known) {
            group.watch = None;
        }
        report.memory_peak = report.memory_peak.or(group.watch.as_ref().and_then(|watch| watch.highest));
        match group.sum.as_mut().filter(|sum| sum.takes(&report)) {
            Some(sum) => {
                sum.add(report);
                Vec::new()
            }
            None => {
                let mut out: Vec<NodeReport> = group.take_steps().into_iter().collect();
                group.reported = Some(report.configuration);
                group.sum = Some(Sum::new(now, report));
                if !known {
                    out.extend(group.take_steps());
                }
                out
            }
        }
    }

    /// Takes what one rank says of its own work: seconds over so many steps.
    pub fn busy(&mut self, now: Timestamp, job: JobId, generation: Generation, rank: u32, steps: u32, busy: Seconds) {
        let Some(group) = self.groups.get_mut(&(job, generation)) else { return };
        if steps == 0 || !busy.0.is_finite() || busy.0 < 0.0 {
            return;
        }
        group.ranks_since.get_or_insert(now);
        let sum = group.ranks.entry(rank).or_default();
        sum.steps += f64::from(steps);
        sum.seconds += busy.0;
    }

    /// What is due.
    #[must_use]
    pub fn due(&mut self, now: Timestamp) -> Vec<NodeReport> {
        let (every, rank_every) = (self.every, self.every * RANK_INTERVALS);
        let mut out = Vec::new();
        for (key, group) in &mut self.groups {
            if group.sum.as_ref().is_some_and(|sum| now >= sum.since + every) {
                out.extend(group.take_steps());
            }
            if group.ranks_since.is_some_and(|since| now >= since + rank_every) {
                out.extend(group.take_ranks(*key));
            }
        }
        out
    }

    /// When something is due next.
    #[must_use]
    pub fn next_due(&self) -> Option<Timestamp> {
        let steps = self.groups.values().filter_map(|group| Some(group.sum.as_ref()?.since + self.every));
        let ranks = self.groups.values().filter_map(|group| Some(group.ranks_since? + self.every * RANK_INTERVALS));
        steps.chain(ranks).min()
    }

    /// What is known of a group's steps, ahead of a fact about them: a checkpoint, a stop.
    #[must_use]
    pub fn flush(&mut self, job: JobId, generation: Generation) -> Option<NodeReport> {
        self.groups.get_mut(&(job, generation))?.take_steps()
    }

    /// The last words of a group that is over.
    #[must_use]
    pub fn close(&mut self, job: JobId, generation: Generation) -> Vec<NodeReport> {
        let key = (job, generation);
        let Some(mut group) = self.groups.remove(&key) else { return Vec::new() };
        group.take_steps().into_iter().chain(group.take_ranks(key)).collect()
    }
}

impl Group {
    fn take_steps(&mut self) -> Option<NodeReport> {
        Some(NodeReport::Steps { report: Box::new(self.sum.take()?.report) })
    }

    fn take_ranks(&mut self, (job, generation): Key) -> Option<NodeReport> {
        self.ranks_since = None;
        let ranks = std::mem::take(&mut self.ranks);
        if ranks.is_empty() {
            return None;
        }
        let busy = ranks.into_iter().map(|(rank, busy)| (rank, Seconds(busy.seconds / busy.steps))).collect();
        Some(NodeReport::RankTimes { job, generation, busy })
    }
}

impl Sum {
    fn new(since: Timestamp, report: StepReport) -> Self {
        let steps = |known: bool| if known { report.steps } else { 0 };
        let (loss_steps, noise_steps) = (steps(report.loss.is_some()), steps(report.noise.is_some()));
        let preconditioned_steps = steps(report.preconditioned.is_some());
        Self { since, report, loss_steps, noise_steps, preconditioned_steps }
    }

    /// Whether a report can be added: it goes on where this sum ends, and its noise is of the same batches.
    fn takes(&self, next: &StepReport) -> bool {
        let batches = |noise: &NoiseSample| (noise.small_batch, noise.big_batch);
        let alike = |one: &Option<NoiseSample>, other: &Option<NoiseSample>| match (one, other) {
            (Some(one), Some(other)) => batches(one) == batches(other),
            _ => true,
        };
        let same_batches =
            alike(&self.report.noise, &next.noise) && alike(&self.report.preconditioned, &next.preconditioned);
        self.report.configuration == next.configuration
            && next.step > self.report.step
            && next.samples_seen > self.report.samples_seen
            && self.report.steps.checked_add(next.steps).is_some()
            && same_batches
    }

    /// Tokens, seconds and steps add up; loss and noise are means over the steps they are known for, so that the sums
    /// the noise scale is estimated from are those of the single reports.
    fn add(&mut self, next: StepReport) {
        let sum = &mut self.report;
        sum.loss = mean((sum.loss, &mut self.loss_steps), (next.loss, next.steps), |a, b, share| a + share * (b - a));
        let noise = |a: NoiseSample, b: NoiseSample, share: f64| NoiseSample {
            small_sqr: a.small_sqr + share * (b.small_sqr - a.small_sqr),
            big_sqr: a.big_sqr + share * (b.big_sqr - a.big_sqr),
            ..a
        };
        sum.noise = mean((sum.noise, &mut self.noise_steps), (next.noise, next.steps), noise);
        let counted = &mut self.preconditioned_steps;
        sum.preconditioned = mean((sum.preconditioned, counted), (next.preconditioned, next.steps), noise);
        sum.memory_peak = sum.memory_peak.max(next.memory_peak);
        sum.step = next.step;
        sum.steps += next.steps;
        sum.samples_seen = next.samples_seen;
        sum.tokens = Tokens(sum.tokens.0 + next.tokens.0);
        sum.duration = Seconds(sum.duration.0 + next.duration.0);
    }
}

/// The mean of two values that may be missing, each over so many steps; counts the second into the first.
fn mean<T>(
    (sum, known): (Option<T>, &mut u32),
    (next, steps): (Option<T>, u32),
    mix: impl Fn(T, T, f64) -> T,
) -> Option<T> {
    let Some(next) = next else { return sum };
    *known += steps;
    match sum {
        Some(sum) => Some(mix(sum, next, f64::from(steps) / f64::from((*known).max(1)))),
        None => Some(next),
    }
}

fn is_finite(noise: &NoiseSample) -> bool {
    [noise.small_sqr, noise.big_sqr, noise.small_batch, noise.big_batch].iter().all(|value| value.is_finite())
}
