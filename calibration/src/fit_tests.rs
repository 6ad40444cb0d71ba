#![allow(clippy::unwrap_used)]

use headway_goodput::catalog::Catalog;

use super::*;
use crate::score::predict;
use crate::table::Table;

const HEADER: &str = "source,framework,model,layers,hidden,heads,ffn_hidden,vocab,seq_len,gpu,num_gpus,tp,pp,micro_batch,global_batch,step_time_s";

/// Runs of software that computes `compute` times as long as a parameter set says.
fn runs(parameters: &Parameters, compute: f64) -> Vec<Measurement> {
    let mut rows = String::new();
    for (hidden, layers) in [(2048, 24), (4096, 32), (8192, 48)] {
        for (tp, pp, micro) in [(1, 1, 1), (2, 2, 2), (8, 1, 4), (4, 4, 1)] {
            let line = format!(
                "made-up,megatron-like,h{hidden},{layers},{hidden},32,{},32000,2048,A100-80,32,{tp},{pp},{micro},256,1\n",
                4 * hidden
            );
            rows.push_str(&line);
        }
    }
    let mut table = Table::default();
    table.parse(format!("{HEADER}\n{rows}"), "made-up", Catalog::built_in()).unwrap();
    let mut truth = parameters.clone();
    truth.shared.compute *= compute;
    let predicted = predict(&table.measurements, &truth);
    let timed = table.measurements.into_iter().zip(predicted);
    timed.map(|(row, guess)| Measurement { step_time: Some(guess.step_time), ..row }).collect()
}

fn start() -> Parameters {
    let mut parameters = Parameters::built_in().clone();
    let made_up = headway_goodput::physics::Stack {
        sources: vec!["made-up".to_owned()],
        factors: std::collections::BTreeMap::from([("compute".to_owned(), 1.0)]),
        ..Default::default()
    };
    parameters.stack = std::collections::BTreeMap::from([("made-up".to_owned(), made_up)]);
    parameters
}

#[test]
fn a_slower_stack_is_found_slower() {
    let start = start();
    let rows = runs(&start, 1.15);
    let fitted = fit(&rows, &start, &Prior::built_in(), 6).unwrap();
    let worst = predict(&rows, &fitted.parameters)
        .iter()
        .zip(&rows)
        .map(|(guess, row)| (guess.step_time / row.step_time.unwrap() - 1.0).abs())
        .fold(0.0, f64::max);
    assert!(worst < 0.05, "{worst}");
    assert!(fitted.parameters.stack["made-up"].factors["compute"] > 1.03);
}

#[test]
fn rows_of_troubled_clusters_are_not_fitted() {
    let start = start();
    let rows: Vec<Measurement> = runs(&start, 1.0).into_iter().map(|row| Measurement { clean: false, ..row }).collect();
    assert_eq!(fit(&rows, &start, &Prior::built_in(), 6).unwrap_err(), FitError::Nothing);
}

#[test]
fn the_robust_loss_is_quadratic_near_and_linear_far_out() {
    assert!((robust(0.01) / 0.01 - 1.0).abs() < 1e-3);
    let growth = robust(2000.0).powi(2) / robust(1000.0).powi(2);
    assert!((growth - 2.0).abs() < 0.01, "{growth}");
    assert_eq!(robust(-0.5), -robust(0.5));
}
