//! Statistical efficiency: what a token at batch B is worth, in tokens at the reference batch.

use headway_types::Tokens;

/// E(B) = (φκ + B₀) / (φκ + B), all in tokens (the form of Pollux, Qiao et al. 2021, with McCandlish et al. 2018's
/// noise scale). 1 at the reference
/// batch, above 1 below it, falling towards 0 as B outgrows the critical batch φκ.
#[must_use]
pub fn statistical_efficiency(critical_batch: Tokens, reference_batch: Tokens, batch: Tokens) -> f64 {
    (critical_batch.0 + reference_batch.0) / (critical_batch.0 + batch.0)
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
        fn efficiency_falls_and_progress_per_step_rises_with_the_batch(
            critical in 1.0..1e8f64, reference in 1.0..1e7f64, batch in 1.0..1e7f64, factor in 1.01..100.0f64,
        ) {
            let at = |batch| statistical_efficiency(Tokens(critical), Tokens(reference), Tokens(batch));
            prop_assert!(at(batch * factor) < at(batch));
            prop_assert!(at(batch * factor) * batch * factor > at(batch) * batch);
        }
    }
}
