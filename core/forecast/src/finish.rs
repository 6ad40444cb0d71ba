//! When jobs will be done if nothing changes: present goodput held constant. It sees neither arrivals nor moves.

use std::collections::BTreeMap;

use headway_types::{JobId, Timestamp, Tokens, TokensPerSecond};

/// What is needed to say when a job is done.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Finish {
    /// Reference tokens still to do.
    pub remaining: Tokens,
    /// Present goodput.
    pub goodput: TokensPerSecond,
}

impl Finish {
    /// The predicted end; `None` where the job makes no progress.
    #[must_use]
    pub fn at(&self, now: Timestamp) -> Option<Timestamp> {
        let left = self.remaining / self.goodput;
        (self.goodput.0 > 0.0 && left.0.is_finite()).then(|| now + left)
    }
}

/// Predicted ends of the jobs that make progress.
#[must_use]
pub fn finishes(now: Timestamp, jobs: &BTreeMap<JobId, Finish>) -> BTreeMap<JobId, Timestamp> {
    jobs.iter().filter_map(|(job, finish)| Some((*job, finish.at(now)?))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp(1_000_000);

    fn finish(remaining: f64, goodput: f64) -> Finish {
        Finish { remaining: Tokens(remaining), goodput: TokensPerSecond(goodput) }
    }

    #[test]
    fn a_job_ends_when_its_tokens_are_done() {
        assert_eq!(finish(600.0, 100.0).at(NOW), Some(Timestamp(7_000_000)));
        assert_eq!(finish(0.0, 100.0).at(NOW), Some(NOW));
    }

    #[test]
    fn a_job_without_progress_has_no_end() {
        assert_eq!(finish(600.0, 0.0).at(NOW), None);
        assert_eq!(finish(600.0, f64::NAN).at(NOW), None);
    }
}
