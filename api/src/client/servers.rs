//! The servers of one cluster by their addresses, and which of them the client speaks to: whoever led when it last asked.

use core::sync::atomic::{AtomicUsize, Ordering};
use core::time::Duration;
use std::collections::BTreeSet;

use reqwest::{Request, Response, Url};
use tokio::time::Instant;

use super::patience::Patience;
use super::{Client, ClientError, unreachable};

/// How long it is asked for whoever leads, once all have said that they do not: a takeover takes some seconds.
const TAKEOVER: Duration = Duration::from_secs(10);
/// Between two turns of all servers.
const PAUSE: Duration = Duration::from_millis(250);
/// How long a server may take to begin an answer before another is asked, where the request may be repeated: one that hangs leads no longer by then.
const SILENCE: Duration = Duration::from_secs(3);
/// Each request has a limit of its own.
const FOREVER: Duration = Duration::from_secs(3_600);
/// Of requests that may be repeated whatever they do.
const KEY: &str = "idempotency-key";

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

    pub fn current(&self) -> &Url {
        &self.roots[self.current.load(Ordering::Relaxed) % self.roots.len()]
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
        let repeatable = request.method().is_safe() || request.headers().contains_key(KEY);
        let (give_up, mut asked, mut takeover) = (Instant::now() + TAKEOVER, 0, false);
        let waits = Patience::new();
        // Those that have kept silent to this request.
        let mut silent = BTreeSet::new();
        loop {
            let url = request.url().clone();
            // Bodies are texts, which can be sent again.
            let again = request.try_clone();
            let hurried = repeatable && silent.len() < servers.roots.len() && Instant::now() < give_up;
            let patience = if hurried { SILENCE } else { FOREVER };
            let (error, leader) = match tokio::time::timeout(patience, http.execute(request)).await {
                Ok(Ok(response)) if response.status().is_success() => return Ok(response),
                Ok(Ok(response)) => {
                    let Some(error) = waits.refused(response).await else {
                        request = again.expect("a body of text can be sent again");
                        continue;
                    };
                    let Some(leader) = not_leading(&error) else { return Err(error) };
                    takeover = true;
                    (Some(error), leader)
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
            servers.leave(&url, leader.as_deref(), &silent);
            asked += usize::from(error.is_some());
            if let Some(error) = error.filter(|_| asked + silent.len() >= servers.roots.len()) {
                asked = 0;
                let over = Instant::now() >= give_up;
                if over && !silent.is_empty() {
                    // They may only have been slow: each is waited for once.
                    silent.clear();
                } else if over || (!std::mem::take(&mut takeover) && silent.is_empty()) {
                    return Err(error);
                }
                tokio::time::sleep(PAUSE).await;
            }
            request = again.expect("a body of text can be sent again");
            *request.url_mut() = servers.here(&url);
        }
    }
}

/// Where the leader is, if that is why the request was refused: nothing was done.
fn not_leading(error: &ClientError) -> Option<Option<String>> {
    match error {
        ClientError::Problem(problem) if problem.code == "not_leading" => Some(problem.leader.clone()),
        _ => None,
    }
}
