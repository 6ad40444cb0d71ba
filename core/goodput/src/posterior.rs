//! The most likely factors given a prior and what was observed of a positive quantity, in logarithms. Levenberg–Marquardt
//! on the residuals, with the prior's as further ones.

use levenberg_marquardt::{LeastSquaresProblem, LevenbergMarquardt};
use nalgebra::storage::Owned;
use nalgebra::{DMatrix, DVector, Dyn, SMatrix};

/// Tolerance of the search, relative: factors are known to a per cent at best.
const TOLERANCE: f64 = 1e-9;

/// One observation: the natural logarithm of the quantity, and its variance.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Observation {
    pub logarithm: f64,
    pub variance: f64,
}

/// What the factors are expected to be: independent normal distributions around 0.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Prior<const N: usize> {
    pub sigma: [f64; N],
    /// No factor lies below.
    pub least: [f64; N],
}

/// The factors' maximum a posteriori, and their covariance there.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Posterior<const N: usize> {
    pub factors: [f64; N],
    pub covariance: [[f64; N]; N],
}

/// Finds the posterior from `start`. `predict` gives an observation's quantity under some factors, and its gradient by
/// them. A residual beyond `huber` standard deviations pulls with constant force (Huber 1964).
pub(crate) fn posterior<const N: usize>(
    prior: Prior<N>,
    start: [f64; N],
    huber: f64,
    observations: &[Observation],
    predict: impl Fn(usize, &[f64; N]) -> (f64, [f64; N]),
) -> Posterior<N> {
    let mut search = Search { prior, huber, observations, predict, at: start, pinned: [false; N] };
    loop {
        let (found, _) =
            LevenbergMarquardt::new().with_ftol(TOLERANCE).with_xtol(TOLERANCE).with_gtol(TOLERANCE).minimize(search);
        search = found;
        // What would lie below its bound lies on it, and the others are sought again.
        let below = |index: &usize| !search.pinned[*index] && search.at[*index] < prior.least[*index];
        let Some(index) = (0..N).find(below) else { break };
        (search.at[index], search.pinned[index]) = (prior.least[index], true);
    }
    Posterior { factors: search.at, covariance: search.covariance() }
}

/// Variance that the covariance of factors leaves in a quantity with this gradient by them.
pub(crate) fn variance<const N: usize>(covariance: &[[f64; N]; N], gradient: &[f64; N]) -> f64 {
    let of = |line: &[f64; N]| line.iter().zip(gradient).map(|(left, right)| left * right).sum::<f64>();
    covariance.iter().zip(gradient).map(|(line, part)| part * of(line)).sum::<f64>().max(0.0)
}

struct Search<'o, P, const N: usize> {
    prior: Prior<N>,
    huber: f64,
    observations: &'o [Observation],
    predict: P,
    at: [f64; N],
    /// Factors held at their bound.
    pinned: [bool; N],
}

impl<P: Fn(usize, &[f64; N]) -> (f64, [f64; N]), const N: usize> Search<'_, P, N> {
    fn free(&self) -> impl Iterator<Item = usize> {
        (0..N).filter(|index| !self.pinned[*index])
    }

    /// The residual of an observation and its gradient, both bent so that the square is Huber's loss.
    fn residual(&self, index: usize) -> (f64, [f64; N]) {
        let Observation { logarithm, variance } = self.observations[index];
        let (value, gradient) = (self.predict)(index, &self.at);
        let sigma = variance.sqrt();
        let plain = (libm::log(value) - logarithm) / sigma;
        let far = plain.abs() > self.huber;
        let bent = if far { (self.huber * (2.0 * plain.abs() - self.huber)).sqrt().copysign(plain) } else { plain };
        let slope = if far { self.huber / bent.abs() } else { 1.0 };
        (bent, gradient.map(|part| slope * part / (value * sigma)))
    }

    /// Of J'J: the curvature of the loss, all factors free.
    fn covariance(&self) -> [[f64; N]; N] {
        let mut curvature = SMatrix::<f64, N, N>::zeros();
        for (index, sigma) in self.prior.sigma.iter().enumerate() {
            curvature[(index, index)] = 1.0 / (sigma * sigma);
        }
        for index in 0..self.observations.len() {
            let gradient = self.residual(index).1;
            for (row, left) in gradient.iter().enumerate() {
                for (column, right) in gradient.iter().enumerate() {
                    curvature[(row, column)] += left * right;
                }
            }
        }
        // The prior keeps it positive definite, unless a prediction has overflown: then nothing has been learnt.
        let inverse = curvature.cholesky().map(|factored| factored.inverse());
        let unlearnt = || {
            SMatrix::from_fn(
                |row, column| if row == column { self.prior.sigma[row] * self.prior.sigma[row] } else { 0.0 },
            )
        };
        let covariance = inverse.unwrap_or_else(unlearnt);
        std::array::from_fn(|row| std::array::from_fn(|column| covariance[(row, column)]))
    }
}

impl<P: Fn(usize, &[f64; N]) -> (f64, [f64; N]), const N: usize> LeastSquaresProblem<f64, Dyn, Dyn>
    for Search<'_, P, N>
{
    type ResidualStorage = Owned<f64, Dyn>;
    type JacobianStorage = Owned<f64, Dyn, Dyn>;
    type ParameterStorage = Owned<f64, Dyn>;

    fn set_params(&mut self, point: &DVector<f64>) {
        for (place, index) in self.free().collect::<Vec<_>>().into_iter().enumerate() {
            self.at[index] = point[place];
        }
    }

    fn params(&self) -> DVector<f64> {
        DVector::from_iterator(self.free().count(), self.free().map(|index| self.at[index]))
    }

    fn residuals(&self) -> Option<DVector<f64>> {
        let observed = (0..self.observations.len()).map(|index| self.residual(index).0);
        let expected = self.free().map(|index| self.at[index] / self.prior.sigma[index]);
        let count = self.observations.len() + self.free().count();
        Some(DVector::from_iterator(count, observed.chain(expected)))
    }

    fn jacobian(&self) -> Option<DMatrix<f64>> {
        let rows = self.observations.len();
        let mut jacobian = DMatrix::zeros(rows + self.free().count(), self.free().count());
        for row in 0..rows {
            let gradient = self.residual(row).1;
            for (column, index) in self.free().enumerate() {
                jacobian[(row, column)] = gradient[index];
            }
        }
        for (column, index) in self.free().enumerate() {
            jacobian[(rows + column, column)] = 1.0 / self.prior.sigma[index];
        }
        Some(jacobian)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(sigma: [f64; 2], observations: &[(f64, f64)]) -> Posterior<2> {
        let observed: Vec<Observation> = observations
            .iter()
            .map(|(_, value)| Observation { logarithm: libm::log(*value), variance: 1e-4 })
            .collect();
        let prior = Prior { sigma, least: [f64::NEG_INFINITY, 0.0] };
        posterior(prior, [0.0; 2], 2.0, &observed, |index, factors| {
            let scaled = libm::exp(factors[0]) * observations[index].0;
            (scaled + factors[1], [scaled, 1.0])
        })
    }

    #[test]
    fn without_observations_the_prior_stands() {
        let found = of([0.5, 2.0], &[]);
        assert_eq!(found.factors, [0.0; 2]);
        assert!((found.covariance[0][0] - 0.25).abs() < 1e-12 && (found.covariance[1][1] - 4.0).abs() < 1e-12);
    }

    #[test]
    fn two_factors_are_told_apart_by_observations_that_differ() {
        let found = of([1.0, 5.0], &[(1.0, 4.0), (2.0, 6.0), (8.0, 18.0)]);
        assert!((libm::exp(found.factors[0]) - 2.0).abs() < 0.02 && (found.factors[1] - 2.0).abs() < 0.05, "{found:?}");
        assert!(found.covariance[0][0] < 1e-3);
    }

    #[test]
    fn a_factor_stops_at_its_bound_and_the_other_explains_the_rest() {
        let found = of([1.0, 5.0], &[(1.0, 0.5), (2.0, 1.3), (8.0, 5.5)]);
        assert_eq!(found.factors[1], 0.0);
        assert!((0.5..0.7).contains(&libm::exp(found.factors[0])), "{found:?}");
    }

    #[test]
    fn one_observation_far_out_hardly_pulls() {
        let with = of([1.0, 5.0], &[(1.0, 1.0), (2.0, 2.0), (8.0, 8.0), (8.0, 8.0), (8.0, 800.0)]);
        assert!(libm::exp(with.factors[0]) < 1.05, "{with:?}");
    }

    #[test]
    fn a_prediction_that_overflows_teaches_nothing() {
        let found = of([1.0, 5.0], &[(f64::MAX, f64::MAX), (f64::MAX, 1.0)]);
        assert!(
            found.factors.iter().chain(found.covariance.iter().flatten()).all(|part| part.is_finite()),
            "{found:?}"
        );
    }
}
