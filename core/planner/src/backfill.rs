//! The earliest moment at which room for somebody comes free, if those that run end as expected: what EASY backfilling
//! (Lifka 1995) promises the first that waits.

use headway_solver::Use;

/// Seconds from now until `wanted` fits, and what is then used of each row; `None` where it never does. `ends`: when
/// each that runs ends, and what it holds.
pub(crate) fn earliest(
    capacity: &[i64],
    mut used: Vec<i64>,
    wanted: &[Use],
    mut ends: Vec<(f64, &[Use])>,
) -> Option<(f64, Vec<i64>)> {
    // Stable, so that of equal ends the first comes first.
    ends.sort_by(|a, b| a.0.total_cmp(&b.0));
    let fits = |used: &[i64]| {
        let has_room = |part: &&Use| used[part.row as usize] + part.amount <= capacity[part.row as usize];
        wanted.iter().filter(|part| part.amount > 0).all(|part| has_room(&part))
    };
    let (mut after, mut ends) = (0.0, ends.into_iter());
    while !fits(&used) {
        let (end, held) = ends.next()?;
        held.iter().for_each(|part| used[part.row as usize] -= part.amount);
        after = end;
    }
    Some((after, used))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn room_comes_free_as_those_that_run_end() {
        let gpus = |amount| [Use { row: 0, amount }];
        let (four, two) = (gpus(4), gpus(2));
        let ends = || vec![(900.0, &four[..]), (300.0, &two[..])];
        let after = |wanted: i64| earliest(&[8], vec![6], &gpus(wanted), ends()).map(|(after, _)| after);
        assert_eq!([after(2), after(4), after(8), after(9)], [Some(0.0), Some(300.0), Some(900.0), None]);
    }
}
