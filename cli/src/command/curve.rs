//! `headway job curve`: what a job would make of other sizes on the present nodes.

use clap::Args;
use headway_api::client::Client;
use headway_api::v1::{Configuration, Curve as Reply, CurvePoint};
use headway_types::Execution;

use super::resolve_job;
use crate::failure::Failure;
use crate::output::{self, Format, Printer, optional, si};
use crate::table::Column;

#[derive(Args, Clone, Debug)]
pub struct Curve {
    /// Id, unique end or beginning of one, or name.
    pub job: String,
}

const COLUMNS: [Column; 10] = [
    Column::new("GPUS"),
    Column::new("NODES"),
    Column::new("CONFIGURATION"),
    Column::new("GOODPUT"),
    Column::new("CREDIT").rank(2),
    Column::new("P10").rank(4),
    Column::new("P90").rank(4),
    Column::new("STEP TIME").rank(3),
    Column::new("SPEED-UP"),
    Column::new("RUNNERS-UP").rank(1),
];

pub async fn run(client: &Client, print: &Printer, curve: Curve) -> Result<(), Failure> {
    let reply = client.curve(&resolve_job(client, &curve.job).await?).await?;
    match print.format {
        Format::Json | Format::Yaml => return print.value(&reply),
        Format::Name => {
            for point in reply.points.iter().filter(|point| point.infeasible.is_none()) {
                say!("{}", point.gpus)?;
            }
        }
        Format::Table => say!("{}", text(print, &reply))?,
    }
    Ok(())
}

fn text(print: &Printer, curve: &Reply) -> String {
    if curve.points.is_empty() {
        return curve.reason.clone().unwrap_or_else(|| "no node offers GPUs that it could have".into());
    }
    let mixed = curve.gpu_type.is_none();
    let gpu_type = curve.gpu_type.as_deref().unwrap_or("the GPU type that serves each size best");
    let table = print.table(&COLUMNS, curve.points.iter().map(|point| row(point, mixed)));
    let goodput = "goodput in reference tokens per second, P10 to P90 by what its reports have taught";
    let chosen = if curve.batch_policy.as_deref() == Some("norm_test") { "; batches by the norm test" } else { "" };
    let mut lines = vec![format!("On {gpu_type}{chosen}; * is the size it has"), format!("({goodput})"), table];
    if curve.points.iter().any(|point| point.credit_tokens_per_second > 0.0) {
        lines.push("CREDIT is what of the goodput theory gives batches below the reference: unconfirmed.".into());
    }
    for point in &curve.points {
        lines.extend(point.infeasible.as_ref().map(|why| format!("  not {}: {why}", output::gpus(point.gpus))));
    }
    lines.join("\n")
}

fn row(point: &CurvePoint, mixed: bool) -> Vec<String> {
    let gpu_type = point.gpu_type.as_ref().filter(|_| mixed).map_or(String::new(), |of| format!(" of {of}"));
    let gpus = format!("{}{}{gpu_type}", point.gpus, if point.chosen { "*" } else { "" });
    if point.infeasible.is_some() {
        let mut cells = vec![gpus, point.nodes.to_string(), "none".into()];
        cells.resize(COLUMNS.len(), "-".into());
        return cells;
    }
    let behind = |relative: f64| format!("{:.1} %", (relative - 1.0) * 100.0);
    let runners_up: Vec<String> = point
        .runner_ups
        .iter()
        .map(|other| format!("{} {}", configuration(&other.configuration), behind(other.relative_goodput)))
        .collect();
    vec![
        gpus,
        point.nodes.to_string(),
        point.configuration.as_ref().map_or_else(|| "its own".into(), configuration),
        si(point.goodput_tokens_per_second),
        if point.credit_tokens_per_second > 0.0 { si(point.credit_tokens_per_second) } else { "-".into() },
        optional(point.goodput_low_tokens_per_second, si),
        optional(point.goodput_high_tokens_per_second, si),
        optional(point.step_time_seconds, |seconds| format!("{seconds:.3} s")),
        optional(point.speed_up, |value| format!("{value:.2}")),
        if runners_up.is_empty() { "-".into() } else { runners_up.join(", ") },
    ]
}

fn configuration(of: &Configuration) -> String {
    let more: Execution = of.execution.unwrap_or_default();
    let (layout, micro, global) = (of.layout, of.micro_batch_sequences, of.global_batch_sequences);
    format!("dp{} tp{} pp{} mb{micro} gb{global}{more}", layout.dp, layout.tp, layout.pp)
}

#[cfg(test)]
mod tests {
    use headway_api::v1::{Layout, RunnerUp};
    use uuid::Uuid;

    use super::*;

    fn at(tp: u32, gpus: u32) -> Configuration {
        let layout = Layout { dp: gpus / tp, tp, pp: 1 };
        Configuration { layout, execution: None, micro_batch_sequences: 2, global_batch_sequences: 512 }
    }

    fn point(gpus: u32, goodput: f64) -> CurvePoint {
        let runner_up = RunnerUp {
            configuration: at(2, gpus),
            goodput_tokens_per_second: goodput * 0.972,
            relative_goodput: 0.972,
        };
        CurvePoint {
            gpu_type: Some("H200".into()),
            gpus,
            nodes: gpus.div_ceil(8),
            configuration: Some(at(1, gpus)),
            throughput_tokens_per_second: goodput,
            efficiency: 1.0,
            goodput_tokens_per_second: goodput,
            credit_tokens_per_second: if gpus == 16 { 0.1 * goodput } else { 0.0 },
            step_time_seconds: Some(1.5),
            speed_up: Some(goodput / 50_000.0),
            chosen: gpus == 8,
            infeasible: None,
            goodput_low_tokens_per_second: Some(goodput * 0.9),
            goodput_high_tokens_per_second: Some(goodput * 1.1),
            runner_ups: vec![runner_up],
        }
    }

    #[test]
    fn a_curve_is_told_size_by_size_with_what_cannot_be_and_why() {
        let why = "dp4 tp1 pp1 mb1 gb512 needs 90000 MiB per GPU (states), H200 has 143360 MiB".to_owned();
        let small = CurvePoint {
            configuration: None,
            goodput_tokens_per_second: 0.0,
            step_time_seconds: None,
            infeasible: Some(why),
            runner_ups: Vec::new(),
            ..point(4, 0.0)
        };
        let points = vec![small, point(8, 50_000.0), point(16, 91_234.0)];
        let print = Printer::plain();
        let batch_policy = Some("goodput".to_owned());
        let gpu_type = Some("H200".into());
        let curve = Reply { job_id: Uuid::nil(), gpu_type, batch_policy, points, reason: None };
        insta::assert_snapshot!(text(&print, &curve));
        let reason = Some("Cannot run on this cluster: it accepts only H100-80G, and no node has that".to_owned());
        let none = Reply { gpu_type: None, points: Vec::new(), reason: reason.clone(), ..curve };
        assert_eq!(Some(text(&print, &none)), reason);
    }
}
