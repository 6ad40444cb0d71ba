//! Statistical efficiency: what a token at batch B is worth, in tokens at the reference batch.

use headway_types::spec::LrScaling;
use headway_types::{Sequences, Tokens};

/// E(B) = (φκ + B₀) / (φκ + B), all in tokens (the form of Pollux, Qiao et al. 2021, with McCandlish et al. 2018's
/// noise scale). 1 at the reference
/// batch, above 1 below it, falling towards 0 as B outgrows the critical batch φκ.
#[must_use]
pub fn statistical_efficiency(critical_batch: Tokens, reference_batch: Tokens, batch: Tokens) -> f64 {
    (critical_batch.0 + reference_batch.0) / (critical_batch.0 + batch.0)
}

/// What a token counts as at each batch, in sequences.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Worth {
    /// φκ.
    pub critical: f64,
    reference: f64,
    /// 1 where batches below the reference earn nothing, without bound where they do.
    most: f64,
}

impl Worth {
    /// `takes_credit`: whether a token of a batch below the reference counts as more than one.
    pub fn new(critical: f64, reference: Sequences, takes_credit: bool) -> Self {
        Self { critical, reference: reference.0 as f64, most: if takes_credit { f64::INFINITY } else { 1.0 } }
    }

    /// Were φκ another.
    pub fn with(self, critical: f64) -> Self {
        Self { critical, ..self }
    }

    pub fn at(self, batch: f64) -> f64 {
        statistical_efficiency(Tokens(self.critical), Tokens(self.reference), Tokens(batch)).min(self.most)
    }

    /// Where goodput peaks over batches that take intercept + slope · batch: B/((a + bB)(φκ + B)) has one peak, at √(a·φκ/b). Without
    /// credit goodput only rises up to the reference.
    pub fn peak(self, intercept: f64, slope: f64) -> f64 {
        let peak = (intercept * self.critical / slope).sqrt();
        if self.most > 1.0 { peak } else { peak.max(self.reference) }
    }
}

/// Factor on the learning rate at a batch, over the one at the reference batch. Square root: Adam (Malladi et al. 2022); linear: SGD (Goyal
/// et al. 2017); AdaScale: the gain r·(φκ + B₀)/(φκ + r·B₀) at r = B/B₀ (Johnson et al. 2020), between the two.
#[must_use]
pub fn learning_rate_factor(rule: LrScaling, critical_batch: Tokens, reference_batch: Tokens, batch: Tokens) -> f64 {
    let ratio = batch.0 / reference_batch.0;
    match rule {
        LrScaling::None => 1.0,
        LrScaling::Sqrt => ratio.sqrt(),
        LrScaling::Linear => ratio,
        LrScaling::Adascale => ratio * statistical_efficiency(critical_batch, reference_batch, batch),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_token_at_the_reference_batch_is_worth_one() {
        assert_eq!(statistical_efficiency(Tokens(1e6), Tokens(3e4), Tokens(3e4)), 1.0);
    }

    proptest! {
        #[test]
        fn adascale_lies_between_no_change_and_the_linear_rule(
            critical in 1.0..1e8f64, reference in 1.0..1e7f64, factor in 1.0..1000.0f64,
        ) {
            let at = |rule| learning_rate_factor(rule, Tokens(critical), Tokens(reference), Tokens(reference * factor));
            prop_assert!(at(LrScaling::Adascale) >= 1.0 - 1e-9);
            prop_assert!(at(LrScaling::Adascale) <= at(LrScaling::Linear) * (1.0 + 1e-9));
            prop_assert_eq!(at(LrScaling::None), 1.0);
            prop_assert!(at(LrScaling::Sqrt) <= at(LrScaling::Linear) * (1.0 + 1e-9));
        }

        #[test]
        fn efficiency_falls_and_progress_per_step_rises_with_the_batch(
            critical in 1.0..1e8f64, reference in 1.0..1e7f64, batch in 1.0..1e7f64, factor in 1.01..100.0f64,
        ) {
            let at = |batch| statistical_efficiency(Tokens(critical), Tokens(reference), Tokens(batch));
            prop_assert!(at(batch * factor) < at(batch));
            prop_assert!(at(batch * factor) * batch * factor > at(batch) * batch);
        }
    }
}
