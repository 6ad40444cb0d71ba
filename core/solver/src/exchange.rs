//! Makes a feasible choice better: single changes that fit, then pairs where one group gives what another takes. With
//! prices, a pair can only gain where the sum of both reduced gains exceeds what the slack is worth, so the list of
//! changes worth pairing is short and ordered. It never makes a choice worse.

use crate::choice::{Choice, change};
use crate::reduced::Reduced;

/// A change of one group, with what it gains at prices.
#[derive(Clone, Copy)]
struct Move {
    gain: f64,
    /// What it adds to the value.
    more: i64,
    group: u32,
    column: u32,
}

/// Improves until nothing is found or `pairs` have been looked at.
pub(crate) fn improve(reduced: &Reduced, choice: &mut Choice, prices: &[f64], pairs: u32) {
    let mut left = pairs;
    loop {
        while improve_single(reduced, choice, prices) {}
        if !improve_pairs(reduced, choice, prices, &mut left) {
            return;
        }
    }
}

fn moves(reduced: &Reduced, choice: &Choice, prices: &[f64], keep: impl Fn(&Move) -> bool) -> Vec<Move> {
    let mut moves = Vec::new();
    for group in 0..reduced.groups() {
        let own = choice.columns[group] as usize;
        let worth = reduced.reduced_value(own, prices);
        for column in reduced.group(group).filter(|&column| column != own) {
            let gain = reduced.reduced_value(column, prices) - worth;
            let more = reduced.value[column] - reduced.value[own];
            let found = Move { gain, more, group: group as u32, column: column as u32 };
            if keep(&found) {
                moves.push(found);
            }
        }
    }
    moves.sort_unstable_by(|a, b| b.gain.total_cmp(&a.gain).then((a.group, a.column).cmp(&(b.group, b.column))));
    moves
}

/// Takes every single change that gains and fits, the greatest gain at prices first.
fn improve_single(reduced: &Reduced, choice: &mut Choice, prices: &[f64]) -> bool {
    let mut parts = Vec::new();
    let mut any = false;
    for found in moves(reduced, choice, prices, |found| found.more > 0) {
        let (group, column) = (found.group as usize, found.column as usize);
        let own = choice.columns[group] as usize;
        if reduced.value[column] > reduced.value[own] {
            change(reduced, own, column, &mut parts);
            if choice.has_room(&parts) {
                choice.set(reduced, group, column);
                any = true;
            }
        }
    }
    any
}

/// Takes pairs of changes that gain together and fit together.
fn improve_pairs(reduced: &Reduced, choice: &mut Choice, prices: &[f64], left: &mut u32) -> bool {
    let spare: f64 = (0..reduced.rows()).map(|row| prices[row] * choice.slack[row] as f64 / reduced.scale[row]).sum();
    let greatest = moves(reduced, choice, prices, |found| found.gain > 0.0).first().map_or(0.0, |found| found.gain);
    let moves = moves(reduced, choice, prices, |found| found.gain > -spare - greatest);
    let mut changed = vec![false; reduced.groups()];
    let (mut first, mut second) = (Vec::new(), Vec::new());
    let mut any = false;
    for (at, one) in moves.iter().enumerate() {
        let a = one.group as usize;
        if changed[a] {
            continue;
        }
        change(reduced, choice.columns[a] as usize, one.column as usize, &mut first);
        for other in &moves[at + 1..] {
            if one.gain + other.gain <= -spare || *left == 0 {
                break;
            }
            *left -= 1;
            if one.more + other.more <= 0 {
                continue;
            }
            let b = other.group as usize;
            if a == b || changed[b] {
                continue;
            }
            change(reduced, choice.columns[b] as usize, other.column as usize, &mut second);
            if fit_together(choice, &first, &second) {
                choice.set(reduced, a, one.column as usize);
                choice.set(reduced, b, other.column as usize);
                (changed[a], changed[b], any) = (true, true, true);
                break;
            }
        }
    }
    any
}

fn fit_together(choice: &Choice, first: &[(usize, i64)], second: &[(usize, i64)]) -> bool {
    let part = |of: &[(usize, i64)], row: usize| of.iter().find(|part| part.0 == row).map_or(0, |part| part.1);
    first.iter().all(|&(row, more)| more + part(second, row) <= choice.slack[row])
        && second.iter().all(|&(row, more)| more + part(first, row) <= choice.slack[row])
}
