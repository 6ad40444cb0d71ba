//! A takeover: another server led before this one and fell silent, or gave the lead back.

use headway_types::{Seconds, Timestamp};

use crate::draft::Note;
use crate::engine::Engine;

/// Who led before this term.
#[derive(Clone, Debug, PartialEq)]
pub struct TookOver {
    pub at: Timestamp,
    /// Where the former leader was reached.
    pub former: String,
    /// For how long nobody had heard of it, in wall time.
    pub silent: Seconds,
}

impl Engine {
    pub(crate) fn took_over(&mut self, former: String, silent: Seconds) {
        let message = format!("this server leads now; {former} did before and was silent for {:.1} s", silent.0);
        let note = Note::new("scheduler.took_over", message).with("former", &former);
        self.facts.note(note.with("seconds", format!("{:.1}", silent.0)));
        self.seen.took_over = Some(TookOver { at: self.facts.now, former, silent });
    }
}
