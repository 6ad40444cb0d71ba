//! GPUs that a decision leaves idle may be taken by whoever gains by the move at all: hysteresis keeps jobs from taking GPUs
//! from each other to and fro, and here is nobody to take them from.

use headway_types::{GpuCount, Objective};

use crate::candidate::Options;
use crate::decide::Decision;
use crate::guarantee::Guarantees;
use crate::input::Freedom;
use crate::round::Round;
use crate::value::Quanta;

/// Takes the hysteresis off growth that finds room in what the decision leaves and would pay for itself. Whether there was any.
pub(crate) fn released(round: &Round<'_>, options: &mut [Options<'_>], owed: &Guarantees, decision: &Decision) -> bool {
    if round.input.policy.objective != Objective::Goodput {
        return false;
    }
    let mut left = owed.capacity.clone();
    for (of, &at) in options.iter().zip(&decision.choice) {
        of.candidates[at].uses.iter().for_each(|part| left[part.row as usize] -= part.amount);
    }
    let mut any = false;
    for (of, &at) in options.iter_mut().zip(&decision.choice) {
        let chosen = &of.candidates[at];
        if !chosen.stays || of.job.freedom != Freedom::Free || of.move_penalty <= 0.0 {
            continue;
        }
        let (held, now, uses) = (chosen.gpus, chosen.value, chosen.uses.clone());
        let has = |row: u32| uses.iter().find(|part| part.row == row).map_or(0, |part| part.amount);
        let penalty = Quanta::of(of.move_penalty);
        for one in of.candidates.iter_mut().filter(|one| one.gpus > held && one.gpus > GpuCount(0)) {
            let fits = one.uses.iter().all(|part| part.amount - has(part.row) <= left[part.row as usize].max(0));
            if fits && one.value <= now && one.value.0 + penalty.0 > now.0 {
                one.value = Quanta(one.value.0 + penalty.0);
                any = true;
            }
        }
    }
    any
}
