#![allow(clippy::unwrap_used)]

use std::cell::Cell;

use proptest::prelude::{Just, any, prop, prop_assert, prop_assert_eq, prop_oneof, proptest};
use proptest::strategy::Strategy;
use proptest::test_runner::TestRunner;

use super::*;
use crate::table::Table;

const HEADER: &str =
    "source,model,layers,hidden,heads,vocab,seq_len,gpu,num_gpus,tp,micro_batch,global_batch,step_time_s";
const GOOD: &str = "mine,m,32,4096,32,32000,2048,H100-80,8,2,1,64,3.5";

fn table(header: &str, rows: &[&str]) -> Table {
    let mut table = Table::default();
    table.parse(format!("{header}\n{}\n", rows.join("\n")), "file", Catalog::built_in()).unwrap();
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
    assert_eq!(skipped(&GOOD.replace(",1,64,", ",,64,")), Skip::Missing("micro_batch"));
    assert_eq!(skipped(&GOOD.replace(",64,3.5", ",3,3.5")), Skip::Indivisible);
    assert_eq!(skipped(&GOOD.replace(",8,2,1,64,", ",4000000000,2,1,64,")), Skip::Absurd("num_gpus"));
    assert_eq!(skipped(&GOOD.replace(",1,64,", ",1,4000000000,")), Skip::Absurd("global_batch"));
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
fn a_well_known_model_needs_no_sizes() {
    let row = table(HEADER, &[&GOOD.replace(",m,32,4096,32,32000,", ",llama-2-7b,,,,,")]).measurements.remove(0);
    assert_eq!(row.architecture.layers, 32);
    assert!(row.clean, "{:?}", row.assumed);
}

#[test]
fn what_a_row_leaves_out_is_filled_in_where_the_field_has_a_usual_answer_and_then_teaches_nothing() {
    let one = |row: &str| {
        let row = table(HEADER, &[row]).measurements.remove(0);
        assert!(!row.clean, "{:?}", row.assumed);
        row
    };
    assert_eq!(one(&GOOD.replace("H100-80", "H100-64")).gpu_type, "H100-80G");
    assert_eq!(one(&GOOD.replace(",4096,32,", ",4096,,")).architecture.heads, 32);
    assert_eq!(one(&GOOD.replace(",32000,", ",,")).architecture.vocab, 50_304);
    assert_eq!(one(&GOOD.replace(",64,3.5", ",63,3.5")).strategy.micro_batches, 16);
    let accumulated = table(&format!("{HEADER},grad_accum"), &[&format!("{},4", GOOD.replace(",1,64,", ",,64,"))]);
    assert_eq!(accumulated.measurements[0].strategy.micro_batch, 4);
    let header = format!("{HEADER},precision,dp_mode");
    let odd = table(&header, &[&format!("{GOOD},int3,magic")]).measurements.remove(0);
    assert!(odd.assumed.contains("unknown precision") && odd.assumed.contains("unknown dp_mode") && !odd.clean);
}

#[test]
fn one_spoilt_line_spoils_no_other() {
    let mut file = format!("\u{feff}{HEADER}\nmine,m,32\n\n{GOOD}\n").into_bytes();
    file.extend_from_slice(b"m\xffne,m,32,4096,32,32000,2048,H100-80,8,2,1,64,3.5,surplus\n");
    let mut table = Table::default();
    table.parse(file, "spoilt", Catalog::built_in()).unwrap();
    let sources: Vec<&str> = table.measurements.iter().map(|row| row.source.as_str()).collect();
    assert_eq!(sources, ["mine", "m\u{fffd}ne"]);
    assert_eq!(table.skipped.values().sum::<usize>(), 1);
}

#[test]
fn a_file_of_something_else_is_refused_and_an_empty_one_is_empty() {
    let mut table = Table::default();
    let refusal = table.parse("a,b\n1,2\n", "other.csv", Catalog::built_in()).unwrap_err();
    assert!(refusal.to_string().contains("other.csv"), "{refusal}");
    table.parse(format!("{HEADER}\n"), "empty.csv", Catalog::built_in()).unwrap();
    assert!(table.measurements.is_empty() && table.skipped.is_empty());
}

proptest! {
    #[test]
    fn no_text_makes_a_table_panic(text in "\\PC{0,400}") {
        let _ = Table::default().parse(&text, "fuzz", Catalog::built_in());
    }

    #[test]
    fn no_bytes_make_a_table_panic(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        let mut file = format!("{HEADER}\n").into_bytes();
        file.extend_from_slice(&bytes);
        let _ = Table::default().parse(file, "fuzz", Catalog::built_in());
    }
}

/// What stands in a cell that nobody expects.
fn odd_cell() -> impl Strategy<Value = String> {
    prop_oneof![
        Just(String::new()),
        Just("nan".to_owned()),
        Just("1e300".to_owned()),
        Just("1e-300".to_owned()),
        Just("-1".to_owned()),
        Just("4294967295".to_owned()),
        Just("16777216".to_owned()),
        (0u32..2000).prop_map(|value| value.to_string()),
        "[a-z0-9-]{1,12}",
    ]
}

/// Most rows have few odd cells, so that many of them are used; some are odd all over.
#[test]
fn no_cells_make_a_row_panic_and_what_is_used_can_be_predicted_and_scored() {
    let few = prop::collection::btree_map(0..COLUMNS.len(), odd_cell(), 0..4);
    let many = prop::collection::btree_map(0..COLUMNS.len(), odd_cell(), 4..COLUMNS.len());
    let (rows, used) = (Cell::new(0), Cell::new(0));
    let mut runner = TestRunner::default();
    let result = runner.run(&prop_oneof![4 => few, 1 => many], |odd| {
        let header: Vec<&str> = COLUMNS.iter().map(|(name, _)| *name).collect();
        let cell = |column: usize| odd.get(&column).map_or(COLUMNS[column].1, String::as_str);
        let row: Vec<&str> = (0..COLUMNS.len()).map(cell).collect();
        let table = table(&header.join(","), &[&row.join(","), &row.join(",")]);
        prop_assert_eq!(table.measurements.len() + table.skipped.values().sum::<usize>(), 2);
        rows.set(rows.get() + 2);
        used.set(used.get() + table.measurements.len());
        let predicted = crate::score::predict(&table.measurements, headway_goodput::physics::Parameters::built_in());
        prop_assert_eq!(predicted.len(), table.measurements.len());
        for guess in &predicted {
            prop_assert!(guess.step_time.is_finite() && guess.step_time > 0.0, "{:?}", guess);
            prop_assert!(guess.memory.is_finite() && guess.memory > 0.0, "{:?}", guess);
        }
        for score in crate::score::scoreboard(&table.measurements, &predicted) {
            prop_assert!(score.step_time.mape.is_finite() && score.constant_mfu.is_finite(), "{:?}", score);
        }
        Ok(())
    });
    result.unwrap();
    let (rows, used) = (rows.get(), used.get());
    assert!(8 * used >= rows, "only {used} of {rows} rows were used, so that little was predicted");
}

#[test]
fn a_row_without_odd_cells_is_used() {
    let header: Vec<&str> = COLUMNS.iter().map(|(name, _)| *name).collect();
    let row: Vec<&str> = COLUMNS.iter().map(|(_, usual)| *usual).collect();
    assert_eq!(table(&header.join(","), &[&row.join(",")]).measurements.len(), 1);
}

/// Every column that is read, with a value that makes a good row.
const COLUMNS: [(&str, &str); 36] = [
    ("source", "mine"),
    ("framework", "NeMo"),
    ("row_id", "r1"),
    ("model", "llama-2-7b"),
    ("layers", "32"),
    ("hidden", "4096"),
    ("heads", "32"),
    ("kv_heads", "32"),
    ("head_width", ""),
    ("ffn_hidden", "11008"),
    ("gated", "1"),
    ("vocab", "32000"),
    ("tied", "0"),
    ("seq_len", "4096"),
    ("experts", ""),
    ("active_experts", ""),
    ("gpu", "H100-80"),
    ("gpus_per_node", "8"),
    ("num_gpus", "64"),
    ("dp", ""),
    ("tp", "2"),
    ("pp", "2"),
    ("cp", "1"),
    ("ep", "1"),
    ("vpp", "1"),
    ("micro_batch", "1"),
    ("grad_accum", ""),
    ("global_batch", "128"),
    ("dp_mode", "zero1"),
    ("recompute", "none"),
    ("precision", "bf16"),
    ("intra_gbps_per_gpu", "450"),
    ("inter_gbps_per_gpu", "50"),
    ("step_time_s", "2.5"),
    ("peak_mem_gb", "40"),
    ("status", "ok"),
];
