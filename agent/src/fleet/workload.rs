//! What a job's workers work on. An order does not say what a script trains, so the script's environment does, as it
//! does for emulated workers: `HEADWAY_EMULATED_MODEL` (as `training.model` has it, with braces doubled),
//! `HEADWAY_EMULATED_PRECISION` (bf16), `HEADWAY_EMULATED_NOISE` (`phi0,phimax,s0` in sequences; else hidden), and
//! `HEADWAY_EMULATED_SECONDS` for a job without a model (else hidden).

use std::collections::BTreeMap;

use headway_api::spec;
use headway_emulation::workload::opaque_duration;
use headway_emulation::{GradientNoise, Seed, Training, Workload};
use headway_types::spec::Precision;
use headway_types::{LaunchOrder, Seconds, Sequences};

/// Reads the workload of an order; the error is for people.
pub(super) fn read(world: Seed, order: &LaunchOrder) -> Result<Workload, String> {
    let seed = world.about(order.job.0.as_bytes());
    let variable = |name: &str| match order.run.env.get(name) {
        Some(value) => {
            spec::render(value, &BTreeMap::new()).map(Some).map_err(|error| format!("run.env.{name}: {error}"))
        }
        None => Ok(None),
    };
    let Some(configuration) = order.configuration else {
        let duration = match variable("HEADWAY_EMULATED_SECONDS")? {
            Some(text) => seconds(&text)?,
            None => opaque_duration(seed),
        };
        return Ok(Workload::Opaque { duration });
    };
    let model = variable("HEADWAY_EMULATED_MODEL")?.ok_or(
        "an emulated fleet must be told the model: set run.env.HEADWAY_EMULATED_MODEL to that of training.model",
    )?;
    let shape = spec::read_model(&model).map_err(|error| format!("HEADWAY_EMULATED_MODEL: {error}"))?;
    let precision = match variable("HEADWAY_EMULATED_PRECISION")?.as_deref() {
        None | Some("bf16") => Precision::Bf16,
        Some("fp16") => Precision::Fp16,
        Some("fp32") => Precision::Fp32,
        Some(other) => return Err(format!("HEADWAY_EMULATED_PRECISION is bf16, fp16 or fp32, not {other}")),
    };
    let noise = match variable("HEADWAY_EMULATED_NOISE")? {
        Some(text) => text.parse().map_err(|error| format!("HEADWAY_EMULATED_NOISE: {error}"))?,
        None => GradientNoise::hidden(seed, order.reference_batch.unwrap_or(Sequences(configuration.global_batch.0))),
    };
    Ok(Workload::Training(Training { shape, precision, noise }))
}

fn seconds(text: &str) -> Result<Seconds, String> {
    let value = text.trim().parse::<f64>().ok().filter(|value| (0.0..1e9).contains(value));
    value.map(Seconds).ok_or_else(|| format!("HEADWAY_EMULATED_SECONDS is no number of seconds: {text}"))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use headway_types::spec::Work;
    use headway_types::{Configuration, Layout};

    use super::*;
    use crate::node::tests::fixture;

    fn order(variables: &[(&str, &str)], tuned: bool) -> LaunchOrder {
        let mut order = fixture::order(&fixture::inventory(2), 1, "train");
        order.run.env = variables.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect();
        let layout = Layout { dp: 2, tp: 1, pp: 1 };
        let configuration = Configuration { layout, micro_batch: Sequences(1), global_batch: Sequences(64) };
        order.configuration = tuned.then_some(configuration);
        order
    }

    #[test]
    fn a_script_tells_its_model() {
        let variables = [("HEADWAY_EMULATED_MODEL", "{{preset: llama-2-7b, seq_len: 2048}}")];
        let Workload::Training(training) = read(Seed(1), &order(&variables, true)).unwrap() else { panic!("opaque") };
        assert_eq!((training.shape.layers, training.shape.seq_len), (32, 2048));
        assert!(read(Seed(1), &order(&[], true)).unwrap_err().contains("HEADWAY_EMULATED_MODEL"));
        let wrong = [("HEADWAY_EMULATED_MODEL", "llama-9")];
        assert!(read(Seed(1), &order(&wrong, true)).unwrap_err().contains("no model preset"));
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
    fn the_examples_tell_the_model_they_train() {
        for text in [
            include_str!("../../../examples/emulated/7b.yaml"),
            include_str!("../../../examples/emulated/13b.yaml"),
            include_str!("../../../examples/emulated/70b.yaml"),
        ] {
            let spec = spec::read_yaml(text).unwrap();
            let env = &spec.role().run.env;
            let mut order = order(&[], true);
            order.run.env = env.clone();
            let Workload::Training(training) = read(Seed(1), &order).unwrap() else { panic!("opaque") };
            assert_eq!(spec.training().unwrap().work, Work::Model(training.shape), "{}", spec.name);
        }
    }
}
