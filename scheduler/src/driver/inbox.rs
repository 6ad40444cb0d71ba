//! What waits for the loop, in three queues, so that people's requests never wait behind a crowd of nodes.
//!
//! Requests and events have a queue each: agents that report fast fill theirs, and requests are still taken. The first
//! message of an agent's session, its registration, waits in a third, short queue, and a batch takes few of them: a
//! registration costs as much as hundreds of heartbeats, and after a restart of the server all nodes register at once.
//! An agent whose registration waits is held back by its session, which reads nothing more until the loop has taken it.

use headway_engine::Event;
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;

use super::Input;

/// Requests that may wait; more are refused as busy.
const REQUESTS: usize = 4_096;
/// Events that may wait; beyond it agents' streams are held back.
const EVENTS: usize = 4_096;
/// Registrations that may wait in the queue; beyond it agents' streams wait their turn to enter it.
const REGISTRATIONS: usize = 64;
/// Most requests and events of one batch.
const MOST: usize = 512;
/// So many events have room, however many requests wait.
const EVENTS_AT_LEAST: usize = 128;
/// Most registrations of one batch, beside the others.
const MOST_REGISTRATIONS: usize = 64;

/// The first message of an agent's session.
#[derive(Debug)]
struct Registration {
    at: Instant,
    event: Event,
    /// Says that the loop has taken it, so that what the agent reports next comes after it.
    taken: oneshot::Sender<()>,
}

/// Where registrations go; cheap to clone.
#[derive(Clone, Debug)]
pub struct RegistrationSender(mpsc::Sender<Registration>);

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
    registrations: mpsc::Receiver<Registration>,
    /// Until nobody is left who could ask.
    takes_requests: bool,
}

impl RegistrationSender {
    /// Hands over a registration and waits until the loop has taken it.
    pub async fn register(&self, event: Event) -> Result<(), LoopGone> {
        let (taken, is_taken) = oneshot::channel();
        let registration = Registration { at: Instant::now(), event, taken };
        self.0.send(registration).await.map_err(|_| LoopGone)?;
        is_taken.await.map_err(|_| LoopGone)
    }
}

impl Inbox {
    /// Makes the queues.
    pub fn open() -> (InboxSenders, Self) {
        let (request_sender, requests) = mpsc::channel(REQUESTS);
        let (event_sender, events) = mpsc::channel(EVENTS);
        let (registration_sender, registrations) = mpsc::channel(REGISTRATIONS);
        let senders = InboxSenders {
            requests: request_sender,
            events: event_sender,
            registrations: RegistrationSender(registration_sender),
        };
        (senders, Self { requests, events, registrations, takes_requests: true })
    }

    /// Waits until something comes for which the batch has room. Dropping the wait loses nothing.
    pub async fn receive(&mut self, batch: &mut Batch) {
        let (for_requests, for_events) = (batch.room_for_requests(), batch.room_for_events());
        let for_registrations = batch.room_for_registrations();
        let Batch { requests, events, registrations } = batch;
        tokio::select! {
            biased;
            received = self.requests.recv_many(requests, for_requests), if for_requests > 0 && self.takes_requests => {
                self.takes_requests = received > 0;
            }
            // The loop holds a sender itself: this queue never closes, so that this is never zero.
            _ = self.events.recv_many(events, for_events), if for_events > 0 => {}
            Some(one) = self.registrations.recv(), if for_registrations > 0 => registrations.push(one),
            else => std::future::pending().await,
        }
    }

    /// Takes what waits already and has room in the batch.
    pub fn take_waiting(&mut self, batch: &mut Batch) {
        while batch.room_for_requests() > 0
            && let Ok(input) = self.requests.try_recv()
        {
            batch.requests.push(input);
        }
        while batch.room_for_events() > 0
            && let Ok(input) = self.events.try_recv()
        {
            batch.events.push(input);
        }
        while batch.room_for_registrations() > 0
            && let Ok(registration) = self.registrations.try_recv()
        {
            batch.registrations.push(registration);
        }
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

    fn room_for_registrations(&self) -> usize {
        MOST_REGISTRATIONS.saturating_sub(self.registrations.len())
    }
}
