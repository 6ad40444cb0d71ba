//! Ids of jobs whose callers know them by name. A job keeps its id from round to round as long as the order of jobs
//! allows it, so that what was computed for it is found again; ids always ascend in the document's order, so that ties
//! fall as if the document were alone.

use std::collections::BTreeMap;

use headway_types::JobId;
use uuid::Uuid;

/// The jobs of the round before.
#[derive(Debug, Default)]
pub struct Names {
    numbers: BTreeMap<String, u128>,
    last: u128,
}

impl Names {
    /// Ids in the order of the names, ascending.
    pub fn of<'a>(&mut self, names: impl Iterator<Item = &'a str> + Clone) -> Vec<JobId> {
        let numbers = self.kept(names.clone()).unwrap_or_else(|| {
            let first = self.last + 1;
            (first..).zip(names.clone()).map(|(number, _)| number).collect()
        });
        self.last = numbers.last().copied().unwrap_or(0).max(self.last);
        self.numbers = names.map(str::to_owned).zip(numbers.iter().copied()).collect();
        numbers.into_iter().map(|number| JobId(Uuid::from_u128(number))).collect()
    }

    /// Known names keep their numbers and new ones follow; `None` where the order has changed.
    fn kept<'a>(&self, names: impl Iterator<Item = &'a str>) -> Option<Vec<u128>> {
        let mut next = self.last;
        let mut before = 0;
        names
            .map(|name| {
                let number = self.numbers.get(name).copied().unwrap_or_else(|| {
                    next += 1;
                    next
                });
                let ascends = number > before;
                before = number;
                ascends.then_some(number)
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers(names: &mut Names, round: &[&str]) -> Vec<u128> {
        names.of(round.iter().copied()).into_iter().map(|id| id.0.as_u128()).collect()
    }

    #[test]
    fn a_job_keeps_its_id_while_others_come_and_go() {
        let mut names = Names::default();
        assert_eq!(numbers(&mut names, &["a", "b", "c"]), [1, 2, 3]);
        assert_eq!(numbers(&mut names, &["b", "c", "d"]), [2, 3, 4]);
        assert_eq!(numbers(&mut names, &["b", "d", "a"]), [2, 4, 5]);
    }

    #[test]
    fn another_order_gives_new_ids_in_that_order() {
        let mut names = Names::default();
        numbers(&mut names, &["a", "b"]);
        assert_eq!(numbers(&mut names, &["b", "a"]), [3, 4]);
        assert_eq!(numbers(&mut names, &["new", "b", "a"]), [5, 6, 7]);
    }
}
