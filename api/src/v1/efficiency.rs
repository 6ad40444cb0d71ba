//! What a job made of its GPU-time, told at its end.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// What a job made of its GPU-time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct EfficiencyReport {
    /// "used 11.2 GPU-hours: 93 % useful, 5 % starting, 2 % redone or lost".
    pub summary: String,
    /// What costs most comes first.
    pub advice: Vec<EfficiencyAdvice>,
}

/// Something that its owner can change.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct EfficiencyAdvice {
    /// `lost_work`, `slow_start`, `slow_stop`, `hangs`, `fails_by_itself`, `progress_silent`, `not_modelled`, `no_noise` or `generous_limit`.
    pub code: String,
    /// What was measured and which field of the specification to change.
    pub detail: String,
}
