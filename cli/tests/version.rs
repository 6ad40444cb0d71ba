//! `headway --version` names the commit it was built from.

use std::process::Command;

fn told(program: &str, arguments: &[&str]) -> Option<String> {
    let output = Command::new(program).args(arguments).output().ok().filter(|output| output.status.success())?;
    Some(String::from_utf8(output.stdout).ok()?.trim().to_owned())
}

#[test]
fn the_version_names_the_commit_and_its_date() {
    let version = told(env!("CARGO_BIN_EXE_headway"), &["--version"]).expect("it answers");
    let inside = told("git", &["rev-parse", "--show-prefix"]).is_some_and(|prefix| prefix == "cli/");
    let commit = told("git", &["log", "-1", "--format=%H %cs"]).filter(|_| inside).map_or_else(
        || "unknown commit".to_owned(),
        |line| format!("{}, {}", &line[..7], line.split(' ').next_back().unwrap_or_default()),
    );
    assert_eq!(version, format!("headway {} ({commit})", env!("CARGO_PKG_VERSION")));
}
