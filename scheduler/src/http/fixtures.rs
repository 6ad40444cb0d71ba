//! A small cluster for tests of conversions: one node with four GPUs, one job that runs on two of them.

use std::collections::BTreeMap;
use std::sync::Arc;

use headway_engine::record::{
    Allocation, Availability, Job, JobState, Node, NodeHealth, NodePolicy, PlanRecord, PolicySettings, Project,
    Reservation, UserLoad,
};
use headway_engine::view::{ArrayView, JobView, NodeView, View};
use headway_engine::{LiveNumbers, Verdicts};
use headway_planner::Departure;
use headway_types::spec::{BatchRange, Training, Work};
use headway_types::{
    ArrayId, Capabilities, Configuration, Generation, GpuCount, GpuHealth, GpuUuid, IdSource, JobId, JobSpec, Layout,
    NodeId, NodeSlice, Placement, PlanId, ReservationId, Sequences, Term, Timestamp, Tokens, TokensPerSecond, example,
};

pub const NOW: Timestamp = Timestamp(1_790_000_000_000_000);

pub fn job_id() -> JobId {
    IdSource::seeded(1).job(NOW)
}

pub fn node_id() -> NodeId {
    IdSource::seeded(2).node(NOW)
}

/// A queued job with a measured curve.
pub fn job() -> Job {
    Job { version: 1, ..Job::new(job_id(), spec(), "ada".into(), NOW) }
}

fn spec() -> JobSpec {
    let work = Work::Curve { points: BTreeMap::from([(GpuCount(1), 1.0), (GpuCount(8), 6.0)]), seq_len: 64 };
    let training = Training {
        batch: BatchRange { min: Sequences(16), max: Sequences(64) },
        target: Some(Tokens(4_000.0).into()),
        reconfigure: Capabilities::UNKNOWN_SCRIPT,
        ..example::training(work)
    };
    JobSpec { project: "nlp".into(), ..example::spec("llama", example::gpus(1, 8), Some(training)) }
}

fn gpu(index: u32) -> GpuUuid {
    GpuUuid(format!("GPU-0-{index}"))
}

/// The job runs on GPUs 0 and 1 of the node.
pub fn running() -> View {
    let generation = Generation(3);
    let placement = Placement::try_new(vec![NodeSlice { node: node_id(), gpus: vec![gpu(0), gpu(1)] }])
        .expect("two GPUs of one node");
    let allocation = Allocation {
        configuration: Some(Configuration {
            layout: Layout { dp: 2, tp: 1, pp: 1, ..Layout::single() },
            micro_batch: Sequences(4),
            global_batch: Sequences(32),
        }),
        predicted_goodput: 1_000.0,
        prepared_at: Some(NOW),
        launched_at: Some(NOW),
        training_at: Some(NOW),
        ..Allocation::new(job_id(), generation, placement, NOW)
    };
    let record =
        Job { state: JobState::Running { generation, since: NOW }, generation, started_at: Some(NOW), ..job() };
    let live = LiveNumbers {
        reported_at: Some(NOW),
        step: 12,
        samples_seen: Sequences(384),
        throughput: Some(TokensPerSecond(1_000.0)),
        efficiency: Some(0.9),
        goodput: Some(TokensPerSecond(900.0)),
        progress: Tokens(1_000.0),
        ..LiveNumbers::default()
    };
    let live = JobView {
        job: Arc::new(record),
        allocation: Some(Arc::new(allocation)),
        model: None,
        live,
        departure: Departure::default(),
        silent_since: None,
    };
    let held = BTreeMap::from([(gpu(0), (job_id(), generation)), (gpu(1), (job_id(), generation))]);
    let shown = NodeView { node: Arc::new(node()), heard_at: Some(NOW), connected: true, held };
    View {
        at: NOW,
        term: Term(1),
        jobs: [(job_id(), Arc::new(live))].into_iter().collect(),
        nodes: [(node_id(), Arc::new(shown))].into_iter().collect(),
        target: None,
        proposals: std::iter::empty::<(PlanId, Arc<PlanRecord>)>().collect(),
        policy: PolicySettings::default(),
        projects: std::iter::empty::<(String, Arc<Project>)>().collect(),
        reservations: std::iter::empty::<(ReservationId, Arc<Reservation>)>().collect(),
        arrays: std::iter::empty::<(ArrayId, Arc<ArrayView>)>().collect(),
        lessons: std::sync::Arc::default(),
        loads: std::iter::empty::<(String, UserLoad)>().collect(),
        verdicts: Verdicts::default(),
        trouble: None,
        round_since: None,
        ahead: Arc::default(),
        doubt: None,
        returning: None,
        took_over: None,
    }
}

/// When [`reserved`] ends.
pub const RESERVED_UNTIL: Timestamp = Timestamp(NOW.0 + 7_200_000_000);

/// The same, while the node is reserved for a project that the job is not of.
pub fn reserved() -> View {
    let mut view = running();
    let id = IdSource::seeded(3).reservation(NOW);
    let reservation = Reservation {
        id,
        name: "demo".into(),
        reason: Some("the board watches".into()),
        nodes: [node_id()].into(),
        from: NOW,
        until: RESERVED_UNTIL,
        projects: ["prod".to_owned()].into(),
        users: [].into(),
        jobs: [].into(),
        by: "opal".into(),
        made_at: NOW,
        began: true,
    };
    view.reservations.insert(id, Arc::new(reservation));
    view
}

fn node() -> Node {
    let mut inventory = example::inventory(node_id(), 0, 4);
    inventory.gpus[3].health = GpuHealth::Broken("XID 79".into());
    Node {
        boot: inventory.boot.clone(),
        inventory,
        policy: NodePolicy::Schedulable,
        availability: Availability::Available,
        health: NodeHealth::default(),
        registered_at: NOW,
        labels: BTreeMap::new(),
        version: 1,
    }
}
