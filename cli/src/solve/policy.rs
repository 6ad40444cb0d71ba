//! The policy of a document over the planner's defaults.

use headway_api::solve::{Policy as WirePolicy, PowerCap as WirePowerCap};
use headway_planner::{Policy, PowerCap};
use headway_types::{GpuType, Seconds};

use super::check::{Findings, MOST};

const DAYS: f64 = 86_400.0;

pub fn policy(of: WirePolicy, findings: &mut Findings) -> Policy {
    let default = Policy::default();
    let mut within = |name: &str, value: Option<f64>, least: f64, most: f64, default: f64| match value {
        Some(value) => findings.number(value, least..=most, format_args!("policy.{name}")),
        None => default,
    };
    let patience = match of.patience_seconds {
        Some(given) => given.map(|seconds| Seconds(within("patience_seconds", Some(seconds), 0.0, 365.0 * DAYS, 0.0))),
        None => default.patience,
    };
    let min_gain = within("min_gain", of.min_gain, 0.0, 1.0, default.min_gain);
    Policy {
        objective: of.objective.unwrap_or(default.objective),
        solver: of.solver.unwrap_or(default.solver),
        power: within("power", of.power, -2.0, 1.0, default.power),
        epsilon: within("epsilon", of.epsilon, 0.01, 10.0, default.epsilon),
        horizon: Seconds(within("horizon_seconds", of.horizon_seconds, 1.0, 365.0 * DAYS, default.horizon.0)),
        min_gain,
        fresh_gain: within("fresh_gain", of.fresh_gain, min_gain, 1.0, default.fresh_gain.max(min_gain)),
        settling: Seconds(within("settling_seconds", of.settling_seconds, 1.0, 365.0 * DAYS, default.settling.0)),
        min_batch_gain: within("min_batch_gain", of.min_batch_gain, 0.0, 1.0, default.min_batch_gain),
        service_exponent: within("service_exponent", of.service_exponent, 0.0, 2.0, default.service_exponent),
        patience,
        patience_share: within("patience_share", of.patience_share, 0.0, 10.0, default.patience_share),
        turn: Seconds(within("turn_seconds", of.turn_seconds, 1.0, 365.0 * DAYS, default.turn.0)),
        shortest_first: within("shortest_first", of.shortest_first, 0.0, 0.99, default.shortest_first),
        min_return: within("min_return", of.min_return, 0.0, 1.0, default.min_return),
        domain_loss: within("domain_loss", of.domain_loss, 0.0, 1.0, default.domain_loss),
        max_moves: of.max_moves,
        tolerance: within("tolerance", of.tolerance, 0.0, 1.0, default.tolerance),
        node_budget: of
            .node_budget
            .map_or(default.node_budget, |budget| findings.whole(budget, 1..=100_000_000, "policy.node_budget")),
        power_cap: of.power_cap.map(|cap| power_cap(cap, findings)),
        // They name nodes, projects and types of the document.
        rows: Vec::new(),
    }
}

fn power_cap(of: WirePowerCap, findings: &mut Findings) -> PowerCap {
    let most = 1e6 * f64::from(MOST);
    let busy = of.busy_watts.into_iter().map(|(gpu_type, watts)| {
        let watts = findings.number(watts, 0.0..=1e6, format_args!("policy.power_cap.busy_watts.{gpu_type}"));
        (GpuType(gpu_type), watts)
    });
    PowerCap {
        busy: busy.collect(),
        watts: findings.number(of.watts, 0.0..=most, "policy.power_cap.watts"),
        idle: findings.number(of.idle_watts, 0.0..=1e6, "policy.power_cap.idle_watts"),
    }
}
