//! What came of a question about a single job.

use serde::{Deserialize, Serialize};

use super::question::Question;
use super::race::Finish;

/// A fixed batch in its fastest layout.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Fixed {
    pub batch: u64,
    pub layout: String,
    pub hours: f64,
}

/// Hours of followers of the critical batch in one layout: with COPUS' constant, and with the best in hindsight.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Follower {
    pub copus: f64,
    pub kindest: f64,
}

/// What came of a question: hours to the same noise-free steps, each with its start.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Comparison {
    pub model: String,
    pub cluster: String,
    pub course: String,
    pub world: String,
    pub rules: String,
    pub seed: u64,
    pub fixed: Vec<Fixed>,
    /// In the layout of the smallest batch, and of the largest.
    pub pessimistic: Follower,
    pub optimistic: Follower,
    /// By whoever knows all and changes for a gain of 10 %, as COPUS does, and of 3 %; a change of the layout takes its time.
    pub by_ten_percent: f64,
    pub by_three_percent: f64,
    /// The ceilings: batch and layout at will, and the batch in one layout.
    pub joint: f64,
    pub batch_alone: f64,
    /// Minutes that a change of layout takes.
    pub change_minutes: f64,
    pub headway: Finish,
}

impl Comparison {
    /// The best fixed batch, which is known only afterwards.
    #[must_use]
    pub fn best(&self) -> Option<&Fixed> {
        self.fixed.iter().min_by(|a, b| a.hours.total_cmp(&b.hours))
    }

    /// How much longer the best fixed batch takes than so many hours, in percent.
    #[must_use]
    pub fn gain_of(&self, hours: f64) -> f64 {
        self.best().map_or(0.0, |best| 100.0 * (best.hours / hours - 1.0))
    }

    #[must_use]
    pub fn gain(&self) -> f64 {
        self.gain_of(self.headway.hours)
    }

    #[must_use]
    pub fn ceiling(&self) -> f64 {
        self.gain_of(self.joint)
    }
}

impl Question {
    /// Whether a comparison answers it.
    #[must_use]
    pub fn is_answered_by(&self, one: &Comparison) -> bool {
        let names = [self.case.model, self.case.cluster, self.course, self.world.name, self.rules.name];
        names == [&*one.model, &*one.cluster, &*one.course, &*one.world, &*one.rules] && self.seed == one.seed
    }
}
