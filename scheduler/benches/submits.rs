//! How fast acknowledged submits are: clients over REST against a bare loop of batched INSERTs of the same rows on the
//! same Postgres, both with every commit on disk. `make bench` prints the table that docs/measurements/submits.md keeps; an argument picks how
//! many are queued before.

mod server;

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use headway_scheduler::PrivatePostgres;
use headway_types::quantile::quantile;
use http_body_util::{BodyExt, Full};
use hyper::StatusCode;
use hyper::body::Bytes;
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use server::client::{connect, dial_http1, fill, fresh_database, job, post};
use server::{Server, cpu_seconds, load_average, postgres_cpu_seconds, resident_mib};
use sqlx::{AssertSqlSafe, Connection};
use tokio::net::TcpStream;

const SUBMITS: u32 = 6_000;
const CLIENTS: u32 = 64;
/// Requests in flight over the one connection of the pipelined client.
const IN_FLIGHT: u32 = 64;
const QUEUED: [u32; 3] = [0, 10_000, 100_000];

fn main() {
    server::bench(&mut tokio::runtime::Builder::new_current_thread(), measure);
}

async fn measure(postgres: &PrivatePostgres) {
    println!("{SUBMITS} submits each; commits on disk; load average at start {}\n", load_average());
    println!(
        "| queued before | who | submits/s | of the bare loop | p50 | p99 | CPU ms per submit: server, Postgres, clients | load |"
    );
    println!("|---|---|---|---|---|---|---|---|");
    let only: Vec<u32> = std::env::args().skip(1).filter_map(|argument| argument.parse().ok()).collect();
    for queued in QUEUED.into_iter().filter(|queued| only.is_empty() || only.contains(queued)) {
        let mut bare = None;
        for clients in [Clients::One, Clients::Many, Clients::Pipelined] {
            let url = fresh_database(postgres, &format!("submits_{queued}_{clients:?}").to_lowercase()).await;
            let (server, _) = Server::start(&url);
            fill(&server, queued, job).await;
            let before = resident_mib(server.pid());
            let cpu =
                [cpu_seconds(server.pid()), postgres_cpu_seconds(postgres.dir()), cpu_seconds(std::process::id())];
            let run = submit(&server, clients).await;
            let used =
                [cpu_seconds(server.pid()), postgres_cpu_seconds(postgres.dir()), cpu_seconds(std::process::id())];
            let grown = resident_mib(server.pid()) - before;
            drop(server);
            let bare = match bare {
                Some(rate) => rate,
                None => {
                    let rate = bare_loop(&url, 64).await;
                    println!(
                        "| {queued} | bare loop, 64 rows a commit | {rate:.0} | 1.00 | | | | {} |",
                        load_average()
                    );
                    *bare.insert(rate)
                }
            };
            let each: Vec<String> = cpu
                .iter()
                .zip(used)
                .map(|(from, to)| format!("{:.2}", (to - from) * 1e3 / f64::from(clients.submits())))
                .collect();
            println!(
                "| {queued} | {} | {:.0} | {:.2} | {:.1} ms | {:.1} ms | {} | {} |",
                clients.name(),
                run.rate,
                run.rate / bare,
                run.quantile(0.5),
                run.quantile(0.99),
                each.join(", "),
                load_average()
            );
            eprintln!("server grew by {grown:.1} MiB");
        }
    }
}

#[derive(Clone, Copy, Debug)]
enum Clients {
    /// Each submit waits for the answer to the one before.
    One,
    Many,
    Pipelined,
}

impl Clients {
    fn in_flight(self) -> u32 {
        match self {
            Self::One => 1,
            Self::Many => CLIENTS,
            Self::Pipelined => IN_FLIGHT,
        }
    }

    fn submits(self) -> u32 {
        if matches!(self, Self::One) { SUBMITS / 4 } else { SUBMITS }
    }

    fn name(self) -> String {
        match self {
            Self::One => "1 client".to_owned(),
            Self::Many => format!("{CLIENTS} clients"),
            Self::Pipelined => format!("1 client, {IN_FLIGHT} in flight"),
        }
    }
}

struct Run {
    rate: f64,
    /// Sorted.
    latencies: Vec<Duration>,
}

impl Run {
    /// Milliseconds.
    fn quantile(&self, q: f64) -> f64 {
        let millis: Vec<f64> = self.latencies.iter().map(|latency| latency.as_secs_f64() * 1e3).collect();
        quantile(&millis, q).unwrap_or(f64::NAN)
    }
}

async fn submit(server: &Server, clients: Clients) -> Run {
    let next = Arc::new(AtomicU32::new(0));
    let shared = match clients {
        Clients::One | Clients::Many => None,
        Clients::Pipelined => Some(dial_http2(server).await),
    };
    let began = Instant::now();
    let workers = (0..clients.in_flight()).map(|_| async {
        let mut own = if shared.is_some() { None } else { Some(dial_http1(server).await) };
        let mut shared = shared.clone();
        let mut latencies = Vec::new();
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            if number >= clients.submits() {
                return latencies;
            }
            let request = post(server.address, job(number), &format!("key-{number}"));
            let began = Instant::now();
            let answer = match (&mut own, &mut shared) {
                (Some(own), _) => own.send_request(request).await,
                (None, Some(shared)) => shared.send_request(request).await,
                (None, None) => unreachable!("one of them is set"),
            };
            let answer = answer.expect("an answer");
            assert_eq!(answer.status(), StatusCode::CREATED);
            answer.into_body().collect().await.expect("a whole answer");
            latencies.push(began.elapsed());
        }
    });
    let latencies = futures::future::join_all(workers).await;
    let rate = f64::from(clients.submits()) / began.elapsed().as_secs_f64();
    let mut latencies: Vec<_> = latencies.into_iter().flatten().collect();
    latencies.sort();
    Run { rate, latencies }
}

async fn dial_http2(server: &Server) -> http2::SendRequest<Full<Bytes>> {
    let stream = TcpStream::connect(server.address).await.expect("the server listens");
    stream.set_nodelay(true).expect("a TCP socket");
    let (sender, connection) =
        http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await.expect("HTTP/2 without TLS");
    tokio::spawn(connection);
    sender
}

/// The rows that submits stored, sent again by one client into tables of the same shape and indexes; submits per second.
async fn bare_loop(url: &str, rows_per_commit: usize) -> f64 {
    const TABLES: [(&str, &str); 4] = [
        ("jobs", "job_id"),
        ("idempotency_keys", "used_at, key"),
        ("events", "seq"),
        ("job_transitions", "valid_from, job_id"),
    ];
    let mut connection = connect(url).await;
    sqlx::query("SET synchronous_commit = on").execute(&mut connection).await.expect("a setting");
    let mut sources = Vec::new();
    for (table, order) in TABLES {
        let copy = format!("CREATE TABLE bare_{table} (LIKE {table} INCLUDING ALL)");
        sqlx::query(AssertSqlSafe(copy)).execute(&mut connection).await.expect("a table of the same shape");
        let read = format!("SELECT {table}::text FROM {table} ORDER BY {order} LIMIT {SUBMITS}");
        let rows: Vec<String> =
            sqlx::query_scalar(AssertSqlSafe(read)).fetch_all(&mut connection).await.expect("the rows as text");
        // What Postgres computes of a row is not inserted.
        let own = format!(
            "SELECT string_agg(quote_ident(column_name), ', ' ORDER BY ordinal_position) FROM information_schema.columns
            WHERE table_name = '{table}' AND is_generated = 'NEVER'"
        );
        let own: String =
            sqlx::query_scalar(AssertSqlSafe(own)).fetch_one(&mut connection).await.expect("the table's columns");
        let insert =
            format!("INSERT INTO bare_{table} ({own}) SELECT {own} FROM UNNEST($1::text[]::bare_{table}[]) AS row");
        sources.push((insert, rows));
    }
    let began = Instant::now();
    for first in (0..SUBMITS as usize).step_by(rows_per_commit) {
        let mut tx = connection.begin().await.expect("a transaction");
        for (insert, rows) in &sources {
            let batch = &rows[first.min(rows.len())..(first + rows_per_commit).min(rows.len())];
            sqlx::query(AssertSqlSafe(insert.as_str())).bind(batch).execute(&mut *tx).await.expect("inserted");
        }
        tx.commit().await.expect("on disk");
    }
    f64::from(SUBMITS) / began.elapsed().as_secs_f64()
}
