//! A choice from prices: the groups that prices leave undecided are decided one after the other, the surest first, and
//! prices follow each decision. Where nothing fits any more, the last decision is taken back.

use crate::choice::Choice;
use crate::dual::{Dual, Outcome};
use crate::reduced::Reduced;

/// Decisions taken back before a dive is given up.
const RETREATS: u32 = 8;
/// Groups this sure are decided together.
const SURE: f64 = 0.9;

/// A feasible choice, if the dive ends at one.
pub(crate) fn dive(reduced: &Reduced, dual: &mut Dual, pivots: u32) -> Option<Choice> {
    let end = dual.pivots + pivots;
    let mut retreats = 0;
    loop {
        let undecided = dual.undecided();
        if undecided.is_empty() {
            let choice = dual.nearest();
            return choice.fits().then_some(choice);
        }
        let surest = |columns: &[(usize, f64)]| {
            columns.iter().fold((0, f64::NEG_INFINITY), |best, one| if one.1 > best.1 { *one } else { best })
        };
        let decisions: Vec<(usize, usize, f64)> = undecided
            .iter()
            .map(|(group, columns)| (*group, surest(columns)))
            .map(|(group, (column, share))| (group, column, share))
            .collect();
        let (group, column, most) = decisions
            .iter()
            .copied()
            .fold((0, 0, f64::NEG_INFINITY), |best, one| if one.2 > best.2 { one } else { best });
        let before = dual.vertex();
        for &(group, column, share) in decisions.iter().filter(|one| one.2 >= most.min(SURE)) {
            if share >= SURE || share == most {
                reduced.group(group).filter(|&other| other != column).for_each(|other| dual.ban(group, other));
            }
        }
        match dual.descend(end.saturating_sub(dual.pivots)) {
            Outcome::Least => {}
            Outcome::Stopped => return None,
            Outcome::Infeasible => {
                retreats += 1;
                if retreats > RETREATS {
                    return None;
                }
                dual.resume(&before);
                dual.ban(group, column);
                if dual.descend(end.saturating_sub(dual.pivots)) != Outcome::Least {
                    return None;
                }
            }
        }
    }
}
