#![allow(clippy::unwrap_used)]
//! Messages that no agent and no scheduler sends: understood or refused, and what was understood is sent on as it was.

use headway_fuzz::Target;
use prost::Message;

use super::tests::{from_agent, from_scheduler};
use super::{AgentToScheduler, SchedulerToAgent, WireError, wire};

/// Whether a message is understood; then it survives the wire. What is sent is compared: what is no number equals nothing.
fn understood<W, T>(input: &[u8]) -> bool
where
    W: Message + Default + for<'a> From<&'a T>,
    T: TryFrom<W, Error = WireError> + std::fmt::Debug,
{
    let Ok(message) = W::decode(input) else { return false };
    match T::try_from(message) {
        Ok(message) => {
            let sent = W::from(&message).encode_to_vec();
            let again = T::try_from(W::decode(sent.as_slice()).unwrap()).unwrap();
            assert_eq!(W::from(&again).encode_to_vec(), sent, "it is sent on otherwise");
            true
        }
        Err(error) => {
            assert!(!error.to_string().is_empty());
            false
        }
    }
}

#[test]
fn whatever_an_agent_sends_is_understood_or_refused() {
    let seeds = from_agent().into_iter().map(|message| wire::AgentMessage::from(&message).encode_to_vec());
    Target::message("agent-messages").seeds(seeds).check(understood::<wire::AgentMessage, AgentToScheduler>);
}

#[test]
fn whatever_a_scheduler_sends_is_understood_or_refused() {
    let seeds = from_scheduler().into_iter().map(|message| wire::SchedulerMessage::from(&message).encode_to_vec());
    Target::message("scheduler-messages").seeds(seeds).check(understood::<wire::SchedulerMessage, SchedulerToAgent>);
}
