//! What waits for the loop, in four queues, so that people's requests never wait behind a crowd of nodes.
//!
//! Requests and events have a queue each: agents that report fast fill theirs, and requests are still taken. The first
//! message of an agent's session, its registration, waits in a queue of its own, and a batch takes few of them while
//! somebody asks for anything: a registration costs as much as hundreds of heartbeats, and after a restart of the server
//! all nodes register at once. Nodes that the scheduler knows go before nodes that are new: the lease of a known node
//! runs out while it waits. An agent whose registration waits is held back by its session, which reads nothing more
//! until the loop has taken it.

use std::time::Duration;

use headway_engine::Event;
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;

use super::Input;

/// Requests that may wait; more are refused as busy.
const REQUESTS: usize = 4_096;
/// Events that may wait; beyond it agents' streams are held back.
const EVENTS: usize = 4_096;
/// Registrations that may wait in each of the two queues; beyond it agents' streams wait their turn to enter it.
const REGISTRATIONS: usize = 256;
/// Most requests and events of one batch.
const MOST: usize = 512;
/// So many events have room, however many requests wait.
const EVENTS_AT_LEAST: usize = 128;
/// Most registrations of one batch, beside the others, while somebody asks for anything.
const MOST_REGISTRATIONS: usize = 64;
/// Most registrations of one batch when no request has come for `QUIET`. A request that comes then waits for this batch.
const MOST_REGISTRATIONS_IN_QUIET: usize = 256;
/// Whoever has asked within this time may ask again.
const QUIET: Duration = Duration::from_secs(1);

/// The first message of an agent's session.
#[derive(Debug)]
struct Registration {
    at: Instant,
    event: Event,
    /// Says that the loop has taken it, so that what the agent reports next comes after it.
    taken: oneshot::Sender<()>,
}

/// Whether a node that registers is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrival {
    /// It has registered before: its lease may run out.
    Return,
    New,
}

/// Where registrations go; cheap to clone.
#[derive(Clone, Debug)]
pub struct RegistrationSender {
    returns: mpsc::Sender<Registration>,
    newcomers: mpsc::Sender<Registration>,
}

/// The loop has ended, or the term in which the event came.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the loop takes nothing more")]
pub struct LoopGone;

/// The ends that others hold.
pub(super) struct InboxSenders {
    pub requests: mpsc::Sender<Input>,
    pub events: mpsc::Sender<Input>,
    pub registrations: RegistrationSender,
}

/// The ends that the loop holds.
pub(super) struct Inbox {
    requests: mpsc::Receiver<Input>,
    events: mpsc::Receiver<Input>,
    returns: mpsc::Receiver<Registration>,
    newcomers: mpsc::Receiver<Registration>,
    /// Until nobody is left who could ask.
    takes_requests: bool,
    /// When the newest request was taken.
    asked_at: Option<Instant>,
}

impl RegistrationSender {
    /// Hands over a registration and waits until the loop has taken it.
    pub async fn register(&self, arrival: Arrival, event: Event) -> Result<(), LoopGone> {
        let (taken, is_taken) = oneshot::channel();
        let registration = Registration { at: Instant::now(), event, taken };
        let queue = match arrival {
            Arrival::Return => &self.returns,
            Arrival::New => &self.newcomers,
        };
        queue.send(registration).await.map_err(|_| LoopGone)?;
        is_taken.await.map_err(|_| LoopGone)
    }
}

impl Inbox {
    /// Makes the queues.
    pub fn open() -> (InboxSenders, Self) {
        let (request_sender, requests) = mpsc::channel(REQUESTS);
        let (event_sender, events) = mpsc::channel(EVENTS);
        let (return_sender, returns) = mpsc::channel(REGISTRATIONS);
        let (newcomer_sender, newcomers) = mpsc::channel(REGISTRATIONS);
        let senders = InboxSenders {
            requests: request_sender,
            events: event_sender,
            registrations: RegistrationSender { returns: return_sender, newcomers: newcomer_sender },
        };
        (senders, Self { requests, events, returns, newcomers, takes_requests: true, asked_at: None })
    }

    /// Waits until something comes for which the batch has room. Dropping the wait loses nothing.
    pub async fn receive(&mut self, batch: &mut Batch) {
        let (for_requests, for_events) = (batch.room_for_requests(), batch.room_for_events());
        let for_registrations = self.room_for_registrations(batch);
        let Batch { requests, events, registrations } = batch;
        tokio::select! {
            biased;
            received = self.requests.recv_many(requests, for_requests), if for_requests > 0 && self.takes_requests => {
                self.takes_requests = received > 0;
                self.asked_at = Some(Instant::now());
            }
            // The loop holds a sender itself: this queue never closes, so that this is never zero.
            _ = self.events.recv_many(events, for_events), if for_events > 0 => {}
            Some(one) = self.returns.recv(), if for_registrations > 0 => registrations.push(one),
            Some(one) = self.newcomers.recv(), if for_registrations > 0 => registrations.push(one),
            else => std::future::pending().await,
        }
    }

    /// Takes what waits already and has room in the batch.
    pub fn take_waiting(&mut self, batch: &mut Batch) {
        while batch.room_for_requests() > 0
            && let Ok(input) = self.requests.try_recv()
        {
            batch.requests.push(input);
            self.asked_at = Some(Instant::now());
        }
        while batch.room_for_events() > 0
            && let Ok(input) = self.events.try_recv()
        {
            batch.events.push(input);
        }
        for _ in 0..self.room_for_registrations(batch) {
            let Ok(registration) = self.returns.try_recv().or_else(|_| self.newcomers.try_recv()) else { break };
            batch.registrations.push(registration);
        }
    }

    /// How many more registrations the batch may take.
    fn room_for_registrations(&self, batch: &Batch) -> usize {
        let is_quiet = self.asked_at.is_none_or(|at| at.elapsed() >= QUIET);
        let most = if is_quiet { MOST_REGISTRATIONS_IN_QUIET } else { MOST_REGISTRATIONS };
        most.saturating_sub(batch.registrations.len())
    }

    /// Drops what comes, for as long as anything may.
    pub async fn drop_all(&mut self) {
        loop {
            self.receive(&mut Batch::default()).await;
        }
    }
}

/// Inputs of one batch, by the queue that they waited in.
#[derive(Default)]
pub(super) struct Batch {
    requests: Vec<Input>,
    events: Vec<Input>,
    registrations: Vec<Registration>,
}

impl Batch {
    pub fn len(&self) -> usize {
        self.requests.len() + self.events.len() + self.registrations.len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Adds the moment that the engine asked to be woken at.
    pub fn add_tick(&mut self) {
        self.events.push(Input::event(Event::Tick));
    }

    /// When the first of the inputs came to be.
    pub fn oldest(&self) -> Instant {
        let inputs = self.requests.iter().chain(&self.events).map(Input::at);
        let registrations = self.registrations.iter().map(|registration| registration.at);
        inputs.chain(registrations).min().unwrap_or_else(Instant::now)
    }

    /// Empties the batch: requests and events in the order in which they came to be, then registrations. Agents whose
    /// registration is among them go on.
    pub fn take(&mut self) -> Vec<Input> {
        let mut inputs = std::mem::take(&mut self.requests);
        inputs.append(&mut self.events);
        inputs.sort_by_key(Input::at);
        // Nobody waits any more where the session was closed, replaced or refused meanwhile.
        for Registration { at, event, taken } in self.registrations.drain(..).filter(|one| !one.taken.is_closed()) {
            inputs.push(Input::Event { at, event });
            // The session may have ended meanwhile: its end comes as the next event.
            let _ = taken.send(());
        }
        inputs
    }

    fn room_for_requests(&self) -> usize {
        (MOST - EVENTS_AT_LEAST).saturating_sub(self.requests.len())
    }

    fn room_for_events(&self) -> usize {
        MOST.saturating_sub(self.requests.len() + self.events.len())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use headway_engine::SessionId;
    use headway_types::{IdSource, NodeId, NodeReport};

    use super::*;

    fn registration(number: u64) -> (NodeId, Registration) {
        let node = IdSource::seeded(number).node(crate::support::START);
        let event = Event::Agent { node, session: SessionId(number), report: NodeReport::Heartbeat };
        let (taken, _) = oneshot::channel();
        (node, Registration { at: Instant::now(), event, taken })
    }

    /// Nodes of the registrations that a batch takes when so many of new nodes wait, and then so many of known ones.
    fn taken(inbox: &mut Inbox, senders: &InboxSenders, newcomers: u64, returns: u64) -> (Vec<NodeId>, Vec<NodeId>) {
        let send = |queue: &mpsc::Sender<Registration>, number| {
            let (node, registration) = registration(number);
            queue.try_send(registration).unwrap();
            node
        };
        for number in 0..newcomers {
            send(&senders.registrations.newcomers, number);
        }
        let known = (0..returns).map(|number| send(&senders.registrations.returns, 10_000 + number)).collect();
        let mut batch = Batch::default();
        inbox.take_waiting(&mut batch);
        let node_of = |registration: &Registration| match registration.event {
            Event::Agent { node, .. } => node,
            _ => panic!("no registration"),
        };
        (batch.registrations.iter().map(node_of).collect(), known)
    }

    #[tokio::test]
    async fn a_batch_takes_more_registrations_while_nobody_asks_for_anything() {
        let (senders, mut inbox) = Inbox::open();
        assert_eq!(taken(&mut inbox, &senders, 256, 0).0.len(), 256);
        senders.requests.try_send(Input::event(Event::Tick)).unwrap();
        assert_eq!(taken(&mut inbox, &senders, 256, 0).0.len(), 64);
        assert_eq!(taken(&mut inbox, &senders, 0, 0).0.len(), 64, "whoever has asked may ask again");
        inbox.asked_at = Instant::now().checked_sub(QUIET);
        assert!(inbox.asked_at.is_some());
        assert_eq!(taken(&mut inbox, &senders, 0, 0).0.len(), 128);
    }

    #[tokio::test]
    async fn nodes_that_are_known_register_before_new_ones() {
        let (senders, mut inbox) = Inbox::open();
        senders.requests.try_send(Input::event(Event::Tick)).unwrap();
        let (nodes, known) = taken(&mut inbox, &senders, 200, 50);
        assert_eq!((nodes.len(), &nodes[..50]), (64, &known[..]));
    }
}
