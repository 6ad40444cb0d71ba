//! Who is connected to a port. Whoever has not said yet who he is is a stranger: of strangers there are only so many, in all and from one
//! address, and a newcomer takes the place of the one that came first. So nobody who opens connections and says
//! nothing shuts anybody out, from whatever address: who brings a credential that opens something is known, and is in nobody's way.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv6Addr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use crate::metrics;

/// How many connections a port has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    pub strangers: usize,
    /// Of them from one address: a network of IPv6 is one.
    pub from_one_address: usize,
    /// Beyond so many, who is known is treated as a stranger all the same.
    pub known: usize,
    pub patience: Patience,
}

/// How long a connection is waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Patience {
    /// From its opening to the head of its first request; of an agent's, to a session that is let in.
    pub silence: Duration,
    /// For its other end to take what is written, and for a stranger to read all of a reply.
    pub unread: Duration,
}

impl Patience {
    pub const USUAL: Self = Self { silence: Duration::from_secs(20), unread: Duration::from_secs(60) };
}

impl Limits {
    /// Of the port for people, in a process that may have so many files open.
    pub fn of_people(files: usize) -> Self {
        let strangers = (files / 8).clamp(32, 512);
        Self { strangers, from_one_address: strangers / 2, known: files / 4, patience: Patience::USUAL }
    }

    /// Of the port for agents, which all come at once when a scheduler does: many addresses, few connections of each.
    pub fn of_agents(files: usize) -> Self {
        let strangers = (files / 8).clamp(32, 4_096);
        Self { strangers, from_one_address: (strangers / 8).max(16), known: files / 2, patience: Patience::USUAL }
    }
}

/// The connections of one port; cheap to clone.
#[derive(Clone)]
pub struct Connections(Arc<Port>);

struct Port {
    name: &'static str,
    limits: Limits,
    table: Mutex<Table>,
}

#[derive(Default)]
struct Table {
    last: u64,
    /// In the order of their coming.
    strangers: BTreeMap<u64, (IpAddr, CancellationToken)>,
    by_address: BTreeMap<IpAddr, BTreeSet<u64>>,
    known: usize,
}

/// One connection. It counts until the last clone is dropped.
#[derive(Clone)]
pub struct Visitor(Arc<Visit>);

struct Visit {
    port: Arc<Port>,
    id: u64,
    address: IpAddr,
    over: CancellationToken,
    spoke: AtomicBool,
    known: AtomicBool,
}

impl Connections {
    /// `name`: of the port, in metrics.
    pub fn new(name: &'static str, limits: Limits) -> Self {
        Self(Arc::new(Port { name, limits, table: Mutex::default() }))
    }

    /// Takes a connection in; a stranger too many goes.
    pub fn arrived(&self, from: IpAddr) -> Visitor {
        let (address, over) = (network(Some(from)), CancellationToken::new());
        let mut table = self.0.table();
        table.last += 1;
        let id = table.last;
        table.strangers.insert(id, (address, over.clone()));
        table.by_address.entry(address).or_default().insert(id);
        if let Some(oldest) = table.one_too_many(address, self.0.limits)
            && let Some(closed) = table.forget(oldest)
        {
            closed.cancel();
            metrics::stranger_sent_away(self.0.name);
        }
        drop(table);
        metrics::connections(self.0.name, 1.0);
        Visitor(Arc::new(Visit {
            port: Arc::clone(&self.0),
            id,
            address: from,
            over,
            spoke: AtomicBool::new(false),
            known: AtomicBool::new(false),
        }))
    }

    #[cfg(test)]
    fn counts(&self) -> (usize, usize) {
        let table = self.0.table();
        (table.strangers.len(), table.known)
    }
}

impl Port {
    fn table(&self) -> MutexGuard<'_, Table> {
        // The table is valid between any two of its operations, so a panic elsewhere does not spoil it.
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Table {
    /// Who has to go for the newcomer: the oldest of his address, or of that which has most; among equals the oldest of all.
    fn one_too_many(&self, newcomer: IpAddr, limits: Limits) -> Option<u64> {
        let of = |address: &IpAddr| self.by_address.get(address);
        if of(&newcomer).is_some_and(|ids| ids.len() > limits.from_one_address) {
            return of(&newcomer)?.first().copied();
        }
        if self.strangers.len() <= limits.strangers {
            return None;
        }
        let most = |ids: &&BTreeSet<u64>| (ids.len(), Reverse(ids.first().copied()));
        self.by_address.values().max_by_key(most)?.first().copied()
    }

    fn forget(&mut self, id: u64) -> Option<CancellationToken> {
        let (address, over) = self.strangers.remove(&id)?;
        if let Some(ids) = self.by_address.get_mut(&address) {
            ids.remove(&id);
            if ids.is_empty() {
                self.by_address.remove(&address);
            }
        }
        Some(over)
    }
}

impl Visitor {
    /// Where it comes from.
    pub fn address(&self) -> IpAddr {
        self.0.address
    }

    /// It has sent a request, whosever.
    pub fn speaks(&self) {
        self.0.spoke.store(true, Ordering::Relaxed);
    }

    /// It has brought a credential that opens something.
    pub fn is_known(&self) {
        self.speaks();
        if self.0.known.load(Ordering::Relaxed) {
            return;
        }
        let mut table = self.0.port.table();
        if table.known < self.0.port.limits.known && table.forget(self.0.id).is_some() {
            table.known += 1;
            self.0.known.store(true, Ordering::Relaxed);
        }
    }

    pub fn has_spoken(&self) -> bool {
        self.0.spoke.load(Ordering::Relaxed)
    }

    pub fn patience(&self) -> Patience {
        self.0.port.limits.patience
    }

    /// Whether it has brought none so far.
    pub fn is_stranger(&self) -> bool {
        !self.0.known.load(Ordering::Relaxed)
    }

    /// Cancelled when it has to go.
    pub fn over(&self) -> CancellationToken {
        self.0.over.clone()
    }
}

impl Drop for Visit {
    fn drop(&mut self) {
        let mut table = self.port.table();
        if *self.known.get_mut() {
            table.known -= 1;
        } else {
            table.forget(self.id);
        }
        metrics::connections(self.port.name, -1.0);
    }
}

/// What counts as one address: one machine has a whole /64 of IPv6 at its will.
pub fn network(address: Option<IpAddr>) -> IpAddr {
    match address.map(|address| address.to_canonical()) {
        None => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
        Some(IpAddr::V6(six)) => IpAddr::V6((u128::from(six) & !u128::from(u64::MAX)).into()),
        Some(four) => four,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    const LIMITS: Limits = Limits { strangers: 8, from_one_address: 4, known: 2, patience: Patience::USUAL };

    fn address(last: u8) -> IpAddr {
        IpAddr::from([10, 0, 0, last])
    }

    #[test]
    fn a_newcomer_takes_the_place_of_the_oldest_stranger_of_its_address() {
        let port = Connections::new("test", LIMITS);
        let other = port.arrived(address(9));
        let all: Vec<Visitor> = (0..10).map(|_| port.arrived(address(1))).collect();
        let standing: Vec<bool> = all.iter().map(|one| !one.over().is_cancelled()).collect();
        assert_eq!(standing, [false, false, false, false, false, false, true, true, true, true]);
        assert!(!other.over().is_cancelled());
        assert_eq!(port.counts(), (5, 0));
    }

    #[test]
    fn strangers_of_many_addresses_give_way_where_most_are() {
        let port = Connections::new("test", LIMITS);
        let many: Vec<Visitor> = (0..4).map(|_| port.arrived(address(1))).collect();
        let few: Vec<Visitor> = (2..20).map(|last| port.arrived(address(last))).collect();
        assert!(many[..3].iter().all(|one| one.over().is_cancelled()));
        assert_eq!((port.counts().0, few.last().unwrap().over().is_cancelled()), (LIMITS.strangers, false));
    }

    #[test]
    fn who_is_known_is_in_nobodys_way_and_nobody_in_his() {
        let port = Connections::new("test", LIMITS);
        let known: Vec<Visitor> = (0..3).map(|_| port.arrived(address(1))).collect();
        known.iter().for_each(Visitor::is_known);
        known.iter().for_each(Visitor::is_known);
        assert_eq!(port.counts(), (1, 2), "beyond the limit who is known is a stranger all the same");
        let silent: Vec<Visitor> = (0..100).map(|_| port.arrived(address(1))).collect();
        assert_eq!(known.iter().filter(|one| one.over().is_cancelled()).count(), 1);
        drop((known, silent));
        assert_eq!(port.counts(), (0, 0), "all places are free again");
    }

    #[test]
    fn one_address_has_few_of_the_places_for_agents() {
        for files in [1_024, 65_536, 1 << 20] {
            let limits = Limits::of_agents(files);
            assert!(limits.from_one_address <= limits.strangers / 8, "{limits:?}");
        }
    }

    #[test]
    fn a_network_of_ipv6_is_one_address() {
        let [one, other] = ["2001:db8::1", "2001:db8::ffff:2"].map(|text| network(text.parse().ok()));
        assert_eq!(one, other);
        assert_ne!(one, network("2001:db8:0:1::1".parse().ok()));
        assert_eq!(network("::ffff:10.0.0.1".parse().ok()), network(Some(address(1))));
    }
}
