//! What a decision expected of a job's goodput, and what came of it.

use headway_goodput::parameters;
use headway_types::spec::Work;
use headway_types::{Generation, GpuCount, GpuType, JobId, JobSpec, Seconds, Timestamp, Tokens, TokensPerSecond};
use serde::{Deserialize, Serialize};

/// What the model said of a job's goodput when it was decided what the job gets: a grant, or another batch or layout in place. It stands in the row of the
/// allocation until another decision takes its place or the generation ends.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Expectation {
    /// When it was decided.
    pub at: Timestamp,
    /// Which configuration of the generation it is about.
    pub revision: u64,
    /// Reference tokens per second.
    pub goodput: TokensPerSecond,
    /// First and last decile; absent where nobody says how sure it is.
    #[serde(default)]
    pub band: Option<(TokensPerSecond, TokensPerSecond)>,
    /// From when on, and from which progress, it is measured; absent until the generation trains.
    #[serde(default)]
    pub measured_from: Option<(Timestamp, Tokens)>,
}

/// An expectation beside what came of it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Realised {
    pub job: JobId,
    pub generation: Generation,
    pub expectation: Expectation,
    /// When it was over.
    pub ended_at: Timestamp,
    pub gpu_type: Option<GpuType>,
    pub family: ModelFamily,
    pub gpus: GpuCount,
    /// Reference tokens per second over the time measured.
    pub goodput: TokensPerSecond,
    pub measured_for: Seconds,
}

/// Jobs whose predictions are held against what came of them together: by what is known of their model, and its size.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, strum::Display)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum ModelFamily {
    /// Decoders of fewer than a thousand million parameters.
    #[strum(serialize = "under_1b")]
    Under1b,
    /// From there to ten thousand million.
    #[strum(serialize = "1b_to_10b")]
    To10b,
    #[strum(serialize = "10b_to_100b")]
    To100b,
    #[strum(serialize = "over_100b")]
    Over100b,
    /// Its user gave its throughput by size.
    Curve,
    /// Nothing is known of it.
    Opaque,
}

impl ModelFamily {
    #[must_use]
    pub fn of(spec: &JobSpec) -> Self {
        match spec.training().map(|training| &training.work) {
            None => Self::Opaque,
            Some(Work::Curve { .. }) => Self::Curve,
            Some(Work::Model(shape)) => match parameters(shape) {
                few if few < 1e9 => Self::Under1b,
                some if some < 1e10 => Self::To10b,
                many if many < 1e11 => Self::To100b,
                _ => Self::Over100b,
            },
        }
    }
}

impl Expectation {
    /// What came of it by a report that tells of so much progress; nothing where no time passed.
    #[must_use]
    pub fn realised(&self, progress: Tokens, at: Timestamp) -> Option<(TokensPerSecond, Seconds)> {
        let (began, from) = self.measured_from?;
        let within = at.since(began);
        (within.0 > 0.0).then(|| (Tokens((progress.0 - from.0).max(0.0)) / within, within))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_expectation_is_measured_from_the_first_step_on() {
        let at = |seconds: f64| Timestamp(0) + Seconds(seconds);
        let expectation = Expectation {
            at: at(0.0),
            revision: 1,
            goodput: TokensPerSecond(10.0),
            band: None,
            measured_from: Some((at(20.0), Tokens(500.0))),
        };
        assert_eq!(expectation.realised(Tokens(1_400.0), at(120.0)), Some((TokensPerSecond(9.0), Seconds(100.0))));
        assert_eq!(expectation.realised(Tokens(1_400.0), at(20.0)), None, "no time has passed");
        let waiting = Expectation { measured_from: None, ..expectation };
        assert_eq!(waiting.realised(Tokens(1_400.0), at(120.0)), None, "it never trained");
    }

    #[test]
    fn families_are_told_apart_by_what_is_known_of_the_model() {
        use headway_types::example;
        let of = |work| ModelFamily::of(&example::spec("a", example::gpus(1, 8), Some(example::training(work))));
        assert_eq!(of(Work::Model(example::tiny())).to_string(), "under_1b");
        assert_eq!(of(Work::Model(example::llama3_8b())).to_string(), "1b_to_10b");
        let curve = Work::Curve { points: Default::default(), seq_len: 64 };
        assert_eq!(of(curve), ModelFamily::Curve);
        assert_eq!(ModelFamily::of(&example::spec("a", example::gpus(1, 8), None)), ModelFamily::Opaque);
    }
}
