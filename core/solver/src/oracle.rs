//! The best choice by trying all of them: what the solver is measured against in tests. It shares nothing with the
//! solver and must never be asked about more than a handful of groups.

use crate::program::Program;

/// The best feasible choice and its value; of equals the first in lexical order. `None` where nothing is feasible.
#[must_use]
pub fn best(program: &Program) -> Option<(Vec<usize>, i64)> {
    let mut found: Option<(Vec<usize>, i64)> = None;
    let mut choice = vec![0; program.groups.len()];
    loop {
        if program.fits(&choice) {
            let value = program.value(&choice);
            if found.as_ref().is_none_or(|(_, most)| value > *most) {
                found = Some((choice.clone(), value));
            }
        }
        // The next choice in lexical order, counting like an odometer.
        let Some(group) = (0..choice.len()).rev().find(|&group| choice[group] + 1 < program.groups[group].len()) else {
            return found;
        };
        choice[group] += 1;
        choice[group + 1..].fill(0);
    }
}
