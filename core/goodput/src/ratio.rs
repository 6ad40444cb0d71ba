//! The ratio of two uncertain means, with its interval (Fieller 1954, "Some problems in interval estimation"). Where the denominator is
//! not clear of zero the interval has no upper end, which a standard error cannot say.

/// The standard normal's 97.5th percentile: intervals are of 95 %.
const NORMAL: f64 = 1.959_963_985;

/// Means of a numerator and a denominator, with the variances of these means, not of what they are over.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Means {
    pub numerator: f64,
    pub denominator: f64,
    pub numerator_variance: f64,
    pub denominator_variance: f64,
    pub covariance: f64,
    /// Of the variances.
    pub degrees_of_freedom: f64,
}

/// What positive ratios the means go with at 95 %.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Interval {
    pub low: f64,
    /// `None` where the denominator is not clear of zero: the ratio may be as large as can be.
    pub high: Option<f64>,
}

impl Means {
    /// All ρ > 0 whose numerator − ρ·denominator is within t standard errors of 0; `None` where there is none, and where sums are no
    /// numbers.
    #[must_use]
    pub fn interval(&self) -> Option<Interval> {
        let t_sqr = t(self.degrees_of_freedom) * t(self.degrees_of_freedom);
        // Those with a·ρ² − 2h·ρ + c ≤ 0.
        let a = self.denominator * self.denominator - t_sqr * self.denominator_variance;
        let h = self.numerator * self.denominator - t_sqr * self.covariance;
        let c = self.numerator * self.numerator - t_sqr * self.numerator_variance;
        let discriminant = h * h - a * c;
        if ![a, h, c, discriminant].iter().all(|value| value.is_finite()) {
            return None;
        }
        let far = h + discriminant.max(0.0).sqrt();
        if a > 0.0 {
            let high = far / a;
            return (high > 0.0).then(|| Interval { low: (c / far).max(0.0), high: Some(high) });
        }
        let low = if c > 0.0 && far > 0.0 { c / far } else { 0.0 };
        Some(Interval { low, high: None })
    }
}

impl Interval {
    /// Standard error of the ratio's logarithm that would make the interval as wide; infinite where it lacks an end.
    #[must_use]
    pub fn log_error(&self) -> f64 {
        match self.high {
            Some(high) if self.low > 0.0 => libm::log(high / self.low).max(0.0) / (2.0 * NORMAL),
            _ => f64::INFINITY,
        }
    }
}

/// Student's 97.5th percentile by its expansion around the normal's (Abramowitz and Stegun 1964, 26.7.5): 1 % low at two degrees of
/// freedom, exact to four digits from five on.
fn t(degrees_of_freedom: f64) -> f64 {
    let (z, n) = (NORMAL, degrees_of_freedom.max(1.0));
    let power = |exponent: i32| (0..exponent).fold(1.0, |product, _| product * z);
    let terms = [
        (power(3) + z) / 4.0,
        (5.0 * power(5) + 16.0 * power(3) + 3.0 * z) / 96.0,
        (3.0 * power(7) + 19.0 * power(5) + 17.0 * power(3) - 15.0 * z) / 384.0,
        (79.0 * power(9) + 776.0 * power(7) + 1482.0 * power(5) - 1920.0 * power(3) - 945.0 * z) / 92_160.0,
    ];
    terms.iter().rev().fold(0.0, |sum, term| (sum + term) / n) + z
}

#[cfg(test)]
mod tests {
    use super::*;

    const CLEAR: Means = Means {
        numerator: 30.0,
        denominator: 2.0,
        numerator_variance: 1.0,
        denominator_variance: 0.04,
        covariance: -0.05,
        degrees_of_freedom: 30.0,
    };

    #[test]
    fn students_percentiles_are_those_of_tables() {
        for (degrees, tabled, within) in
            [(2.0, 4.3027, 0.01), (5.0, 2.5706, 1e-3), (9.0, 2.2622, 1e-4), (40.0, 2.0211, 1e-4)]
        {
            assert!((t(degrees) / tabled - 1.0).abs() < within, "{degrees}: {}", t(degrees));
        }
    }

    /// Both ends by definition: t standard errors of numerator − ρ·denominator away from 0.
    #[test]
    fn a_clear_denominator_bounds_the_ratio_on_both_sides() {
        let interval = CLEAR.interval();
        let Some(Interval { low, high: Some(high) }) = interval else { panic!("{interval:?}") };
        assert!(low < 15.0 && high > 15.0 && high - 15.0 > 15.0 - low, "{interval:?}");
        for ratio in [low, high] {
            let apart = CLEAR.numerator - ratio * CLEAR.denominator;
            let variance =
                CLEAR.numerator_variance - 2.0 * ratio * CLEAR.covariance + ratio * ratio * CLEAR.denominator_variance;
            assert!((apart.abs() / variance.sqrt() / t(30.0) - 1.0).abs() < 1e-9);
        }
    }

    #[test]
    fn a_denominator_that_may_be_zero_bounds_it_from_below_only() {
        let lows = [0.3, 0.0, -0.3].map(|denominator| {
            let interval = Means { denominator, ..CLEAR }.interval();
            let Some(Interval { low, high: None }) = interval else { panic!("{interval:?}") };
            low
        });
        assert!(lows.is_sorted() && lows[0] > 30.0 && lows[0] < 100.0, "{lows:?}");
        let all = Means { denominator: 0.1, numerator: 0.5, ..CLEAR }.interval();
        assert_eq!(all, Some(Interval { low: 0.0, high: None }));
    }

    #[test]
    fn a_negative_denominator_or_what_is_no_number_goes_with_no_ratio() {
        assert_eq!(Means { denominator: -2.0, ..CLEAR }.interval(), None);
        assert_eq!(Means { numerator: f64::NAN, ..CLEAR }.interval(), None);
        assert_eq!(Means { denominator_variance: f64::INFINITY, ..CLEAR }.interval(), None);
    }

    #[test]
    fn its_error_is_the_linearised_one_where_that_holds_and_grows_without_end() {
        let error = |denominator_variance: f64| {
            let means = Means { denominator_variance, covariance: 0.0, degrees_of_freedom: 1e6, ..CLEAR };
            means.interval().map_or(0.0, |interval| interval.log_error())
        };
        let linear = |variance: f64| (1.0 / 900.0 + variance / 4.0).sqrt();
        assert!((error(0.01) / linear(0.01) - 1.0).abs() < 0.02);
        assert!(error(0.5) > 1.2 * linear(0.5));
        assert!(error(1.04) > 1.5 && error(1.05) == f64::INFINITY, "{}", error(1.04));
    }
}
