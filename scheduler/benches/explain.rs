//! How long `explain` of a waiting job takes over REST while jobs are submitted and running jobs report, beside a request that does nothing.
//! `make bench` prints the table that docs/measurements/explanations.md keeps.

mod server;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use headway_scheduler::PrivatePostgres;
use headway_types::quantile::quantile;
use headway_types::random::SplitMix64;
use http_body_util::{BodyExt, Full};
use hyper::body::Bytes;
use hyper::client::conn::http1;
use hyper::{Request, StatusCode};
use serde_json::Value;
use server::client::{dial_http1, fill, fresh_database, get, job, post};
use server::{Server, cpu_seconds, fleet, load_average, resident_mib};

const NODES: u64 = 26;
const QUEUED: [u32; 3] = [100, 1_000, 10_000];
const EXPLAINED: u32 = 400;
const DEADLINE: Duration = Duration::from_secs(180);
/// Between reports of a job.
const BEAT: Duration = Duration::from_secs(1);

fn main() {
    server::bench(&mut tokio::runtime::Builder::new_current_thread(), measure);
}

async fn measure(postgres: &PrivatePostgres) {
    println!(
        "{EXPLAINED} explanations of waiting jobs, one after another, with a submit under way; {NODES} nodes of 8 GPUs\n"
    );
    println!(
        "| waiting | explain p50 | p99 | longest | told in full | no-op p50 | p99 | submit p50 | p99 | server CPU | MiB | load |"
    );
    println!("|---|---|---|---|---|---|---|---|---|---|---|---|");
    let only: Vec<u32> = std::env::args().skip(1).filter_map(|argument| argument.parse().ok()).collect();
    for queued in QUEUED.into_iter().filter(|queued| only.is_empty() || only.contains(queued)) {
        let url = fresh_database(postgres, &format!("explain_{queued}")).await;
        let (server, _) = Server::start(&url);
        fleet::start(&server, NODES, BEAT, 0).await;
        fill(&server, queued, fitting).await;
        let waiting = waiting(&server).await;
        let done = Arc::new(AtomicBool::new(false));
        let submits = tokio::spawn(submit(dial_http1(&server).await, post_of(&server), Arc::clone(&done)));
        let (cpu, began) = (cpu_seconds(server.pid()), Instant::now());
        let asked = ask(&server, &waiting).await;
        done.store(true, Ordering::Relaxed);
        let cores = (cpu_seconds(server.pid()) - cpu) / began.elapsed().as_secs_f64();
        let submits = submits.await.expect("submits go on");
        println!(
            "| {queued} | {} | {:.0} ms | {:.0} % | {} | {} | {:.0} % | {:.0} | {} |",
            spread(&asked.explain),
            asked.explain.iter().copied().fold(0.0, f64::max),
            100.0 * f64::from(asked.in_full) / f64::from(EXPLAINED),
            spread(&asked.nothing),
            spread(&submits),
            100.0 * cores,
            resident_mib(server.pid()),
            load_average()
        );
    }
}

/// "12 ms | 80 ms": p50 and p99.
fn spread(millis: &[f64]) -> String {
    let at = |share| quantile(millis, share).unwrap_or(f64::NAN);
    format!("{:.0} ms | {:.0} ms", at(0.5), at(0.99))
}

/// Milliseconds each took, sorted.
struct Asked {
    explain: Vec<f64>,
    nothing: Vec<f64>,
    /// Told with what would change it and when it starts.
    in_full: u32,
}

async fn ask(server: &Server, waiting: &[String]) -> Asked {
    let mut sender = dial_http1(server).await;
    let mut random = SplitMix64(7);
    let mut asked = Asked { explain: Vec::new(), nothing: Vec::new(), in_full: 0 };
    for _ in 0..EXPLAINED {
        let job = &waiting[(random.bits() % waiting.len() as u64) as usize];
        let (told, took) = timed(&mut sender, server, &format!("/api/v1/jobs/{job}/explain")).await;
        assert!(told["headline"].is_string(), "{told}");
        asked.explain.push(took);
        asked.in_full += u32::from(told["left_out"].is_null());
        asked.nothing.push(timed(&mut sender, server, "/healthz").await.1);
    }
    asked.explain.sort_by(f64::total_cmp);
    asked.nothing.sort_by(f64::total_cmp);
    asked
}

/// The body, and the milliseconds until it was there.
async fn timed(sender: &mut http1::SendRequest<Full<Bytes>>, server: &Server, path: &str) -> (Value, f64) {
    let began = Instant::now();
    let body = get(sender, server, path).await;
    let took = began.elapsed().as_secs_f64() * 1e3;
    (serde_json::from_slice(&body).unwrap_or_default(), took)
}

/// The jobs that wait once the nodes are full and a round has looked at all of them.
async fn waiting(server: &Server) -> Vec<String> {
    let mut sender = dial_http1(server).await;
    let began = Instant::now();
    loop {
        assert!(began.elapsed() < DEADLINE, "the nodes do not fill");
        let (running, _) = timed(&mut sender, server, "/api/v1/jobs?state=running&limit=500").await;
        let running = running["items"].as_array().map_or(0, Vec::len);
        let (queued, _) = timed(&mut sender, server, "/api/v1/jobs?state=queued&limit=500").await;
        let queued: Vec<String> = queued["items"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(|job| Some(job["id"].as_str()?.to_owned()))
            .collect();
        if running > 0 {
            let (told, _) = timed(&mut sender, server, &format!("/api/v1/jobs/{}/explain", queued[0])).await;
            if told["plan_id"].is_string() {
                return queued;
            }
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

type Post = Box<dyn Fn(u32) -> Request<Full<Bytes>> + Send>;

fn post_of(server: &Server) -> Post {
    let address = server.address;
    Box::new(move |number| post(address, fitting(number), &format!("key-{number}")))
}

/// A job that a node can hold, since its script can be told how to lie there.
fn fitting(number: u32) -> String {
    let layouts =
        r#""layouts":{"tp":[1,2,4,8],"pp":4,"sharding":["none","optimizer","parameters"],"recompute":"full"}"#;
    job(number).replace(r#""training":{"#, &format!(r#""training":{{{layouts},"#))
}

/// One submit after another; milliseconds each took, sorted.
async fn submit(mut sender: http1::SendRequest<Full<Bytes>>, post: Post, done: Arc<AtomicBool>) -> Vec<f64> {
    let mut took = Vec::new();
    while !done.load(Ordering::Relaxed) {
        let began = Instant::now();
        let answer = sender.send_request(post(took.len() as u32)).await.expect("an answer");
        assert_eq!(answer.status(), StatusCode::CREATED);
        answer.into_body().collect().await.expect("a whole answer");
        took.push(began.elapsed().as_secs_f64() * 1e3);
        // So many that the queue hardly grows meanwhile.
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    took.sort_by(f64::total_cmp);
    took
}
