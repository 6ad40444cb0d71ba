//! What the live stream costs while thousands of jobs train and report: bytes a second for one reader in each form, and CPU of the server for each
//! reader. `make bench` prints the table that docs/measurements/stream.md keeps; an argument picks how many jobs run.

mod server;

use std::time::{Duration, Instant};

use headway_scheduler::PrivatePostgres;
use http_body_util::{BodyExt, Full};
use hyper::StatusCode;
use hyper::body::Bytes;
use hyper::client::conn::http1;
use hyper::header::{ACCEPT_ENCODING, HeaderValue};
use serde_json::Value;
use server::client::{asking, dial_http1, fill, fresh_database, get};
use server::{Server, cpu_seconds, fleet, load_average, resident_mib};

const RUNNING: u32 = 3_000;
/// Between reports of a job.
const BEAT: Duration = Duration::from_secs(3);
/// Steps that jobs have behind them: most of what runs is in the midst of its life.
const BEHIND: u64 = 2_000;
/// Readers at once where CPU is measured.
const READERS: u32 = 10;
/// Until rows have been told once, which patches rest on.
const WARM: Duration = Duration::from_secs(6);
const EACH: Duration = Duration::from_secs(10);
const DEADLINE: Duration = Duration::from_secs(600);

/// What a reader asks for, whether it takes gzip, and its name.
const FORMS: [(&str, &str, bool); 7] = [
    ("whole rows", "", false),
    ("whole rows, gzip", "", true),
    ("patches", "&patch=true", false),
    ("patches, gzip", "&patch=true", true),
    (
        "patches of a table's fields, gzip",
        "&patch=true&fields=name,state,gpus,goodput_tokens_per_second,progress_fraction,eta_seconds",
        true,
    ),
    ("one project, patches, gzip", "&patch=true&project=p7", true),
    ("events alone", "", false),
];

fn main() {
    server::bench(&mut tokio::runtime::Builder::new_current_thread(), measure);
}

async fn measure(postgres: &PrivatePostgres) {
    let jobs = std::env::args().skip(1).find_map(|argument| argument.parse().ok()).unwrap_or(RUNNING);
    let url = fresh_database(postgres, "stream").await;
    let (server, _) = Server::start(&url);
    fleet::start(&server, u64::from(jobs.div_ceil(fleet::GPUS)), BEAT, BEHIND).await;
    fill(&server, jobs, small).await;
    let running = running(&server, jobs).await;
    println!(
        "{running} running jobs that report every {} s; load average at start {}\n",
        BEAT.as_secs(),
        load_average()
    );
    println!("| form | KB/s | CPU of the server per reader | load |\n|---|---|---|---|");
    let idle = cores(&server, EACH, &mut Vec::new()).await;
    for (name, query, gzip) in FORMS {
        let topics = if name == "events alone" { "events" } else { "jobs,nodes,plans,events" };
        let mut readers = Vec::new();
        for _ in 0..READERS {
            readers.push(follow(&server, &format!("/api/v1/stream?topics={topics}{query}"), gzip).await);
        }
        cores(&server, WARM, &mut readers).await;
        let before: u64 = readers.iter().map(|reader| reader.bytes).sum();
        let busy = cores(&server, EACH, &mut readers).await;
        let read = readers.iter().map(|reader| reader.bytes).sum::<u64>() - before;
        let rate = read as f64 / f64::from(READERS) / EACH.as_secs_f64() / 1e3;
        let each = 100.0 * (busy - idle).max(0.0) / f64::from(READERS);
        println!("| {name} | {rate:.1} | {each:.1} % | {} |", load_average());
    }
    println!(
        "\nWithout a reader the server takes {:.0} % of a processor, and holds {:.0} MiB.",
        100.0 * idle,
        resident_mib(server.pid())
    );
}

/// One GPU and no choice: what rounds do is not what is measured here.
fn small(number: u32) -> String {
    format!(
        r#"{{"version":1,"name":"job-{number}","project":"p{}","labels":{{"exp":"bench"}},"resources":{{"gpus":1}},
        "training":{{"model":{{"layers":4,"hidden":64,"heads":4,"kv_heads":2,"ffn_hidden":176,"vocab":256,"seq_len":8192,"tied":true}},
        "reference_batch":"512Ki tokens","target":"3T tokens","layouts":{{"micro_batch":8}}}},
        "limits":{{"time":"480h"}},"run":{{"command":"torchrun train.py"}}}}"#,
        number % 13
    )
}

/// How many run, once nearly all do.
async fn running(server: &Server, jobs: u32) -> u64 {
    let mut sender = dial_http1(server).await;
    let began = Instant::now();
    loop {
        let overview: Value =
            serde_json::from_slice(&get(&mut sender, server, "/api/v1/overview").await).expect("an overview");
        let running = overview["jobs_by_state"]["running"].as_u64().unwrap_or(0);
        if running * 100 >= u64::from(jobs) * 98 {
            return running;
        }
        assert!(began.elapsed() < DEADLINE, "the jobs do not start: {overview}");
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
}

struct Reader {
    /// The connection ends with it.
    _sender: http1::SendRequest<Full<Bytes>>,
    body: hyper::body::Incoming,
    bytes: u64,
}

async fn follow(server: &Server, path: &str, gzip: bool) -> Reader {
    let mut request = asking(server, path);
    if gzip {
        request.headers_mut().insert(ACCEPT_ENCODING, HeaderValue::from_static("gzip"));
    }
    let mut sender = dial_http1(server).await;
    let answer = sender.send_request(request).await.expect("an answer");
    assert_eq!(answer.status(), StatusCode::OK, "{path}");
    Reader { _sender: sender, body: answer.into_body(), bytes: 0 }
}

/// Processors that the server takes for so long while these read.
async fn cores(server: &Server, time: Duration, readers: &mut [Reader]) -> f64 {
    let (cpu, began) = (cpu_seconds(server.pid()), tokio::time::Instant::now());
    let reading = readers.iter_mut().map(|reader| async move {
        while let Ok(Some(frame)) = tokio::time::timeout_at(began + time, reader.body.frame()).await {
            reader.bytes += frame.expect("the stream stands").data_ref().map_or(0, |data| data.len() as u64);
        }
    });
    futures::future::join_all(reading).await;
    tokio::time::sleep_until(began + time).await;
    (cpu_seconds(server.pid()) - cpu) / time.as_secs_f64()
}
