//! Makes a failing history small: fewer kinds of faults, fewer jobs, fewer nodes, less time, as long as it still fails.

use headway_types::Seconds;

use crate::scenario::Scenario;
use crate::world::{Failure, simulate};

/// The smallest scenario found that still fails, and how it fails. `None` where the scenario does not fail at all.
#[must_use]
pub fn shrink(scenario: &Scenario) -> Option<(Scenario, Box<Failure>)> {
    let mut best = (scenario.clone(), simulate(scenario).err()?);
    loop {
        let smaller = candidates(&best.0, best.1.at).into_iter().find_map(|one| {
            let failure = simulate(&one).err()?;
            Some((one, failure))
        });
        match smaller {
            Some(found) => best = found,
            None => return Some(best),
        }
    }
}

/// Every scenario one step smaller.
fn candidates(scenario: &Scenario, failed_at: f64) -> Vec<Scenario> {
    let mut all = Vec::new();
    let mut propose = |change: &dyn Fn(&mut Scenario)| {
        let mut one = scenario.clone();
        change(&mut one);
        all.push(one);
    };
    for kind in scenario.faults.every.keys() {
        propose(&|one| {
            one.faults.every.remove(kind);
        });
    }
    for chance in scenario.faults.share.keys() {
        propose(&|one| {
            one.faults.share.remove(chance);
        });
    }
    for job in 0..scenario.jobs.len() {
        propose(&|one| {
            one.jobs.remove(job);
        });
    }
    if scenario.nodes.len() > 1 {
        for node in 0..scenario.nodes.len() {
            propose(&|one| {
                one.nodes.remove(node);
            });
        }
    }
    // A history cut right after its failure fails in the same way; a shorter storm may, too.
    let cut = Seconds(failed_at + 1.0);
    if cut.0 < scenario.faults.until.0 {
        propose(&|one| one.faults.until = cut);
    }
    let half = Seconds(scenario.faults.until.0 / 2.0);
    if half.0 > 10.0 {
        propose(&|one| one.faults.until = half);
    }
    all
}
