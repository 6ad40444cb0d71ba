//! What goodput is held against: the same jobs on the same nodes by rules that know nothing of goodput. Their layouts are the best for what they get, and the planner
//! places them, so that the gain shown is that of co-adaptation and not of a badly tuned opponent. None of them pays for a start or a pause.

use std::collections::BTreeMap;
use std::sync::Arc;

use headway_planner::{Bounds, CurveCache, PlanError, PlanInput, PlanJob, PlanWork, Policy, Premises, plan};
use headway_types::spec::BatchRange;
use headway_types::{Assignment, JobId, Objective};

/// What each rule gives these jobs in a round; an error where the round contradicts itself.
pub type Rule = fn(PlanInput, Vec<PlanJob>) -> Result<BTreeMap<JobId, Assignment>, PlanError>;

/// One thing of each rule.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Baselines<T> {
    /// An equal share each.
    pub static_split: T,
    /// In the order of submission, at the size they ask for.
    pub first_come: T,
    /// By our own planner for throughput, at reference batches.
    pub throughput_only: T,
}

/// The rules, with what they are called.
pub const RULES: Baselines<(&str, Rule)> = Baselines {
    static_split: ("static split", static_split),
    first_come: ("first come", first_come),
    throughput_only: ("throughput only", throughput_only),
};

impl<T> Baselines<T> {
    pub fn map<U>(self, mut to: impl FnMut(T) -> U) -> Baselines<U> {
        Baselines {
            static_split: to(self.static_split),
            first_come: to(self.first_come),
            throughput_only: to(self.throughput_only),
        }
    }

    pub fn as_ref(&self) -> Baselines<&T> {
        Baselines {
            static_split: &self.static_split,
            first_come: &self.first_come,
            throughput_only: &self.throughput_only,
        }
    }

    pub fn into_array(self) -> [T; 3] {
        [self.static_split, self.first_come, self.throughput_only]
    }
}

/// Splits the GPUs of a round evenly among `jobs`, the first submitted first, rounding down to what each accepts and what
/// finds room; each at its reference batch. A job whose smallest size is above the share gets that size while GPUs last. Who is absent would wait.
///
/// # Errors
/// A round that contradicts itself.
pub fn static_split(round: PlanInput, mut jobs: Vec<PlanJob>) -> Result<BTreeMap<JobId, Assignment>, PlanError> {
    let share = Premises::new(&round.nodes, jobs.len()).fair_share();
    for job in &mut jobs {
        job.range.max = share.max(job.range.min).min(job.range.max);
    }
    // Where nobody has had any service, least attained service serves by age: the largest size that is left, at the
    // reference batch.
    among_themselves(round, jobs, Objective::LeastAttained)
}

/// In the order of submission, each the size it asked for (the largest it accepts) at its reference batch, with backfill.
fn first_come(round: PlanInput, jobs: Vec<PlanJob>) -> Result<BTreeMap<JobId, Assignment>, PlanError> {
    among_themselves(round, jobs, Objective::FifoBackfill)
}

/// By our own planner for throughput: it tunes sizes and layouts and leaves every batch at the reference, as Rubick (MLSys'25) does, so that a token keeps the worth
/// its author gave it.
fn throughput_only(round: PlanInput, mut jobs: Vec<PlanJob>) -> Result<BTreeMap<JobId, Assignment>, PlanError> {
    for job in &mut jobs {
        if let PlanWork::Model(model) = &mut job.work {
            let training = &mut Arc::make_mut(model).training;
            training.batch = BatchRange { min: training.reference_batch, max: training.reference_batch };
        }
    }
    among_themselves(round, jobs, Objective::Goodput)
}

/// What a rule gives these jobs, had they all come to an empty cluster at once and nobody were owed or bound by anything.
fn among_themselves(
    round: PlanInput,
    jobs: Vec<PlanJob>,
    objective: Objective,
) -> Result<BTreeMap<JobId, Assignment>, PlanError> {
    let policy = Policy { objective, ..Policy::default() };
    let nobody = PlanInput { policy, jobs: Vec::new(), projects: Vec::new(), reservations: Vec::new(), ..round };
    let free = jobs.into_iter().map(|job| PlanJob { claim: job.claim.identity(), bounds: Bounds::default(), ..job });
    plan(&nobody.with(free), &mut CurveCache::new()).map(|plan| plan.assignments)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use headway_planner::PlanNode;
    use headway_types::report::Capabilities;
    use headway_types::spec::{
        BatchPolicy, BatchRange, CheckpointPolicy, GpuRange, LayoutLimits, LrScaling, NodeResources, NoiseKind,
        Precision, Training, Work,
    };
    use headway_types::{
        EmulatedDevice, Fabric, GpuCount, GpuType, GpuUuid, IdSource, ModelShape, NodeClass, Sequences, Timestamp,
    };

    use super::*;

    const NOW: Timestamp = Timestamp(1_700_000_000_000_000);

    /// Nodes of so many GPUs, each in a rack of its own.
    fn nodes(gpus: &[u32]) -> PlanInput {
        let mut ids = IdSource::seeded(2);
        let device = EmulatedDevice { flop_per_second: 1_000_000_000, link_bytes_per_second: 4_000_000 };
        let node = |(number, &gpus): (usize, &u32)| PlanNode {
            node: ids.node(NOW),
            name: format!("n{number}"),
            class: NodeClass {
                gpu_type: GpuType("emulated".into()),
                gpus_per_node: GpuCount(gpus),
                emulated: Some(device),
                fabric: Fabric { domain: format!("rack{number}") },
                stated: None,
                ahead: None,
            },
            gpus: (0..gpus).map(|gpu| GpuUuid(format!("n{number}-{gpu}"))).collect(),
            draining: false,
            host: NodeResources::default(),
            labels: BTreeMap::new(),
            tells_shares: true,
            account: None,
        };
        let mut nodes: Vec<PlanNode> = gpus.iter().enumerate().map(node).collect();
        nodes.sort_by_key(|node| node.node);
        PlanInput {
            plan: IdSource::seeded(1).plan(NOW),
            parent: None,
            now: NOW,
            trigger: "test".into(),
            policy: Policy::default(),
            nodes,
            jobs: Vec::new(),
            projects: Vec::new(),
            reservations: Vec::new(),
            lessons: Default::default(),
            deferred: Default::default(),
            forced: Vec::new(),
        }
    }

    fn jobs(count: usize, min: u32, max: u32) -> Vec<PlanJob> {
        let shape = ModelShape {
            layers: 4,
            hidden: 64,
            heads: 4,
            kv_heads: 4,
            ffn_hidden: 172,
            gated: true,
            vocab: 256,
            seq_len: 64,
            ..ModelShape::default()
        };
        let training = Training {
            work: Work::Model(shape),
            precision: Precision::Fp32,
            reference_batch: Sequences(16),
            batch: BatchRange { min: Sequences(8), max: Sequences(256) },
            batch_policy: BatchPolicy::default(),
            lr_scaling: LrScaling::Sqrt,
            target: None,
            layouts: LayoutLimits::degrees(vec![1], vec![1], Sequences(8)),
            checkpoint: CheckpointPolicy::default(),
            reconfigure: Capabilities::UNKNOWN_SCRIPT,
            kappa: 1.0,
            noise: NoiseKind::default(),
        };
        let work = PlanWork::Model(std::sync::Arc::new(headway_goodput::JobModel::new(training)));
        let range = GpuRange { min: GpuCount(min), max: GpuCount(max), sizes: vec![], types: vec![], mixed: false };
        let mut ids = IdSource::seeded(1);
        let job = |number| PlanJob::new(ids.job(NOW), format!("job-{number}"), NOW, range.clone(), work.clone());
        (0..count).map(job).collect()
    }

    /// In the order of submission; 0 waits.
    fn split(nodes_of: &[u32], jobs: Vec<PlanJob>) -> Vec<u32> {
        let ids: Vec<JobId> = jobs.iter().map(|job| job.job).collect();
        let split = static_split(nodes(nodes_of), jobs).unwrap();
        ids.iter().map(|job| split.get(job).map_or(0, |one| one.placement.gpus().0)).collect()
    }

    #[test]
    fn every_job_gets_its_share_at_its_reference_batch() {
        assert_eq!(split(&[4, 4], jobs(2, 1, 8)), [4, 4]);
        let given = static_split(nodes(&[4, 4]), jobs(2, 1, 8)).unwrap();
        assert!(given.values().all(|one| one.configuration.unwrap().global_batch == Sequences(16)));
    }

    #[test]
    fn a_share_that_does_not_divide_the_batch_is_rounded_down() {
        assert_eq!(split(&[3], jobs(1, 1, 8)), [2]);
    }

    #[test]
    fn who_came_first_has_what_it_asked_for_and_others_wait() {
        let jobs = jobs(3, 1, 4);
        let ids: Vec<JobId> = jobs.iter().map(|job| job.job).collect();
        let given = first_come(nodes(&[4, 4]), jobs).unwrap();
        let gpus = ids.iter().map(|job| given.get(job).map_or(0, |one| one.placement.gpus().0));
        assert_eq!(gpus.collect::<Vec<_>>(), [4, 4, 0]);
        assert!(given.values().all(|one| one.configuration.unwrap().global_batch == Sequences(16)));
    }

    #[test]
    fn throughput_alone_gives_sizes_and_leaves_batches_as_they_were_meant() {
        let given = throughput_only(nodes(&[4, 4]), jobs(2, 1, 4)).unwrap();
        for one in given.values() {
            assert_eq!((one.placement.gpus(), one.configuration.unwrap().global_batch), (GpuCount(4), Sequences(16)));
            assert_eq!(one.predicted.efficiency, 1.0);
        }
        assert_eq!(given.len(), 2);
    }

    #[test]
    fn a_split_joins_racks() {
        assert_eq!(split(&[4, 4], jobs(1, 8, 8)), [8]);
    }

    #[test]
    fn a_split_never_gives_more_than_there_is() {
        assert_eq!(split(&[4, 4], jobs(3, 4, 8)), [4, 4, 0]);
    }

    #[test]
    fn who_finds_no_room_for_its_share_takes_less() {
        assert_eq!(split(&[4, 2], jobs(2, 1, 8)), [2, 2]);
    }
}
