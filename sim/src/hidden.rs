//! Gangs that follow the hidden truth of `core/emulation` instead of its linear one, as those of `gang` do: this is its shell in virtual time, as the
//! emulated fleet is in wall time. Evidence is gathered with them; histories full of faults use the linear truth.

use headway_emulation::{Hearing, Mishap, Mishaps, Nature, Progress, Run, RunEvent, Said, Seed, Setting, Workload};
use headway_node::{Exit, Signal, WorkerMessage, WorkerOrder};
use headway_types::{CheckpointRef, Fault, NodeClass, NodeCount, Seconds, StepReport};

use crate::clock::START;
use crate::deed::{Comeback, Deed};
use crate::item::Item;
use crate::world::{Key, World};

/// From SIGTERM to the exit of a process with nothing to save.
const DIE: Seconds = Seconds(0.5);
/// 128 + SIGTERM.
const TERMINATED: Exit = Exit::Code(143);

/// The world that gangs with a hidden truth live in.
#[derive(Clone, Debug, PartialEq)]
pub struct HiddenWorld {
    pub seed: Seed,
    pub nature: Nature,
    /// Longest stretch of steps that one report covers.
    pub report_every: Seconds,
    /// Times the published rates of mishaps; 0: none.
    pub mishaps: f64,
}

impl Default for HiddenWorld {
    fn default() -> Self {
        Self { seed: Seed(0), nature: Nature::GENTLE, report_every: Seconds(10.0), mishaps: 0.0 }
    }
}

/// The run of a gang.
#[derive(Clone, Debug)]
pub(crate) struct HiddenRun {
    pub run: Run,
    due_at: Option<headway_types::Timestamp>,
    /// Whether it was asked to stop over the socket; such workers exit 0.
    ordered: bool,
}

impl World<'_> {
    /// All processes of a gang with a hidden truth are up.
    pub fn begin_hidden(&mut self, key: Key, workload: Workload) -> Result<(), String> {
        let Some(gang) = self.gangs.get(&key) else { return Ok(()) };
        let indexes = gang.order.placement.slices().iter().filter_map(|slice| self.node_index(slice.node));
        let classes: Vec<NodeClass> = indexes.map(|index| self.nodes[index].inventory.class()).collect();
        let each = classes.iter().map(|class| (class, NodeCount(1)));
        let Some(class) = headway_emulation::of_gang(each) else { return Ok(()) };
        let world = &self.scenario.hidden;
        let resumed = gang.order.resume.as_ref().map(|from| (from.generation, from.samples_seen));
        let progress = resumed
            .and_then(|(generation, samples)| self.gangs.get(&(key.0, generation))?.progress.get(&samples).copied());
        let setting = Setting {
            seed: world.seed,
            // By name, so that a job is the same whatever the scheduler calls it.
            job: world.seed.about(gang.order.job_name.as_bytes()),
            nature: world.nature,
            order: &gang.order,
            class: &class,
            workload,
            progress: progress.unwrap_or_default(),
        };
        let mut run = Run::new(&setting).map_err(|error| format!("{}: {error}", gang.order.job_name))?;
        run.report_every = world.report_every;
        if let Some(gang) = self.gangs.get_mut(&key) {
            gang.hidden = Some(HiddenRun { run, due_at: None, ordered: false });
        }
        self.run_event(key, RunEvent::Begin);
        self.crowd();
        Ok(())
    }

    /// The moment of a run has come.
    pub fn tick_hidden(&mut self, key: Key) {
        let now = self.clock.now;
        let Some(gang) = self.gangs.get_mut(&key) else { return };
        let whole = gang.complete();
        let Some(hidden) = gang.hidden.as_mut().filter(|hidden| hidden.due_at == Some(now)) else { return };
        hidden.due_at = None;
        if gang.done || gang.hung {
            return;
        }
        if whole { self.run_event(key, RunEvent::Tick) } else { self.hang(key) }
    }

    pub fn order_hidden(&mut self, key: Key, order: WorkerOrder) {
        let event = match order {
            WorkerOrder::Configure { revision, configuration, .. } => RunEvent::Configure { revision, configuration },
            WorkerOrder::Checkpoint => RunEvent::Save,
            WorkerOrder::Stop { checkpoint, .. } => {
                if let Some(hidden) = self.gangs.get_mut(&key).and_then(|gang| gang.hidden.as_mut()) {
                    hidden.ordered = true;
                }
                RunEvent::Stop { checkpoint }
            }
        };
        self.run_event(key, event);
    }

    /// A signal to the part of a gang on one node.
    pub fn signal_hidden(&mut self, node: usize, key: Key, signal: Signal) {
        let Some(group) = self.nodes[node].alive.get(&key) else { return };
        let ranks: Vec<u32> = group.processes.keys().copied().collect();
        let hearing = self.gangs.get(&key).and_then(|gang| Some(gang.hidden.as_ref()?.run.hearing()));
        let (after, exit) = match (signal, hearing.unwrap_or(Hearing::Broken)) {
            (Signal::Kill, _) => (Seconds(0.05), Exit::Signal(9)),
            (Signal::Terminate, Hearing::Orderly) => return self.run_event(key, RunEvent::Stop { checkpoint: true }),
            (Signal::Terminate, Hearing::Broken) => (DIE, TERMINATED),
            (Signal::Terminate, Hearing::Deaf) | (Signal::Notice { .. }, _) => return,
        };
        for rank in ranks {
            self.clock.after(after, Item::Die { node, key, rank: Some(rank), exit, fault: None });
        }
    }

    /// One event into a gang's run, and what its workers say.
    pub fn run_event(&mut self, key: Key, event: RunEvent) {
        let now = self.clock.now;
        let Some(hidden) = self.gangs.get_mut(&key).and_then(|gang| gang.hidden.as_mut()) else { return };
        let said = hidden.run.handle(now, event);
        said.into_iter().for_each(|said| self.hear_hidden(key, said));
        let Some(hidden) = self.gangs.get_mut(&key).and_then(|gang| gang.hidden.as_mut()) else { return };
        let due = hidden.run.due().filter(|due| hidden.due_at.is_none_or(|known| *due < known));
        if let Some(due) = due {
            hidden.due_at = Some(due);
            self.clock.at(due, Item::Hidden { key });
        }
    }

    fn hear_hidden(&mut self, key: Key, said: Said) {
        let Some(gang) = self.gangs.get_mut(&key) else { return };
        let first = gang.first_node();
        let message = match said {
            Said::Hello { capabilities } => {
                gang.trains = true;
                self.touch_gang(key);
                WorkerMessage::Hello { rank: 0, capabilities: Some(capabilities) }
            }
            Said::Phases { phases } => WorkerMessage::Phases { phases },
            Said::Steps { report } => {
                self.trained(key, &report);
                WorkerMessage::Step { report }
            }
            Said::Saved { step, samples_seen, duration } => {
                gang.saves.insert(samples_seen, gang.trained);
                let progress = gang.hidden.as_ref().map(|hidden| hidden.run.progress());
                gang.progress.insert(samples_seen, progress.unwrap_or_default());
                let generation = gang.order.generation;
                let path = format!("{}/{generation}/step-{step:09}", gang.order.checkpoint_dir);
                let manifest_sha256 = format!("{step:064x}");
                let checkpoint = CheckpointRef { generation, path, step, samples_seen, manifest_sha256 };
                WorkerMessage::Checkpoint { checkpoint, duration }
            }
            Said::SaveFailed { .. } => return,
            Said::Stopped { step, samples_seen } => WorkerMessage::Stopped { step, samples_seen },
            Said::OutOfMemory => return self.leave_hidden(key, Exit::Code(1), Some(Fault::out_of_memory())),
            Said::Exited { complete } => {
                let ordered = gang.hidden.as_ref().is_some_and(|hidden| hidden.ordered);
                if complete {
                    gang.trained = self.scenario.jobs[gang.truth].runs.0 * f64::from(gang.order.placement.gpus().0);
                }
                let exit = if complete || ordered { Exit::Code(0) } else { TERMINATED };
                return self.leave_hidden(key, exit, None);
            }
        };
        if let Some(first) = self.node_index(first) {
            self.say(first, key, message);
        }
    }

    fn trained(&mut self, key: Key, report: &StepReport) {
        let at = self.clock.now.since(START);
        let Some(gang) = self.gangs.get_mut(&key) else { return };
        gang.step = report.step;
        gang.samples = report.samples_seen;
        gang.trained += report.duration.0 * f64::from(gang.order.placement.gpus().0);
        let (truth, hidden) = (gang.truth, gang.hidden.as_ref());
        let Some((progress, goodput)) = hidden.and_then(|one| Some((one.run.progress(), one.run.goodput()?))) else {
            return;
        };
        self.watcher.trained(truth, at, report, progress, goodput);
        self.tell_hidden_ranks(key);
    }

    fn tell_hidden_ranks(&mut self, key: Key) {
        let now = self.clock.now;
        let Some(gang) = self.gangs.get_mut(&key) else { return };
        if now.since(gang.ranks_told_at).0 < crate::training::RANKS_EVERY.0 {
            return;
        }
        gang.ranks_told_at = now;
        let Some(hidden) = gang.hidden.as_ref() else { return };
        let mut busy = std::collections::BTreeMap::<_, std::collections::BTreeMap<u32, Seconds>>::new();
        for (node, rank) in &gang.alive {
            if let Some(seconds) = hidden.run.busy(now, *rank) {
                busy.entry(*node).or_default().insert(*rank, seconds);
            }
        }
        let (job, generation) = key;
        for (node, busy) in busy {
            if let Some(index) = self.node_index(node).filter(|index| self.nodes[*index].up) {
                self.send_report(index, headway_types::NodeReport::RankTimes { job, generation, busy });
            }
        }
    }

    fn leave_hidden(&mut self, key: Key, exit: Exit, fault: Option<Fault>) {
        if let Some(gang) = self.gangs.get_mut(&key) {
            gang.done = true;
        }
        self.exit_all(key, exit, fault.as_ref());
        self.crowd();
    }

    /// Who shares the fabric has changed: gangs of several nodes hear how many of the other nodes are held by such gangs.
    fn crowd(&mut self) {
        if self.scenario.hidden.nature.contention == 0.0 {
            return;
        }
        let wide = |gang: &&crate::gang::Gang| {
            gang.hidden.is_some() && !gang.done && !gang.alive.is_empty() && gang.order.placement.nodes().0 > 1
        };
        let gangs: Vec<(Key, u32)> =
            self.gangs.values().filter(wide).map(|gang| (gang.key(), gang.order.placement.nodes().0)).collect();
        let held: u32 = gangs.iter().map(|(_, nodes)| nodes).sum();
        let all = self.nodes.len() as u32;
        for (key, own) in gangs {
            let others = f64::from(held - own) / f64::from(all.saturating_sub(own).max(1));
            self.run_event(key, RunEvent::Crowd { share: others.min(1.0) });
        }
    }

    /// Enters the next mishap into the clock.
    pub fn expect_mishap(&mut self) {
        let now = self.clock.now;
        if let Some((at, node, mishap)) = self.mishaps.as_mut().and_then(|mishaps| mishaps.next(now)) {
            self.clock.at(at, Item::Mishap { node, mishap });
        }
    }

    pub fn happen(&mut self, node: usize, mishap: Mishap) {
        self.expect_mishap();
        *self.tried.entry(name(&mishap).to_owned()).or_default() += 1;
        match mishap {
            Mishap::GpuBreak { gpu, repair, .. } => {
                let gpu = (gpu * self.nodes[node].inventory.gpus.len() as f64) as usize;
                self.apply(Deed::BreakGpu { node, gpu, lasts: repair });
            }
            Mishap::Reboot { down } => {
                self.apply(Deed::StopAgent { node, comeback: Comeback::Rebooted, back_after: down });
            }
            Mishap::Crash { .. } => self.apply(Deed::KillWorker { node }),
            Mishap::Hang => self.apply(Deed::HangWorkers { node }),
            Mishap::Straggler { rank, factor, lasts } => {
                let Some(key) = self.victim(node) else { return };
                let Some(gang) = self.gangs.get(&key) else { return };
                let here = self.nodes[node].inventory.node;
                let ranks: Vec<u32> = gang.alive.iter().filter(|(id, _)| *id == here).map(|(_, rank)| *rank).collect();
                let at = ((rank * ranks.len() as f64) as usize).min(ranks.len().saturating_sub(1));
                if let Some(rank) = ranks.get(at).copied() {
                    self.run_event(key, RunEvent::Straggle { rank, factor, lasts });
                }
            }
        }
    }
}

fn name(mishap: &Mishap) -> &'static str {
    match mishap {
        Mishap::GpuBreak { .. } => "GpuBreak",
        Mishap::Reboot { .. } => "NodeReboot",
        Mishap::Crash { .. } => "WorkerDeath",
        Mishap::Hang => "WorkerHang",
        Mishap::Straggler { .. } => "Straggler",
    }
}

/// The stream of mishaps of a scenario, if it has any.
pub(crate) fn mishaps(world: &HiddenWorld, nodes: usize) -> Option<Mishaps> {
    (world.mishaps > 0.0)
        .then(|| Mishaps::new(world.seed, headway_emulation::MishapRates::default(), world.mishaps, nodes))
}

/// Progress at a save.
pub(crate) type Saves = std::collections::BTreeMap<headway_types::Sequences, Progress>;
