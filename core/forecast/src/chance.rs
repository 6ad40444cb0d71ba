//! What is not known of the future, drawn from a seed: how long what runs will still run.

use headway_planner::{PlanInput, PlanJob};
use headway_types::random::SplitMix64;
use headway_types::{JobId, Seconds};

/// What a job without target and limit is taken to run at least, where nothing else is known.
const LEAST_RUN: f64 = 600.0;

/// A seeded source of chance.
#[derive(Clone, Debug)]
pub(crate) struct Chance(SplitMix64);

impl Chance {
    pub fn seeded(seed: u64, sample: u32) -> Self {
        let mut chance = Self(SplitMix64(seed ^ u64::from(sample).wrapping_mul(0xd134_2543_de82_ef95)));
        chance.uniform();
        chance
    }

    /// Above 0, below 1: its logarithm is taken.
    pub fn uniform(&mut self) -> f64 {
        ((self.0.bits() >> 11) as f64 + 0.5) / (1u64 << 53) as f64
    }

    /// Lognormal with median 1.
    pub fn lognormal(&mut self, spread: f64) -> f64 {
        libm::exp(spread * self.normal())
    }

    /// Box and Muller 1958.
    fn normal(&mut self) -> f64 {
        let radius = libm::sqrt(-2.0 * libm::log(self.uniform()));
        radius * libm::cos(2.0 * core::f64::consts::PI * self.uniform())
    }

    /// Gamma with scale 1 (Marsaglia and Tsang 2000; their section 6 below a shape of 1).
    pub fn gamma(&mut self, shape: f64) -> f64 {
        if shape < 1.0 {
            return self.gamma(shape + 1.0) * libm::pow(self.uniform(), 1.0 / shape);
        }
        let d = shape - 1.0 / 3.0;
        let c = 1.0 / libm::sqrt(9.0 * d);
        loop {
            let (x, uniform) = (self.normal(), self.uniform());
            let v = libm::pow(1.0 + c * x, 3.0);
            if v > 0.0 && libm::log(uniform) < 0.5 * x * x + d - d * v + d * libm::log(v) {
                return d * v;
            }
        }
    }

    pub fn exponential(&mut self, mean: f64) -> f64 {
        -mean * libm::log(self.uniform())
    }
}

/// What decides when a job ends.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Ending {
    /// Its tokens are done: what is left, times this.
    Work { factor: f64 },
    /// So much running time is over.
    Time { left: Seconds },
}

/// Mean age of what runs without a target. Were ends a matter of chance alone, this would be how long such jobs run on.
pub(crate) fn mean_age(input: &PlanInput) -> Seconds {
    let ages = input.jobs.iter().filter(|job| job.current.is_some() && job.remaining.is_none());
    let (count, sum) = ages.fold((0, 0.0), |(count, sum), job| (count + 1, sum + job.claim.ran.0));
    Seconds((sum / f64::from(count.max(1))).max(LEAST_RUN))
}

/// How one job ends in one roll-out. A target says how much is left, but for the spread; a time limit says that it is
/// some time before; nothing at all says only that jobs end at the rate of the fleet.
pub(crate) fn ending(job: &PlanJob, mean_age: Seconds, spread: f64, chance: &mut Chance) -> Ending {
    let (factor, part, age) = (chance.lognormal(spread), chance.uniform(), chance.exponential(mean_age.0));
    match (job.remaining, job.bounds.time_left) {
        (Some(_), _) if !job.work.is_opaque() => Ending::Work { factor },
        (_, Some(limit)) => Ending::Time { left: Seconds(limit.0 * part) },
        (_, None) => Ending::Time { left: Seconds(age) },
    }
}

/// Chance per job does not depend on which other jobs there are.
pub(crate) fn of_job(seed: u64, sample: u32, job: JobId) -> Chance {
    let id = job.0.as_u128();
    Chance::seeded(seed ^ (id as u64) ^ ((id >> 64) as u64), sample)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_of_all_draws_lie_below_the_median() {
        let mut chance = Chance::seeded(7, 1);
        let below = (0..4_000).filter(|_| chance.lognormal(0.3) < 1.0).count();
        assert!((1_900..2_100).contains(&below), "{below}");
        let mean = (0..4_000).map(|_| chance.exponential(10.0)).sum::<f64>() / 4_000.0;
        assert!((mean - 10.0).abs() < 0.6, "{mean}");
        for shape in [0.3, 1.0, 7.0] {
            let drawn: Vec<f64> = (0..4_000).map(|_| chance.gamma(shape)).collect();
            let mean = drawn.iter().sum::<f64>() / 4_000.0;
            let variance = drawn.iter().map(|one| (one - mean) * (one - mean)).sum::<f64>() / 4_000.0;
            assert!(
                (mean / shape - 1.0).abs() < 0.1 && (variance / shape - 1.0).abs() < 0.2,
                "{shape}: {mean} {variance}"
            );
        }
    }
}
