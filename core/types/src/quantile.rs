//! Quantiles of values in ascending order.

/// The value below which a `share` of the values lies: between the two next to rank `share · (n − 1)`, counted from 0
/// (definition 7 of Hyndman and Fan 1996, that of NumPy and R). `None` of no values.
#[must_use]
pub fn quantile(sorted: &[f64], share: f64) -> Option<f64> {
    at_rank(sorted, share * sorted.len().saturating_sub(1) as f64)
}

/// The value at a rank that may lie between two, counted from 0; beyond the ends the last of them. For who needs another
/// rank than [`quantile`] takes, as conformal prediction does.
#[must_use]
pub fn at_rank(sorted: &[f64], rank: f64) -> Option<f64> {
    let last = sorted.len().checked_sub(1)?;
    let rank = rank.clamp(0.0, last as f64);
    // Not below 0, so that cutting off is rounding down.
    let low = rank as usize;
    let (below, above) = (sorted[low], sorted[(low + 1).min(last)]);
    Some(below + (rank - low as f64) * (above - below))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quantile_lies_between_its_neighbours() {
        let sorted = [1.0, 2.0, 4.0, 8.0, 16.0];
        assert_eq!(
            [0.0, 0.25, 0.5, 0.9, 1.0].map(|share| quantile(&sorted, share)),
            [Some(1.0), Some(2.0), Some(4.0), Some(12.8), Some(16.0)]
        );
        assert_eq!(quantile(&[3.0], 0.9), Some(3.0));
        assert_eq!(quantile(&[], 0.5), None);
    }

    #[test]
    fn a_rank_beyond_the_ends_is_the_end() {
        assert_eq!((at_rank(&[1.0, 3.0], -1.0), at_rank(&[1.0, 3.0], 7.0)), (Some(1.0), Some(3.0)));
    }
}
