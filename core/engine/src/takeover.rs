//! A takeover: another server led before this one, and was stopped, ended or fell silent.

use headway_types::{Seconds, Timestamp};

use crate::draft::Note;
use crate::engine::Engine;

/// Why another server leads no more.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Cause {
    /// It was told to stop.
    Stopped,
    /// Its connection to the database ended while it spoke: it was killed, or the database was.
    Ended,
    /// It hung, was stopped in its tracks or was cut off: nobody had heard of it for so long, in wall time.
    Silent(Seconds),
}

/// Who led before this term.
#[derive(Clone, Debug, PartialEq)]
pub struct TookOver {
    pub at: Timestamp,
    /// Where the former leader was reached.
    pub from: String,
    pub cause: Cause,
}

impl Engine {
    pub(crate) fn took_over(&mut self, from: String, to: &str, cause: Cause) {
        let (why, said) = match cause {
            Cause::Stopped => ("stopped", "which was told to stop".to_owned()),
            Cause::Ended => ("ended", "whose connection to the database ended".to_owned()),
            Cause::Silent(silent) => ("silent", format!("which had been silent for {:.1} s", silent.0)),
        };
        let note = Note::new("scheduler.took_over", format!("{to} leads now, after {from}, {said}"));
        self.facts.note(note.with("from", &from).with("to", to).with("why", why));
        self.seen.took_over = Some(TookOver { at: self.facts.now, from, cause });
    }
}
