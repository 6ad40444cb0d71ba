//! Makes a choice fit: groups give up what is over capacity, cheapest loss per unit of relief first. One look at all
//! columns serves many changes, so that the cost does not grow with the number of units over.

use crate::choice::{Choice, change};
use crate::reduced::Reduced;

/// Looks at all columns before a choice is given up.
const LOOKS: u32 = 12;

/// `false` where the choice could not be made to fit.
pub(crate) fn repair(reduced: &Reduced, choice: &mut Choice, prices: &[f64]) -> bool {
    for _ in 0..LOOKS {
        if choice.fits() {
            return true;
        }
        if !relieve(reduced, choice, prices) {
            return false;
        }
    }
    choice.fits()
}

/// One look: every change that relieves, in order of what it costs. `false` where there is none.
fn relieve(reduced: &Reduced, choice: &mut Choice, prices: &[f64]) -> bool {
    let over: Vec<bool> = choice.slack.iter().map(|&slack| slack < 0).collect();
    let mut parts = Vec::new();
    let mut changes: Vec<(f64, u32, u32)> = Vec::new();
    for group in 0..reduced.groups() {
        let own = choice.columns[group] as usize;
        let worth = reduced.reduced_value(own, prices);
        for column in reduced.group(group).filter(|&column| column != own) {
            change(reduced, own, column, &mut parts);
            if !parts.iter().any(|&(row, more)| over[row] && more < 0) {
                continue;
            }
            let relief = relief(reduced, choice, &parts);
            if relief > 0.0 {
                let loss = worth - reduced.reduced_value(column, prices);
                changes.push((loss / relief, group as u32, column as u32));
            }
        }
    }
    changes.sort_unstable_by(|a, b| a.0.total_cmp(&b.0).then((a.1, a.2).cmp(&(b.1, b.2))));
    let mut changed = vec![false; reduced.groups()];
    let mut any = false;
    for (_, group, column) in changes {
        if changed[group as usize] {
            continue;
        }
        change(reduced, choice.columns[group as usize] as usize, column as usize, &mut parts);
        if relief(reduced, choice, &parts) > 0.0 {
            choice.set(reduced, group as usize, column as usize);
            changed[group as usize] = true;
            any = true;
            if choice.fits() {
                break;
            }
        }
    }
    any
}

/// How much less all rows together are over capacity after a change, in shares.
fn relief(reduced: &Reduced, choice: &Choice, parts: &[(usize, i64)]) -> f64 {
    let over = |slack: i64| (-slack).max(0);
    let less = |&(row, more): &(usize, i64)| {
        (over(choice.slack[row]) - over(choice.slack[row] - more)) as f64 / reduced.scale[row]
    };
    parts.iter().map(less).sum()
}
