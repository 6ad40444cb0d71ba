//! What one batch costs the engine on a large cluster: 1,000 nodes of 8 GPUs, 2,000 running jobs, 4,000 queued ones.
//! Wall time on an otherwise idle core, per event; `make bench` prints the table that
//! docs/measurements/batches.md keeps.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use headway_engine::event::{Actor, Event, Known, Request, RequestId, SessionId};
use headway_engine::record::{
    Allocation, Availability, Job, JobState, Node, NodeHealth, NodePolicy, PlanRecord, PlanState, PolicyMode,
    PolicySettings,
};
use headway_engine::{Engine, EngineConfig, Snapshot};
use headway_sim::scenario::{spec, training};
use headway_types::command::GroupStatus;
use headway_types::{
    Assignment, Configuration, Fabric, Generation, GroupPhase, IdSource, JobId, JobSpec, Layout, NodeId, NodeInventory,
    NodeReport, NodeSlice, NoiseSample, Placement, Plan, PlanReport, Prediction, Seconds, Sequences, StepReport, Term,
    Timestamp, Tokens, TokensPerSecond, example,
};

const NODES: u64 = 1_000;
const RUNNING: u64 = 2_000;
const QUEUED: u64 = 4_000;
const NOW: Timestamp = Timestamp(1_700_000_000_000_000);

fn main() {
    let mut bench = Bench::new();
    println!("{NODES} nodes of 8 GPUs, {RUNNING} running jobs, {QUEUED} queued jobs");
    bench.measure("heartbeat, one per batch", 20_000, |bench, n| vec![bench.agent(n % NODES, NodeReport::Heartbeat)]);
    bench.measure("step report, one per batch", 20_000, |bench, n| {
        vec![bench.steps((n % RUNNING) as usize, n / RUNNING + 2)]
    });
    bench.measure("submit, one per batch", 200, |_, n| vec![submit(n)]);
    bench.measure("submit, 64 per batch", 30, |_, n| (0..64).map(|one| submit(1_000 + n * 64 + one)).collect());
    bench.measure("tick with something due", 200, |bench, _| {
        bench.now = bench.now + Seconds(0.01);
        vec![Event::PlanFailed { plan: IdSource::seeded(9).plan(NOW), message: String::new() }]
    });
}

struct Bench {
    engine: Engine,
    now: Timestamp,
    jobs: Vec<(JobId, u64)>,
}

impl Bench {
    fn new() -> Self {
        let (snapshot, jobs) = snapshot();
        let engine = Engine::restore(EngineConfig::default(), Term(1), 1, NOW, snapshot);
        let mut bench = Self { engine, now: NOW, jobs };
        for index in 0..NODES {
            let here = bench.jobs.iter().filter(|(_, home)| *home == index);
            let groups = here.map(|(job, _)| GroupStatus {
                job: *job,
                generation: Generation(1),
                gpus: Vec::new(),
                phase: GroupPhase::Running,
                revision: 0,
                notice: 0,
            });
            let report = NodeReport::Registered { inventory: Box::new(inventory(index, 8)), groups: groups.collect() };
            let event = bench.agent(index, report);
            drop(bench.engine.handle(bench.now, vec![event]));
        }
        // The first report of a generation is news, all further ones are not.
        let first: Vec<Event> = (0..RUNNING as usize).map(|job| bench.steps(job, 1)).collect();
        drop(bench.engine.handle(bench.now, first));
        bench
    }

    fn agent(&self, node: u64, report: NodeReport) -> Event {
        Event::Agent { node: node_id(node), session: SessionId(node + 1), report }
    }

    fn steps(&self, job: usize, step: u64) -> Event {
        let (job, home) = self.jobs[job];
        let report = StepReport {
            job,
            generation: Generation(1),
            step,
            steps: 1,
            samples_seen: Sequences(step * 16),
            tokens: Sequences(16).tokens(256),
            duration: Seconds(1.0),
            configuration: configuration(),
            loss: Some(2.0),
            noise: Some(NoiseSample { small_sqr: 2.0, big_sqr: 1.0, small_batch: 4.0, big_batch: 16.0 }),
            preconditioned: None,
            memory_peak: None,
        };
        self.agent(home, NodeReport::Steps { report: Box::new(report) })
    }

    fn measure(&mut self, what: &str, batches: u64, mut events: impl FnMut(&mut Self, u64) -> Vec<Event>) {
        let (mut handled, mut spent, mut shown) = (0, Duration::ZERO, Duration::ZERO);
        for n in 0..batches {
            let batch = events(self, n);
            handled += batch.len();
            let began = Instant::now();
            let outcome = self.engine.handle(self.now, batch);
            spent += began.elapsed();
            let began = Instant::now();
            drop(self.engine.view());
            shown += began.elapsed();
            drop(outcome);
        }
        let per_event = |time: Duration| time.as_secs_f64() * 1e6 / handled as f64;
        println!("{what:<32} {:>9.1} µs per event, {:>6.2} µs per view", per_event(spent), per_event(shown));
    }
}

fn submit(n: u64) -> Event {
    let body =
        Request::Submit { jobs: vec![rigid(&format!("new-{n}"), 8)], idempotency: None, known: Known::default() };
    Event::Request { request: RequestId(n), actor: Actor::User("ada".into()), body }
}

/// Two jobs on every node, each on four GPUs, and the queue behind them.
fn snapshot() -> (Snapshot, Vec<(JobId, u64)>) {
    let mut ids = IdSource::seeded(5);
    // Planning is measured by a bench of its own.
    let policy = PolicySettings { mode: PolicyMode::Paused, ..PolicySettings::default() };
    let mut snapshot = Snapshot { policy, ..Snapshot::default() };
    snapshot.nodes = (0..NODES).map(node).collect();
    let (mut jobs, mut assignments) = (Vec::new(), BTreeMap::new());
    for index in 0..RUNNING {
        let (id, home) = (ids.job(NOW), index / 2);
        let gpus = inventory(home, 8).gpus.into_iter().skip(4 * (index % 2) as usize).take(4).map(|gpu| gpu.uuid);
        let slice = NodeSlice { node: node_id(home), gpus: gpus.collect() };
        let placement = Placement::try_new(vec![slice]).unwrap();
        let generation = Generation(1);
        let state = JobState::Running { generation, since: NOW };
        let spec = spec(format!("job-{index}"), example::gpus(4, 4), Some(training(Tokens(1e12), true, true)));
        snapshot.jobs.push(Job { state, generation, ..Job::new(id, spec, "ada".into(), NOW) });
        snapshot.allocations.push(Allocation {
            configuration: Some(configuration()),
            prepared_at: Some(NOW),
            launched_at: Some(NOW),
            training_at: Some(NOW),
            ..Allocation::new(id, generation, placement.clone(), NOW)
        });
        assignments.insert(id, assignment(placement));
        jobs.push((id, home));
    }
    let queued = (0..QUEUED).map(|index| rigid(&format!("queued-{index}"), 8));
    snapshot.jobs.extend(queued.map(|spec| Job::new(ids.job(NOW), spec, "ada".into(), NOW)));
    let report = PlanReport { trigger: "bench".into(), ..PlanReport::default() };
    let plan = Arc::new(Plan { id: ids.plan(NOW), parent: None, made_at: NOW, assignments, report });
    snapshot.target = Some(PlanRecord {
        plan,
        state: PlanState::Adopted,
        decided_at: Some(NOW),
        decided_by: None,
        adopted: None,
        terms: None,
    });
    (snapshot, jobs)
}

fn configuration() -> Configuration {
    Configuration {
        layout: Layout { dp: 4, tp: 1, pp: 1, ..Layout::single() },
        micro_batch: Sequences(4),
        global_batch: Sequences(16),
    }
}

fn assignment(placement: Placement) -> Assignment {
    let predicted = Prediction {
        step_time: Seconds(1.0),
        throughput: TokensPerSecond(1.0),
        efficiency: 1.0,
        goodput: TokensPerSecond(1.0),
        speed_up: 1.0,
    };
    Assignment { placement, configuration: Some(configuration()), predicted, label: None }
}

fn node(index: u64) -> Node {
    let inventory = inventory(index, 8);
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

fn node_id(index: u64) -> NodeId {
    IdSource::seeded(1_000 + index).node(NOW)
}

fn rigid(name: &str, gpus: u32) -> JobSpec {
    spec(name.into(), example::gpus(gpus, gpus), None)
}

fn inventory(index: u64, gpus: u32) -> NodeInventory {
    let fabric = Fabric { domain: format!("rack-{}", index / 16) };
    NodeInventory { fabric, ..example::inventory(node_id(index), index, gpus) }
}
