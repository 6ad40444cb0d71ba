//! Whose turn it is to be dialled, and who is passed over for a while.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Whose turn it is among so many.
pub(crate) struct Turns(Mutex<State>);

struct State {
    current: usize,
    /// Still to be asked before the next pause, the current one among them.
    left: usize,
    /// Until when each is passed over.
    passed_over: Vec<Option<Instant>>,
}

impl Turns {
    pub(crate) fn of(count: usize) -> Self {
        Self(Mutex::new(State { current: 0, left: count, passed_over: vec![None; count] }))
    }

    /// There are so many now; those before keep their places.
    pub(super) fn grow(&self, count: usize) {
        let mut state = self.state();
        let more = count.saturating_sub(state.passed_over.len());
        state.left += more;
        state.passed_over.resize(count, None);
    }

    /// Drops the servers whose place holds false; the current one is none of them.
    pub(super) fn retain(&self, kept: &[bool]) {
        let mut state = self.state();
        state.current = kept[..state.current].iter().filter(|stays| **stays).count();
        let mut stays = kept.iter();
        state.passed_over.retain(|_| stays.next() == Some(&true));
        state.left = state.left.min(state.passed_over.len());
    }

    pub(crate) fn are_several(&self) -> bool {
        self.state().passed_over.len() > 1
    }

    pub(crate) fn current(&self) -> usize {
        self.state().current
    }

    /// The current one has taken this node: a turn begins with whoever is dialled next.
    pub(crate) fn begin_anew(&self) {
        let mut state = self.state();
        state.left = state.passed_over.len();
        let current = state.current;
        state.passed_over[current] = None;
    }

    /// Goes on from the current one, which is passed over for so long; whether the next is to be dialled at once.
    pub(crate) fn go_on(&self, pass_over: Duration) -> bool {
        self.state().go_on(Instant::now(), pass_over)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn go_on(&mut self, now: Instant, pass_over: Duration) -> bool {
        let (count, from) = (self.passed_over.len(), self.current);
        self.passed_over[from] = Some(now + pass_over);
        let passed_over = |at: usize| self.passed_over[at].is_some_and(|until| now < until);
        let mut others = (1..=count).map(|step| (step, (from + step) % count));
        // Where all are, each has its turn.
        let (step, next) = others.find(|(_, at)| !passed_over(*at)).unwrap_or((1, (from + 1) % count));
        self.current = next;
        self.left = self.left.saturating_sub(step);
        if self.left == 0 {
            self.left = count;
            return false;
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The servers asked one after the other, with a dash for each pause.
    fn asked(turns: &mut State, silent: &[usize], times: usize) -> String {
        let now = Instant::now();
        let mut told = String::new();
        for _ in 0..times {
            told.push_str(&turns.current.to_string());
            let silent = silent.contains(&turns.current);
            if !turns.go_on(now, if silent { Duration::from_secs(5) } else { Duration::ZERO }) {
                told.push('-');
            }
        }
        told
    }

    fn turns(count: usize) -> State {
        State { current: 0, left: count, passed_over: vec![None; count] }
    }

    #[test]
    fn all_are_asked_before_a_pause() {
        assert_eq!(asked(&mut turns(1), &[], 3), "0-0-0-");
        assert_eq!(asked(&mut turns(3), &[], 7), "012-012-0");
    }

    #[test]
    fn whoever_does_not_answer_is_passed_over() {
        assert_eq!(asked(&mut turns(2), &[0], 4), "01-1-1-");
        assert_eq!(asked(&mut turns(3), &[1], 6), "012-02-0");
        assert_eq!(asked(&mut turns(2), &[0, 1], 4), "01-01-");
    }

    #[test]
    fn after_a_session_the_others_are_asked_before_a_pause() {
        let turns = Turns::of(2);
        assert!(turns.go_on(Duration::ZERO));
        turns.begin_anew();
        assert!(turns.go_on(Duration::ZERO));
        assert!(!turns.go_on(Duration::ZERO));
    }
}
