//! The servers of one cluster by their addresses, and which of them the client speaks to: whoever led when it last asked.

use core::sync::atomic::{AtomicUsize, Ordering};
use core::time::Duration;

use reqwest::Url;

use super::ClientError;

/// How long it is asked for whoever leads, once all have said that they do not: a takeover takes some seconds.
pub(super) const TAKEOVER: Duration = Duration::from_secs(10);
/// Between two turns of all servers.
pub(super) const PAUSE: Duration = Duration::from_millis(500);

#[derive(Debug)]
pub(super) struct Servers {
    /// At least one.
    roots: Vec<Url>,
    current: AtomicUsize,
}

impl Servers {
    pub fn new(roots: Vec<Url>) -> Self {
        Self { roots, current: AtomicUsize::new(0) }
    }

    pub fn are_several(&self) -> bool {
        self.roots.len() > 1
    }

    pub fn len(&self) -> usize {
        self.roots.len()
    }

    pub fn current(&self) -> &Url {
        &self.roots[self.current.load(Ordering::Relaxed) % self.roots.len()]
    }

    /// From the server of this URL to the one that is said to lead, if it is among them, else to the next, unless others have gone on meanwhile.
    pub fn leave(&self, left: &Url, leader: Option<&str>) {
        let Some(from) = self.place_of(left) else { return };
        let named = leader.and_then(|url| self.place_of(&Url::parse(url).ok()?)).filter(|place| *place != from);
        let to = named.unwrap_or((from + 1) % self.roots.len());
        let _others_went_on = self.current.compare_exchange(from, to, Ordering::Relaxed, Ordering::Relaxed);
    }

    /// The same path and query at the current server.
    pub fn here(&self, url: &Url) -> Url {
        let (to, from) = (self.current(), self.place_of(url).map(|place| &self.roots[place]));
        let below = from.and_then(|from| url.path().strip_prefix(from.path().trim_end_matches('/')));
        let mut moved = to.clone();
        moved.set_path(&format!("{}{}", to.path().trim_end_matches('/'), below.unwrap_or(url.path())));
        moved.set_query(url.query());
        moved
    }

    fn place_of(&self, url: &Url) -> Option<usize> {
        self.roots.iter().position(|root| root.origin() == url.origin())
    }
}

/// Where the leader is, if that is why the request was refused: nothing was done.
pub(super) fn not_leading(error: &ClientError) -> Option<Option<String>> {
    match error {
        ClientError::Problem(problem) if problem.code == "not_leading" => Some(problem.leader.clone()),
        _ => None,
    }
}
