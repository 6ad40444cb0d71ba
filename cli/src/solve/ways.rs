//! A job's own goodput table: rows become the planner's, one per GPU type where a row names none.

use headway_api::solve::{Way, Ways};
use headway_planner::{GoodputTable, TableRow};
use headway_types::{GpuCount, GpuType, NodeCount};

use super::check::{FASTEST, Findings, MOST, brief};

/// Watts of one GPU taken for meant.
const MOST_WATTS: f64 = 1e6;

/// Rows of a job; those without a type hold for each of `types`.
pub fn table(ways: Ways, types: &[GpuType], field: &str, findings: &mut Findings) -> GoodputTable {
    if ways.0.is_empty() {
        let hint = "leave goodput out if the job is rigid";
        findings.hint(field, "names no way to run", hint);
    }
    let mut rows = Vec::with_capacity(ways.0.len());
    for (at, way) in ways.0.into_iter().enumerate() {
        check(&way, at, field, findings);
        let row = |gpu_type: GpuType, label: Option<String>| TableRow {
            gpu_type,
            gpus: GpuCount(way.gpus),
            nodes: way.nodes.map(NodeCount),
            goodput: way.goodput,
            watts_per_gpu: way.watts_per_gpu,
            label,
        };
        match way.gpu_type {
            Some(gpu_type) => rows.push(row(GpuType(gpu_type), way.label)),
            None => rows.extend(types.iter().map(|gpu_type| row(gpu_type.clone(), way.label.clone()))),
        }
    }
    if let Some(twin) = twin(&rows) {
        let nodes = twin.nodes.map(|nodes| format!(" on {nodes} nodes")).unwrap_or_default();
        let message = format!("a second row for {}{nodes} of {}", twin.gpus.words(), twin.gpu_type);
        findings.hint(field, message, "rows for the same allocation need different labels");
    }
    GoodputTable { rows }
}

/// A row that nothing tells from another.
fn twin(rows: &[TableRow]) -> Option<&TableRow> {
    let mut order: Vec<&TableRow> = rows.iter().collect();
    let key = |row: &&TableRow| (row.gpus, row.nodes);
    let names = |a: &&TableRow, b: &&TableRow| a.gpu_type.cmp(&b.gpu_type).then_with(|| a.label.cmp(&b.label));
    order.sort_by(|a, b| key(a).cmp(&key(b)).then_with(|| names(a, b)));
    let same = |pair: &&[&TableRow]| key(&pair[0]) == key(&pair[1]) && names(&pair[0], &pair[1]).is_eq();
    order.windows(2).find(same).map(|pair| pair[0])
}

fn check(way: &Way, at: usize, field: &str, findings: &mut Findings) {
    if !(1..=MOST).contains(&way.gpus) {
        findings.add(format_args!("{field}[{at}].gpus"), format!("must be 1 to {MOST}, not {}", way.gpus));
    }
    if let Some(nodes) = way.nodes
        && (nodes == 0 || !way.gpus.is_multiple_of(nodes))
    {
        let hint = "every node of a job gives it the same number of GPUs";
        let message = format!("{} GPUs cannot be divided over {nodes} nodes", way.gpus);
        findings.hint(format_args!("{field}[{at}].nodes"), message, hint);
    }
    if !(way.goodput > 0.0 && way.goodput <= FASTEST) {
        let hint = "leave out what cannot be run";
        let message = format!("must be above 0 and {FASTEST:e} at most, not {}", brief(way.goodput));
        findings.hint(format_args!("{field}[{at}].goodput"), message, hint);
    }
    if let Some(watts) = way.watts_per_gpu {
        findings.number(watts, 0.0..=MOST_WATTS, format_args!("{field}[{at}].watts_per_gpu"));
    }
}
