//! The servers that an agent may dial. It stays with the one that takes it; from one that does not it goes on to the next at once, and pauses only
//! when all have been asked. One that does not even answer is passed over for a while: it would hold up every turn. So is, for a moment, one whose
//! connection broke: it may hang.

mod memory;
mod turns;

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard};
use std::time::{Duration, Instant};

use crate::AgentError;
use crate::certificate::Certificate;
use crate::config::Access;
use crate::files::{read_beginning, write_durably};
use crate::session::{Dialer, SessionError, chain};
use memory::{Memory, Named};
pub(crate) use turns::Turns;

/// Nobody answers there: who dials again only waits again.
const SILENT: Duration = Duration::from_secs(5);
/// The connection was cut: by a server that ended, by the network, or because its pulse failed.
const BROKEN: Duration = Duration::from_millis(1_500);

/// How many are kept. A server that is named beyond that takes the place of one that is neither joined nor named now.
const MOST_SERVERS: usize = 16;
/// More than an address takes, in bytes.
const LONGEST_URL: usize = 256;

/// How to reach each of them, and whose turn it is. At least one. A node with a certificate learns of further servers from those that it has
/// dialled, since the one that it joined by may be gone at the next takeover. It shows them its certificate and believes them by the same
/// authority as any other.
pub(crate) struct Servers {
    known: RwLock<Vec<Known>>,
    pub(crate) turns: Turns,
    certificate: Option<Arc<Certificate>>,
    memory: Mutex<Memory>,
}

/// One server.
#[derive(Clone)]
struct Known {
    url: String,
    dialer: Arc<Dialer>,
    /// The node joined by it, or its operator gave it: it stays whatever servers name.
    joined: bool,
}

impl Servers {
    /// `urls`: none for those that the node has joined, and those that it has learned of since.
    pub(crate) fn open(urls: &[String], access: &Access) -> Result<Self, AgentError> {
        let certificate = match access {
            Access::Certificate(file) => Some(Arc::new(Certificate::load(file)?)),
            Access::Token { .. } => None,
        };
        let remembered = certificate.as_ref().map(|certificate| read_learned(&certificate.learned_servers()));
        let remembered = remembered.unwrap_or_default();
        let (joined, learned) = match &certificate {
            Some(certificate) if urls.is_empty() => (certificate.held().servers.clone(), remembered.as_slice()),
            _ => (urls.to_vec(), [].as_slice()),
        };
        // The newest, where there are more than may be kept.
        let room = MOST_SERVERS.saturating_sub(joined.len());
        let learned = &learned[learned.len().saturating_sub(room)..];
        let dialer = |url: &String| match (access, &certificate) {
            (Access::Token { secret, tls_ca }, _) => Dialer::to(url, secret, tls_ca.as_deref()),
            (Access::Certificate(_), Some(certificate)) => Dialer::certified(url, Arc::clone(certificate)),
            (Access::Certificate(_), None) => unreachable!("it was loaded above"),
        };
        let several = joined.len() > 1;
        let known = |url: &String| {
            let dialer = dialer(url)?;
            let dialer = Arc::new(if several { dialer.hurried() } else { dialer });
            Ok(Known { url: url.clone(), dialer, joined: true })
        };
        let known: Vec<Known> = joined.iter().map(known).collect::<Result<_, AgentError>>()?;
        if known.is_empty() {
            return Err(AgentError::Server { url: String::new(), message: "there is none".to_owned() });
        }
        let turns = Turns::of(known.len());
        let servers = Self { known: RwLock::new(known), turns, certificate, memory: Mutex::default() };
        servers.take_in(learned, &BTreeSet::new());
        servers.memory().remembered = remembered;
        Ok(servers)
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

    /// Takes in servers of the cluster that a server names, and remembers them for the next start.
    pub(crate) fn learn(&self, urls: &[String]) {
        self.learn_named(urls, Named::Part, Instant::now());
    }

    /// Takes in all servers of the cluster, as its leader names them: others that were learned are dialled for some time
    /// yet. A leader that names none is alone, or cannot read the list, so what was learned stays.
    pub(crate) fn learn_all(&self, urls: &[String]) {
        if !urls.is_empty() {
            self.learn_named(urls, Named::All, Instant::now());
        }
    }

    fn learn_named(&self, urls: &[String], named: Named, now: Instant) {
        let Some(certificate) = &self.certificate else { return };
        let mut memory = self.memory();
        let expired = memory.note_named(urls, &self.urls(), named, now);
        if self.take_in(urls, &expired) {
            tracing::info!(servers = self.urls().join(","), "the known servers of the cluster have changed");
        }
        let next = self.next_remembered(&memory.remembered, urls, &expired);
        // A takeover changes their order alone.
        if next.iter().collect::<BTreeSet<_>>() == memory.remembered.iter().collect() {
            return;
        }
        let text: String = next.iter().map(|url| format!("{url}\n")).collect();
        if let Err(error) = write_durably(&certificate.learned_servers(), text.as_bytes()) {
            tracing::warn!(%error, "the servers of the cluster are not remembered for the next start");
        }
        memory.remembered = next;
    }

    /// Returns what is to be stored: the usable ones of those named, and the newest of those before that are not gone.
    fn next_remembered(&self, before: &[String], urls: &[String], expired: &BTreeSet<String>) -> Vec<String> {
        let known = self.urls();
        let mut next: Vec<String> = before.iter().filter(|url| !expired.contains(*url)).cloned().collect();
        for url in urls.iter().filter(|url| known.contains(url)) {
            if !next.contains(url) {
                next.push(url.clone());
            }
        }
        next.split_off(next.len().saturating_sub(MOST_SERVERS))
    }

    /// Returns whether the known servers have changed. The one whose turn it is stays.
    fn take_in(&self, urls: &[String], expired: &BTreeSet<String>) -> bool {
        let Some(certificate) = &self.certificate else { return false };
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        let before = known.len();
        let new = new_servers(&known, urls, certificate);
        let current = self.turns.current();
        let may_go = |at: usize, one: &Known| !one.joined && at != current && !urls.contains(&one.url);
        let mut kept: Vec<bool> =
            known.iter().enumerate().map(|(at, one)| !(may_go(at, one) && expired.contains(&one.url))).collect();
        let stay = kept.iter().filter(|stays| **stays).count();
        let mut surplus = (stay + new.len()).saturating_sub(MOST_SERVERS);
        for (at, one) in known.iter().enumerate() {
            if surplus > 0 && kept[at] && may_go(at, one) {
                kept[at] = false;
                surplus -= 1;
            }
        }
        self.turns.retain(&kept);
        let mut stays = kept.iter();
        known.retain(|_| stays.next() == Some(&true));
        let left = known.len();
        known.extend(new.into_iter().take(MOST_SERVERS.saturating_sub(left)));
        self.turns.grow(known.len());
        if (before == 1) != (known.len() == 1)
            && let Ok(dialer) = Dialer::certified(&known[0].url, Arc::clone(certificate))
        {
            // It has others beside it now, or has none any more.
            known[0].dialer = Arc::new(if before == 1 { dialer.hurried() } else { dialer });
        }
        left < before || left < known.len()
    }

    /// All, from the one to dial now on.
    pub(crate) fn beginning_with_current(&self) -> Vec<Arc<Dialer>> {
        let (known, current) = (self.read(), self.turns.current());
        let in_turn = known[current..].iter().chain(&known[..current]);
        in_turn.map(|known| Arc::clone(&known.dialer)).collect()
    }

    /// The one to dial now.
    pub(crate) fn current(&self) -> Arc<Dialer> {
        let known = self.read();
        Arc::clone(&known[self.turns.current()].dialer)
    }

    pub(crate) fn dialer(&self, at: usize) -> Arc<Dialer> {
        Arc::clone(&self.read()[at].dialer)
    }

    pub(crate) fn count(&self) -> usize {
        self.read().len()
    }

    fn memory(&self) -> MutexGuard<'_, Memory> {
        self.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn urls(&self) -> Vec<String> {
        self.read().iter().map(|known| known.url.clone()).collect()
    }

    fn read(&self) -> RwLockReadGuard<'_, Vec<Known>> {
        self.known.read().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns those of `urls` that are not known and can be dialled, as many as may be kept.
fn new_servers(known: &[Known], urls: &[String], certificate: &Arc<Certificate>) -> Vec<Known> {
    let mut new: Vec<Known> = Vec::new();
    for url in urls.iter().filter(|url| url.len() <= LONGEST_URL) {
        if new.len() == MOST_SERVERS || known.iter().chain(&new).any(|one| one.url == *url) {
            continue;
        }
        match Dialer::certified(url, Arc::clone(certificate)) {
            Ok(dialer) => new.push(Known { url: url.clone(), dialer: Arc::new(dialer.hurried()), joined: false }),
            Err(error) => tracing::debug!(%error, "a server's address is not usable"),
        }
    }
    new
}

/// One address a line; what cannot be read was never learned.
fn read_learned(file: &Path) -> Vec<String> {
    let text = read_beginning(file, (MOST_SERVERS * (LONGEST_URL + 1)) as u64).unwrap_or_default();
    text.lines().map(str::to_owned).collect()
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
    #![allow(clippy::unwrap_used)]

    use super::memory::UNNAMED_KEPT;
    use super::*;

    fn joined(dir: &Path) -> Access {
        let file = dir.join("identity.json");
        crate::certificate::tests::held(60.0, 90.0).write(&file).unwrap();
        Access::Certificate(file)
    }

    fn told(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn servers_that_a_server_names_are_dialled_too_and_remembered() {
        let dir = tempfile::tempdir().unwrap();
        let access = joined(dir.path());
        let servers = Servers::open(&[], &access).unwrap();
        let before = servers.urls();
        assert_eq!((before.len(), servers.turns.are_several()), (1, false));
        servers.learn(&told(&["https://second:7601", &before[0], "http://clear:7601", "no address at all"]));
        assert_eq!(
            servers.urls(),
            [before[0].as_str(), "https://second:7601"],
            "a certificate is shown over https alone"
        );
        assert!(servers.turns.are_several());
        assert!(servers.turns.go_on(Duration::ZERO), "the new one is dialled before the next pause");
        assert_eq!(servers.turns.current(), 1);
        assert_eq!((servers.beginning_with_current().len(), servers.count()), (2, 2));
        assert_eq!(Servers::open(&[], &access).unwrap().urls(), servers.urls(), "the next start knows it");
        let given = Servers::open(&told(&["https://given:7601"]), &access).unwrap();
        assert_eq!(given.urls(), ["https://given:7601"], "what an operator says holds");
    }

    #[test]
    fn servers_that_the_cluster_no_longer_has_are_dialled_no_longer() {
        let dir = tempfile::tempdir().unwrap();
        let access = joined(dir.path());
        let servers = Servers::open(&[], &access).unwrap();
        let first = servers.urls()[0].clone();
        servers.learn(&told(&["https://old:1", "https://current:1", "https://stays:1"]));
        assert!(servers.turns.go_on(Duration::ZERO) && servers.turns.go_on(Duration::ZERO));
        let (now, later) = (Instant::now(), Instant::now() + UNNAMED_KEPT);
        let named = told(&["https://stays:1", "https://new:1"]);
        servers.learn_named(&named, Named::All, now);
        let all = told(&[&first, "https://old:1", "https://current:1", "https://stays:1", "https://new:1"]);
        assert_eq!(servers.urls(), all, "one that restarts is not named for a moment");
        let next = Servers::open(&[], &access).unwrap();
        assert_eq!(next.count(), 5, "neither is one that the next start knows");
        servers.learn_named(&named, Named::All, later);
        assert_eq!(servers.urls(), [&first, "https://current:1", "https://stays:1", "https://new:1"]);
        assert_eq!(servers.turns.current(), 1, "the one whose session it is stays");
        let next = Servers::open(&[], &access).unwrap();
        assert_eq!(next.urls(), [&first, "https://stays:1", "https://new:1"]);
        servers.learn_all(&[]);
        assert_eq!(servers.count(), 4, "a leader that names none says nothing of others");
        assert_eq!((servers.turns.go_on(Duration::ZERO), servers.turns.current()), (true, 2));
        let named = told(&[&first, "https://stays:1"]);
        servers.learn_named(&named, Named::All, later);
        servers.learn_named(&named, Named::All, later + UNNAMED_KEPT);
        assert_eq!((servers.urls(), servers.turns.current()), (told(&[&first, "https://stays:1"]), 1));
        assert!(!servers.turns.go_on(Duration::ZERO) || !servers.turns.go_on(Duration::ZERO), "a turn ends");
    }

    #[test]
    fn a_server_that_comes_back_is_as_any_other() {
        let dir = tempfile::tempdir().unwrap();
        let servers = Servers::open(&[], &joined(dir.path())).unwrap();
        let (now, all, part) = (Instant::now(), told(&["https://a:1", "https://b:1"]), told(&["https://a:1"]));
        let half = UNNAMED_KEPT / 2;
        servers.learn_named(&all, Named::All, now);
        servers.learn_named(&part, Named::All, now);
        servers.learn_named(&all, Named::Part, now + half);
        servers.learn_named(&part, Named::All, now + half);
        servers.learn_named(&part, Named::All, now + UNNAMED_KEPT);
        assert!(servers.urls().contains(&all[1]), "its time has begun anew");
        servers.learn_named(&part, Named::All, now + half + UNNAMED_KEPT);
        assert!(!servers.urls().contains(&all[1]));
    }

    #[test]
    fn a_server_beyond_the_most_takes_the_place_of_one_that_is_named_no_longer() {
        let dir = tempfile::tempdir().unwrap();
        let access = joined(dir.path());
        let servers = Servers::open(&[], &access).unwrap();
        let joined = servers.urls()[0].clone();
        let many: Vec<String> = (1..MOST_SERVERS).map(|number| format!("https://s{number}:1")).collect();
        servers.learn(&many);
        assert_eq!(servers.count(), MOST_SERVERS);
        servers.learn(&told(&["https://s1:1", "https://new:1"]));
        let expected = [&[joined.clone(), many[0].clone()], &many[2..], &["https://new:1".to_owned()]].concat();
        assert_eq!(servers.urls(), expected);
        let next = Servers::open(&[], &access).unwrap().urls();
        assert!(next.contains(&joined) && next.contains(&"https://new:1".to_owned()));
    }

    #[test]
    fn what_was_learned_outlives_a_start_with_a_given_server() {
        let dir = tempfile::tempdir().unwrap();
        let access = joined(dir.path());
        let servers = Servers::open(&[], &access).unwrap();
        let first = servers.urls()[0].clone();
        servers.learn(&told(&["https://second:1"]));
        let file = servers.certificate().unwrap().learned_servers();
        let stored_before = dir.path().join("stored before");
        std::fs::hard_link(&file, &stored_before).unwrap();
        let given = Servers::open(&told(&["https://given:1"]), &access).unwrap();
        given.learn(&told(&["https://third:1"]));
        assert_eq!(given.urls(), ["https://given:1", "https://third:1"]);
        let next = Servers::open(&[], &access).unwrap();
        assert_eq!(next.urls(), [&first, "https://second:1", "https://third:1"]);
        let before = std::fs::read_to_string(&stored_before).unwrap();
        assert_eq!(before, "https://second:1\n", "a file is replaced as a whole, never rewritten in its place");
    }

    #[test]
    fn no_server_makes_an_agent_dial_without_end() {
        let dir = tempfile::tempdir().unwrap();
        let servers = Servers::open(&[], &joined(dir.path())).unwrap();
        let many: Vec<String> = (0..1_000).map(|number| format!("https://s{number}:1")).collect();
        servers.learn(&many);
        servers.learn(&[format!("https://{}:1", "x".repeat(LONGEST_URL))]);
        assert_eq!(servers.count(), MOST_SERVERS);
        let token = Access::Token { secret: "t".into(), tls_ca: None };
        let servers = Servers::open(&["http://127.0.0.1:1".to_owned()], &token).unwrap();
        servers.learn(&many);
        assert_eq!(servers.count(), 1, "a token goes where its operator says, and nowhere else");
    }
}
