//! The servers of one cluster by their addresses, and which of them the client speaks to: the one that led when it last asked.
//!
//! Reads go to the leader too, since a standby shows what was so a moment ago and need not know what this client has just changed. Where no server
//! leads, a standby's reply is taken, and the client reports how old it is.

use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use core::time::Duration;
use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

use reqwest::{Request, Response, StatusCode, Url};
use tokio::time::Instant;

use super::patience::{Patience, is_away};
use super::{Client, ClientError, header, problem, unreachable};

/// How long it is asked for whoever leads, once all have said that they do not: a takeover takes some seconds.
pub(super) const TAKEOVER: Duration = Duration::from_secs(10);
/// Between two turns of all servers.
pub(super) const PAUSE: Duration = Duration::from_millis(250);
/// How long a server may take to begin an answer before another is asked, where the request may be repeated: one that hangs leads no longer by then.
const SILENCE: Duration = Duration::from_secs(3);
/// Each request has a limit of its own.
const FOREVER: Duration = Duration::from_secs(3_600);
/// Of requests that may be repeated whatever they do.
const KEY: &str = "idempotency-key";
/// Headers of a reply that a standby read.
const STANDBY: &str = "headway-standby";
const AGE: &str = "headway-age-seconds";

#[derive(Debug)]
pub(super) struct Servers {
    /// At least one.
    roots: Vec<Url>,
    current: AtomicUsize,
    /// When all servers were asked and none led. A standby's reply is taken at once for a while, and then a leader is
    /// searched for again.
    leaderless_since: Mutex<Option<Instant>>,
    /// A request has waited for the scheduler to come back, in vain: others do not wait until one has succeeded.
    given_up: AtomicBool,
}

impl Servers {
    pub fn new(roots: Vec<Url>) -> Self {
        Self {
            roots,
            current: AtomicUsize::new(0),
            leaderless_since: Mutex::new(None),
            given_up: AtomicBool::new(false),
        }
    }

    pub fn are_several(&self) -> bool {
        self.roots.len() > 1
    }

    pub fn current(&self) -> &Url {
        &self.roots[self.current.load(Ordering::Relaxed) % self.roots.len()]
    }

    /// Whether requests still wait for a scheduler that is away.
    pub fn is_waited_for(&self) -> bool {
        !self.given_up.load(Ordering::Relaxed)
    }

    /// Whether no server led a moment ago.
    fn is_leaderless(&self) -> bool {
        let since = *self.leaderless_since.lock().unwrap_or_else(PoisonError::into_inner);
        since.is_some_and(|since| since.elapsed() < TAKEOVER)
    }

    fn set_leaderless(&self, since: Option<Instant>) {
        *self.leaderless_since.lock().unwrap_or_else(PoisonError::into_inner) = since;
    }

    /// A request has waited in vain, or one has succeeded again.
    pub fn set_given_up(&self, given_up: bool) {
        self.given_up.store(given_up, Ordering::Relaxed);
    }

    /// From the server of this URL to the one that is said to lead, if it is among them, else to the next, unless others have gone on meanwhile.
    /// Those that keep silent are passed over.
    fn leave(&self, left: &Url, leader: Option<&str>, silent: &BTreeSet<usize>) {
        let Some(from) = self.place_of(left) else { return };
        let count = self.roots.len();
        let named = leader.and_then(|url| self.place_of(&Url::parse(url).ok()?)).filter(|place| *place != from);
        let others = (1..=count).map(|step| (from + step) % count);
        let to = named.into_iter().chain(others).find(|place| !silent.contains(place)).unwrap_or((from + 1) % count);
        let _others_went_on = self.current.compare_exchange(from, to, Ordering::Relaxed, Ordering::Relaxed);
    }

    /// Makes the server of this URL the current one.
    fn stay(&self, with: &Url) {
        if let Some(place) = self.place_of(with) {
            self.current.store(place, Ordering::Relaxed);
        }
    }

    /// The same path and query at the current server.
    fn here(&self, url: &Url) -> Url {
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

impl Client {
    /// Asks one server after the other until one that leads has answered, or one that reads. What may have been done is asked of no other one,
    /// unless doing it twice is as good.
    pub(super) async fn ask_whoever_leads(
        &self,
        http: &reqwest::Client,
        mut request: Request,
    ) -> Result<Response, ClientError> {
        let servers = &self.servers;
        let repeatable = is_repeatable(&request);
        let (give_up, mut asked, mut takeover) = (Instant::now() + TAKEOVER, 0, false);
        // A server whose store is away is not waited for alone: another may lead.
        let (waits, outlasts) = (Patience::new(false), may_wait(&request) && servers.is_waited_for());
        // A standby's reply, for the case that no server leads, and the servers that did not answer as a leader.
        let (mut stale, mut others) = (None::<Response>, BTreeSet::new());
        // Those that have kept silent to this request.
        let mut silent = BTreeSet::new();
        loop {
            let url = request.url().clone();
            // Bodies are texts, which can be sent again.
            let again = request.try_clone();
            let hurried = repeatable && silent.len() < servers.roots.len() && Instant::now() < give_up;
            let patience = if hurried { SILENCE } else { FOREVER };
            let (error, leader) = match tokio::time::timeout(patience, http.execute(request)).await {
                Ok(Ok(response)) if response.status().is_success() || is_missed_by_a_standby(&response) => {
                    let is_stale = age(&response).is_some();
                    if !is_stale {
                        servers.set_leaderless(None);
                    }
                    if !is_stale || servers.is_leaderless() {
                        return accept(response).await;
                    }
                    stale = Some(response);
                    (None, None)
                }
                Ok(Ok(response)) => {
                    let Some(error) = waits.refused(response, servers).await else {
                        request = again.expect("a body of text can be sent again");
                        continue;
                    };
                    match not_leading(&error) {
                        Some(leader) => {
                            takeover = true;
                            (Some(error), leader)
                        }
                        None if outlasts && is_away(&error) => {
                            takeover = true;
                            (Some(error), None)
                        }
                        // A leader's refusal stands. A server that can do nothing has not refused what a standby has read.
                        None => match stale.filter(|_| is_away(&error)) {
                            Some(response) => return accept(response).await,
                            None => return Err(error),
                        },
                    }
                }
                Ok(Err(source)) if source.is_connect() || repeatable => (Some(unreachable(&url, source)), None),
                Ok(Err(source)) => {
                    servers.leave(&url, None, &silent);
                    return Err(unreachable(&url, source));
                }
                Err(_) => {
                    silent.extend(servers.place_of(&url));
                    (None, None)
                }
            };
            others.extend(servers.place_of(&url));
            if stale.is_some() {
                servers.leave(&url, leader.as_deref(), &others);
                if let Some(response) = stale.take_if(|_| others.len() >= servers.roots.len()) {
                    servers.set_leaderless(Some(Instant::now()));
                    servers.stay(response.url());
                    return accept(response).await;
                }
                request = again.expect("a body of text can be sent again");
                *request.url_mut() = servers.here(&url);
                continue;
            }
            servers.leave(&url, leader.as_deref(), &silent);
            asked += usize::from(error.is_some());
            if let Some(error) = error.filter(|_| asked + silent.len() >= servers.roots.len()) {
                asked = 0;
                let over = Instant::now() >= give_up;
                if over && !silent.is_empty() {
                    // They may only have been slow: each is waited for once.
                    silent.clear();
                } else if over || (!std::mem::take(&mut takeover) && silent.is_empty()) {
                    servers.set_given_up(over && is_away(&error));
                    return Err(error);
                }
                tokio::time::sleep(PAUSE).await;
            }
            request = again.expect("a body of text can be sent again");
            *request.url_mut() = servers.here(&url);
        }
    }
}

/// Whether a standby has not found what a request names: the leader may know it since a moment ago.
fn is_missed_by_a_standby(response: &Response) -> bool {
    response.status() == StatusCode::NOT_FOUND && age(response).is_some()
}

/// Turns a status that is no success into an error.
async fn accept(response: Response) -> Result<Response, ClientError> {
    if response.status().is_success() { Ok(response) } else { Err(problem(response).await) }
}

/// Whether a request may be sent again, whatever became of the first.
fn is_repeatable(request: &Request) -> bool {
    request.method().is_safe() || request.headers().contains_key(KEY)
}

/// Whether a request waits for a scheduler that is away: a change that carries a key. Who asks a question sees at once
/// that there is no answer.
pub(super) fn may_wait(request: &Request) -> bool {
    request.headers().contains_key(KEY)
}

/// How old the rows are that a standby has read for a reply; `None`: the leader replied.
pub(super) fn age(response: &Response) -> Option<Duration> {
    header(response.headers(), STANDBY)?;
    let seconds = header(response.headers(), AGE).and_then(|text| text.parse().ok()).unwrap_or_default();
    Some(Duration::try_from_secs_f64(seconds).unwrap_or_default())
}

/// Where the leader is, if that is why the request was refused: nothing was done.
fn not_leading(error: &ClientError) -> Option<Option<String>> {
    match error {
        ClientError::Problem(problem) if problem.code == "not_leading" => Some(problem.leader.clone()),
        _ => None,
    }
}
