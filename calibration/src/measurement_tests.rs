#![allow(clippy::unwrap_used)]

use proptest::prelude::{Just, any, prop, prop_assert, prop_oneof, proptest};
use proptest::strategy::Strategy as _;

use super::*;
use crate::table::Table;

const HEADER: &str =
    "source,model,layers,hidden,heads,vocab,seq_len,gpu,num_gpus,tp,micro_batch,global_batch,step_time_s";
const GOOD: &str = "mine,m,32,4096,32,32000,2048,H100-80,8,2,1,64,3.5";

fn table(header: &str, rows: &[&str]) -> Table {
    let mut table = Table::default();
    table.parse(&format!("{header}\n{}\n", rows.join("\n")), "file", Catalog::built_in()).unwrap();
    table
}

fn skipped(row: &str) -> Skip {
    let table = table(HEADER, &[row]);
    assert!(table.measurements.is_empty(), "{row}");
    table.skipped.into_keys().next().unwrap().1
}

#[test]
fn a_row_with_few_columns_is_used_and_what_was_assumed_is_said() {
    let table = table(HEADER, &[GOOD]);
    let row = &table.measurements[0];
    assert_eq!((row.strategy.dp, row.strategy.tp, row.strategy.micro_batches), (4, 2, 16));
    assert_eq!(row.step_time, Some(3.5));
    let assumed: Vec<&str> = table.assumed().keys().map(|(_, column)| *column).collect();
    assert!(assumed.contains(&"kv_heads") && assumed.contains(&"recompute") && assumed.contains(&"inter_gbps_per_gpu"));
}

#[test]
fn unusable_rows_are_skipped_with_their_reason() {
    assert_eq!(skipped(&GOOD.replace("H100-80", "Potato")), Skip::UnknownGpu("Potato".into()));
    assert_eq!(skipped(&GOOD.replace(",32,4096", ",,4096")), Skip::Missing("layers"));
    assert_eq!(skipped(&GOOD.replace(",32,4096", ",0,4096")), Skip::Missing("layers"));
    assert_eq!(skipped(&GOOD.replace(",64,3.5", ",63,3.5")), Skip::Indivisible);
    assert_eq!(skipped(&GOOD.replace(",8,2,1,", ",8,3,1,")), Skip::WrongSize);
    assert_eq!(skipped(&GOOD.replace("3.5", "-3.5")), Skip::NothingMeasured);
    assert_eq!(skipped(&GOOD.replace("3.5", "NaN")), Skip::NothingMeasured);
}

#[test]
fn throughput_stands_in_for_a_missing_step_time() {
    let header = HEADER.replace("step_time_s", "tokens_per_s_per_gpu");
    let table = table(&header, &[&GOOD.replace("3.5", "4096")]);
    assert!((table.measurements[0].step_time.unwrap() - 64.0 * 2048.0 / 4096.0 / 8.0).abs() < 1e-12);
}

#[test]
fn failed_runs_teach_memory_and_not_time() {
    let table = table(&format!("{HEADER},status"), &[&format!("{GOOD},oom"), &format!("{GOOD},partial")]);
    assert_eq!(table.measurements[0].ending, Ending::OutOfMemory);
    assert_eq!(table.measurements[0].step_time, None);
    assert_eq!(table.skipped.len(), 1);
}

#[test]
fn sharding_is_read_from_the_names_the_sources_use() {
    assert_eq!(sharding("ddp"), Sharding::None);
    assert_eq!(sharding("zero1-distopt"), Sharding::Optimizer { group: None });
    assert_eq!(sharding("zero1-group8"), Sharding::Optimizer { group: Some(8) });
    assert_eq!(sharding("fsdp-zero2"), Sharding::Gradients);
    assert_eq!(sharding("fsdp2-zero3"), Sharding::Parameters);
    assert_eq!(sharding("hsdp"), Sharding::ParametersInNode);
}

#[test]
fn a_file_of_something_else_is_refused_and_an_empty_one_is_empty() {
    let mut table = Table::default();
    let refusal = table.parse("a,b\n1,2\n", "other.csv", Catalog::built_in()).unwrap_err();
    assert!(refusal.to_string().contains("other.csv"), "{refusal}");
    table.parse(&format!("{HEADER}\n"), "empty.csv", Catalog::built_in()).unwrap();
    assert!(table.measurements.is_empty() && table.skipped.is_empty());
}

proptest! {
    #[test]
    fn no_text_makes_a_table_panic(text in "\\PC{0,400}") {
        let _ = Table::default().parse(&text, "fuzz", Catalog::built_in());
    }

    #[test]
    fn no_numbers_make_a_row_panic_and_what_is_used_can_be_predicted(
        cells in prop::collection::vec(prop_oneof![
            Just(String::new()), Just("nan".to_owned()), Just("1e300".to_owned()),
            any::<i32>().prop_map(|value| value.to_string()), (0u32..200).prop_map(|value| value.to_string()),
        ], 10),
    ) {
        let row = format!("mine,m,{},{},{},{},{},H100-80,{},{},{},{},{}",
            cells[0], cells[1], cells[2], cells[3], cells[4], cells[5], cells[6], cells[7], cells[8], cells[9]);
        let table = table(HEADER, &[&row]);
        let parameters = headway_goodput::physics::Parameters::built_in();
        for predicted in crate::score::predict(&table.measurements, parameters) {
            prop_assert!(predicted.step_time > 0.0 && predicted.memory > 0.0, "{:?}", predicted);
        }
    }
}
