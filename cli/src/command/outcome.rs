//! What came of plans: their moves, `headway plan history` and `headway plan diff`.

use headway_api::client::Client;
use headway_api::v1::{Move, MoveOutcome, PastPlan, PlanChange};

use super::plan::gather;
use super::{chosen, short};
use crate::failure::Failure;
use crate::output::{self, Printer, change, duration, moment, optional, si};
use crate::table::Column;

/// The scheduler refuses more at once.
const PLANS_PER_PAGE: u32 = 50;

const OUTCOMES: [Column; 7] = [
    Column::new("MOVE OF").cut(8),
    Column::new("STATE"),
    Column::new("DOWNTIME"),
    Column::new("EXPECTED"),
    Column::new("GOODPUT"),
    Column::new("EXPECTED"),
    Column::new("MEASURED FOR").rank(1),
];

const PAST: [Column; 11] = [
    Column::new("ID"),
    Column::new("ADOPTED").rank(6),
    Column::new("BY").rank(4).cut(5),
    Column::new("STARTS").rank(1),
    Column::new("MOVES").rank(2),
    Column::new("DONE"),
    Column::new("GAIN"),
    Column::new("EXPECTED"),
    Column::new("GPU-H LOST"),
    Column::new("EXPECTED"),
    Column::new("BECAUSE").rank(3).cut_late(12, 32),
];

const CHANGES: [Column; 4] =
    [Column::new("JOB").cut(8), Column::new("GPUS"), Column::new("GOODPUT"), Column::new("NODES").wrap(12)];

/// A table of how far moves have come; nothing of a plan that was not carried out.
pub fn of_moves(print: &Printer, moves: &[Move]) -> Vec<String> {
    let told: Vec<Vec<String>> = moves.iter().filter_map(|one| Some(row(one, one.outcome.as_ref()?))).collect();
    if told.is_empty() {
        return Vec::new();
    }
    vec![String::new(), print.table(&OUTCOMES, told.into_iter())]
}

fn row(one: &Move, came: &MoveOutcome) -> Vec<String> {
    vec![
        one.job_name.clone(),
        came.state.clone(),
        optional(came.downtime_seconds, duration),
        duration(one.downtime_seconds),
        optional(came.goodput_after_tokens_per_second, si),
        if one.to_gpus == 0 { "-".into() } else { si(one.goodput_after_tokens_per_second) },
        optional(came.measured_seconds, duration),
    ]
}

/// "llama: done, 12 s of 15 s expected".
pub fn in_words(one: &Move, came: &MoveOutcome) -> String {
    let took = came.downtime_seconds.map_or(String::new(), |took| {
        format!(", stood still for {} ({} expected)", duration(took), duration(one.downtime_seconds))
    });
    format!("{} ({} -> {}): {}{took}", one.job_name, one.from_gpus, output::gpus(one.to_gpus), came.state)
}

pub async fn history(client: &Client, print: &Printer, limit: u32) -> Result<(), Failure> {
    let page = |cursor: Option<String>, limit: u32| async move {
        let limit = Some(limit.min(PLANS_PER_PAGE));
        client.plan_history(cursor.as_deref(), limit).await.map(|page| (page.items, page.next_cursor))
    };
    let past = gather(limit, page).await?;
    print.list(&past.plans, &PAST, past_row, |plan| plan.id.to_string())?;
    past.tell_of_more(print);
    Ok(())
}

fn past_row(of: &PastPlan) -> Vec<String> {
    vec![
        short(&of.id.to_string()).to_owned(),
        moment(of.adopted_at),
        of.adopted_by.clone().unwrap_or_default(),
        of.starts.to_string(),
        of.moves.to_string(),
        format!("{} of {}", of.done, of.moves),
        optional(of.realised_gain_pct, change),
        optional(of.predicted_gain_pct, change),
        format!("{:.2}", of.realised_lost_gpu_hours),
        format!("{:.2}", of.predicted_lost_gpu_hours),
        if of.forced { format!("forced: {}", of.trigger) } else { of.trigger.clone() },
    ]
}

pub async fn diff(
    client: &Client,
    print: &Printer,
    id: Option<String>,
    against: Option<String>,
) -> Result<(), Failure> {
    let id = match id {
        Some(id) => chosen::plan(client, &id).await?,
        None => client.current_plan().await?.id.to_string(),
    };
    let against = match against {
        Some(id) => Some(chosen::plan(client, &id).await?),
        None => None,
    };
    let diff = client.plan_diff(&id, against.as_deref()).await?;
    if print.structured() {
        return print.value(&diff);
    }
    let (from, to) = (diff.from_id.to_string(), diff.to_id.to_string());
    let objective = format!("objective {:.4} -> {:.4}", diff.from_objective, diff.to_objective);
    say!("plan {} -> {}: {objective}", short(&from), short(&to))?;
    if diff.changes.is_empty() {
        say!("both give the same to everybody")?;
        return Ok(());
    }
    say!("{}", print.table(&CHANGES, diff.changes.iter().map(change_row)))?;
    Ok(())
}

fn change_row(of: &PlanChange) -> Vec<String> {
    let nodes = |names: &[String]| if names.is_empty() { "none".to_owned() } else { names.join(",") };
    let (from, to) = (nodes(&of.from_nodes), nodes(&of.to_nodes));
    vec![
        of.job_name.clone(),
        format!("{} -> {}", of.from_gpus, of.to_gpus),
        format!("{} -> {}", si(of.from_goodput_tokens_per_second), si(of.to_goodput_tokens_per_second)),
        if from == to { from } else { format!("{from} -> {to}") },
    ]
}
