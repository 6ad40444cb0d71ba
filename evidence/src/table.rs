//! Contenders side by side: means over seeds with their spread.

use crate::measure::{Column, measures};
use crate::run::Outcome;

/// Mean and standard deviation over seeds.
#[must_use]
pub fn over_seeds(values: &[f64]) -> (f64, f64) {
    let count = values.len().max(1) as f64;
    let mean = values.iter().sum::<f64>() / count;
    let variance = values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / (count - 1.0).max(1.0);
    (mean, variance.sqrt())
}

/// Columns as they are printed on a terminal: the contenders stand side by side, for there are fewer of them.
#[must_use]
pub fn upright(outcomes: &[&Outcome]) -> (Vec<String>, Vec<Vec<String>>) {
    let names = contenders(outcomes);
    let headers = std::iter::once(String::new()).chain(names.iter().map(|name| (*name).to_owned())).collect();
    let rows = measures()
        .iter()
        .map(|column| {
            let cell = |name: &&str| {
                let (mean, spread) = over_seeds(&values(outcomes, name, column));
                let digits = column.digits;
                if spread > 0.0 { format!("{mean:.digits$} ±{spread:.digits$}") } else { format!("{mean:.digits$}") }
            };
            std::iter::once(column.name.to_owned()).chain(names.iter().map(cell)).collect()
        })
        .collect();
    (headers, rows)
}

/// Contenders in the order of their first outcome.
#[must_use]
pub fn contenders<'a>(outcomes: &[&'a Outcome]) -> Vec<&'a str> {
    let mut names: Vec<&str> = Vec::new();
    for one in outcomes {
        if !names.contains(&one.contender.as_str()) {
            names.push(&one.contender);
        }
    }
    names
}

/// A column of a contender, one value per seed.
#[must_use]
pub fn values(outcomes: &[&Outcome], contender: &str, column: &Column) -> Vec<f64> {
    outcomes.iter().filter(|one| one.contender == contender).map(|one| (column.of)(&one.measure)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spread_is_that_of_a_sample() {
        assert_eq!(over_seeds(&[1.0, 3.0]), (2.0, std::f64::consts::SQRT_2));
        assert_eq!(over_seeds(&[5.0]), (5.0, 0.0));
    }
}
