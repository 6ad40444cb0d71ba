//! What a job's workers work on: the model of its order. Its environment may add what only a script could know:
//! `HEADWAY_EMULATED_NOISE` (`phi0,phimax,s0` in sequences; else hidden), and `HEADWAY_EMULATED_SECONDS` for a job
//! without a model (else hidden).

use std::collections::BTreeMap;

use headway_api::spec;
use headway_emulation::workload::opaque_duration;
use headway_emulation::{GradientNoise, Seed, Training, Workload};
use headway_types::{LaunchOrder, Seconds, Sequences};

/// Reads the workload of an order; the error is for people.
pub(super) fn read(fleet: Seed, order: &LaunchOrder) -> Result<Workload, String> {
    let seed = fleet.about(order.job.0.as_bytes());
    let variable = |name: &str| match order.run.env.get(name) {
        Some(value) => {
            spec::render(value, &BTreeMap::new()).map(Some).map_err(|error| format!("run.env.{name}: {error}"))
        }
        None => Ok(None),
    };
    let (Some((shape, precision)), Some(configuration)) = (order.model, order.configuration) else {
        let duration = match variable("HEADWAY_EMULATED_SECONDS")? {
            Some(text) => seconds(&text)?,
            None => opaque_duration(seed),
        };
        return Ok(Workload::Opaque { duration });
    };
    let noise: GradientNoise = match variable("HEADWAY_EMULATED_NOISE")? {
        Some(text) => text.parse().map_err(|error| format!("HEADWAY_EMULATED_NOISE: {error}"))?,
        None => GradientNoise::hidden(seed, order.reference_batch.unwrap_or(Sequences(configuration.global_batch.0))),
    };
    Ok(Workload::Training(Training { shape, precision, noise: noise.into() }))
}

fn seconds(text: &str) -> Result<Seconds, String> {
    let value = text.trim().parse::<f64>().ok().filter(|value| (0.0..1e9).contains(value));
    value.map(Seconds).ok_or_else(|| format!("HEADWAY_EMULATED_SECONDS is no number of seconds: {text}"))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use headway_types::spec::{Precision, Work};
    use headway_types::{Configuration, Layout};

    use super::*;
    use crate::node::tests::fixture;

    fn order(variables: &[(&str, &str)], tuned: bool) -> LaunchOrder {
        let mut order = fixture::order(&fixture::inventory(2), 1, "train");
        order.run.env = variables.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect();
        let layout = Layout { dp: 2, tp: 1, pp: 1, ..Layout::single() };
        let configuration = Configuration { layout, micro_batch: Sequences(1), global_batch: Sequences(64) };
        order.configuration = tuned.then_some(configuration);
        order
    }

    #[test]
    fn an_order_tells_its_model_and_the_script_its_noise() {
        let model = (spec::read_model("llama-2-7b").unwrap(), Precision::Bf16);
        let order = LaunchOrder { model: Some(model), ..order(&[("HEADWAY_EMULATED_NOISE", "8,64,2000")], true) };
        let Workload::Training(training) = read(Seed(1), &order).unwrap() else { panic!("opaque") };
        assert_eq!((training.shape, training.precision), model);
        assert_eq!(training.noise, "8,64,2000".parse::<GradientNoise>().unwrap().into());
    }

    #[test]
    fn a_job_without_a_model_runs_for_its_time() {
        let variables = [("HEADWAY_EMULATED_SECONDS", "90")];
        let told = read(Seed(1), &order(&variables, false)).unwrap();
        assert_eq!(told, Workload::Opaque { duration: Seconds(90.0) });
        let hidden = read(Seed(1), &order(&[], false)).unwrap();
        assert_eq!(hidden, read(Seed(1), &order(&[], false)).unwrap());
        assert!(read(Seed(1), &order(&[("HEADWAY_EMULATED_SECONDS", "soon")], false)).is_err());
    }

    #[test]
    fn the_examples_are_jobs_a_fleet_can_run() {
        for text in [
            include_str!("../../../examples/emulated/7b.yaml"),
            include_str!("../../../examples/emulated/13b.yaml"),
            include_str!("../../../examples/emulated/70b.yaml"),
        ] {
            let spec = spec::read_yaml(text).unwrap();
            assert!(matches!(spec.training().unwrap().work, Work::Model(_)), "{}", spec.name);
        }
    }
}
