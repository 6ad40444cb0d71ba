//! What futures draw from: how long what runs will still run, and who will come. Made once for all futures of a
//! forecast.

use std::collections::{BTreeMap, VecDeque};

use headway_planner::{PlanInput, PlanJob};
use headway_types::{IdSource, JobId, Plan, Seconds, Timestamp};

use crate::chance::{self, Chance, Ending};
use crate::doubt;
use crate::experience::{Arrivals, Experience, Pace};
use crate::start::Effort;

/// Newcomers of one future at most: whoever comes after so many hardly matters to those that wait now.
const NEWCOMERS: usize = 48;

/// A job that has yet to come.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Newcomer {
    pub job: JobId,
    pub at: Timestamp,
    /// Which of those it is [like](Prospect::like).
    pub like: usize,
}

/// What does not differ between futures.
pub(crate) struct Prospect<'a> {
    now: Timestamp,
    seed: u64,
    mean_age: Seconds,
    spreads: BTreeMap<JobId, f64>,
    /// Of jobs the round does not know.
    spread: f64,
    pace: Pace,
    lives: Option<&'a VecDeque<f64>>,
    arrivals: Arrivals<'a>,
    /// What newcomers are like: the jobs of all bursts, one after another.
    like: Vec<&'a PlanJob>,
}

impl<'a> Prospect<'a> {
    pub fn new(input: &PlanInput, plan: &Plan, effort: &Effort, experience: &'a Experience) -> Self {
        let pace = experience.pace();
        let spread = pace.spread.unwrap_or(effort.spread);
        let arrivals = experience.arrivals();
        let like = arrivals.bursts.iter().flatten().map(|(_, job)| *job).collect();
        Self {
            now: input.now,
            seed: effort.seed,
            mean_age: chance::mean_age(input),
            spreads: doubt::doubts(input, plan, spread),
            spread,
            pace,
            lives: experience.lives(),
            arrivals,
            like,
        }
    }

    /// How one job ends in one future. `id` is the job's own, but for newcomers, who are like others.
    pub fn ending(&self, job: &PlanJob, id: JobId, sample: u32) -> Ending {
        let mut chance = chance::of_job(self.seed, sample, id);
        let spread = self.spreads.get(&id).copied().unwrap_or(self.spread);
        match chance::ending(job, self.mean_age, spread, &mut chance) {
            Ending::Work { factor } => Ending::Work { factor: factor * self.pace.factor },
            Ending::Time { left } => Ending::Time { left: self.by_lives(job, left, &mut chance) },
        }
    }

    /// How long a job runs of which its model says nothing.
    pub fn lasting(&self, chance: &mut Chance) -> Seconds {
        Seconds(chance.exponential(self.mean_age.0))
    }

    /// What newcomers are like.
    pub fn like(&self) -> &[&'a PlanJob] {
        &self.like
    }

    /// The rest of a life drawn from those that lasted longer than this one so far (Kaplan and Meier 1958, without
    /// censoring); beyond all of them at the rate of their mean.
    fn by_lives(&self, job: &PlanJob, guess: Seconds, chance: &mut Chance) -> Seconds {
        let Some(lives) = self.lives else { return guess };
        let age = job.claim.ran.0;
        let longer: Vec<f64> = lives.iter().map(|life| life - age).filter(|left| *left > 0.0).collect();
        let left = match longer.len() {
            0 => chance.exponential(lives.iter().sum::<f64>() / lives.len() as f64),
            count => longer[((chance.uniform() * count as f64) as usize).min(count - 1)],
        };
        Seconds(job.bounds.time_left.map_or(left, |limit| left.min(limit.0)))
    }

    /// Who comes in one future, and when: bursts at random moments, each like one that came. How often they come is drawn as well, by how
    /// often they came: one that was seen may have been the last for long, and twenty tell the rate.
    pub fn newcomers(&self, sample: u32, until: Timestamp) -> Vec<Newcomer> {
        let Arrivals { count, watched, bursts } = &self.arrivals;
        if *count <= 0.0 || bursts.is_empty() {
            return Vec::new();
        }
        let mut chance = Chance::seeded(self.seed ^ 0x6e65_7763, sample);
        let mut ids = IdSource::seeded(self.seed ^ u64::from(sample));
        let pause = watched.0 / chance.gamma(*count);
        let (mut begins, mut newcomers) = (self.now, Vec::new());
        while newcomers.len() < NEWCOMERS {
            begins = begins + Seconds(chance.exponential(pause));
            if begins > until {
                break;
            }
            let which = ((chance.uniform() * bursts.len() as f64) as usize).min(bursts.len() - 1);
            let before: usize = bursts[..which].iter().map(Vec::len).sum();
            newcomers.extend(bursts[which].iter().enumerate().map(|(number, (after, _))| {
                let at = begins + *after;
                Newcomer { job: ids.job(at), at, like: before + number }
            }));
        }
        newcomers.truncate(NEWCOMERS);
        newcomers.sort_by_key(|one| (one.at, one.job));
        newcomers
    }
}
