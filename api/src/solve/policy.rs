//! What a round is to achieve. Every field has the planner's default.

use serde::Deserialize;

use super::count;
use crate::v1::{Objective, PowerCap, SiteRow, Solver, given};

/// The objective and its constants.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default, expecting = "a mapping of a policy")]
pub struct Policy {
    pub objective: Option<Objective>,
    /// Who solves the round.
    pub solver: Option<Solver>,
    /// Power p of the value u(s) = ((s+ε)^p − ε^p)/p.
    pub power: Option<f64>,
    pub epsilon: Option<f64>,
    /// Longest time over which a move may pay for itself.
    pub horizon_seconds: Option<f64>,
    /// What a move must gain: a share of one job's value.
    pub min_gain: Option<f64>,
    /// The same right after a move.
    pub fresh_gain: Option<f64>,
    /// Time constant of its decay.
    pub settling_seconds: Option<f64>,
    pub min_batch_gain: Option<f64>,
    /// Weights fall with attained service as (1 + GPU-seconds/600)^−x.
    pub service_exponent: Option<f64>,
    /// Whoever has waited this long goes first; `null`: nobody does.
    #[serde(deserialize_with = "given")]
    pub patience_seconds: Option<Option<f64>>,
    /// … and this many times as long as it would run at its smallest size (of one size only: half of both, a third where it needs over half of the GPUs of a type), up to sixteen times `patience_seconds`.
    pub patience_share: Option<f64>,
    /// Seconds. For a job that is due a peer may be stopped that has run so long and will not end within as long again.
    pub turn_seconds: Option<f64>,
    /// How far jobs with less left go first: 0 not at all, towards 1 strictly.
    pub shortest_first: Option<f64>,
    /// What growth must bring per further GPU, as a share of what the job's most productive GPU does; less is left to others.
    pub min_return: Option<f64>,
    /// Goodput lost per fabric domain beyond the first.
    pub domain_loss: Option<f64>,
    /// Most jobs whose GPUs the round may change.
    #[serde(default, deserialize_with = "count::maybe")]
    pub max_moves: Option<u32>,
    pub power_cap: Option<PowerCap>,
    /// The caller's own rules on who may hold how many GPUs of what.
    pub rows: Vec<SiteRow>,
    /// Relative gap at which the search may stop.
    pub tolerance: Option<f64>,
    /// Branch-and-bound nodes of a solve.
    #[serde(default, deserialize_with = "count::maybe")]
    pub node_budget: Option<u32>,
}
