//! `headway usage report`: what GPU-time went into, for whom and why.

use chrono::{DateTime, Utc};
use clap::{Args, Subcommand};
use headway_api::client::Client;
use headway_api::v1::{Usage as Report, UsageRow};

use crate::failure::Failure;
use crate::moment::parse_moment;
use crate::output::{Format, Layout, Printer, moment};
use crate::table::Column;

#[derive(Subcommand, Clone, Debug)]
pub enum Usage {
    /// GPU-hours by user and cause, or by whatever else is asked for; all of them add up to what was granted.
    Report(Options),
}

#[derive(Args, Clone, Debug)]
pub struct Options {
    /// Comma-separated: user, project, gpu_type, cause, displaced_by.
    #[arg(long, default_value = "user,cause")]
    pub by: String,
    /// From this moment on [default: a week before the end]
    #[arg(long, value_name = "TIME", value_parser = parse_moment, allow_hyphen_values = true)]
    pub from: Option<DateTime<Utc>>,
    /// Until this moment [default: now]
    #[arg(long, value_name = "TIME", value_parser = parse_moment, allow_hyphen_values = true)]
    pub to: Option<DateTime<Utc>>,
}

pub async fn run(client: &Client, print: &Printer, usage: Usage) -> Result<(), Failure> {
    let Usage::Report(Options { by, from, to }) = usage;
    let report = client.usage(Some(&by), from, to).await?;
    if print.structured() {
        return print.value(&report);
    }
    let total = report.total_gpu_hours;
    print.list(&report.items, &columns(&report), |row| cells(row, total), |row| cells(row, total).join(" "))?;
    if print.format == Format::Table && print.layout != Layout::Csv {
        aside!("{}", footer(&report));
    }
    Ok(())
}

fn columns(report: &Report) -> Vec<Column> {
    let by = |name: &String| match name.as_str() {
        "user" => Column::new("USER").cut(6),
        "project" => Column::new("PROJECT").cut(6),
        "gpu_type" => Column::new("GPU TYPE"),
        "displaced_by" => Column::new("DISPLACED BY").cut(6),
        _ => Column::new("CAUSE"),
    };
    let numbers = [Column::new("GPU HOURS"), Column::new("SHARE").rank(1), Column::new("JOBS").rank(2)];
    report.group_by.iter().map(by).chain(numbers).collect()
}

/// In the order in which the scheduler names them, which is that of the columns.
fn cells(row: &UsageRow, total: f64) -> Vec<String> {
    let UsageRow { user, project, gpu_type, cause, displaced_by, gpu_hours, jobs } = row;
    let by = [user, project, gpu_type, cause, displaced_by].into_iter().flatten().cloned();
    let share = if total > 0.0 { 100.0 * gpu_hours / total } else { 0.0 };
    // Of a cluster that has just begun, everything would be nothing.
    let digits = if total < 10.0 { 4 } else { 2 };
    by.chain([format!("{gpu_hours:.digits$}"), format!("{share:.1} %"), jobs.to_string()]).collect()
}

fn footer(report: &Report) -> String {
    format!("{:.2} GPU-hours from {} to {}", report.total_gpu_hours, moment(report.from), moment(report.to))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_adds_up_and_fits() {
        let row = |user: &str, cause: &str, displaced_by: &str, gpu_hours, jobs| UsageRow {
            user: Some(user.into()),
            project: None,
            gpu_type: None,
            cause: Some(cause.into()),
            displaced_by: Some(displaced_by.into()),
            gpu_hours,
            jobs,
        };
        let at = |text: &str| text.parse().expect("a moment");
        let report = Report {
            from: at("2026-02-22T14:00:00Z"),
            to: at("2026-03-01T14:00:00Z"),
            group_by: ["user", "cause", "displaced_by"].map(str::to_owned).to_vec(),
            items: vec![
                row("ada", "useful", "-", 1_204.5, 12),
                row("ada", "displaced", "grace", 96.25, 3),
                row("bob", "starting", "-", 24.125, 7),
            ],
            total_gpu_hours: 1_324.875,
            step_seconds: None,
            steps: None,
        };
        let printer = Printer { layout: Layout::Within(Some(80)), ..Printer::plain() };
        let rows = report.items.iter().map(|row| cells(row, report.total_gpu_hours)).collect();
        insta::assert_snapshot!(format!("{}\n{}", printer.rows(&columns(&report), rows), footer(&report)), @"
        USER  CAUSE      DISPLACED BY  GPU HOURS  SHARE   JOBS
        ada   useful     -             1204.50    90.9 %  12
        ada   displaced  grace         96.25      7.3 %   3
        bob   starting   -             24.12      1.8 %   7
        1324.88 GPU-hours from 2026-02-22T14:00:00Z to 2026-03-01T14:00:00Z
        ");
    }
}
