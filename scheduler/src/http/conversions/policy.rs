//! The policy on the wire, both ways.

use std::collections::BTreeMap;
use std::sync::Arc;

use headway_api::v1;
use headway_engine::record::{AutoApprove, MoveWindow, NoWindow, OwnQuota, PolicySettings, UserQuota};
use headway_planner::PowerCap;
use headway_types::{GpuSeconds, GpuType, Seconds};
use serde::Deserialize as _;
use serde_json::{Map, Value};

use super::site;
use crate::http::problem::Problem;

const DAY: f64 = 86_400.0;
/// Settings of which a change names parts.
const MERGED: [&str; 2] = ["user_quota", "user_quotas"];

pub fn policy(of: &PolicySettings) -> v1::Policy {
    let objective = &of.objective;
    v1::Policy {
        mode: of.mode,
        power: objective.power,
        epsilon: objective.epsilon,
        horizon_seconds: objective.horizon.0,
        min_gain: objective.min_gain,
        min_batch_gain: objective.min_batch_gain,
        node_budget: objective.node_budget,
        round_every_seconds: of.round_every.0,
        round_pause_seconds: of.round_pause.0,
        objective: Some(objective.objective),
        solver: Some(objective.solver),
        fresh_gain: Some(objective.fresh_gain),
        settling_seconds: Some(objective.settling.0),
        service_exponent: Some(objective.service_exponent),
        patience_seconds: Some(objective.patience.map(|patience| patience.0)),
        patience_share: Some(objective.patience_share),
        turn_seconds: Some(objective.turn.0),
        shortest_first: Some(objective.shortest_first),
        min_return: Some(objective.min_return),
        domain_loss: Some(objective.domain_loss),
        max_moves: Some(objective.max_moves),
        power_cap: Some(objective.power_cap.as_ref().map(|cap| v1::PowerCap {
            watts: cap.watts,
            busy_watts: cap.busy.iter().map(|(gpu_type, watts)| (gpu_type.0.clone(), *watts)).collect(),
            idle_watts: cap.idle,
        })),
        rows: Some(objective.rows.iter().map(site::row).collect()),
        tolerance: Some(objective.tolerance),
        usage_half_life_seconds: Some(of.usage_half_life.0),
        proposals_last_seconds: Some(of.proposals_last.0),
        auto_approve: Some(of.auto_approve.as_ref().map(|rule| v1::AutoApprove {
            max_moves: rule.max_moves,
            max_lost_gpu_hours: rule.max_lost.0 / 3_600.0,
            preempt: rule.preempt,
        })),
        move_windows: Some(of.move_windows.iter().map(ToString::to_string).collect()),
        user_quota: Some(quota(of.user_quota)),
        user_quotas: Some(of.user_quotas.iter().map(|(user, own)| (user.clone(), own_quota(*own))).collect()),
    }
}

/// The policy with what a body names of it; `null` takes a limit away. What is no setting, or no value of one, is named.
pub fn patched(body: &Map<String, Value>, base: &PolicySettings) -> Result<PolicySettings, Problem> {
    let Ok(Value::Object(mut whole)) = serde_json::to_value(policy(base)) else { return Err(Problem::internal()) };
    let known = whole.keys().cloned().collect::<Vec<_>>().join(", ");
    let read = |of: &Map<String, Value>| v1::Policy::deserialize(Value::Object(of.clone()));
    for (name, value) in body {
        if !whole.contains_key(name) {
            let unknown = Problem::invalid(format!("there is no setting \"{name}\"")).field(name);
            return Err(unknown.hint(format!("settings are {known}")));
        }
        if MERGED.contains(&name.as_str()) && value.is_null() {
            let hint =
                "name what changes of it; `null` in the place of a user takes away what that user has of its own";
            return Err(Problem::invalid(format!("{name} cannot be null")).field(name).hint(hint));
        }
        let merged = match whole.remove(name) {
            Some(former) if MERGED.contains(&name.as_str()) && value.is_object() => merged(former, value),
            _ => value.clone(),
        };
        whole.insert(name.clone(), merged);
        read(&whole).map_err(|wrong| Problem::invalid(format!("{name}: {wrong}")).field(name))?;
    }
    policy_settings(&read(&whole).map_err(|_| Problem::internal())?, base)
}

/// Checks what the planner relies on; the field that is wrong is named. What the body leaves out stays as in `base`.
pub fn policy_settings(of: &v1::Policy, base: &PolicySettings) -> Result<PolicySettings, Problem> {
    check_ranges(of)?;
    let kept = &base.objective;
    let seconds = |given: Option<f64>, kept: Seconds| given.map_or(kept, Seconds);
    Ok(PolicySettings {
        mode: of.mode,
        objective: headway_planner::Policy {
            objective: of.objective.unwrap_or(kept.objective),
            solver: of.solver.unwrap_or(kept.solver),
            power: of.power,
            epsilon: of.epsilon,
            horizon: Seconds(of.horizon_seconds),
            min_gain: of.min_gain,
            // A client that does not know of it raises it with `min_gain`.
            fresh_gain: of.fresh_gain.unwrap_or(kept.fresh_gain.max(of.min_gain)),
            settling: seconds(of.settling_seconds, kept.settling),
            min_batch_gain: of.min_batch_gain,
            service_exponent: of.service_exponent.unwrap_or(kept.service_exponent),
            patience: of.patience_seconds.map_or(kept.patience, |given| given.map(Seconds)),
            patience_share: of.patience_share.unwrap_or(kept.patience_share),
            turn: seconds(of.turn_seconds, kept.turn),
            shortest_first: of.shortest_first.unwrap_or(kept.shortest_first),
            min_return: of.min_return.unwrap_or(kept.min_return),
            domain_loss: of.domain_loss.unwrap_or(kept.domain_loss),
            max_moves: of.max_moves.unwrap_or(kept.max_moves),
            power_cap: of.power_cap.as_ref().map_or_else(|| kept.power_cap.clone(), |given| given.as_ref().map(cap)),
            rows: of.rows.as_deref().map_or_else(|| Ok(kept.rows.clone()), site::rows)?,
            tolerance: of.tolerance.unwrap_or(kept.tolerance),
            node_budget: of.node_budget,
        },
        round_every: Seconds(of.round_every_seconds),
        round_pause: Seconds(of.round_pause_seconds),
        usage_half_life: seconds(of.usage_half_life_seconds, base.usage_half_life),
        proposals_last: seconds(of.proposals_last_seconds, base.proposals_last),
        auto_approve: of
            .auto_approve
            .as_ref()
            .map_or_else(|| base.auto_approve.clone(), |given| given.as_ref().map(rule)),
        move_windows: of.move_windows.as_deref().map_or_else(|| Ok(base.move_windows.clone()), windows)?,
        user_quota: of.user_quota.map_or(base.user_quota, |given| own(given).over(base.user_quota)),
        user_quotas: of
            .user_quotas
            .as_ref()
            .map_or_else(|| base.user_quotas.clone(), |given| Arc::new(own_quotas(given))),
        resumes: base.resumes,
        version: base.version,
        last_change: base.last_change.clone(),
    })
}

pub fn quota(of: UserQuota) -> v1::UserQuota {
    v1::UserQuota {
        unfinished_jobs: Some(of.unfinished_jobs),
        specification_bytes: Some(of.specification_bytes),
        requests_per_second: Some(of.requests_per_second),
        request_burst: Some(of.request_burst),
    }
}

fn own_quota(of: OwnQuota) -> v1::UserQuota {
    v1::UserQuota {
        unfinished_jobs: of.unfinished_jobs,
        specification_bytes: of.specification_bytes,
        requests_per_second: of.requests_per_second,
        request_burst: of.request_burst,
    }
}

fn own(of: v1::UserQuota) -> OwnQuota {
    OwnQuota {
        unfinished_jobs: of.unfinished_jobs,
        specification_bytes: of.specification_bytes,
        requests_per_second: of.requests_per_second,
        request_burst: of.request_burst,
    }
}

/// Who has nothing of its own is not among them.
fn own_quotas(of: &BTreeMap<String, v1::UserQuota>) -> BTreeMap<String, OwnQuota> {
    let each = of.iter().map(|(user, quota)| (user.clone(), own(*quota)));
    each.filter(|(_, own)| *own != OwnQuota::default()).collect()
}

/// RFC 7396: what is named is changed, `null` takes away.
fn merged(former: Value, patch: &Value) -> Value {
    let Value::Object(patch) = patch else { return patch.clone() };
    let mut whole = if let Value::Object(former) = former { former } else { Map::new() };
    for (name, value) in patch {
        match (whole.remove(name), value) {
            (_, Value::Null) => {}
            (former, value) => drop(whole.insert(name.clone(), merged(former.unwrap_or_default(), value))),
        }
    }
    Value::Object(whole)
}

fn rule(of: &v1::AutoApprove) -> AutoApprove {
    AutoApprove { max_moves: of.max_moves, max_lost: GpuSeconds(of.max_lost_gpu_hours * 3_600.0), preempt: of.preempt }
}

fn windows(of: &[String]) -> Result<Vec<MoveWindow>, Problem> {
    let wrong = |wrong: NoWindow| Problem::invalid(wrong.to_string()).field("move_windows");
    of.iter().map(|text| text.parse().map_err(wrong)).collect()
}

fn cap(of: &v1::PowerCap) -> PowerCap {
    let busy = of.busy_watts.iter().map(|(gpu_type, watts)| (GpuType(gpu_type.clone()), *watts));
    PowerCap { watts: of.watts, busy: busy.collect(), idle: of.idle_watts }
}

fn check_ranges(of: &v1::Policy) -> Result<(), Problem> {
    let always = [
        ("power", of.power, -2.0, 1.0),
        ("epsilon", of.epsilon, 0.01, 10.0),
        ("horizon_seconds", of.horizon_seconds, 1.0, 30.0 * DAY),
        ("min_gain", of.min_gain, 0.0, 1.0),
        ("min_batch_gain", of.min_batch_gain, 0.0, 1.0),
        ("node_budget", f64::from(of.node_budget), 1.0, 1e8),
        ("round_every_seconds", of.round_every_seconds, 1.0, DAY),
        ("round_pause_seconds", of.round_pause_seconds, 0.0, DAY),
    ];
    let perhaps = [
        ("fresh_gain", of.fresh_gain, 0.0, 10.0),
        ("settling_seconds", of.settling_seconds, 1.0, 30.0 * DAY),
        ("service_exponent", of.service_exponent, 0.0, 10.0),
        ("patience_seconds", of.patience_seconds.flatten(), 1.0, 365.0 * DAY),
        ("patience_share", of.patience_share, 0.0, 10.0),
        ("turn_seconds", of.turn_seconds, 1.0, 365.0 * DAY),
        ("shortest_first", of.shortest_first, 0.0, 0.99),
        ("min_return", of.min_return, 0.0, 1.0),
        ("domain_loss", of.domain_loss, 0.0, 0.5),
        ("tolerance", of.tolerance, 0.0, 0.5),
        ("proposals_last_seconds", of.proposals_last_seconds, 60.0, 365.0 * DAY),
        ("auto_approve", of.auto_approve.iter().flatten().map(|rule| rule.max_lost_gpu_hours).next(), 0.0, 1e9),
        ("usage_half_life_seconds", of.usage_half_life_seconds, 60.0, 3_650.0 * DAY),
    ];
    let given = perhaps.into_iter().filter_map(|(field, value, least, most)| Some((field, value?, least, most)));
    let watts = of.power_cap.iter().flatten().flat_map(|cap| {
        let all = [cap.watts, cap.idle_watts].into_iter().chain(cap.busy_watts.values().copied());
        all.map(|watts| ("power_cap", watts, 0.0, 1e12))
    });
    let mut wrong =
        always.into_iter().chain(given).chain(watts).filter(|(_, value, least, most)| !(least..=most).contains(&value));
    match wrong.next() {
        Some((field, _, least, most)) => {
            Err(Problem::invalid(format!("{field} must be between {least} and {most}")).field(field))
        }
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use headway_planner::{Amount, Label, SiteRow};
    use headway_types::{GpuCount, Objective, PolicyMode, Solver};

    use super::*;

    /// Nothing in it is as it is by default.
    fn unusual() -> PolicySettings {
        PolicySettings {
            mode: PolicyMode::Advisory,
            objective: headway_planner::Policy {
                objective: Objective::Sia,
                solver: Solver::Milp,
                power: 0.5,
                epsilon: 0.2,
                horizon: Seconds(60.0),
                min_gain: 0.02,
                fresh_gain: 0.3,
                settling: Seconds(10.0),
                min_batch_gain: 0.04,
                service_exponent: 0.5,
                patience: None,
                patience_share: 0.5,
                turn: Seconds(7_200.0),
                shortest_first: 0.5,
                min_return: 0.3,
                domain_loss: 0.1,
                max_moves: Some(7),
                power_cap: Some(PowerCap {
                    watts: 1e6,
                    busy: [(GpuType("H100-80G".into()), 650.0)].into(),
                    idle: 70.0,
                }),
                rows: vec![SiteRow {
                    name: "few".into(),
                    amount: Amount {
                        gpu_type: Some(GpuType("H100-80G".into())),
                        project: Some("nlp".into()),
                        label: Some(Label { key: "team".into(), value: "a=b".into() }),
                        node: Some("n1".into()),
                    },
                    at_most: GpuCount(64),
                }],
                tolerance: 1e-3,
                node_budget: 5,
            },
            round_every: Seconds(5.0),
            round_pause: Seconds(0.5),
            usage_half_life: Seconds(3_600.0),
            user_quota: UserQuota { unfinished_jobs: 7, ..UserQuota::default() },
            user_quotas: Arc::new(BTreeMap::from([(
                "ada".to_owned(),
                OwnQuota { request_burst: Some(3), ..OwnQuota::default() },
            )])),
            ..PolicySettings::default()
        }
    }

    #[test]
    fn a_policy_survives_the_wire() {
        for settings in [PolicySettings::default(), unusual()] {
            let wire = serde_json::to_value(policy(&settings)).unwrap();
            let read: v1::Policy = serde_json::from_value(wire).unwrap();
            assert_eq!(policy_settings(&read, &PolicySettings::default()).unwrap(), settings);
        }
    }

    #[test]
    fn what_an_older_client_does_not_know_stays_as_it_is() {
        let known = ["mode", "power", "epsilon", "horizon_seconds", "min_gain", "min_batch_gain", "node_budget"];
        let mut wire = serde_json::to_value(policy(&unusual())).unwrap();
        let kept = |name: &str| known.contains(&name) || name.starts_with("round_");
        wire.as_object_mut().unwrap().retain(|name, _| kept(name));
        let read: v1::Policy = serde_json::from_value(wire).unwrap();
        assert_eq!(policy_settings(&read, &unusual()).unwrap(), unusual());
    }

    #[test]
    fn null_takes_a_limit_away() {
        let mut wire = serde_json::to_value(policy(&unusual())).unwrap();
        wire["max_moves"] = serde_json::Value::Null;
        wire["power_cap"] = serde_json::Value::Null;
        wire["rows"] = serde_json::json!([]);
        let read: v1::Policy = serde_json::from_value(wire).unwrap();
        let settings = policy_settings(&read, &unusual()).unwrap();
        assert_eq!((settings.objective.max_moves, settings.objective.power_cap), (None, None));
        assert!(settings.objective.rows.is_empty());
    }

    #[test]
    fn a_change_of_quotas_names_what_it_changes() {
        let patch = |body: Value, base: &PolicySettings| patched(body.as_object().unwrap(), base);
        let base = patch(serde_json::json!({"user_quota": {"unfinished_jobs": 5}}), &unusual()).unwrap();
        assert_eq!(base.user_quota, UserQuota { unfinished_jobs: 5, ..UserQuota::default() });
        assert_eq!(base.user_quotas, unusual().user_quotas);
        let body = serde_json::json!({"user_quotas": {"ada": {"unfinished_jobs": 9}, "bob": {"request_burst": 1}}});
        let both = patch(body, &base).unwrap();
        let ada = OwnQuota { unfinished_jobs: Some(9), request_burst: Some(3), ..OwnQuota::default() };
        assert_eq!((both.user_quotas.len(), both.user_quotas["ada"]), (2, ada));
        let less = patch(serde_json::json!({"user_quotas": {"ada": {"unfinished_jobs": null}, "bob": null}}), &both);
        assert_eq!(less.unwrap().user_quotas, unusual().user_quotas);
        let nobody = patch(serde_json::json!({"user_quotas": {"ada": {"request_burst": null}}}), &base).unwrap();
        assert!(nobody.user_quotas.is_empty());
        for wrong in [
            serde_json::json!({"user_quotas": {"ada": {"jobs": 1}}}),
            serde_json::json!({"user_quotas": {"ada": 5}}),
            serde_json::json!({"user_quota": {"unfinished_jobs": -1}}),
            serde_json::json!({"user_quota": null}),
        ] {
            assert!(patch(wrong, &base).is_err());
        }
    }

    #[test]
    fn numbers_the_planner_cannot_use_are_refused() {
        let good = policy(&PolicySettings::default());
        let refused = |wrong: v1::Policy| policy_settings(&wrong, &PolicySettings::default()).is_err();
        assert!(refused(v1::Policy { epsilon: 0.0, ..good.clone() }));
        assert!(refused(v1::Policy { power: f64::NAN, ..good.clone() }));
        assert!(refused(v1::Policy { settling_seconds: Some(0.0), ..good.clone() }));
        assert!(refused(v1::Policy { patience_seconds: Some(Some(f64::NAN)), ..good.clone() }));
        assert!(refused(v1::Policy { round_every_seconds: -1.0, ..good }));
    }
}
