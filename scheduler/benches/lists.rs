//! How long lists of jobs take over REST with 100,000 jobs in the database, fifty clients at once, beside a request that does nothing.
//! `make bench` prints the table that docs/measurements/lists.md keeps.

mod server;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use headway_scheduler::PrivatePostgres;
use headway_types::quantile::quantile;
use headway_types::random::SplitMix64;
use server::client::{connect, dial_http1, fill, fresh_database, get, job};
use server::{Server, cpu_seconds, load_average, postgres_cpu_seconds, resident_mib};
use sqlx::AssertSqlSafe;

const LIVE: u32 = 5_000;
const ENDED: u32 = 95_000;
const CLIENTS: u32 = 50;
const EACH: Duration = Duration::from_secs(6);
/// How often a client asks that looks at what it got in between.
const PACE: Duration = Duration::from_millis(500);

/// What is asked for, `{}` a number of chance, and its name.
const QUESTIONS: [(&str, &str); 9] = [
    ("no-op", "/api/v1/auth/whoami"),
    ("list", "/api/v1/jobs"),
    ("list, some fields", "/api/v1/jobs?limit=50&fields=id,name,owner,state,gpus,progress_fraction,waiting"),
    ("list of live jobs with totals", "/api/v1/jobs?state=live&totals=true"),
    ("live jobs by predicted start", "/api/v1/jobs?state=live&sort=position"),
    ("filter: project and state", "/api/v1/jobs?project=p{13}&state=failed"),
    ("filter: owner", "/api/v1/jobs?user=o{97}"),
    ("filter: label", "/api/v1/jobs?label=exp=e{1000}"),
    ("search", "/api/v1/jobs?q=b-{9000}"),
];

fn main() {
    server::bench(&mut tokio::runtime::Builder::new_current_thread(), measure);
}

async fn measure(postgres: &PrivatePostgres) {
    let url = fresh_database(postgres, "lists").await;
    let (server, _) = Server::start(&url);
    fill(&server, LIVE, job).await;
    end(&url).await;
    println!(
        "{CLIENTS} clients, {LIVE} live jobs and {ENDED} that have ended; load average at start {}\n",
        load_average()
    );
    println!(
        "| asked for | clients | requests/s | p50 | p99 | p99 over the no-op | CPU ms each: server, Postgres | KiB each | load |"
    );
    println!("|---|---|---|---|---|---|---|---|---|");
    for pace in [Some(PACE), None] {
        let mut no_op = None;
        for (name, path) in QUESTIONS {
            let before = [cpu_seconds(server.pid()), postgres_cpu_seconds(postgres.dir())];
            let run = ask(&server, path, pace).await;
            let used = [cpu_seconds(server.pid()), postgres_cpu_seconds(postgres.dir())];
            let asked = run.millis.len().max(1) as f64;
            let cost: Vec<String> =
                before.iter().zip(used).map(|(from, to)| format!("{:.1}", 1e3 * (to - from) / asked)).collect();
            let p99 = run.quantile(0.99);
            println!(
                "| {name} | {} | {:.0} | {:.1} ms | {p99:.1} ms | {:.1} ms | {} | {:.1} | {} |",
                if pace.is_some() { "two a second each" } else { "without a pause" },
                asked / run.seconds,
                run.quantile(0.5),
                p99 - *no_op.get_or_insert(p99),
                cost.join(", "),
                run.bytes as f64 / 1_024.0 / asked,
                load_average()
            );
        }
    }
    println!("\nThe server holds {:.0} MiB.", resident_mib(server.pid()));
    drop(server);
}

/// Rows of jobs that ended, made of one that waits; the server reads such rows when they are listed and not before.
async fn end(url: &str) {
    let mut connection = connect(url).await;
    let insert = format!(
        r#"INSERT INTO jobs (job_id, name, project, owner, state, generation, version, submitted_at, body)
        SELECT id, name, 'p' || n % 13, 'o' || n % 97, state, 1, 9, at, body
            || jsonb_build_object('id', id, 'owner', 'o' || n % 97, 'submitted_at', micros,
                'state', jsonb_build_object('state', state, 'at', micros + 3600000000, 'message', 'exit code 1', 'by', 'ada', 'reason', null))
            || jsonb_build_object('spec', body -> 'spec'
                || jsonb_build_object('name', name, 'project', 'p' || n % 13, 'labels', jsonb_build_object('exp', 'e' || n % 1000)))
        FROM (
            SELECT n, body, ('0190' || lpad(to_hex(n), 8, '0') || '70008000000000000000')::uuid AS id, 'job-' || n AS name,
                (ARRAY['succeeded', 'failed', 'cancelled'])[1 + n % 3] AS state,
                to_timestamp(1700000000 + n) AS at, (1700000000 + n)::bigint * 1000000 AS micros
            FROM (SELECT body FROM jobs ORDER BY job_id LIMIT 1) AS one, generate_series(1, {ENDED}) AS n
        ) AS new"#
    );
    sqlx::query(AssertSqlSafe(insert)).execute(&mut connection).await.expect("rows of ended jobs");
    sqlx::query("VACUUM ANALYZE jobs").execute(&mut connection).await.expect("statistics");
}

struct Run {
    /// Sorted.
    millis: Vec<f64>,
    bytes: u64,
    seconds: f64,
}

impl Run {
    fn quantile(&self, q: f64) -> f64 {
        quantile(&self.millis, q).unwrap_or(f64::NAN)
    }
}

async fn ask(server: &Server, path: &str, pace: Option<Duration>) -> Run {
    let bytes = Arc::new(AtomicU64::new(0));
    let began = Instant::now();
    let clients = (0..CLIENTS).map(|client| {
        let bytes = Arc::clone(&bytes);
        async move {
            let mut sender = dial_http1(server).await;
            let mut random = SplitMix64(u64::from(client));
            // They do not all ask in one moment.
            tokio::time::sleep(pace.unwrap_or_default() * client / CLIENTS).await;
            let mut millis = Vec::new();
            while began.elapsed() < EACH {
                let asked = Instant::now();
                let read = get(&mut sender, server, &drawn(path, &mut random)).await;
                millis.push(asked.elapsed().as_secs_f64() * 1e3);
                bytes.fetch_add(read.len() as u64, Ordering::Relaxed);
                tokio::time::sleep(pace.unwrap_or_default().saturating_sub(asked.elapsed())).await;
            }
            millis
        }
    });
    let mut millis: Vec<f64> = futures::future::join_all(clients).await.into_iter().flatten().collect();
    let seconds = began.elapsed().as_secs_f64();
    millis.sort_by(f64::total_cmp);
    Run { millis, bytes: bytes.load(Ordering::Relaxed), seconds }
}

/// `{13}` becomes a number below 13.
fn drawn(path: &str, random: &mut SplitMix64) -> String {
    match path.split_once('{').and_then(|(head, tail)| Some((head, tail.split_once('}')?))) {
        Some((head, (below, tail))) => {
            format!("{head}{}{tail}", random.bits() % below.parse::<u64>().expect("a number in the question"))
        }
        None => path.to_owned(),
    }
}
