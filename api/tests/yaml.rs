//! Texts made to cost whoever reads them: each is refused, soon and in little memory.
#![allow(clippy::unwrap_used)]

use headway_api::yaml::documents;
use nix::time::{ClockId, clock_gettime};

/// A text's error, after it was read within 50 MiB and this much processor time.
fn refused(text: &str, milliseconds: u128) -> String {
    let cpu = || std::time::Duration::from(clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).unwrap());
    let (before, began) = (peak_mib(), cpu());
    let error = documents(text).unwrap_err().to_string();
    let (took, peak) = ((cpu() - began).as_millis(), peak_mib());
    println!("{} bytes: {took} ms, {before} MiB before, {peak} MiB at the peak: {error}", text.len());
    assert!(took < milliseconds, "{took} ms");
    assert!(peak - before < 50, "{before} MiB, then {peak} MiB");
    error
}

/// The most memory this process ever held.
fn peak_mib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() >> 10
}

#[test]
fn a_billion_laughs() {
    let mut text = "a0: &a0 [lol, lol, lol, lol, lol, lol, lol, lol, lol]\n".to_owned();
    for level in 1..10 {
        let below = vec![format!("*a{}", level - 1); 9].join(", ");
        text.push_str(&format!("a{level}: &a{level} [{below}]\n"));
    }
    assert!(refused(&text, 1_000).contains("aliases stand for more than 50000 nodes"));
}

#[test]
fn nested_merge_keys() {
    let mut text = "a0: &a0 {k: v}\n".to_owned();
    for level in 1.. {
        let below = vec![format!("*a{}", level - 1); 9].join(", ");
        text.push_str(&format!("a{level}: &a{level} {{<<: [{below}], k{level}: v}}\n"));
        if text.len() >= 68_000 {
            break;
        }
    }
    let error = refused(&text, 50);
    assert!(error.contains("line 2") && error.contains("merge keys"), "{error}");
}

#[test]
fn one_long_word_said_again_and_again() {
    let aliases = vec!["*long"; 5_000].join(", ");
    refused(&format!("long: &long {}\nagain: [{aliases}]\n", "x".repeat(1 << 20)), 1_000);
}

#[test]
fn nests_within_nests() {
    for (open, close) in [("[", "]"), ("{a: ", "}"), ("- ", ""), ("? ", "")] {
        let error = refused(&format!("{}1{}", open.repeat(100_000), close.repeat(100_000)), 1_000);
        assert!(error.contains("nested deeper than 32"), "{error}");
    }
    let steps: String = (0..1_000).map(|depth| format!("{}a:\n", " ".repeat(depth))).collect();
    refused(&steps, 1_000);
}

#[test]
fn more_nodes_than_anybody_needs() {
    refused(&format!("[{}]", vec!["1"; 400_000].join(",")), 4_000);
    refused(&"a\n---\n".repeat(300_000), 4_000);
}

#[test]
fn a_text_that_is_too_long() {
    assert!(refused(&"# nothing\n".repeat(300_000), 10).contains("3000000 bytes"));
}

#[test]
fn anchors_within_anchors() {
    let deep: String = (0..30).map(|level| format!("&a{level} [")).collect();
    let text = format!("{deep}{}{}", vec!["word"; 150_000].join(","), "]".repeat(30));
    refused(&text, 4_000);
}
