//! Who waits for the round that decides about a new job: a person at a terminal, and no script. The scheduler here never plans.
#![allow(clippy::unwrap_used)]

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};

use nix::pty::openpty;
use serde_json::{Value, json};

/// A scheduler that takes every job, leaves it queued, and notes what it is asked.
struct Scheduler {
    url: String,
    asked: Arc<Mutex<Vec<String>>>,
}

impl Scheduler {
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let asked = Arc::<Mutex<Vec<String>>>::default();
        let notes = Arc::clone(&asked);
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                answer(BufReader::new(stream.unwrap()), &notes);
            }
        });
        Self { url, asked }
    }

    /// Submits a job; returns what the scheduler was asked.
    fn submit(&self, options: &[&str], stdout: Stdio) -> Vec<String> {
        let home = tempfile::tempdir().unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_headway"));
        command
            .args(options)
            .args(["submit", "--gpus", "1", "--name", "queued", "--", "true"])
            .env("HOME", home.path())
            .env_remove("XDG_CONFIG_HOME")
            .envs([("HEADWAY_URL", self.url.as_str()), ("HEADWAY_TOKEN", "t")])
            .stdin(Stdio::null())
            .stdout(stdout)
            .stderr(Stdio::piped());
        let ended = command.output().unwrap();
        assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stderr));
        std::mem::take(&mut *self.asked.lock().unwrap())
    }
}

fn queued_job() -> Value {
    let jobs: Vec<Value> = serde_json::from_str(include_str!("jobs.json")).unwrap();
    let mut job = jobs[0].clone();
    for (field, value) in [("state", json!("queued")), ("project", json!("default")), ("nodes", json!([]))] {
        job[field] = value;
    }
    job
}

fn answer(mut stream: BufReader<TcpStream>, asked: &Mutex<Vec<String>>) {
    let (mut first, mut length) = (String::new(), 0);
    stream.read_line(&mut first).unwrap();
    let mut line = String::new();
    while stream.read_line(&mut line).is_ok_and(|read| read > 2) {
        if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
            length = value.trim().parse().unwrap();
        }
        line.clear();
    }
    stream.read_exact(&mut vec![0; length]).unwrap();
    let request = first.trim().trim_end_matches(" HTTP/1.1").to_owned();
    let job = queued_job();
    let (status, body) = match request.as_str() {
        submitted if submitted.starts_with("POST /api/v1/jobs") => ("201 Created", json!({"jobs": [job]})),
        one if one == format!("GET /api/v1/jobs/{}", job["id"].as_str().unwrap()) => ("200 OK", job),
        _ => ("404 Not Found", json!({"title": "Not found", "status": 404, "code": "not_found", "detail": "none"})),
    };
    asked.lock().unwrap().push(request);
    let body = body.to_string();
    let head = format!("content-type: application/json\r\ncontent-length: {}\r\nconnection: close", body.len());
    // A command that has seen enough is gone.
    let _ = write!(stream.get_mut(), "HTTP/1.1 {status}\r\n{head}\r\n\r\n{body}");
}

/// Requests that look whether a round has decided.
fn looks(asked: &[String]) -> usize {
    asked.iter().filter(|request| request.starts_with("GET /api/v1/jobs/")).count()
}

#[test]
fn a_pipe_or_quiet_waits_for_no_round_and_a_terminal_does() {
    let scheduler = Scheduler::start();
    let piped = scheduler.submit(&[], Stdio::piped());
    assert_eq!((piped.len(), looks(&piped)), (1, 0), "{piped:?}");
    let pair = openpty(None, None).unwrap();
    let quiet = scheduler.submit(&["--quiet"], pair.slave.try_clone().unwrap().into());
    assert_eq!((quiet.len(), looks(&quiet)), (1, 0), "{quiet:?}");
    let watched = scheduler.submit(&[], pair.slave.into());
    assert!(looks(&watched) > 1, "{watched:?}");
}
