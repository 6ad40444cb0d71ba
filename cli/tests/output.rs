//! What becomes of output that nobody reads: `headway … | head -1` must end in peace.

use std::path::Path;
use std::process::{Command, Stdio};

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
