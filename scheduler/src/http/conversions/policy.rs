//! The policy on the wire, both ways.

use headway_api::v1;
use headway_engine::record::{PolicyMode, PolicySettings};
use headway_types::Seconds;

use crate::http::problem::Problem;

pub fn policy(of: &PolicySettings) -> v1::Policy {
    v1::Policy {
        mode: policy_mode(of.mode),
        power: of.objective.power,
        epsilon: of.objective.epsilon,
        horizon_seconds: of.objective.horizon.0,
        min_gain: of.objective.min_gain,
        min_batch_gain: of.objective.min_batch_gain,
        node_budget: of.objective.node_budget,
        round_every_seconds: of.round_every.0,
        round_pause_seconds: of.round_pause.0,
    }
}

pub fn policy_mode(of: PolicyMode) -> v1::PolicyMode {
    match of {
        PolicyMode::Auto => v1::PolicyMode::Auto,
        PolicyMode::Advisory => v1::PolicyMode::Advisory,
        PolicyMode::Paused => v1::PolicyMode::Paused,
    }
}

/// Checks what the planner relies on; the field that is wrong is named.
pub fn policy_settings(of: &v1::Policy) -> Result<PolicySettings, Problem> {
    let ranges = [
        ("power", of.power, -2.0, 1.0),
        ("epsilon", of.epsilon, 0.01, 10.0),
        ("horizon_seconds", of.horizon_seconds, 1.0, 30.0 * 86_400.0),
        ("min_gain", of.min_gain, 0.0, 1.0),
        ("min_batch_gain", of.min_batch_gain, 0.0, 1.0),
        ("node_budget", f64::from(of.node_budget), 1.0, 1e8),
        ("round_every_seconds", of.round_every_seconds, 1.0, 86_400.0),
        ("round_pause_seconds", of.round_pause_seconds, 0.0, 86_400.0),
    ];
    if let Some((field, _, least, most)) =
        ranges.iter().find(|(_, value, least, most)| !(least..=most).contains(&value))
    {
        return Err(Problem::invalid(format!("{field} must be between {least} and {most}")).field(*field));
    }
    Ok(PolicySettings {
        mode: match of.mode {
            v1::PolicyMode::Auto => PolicyMode::Auto,
            v1::PolicyMode::Advisory => PolicyMode::Advisory,
            v1::PolicyMode::Paused => PolicyMode::Paused,
        },
        objective: headway_planner::Policy {
            power: of.power,
            epsilon: of.epsilon,
            horizon: Seconds(of.horizon_seconds),
            min_gain: of.min_gain,
            min_batch_gain: of.min_batch_gain,
            node_budget: of.node_budget,
            ..headway_planner::Policy::default()
        },
        round_every: Seconds(of.round_every_seconds),
        round_pause: Seconds(of.round_pause_seconds),
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_policy_survives_the_wire() {
        let settings = PolicySettings::default();
        assert_eq!(policy_settings(&policy(&settings)).unwrap(), settings);
    }

    #[test]
    fn numbers_the_planner_cannot_use_are_refused() {
        let good = policy(&PolicySettings::default());
        assert!(policy_settings(&v1::Policy { epsilon: 0.0, ..good.clone() }).is_err());
        assert!(policy_settings(&v1::Policy { power: f64::NAN, ..good.clone() }).is_err());
        assert!(policy_settings(&v1::Policy { round_every_seconds: -1.0, ..good }).is_err());
    }
}
