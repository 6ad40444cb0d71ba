//! The account of GPU-time: what every GPU really did at each moment, beside what the committed rows say it did.

use std::collections::BTreeMap;
use std::fmt::Write;

use headway_engine::record::{Availability, JobState};
use headway_types::{GpuHealth, Timestamp};

use crate::clock::START;
use crate::gang::Pace;
use crate::world::World;

/// What a GPU does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Activity {
    Idle,
    /// Granted, its group not training yet.
    Starting,
    Training,
    /// Its processes live, but no step comes: hung, stopped, or a member of the gang is gone.
    Stalled,
    /// Its group is being ended, or has ended and is not yet released.
    Stopping,
    /// Broken, or its node down or out of sight.
    Unavailable,
}

impl Activity {
    const ALL: [Activity; 6] = {
        use Activity as A;
        [A::Training, A::Starting, A::Stopping, A::Stalled, A::Idle, A::Unavailable]
    };
}

/// GPU-seconds by what was true and what was believed.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct GpuTime {
    cells: BTreeMap<(Activity, Activity), f64>,
    /// Training whose samples count: saved and committed, or part of a job that ended well.
    pub useful: f64,
}

impl GpuTime {
    #[must_use]
    pub fn total(&self) -> f64 {
        self.cells.values().sum()
    }

    #[must_use]
    pub fn really(&self, activity: Activity) -> f64 {
        self.cells.iter().filter(|((truth, _), _)| *truth == activity).map(|(_, time)| time).sum()
    }

    #[must_use]
    pub fn believed(&self, activity: Activity) -> f64 {
        self.cells.iter().filter(|((_, belief), _)| *belief == activity).map(|(_, time)| time).sum()
    }

    /// Share of all GPU-time in which belief and truth differed.
    #[must_use]
    pub fn unaccounted(&self) -> f64 {
        let differs: f64 = self.cells.iter().filter(|((truth, belief), _)| truth != belief).map(|(_, time)| time).sum();
        differs / self.total().max(1e-9)
    }

    /// The same share of the time in which a GPU was, or was believed to be, in use.
    #[must_use]
    pub fn unaccounted_in_use(&self) -> f64 {
        let idle = [Activity::Idle, Activity::Unavailable];
        let used = self.cells.iter().filter(|((truth, belief), _)| !idle.contains(truth) || !idle.contains(belief));
        let used: f64 = used.map(|(_, time)| time).sum();
        self.unaccounted() * self.total() / used.max(1e-9)
    }

    /// A table in Markdown, in GPU-hours.
    #[must_use]
    pub fn table(&self) -> String {
        let mut text =
            String::from("| activity | really, GPU-hours | share | believed, GPU-hours |\n|---|---|---|---|\n");
        let total = self.total().max(1e-9);
        let mut row = |name: &str, really: f64, believed: Option<f64>| {
            let believed = believed.map_or(String::new(), |time| format!("{:.1}", time.max(0.0) / 3_600.0));
            let really = really.max(0.0);
            let _ =
                writeln!(text, "| {name} | {:.1} | {:.2} % | {believed} |", really / 3_600.0, 100.0 * really / total);
        };
        for activity in Activity::ALL {
            let name = format!("{activity:?}").to_lowercase();
            row(&name, self.really(activity), Some(self.believed(activity)));
            if activity == Activity::Training {
                row("– of it useful", self.useful, None);
                row("– of it done again or lost", (self.really(activity) - self.useful).max(0.0), None);
            }
        }
        row("all", total, Some(total));
        let (all, used) = (100.0 * self.unaccounted(), 100.0 * self.unaccounted_in_use());
        let _ = write!(text, "\nUnaccounted (belief differs from truth): {all:.3} %, of the time in use {used:.3} %\n");
        for ((truth, belief), time) in
            self.cells.iter().filter(|((truth, belief), time)| truth != belief && **time > 0.0)
        {
            let _ = writeln!(text, "- really {truth:?}, believed {belief:?}: {:.3} %", 100.0 * time / total);
        }
        text.replace("really Idle, believed Training", "really nothing, believed Training")
    }
}

/// Integrates over time.
#[derive(Debug, Default)]
pub(crate) struct Meter {
    nodes: Vec<(Timestamp, Vec<(Activity, Activity)>)>,
    pub time: GpuTime,
}

impl Meter {
    pub fn new(nodes: usize) -> Self {
        Self { nodes: vec![(START, Vec::new()); nodes], time: GpuTime::default() }
    }

    /// From now on the node's GPUs do this.
    fn set(&mut self, node: usize, now: Timestamp, states: Vec<(Activity, Activity)>) {
        let (since, before) = &mut self.nodes[node];
        let passed = now.since(*since).0;
        for cell in before.iter() {
            *self.time.cells.entry(*cell).or_default() += passed;
        }
        (*since, *before) = (now, states);
    }
}

impl World<'_> {
    /// Brings the account up to now for nodes on which something may have changed.
    pub fn measure(&mut self) {
        for node in std::mem::take(&mut self.touched) {
            let states = self.states(node);
            self.meter.set(node, self.clock.now, states);
        }
    }

    /// Every GPU did one thing at each moment, no more and no less, and no more was useful than was trained.
    pub fn check_account(&self) -> Result<(), String> {
        let gpus: usize = self.nodes.iter().map(|node| node.inventory.gpus.len()).sum();
        let passed = gpus as f64 * self.clock.now.since(START).0;
        let counted = self.meter.time.total();
        // The last step of a group that is being stopped counts, too.
        let trained = self.meter.time.really(Activity::Training) + self.meter.time.really(Activity::Stopping);
        if (counted - passed).abs() > 1e-6 * passed.max(1.0) {
            return Err(format!("{passed} GPU-seconds have passed, {counted} are accounted for"));
        }
        if self.meter.time.useful > trained * (1.0 + 1e-6) + 1e-3 {
            return Err(format!("{} GPU-seconds were useful of {trained} trained", self.meter.time.useful));
        }
        Ok(())
    }

    fn states(&self, index: usize) -> Vec<(Activity, Activity)> {
        let node = &self.nodes[index];
        let here = node.up || !node.rebooting;
        let row = self.store.nodes.get(&node.inventory.node);
        let seen = row.is_some_and(|row| row.availability == Availability::Available);
        let gpus = node.inventory.gpus.iter().map(|gpu| {
            let healthy = |gpus: &[headway_types::Gpu]| {
                gpus.iter().any(|one| one.uuid == gpu.uuid && one.health == GpuHealth::Healthy)
            };
            let listed = row.is_some_and(|row| healthy(&row.inventory.gpus));
            let belief = match self.store.held.get(&gpu.uuid) {
                _ if !seen => Activity::Unavailable,
                Some(key) => self.believed_of(*key),
                None if listed => Activity::Idle,
                None => Activity::Unavailable,
            };
            let user = node.alive.iter().find(|(_, group)| group.gpus.contains(&gpu.uuid));
            let truth = match user {
                Some((key, group)) => match self.gangs.get(key).map(|gang| gang.pace(self.clock.now)) {
                    _ if group.stopping => Activity::Stopping,
                    Some(Pace::Ending) => Activity::Stopping,
                    Some(Pace::Starting) => Activity::Starting,
                    Some(Pace::Training) => Activity::Training,
                    Some(Pace::Stalled) | None => Activity::Stalled,
                },
                None if !here || gpu.health != GpuHealth::Healthy => Activity::Unavailable,
                // Without a process nothing happens on it: what it is kept for is what the rows say.
                None if belief == Activity::Training => Activity::Idle,
                None => belief,
            };
            (truth, belief)
        });
        gpus.collect()
    }

    fn believed_of(&self, key: crate::world::Key) -> Activity {
        let Some(job) = self.store.jobs.get(&key.0) else { return Activity::Unavailable };
        let allocation = self.store.allocations.get(&key);
        let opaque = job.spec.training().is_none();
        let trains = opaque || allocation.is_some_and(|one| one.training_at.is_some());
        match &job.state {
            JobState::Starting { generation, .. } if *generation == key.1 => Activity::Starting,
            JobState::Running { generation, .. } if *generation == key.1 && trains => Activity::Training,
            JobState::Running { generation, .. } if *generation == key.1 => Activity::Starting,
            _ => Activity::Stopping,
        }
    }

    /// GPU-seconds a gang has trained for since what was last saved become useful.
    pub fn bank(&mut self, key: crate::world::Key, samples: Option<headway_types::Sequences>) {
        let Some(gang) = self.gangs.get_mut(&key) else { return };
        let upto = match samples {
            Some(samples) => gang.saves.get(&samples).copied().unwrap_or(gang.banked),
            None => gang.trained,
        };
        self.meter.time.useful += (upto - gang.banked).max(0.0);
        gang.banked = gang.banked.max(upto);
    }
}
