//! Questions before what cannot be taken back: they are asked at a terminal, and nowhere else.
#![allow(clippy::unwrap_used)]

use std::fs::File;
use std::io::Write as _;
use std::process::{Command, Output, Stdio};

use nix::pty::openpty;

/// Of a command for which nobody answers at the scheduler's address: one that gets so far ends with 6.
fn headway(arguments: &[&str], stdin: Stdio) -> Output {
    let home = tempfile::tempdir().unwrap();
    Command::new(env!("CARGO_BIN_EXE_headway"))
        .args(arguments)
        .env("HOME", home.path())
        .env_remove("XDG_CONFIG_HOME")
        .envs([("HEADWAY_URL", "http://127.0.0.1:1"), ("HEADWAY_TOKEN", "t")])
        .stdin(stdin)
        .output()
        .unwrap()
}

/// At a terminal at which this is typed.
fn typed(arguments: &[&str], keys: &str) -> (Option<i32>, String) {
    let pair = openpty(None, None).unwrap();
    File::from(pair.master.try_clone().unwrap()).write_all(keys.as_bytes()).unwrap();
    let ended = headway(arguments, pair.slave.into());
    (ended.status.code(), String::from_utf8(ended.stderr).unwrap())
}

const DELETE: [&str; 3] = ["node", "delete", "node-7"];

#[test]
fn a_person_is_asked_and_whatever_is_no_yes_does_nothing() {
    for no in ["n\n", "\n", "\u{4}"] {
        let (code, said) = typed(&DELETE, no);
        assert_eq!(code, Some(1), "{said}");
        assert_eq!(said, "forget node node-7 for good? [y/N] headway: nothing was done\n");
    }
    let (code, said) = typed(&DELETE, "y\n");
    assert!(code == Some(6) && said.starts_with("forget node node-7 for good?"), "{said}");
}

#[test]
fn nobody_is_asked_who_has_said_yes_or_only_looks() {
    for more in ["--yes", "--dry-run"] {
        let (code, said) = typed(&[&DELETE[..], &[more]].concat(), "");
        assert!(code == Some(6) && !said.contains("[y/N]"), "{said}");
    }
}

#[test]
fn scripts_go_on_as_they_did() {
    for arguments in
        [&DELETE[..], &["node", "lost", "node-7"], &["node", "revoke", "node-7"], &["project", "delete", "nlp"]]
    {
        let ended = headway(arguments, Stdio::null());
        let said = String::from_utf8(ended.stderr).unwrap();
        assert!(ended.status.code() == Some(6) && !said.contains("[y/N]"), "{arguments:?}: {said}");
    }
}
