//! The nodes that `headway up` promises, and the wait for them: it is up once jobs can start on all of them.

use std::collections::BTreeSet;
use std::time::Duration;

use headway_agent::FleetGroup;
use headway_api::client::{Client, ClientError};
use headway_api::v1::{AvailabilityKind, Node};
use tokio::time::Instant;

/// After this it is said which are missing. An agent makes itself known within a second or two on a machine that is not busy.
const WAIT: Duration = Duration::from_secs(60);
const POLL: Duration = Duration::from_millis(100);
/// Named one by one; of more only how many.
const NAMED: usize = 5;

/// Which nodes there are to be.
pub enum Expected {
    Named(BTreeSet<String>),
    /// Of an emulated fleet, which names its nodes itself.
    Counted(usize),
}

pub fn expected(agents: u32, fleet: &[FleetGroup]) -> Expected {
    match fleet {
        [] => Expected::Named((1..=agents).map(|number| format!("node-{number}")).collect()),
        groups => Expected::Counted(groups.iter().map(|group| group.nodes.0 as usize).sum()),
    }
}

/// Waits until all are there; else says which are not.
pub async fn wait(client: &Client, expected: &Expected) -> Result<Option<String>, ClientError> {
    let deadline = Instant::now() + WAIT;
    loop {
        let missing = missing(&client.nodes().await?, expected);
        if missing.is_none() || Instant::now() >= deadline {
            return Ok(missing);
        }
        tokio::time::sleep(POLL).await;
    }
}

fn missing(nodes: &[Node], expected: &Expected) -> Option<String> {
    let there = nodes.iter().filter(|node| node.availability == AvailabilityKind::Available);
    let after = WAIT.as_secs();
    match expected {
        Expected::Named(names) => {
            let there: BTreeSet<&str> = there.map(|node| node.name.as_str()).collect();
            let missing: Vec<&str> = names.iter().map(String::as_str).filter(|name| !there.contains(name)).collect();
            match missing.as_slice() {
                [] => None,
                [one] => Some(format!("{one} did not make itself known within {after} s")),
                few if few.len() <= NAMED => {
                    let (count, names) = (few.len(), few.join(", "));
                    Some(format!("{count} nodes did not make themselves known within {after} s: {names}"))
                }
                many => Some(format!(
                    "{} of {} nodes did not make themselves known within {after} s",
                    many.len(),
                    names.len()
                )),
            }
        }
        Expected::Counted(all) => {
            let missing = all.saturating_sub(there.count());
            (missing > 0).then(|| format!("{missing} of {all} nodes did not make themselves known within {after} s"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_is_named_or_counted() {
        assert_eq!(missing(&[], &expected(0, &[])), None);
        let two = missing(&[], &expected(2, &[]));
        assert_eq!(two.as_deref(), Some("2 nodes did not make themselves known within 60 s: node-1, node-2"));
        let many = missing(&[], &expected(9, &[]));
        assert_eq!(many.as_deref(), Some("9 of 9 nodes did not make themselves known within 60 s"));
        let counted = missing(&[], &Expected::Counted(4));
        assert_eq!(counted.as_deref(), Some("4 of 4 nodes did not make themselves known within 60 s"));
    }
}
