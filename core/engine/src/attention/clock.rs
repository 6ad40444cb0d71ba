//! A machine's clock that is not believed.

use super::{Finding, Kind, Subject};
use crate::view::View;

pub(super) fn findings(view: &View) -> Option<Finding<'_>> {
    let doubt = view.doubt?;
    Some(Finding {
        kind: Kind::ClockDoubted,
        subject: Subject::Planning,
        since: Some(doubt.since),
        at_stake: None,
        told: Box::new(move || {
            let headline =
                format!("{}: the cluster's time goes on without it", view.clock_doubted().unwrap_or_default());
            let step =
                "Set the clock of the scheduler's machine; if it is right, restart the server with --trust-clock";
            (headline, step.into())
        }),
    })
}

impl View {
    /// In words; `None` while the machine's clock is believed.
    #[must_use]
    pub fn clock_doubted(&self) -> Option<String> {
        let beyond = self.doubt?.beyond.words();
        Some(format!("The machine's clock is {beyond} ahead of all that is stored"))
    }
}
