//! What a run under faults came to, for people: counts where all was kept, else the lives of the jobs whose promises were broken.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Duration;

use headway_api::v1::JobStateKind as State;

use crate::history::{Deed, History, Mark, Outcome};
use crate::judge::Breach;

/// Lives that are printed at most; all of them are in the file.
const PRINTED: usize = 3;

/// What was done and what came of it, in one line.
pub fn counts(history: &History) -> String {
    let calls = |deed: Deed| {
        history.calls.iter().filter(|call| call.deed == deed && matches!(call.outcome, Outcome::Done(_))).count()
    };
    let unknown = history.calls.iter().filter(|call| call.outcome == Outcome::Unknown).count();
    let old =
        history.calls.iter().filter(|call| matches!(&call.outcome, Outcome::Done(seen) if !seen.by_leader)).count();
    let marks = |mark: Mark| history.runs.iter().filter(|run| run.mark == mark).count();
    let succeeded = history.stored.iter().filter(|job| job.state == State::Succeeded).count();
    format!(
        "{} submits acknowledged, {} cancels, {} holds, {} releases, {} reads ({old} of standbys), {unknown} calls without an answer; {} workers \
         started, {} worked to their end, {} GPUs shared; {} jobs stored, {succeeded} succeeded",
        calls(Deed::Submit),
        calls(Deed::Cancel),
        calls(Deed::Hold),
        calls(Deed::Release),
        calls(Deed::Read),
        marks(Mark::Start),
        marks(Mark::End),
        marks(Mark::Taken),
        history.stored.len(),
    )
}

/// Panics with the seed and the lives of the jobs concerned, where a promise was broken.
pub fn require_kept(history: &History, breaches: &BTreeSet<Breach>, seed: u64) {
    if breaches.is_empty() {
        return;
    }
    let jobs: Vec<String> =
        breaches.iter().map(|breach| breach.job().to_owned()).collect::<BTreeSet<_>>().into_iter().collect();
    let file = std::env::temp_dir().join(format!("headway-history-{seed}-{}.txt", std::process::id()));
    let written = std::fs::write(&file, format!("{breaches:#?}\n{}", history.of(&jobs)));
    let file: PathBuf = written.map(|()| file).unwrap_or_default();
    let shown = history.of(&jobs[..jobs.len().min(PRINTED)]);
    panic!(
        "seed {seed}: {} promises were broken: {:?}\n{shown}\n(all of them: {})",
        breaches.len(),
        breaches.iter().take(10).collect::<Vec<_>>(),
        file.display()
    );
}

/// Median and longest of some times.
pub fn spread(times: &[Duration]) -> String {
    let mut times = times.to_vec();
    times.sort();
    let at = |place: usize| times.get(place).map_or(0.0, Duration::as_secs_f64);
    let (middle, last) = (at(times.len().saturating_sub(1) / 2), at(times.len().saturating_sub(1)));
    format!("{} times, p50 {middle:.2} s, max {last:.2} s", times.len())
}

/// How busy the machine was in the last minute, in runnable processes.
pub fn load() -> String {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split(' ').next().unwrap_or_default().to_owned()
}
