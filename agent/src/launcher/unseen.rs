//! What became of processes that no agent has watched: the next one reads what the shells around them wrote down.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use headway_node::{Exit, NodeEvent, Process};
use headway_types::{Fault, Generation, JobId};

use super::Launcher;
use crate::environment;
use crate::process;
use crate::recovery::read_exit;

/// How long a stop waits for shells whose command has ended. They need far less, unless the machine is overloaded.
const LAST_MOMENT: Duration = Duration::from_millis(200);
const LOOK_AGAIN: Duration = Duration::from_millis(1);

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

    /// How those of the processes ended that are gone by now, as far as they left an exit status. The shell around a rank outlives its
    /// command by a moment, in which it writes that status: a process that is in it is waited for.
    pub(crate) async fn left(&self, job: JobId, generation: Generation, processes: &[Process]) -> Vec<(u32, Exit)> {
        let deadline = Instant::now() + LAST_MOMENT;
        let mut left = Vec::new();
        for process in processes {
            let gone = loop {
                if !process::runs(process) {
                    break true;
                }
                // The status alone proves nothing: it is in a file of the job's own user.
                let ends = process::has_no_running_child(process)
                    || self.written_exit(job, generation, process.rank).is_some();
                if !ends || Instant::now() >= deadline {
                    break false;
                }
                tokio::time::sleep(LOOK_AGAIN).await;
            };
            let exit = if gone { self.written_exit(job, generation, process.rank) } else { None };
            left.extend(exit.map(|exit| (process.rank, exit)));
        }
        left
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
        read_exit(&self.site.files, job, generation, rank)
    }
}
