//! What clients of the benchmarks do: databases of their own, jobs to submit, connections.

use std::net::SocketAddr;

use headway_engine::record::{PolicySettings, UserQuota};
use headway_scheduler::PrivatePostgres;
use headway_scheduler::store::Store;
use http_body_util::{BodyExt, Full};
use hyper::body::Bytes;
use hyper::client::conn::http1;
use hyper::{Request, StatusCode};
use hyper_util::rt::TokioIo;
use sqlx::{AssertSqlSafe, ConnectOptions, Connection, PgConnection};
use tokio::net::TcpStream;

use super::{SECRET, Server};

pub async fn fresh_database(postgres: &PrivatePostgres, name: &str) -> String {
    let url = postgres.url();
    let mut admin = connect(&url).await;
    sqlx::query(AssertSqlSafe(format!("CREATE DATABASE {name}"))).execute(&mut admin).await.expect("a new database");
    let options: sqlx::postgres::PgConnectOptions = url.parse().expect("a URL");
    let url = options.database(name).to_url_lossy().to_string();
    let store = Store::connect(url.parse().expect("a URL")).await.expect("the new database");
    store.migrate().await.expect("the schema");
    store.close().await;
    // One user submits and asks whatever is measured.
    let policy = PolicySettings { user_quota: UserQuota::UNBOUNDED, ..PolicySettings::default() };
    let policy = serde_json::to_string(&policy).expect("a policy is plain JSON");
    let mut database = connect(&url).await;
    let set = sqlx::query("UPDATE cluster SET policy = $1::text::jsonb").bind(policy).execute(&mut database).await;
    assert_eq!(set.expect("the policy is set").rows_affected(), 1);
    url
}

pub async fn connect(url: &str) -> PgConnection {
    PgConnection::connect(url).await.expect("Postgres runs")
}

pub fn job(number: u32) -> String {
    format!(
        r#"{{"version":1,"name":"job-{number}","project":"nlp","labels":{{"exp":"bench"}},
        "resources":{{"gpus":{{"min":8,"max":32,"sizes":[8,16,32]}},"per_node":{{"cpus":8,"memory":"64GiB"}}}},
        "training":{{"model":"llama-3-8b","reference_batch":"4Mi tokens","batch":{{"min":"1Mi tokens","max":"16Mi tokens"}},
        "target":"300B tokens","reconfigure":{{"batch":"live","layout":"restart"}}}},
        "limits":{{"time":"48h"}},"run":{{"workdir":"/home/ada/proj","command":"torchrun train.py","env":{{"NCCL_DEBUG":"WARN"}}}}}}"#
    )
}

pub fn post(server: SocketAddr, body: String, key: &str) -> Request<Full<Bytes>> {
    Request::post(format!("http://{server}/api/v1/jobs"))
        .header("host", server.to_string())
        .header("authorization", format!("Bearer {SECRET}"))
        .header("content-type", "application/json")
        .header("idempotency-key", key)
        .body(Full::new(Bytes::from(body)))
        .expect("a well-formed request")
}

/// Queues jobs a thousand at a time.
pub async fn fill(server: &Server, jobs: u32, job: fn(u32) -> String) {
    let mut sender = dial_http1(server).await;
    for first in (0..jobs).step_by(1_000) {
        let batch: Vec<String> = (first..(first + 1_000).min(jobs)).map(job).collect();
        let body = format!(r#"{{"jobs":[{}]}}"#, batch.join(","));
        let answer =
            sender.send_request(post(server.address, body, &format!("fill-{first}"))).await.expect("an answer");
        assert_eq!(answer.status(), StatusCode::CREATED);
        answer.into_body().collect().await.expect("a whole answer");
    }
}

/// The body of what is asked for.
pub async fn get(sender: &mut http1::SendRequest<Full<Bytes>>, server: &Server, path: &str) -> Bytes {
    let answer = sender.send_request(asking(server, path)).await.expect("an answer");
    assert_eq!(answer.status(), StatusCode::OK, "{path}");
    answer.into_body().collect().await.expect("a whole answer").to_bytes()
}

pub fn asking(server: &Server, path: &str) -> Request<Full<Bytes>> {
    Request::get(format!("http://{}{path}", server.address))
        .header("host", server.address.to_string())
        .header("authorization", format!("Bearer {SECRET}"))
        .body(Full::new(Bytes::new()))
        .expect("a well-formed request")
}

pub async fn dial_http1(server: &Server) -> http1::SendRequest<Full<Bytes>> {
    let stream = TcpStream::connect(server.address).await.expect("the server listens");
    stream.set_nodelay(true).expect("a TCP socket");
    let (sender, connection) = http1::handshake(TokioIo::new(stream)).await.expect("HTTP/1.1");
    tokio::spawn(connection);
    sender
}
