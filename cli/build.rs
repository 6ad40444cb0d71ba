//! Names the commit that the binary is built from, for `--version`. Only this crate depends on it, so that a commit
//! rebuilds nothing else; and it is the commit's own date, so that a commit builds the same binary at any time.

use std::path::Path;
use std::process::Command;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-env=HEADWAY_BUILD={}", commit().unwrap_or_else(|| "unknown commit".into()));
}

/// "abc1234, 2026-11-22"; nothing outside a checkout, as from a tarball.
fn commit() -> Option<String> {
    // A tarball may have been unpacked within some other repository.
    if git(&["rev-parse", "--show-prefix"])? != "cli/" {
        return None;
    }
    // A commit moves the branch, a checkout moves HEAD. A file that is not there would have cargo ask each time.
    let branch = git(&["symbolic-ref", "--quiet", "HEAD"]);
    for name in ["HEAD", "logs/HEAD", "packed-refs"].into_iter().chain(branch.as_deref()) {
        let path = git(&["rev-parse", "--git-path", name])?;
        if Path::new(&path).exists() {
            println!("cargo::rerun-if-changed={path}");
        }
    }
    let (hash, date) =
        git(&["log", "-1", "--format=%H %cs"])?.split_once(' ').map(|(h, d)| (h.to_owned(), d.to_owned()))?;
    Some(format!("{}, {date}", hash.get(..7)?))
}

fn git(arguments: &[&str]) -> Option<String> {
    let output = Command::new("git").args(arguments).output().ok().filter(|output| output.status.success())?;
    Some(String::from_utf8(output.stdout).ok()?.trim().to_owned())
}
