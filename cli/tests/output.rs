//! What is written for whom: colours for a terminal, text for a pipe, and nothing where nobody reads: `headway … | head -1` must end in peace.

use std::fs::File;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpListener;
use std::path::Path;
use std::process::{Command, Stdio};

use nix::pty::openpty;

/// Ends the pipe before anything is written.
fn unread(arguments: &[&str]) {
    let mut child = Command::new(env!("CARGO_BIN_EXE_headway"))
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary starts");
    drop(child.stdout.take());
    let ended = child.wait_with_output().expect("it ends");
    let told = String::from_utf8_lossy(&ended.stderr);
    assert!(ended.status.success() && told.is_empty(), "{arguments:?}: {} {told}", ended.status);
}

#[test]
fn a_reader_that_goes_away_is_no_failure() {
    let round = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/plan-solve/round.json");
    let round = round.to_str().expect("UTF-8");
    unread(&["completion", "bash"]);
    for output in ["name", "table", "json", "yaml"] {
        unread(&["plan", "solve", round, "-o", output]);
    }
    unread(&["model", "hardware"]);
}

/// A scheduler that knows one job and tells of it whatever it is asked, until the process ends.
fn scheduler() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let url = format!("http://{}", listener.local_addr().expect("its address"));
    let jobs: Vec<serde_json::Value> = serde_json::from_str(include_str!("jobs.json")).expect("jobs");
    let totals = serde_json::json!({"jobs": 1, "by_state": {"running": 1}, "counted_at": "2026-01-01T00:00:00Z"});
    let body = serde_json::json!({"items": [jobs[0]], "next_cursor": null, "totals": totals}).to_string();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = BufReader::new(stream.expect("a connection"));
            let mut line = String::new();
            while stream.read_line(&mut line).is_ok_and(|read| read > 2) {
                line.clear();
            }
            let head = format!("content-type: application/json\r\ncontent-length: {}\r\nconnection: close", body.len());
            // Whoever asked may be gone.
            let _ = write!(stream.get_mut(), "HTTP/1.1 200 OK\r\n{head}\r\n\r\n{body}");
        }
    });
    url
}

fn ps(arguments: &[&str], stdout: Stdio) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_headway"));
    command.arg("ps").args(arguments).envs([
        ("HEADWAY_URL", &*scheduler()),
        ("HEADWAY_TOKEN", "t"),
        ("HOME", "/nowhere"),
    ]);
    command
        .env_remove("XDG_CONFIG_HOME")
        .env_remove("NO_COLOR")
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .stdout(stdout);
    command
}

/// What is written to a terminal.
fn shown(no_color: Option<&str>) -> String {
    let pair = openpty(None, None).expect("a terminal");
    let mut command = ps(&[], pair.slave.into());
    command.envs(no_color.map(|value| ("NO_COLOR", value)));
    assert!(command.status().expect("it ends").success());
    drop(command);
    let (mut terminal, mut shown) = (File::from(pair.master), Vec::new());
    // A terminal that nobody has open any more ends with an error.
    let _ = terminal.read_to_end(&mut shown);
    String::from_utf8(shown).expect("UTF-8")
}

#[test]
fn a_terminal_has_colours_unless_it_shall_have_none() {
    for (no_color, coloured) in [(None, true), (Some(""), true), (Some("1"), false)] {
        let shown = shown(no_color);
        assert!(shown.contains("running"), "{shown}");
        assert_eq!(shown.contains('\x1b'), coloured, "{no_color:?}: {shown:?}");
    }
}

#[test]
fn what_is_watched_through_a_pipe_is_text_alone() {
    let mut child = ps(&["--watch"], Stdio::piped()).spawn().expect("the binary starts");
    let mut lines = BufReader::new(child.stdout.take().expect("a pipe")).lines();
    let mut next = || lines.next().expect("it goes on").expect("UTF-8");
    let (header, row) = (next(), next());
    assert!(header.starts_with("ID") && row.contains("running") && !row.contains('\x1b'), "{header}\n{row}");
    assert_eq!((next(), next()), (String::new(), header), "again, after an empty line");
    child.kill().expect("it runs");
    child.wait().expect("it ends");
}
