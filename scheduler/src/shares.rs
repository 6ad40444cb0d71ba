//! Places that are few: so many in all, and so many of one user, so that nobody takes those of all others.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Places of one kind; cheap to clone.
#[derive(Clone)]
pub struct Shares(Arc<Table>);

struct Table {
    in_all: usize,
    of_one: usize,
    taken: Mutex<BTreeMap<String, usize>>,
}

/// A place that is taken; free again once this is dropped.
pub struct Place {
    of: Shares,
    who: String,
}

/// Why there is no place, with how many there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Full {
    /// The user's own are taken.
    OfOne(usize),
    InAll(usize),
}

impl Shares {
    pub fn new(in_all: usize, of_one: usize) -> Self {
        Self(Arc::new(Table { in_all, of_one, taken: Mutex::default() }))
    }

    pub fn enter(&self, who: &str) -> Result<Place, Full> {
        let mut taken = self.taken();
        if taken.get(who).copied().unwrap_or(0) >= self.0.of_one {
            return Err(Full::OfOne(self.0.of_one));
        }
        if taken.values().sum::<usize>() >= self.0.in_all {
            return Err(Full::InAll(self.0.in_all));
        }
        *taken.entry(who.to_owned()).or_default() += 1;
        Ok(Place { of: self.clone(), who: who.to_owned() })
    }

    #[cfg(test)]
    pub fn are_free(&self) -> bool {
        self.taken().is_empty()
    }

    fn taken(&self) -> MutexGuard<'_, BTreeMap<String, usize>> {
        // The map is valid between any two of its operations, so a panic elsewhere does not spoil it.
        self.0.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut taken = self.of.taken();
        if let Some(count) = taken.get_mut(&self.who) {
            *count -= 1;
            if *count == 0 {
                taken.remove(&self.who);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn one_user_takes_nobody_elses_place_and_all_together_no_more_than_there_are() {
        let shares = Shares::new(5, 2);
        let own: Vec<Place> = (0..2).map(|_| shares.enter("ada").unwrap()).collect();
        assert_eq!(shares.enter("ada").err(), Some(Full::OfOne(2)));
        let others: Vec<Place> = ["bob", "bob", "eve"].map(|who| shares.enter(who).unwrap()).into();
        assert_eq!(shares.enter("eve").err(), Some(Full::InAll(5)));
        drop(own);
        assert!(shares.enter("eve").is_ok() && shares.enter("ada").is_ok());
        drop(others);
        assert!(shares.are_free());
    }
}
