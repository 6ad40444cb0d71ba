//! Small rounds for tests and benchmarks, here and to the right.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use headway_goodput::JobModel;
use headway_types::example;
use headway_types::report::Flexibility;
use headway_types::spec::{
    BatchRange, LayoutLimits, NodeResources, Precision, Priority, Target, TargetCount, Training, Work,
};
use headway_types::{
    Assignment, Capabilities, EmulatedDevice, GpuCount, GpuType, GpuUuid, JobId, Layout, ModelShape, NodeClass, NodeId,
    Placement, Plan, PlanId, Prediction, Seconds, Sequences, Timestamp, Tokens, TokensPerSecond,
};

use crate::claim::{Bounds, Claim, Needs};
use crate::ending::Departure;
use crate::input::{Downtime, Freedom, PlanInput, PlanJob, PlanNode, PlanWork};
use crate::project::PlanProject;
use crate::reservation::Reservation;
use crate::table::{GoodputTable, TableRow};

pub const NOW: Timestamp = Timestamp(1_700_000_000_000_000);

fn uuid(kind: u8, number: u32) -> String {
    format!("018bcfe5-{:04x}-7000-8000-{:012x}", kind, number)
}

pub fn job_id(number: u32) -> JobId {
    uuid(1, number).parse().expect("a well-formed id")
}

pub fn node_id(number: u32) -> NodeId {
    uuid(2, number).parse().expect("a well-formed id")
}

pub fn plan_id(number: u32) -> PlanId {
    uuid(3, number).parse().expect("a well-formed id")
}

pub fn class(gpu_type: &str, gpus_per_node: u32) -> NodeClass {
    let device = EmulatedDevice { flop_per_second: 2_000_000_000, link_bytes_per_second: 1_000_000_000 };
    NodeClass { emulated: Some(device), ..example::class(gpu_type, gpus_per_node) }
}

pub fn node(number: u32, gpu_type: &str, gpus: u32) -> PlanNode {
    PlanNode {
        node: node_id(number),
        name: format!("n{number}"),
        class: class(gpu_type, gpus),
        gpus: (0..gpus).map(|gpu| GpuUuid(format!("n{number}-{gpu}"))).collect(),
        draining: false,
        host: NodeResources::default(),
        labels: BTreeMap::new(),
        tells_shares: true,
        account: None,
    }
}

/// A tiny model, so that curves are cheap.
pub fn model() -> Arc<JobModel> {
    let shape = ModelShape { layers: 2, ffn_hidden: 256, gated: false, tied: true, ..example::tiny() };
    model_of(Work::Model(shape))
}

/// Batches below the reference are credited, so that there is something to choose all over the range.
pub fn model_of(work: Work) -> Arc<JobModel> {
    Arc::new(JobModel::new(Training {
        target: Some(Target { tokens: Tokens(1e9), count: TargetCount::Reference }),
        precision: Precision::Fp32,
        batch: BatchRange { min: Sequences(8), max: Sequences(128) },
        layouts: LayoutLimits::degrees(vec![1], vec![1], Sequences(4)),
        ..example::training(work)
    }))
}

pub fn job(number: u32, min: u32, max: u32) -> PlanJob {
    PlanJob {
        job: job_id(number),
        name: format!("job-{number}"),
        priority: Priority(50),
        submitted_at: NOW,
        range: example::gpus(min, max),
        work: PlanWork::Model(model()),
        capabilities: example::FLEXIBLE,
        current: None,
        downtime: Downtime { batch: Seconds(0.0), micro_batch: Seconds(1.0), layout: None, restart: Seconds(30.0) },
        rework: Seconds(0.0),
        remaining: None,
        freedom: Freedom::Free,
        batch_bound: None,
        claim: Claim::default(),
        bounds: Bounds::default(),
        departure: Departure::default(),
        needs: Needs::default(),
    }
}

pub fn rigid(number: u32, gpus: u32) -> PlanJob {
    PlanJob { work: PlanWork::Opaque, capabilities: Capabilities::UNKNOWN_SCRIPT, ..job(number, gpus, gpus) }
}

pub fn project(name: &str, parent: Option<&str>) -> PlanProject {
    PlanProject { name: name.into(), parent: parent.map(Into::into), ..PlanProject::default() }
}

/// For nobody yet.
pub fn reservation(name: &str, nodes: &[u32], from: Timestamp, until: Timestamp) -> Reservation {
    let nodes = nodes.iter().map(|node| node_id(*node)).collect();
    Reservation {
        name: name.into(),
        reason: None,
        nodes,
        from,
        until,
        projects: BTreeSet::new(),
        users: BTreeSet::new(),
        jobs: BTreeSet::new(),
    }
}

/// Rows of GPUs, goodput and name.
pub fn table(gpu_type: &str, rows: &[(u32, f64, Option<&str>)]) -> GoodputTable {
    let row = |&(gpus, goodput, label): &(u32, f64, Option<&str>)| TableRow {
        gpu_type: GpuType(gpu_type.into()),
        gpus: GpuCount(gpus),
        nodes: None,
        goodput,
        watts_per_gpu: None,
        label: label.map(Into::into),
    };
    GoodputTable { rows: rows.iter().map(row).collect() }
}

/// What a job holds that says nothing of how it trains.
pub fn bare(placement: Placement) -> Assignment {
    let predicted = Prediction {
        step_time: Seconds(0.0),
        throughput: TokensPerSecond(0.0),
        efficiency: 1.0,
        goodput: TokensPerSecond(0.0),
        speed_up: 1.0,
    };
    Assignment { placement, configuration: None, predicted, label: None }
}

pub fn round(nodes: Vec<PlanNode>, jobs: Vec<PlanJob>) -> PlanInput {
    PlanInput {
        plan: plan_id(1),
        parent: None,
        now: NOW,
        trigger: "job job-1 arrived".into(),
        policy: crate::policy::Policy::default(),
        nodes,
        jobs,
        projects: Vec::new(),
        reservations: Vec::new(),
        lessons: std::sync::Arc::default(),
        deferred: std::collections::BTreeSet::new(),
        forced: Vec::new(),
    }
}

/// The round after `plan` has been carried out.
pub fn after(input: &PlanInput, plan: &Plan) -> PlanInput {
    let mut next = input.clone();
    next.plan = plan_id(2);
    next.parent = Some(plan.id);
    for job in &mut next.jobs {
        let assignment: Option<&Assignment> = plan.assignments.get(&job.job);
        let former = std::mem::replace(&mut job.current, assignment.cloned());
        // What ran has left a checkpoint, and a script that cannot reshard is bound to it.
        if let Some(ran) = former.filter(|_| job.capabilities.layout == Flexibility::Never) {
            let layout = ran.configuration.map_or(Layout::data_parallel(ran.placement.gpus()), |at| at.layout);
            job.needs.layout = Some(layout);
        }
    }
    next
}
