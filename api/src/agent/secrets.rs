//! What is shown of messages that bring secrets.

use core::fmt;

use super::wire;

impl fmt::Debug for wire::Launch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Launch")
            .field("job_id", &self.job_id)
            .field("generation", &self.generation)
            .field("rendezvous_port", &self.rendezvous_port)
            .field("secrets", &self.secrets.keys())
            .finish()
    }
}
