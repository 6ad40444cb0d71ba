//! `headway admin space`: what the database takes, table by table, and what bounds each table.

use headway_api::v1::{Space, TableSpace};

use crate::context::Connection;
use crate::failure::Failure;
use crate::output::{Format, Layout, Printer, age};
use crate::table::Column;

const COLUMNS: [Column; 6] = [
    Column::new("TABLE"),
    Column::new("ROWS"),
    Column::new("SIZE"),
    Column::new("OLDEST").rank(2),
    Column::new("OPTION").rank(3),
    Column::new("BOUND").wrap(24).rank(1),
];

pub async fn run(connection: &Connection, print: &Printer) -> Result<(), Failure> {
    let space = connection.client()?.space().await?;
    if print.structured() {
        return print.value(&space);
    }
    print.list(&space.tables, &COLUMNS, |table| cells(table, &space), |table| table.table.clone())?;
    if print.format == Format::Table && print.layout != Layout::Csv {
        aside!("{}", footer(&space));
    }
    Ok(())
}

fn cells(table: &TableSpace, space: &Space) -> Vec<String> {
    let oldest = table.oldest_at.map(|oldest| age((space.at - oldest).num_seconds() as f64));
    vec![
        table.table.clone(),
        // Postgres' estimate.
        format!("~{}", table.rows),
        format_bytes(table.bytes),
        oldest.unwrap_or_default(),
        table.option.clone().unwrap_or_default(),
        table.bound.clone().unwrap_or_else(|| "not a table of this release".into()),
    ]
}

fn footer(space: &Space) -> String {
    let total = format!("the database takes {}", format_bytes(space.bytes));
    match space.disk_free_bytes {
        Some(free) => format!("{total}; {} of its disk are free", format_bytes(free)),
        None => format!("{total}; the server cannot see how much of its disk is free"),
    }
}

/// 1536000 → "1.5 MB".
fn format_bytes(bytes: u64) -> String {
    const UNITS: [(f64, &str); 4] = [(1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB")];
    let bytes = bytes as f64;
    match UNITS.into_iter().find(|(size, _)| bytes >= *size) {
        Some((size, unit)) => format!("{:.1} {unit}", bytes / size),
        None => format!("{bytes:.0} B"),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn table(name: &str, rows: u64, bytes: u64, oldest: Option<&str>, bound: Option<(&str, &str)>) -> TableSpace {
        TableSpace {
            table: name.into(),
            rows,
            bytes,
            oldest_at: oldest.map(|at| at.parse().unwrap()),
            option: bound.map(|(option, _)| option.to_owned()).filter(|option| !option.is_empty()),
            bound: bound.map(|(_, bound)| bound.to_owned()),
        }
    }

    fn space() -> Space {
        Space {
            at: "2026-11-28T12:00:00Z".parse().unwrap(),
            tables: vec![
                table(
                    "plan_inputs",
                    10_080,
                    2_400_000_000,
                    Some("2026-11-21T12:10:00Z"),
                    Some(("--plan-input-days", "pruned by age")),
                ),
                table(
                    "events",
                    1_204_331,
                    734_003_200,
                    Some("2025-10-24T07:00:00Z"),
                    Some(("--event-days", "pruned by age")),
                ),
                table("nodes", 250, 1_474_560, None, Some(("", "one row per node, until it is deleted"))),
                table("notes_of_the_site", 0, 8_192, None, None),
            ],
            bytes: 3_201_000_000,
            disk_free_bytes: Some(51_300_000_000),
        }
    }

    #[test]
    fn tables_are_listed_with_what_bounds_them() {
        let space = space();
        let rows = space.tables.iter().map(|table| cells(table, &space)).collect();
        insta::assert_snapshot!(format!("{}\n{}", Printer::plain().rows(&COLUMNS, rows), footer(&space)), @"
        TABLE              ROWS      SIZE      OLDEST  OPTION             BOUND
        plan_inputs        ~10080    2.4 GB    6d      --plan-input-days  pruned by age
        events             ~1204331  734.0 MB  400d    --event-days       pruned by age
        nodes              ~250      1.5 MB                               one row per node, until it is deleted
        notes_of_the_site  ~0        8.2 kB                               not a table of this release
        the database takes 3.2 GB; 51.3 GB of its disk are free
        ");
        let elsewhere = Space { disk_free_bytes: None, ..space };
        insta::assert_snapshot!(footer(&elsewhere), @"the database takes 3.2 GB; the server cannot see how much of its disk is free");
    }
}
