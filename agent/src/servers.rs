//! The servers that an agent may dial. It stays with the one that takes it; from one that does not it goes on to the next at once, and pauses only
//! when all have been asked. One that does not even answer is passed over for a while: it would hold up every turn. So is, for a moment, one whose
//! connection broke: it may hang.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::AgentError;
use crate::certificate::Certificate;
use crate::config::Access;
use crate::session::{Dialer, SessionError, chain};

/// Nobody answers there: who dials again only waits again.
const SILENT: Duration = Duration::from_secs(5);
/// The connection was cut: by a server that ended, by the network, or because its pulse failed.
const BROKEN: Duration = Duration::from_millis(1_500);

/// How to reach each of them, and whose turn it is. At least one.
pub(crate) struct Servers {
    pub(crate) dialers: Vec<Dialer>,
    pub(crate) turns: Turns,
    certificate: Option<Arc<Certificate>>,
}

impl Servers {
    /// `urls`: none for those that the node has joined.
    pub(crate) fn open(urls: &[String], access: &Access) -> Result<Self, AgentError> {
        let certificate = match access {
            Access::Certificate(file) => Some(Arc::new(Certificate::load(file)?)),
            Access::Token { .. } => None,
        };
        let joined = certificate.as_ref().filter(|_| urls.is_empty()).map(|one| one.held().servers.clone());
        let urls = joined.as_deref().unwrap_or(urls);
        let dialer = |url: &String| {
            let dialer = match (access, &certificate) {
                (Access::Token { secret, tls_ca }, _) => Dialer::to(url, secret, tls_ca.as_deref())?,
                (Access::Certificate(_), Some(certificate)) => Dialer::certified(url, Arc::clone(certificate))?,
                (Access::Certificate(_), None) => unreachable!("it was loaded above"),
            };
            Ok(if urls.len() > 1 { dialer.hurried() } else { dialer })
        };
        let dialers: Vec<Dialer> = urls.iter().map(dialer).collect::<Result<_, AgentError>>()?;
        if dialers.is_empty() {
            return Err(AgentError::Server { url: String::new(), message: "there is none".to_owned() });
        }
        let turns = Turns::of(dialers.len());
        Ok(Self { dialers, turns, certificate })
    }

    pub(crate) fn certificate(&self) -> Option<&Certificate> {
        self.certificate.as_deref()
    }

    /// The scheduler wants the certificate renewed.
    pub(crate) fn renew(&self) {
        self.certificate().into_iter().for_each(Certificate::ask);
    }

    /// Renews it in time. Never ends.
    pub(crate) async fn keep_certificate(&self) {
        match self.certificate() {
            Some(certificate) => certificate.keep(self).await,
            None => std::future::pending().await,
        }
    }

    /// All, from the one to dial now on.
    pub(crate) fn beginning_with_current(&self) -> impl Iterator<Item = &Dialer> {
        let current = self.turns.current();
        self.dialers[current..].iter().chain(&self.dialers[..current])
    }

    /// The one to dial now.
    pub(crate) fn current(&self) -> &Dialer {
        &self.dialers[self.turns.current()]
    }
}

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

impl SessionError {
    /// For how long the server is passed over where there are others.
    pub(crate) fn passes_over(&self) -> Duration {
        let words = match self {
            Self::Silent => return SILENT,
            Self::Connect(_) | Self::Stream(_) => chain(self).to_ascii_lowercase(),
            _ => return Duration::ZERO,
        };
        let silent = ["timed out", "timedout", "deadline has elapsed"].iter().any(|one| words.contains(one));
        match self {
            _ if silent => SILENT,
            Self::Stream(_) => BROKEN,
            _ => Duration::ZERO,
        }
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
