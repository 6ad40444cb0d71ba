//! A reply as people read it.

use headway_api::solve::{Decided, Held, Reply};

use crate::output::{Printer, proven, si, solved_by};
use crate::table::Column;

const JOBS: [Column; 8] = [
    Column::new("JOB").cut(8),
    Column::new("GPUS"),
    Column::new("TYPE").rank(2),
    Column::new("WHERE").rank(3).cut(8),
    Column::new("AS").rank(4),
    Column::new("GOODPUT"),
    Column::new("SPEED-UP").rank(1),
    Column::new("WHY").wrap(24),
];

const MOVES: [Column; 4] =
    [Column::new("MOVE"), Column::new("JOB").cut(8), Column::new("GPUS"), Column::new("REASON").wrap(24)];

/// What was achieved, every job in a line, and what changes.
pub fn table(print: &Printer, reply: &Reply) -> String {
    let mut text = format!(
        "objective {:.4} -> {:.4}, {}, {} candidates\n",
        reply.objective_before,
        reply.objective,
        proven(reply.bound, reply.gap, 3),
        reply.candidates
    );
    if let Some(solver) = &reply.solver {
        text.push_str(&format!("{}\n", solved_by(solver)));
    }
    for scarce in &reply.scarce {
        text.push_str(&format!("one more of {} would be worth {:.4}\n", scarce.of, scarce.price));
    }
    for relaxed in &reply.relaxed {
        text.push_str(&format!("not kept: {} ({})\n", relaxed.rule, relaxed.reason));
    }
    text.push('\n');
    text.push_str(&print.table(&JOBS, reply.jobs.iter().map(job)));
    text.push('\n');
    if !reply.moves.is_empty() {
        let rows = reply.moves.iter().map(|step| {
            let gpus = format!("{} -> {}", step.from_gpus, step.to_gpus);
            vec![step.kind.clone(), step.job.clone(), gpus, step.reason.clone()]
        });
        text.push('\n');
        text.push_str(&print.table(&MOVES, rows));
        text.push('\n');
    }
    text
}

fn job(of: &Decided) -> Vec<String> {
    let dash = || "-".to_owned();
    let Some(allocation) = &of.allocation else {
        return vec![of.name.clone(), "0".into(), dash(), dash(), dash(), dash(), dash(), of.headline.clone()];
    };
    let nodes: Vec<String> = allocation.nodes.iter().map(|(node, held)| format!("{node}:{}", count(held))).collect();
    let configured = allocation.configuration.as_ref().map(|of| {
        let layout = &of.layout;
        let more = of.execution.unwrap_or_default();
        format!("dp{} tp{} pp{}{more}, batch {}", layout.dp, layout.tp, layout.pp, of.global_batch_sequences)
    });
    vec![
        of.name.clone(),
        allocation.gpus.unwrap_or_default().to_string(),
        allocation.gpu_type.clone().unwrap_or_else(dash),
        shortened(&nodes),
        configured.or_else(|| allocation.label.clone()).unwrap_or_else(dash),
        allocation.goodput.filter(|rate| *rate > 0.0).map_or_else(dash, si),
        format!("{:.2}", of.speed_up),
        of.headline.clone(),
    ]
}

fn count(held: &Held) -> u32 {
    match held {
        Held::Indices(indices) => indices.len() as u32,
        Held::Count(count) => *count,
    }
}

/// The first few nodes; the others counted.
fn shortened(nodes: &[String]) -> String {
    match nodes {
        [first, second, rest @ ..] if rest.len() > 1 => format!("{first},{second},+{}", rest.len()),
        _ => nodes.join(","),
    }
}
