//! What became of processes that no agent has watched: the next one reads what the shells around them wrote down.

use std::collections::BTreeMap;

use headway_node::{Exit, NodeEvent};
use headway_types::{Fault, Generation, JobId};

use super::Launcher;
use crate::environment;
use crate::files::read_beginning;
use crate::process;

/// More than any exit status takes, in bytes.
const STATUS_LIMIT: u64 = 64;

impl Launcher {
    /// Kills what a launch that was cut short may have started. If each of its ranks has ended by itself, that is how the
    /// launch ended: what is done is not done again.
    pub(crate) fn sweep(&self, job: JobId, generation: Generation, ranks: Vec<u32>) {
        let launcher = self.clone();
        tokio::spawn(async move {
            // Read before anything is killed, whose end would be none of its own.
            let exits: BTreeMap<u32, Exit> =
                ranks.iter().filter_map(|rank| Some((*rank, launcher.written_exit(job, generation, *rank)?))).collect();
            launcher.end_all(job, generation).await;
            let event = if ranks.is_empty() || exits.len() < ranks.len() {
                let fault = Fault::of_infrastructure("the agent restarted during the launch");
                NodeEvent::SpawnFailed { job, generation, fault }
            } else {
                tracing::info!(job_id = %job, %generation, "a launch ended while no agent was there to see it");
                NodeEvent::EndedUnseen { job, generation, exits }
            };
            launcher.tell(event).await;
        });
    }

    /// Kills whatever carries this generation, and returns once nothing does.
    pub(super) async fn end_all(&self, job: JobId, generation: Generation) {
        if let Some(cgroups) = &self.site.cgroups {
            cgroups.end_group(job, generation).await;
        }
        process::sweep(environment::mark(self.site.inventory.now().node, job, generation), None).await;
    }

    /// What the shell around a rank wrote of its end; `None` if nothing, or not all of it.
    pub(super) fn written_exit(&self, job: JobId, generation: Generation, rank: u32) -> Option<Exit> {
        let written = read_beginning(&self.site.files.exit_status(job, generation, rank), STATUS_LIMIT).ok();
        let complete = written.filter(|text| text.ends_with('\n'));
        complete.and_then(|text| text.trim().parse().ok()).map(Exit::Code)
    }
}
