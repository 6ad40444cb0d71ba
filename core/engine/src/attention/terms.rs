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

pub(super) fn returning(view: &View) -> Option<Finding<'_>> {
    let until = view.returning.as_ref()?.until;
    Some(Finding {
        kind: Kind::NodesReturning,
        subject: Subject::Planning,
        since: None,
        at_stake: None,
        told: Box::new(move || {
            let step = format!("Wait: it ends by itself within {}", until.since(view.at).words());
            (view.nodes_returning().unwrap_or_default(), step)
        }),
    })
}

impl View {
    /// That nodes are waited for after a restore; `None` where none are.
    #[must_use]
    pub fn nodes_returning(&self) -> Option<String> {
        let returning = self.returning.as_ref()?;
        let age = self.at.since(returning.backup_of).words();
        let awaited = returning.awaited;
        let nodes = if awaited == 1 { "1 node has".into() } else { format!("{awaited} nodes have") };
        Some(format!("A backup of {age} ago was restored and {nodes} yet to come back: no GPUs are granted until then"))
    }

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
