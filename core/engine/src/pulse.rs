//! The cluster's figures at a moment, as the overview shows them and as they are kept once a minute.

use std::collections::BTreeMap;

use headway_goodput::{catalog, training_flops_per_token};
use headway_types::spec::Work;
use headway_types::{GpuCount, TokensPerSecond};

use crate::account::Activity;
use crate::record::{Availability, JobState};
use crate::view::{JobView, View};

/// What a cluster has, what of it works, and what waits.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Pulse {
    pub gpus_total: GpuCount,
    pub gpus_healthy: GpuCount,
    /// Held by a job.
    pub gpus_busy: GpuCount,
    pub gpus_by_activity: BTreeMap<Activity, GpuCount>,
    pub jobs_waiting: u32,
    pub jobs_running: u32,
    /// What waiting jobs ask for at least.
    pub gpus_waited_for: GpuCount,
    /// Σ over running jobs; reference tokens per second.
    pub goodput: TokensPerSecond,
    /// Likewise, raw.
    pub throughput: TokensPerSecond,
    /// Σ of the running jobs' speed-up over their fair share.
    pub speed_up: f64,
    /// Useful model FLOP/s over the peak of all healthy GPUs; `None`: the catalog does not know a device, or a job has no shape.
    pub goodput_mfu: Option<f64>,
}

/// What the running jobs of one project make of its GPUs.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ProjectPulse {
    /// Held by a job of the project.
    pub gpus_busy: GpuCount,
    pub jobs_running: u32,
    /// Σ over running jobs; reference tokens per second.
    pub goodput: TokensPerSecond,
    /// Likewise, raw.
    pub throughput: TokensPerSecond,
}

impl View {
    /// Of the projects of jobs that hold GPUs; what is part of a project is none of its own.
    #[must_use]
    pub fn project_pulses(&self) -> BTreeMap<String, ProjectPulse> {
        let mut pulses: BTreeMap<String, ProjectPulse> = BTreeMap::new();
        for live in self.jobs.values() {
            let Some(held) = live.allocation.as_ref().filter(|held| held.holds()) else { continue };
            let pulse = pulses.entry(live.job.spec.project.clone()).or_default();
            pulse.gpus_busy += held.held_gpus();
            if matches!(live.job.state, JobState::Running { .. }) {
                pulse.jobs_running += 1;
                pulse.goodput += live.live.goodput.unwrap_or_default();
                pulse.throughput += live.live.throughput.unwrap_or_default();
            }
        }
        pulses
    }

    /// Looks at every job and GPU once.
    #[must_use]
    pub fn pulse(&self) -> Pulse {
        let nodes = || self.nodes.values();
        let mut pulse = Pulse {
            gpus_total: GpuCount(nodes().map(|node| node.node.inventory.gpus.len() as u32).sum()),
            gpus_healthy: nodes().map(|node| node.node.inventory.healthy()).sum(),
            gpus_busy: GpuCount(nodes().map(|node| node.held.len() as u32).sum()),
            gpus_by_activity: self.census(),
            goodput_mfu: self.goodput_mfu(),
            ..Pulse::default()
        };
        for live in self.jobs.values() {
            match live.job.state {
                JobState::Queued { .. } => {
                    pulse.jobs_waiting += 1;
                    if !live.job.is_blocked() {
                        pulse.gpus_waited_for += live.job.least();
                    }
                }
                JobState::Running { .. } => {
                    pulse.jobs_running += 1;
                    pulse.goodput += live.live.goodput.unwrap_or_default();
                    pulse.throughput += live.live.throughput.unwrap_or_default();
                    pulse.speed_up += self.speed_up(live).unwrap_or(0.0);
                }
                _ => {}
            }
        }
        pulse
    }

    fn goodput_mfu(&self) -> Option<f64> {
        let mut peak = 0.0;
        for node in self.nodes.values().filter(|node| node.node.availability == Availability::Available) {
            let inventory = &node.node.inventory;
            peak += catalog::peak_flop_per_second(&inventory.class()).ok()?.0 * f64::from(inventory.healthy().0);
        }
        let mut useful = 0.0;
        for live in self.jobs.values() {
            let Some(goodput) = live.live.goodput else { continue };
            let Work::Model(shape) = &live.job.spec.training()?.work else { return None };
            useful += goodput.0 * training_flops_per_token(shape);
        }
        (peak > 0.0).then_some(useful / peak)
    }

    /// A job's speed-up over its fair share: what the plan expects, scaled by how measured goodput compares with the plan's.
    #[must_use]
    pub fn speed_up(&self, live: &JobView) -> Option<f64> {
        let predicted = self.target.as_ref()?.plan.assignments.get(&live.job.id)?.predicted;
        let scale = match live.live.goodput {
            Some(measured) if predicted.goodput.0 > 0.0 => measured.0 / predicted.goodput.0,
            _ => 1.0,
        };
        Some(predicted.speed_up * scale).filter(|value| value.is_finite())
    }
}
