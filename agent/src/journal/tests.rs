#![allow(clippy::unwrap_used)]

use std::path::Path;

use headway_node::NodeEvent;
use headway_types::{AgentCommand, BootId, Generation, JobId, NodeId, Seconds, Serial, StopMode, Term, Timestamp};
use tempfile::TempDir;

use super::*;

const BOOT: &str = "b";

fn fresh() -> Ledger {
    Ledger::new(NodeId(uuid::Uuid::from_u128(1)), BootId(BOOT.into()))
}

fn open(dir: &TempDir) -> Result<Journal, AgentError> {
    let (files, _lock) = Files::open(dir.path(), false)?;
    Journal::open(files, fresh())
}

/// The ledger after it heard of one more job.
fn heard(mut ledger: Ledger, job: u64) -> Ledger {
    let command = AgentCommand::Stop {
        job: JobId(uuid::Uuid::from_u128(u128::from(job))),
        generation: Generation(1),
        mode: StopMode::Kill,
        grace: Seconds(0.0),
    };
    let event = NodeEvent::Command { term: Term(1), serial: Some(Serial(job)), command };
    assert!(ledger.handle(Timestamp(0), event).persist);
    ledger
}

/// A directory whose ledger has heard of so many jobs, one at a time.
fn stored(jobs: u64) -> (TempDir, Ledger) {
    let dir = tempfile::tempdir().unwrap();
    let mut journal = open(&dir).unwrap();
    for job in 1..=jobs {
        journal.store(heard(journal.ledger().clone(), job)).unwrap();
    }
    let ledger = journal.ledger().clone();
    (dir, ledger)
}

fn file(dir: &TempDir) -> std::path::PathBuf {
    dir.path().join("ledger.json")
}

fn length(path: &Path) -> u64 {
    fs::metadata(path).unwrap().len()
}

#[test]
fn a_stored_ledger_comes_back() {
    let (dir, ledger) = stored(5);
    assert_eq!(*open(&dir).unwrap().ledger(), ledger);
    assert_eq!(*open(&tempfile::tempdir().unwrap()).unwrap().ledger(), fresh());
}

#[test]
fn what_is_written_for_an_event_does_not_grow_with_the_history() {
    let cost = |jobs| {
        let dir = tempfile::tempdir().unwrap();
        let mut journal = open(&dir).unwrap();
        let ledger = (1..=jobs).fold(fresh(), heard);
        journal.store(ledger.clone()).unwrap();
        let before = length(&file(&dir));
        journal.store(heard(ledger, jobs + 1)).unwrap();
        length(&file(&dir)) - before
    };
    let (short, long) = (cost(1), cost(900));
    println!("{short} bytes after 1 job, {long} after 900");
    assert!(long < short + 40 && long < 500, "{short} bytes after 1 job, {long} after 900");
}

#[test]
fn a_file_of_changes_is_written_anew_before_it_grows_large() {
    let (dir, ledger) = stored(1_200);
    assert!(length(&file(&dir)) < 3 * LEAST_CHANGES, "{}", length(&file(&dir)));
    assert_eq!(*open(&dir).unwrap().ledger(), ledger);
}

#[test]
fn a_crash_within_a_write_leaves_the_ledger_as_it_was_before_it() {
    let dir = tempfile::tempdir().unwrap();
    let mut journal = open(&dir).unwrap();
    let before = (1..=3).fold(fresh(), heard);
    journal.store(before.clone()).unwrap();
    let whole = fs::read(file(&dir)).unwrap();
    journal.store(heard(before.clone(), 4)).unwrap();
    let longer = fs::read(file(&dir)).unwrap();
    for end in whole.len()..longer.len() {
        fs::write(file(&dir), &longer[..end]).unwrap();
        let mut journal = open(&dir).unwrap();
        assert_eq!(*journal.ledger(), before, "cut after {end} bytes");
        journal.store(heard(before.clone(), 9)).unwrap();
        assert_eq!(*open(&dir).unwrap().ledger(), heard(before.clone(), 9), "cut after {end} bytes");
    }
    // The file has its new length, but not all blocks of it were written.
    let mut blank = longer.clone();
    blank[whole.len() + 5..].fill(0);
    fs::write(file(&dir), &blank).unwrap();
    assert_eq!(*open(&dir).unwrap().ledger(), before);
}

fn damaged(dir: &TempDir) -> Vec<Vec<u8>> {
    let entries = fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().path());
    let kept = entries.filter(|path| path.display().to_string().contains("/ledger.damaged-"));
    kept.map(|path| fs::read(path).unwrap()).collect()
}

#[test]
fn damage_before_the_last_line_leaves_what_came_before_it_and_keeps_the_file() {
    let (dir, _) = stored(4);
    let good = fs::read(file(&dir)).unwrap();
    let ends: Vec<usize> = good.iter().enumerate().filter(|(_, byte)| **byte == b'\n').map(|(at, _)| at).collect();
    for (line, end) in ends.iter().enumerate().take(ends.len() - 1).skip(1) {
        let (dir, _) = stored(4);
        let mut bad = good.clone();
        bad[end - 7] ^= 1;
        fs::write(file(&dir), &bad).unwrap();
        let before = (1..=line as u64).fold(fresh(), heard);
        assert_eq!(*open(&dir).unwrap().ledger(), before);
        assert_eq!(damaged(&dir), [bad]);
        // It is on disk again, whole, though nothing has happened since.
        assert_eq!(*open(&dir).unwrap().ledger(), before);
        assert_eq!(damaged(&dir).len(), 1);
    }
}

#[test]
fn a_ledger_of_which_nothing_can_be_read_gives_way_to_the_generation_before_it() {
    let whole = |jobs| (1..=jobs).fold(fresh(), heard);
    for bad in [&b""[..], b"[\"00000000\",", b"\0\0\0\0", b"{\"node\":"] {
        let (dir, ledger) = stored(3);
        // Each agent begins a file of its own.
        open(&dir).unwrap().store(heard(ledger, 4)).unwrap();
        fs::write(file(&dir), bad).unwrap();
        assert_eq!(*open(&dir).unwrap().ledger(), whole(3));
        assert_eq!(damaged(&dir), [bad]);

        let (dir, _) = stored(3);
        fs::write(file(&dir), bad).unwrap();
        assert_eq!(*open(&dir).unwrap().ledger(), fresh(), "there is no other generation");

        let (dir, ledger) = stored(3);
        open(&dir).unwrap().store(heard(ledger, 4)).unwrap();
        fs::write(dir.path().join("ledger.former.json"), b"neither").unwrap();
        fs::write(file(&dir), bad).unwrap();
        assert_eq!(*open(&dir).unwrap().ledger(), fresh(), "both are damaged");
        assert_eq!(*open(&dir).unwrap().ledger(), fresh());
    }
}

#[test]
fn a_damaged_ledger_is_a_condition_of_the_node_until_somebody_has_removed_it() {
    let (dir, _) = stored(3);
    let (files, lock) = Files::open(dir.path(), false).unwrap();
    assert_eq!(condition(&files), None);
    drop(lock);
    fs::write(file(&dir), b"").unwrap();
    open(&dir).unwrap();
    let told = condition(&files).unwrap();
    let kept = told.message.split(' ').find(|word| word.contains("ledger.damaged-")).unwrap();
    fs::remove_file(kept).unwrap();
    assert_eq!(condition(&files), None);
}

#[test]
fn the_ledger_of_an_older_agent_is_taken_up() {
    let dir = tempfile::tempdir().unwrap();
    let before = r#"{"node":"00000000-0000-0000-0000-000000000001","boot":"b","term":1,
        "highest":{"00000000-0000-0000-0000-000000000007":3},"groups":{}}"#;
    fs::write(file(&dir), before).unwrap();
    let mut journal = open(&dir).unwrap();
    let ledger = journal.ledger().clone();
    assert_eq!(ledger, serde_json::from_str(before).unwrap());
    journal.store(heard(ledger.clone(), 8)).unwrap();
    assert_eq!(*open(&dir).unwrap().ledger(), heard(ledger, 8));
}
