//! Decides of a history whether what was promised was kept. Pure: it looks at nothing but the history.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use headway_api::v1::JobStateKind as State;

use crate::history::{Call, Deed, History, Mark, Moment, Outcome, Seen};

/// What of a promise was broken, by the job's name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Breach {
    /// A submit was acknowledged, and there is no such job.
    Lost { job: String },
    /// There are several jobs of one key.
    Doubled { job: String },
    /// A generation began after the cancel was acknowledged, or a worker so long after.
    RanThoughCancelled { job: String },
    /// A worker started where another lived.
    GpuShared { job: String, gpu: String },
    /// A worker started after somebody was told that the job has succeeded.
    RanAgain { job: String },
    /// A worker started after one had worked to its end, which nobody need have heard: its node was given up.
    RanAgainUnheard { job: String },
    /// The leader showed a client the job as it was before what it had acknowledged.
    Stale { job: String },
    /// What has ended went on, or a generation came back.
    IllegalOrder { job: String },
}

impl Breach {
    pub fn job(&self) -> &str {
        match self {
            Self::Lost { job }
            | Self::Doubled { job }
            | Self::RanThoughCancelled { job }
            | Self::GpuShared { job, .. }
            | Self::RanAgain { job }
            | Self::RanAgainUnheard { job }
            | Self::Stale { job }
            | Self::IllegalOrder { job } => job,
        }
    }
}

/// `in_flight`: how long a worker's start that was commanded before a cancel may be on its way.
pub fn judge(history: &History, in_flight: Duration) -> BTreeSet<Breach> {
    let mut breaches = BTreeSet::new();
    let names = history.names();
    let stored: BTreeSet<&str> = history.stored.iter().map(|job| job.id.as_str()).collect();
    let mut ids: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for (id, name) in &names {
        ids.entry(name).or_default().insert(id);
    }
    for (name, ids) in &ids {
        if ids.len() > 1 {
            breaches.insert(Breach::Doubled { job: (*name).into() });
        }
    }
    let mut by_job: BTreeMap<&str, Vec<&Call>> = BTreeMap::new();
    for call in &history.calls {
        by_job.entry(&call.job).or_default().push(call);
    }
    for (name, mut calls) in by_job {
        calls.sort_by_key(|call| call.completed);
        let job = name.to_owned();
        if calls.iter().filter_map(|call| acknowledged(call)).any(|seen| !stored.contains(seen.id.as_str())) {
            breaches.insert(Breach::Lost { job: job.clone() });
        }
        if calls.iter().any(|call| is_stale(call, &calls) || forgets_a_hold(call, &calls)) {
            breaches.insert(Breach::Stale { job: job.clone() });
        }
        if calls.iter().any(|call| goes_back(call, &calls)) || ends_otherwise(history, &calls) {
            breaches.insert(Breach::IllegalOrder { job });
        }
    }
    judge_runs(history, &names, in_flight, &mut breaches);
    breaches
}

fn judge_runs(history: &History, names: &BTreeMap<&str, &str>, in_flight: Duration, breaches: &mut BTreeSet<Breach>) {
    let mut ended: BTreeMap<&str, Moment> = BTreeMap::new();
    for run in history.runs.iter().filter(|run| run.mark == Mark::End) {
        let first = ended.entry(run.job.as_str()).or_insert(run.at);
        *first = (*first).min(run.at);
    }
    let (mut cancelled, mut succeeded) = (BTreeMap::new(), BTreeMap::new());
    for call in &history.calls {
        let Outcome::Done(seen) = &call.outcome else { continue };
        if call.deed == Deed::Cancel {
            cancelled.entry(seen.id.as_str()).or_insert((call.completed, seen.generation));
        }
        if seen.state == State::Succeeded {
            let first = succeeded.entry(seen.id.as_str()).or_insert(call.completed);
            *first = call.completed.min(*first);
        }
    }
    for run in &history.runs {
        let id = run.job.as_str();
        let job = names.get(id).copied().unwrap_or(id).to_owned();
        match run.mark {
            Mark::End => {}
            Mark::Taken => drop(breaches.insert(Breach::GpuShared { job, gpu: run.gpu.clone() })),
            Mark::Start => {
                if let Some((at, generation)) = cancelled.get(id)
                    && (run.generation > *generation || run.at.0 > at.0 + in_flight)
                {
                    breaches.insert(Breach::RanThoughCancelled { job: job.clone() });
                }
                if succeeded.get(id).is_some_and(|at| run.at > *at) {
                    breaches.insert(Breach::RanAgain { job: job.clone() });
                }
                if ended.get(id).is_some_and(|at| run.at > *at) {
                    breaches.insert(Breach::RanAgainUnheard { job });
                }
            }
        }
    }
}

/// What the call promises.
fn acknowledged(call: &Call) -> Option<&Seen> {
    match &call.outcome {
        Outcome::Done(seen) if call.deed != Deed::Read => Some(seen),
        Outcome::Done(_) | Outcome::Refused(_) | Outcome::Unknown => None,
    }
}

/// What the leader said of the job.
fn told(call: &Call) -> Option<&Seen> {
    match &call.outcome {
        Outcome::Done(seen) => Some(seen).filter(|seen| seen.by_leader),
        Outcome::Refused(_) | Outcome::Unknown => None,
    }
}

/// Whether the call does not know of what the job's calls were promised before it began.
fn is_stale(call: &Call, calls: &[&Call]) -> bool {
    let mut before = calls.iter().filter(|one| one.completed < call.invoked && acknowledged(one).is_some());
    match &call.outcome {
        Outcome::Refused(code) => code == "not_found" && before.next().is_some(),
        Outcome::Done(seen) if seen.by_leader => {
            let cancelled = before.any(|one| one.deed == Deed::Cancel);
            cancelled && !(seen.state.is_final() || seen.state == State::Stopping)
        }
        Outcome::Done(_) | Outcome::Unknown => false,
    }
}

/// Whether a job that was held, and that nobody may have released since, is shown as one that may run.
fn forgets_a_hold(call: &Call, calls: &[&Call]) -> bool {
    let Some(now) = told(call).filter(|_| call.deed == Deed::Read) else { return false };
    let holds = calls.iter().filter(|one| one.deed == Deed::Hold && acknowledged(one).is_some());
    let Some(held) = holds.filter(|one| one.completed < call.invoked).max_by_key(|one| one.completed) else {
        return false;
    };
    let released = calls.iter().any(|one| {
        one.deed == Deed::Release
            && one.invoked < call.completed
            && (one.completed > held.invoked || one.outcome == Outcome::Unknown)
    });
    !released && !now.state.is_final() && !matches!(now.state, State::Held | State::Stopping)
}

/// Whether the call shows an earlier point of the job's life than one did that had completed before it began.
fn goes_back(call: &Call, calls: &[&Call]) -> bool {
    let Some(now) = told(call) else { return false };
    calls
        .iter()
        .filter(|one| one.completed < call.invoked)
        .filter_map(|one| told(one))
        .any(|before| now.generation < before.generation || (before.state.is_final() && before.state != now.state))
}

/// Whether a state that is final for good was told, and another is found.
fn ends_otherwise(history: &History, calls: &[&Call]) -> bool {
    let finals: Vec<&Seen> = calls.iter().filter_map(|call| told(call)).filter(|seen| seen.state.is_final()).collect();
    let found = |seen: &Seen| history.stored.iter().find(|job| job.id == seen.id).map(|job| job.state);
    finals.into_iter().any(|seen| found(seen).is_some_and(|state| state != seen.state))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::{Run, Stored};

    const IN_FLIGHT: Duration = Duration::from_secs(5);

    fn at(seconds: u64) -> Moment {
        Moment(Duration::from_secs(seconds))
    }

    fn seen(state: State, generation: u64) -> Outcome {
        Outcome::Done(Seen { id: "id-a".into(), state, generation, by_leader: true })
    }

    /// A call of a second.
    fn call(deed: Deed, invoked: u64, outcome: Outcome) -> Call {
        Call { client: 0, job: "a".into(), deed, invoked: at(invoked), completed: at(invoked + 1), outcome }
    }

    fn run(mark: Mark, generation: u64, second: u64) -> Run {
        Run { mark, job: "id-a".into(), generation, gpu: "node-1".into(), at: at(second) }
    }

    fn stored(id: &str, state: State) -> Stored {
        Stored { id: id.into(), name: "a".into(), state }
    }

    fn breaches(calls: &[Call], runs: &[Run], stored: &[Stored]) -> Vec<Breach> {
        let history = History { calls: calls.to_vec(), runs: runs.to_vec(), stored: stored.to_vec() };
        judge(&history, IN_FLIGHT).into_iter().collect()
    }

    fn job() -> String {
        "a".into()
    }

    #[test]
    fn a_life_as_promised_breaks_nothing() {
        let calls = [
            call(Deed::Submit, 0, seen(State::Queued, 0)),
            call(Deed::Hold, 2, Outcome::Unknown),
            call(Deed::Read, 4, seen(State::Running, 1)),
            call(Deed::Read, 20, seen(State::Succeeded, 2)),
            call(Deed::Cancel, 30, Outcome::Refused("already_ended".into())),
        ];
        // The first worker was killed.
        let runs = [run(Mark::Start, 1, 4), run(Mark::Start, 2, 8), run(Mark::End, 2, 12)];
        assert_eq!(breaches(&calls, &runs, &[stored("id-a", State::Succeeded)]), []);
        let unanswered = [call(Deed::Submit, 0, Outcome::Unknown)];
        assert_eq!(breaches(&unanswered, &[], &[]), [], "what nobody was promised may be absent");
        assert_eq!(breaches(&unanswered, &[], &[stored("id-a", State::Queued)]), [], "or there");
    }

    #[test]
    fn what_is_lost_or_doubled_is_found() {
        let submitted = [call(Deed::Submit, 0, seen(State::Queued, 0))];
        assert_eq!(breaches(&submitted, &[], &[]), [Breach::Lost { job: job() }]);
        let two = [stored("id-a", State::Queued), stored("id-b", State::Queued)];
        assert_eq!(breaches(&submitted, &[], &two), [Breach::Doubled { job: job() }]);
        let unanswered = [call(Deed::Submit, 0, Outcome::Unknown)];
        assert_eq!(breaches(&unanswered, &[], &two), [Breach::Doubled { job: job() }]);
        let other = Outcome::Done(Seen { id: "id-b".into(), state: State::Queued, generation: 0, by_leader: true });
        let twice = [submitted[0].clone(), call(Deed::Submit, 3, other)];
        assert_eq!(
            breaches(&twice, &[], &[stored("id-a", State::Queued)]),
            [Breach::Lost { job: job() }, Breach::Doubled { job: job() }]
        );
    }

    #[test]
    fn a_cancelled_job_that_runs_is_found() {
        let calls = [call(Deed::Submit, 0, seen(State::Queued, 0)), call(Deed::Cancel, 5, seen(State::Stopping, 1))];
        let end = [stored("id-a", State::Cancelled)];
        assert_eq!(breaches(&calls, &[run(Mark::Start, 1, 7)], &end), [], "it was on its way");
        let found = [Breach::RanThoughCancelled { job: job() }];
        assert_eq!(breaches(&calls, &[run(Mark::Start, 2, 7)], &end), found);
        assert_eq!(breaches(&calls, &[run(Mark::Start, 1, 12)], &end), found);
    }

    #[test]
    fn a_gpu_with_two_and_a_job_that_runs_again_are_found() {
        let calls = [call(Deed::Submit, 0, seen(State::Queued, 0)), call(Deed::Read, 5, seen(State::Succeeded, 1))];
        let end = [stored("id-a", State::Succeeded)];
        let whole = [run(Mark::Start, 1, 2), run(Mark::End, 1, 4)];
        assert_eq!(breaches(&calls, &whole, &end), []);
        let taken = [run(Mark::Taken, 1, 2), whole[0].clone(), whole[1].clone()];
        assert_eq!(breaches(&calls, &taken, &end), [Breach::GpuShared { job: job(), gpu: "node-1".into() }]);
        let again = [whole[0].clone(), whole[1].clone(), run(Mark::Start, 2, 9)];
        assert_eq!(
            breaches(&calls, &again, &end),
            [Breach::RanAgain { job: job() }, Breach::RanAgainUnheard { job: job() }]
        );
        assert_eq!(breaches(&calls[..1], &again, &end), [Breach::RanAgainUnheard { job: job() }]);
    }

    #[test]
    fn a_hold_that_is_forgotten_is_found_and_one_that_was_released_is_none() {
        let submitted = call(Deed::Submit, 0, seen(State::Queued, 0));
        let held = call(Deed::Hold, 2, seen(State::Held, 0));
        let end = [stored("id-a", State::Queued)];
        let shown = call(Deed::Read, 8, seen(State::Queued, 0));
        assert_eq!(
            breaches(&[submitted.clone(), held.clone(), shown.clone()], &[], &end),
            [Breach::Stale { job: job() }]
        );
        for released in [seen(State::Queued, 0), Outcome::Unknown] {
            let released = call(Deed::Release, 5, released);
            assert_eq!(breaches(&[submitted.clone(), held.clone(), released, shown.clone()], &[], &end), []);
        }
        let still = call(Deed::Read, 8, seen(State::Held, 0));
        assert_eq!(breaches(&[submitted, held, still], &[], &end), []);
    }

    #[test]
    fn a_leader_that_forgets_is_found_and_a_standby_may_be_late() {
        let submitted = call(Deed::Submit, 0, seen(State::Queued, 0));
        let end = [stored("id-a", State::Cancelled)];
        let gone = call(Deed::Read, 5, Outcome::Refused("not_found".into()));
        assert_eq!(breaches(&[submitted.clone(), gone], &[], &end), [Breach::Stale { job: job() }]);
        let cancelled = call(Deed::Cancel, 5, seen(State::Cancelled, 0));
        let at_once = call(Deed::Read, 5, seen(State::Queued, 0));
        assert_eq!(breaches(&[submitted.clone(), cancelled.clone(), at_once], &[], &end), []);
        let late = call(Deed::Read, 9, seen(State::Queued, 0));
        assert_eq!(
            breaches(&[submitted.clone(), cancelled.clone(), late], &[], &end),
            [Breach::Stale { job: job() }, Breach::IllegalOrder { job: job() }]
        );
        let of_standby =
            Outcome::Done(Seen { id: "id-a".into(), state: State::Queued, generation: 0, by_leader: false });
        assert_eq!(breaches(&[submitted, cancelled, call(Deed::Read, 9, of_standby)], &[], &end), []);
    }

    #[test]
    fn a_life_that_goes_back_is_found() {
        let found = [Breach::IllegalOrder { job: job() }];
        let submitted = call(Deed::Submit, 0, seen(State::Queued, 0));
        let back = [
            submitted.clone(),
            call(Deed::Read, 3, seen(State::Running, 2)),
            call(Deed::Read, 6, seen(State::Running, 1)),
        ];
        assert_eq!(breaches(&back, &[], &[stored("id-a", State::Running)]), found);
        let risen = [
            submitted.clone(),
            call(Deed::Read, 3, seen(State::Failed, 1)),
            call(Deed::Read, 6, seen(State::Queued, 1)),
        ];
        assert_eq!(breaches(&risen, &[], &[stored("id-a", State::Failed)]), found);
        let otherwise = [submitted, call(Deed::Read, 3, seen(State::Failed, 1))];
        assert_eq!(breaches(&otherwise, &[], &[stored("id-a", State::Queued)]), found);
    }
}
