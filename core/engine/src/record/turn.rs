//! How long a job has had its turn.

use headway_types::Seconds;
use serde::{Deserialize, Serialize};

/// How long a job waited in the queue before it last started from there, and how long it has run since. Moves, drains
/// and failures do not end a turn; a preemption does, and so does having run as long as it had waited.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Turn {
    pub waited: Seconds,
    /// Under generations that are over.
    pub ran: Seconds,
}

impl Turn {
    #[must_use]
    pub fn is_over(self) -> bool {
        self.ran.0 >= self.waited.0
    }
}
