//! One node looked at closely, in words and rows.

use headway_api::v1::{GpuDetail, NodeHealth, NodeIncident};

use crate::output::{moment, optional};
use crate::table::Column;

/// Lines of the past that are shown; `-o json` has them all.
const SHOWN: usize = 10;

pub const GPUS: [Column; 8] = [
    Column::new("GPU"),
    Column::new("UUID").cut(12),
    Column::new("MEMORY").rank(2),
    Column::new("DOES").state(),
    Column::new("JOB").cut(12),
    Column::new("UTIL").rank(1),
    Column::new("TEMP").rank(1),
    Column::new("FAULT").cut(16),
];

pub fn gpu_row(of: &GpuDetail) -> Vec<String> {
    let last = of.faults.first().map(|fault| format!("{} {}", moment(fault.at), fault.message));
    vec![
        of.index.to_string(),
        of.uuid.clone(),
        format!("{:.0} GiB", of.memory_bytes as f64 / f64::from(1 << 30)),
        of.activity.clone(),
        of.job_name.clone().unwrap_or_else(|| "-".into()),
        optional(of.utilisation_pct, |share| format!("{share:.0} %")),
        optional(of.temperature_celsius, |degrees| format!("{degrees:.0} °C")),
        of.broken_cause.clone().or(last).unwrap_or_else(|| "-".into()),
    ]
}

/// What is so, then what was.
pub fn health(of: &NodeHealth) -> String {
    let lot = match &of.reservation {
        // The reservation is the only thing that keeps work away.
        Some(one) if !one.maintenance && of.why_not.len() == 1 => {
            &format!("takes jobs of members of {} only", one.name)
        }
        _ if of.takes_work => "takes work",
        _ => "takes nothing new",
    };
    let mut lines = vec![format!(
        "{} {lot}: {}, {}, {}; {} of {} GPUs healthy; health score {:.2}",
        of.node_name, of.availability, of.policy, of.standing, of.gpus_healthy, of.gpus_total, of.health_score
    )];
    lines.extend(of.why_not.iter().map(|why| format!("  {why}")));
    lines.extend(of.remarks.iter().map(|remark| format!("  remark: {remark}")));
    if let Some(until) = of.standing_until {
        lines.push(format!("{} until {}, {} in a row", of.standing, moment(until), of.quarantines_in_a_row));
    }
    if !of.incidents.is_empty() {
        lines.push("incidents, the newest first:".into());
        lines.extend(of.incidents.iter().take(SHOWN).map(incident));
    }
    if !of.history.is_empty() {
        lines.push("states, the newest first:".into());
        lines.extend(of.history.iter().take(SHOWN).map(|state| {
            let gpus = format!("{} of {} GPUs healthy", state.gpus_healthy, state.gpus);
            format!("  {} {}, {}, {}, {gpus}", moment(state.since), state.availability, state.policy, state.standing)
        }));
    }
    let left = of.incidents.len().saturating_sub(SHOWN) + of.history.len().saturating_sub(SHOWN);
    if left > 0 {
        lines.push(format!("and {left} more; -o json has them all"));
    }
    lines.join("\n")
}

fn incident(of: &NodeIncident) -> String {
    format!("  {} {}: {}", moment(of.at), of.verb, of.message)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::output::Printer;

    #[test]
    fn health_says_why_not_and_what_led_to_it() {
        let health_of: NodeHealth = serde_json::from_value(json!({
            "at": "2026-03-01T14:00:00Z", "node_id": uuid::Uuid::nil(), "node_name": "h100-07", "takes_work": false,
            "why_not": ["it is in quarantine: GPU 3: XID 79: the GPU has fallen off the bus"],
            "availability": "available", "availability_since": null, "connected": true, "heard_at": null,
            "policy": "schedulable", "standing": "quarantined", "health_score": 0.42,
            "standing_since": "2026-03-01T13:55:00Z", "standing_until": "2026-03-01T14:05:00Z",
            "standing_reason": "GPU 3: XID 79", "quarantines_in_a_row": 1, "conditions": [],
            "remarks": ["workers are not bound in memory"], "left_out": null, "gpus_total": 8, "gpus_healthy": 7,
            "history": [{"since": "2026-03-01T13:55:00Z", "availability": "available", "policy": "schedulable",
                "standing": "quarantined", "gpus": 8, "gpus_healthy": 7}],
            "incidents": [{"at": "2026-03-01T13:55:00Z", "seq": 9, "verb": "gpu.broken", "xid": 79,
                "message": "GPU 3 of node h100-07 is broken: XID 79: the GPU has fallen off the bus"}],
        }))
        .expect("health as the scheduler writes it");
        insta::assert_snapshot!(health(&health_of), @"
        h100-07 takes nothing new: available, schedulable, quarantined; 7 of 8 GPUs healthy; health score 0.42
          it is in quarantine: GPU 3: XID 79: the GPU has fallen off the bus
          remark: workers are not bound in memory
        quarantined until 2026-03-01T14:05:00Z, 1 in a row
        incidents, the newest first:
          2026-03-01T13:55:00Z gpu.broken: GPU 3 of node h100-07 is broken: XID 79: the GPU has fallen off the bus
        states, the newest first:
          2026-03-01T13:55:00Z available, schedulable, quarantined, 7 of 8 GPUs healthy
        ");
    }

    #[test]
    fn health_of_a_reserved_node_says_for_whom_it_is() {
        let told = |maintenance: bool, why_not: &[&str]| {
            let health_of: NodeHealth = serde_json::from_value(json!({
                "at": "2026-03-01T14:00:00Z", "node_id": uuid::Uuid::nil(), "node_name": "n1", "takes_work": false,
                "why_not": why_not, "availability": "available", "availability_since": null, "connected": true,
                "heard_at": null, "policy": "schedulable", "standing": "good", "health_score": 1.0, "standing_since": null,
                "standing_until": null, "standing_reason": null, "quarantines_in_a_row": 0, "conditions": [], "remarks": [],
                "left_out": null, "gpus_total": 8, "gpus_healthy": 8, "history": [], "incidents": [],
                "reservation": {"id": uuid::Uuid::nil(), "name": "demo", "from": "2026-03-01T12:00:00Z",
                    "until": "2026-03-01T16:00:00Z", "maintenance": maintenance, "active": true},
            }))
            .expect("health as the scheduler writes it");
            health(&health_of).split_once(':').expect("a headline").0.to_owned()
        };
        assert_eq!(told(false, &["it is reserved"]), "n1 takes jobs of members of demo only");
        assert_eq!(told(true, &["it is reserved"]), "n1 takes nothing new");
        assert_eq!(told(false, &["ada has cordoned it", "it is reserved"]), "n1 takes nothing new");
    }

    #[test]
    fn a_gpu_is_a_row_and_what_nobody_says_is_a_dash() {
        let gpu: GpuDetail = serde_json::from_value(json!({
            "uuid": "GPU-0-3", "index": 3, "memory_bytes": 85_899_345_920_u64, "healthy": false,
            "broken_cause": "XID 79", "activity": "broken", "job_id": null, "job_name": null, "generation": null,
            "measured_at": "2026-03-01T13:59:55Z", "utilisation_pct": null, "temperature_celsius": 41.4, "power_watts": 86.0,
            "memory_used_bytes": 4_294_967_296_u64, "faults": [],
        }))
        .expect("a GPU as the scheduler writes it");
        insta::assert_snapshot!(Printer::plain().rows(&GPUS, vec![gpu_row(&gpu)]), @"
        GPU  UUID     MEMORY  DOES    JOB  UTIL  TEMP   FAULT
        3    GPU-0-3  80 GiB  broken  -    -     41 °C  XID 79
        ");
    }
}
