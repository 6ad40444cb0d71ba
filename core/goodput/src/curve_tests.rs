#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;

use headway_types::spec::Work;
use strum::VariantArray;

use super::*;
use crate::examples::{class_of, emulated_class, tiny, training};

fn range(min: u32, max: u32) -> GpuRange {
    GpuRange { min: GpuCount(min), max: GpuCount(max), sizes: vec![], types: vec![], mixed: false }
}

#[test]
fn an_emulated_job_scales_out_data_parallel() {
    let model = JobModel::new(training(Work::Model(tiny()), 16, (16, 256)));
    let curve = model.curve(&emulated_class(4), &range(1, 8));
    let offers: BTreeMap<u32, Offer> =
        curve.points.iter().filter_map(|point| Some((point.gpus.0, point.offer.clone().ok()?))).collect();
    assert_eq!(offers[&8].configuration.unwrap().layout, Layout { dp: 8, tp: 1, pp: 1, ..Layout::single() });
    assert!(offers[&8].prediction.goodput.0 > offers[&4].prediction.goodput.0);
    assert_eq!(curve.points[4].offer, Err(Infeasible::Uneven { gpus: GpuCount(5), nodes: NodeCount(2) }));
    assert_eq!(curve.points[4].marginal, None);
}

#[test]
fn a_measured_curve_is_interpolated_and_has_no_configuration() {
    let points = BTreeMap::from([(GpuCount(2), 1.0), (GpuCount(4), 1.8)]);
    let model = JobModel::new(training(Work::Curve { points, seq_len: 64 }, 16, (16, 16)));
    let goodput = |gpus| {
        let offer = model.best(&class_of("anything", 8), GpuCount(gpus), NodeCount(1)).unwrap();
        assert_eq!(offer.configuration, None);
        offer.prediction.goodput.0
    };
    assert_eq!([goodput(1), goodput(2), goodput(3), goodput(4), goodput(8)], [0.5, 1.0, 1.4, 1.8, 1.8]);
}

#[test]
fn runner_ups_are_other_layouts_in_order_and_the_band_holds_the_best() {
    let mut training = training(Work::Model(crate::examples::llama3_8b()), 64, (32, 128));
    training.layouts.execution.sharding = headway_types::Sharding::VARIANTS.to_vec();
    let (model, class) = (JobModel::new(training), class_of("H100-80G", 8));
    let (gpus, nodes) = (GpuCount(16), NodeCount(2));
    let offers = model.ranked(&class, gpus, nodes, 4).unwrap();
    let goodputs: Vec<f64> = offers.iter().map(|offer| offer.prediction.goodput.0).collect();
    assert!(goodputs.len() == 4 && goodputs.is_sorted_by(|left, right| left >= right), "{goodputs:?}");
    let layouts: std::collections::BTreeSet<Layout> =
        offers.iter().map(|offer| offer.configuration.unwrap().layout).collect();
    assert_eq!(layouts.len(), 4);
    let (low, high) = model.band(&class, gpus, nodes, &offers[0]).unwrap();
    assert!(low.0 < goodputs[0] && goodputs[0] < high.0);
}
