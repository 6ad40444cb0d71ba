//! Another server led a short while ago, and was not told to stop.

use headway_types::Seconds;

use super::{Finding, Kind, Subject, elapsed, lasting};
use crate::takeover::{Cause, TookOver};
use crate::view::View;

/// For so long it is told.
const TOLD: Seconds = Seconds(900.0);

pub(super) fn findings(view: &View) -> Option<Finding<'_>> {
    let told = |done: &&TookOver| done.cause != Cause::Stopped && elapsed(view, done.at).0 < TOLD.0;
    let done = view.took_over.as_ref().filter(told)?;
    Some(Finding {
        kind: Kind::TookOver,
        subject: Subject::Planning,
        since: Some(done.at),
        at_stake: None,
        told: Box::new(move || {
            let headline = format!("This server has led {}; {} did before", lasting(view, done.at), done.from);
            let step =
                "See why it fell silent (its log, its machine), so that there is a standby again: headway admin leader";
            (headline, step.into())
        }),
    })
}
