//! Sia (Jayaram Subramanya et al., SOSP'23), its objective as published: choose one allocation per job so that
//! Σ (r·G)^p + λ · (jobs left out) is least, with p = −0.5 and λ = 1.1. G is the job's row of goodputs, normalised by its
//! least entry to the GPUs of its smallest allocation; r stands at every allocation but the present one. All jobs weigh
//! the same. Our solver instead of theirs; our rows instead of GPUs per type alone. Constants, clipping and the price of
//! change are those of its artifact (siasosp23/artifacts, `adaptdl/sched/adaptdl_sched/policy/mip.py`); docs/planner.md
//! says where we differ.

use std::collections::BTreeMap;

use headway_types::{GpuCount, Seconds};

use super::{Approach, value_each, withdraw};
use crate::candidate::{Candidate, Options};
use crate::input::PlanJob;
use crate::round::Round;
use crate::value::Quanta;

const POWER: f64 = -0.5;
/// λ: what leaving a job out costs, more than the worst allocation of a job that never restarted.
const LEFT_OUT: f64 = 1.1;

pub(super) struct Sia {
    /// λₐ: what each entry of a job's row costs that changes, the one it leaves and the one it takes.
    changed: f64,
}

/// The program of its artifact.
pub(super) const PUBLISHED: Sia = Sia { changed: 0.01 };
/// What its simulator runs: it reads λₐ and leaves it out of the program.
pub(super) const SIMULATED: Sia = Sia { changed: 0.0 };

impl Approach for Sia {
    fn appraise(&self, round: &Round<'_>, options: &mut Options<'_>) {
        let growth = Growth::of(options);
        withdraw(options, |one| growth.allows(one));
        // A job that can only have nothing is worth nothing: that is where worth is counted from.
        let Some(row) = Row::of(options) else { return value_each(options, |_| Quanta(0)) };
        let holds = options.job.current.is_some();
        let factor = restart_factor(options.job, round.input.now.since(options.job.submitted_at));
        value_each(options, |one| {
            let changed = match (holds, one.gpus == GpuCount(0)) {
                (false, _) => 0.0,
                (true, true) => self.changed,
                (true, false) if one.stays => 0.0,
                (true, false) => 2.0 * self.changed,
            };
            if one.gpus == GpuCount(0) {
                return Quanta::of(-changed);
            }
            let rate = row.normalised(one) * if one.stays { 1.0 } else { factor };
            // One quantum less for a start, so that of equals nothing changes.
            let cost = libm::pow(rate, POWER).min(MOST);
            Quanta(Quanta::of(LEFT_OUT - cost - changed).0 - i64::from(!one.stays))
        });
    }
}

/// How far a job may grow: to twice the most GPUs that it ever had, of whatever type, and to its smallest size of each. What
/// it is owed it may have.
struct Growth {
    grown: GpuCount,
    /// By class.
    smallest: BTreeMap<usize, GpuCount>,
    floor: GpuCount,
}

impl Growth {
    fn of(options: &Options<'_>) -> Self {
        let placed = || options.candidates.iter().filter_map(|one| Some((one.shape?.class, one.gpus)));
        let owed = options.job.claim.floor;
        // A floor between two sizes is met by the larger.
        let floor = placed().map(|(_, gpus)| gpus).filter(|gpus| *gpus >= owed && owed > GpuCount(0)).min();
        let mut smallest = BTreeMap::new();
        for (class, gpus) in placed() {
            let least = smallest.entry(class).or_insert(gpus);
            *least = gpus.min(*least);
        }
        let held = options.job.current.as_ref().map(|current| current.placement.gpus());
        let most = options.job.claim.most.values().copied().chain(held).max().unwrap_or_default();
        Self { grown: GpuCount(most.0.saturating_mul(2)), smallest, floor: floor.unwrap_or_default() }
    }

    fn allows(&self, one: &Candidate) -> bool {
        let smallest = one.shape.and_then(|shape| self.smallest.get(&shape.class)).copied().unwrap_or_default();
        one.gpus <= self.grown.max(smallest).max(self.floor)
    }
}

/// r = max(age − n·S, 0)/(age + S), n restarts of S seconds each. A job that holds nothing has nothing to restart.
fn restart_factor(job: &PlanJob, age: Seconds) -> f64 {
    let restart = job.downtime.restart;
    if job.current.is_none() {
        return 1.0;
    }
    let lost = f64::from(job.claim.restarts) * restart.0;
    ((age.0 - lost).max(0.0) / (age.0 + restart.0).max(f64::MIN_POSITIVE)).max(SMALLEST_RATE)
}

/// Stands for a rate of zero, whose negative power is not finite.
const SMALLEST_RATE: f64 = 1e-12;
/// The artifact's clip: no entry costs more than 2/0.01.
const MOST: f64 = 200.0;

/// What normalises a job's row.
struct Row {
    least_goodput: f64,
    least_gpus: GpuCount,
}

impl Row {
    fn of(options: &Options<'_>) -> Option<Self> {
        let placed = || options.candidates.iter().filter(|one| one.gpus.0 > 0);
        let least_gpus = placed().map(|one| one.gpus).min()?;
        let least_goodput = placed().map(|one| one.prediction.goodput.0).fold(f64::INFINITY, f64::min);
        Some(Self { least_goodput, least_gpus })
    }

    /// An opaque job's rate is the same wherever it runs.
    fn normalised(&self, candidate: &Candidate) -> f64 {
        let least = f64::from(self.least_gpus.0);
        if self.least_goodput <= 0.0 {
            return least;
        }
        (least * candidate.prediction.goodput.0 / self.least_goodput).max(SMALLEST_RATE)
    }
}
