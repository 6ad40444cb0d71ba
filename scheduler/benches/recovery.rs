//! How soon a killed server serves again, by what it has to load, and how much memory it then takes. The time is that
//! from `exec` to a yes of `/readyz`, with the Postgres of the killed one still running. `make bench` prints the table
//! that docs/measurements/recovery.md keeps.

mod server;
#[path = "../tests/support/mod.rs"]
mod support;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use headway_engine::record::{
    Availability, EventRecord, IdempotencyRecord, JobState, NodePolicy, PlanRecord, PlanState,
};
use headway_engine::{Actor, Change, IdempotencyKey};
use headway_goodput::JobModel;
use headway_scheduler::PrivatePostgres;
use headway_scheduler::store::Store;
use headway_types::plan::{JobVerdict, Reason, ReasonCode};
use headway_types::{Generation, IdSource, JobId, Plan, PlanReport, Timestamp};
use server::{Server, cpu_seconds, load_average, postgres_cpu_seconds, resident_mib};
use sqlx::{AssertSqlSafe, ConnectOptions, Connection};

/// Jobs, and how many of them hold a node each.
const SIZES: [(u32, u32); 3] = [(0, 0), (2_000, 0), (10_000, 1_000)];
const KILLS: u32 = 5;
/// Changes a commit while filling.
const BATCH: usize = 2_000;

fn main() {
    server::bench(&mut tokio::runtime::Builder::new_multi_thread(), measure);
}

async fn measure(postgres: &PrivatePostgres) {
    println!("load average at start {}\n", load_average());
    println!(
        "| live jobs | of them running | nodes | serving again: best | worst of {KILLS} | CPU s: server, Postgres | resident | load |"
    );
    println!("|---|---|---|---|---|---|---|---|");
    for (jobs, running) in SIZES {
        let url = filled(postgres, jobs, running).await;
        let (mut server, _) = Server::start(&url);
        let mut times = Vec::new();
        let before = postgres_cpu_seconds(postgres.dir());
        let mut cpu = 0.0;
        for _ in 0..KILLS {
            server.kill();
            let took;
            (server, took) = Server::start(&url);
            cpu += cpu_seconds(server.pid());
            times.push(took);
        }
        let database = (postgres_cpu_seconds(postgres.dir()) - before) / f64::from(KILLS);
        times.sort();
        let milliseconds = |time: Option<&Duration>| time.map_or(0.0, |time| time.as_secs_f64() * 1e3);
        println!(
            "| {jobs} | {running} | {running} | {:.0} ms | {:.0} ms | {:.2}, {database:.2} | {:.0} MiB | {} |",
            milliseconds(times.first()),
            milliseconds(times.last()),
            cpu / f64::from(KILLS),
            resident_mib(server.pid()),
            load_average()
        );
    }
}

/// A database with this many queued jobs and, of them, this many that run on a node each.
async fn filled(postgres: &PrivatePostgres, jobs: u32, running: u32) -> String {
    let mut admin = sqlx::PgConnection::connect(&postgres.url()).await.expect("Postgres runs");
    let name = format!("recovery_{jobs}");
    sqlx::query(AssertSqlSafe(format!("CREATE DATABASE {name}"))).execute(&mut admin).await.expect("a new database");
    let options: sqlx::postgres::PgConnectOptions = postgres.url().parse().expect("a URL");
    let options = options.database(&name);
    let store = Store::connect(options.clone()).await.expect("the new database");
    store.migrate().await.expect("the schema");
    let term = store.begin_term().await.expect("nobody else leads");

    let now = Timestamp(SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_micros() as i64);
    let mut ids = IdSource::seeded(1);
    let mut verdicts = BTreeMap::new();
    let mut models = BTreeMap::new();
    let mut batch = Vec::new();
    for number in 0..jobs {
        let id = ids.job(now);
        batch.extend(changes(&mut ids, now, id, number, number < running));
        if batch.len() >= BATCH || number + 1 == jobs {
            store.commit(term, &std::mem::take(&mut batch)).await.expect("committed");
        }
        verdicts.insert(id, verdict());
        models.insert(id, Arc::new(JobModel::new(support::training())));
    }
    store.save_models(now, &models).await.expect("saved");
    let plan = plan(ids.plan(now), now, verdicts);
    let target = plan.plan.id;
    store.commit(term, &[Change::Plan(Arc::new(plan)), Change::Target(target)]).await.expect("committed");
    store.close().await;
    options.to_url_lossy().to_string()
}

/// One job with all that belongs to it.
fn changes(ids: &mut IdSource, now: Timestamp, id: JobId, number: u32, runs: bool) -> Vec<Change> {
    let name = format!("job-{number}");
    let mut job = support::job(id, &name);
    job.submitted_at = now;
    job.state = JobState::Queued { since: now };
    job.spec.roles[0].training = Some(support::training());
    let key = IdempotencyKey {
        principal: "ada".into(),
        route: "POST /api/v1/jobs".into(),
        key: name,
        request_hash: "00".repeat(32),
    };
    let event = EventRecord {
        seq: u64::from(number) + 1,
        at: now,
        actor: Actor::User("ada".into()),
        verb: "job.submitted".into(),
        job: Some(id),
        node: None,
        plan: None,
        message: "ada submitted it".into(),
        detail: BTreeMap::new(),
    };
    let mut changes = vec![
        Change::Idempotency(IdempotencyRecord { key, subjects: vec![id.0], at: now, reply: None }),
        Change::Event(event),
    ];
    if runs {
        let mut node = support::node(ids.node(now));
        node.inventory.name = format!("n{number}");
        node.policy = NodePolicy::Schedulable;
        node.availability = Availability::Available;
        node.inventory.gpus = (0..8)
            .map(|index| {
                let mut gpu = node.inventory.gpus[0].clone();
                gpu.uuid.0 = format!("GPU-{number}-{index}");
                gpu.index = index;
                gpu
            })
            .collect();
        job.generation = Generation(1);
        job.state = JobState::Running { generation: Generation(1), since: now };
        changes.push(Change::Allocation(Arc::new(support::allocation(id, node.inventory.node, 1))));
        changes.push(Change::Node(Arc::new(node)));
    }
    changes.push(Change::Job(Arc::new(job)));
    changes
}

fn verdict() -> JobVerdict {
    let detail = "all GPUs are taken by jobs that gain more from them";
    JobVerdict {
        headline: "waits for GPUs".into(),
        marginal_speed_up: Some(0.7),
        reasons: vec![Reason { code: ReasonCode::Held, binding: true, detail: detail.into() }],
        ..JobVerdict::default()
    }
}

fn plan(id: headway_types::PlanId, made_at: Timestamp, jobs: BTreeMap<JobId, JobVerdict>) -> PlanRecord {
    let report = PlanReport {
        trigger: "benchmark".into(),
        objective: 1.0,
        objective_before: 1.0,
        bound: Some(1.0),
        gap: Some(0.0),
        jobs: Arc::new(jobs),
        candidates: 7,
        ..PlanReport::default()
    };
    let plan = Plan { id, parent: None, made_at, assignments: BTreeMap::new(), report };
    PlanRecord {
        plan: Arc::new(plan),
        state: PlanState::Adopted,
        decided_at: Some(made_at),
        decided_by: None,
        adopted: None,
        terms: None,
    }
}
