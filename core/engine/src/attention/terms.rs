//! Nodes that do not follow this scheduler.

use super::{Finding, Kind, Subject, lasting};
use crate::view::View;

pub(super) fn findings(view: &View) -> Option<Finding<'_>> {
    let since = view.ahead.values().map(|one| one.since).min()?;
    Some(Finding {
        kind: Kind::NodesAhead,
        subject: Subject::Planning,
        since: Some(since),
        at_stake: None,
        told: Box::new(move || {
            let headline = format!("{} {}", view.nodes_ahead().unwrap_or_default(), lasting(view, since));
            let step = "If this database is the one that counts: headway admin readmit. Else stop this server and give it the right one";
            (headline, step.into())
        }),
    })
}

impl View {
    /// In words; `None` while all nodes follow.
    #[must_use]
    pub fn nodes_ahead(&self) -> Option<String> {
        let highest = self.ahead.values().map(|one| one.term).max()?;
        let nodes = match self.ahead.len() {
            1 => self.ahead.values().map(|one| format!("Node {} follows", one.name)).collect(),
            many => format!("{many} nodes follow"),
        };
        let follow = match highest > self.term {
            true => format!("the newer term {highest}, not {}", self.term),
            false => format!("another term {highest} than this scheduler's"),
        };
        Some(format!("{nodes} {follow}: the database is older than what they have lived through"))
    }
}
