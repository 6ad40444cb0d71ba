#![allow(clippy::unwrap_used)]
//! The client against a listener that replies from a script, and its parsers alone.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio_stream::StreamExt as _;

use super::stream::Parser;
use super::*;
use crate::v1::{NodeGone, StreamMessage};

const EVENT: &str = r#"{"seq":17,"at":"2026-01-02T03:04:05Z","actor":"scheduler","verb":"plan.adopted","message":"m"}"#;

/// Replies once with `status`, `headers` and `body`, and returns the request as it came.
async fn once(status: &str, headers: &str, body: &str) -> (Client, tokio::task::JoinHandle<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let client = Client::new(&format!("http://{}", listener.local_addr().unwrap()), "hw_secret").unwrap();
    let reply =
        format!("HTTP/1.1 {status}\r\n{headers}content-length: {}\r\nconnection: close\r\n\r\n{body}", body.len());
    let server = tokio::spawn(async move {
        let (mut socket, _) = listener.accept().await.unwrap();
        let mut request = Vec::new();
        let mut buffer = [0; 4096];
        while !request.windows(4).any(|window| window == b"\r\n\r\n") {
            let read = socket.read(&mut buffer).await.unwrap();
            assert!(read > 0, "the request ends with its headers at least");
            request.extend_from_slice(&buffer[..read]);
        }
        socket.write_all(reply.as_bytes()).await.unwrap();
        String::from_utf8_lossy(&request).into_owned()
    });
    (client, server)
}

/// Replies to one request after the other, each time with the same, and counts them.
async fn replying(status: &'static str, body: String) -> (String, Arc<AtomicUsize>) {
    replying_as("", status, body).await
}

/// The same with further headers.
async fn replying_as(headers: &'static str, status: &'static str, body: String) -> (String, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let count = Arc::new(AtomicUsize::new(0));
    let asked = Arc::clone(&count);
    tokio::spawn(async move {
        loop {
            let (mut socket, _) = listener.accept().await.unwrap();
            let mut request = [0; 4096];
            assert!(socket.read(&mut request).await.unwrap() > 0);
            asked.fetch_add(1, Ordering::Relaxed);
            let head = "content-type: application/problem+json\r\nconnection: close";
            let reply = format!("HTTP/1.1 {status}\r\n{headers}{head}\r\ncontent-length: {}\r\n\r\n{body}", body.len());
            socket.write_all(reply.as_bytes()).await.unwrap();
        }
    });
    (url, count)
}

#[tokio::test]
async fn what_nobody_has_begun_goes_to_the_next_server_and_the_client_stays_with_who_leads() {
    let gone = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let (leader, led) = replying("200 OK", r#"{"items":[],"next_cursor":null}"#.into()).await;
    let problem = format!(r#"{{"title":"t","status":503,"code":"not_leading","detail":"d","leader":"{leader}/"}}"#);
    let (standby, stood_by) = replying("503 Service Unavailable", problem).await;
    let client = Client::new(&format!("http://{gone}, {standby},http://{gone},{leader}"), "hw_secret").unwrap();
    for _ in 0..3 {
        assert!(client.jobs(&JobFilter::default()).await.unwrap().items.is_empty());
    }
    assert_eq!((stood_by.load(Ordering::Relaxed), led.load(Ordering::Relaxed)), (1, 3));
}

/// Replies to each request with 200, `headers` and `body`, and counts them.
async fn reading(headers: &'static str, body: &'static str) -> (String, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let count = Arc::new(AtomicUsize::new(0));
    let asked = Arc::clone(&count);
    tokio::spawn(async move {
        loop {
            let (mut socket, _) = listener.accept().await.unwrap();
            let mut request = [0; 4096];
            assert!(socket.read(&mut request).await.unwrap() > 0);
            asked.fetch_add(1, Ordering::Relaxed);
            let head = format!("HTTP/1.1 200 OK\r\n{headers}connection: close\r\ncontent-length: {}", body.len());
            socket.write_all(format!("{head}\r\n\r\n{body}").as_bytes()).await.unwrap();
        }
    });
    (url, count)
}

const OF_STANDBY: &str = "headway-standby: true\r\nheadway-age-seconds: 1.8\r\n";
const OLD: &str = r#"{"items":[],"next_cursor":"old"}"#;
const NEW: &str = r#"{"items":[],"next_cursor":"new"}"#;

#[tokio::test]
async fn reads_go_to_the_leader_though_a_standby_is_named_first() {
    let (standby, stood_by) = reading(OF_STANDBY, OLD).await;
    let (leader, led) = reading("", NEW).await;
    let client = Client::new(&format!("{standby},{leader}"), "hw_secret").unwrap();
    for _ in 0..3 {
        let page = client.jobs(&JobFilter::default()).await.unwrap();
        assert_eq!(page.next_cursor.as_deref(), Some("new"));
    }
    assert_eq!((stood_by.load(Ordering::Relaxed), led.load(Ordering::Relaxed)), (1, 3));
}

#[tokio::test]
async fn what_a_standby_does_not_know_yet_is_asked_of_the_leader() {
    let missing = || serde_json::json!({"title": "Not Found", "status": 404, "code": "not_found"}).to_string();
    let (standby, stood_by) = replying_as(OF_STANDBY, "404 Not Found", missing()).await;
    let (leader, led) = reading("", NEW).await;
    let client = Client::new(&format!("{standby},{leader}"), "hw_secret").unwrap();
    let page = client.jobs(&JobFilter::default()).await.unwrap();
    assert_eq!(page.next_cursor.as_deref(), Some("new"));
    assert_eq!((stood_by.load(Ordering::Relaxed), led.load(Ordering::Relaxed)), (1, 1));

    let gone = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let alone = Client::new(&format!("{standby},http://{gone}"), "hw_secret").unwrap();
    let Err(ClientError::Problem(told)) = alone.jobs(&JobFilter::default()).await else { panic!("it is not there") };
    assert_eq!(told.code, "not_found");
}

#[tokio::test]
async fn a_standby_reads_where_no_server_leads_and_the_client_reports_the_age() {
    static HEARD: std::sync::Mutex<Vec<Duration>> = std::sync::Mutex::new(Vec::new());
    let gone = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let (standby, stood_by) = reading(OF_STANDBY, OLD).await;
    let client = Client::new(&format!("http://{gone},{standby}"), "hw_secret").unwrap();
    let client = client.on_standby(|age| HEARD.lock().unwrap().push(age));
    for _ in 0..2 {
        let page = client.jobs(&JobFilter::default()).await.unwrap();
        assert_eq!(page.next_cursor.as_deref(), Some("old"));
    }
    assert_eq!(stood_by.load(Ordering::Relaxed), 2, "the second read does not search for a leader again");
    assert_eq!(*HEARD.lock().unwrap(), [Duration::from_millis(1_800); 2]);
}

#[tokio::test]
async fn a_submission_with_a_key_waits_while_the_database_restarts_and_one_without_does_not() {
    let body = r#"{"title":"t","status":503,"code":"unavailable","detail":"d"}"#;
    let head = "content-type: application/problem+json\r\nretry-after: 0\r\nconnection: close";
    let length = body.len();
    let refusal = format!("HTTP/1.1 503 Service Unavailable\r\n{head}\r\ncontent-length: {length}\r\n\r\n{body}");
    for servers in 1..=2 {
        let (url, asked) = refusing_twice(refusal.clone(), r#"{"jobs":[]}"#).await;
        let client = Client::new(&vec![url; servers].join(","), "hw_secret").unwrap();
        assert!(client.submit_yaml("version: 1\n", Some("key")).await.unwrap().jobs.is_empty());
        assert_eq!(asked.load(Ordering::Relaxed), 3, "{servers} servers");
    }
    let (url, asked) = refusing_twice(refusal.clone(), r#"{"jobs":[]}"#).await;
    let refused = Client::new(&url, "hw_secret").unwrap().submit_yaml("version: 1\n", None).await.unwrap_err();
    assert!(matches!(refused, ClientError::Problem(problem) if problem.code == "unavailable"));
    assert_eq!(asked.load(Ordering::Relaxed), 1);
    // A question is answered at once: what is unavailable may be the log of a node that is gone.
    let (url, asked) = refusing_twice(refusal, NEW).await;
    let refused = Client::new(&url, "hw_secret").unwrap().jobs(&JobFilter::default()).await.unwrap_err();
    assert!(matches!(refused, ClientError::Problem(problem) if problem.code == "unavailable"));
    assert_eq!(asked.load(Ordering::Relaxed), 1);
}

#[tokio::test]
async fn a_server_that_is_away_keeps_no_request_from_another() {
    let away = || r#"{"title":"t","status":503,"code":"unavailable","detail":"d"}"#.to_owned();
    let (former, asked) = replying("503 Service Unavailable", away()).await;
    let (leader, led) = replying("200 OK", r#"{"jobs":[]}"#.into()).await;
    let client = Client::new(&format!("{former},{leader}"), "hw_secret").unwrap();
    assert!(client.submit_yaml("version: 1\n", Some("key")).await.unwrap().jobs.is_empty());
    assert_eq!((asked.load(Ordering::Relaxed), led.load(Ordering::Relaxed)), (1, 1));

    let (standby, _) = reading(OF_STANDBY, OLD).await;
    let client = Client::new(&format!("{standby},{former}"), "hw_secret").unwrap();
    let page = client.jobs(&JobFilter::default()).await.unwrap();
    assert_eq!(page.next_cursor.as_deref(), Some("old"), "what the standby has read is better than nothing");
}

#[tokio::test]
async fn what_may_have_been_done_is_asked_of_no_other_server() {
    let broken = r#"{"title":"t","status":503,"code":"unavailable","detail":"d"}"#;
    let (first, _) = replying("503 Service Unavailable", broken.into()).await;
    let (second, asked) = replying("200 OK", "{}".into()).await;
    let client = Client::new(&format!("{first},{second}"), "hw_secret").unwrap();
    let refused = client.cancel("7", None).await.unwrap_err();
    assert!(matches!(refused, ClientError::Problem(problem) if problem.code == "unavailable"));
    assert_eq!(asked.load(Ordering::Relaxed), 0);
}

/// Refuses the first requests with `refusal`, and replies to the third and all others with `body`.
async fn refusing_twice(refusal: String, body: &'static str) -> (String, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let count = Arc::new(AtomicUsize::new(0));
    let asked = Arc::clone(&count);
    tokio::spawn(async move {
        loop {
            let (mut socket, _) = listener.accept().await.unwrap();
            let mut request = [0; 4096];
            assert!(socket.read(&mut request).await.unwrap() > 0);
            let reply = match asked.fetch_add(1, Ordering::Relaxed) {
                0 | 1 => refusal.clone(),
                _ => format!("HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{body}", body.len()),
            };
            socket.write_all(reply.as_bytes()).await.unwrap();
        }
    });
    (url, count)
}

#[tokio::test]
async fn whoever_is_told_that_it_asks_too_fast_asks_again_but_not_for_ever() {
    let refusal = |code: &str, seconds: u32| {
        let body = format!(r#"{{"title":"t","status":429,"code":"{code}","detail":"d"}}"#);
        let head = "content-type: application/problem+json\r\nconnection: close";
        let length = body.len();
        format!(
            "HTTP/1.1 429 Too Many Requests\r\n{head}\r\nretry-after: {seconds}\r\ncontent-length: {length}\r\n\r\n{body}"
        )
    };
    for servers in 1..=2 {
        let (url, asked) = refusing_twice(refusal("too_many_requests", 0), r#"{"jobs":[]}"#).await;
        let client = Client::new(&vec![url; servers].join(","), "hw_secret").unwrap();
        assert!(client.submit_yaml("version: 1\n", None).await.unwrap().jobs.is_empty());
        assert_eq!(asked.load(Ordering::Relaxed), 3, "{servers} servers");
    }
    // Nobody waits for a minute, and a wrong token does not become right.
    for (code, seconds) in [("too_many_requests", 60), ("too_many_wrong_tokens", 0)] {
        let (url, asked) = refusing_twice(refusal(code, seconds), "{}").await;
        let refused = Client::new(&url, "hw_secret").unwrap().overview().await.unwrap_err();
        assert!(matches!(refused, ClientError::Problem(problem) if problem.code == code));
        assert_eq!(asked.load(Ordering::Relaxed), 1, "{code}");
    }
}

#[tokio::test]
async fn a_request_carries_token_and_query() {
    let (client, server) = once("200 OK", "", r#"{"items":[],"next_cursor":null}"#).await;
    let filter = JobFilter { states: vec!["queued".into(), "held".into()], limit: Some(5), ..JobFilter::default() };
    assert!(client.jobs(&filter).await.unwrap().items.is_empty());
    let request = server.await.unwrap();
    assert!(request.starts_with("GET /api/v1/jobs?state=queued%2Cheld&limit=5 HTTP/1.1"), "{request}");
    assert!(request.contains("authorization: Bearer hw_secret"), "{request}");
}

#[tokio::test]
async fn a_submission_carries_its_key() {
    let (client, server) = once("201 Created", "", r#"{"jobs":[]}"#).await;
    client.submit_yaml("version: 1\n", Some("once")).await.unwrap();
    let request = server.await.unwrap();
    assert!(request.contains("idempotency-key: once"), "{request}");
    assert!(request.contains("content-type: application/yaml"), "{request}");
}

#[tokio::test]
async fn a_name_cannot_leave_its_place_in_the_path() {
    let (client, server) = once("404 Not Found", "", "").await;
    client.node("a/../b?c").await.unwrap_err();
    assert!(server.await.unwrap().starts_with("GET /api/v1/nodes/a%2F..%2Fb%3Fc HTTP/1.1"));
}

#[tokio::test]
async fn a_problem_is_told_from_a_strange_reply() {
    let body = r#"{"type":"about:blank","title":"Conflict","status":409,"code":"stale_plan","detail":"d","hint":"h"}"#;
    let headers = "content-type: application/problem+json\r\nx-request-id: r1\r\n";
    let (client, _server) = once("409 Conflict", headers, body).await;
    let ClientError::Problem(problem) = client.approve("p", None).await.unwrap_err() else { panic!("no problem") };
    assert_eq!((problem.code.as_str(), problem.request_id.as_deref()), ("stale_plan", Some("r1")));

    let (client, _server) = once("502 Bad Gateway", "content-type: text/html\r\n", "<html>").await;
    assert!(matches!(client.overview().await.unwrap_err(), ClientError::BadReply { .. }));

    let (client, _server) = once("200 OK", "", "<html>").await;
    assert!(matches!(client.overview().await.unwrap_err(), ClientError::BadReply { .. }));
}

#[tokio::test]
async fn nobody_listening_is_unreachable() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let client = Client::new(&format!("http://{address}/"), "hw_secret").unwrap();
    assert!(matches!(client.nodes().await.unwrap_err(), ClientError::Unreachable { .. }));
}

#[tokio::test]
async fn a_log_page_has_the_bytes_as_they_were_written() {
    let headers = "x-next-offset: 17\r\nx-log-end: true\r\nx-generation: 3\r\n";
    let (client, _server) = once("200 OK", headers, "loss é").await;
    let page = client.logs("j", &LogRequest::default()).await.unwrap();
    assert_eq!((page.bytes.as_slice(), page.offset(), page.next_offset), ("loss é".as_bytes(), 10, 17));
    assert_eq!((page.at_end, page.generation), (true, 3));
}

#[tokio::test]
async fn the_stream_yields_messages_until_it_ends() {
    let gone = "event: node_gone\ndata: {\"id\": \"00000000-0000-0000-0000-000000000000\"}";
    let body = format!(": alive\n\nevent: event\nid: 17\ndata: {EVENT}\n\n{gone}\n\nevent: reset\ndata: {{}}\n\n");
    let (client, server) = once("200 OK", "content-type: text/event-stream\r\n", &body).await;
    let stream = client.stream(&["events"], Some(16)).await.unwrap();
    let items: Vec<_> = stream.map(|item| item.unwrap()).collect().await;
    assert!(server.await.unwrap().contains("last-event-id: 16"));
    assert!(matches!(&items[0], StreamItem { seq: Some(17), message: StreamMessage::Event(event) } if event.seq == 17));
    let message = StreamMessage::NodeGone(NodeGone { id: uuid::Uuid::nil() });
    assert_eq!(items[1], StreamItem { seq: Some(17), message });
    assert_eq!(items[2], StreamItem { seq: Some(17), message: StreamMessage::Reset });
    assert_eq!(items.len(), 3);
}

#[test]
fn messages_are_the_same_however_the_bytes_arrive() {
    let text = format!("event: future\ndata: 1\n\nevent: event\r\nid: 17\r\ndata: {EVENT}\r\n\r\n");
    let mut parser = Parser::default();
    let items: Vec<_> = text.as_bytes().iter().flat_map(|byte| parser.push(&[*byte]).unwrap()).collect();
    assert_eq!(items, Parser::default().push(text.as_bytes()).unwrap());
    assert_eq!(items.len(), 1);
    assert!(Parser::default().push(b"event: event\ndata: {\n\n").is_err());
}

#[test]
fn a_token_does_not_travel_in_the_clear() {
    for refused in ["http://10.0.0.1:7600", "http://headway.example", "ftp://127.0.0.1", "nonsense"] {
        assert!(matches!(Client::new(refused, "t"), Err(ClientError::Setup { .. })), "{refused}");
    }
    for accepted in ["http://127.0.0.1:7600", "http://[::1]:7600", "http://localhost:7600"] {
        assert!(Client::new(accepted, "t").is_ok(), "{accepted}");
    }
    assert!(matches!(
        Client::with_authority("https://headway.example", "t", b"-----BEGIN CERTIFICATE-----\nx"),
        Err(ClientError::Setup { .. })
    ));
}

#[tokio::test]
async fn a_dry_run_is_asked_for_in_whatever_changes_something_and_tells_what_is_foreseen() {
    static HEARD: std::sync::Mutex<Vec<Option<String>>> = std::sync::Mutex::new(Vec::new());
    let hear: Hear = |foreseen| HEARD.lock().unwrap().push(foreseen.and_then(|one| one.left_out.clone()));
    let body = r#"{"id":"01890000-0000-7000-8000-000000000000","name":"n1","reservations":[],"reservations_cancelled":[],
        "policy_rows":[],"foreseen":{"plan_id":null,"outcome":null,"left_out":"nobody knows"}}"#;
    let (client, server) = once("200 OK", "", body).await;
    client.dry_run(hear).delete_node("n1", None).await.unwrap();
    let request = server.await.unwrap();
    assert!(request.starts_with("DELETE /api/v1/nodes/n1?dry_run=true HTTP/1.1"), "{request}");
    assert_eq!(*HEARD.lock().unwrap(), [Some("nobody knows".to_owned())]);
    let (client, server) = once("200 OK", "", r#"{"items":[]}"#).await;
    client.dry_run(hear).nodes().await.unwrap();
    assert!(server.await.unwrap().starts_with("GET /api/v1/nodes HTTP/1.1"));
    assert_eq!(HEARD.lock().unwrap().len(), 1, "a question changes nothing as it is");
}
