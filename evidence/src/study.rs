//! The studies of the evidence report: each a question, a workload, worlds and contenders.

use headway_emulation::Nature;
use headway_types::Seconds;

use crate::contender::{Contender, ContenderError};
use crate::run::{AT_WILL, Settings};
use crate::workload::Named;

/// One question asked of the scheduler.
pub struct Study {
    pub name: &'static str,
    pub title: &'static str,
    pub about: &'static str,
    pub cluster: &'static str,
    pub workload: Named,
    pub loads: &'static [f64],
    pub contenders: &'static [&'static str],
    /// By name; the first is what the others are held against.
    pub worlds: Vec<(&'static str, Settings)>,
}

const MIXED: &str = "H100x8=4,A100-80Gx8=4";
const POLICIES: &[&str] = &[
    "fifo_backfill",
    "goodput",
    "sia",
    "sia_simulated",
    "pollux",
    "pollux_layouts",
    "shortest_remaining",
    "least_attained",
    "fifo_backfill_maximum",
    "static",
];
const PEERS: &[&str] =
    &["fifo_backfill", "goodput", "sia", "sia_simulated", "pollux", "pollux_layouts", "shortest_remaining"];
const RIVALS: &[&str] = &["fifo_backfill", "goodput", "sia", "pollux_layouts", "shortest_remaining"];

impl Study {
    pub fn contenders(&self) -> Result<Vec<Contender>, ContenderError> {
        self.contenders.iter().map(|name| Contender::read(name, &[])).collect()
    }
}

/// All studies of drawn workloads.
#[must_use]
pub fn studies() -> Vec<Study> {
    let harsh = || vec![("harsh", Settings::default())];
    vec![
        Study {
            name: "loads",
            title: "Policies under three loads",
            about: "A day of jobs of 1 to 70 billion parameters on 32 H100 and 32 A100. `fifo_backfill` and `static` run the rigid twin of each job, at the \
                    size and batch it asks for; the others may choose. Load is the GPU-time asked for over the cluster's.",
            cluster: MIXED,
            workload: Named::Day,
            loads: &[0.35, 0.9, 2.0],
            contenders: POLICIES,
            worlds: harsh(),
        },
        Study {
            name: "at-will",
            title: "Moves at will",
            about: "The same day with rounds each minute and jobs that may be moved whenever a policy likes, as the papers of Sia and Pollux have it. \
                    Elsewhere jobs are moved as rarely as specifications ask by default: ten minutes apart, twice in an hour, for 3 % of their time at most.",
            cluster: MIXED,
            workload: Named::Day,
            loads: &[0.9],
            contenders: PEERS,
            worlds: vec![("at will", Settings { elastic: AT_WILL, round_every: Seconds(60.0), ..Settings::default() })],
        },
        Study {
            name: "bursts",
            title: "The same work in bursts",
            about: "Up to 15 jobs come within two minutes, then nobody for hours.",
            cluster: MIXED,
            workload: Named::Bursts,
            loads: &[0.9],
            contenders: RIVALS,
            worlds: harsh(),
        },
        Study {
            name: "ablations",
            title: "What each freedom brings",
            about: "Goodput with one freedom taken away: the batch stays the reference batch; no size below the request; tensor and pipeline degrees \
                    stay those of the request; no other size than the request.",
            cluster: MIXED,
            workload: Named::Day,
            loads: &[0.9],
            contenders: &["fifo_backfill", "goodput", "batch_fixed", "no_shrinking", "layout_fixed", "size_fixed"],
            worlds: harsh(),
        },
        Study {
            name: "equals",
            title: "A queue of equals",
            about: "48 equal rigid half-hour jobs of 8 GPUs on 64 GPUs, all at once: six waves, 180 minutes, is the ideal.",
            cluster: "H100x8=8",
            workload: Named::Equals,
            loads: &[1.0],
            contenders: &["fifo_backfill", "goodput", "sia", "least_attained"],
            worlds: harsh(),
        },
        Study {
            name: "equals-day",
            title: "A longer queue of equals",
            about: "100 such jobs at once: twelve and a half waves; work while jobs come is what is done within eight hours, 400 GPU-hours are all.",
            cluster: "H100x8=8",
            workload: Named::EqualsDay,
            loads: &[1.0],
            contenders: &["fifo_backfill", "goodput", "sia", "least_attained"],
            worlds: harsh(),
        },
        sensitivity(),
    ]
}

fn sensitivity() -> Study {
    let base = Settings::default();
    let world = |change: fn(Nature) -> Nature| Settings { nature: change(base.nature), ..base.clone() };
    Study {
        name: "sensitivity",
        title: "In other worlds",
        about: "The same day at load 0.9 where something else is true: starts take ten times as long; failures come ten times as often; each layout's \
                own factor deviates by 25 % (in the logarithm) instead of 8 %; κ by 80 % and the noise that gradients show by 60 % instead of 40 \
                and 30 %; and all as the scheduler believes but for what published runs differ from its prior (`gentle`).",
        cluster: MIXED,
        workload: Named::Day,
        loads: &[0.9],
        contenders: RIVALS,
        worlds: vec![
            ("harsh", base.clone()),
            ("starts × 10", world(|nature| Nature { starts: 10.0 * nature.starts, ..nature })),
            ("failures × 10", Settings { mishaps: 10.0, ..world(|nature| Nature { failures: 10.0, ..nature }) }),
            ("layouts ± 25 %", world(|nature| Nature { layout: 0.25, ..nature })),
            ("wrong φ and κ", world(|nature| Nature { kappa: 0.8, noise: 0.6, ..nature })),
            ("gentle", Settings { nature: Nature::GENTLE, ..base }),
        ],
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::cluster::Cluster;

    #[test]
    fn every_study_can_be_run() {
        for study in studies() {
            assert_eq!(study.contenders().unwrap().len(), study.contenders.len());
            assert!(study.cluster.parse::<Cluster>().is_ok() && !study.worlds.is_empty(), "{}", study.name);
        }
    }
}
