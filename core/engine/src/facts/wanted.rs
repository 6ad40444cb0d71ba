//! That a round is wanted, and what is told of why: of all that came together the weightiest, and how much more there was.

use headway_types::Timestamp;

use super::Facts;

/// What calls for a round.
#[derive(Clone, Debug)]
pub(crate) struct RoundWanted {
    /// In words: of the weightiest causes since the newest round the first.
    pub cause: String,
    weight: Weight,
    /// How much else has happened.
    more: u32,
    pub since: Timestamp,
    /// When it was last asked for.
    pub newest: Timestamp,
}

/// Which of several causes is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Weight {
    /// The round before left something to do, or none has been made.
    Leftover,
    /// Something has happened to the cluster.
    Happened,
    /// Somebody has asked for something.
    Asked,
}

impl RoundWanted {
    /// The cause, and how much there is besides.
    pub fn in_words(self) -> String {
        match self.more {
            0 => self.cause,
            more => format!("{}, and {more} more", self.cause),
        }
    }
}

impl Facts {
    /// Asks for a round since something has happened.
    pub fn ask_round(&mut self, cause: String) {
        self.want_round(Weight::Happened, cause);
    }

    /// Asks for a round since somebody has asked for something that takes one.
    pub fn ask_round_for_somebody(&mut self, cause: String) {
        self.want_round(Weight::Asked, cause);
    }

    /// Asks for a round since the one before left something to do.
    pub fn ask_round_again(&mut self, cause: String) {
        self.want_round(Weight::Leftover, cause);
    }

    fn want_round(&mut self, weight: Weight, cause: String) {
        let now = self.now;
        let Some(wanted) = &mut self.round_wanted else {
            self.round_wanted = Some(RoundWanted { cause, weight, more: 0, since: now, newest: now });
            return;
        };
        wanted.newest = now;
        let lesser = wanted.weight.min(weight);
        if wanted.cause != cause && lesser > Weight::Leftover {
            wanted.more += 1;
        }
        if weight > wanted.weight {
            (wanted.cause, wanted.weight) = (cause, weight);
        }
    }
}
