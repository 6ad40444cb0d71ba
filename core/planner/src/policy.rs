//! What a round is to achieve: the objective and its constants. An operator's settings, stored with every input.

use std::collections::BTreeMap;

use headway_types::{GpuType, Objective, Seconds, Solver};
use serde::{Deserialize, Serialize};

use crate::site::SiteRow;

/// The objective and its constants.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Policy {
    pub objective: Objective,
    /// Who solves the round's program.
    pub solver: Solver,
    /// Power p of the value u(s) = ((s+ε)^p − ε^p)/p; 1 is the work done itself, 0 the logarithm.
    pub power: f64,
    /// How far jobs with less left go first: 0 not at all, towards 1 strictly (`urgency`).
    pub shortest_first: f64,
    /// ε of the value function.
    pub epsilon: f64,
    /// Longest time over which a move may pay for itself.
    pub horizon: Seconds,
    /// A change of a running job's GPUs, a stop included, must gain this share of what the job does now, beyond its cost: at
    /// power 1, of its goodput, counted as that of a job of middle urgency. Taking GPUs that nobody else wants need not.
    pub min_gain: f64,
    /// The same right after a move; it decays towards `min_gain` with `settling`.
    pub fresh_gain: f64,
    /// Time constant of that decay.
    pub settling: Seconds,
    /// Growth must bring so much per further GPU, as a share of what the job's most productive GPU does; what brings less is
    /// left to others, or to nobody.
    pub min_return: f64,
    /// A live batch change must raise the job's goodput by this share.
    pub min_batch_gain: f64,
    /// Weights fall with attained service as (1 + GPU-seconds/600)^−x; 0: they do not.
    pub service_exponent: f64,
    /// A job that has waited this long, and for `patience_share` times as long as it would run at its smallest size (half of
    /// that if it has one size only), is due: others shrink for it, and what comes free goes to it before it goes to others.
    /// `None`: never.
    pub patience: Option<Seconds>,
    pub patience_share: f64,
    /// For a job that is due a peer may be stopped that has run for so long and will not end within as long again.
    pub turn: Seconds,
    /// Goodput lost per fabric domain beyond the first.
    pub domain_loss: f64,
    /// Most jobs whose GPUs one round may change; starts do not count. `None`: no limit.
    pub max_moves: Option<u32>,
    pub power_cap: Option<PowerCap>,
    /// The site's own rules.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub rows: Vec<SiteRow>,
    /// Relative gap at which the search may stop.
    pub tolerance: f64,
    /// Search limit: branch-and-bound nodes of a solve.
    pub node_budget: u32,
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            objective: Objective::Goodput,
            solver: Solver::Headway,
            power: 1.0,
            shortest_first: 0.9,
            epsilon: 0.1,
            horizon: Seconds(3_600.0),
            min_gain: 0.5,
            fresh_gain: 0.5,
            settling: Seconds(900.0),
            min_return: 0.05,
            min_batch_gain: 0.03,
            service_exponent: 0.0,
            patience: Some(Seconds(3_600.0)),
            patience_share: 1.0,
            turn: Seconds(4.0 * 3_600.0),
            domain_loss: 0.02,
            max_moves: None,
            power_cap: None,
            rows: Vec::new(),
            tolerance: 1e-4,
            node_budget: 10_000,
        }
    }
}

impl Policy {
    /// Patience, where the objective knows it: others have an order of their own.
    pub(crate) fn patience(&self) -> Option<Seconds> {
        self.patience.filter(|_| self.objective == Objective::Goodput)
    }
}

/// A limit on what the GPUs draw together.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PowerCap {
    pub watts: f64,
    /// What one GPU draws while it trains, where a job's table does not say. A type that is absent draws 700 W.
    #[serde(default)]
    pub busy: BTreeMap<GpuType, f64>,
    /// What one idle GPU draws.
    #[serde(default)]
    pub idle: f64,
}
