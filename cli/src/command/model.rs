//! `headway model`: the goodput model's constants and what it knows by name.

use std::num::NonZeroUsize;
use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};
use headway_calibration::deviation::with_deviations;
use headway_calibration::fit::fit;
use headway_calibration::prior::Prior;
use headway_calibration::publish::publish;
use headway_calibration::validate::{LeaveOut, predict_left_out};
use headway_goodput::architecture::Architecture;
use headway_goodput::catalog::Catalog;
use headway_goodput::physics::Parameters;
use headway_types::ModelShape;
use headway_types::preset::presets;

use super::compare::{compare, compare_left_out, read};
use crate::failure::Failure;
use crate::output::{Printer, si};
use crate::table::Column;

#[derive(Subcommand, Clone, Debug)]
pub enum Model {
    /// Fit the constants of step time and memory to measurements.
    Fit(Fit),
    /// Architectures known by name.
    Presets,
    /// GPU types known by name.
    Hardware,
}

#[derive(Args, Clone, Debug)]
pub struct Fit {
    /// Measurement files (CSV).
    #[arg(required = true)]
    pub files: Vec<PathBuf>,
    /// Parameter file to start from, which also says which stacks there are; the built-in one otherwise.
    #[arg(long)]
    pub start: Option<PathBuf>,
    /// Where to write the fitted parameter file; without it they are only scored.
    #[arg(long)]
    pub out: Option<PathBuf>,
    /// Score fits on what they have not seen instead.
    #[arg(long, value_enum)]
    pub cross_validate: Option<CrossValidate>,
    /// Work out again how far off estimates are, by cross-validation: minutes.
    #[arg(long, conflicts_with = "cross_validate")]
    pub bands: bool,
    /// Iterations of the fit, in units of the number of constants.
    #[arg(long, default_value = "30")]
    pub patience: NonZeroUsize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum CrossValidate {
    /// Leave models out, a sixth of each stack's at a time.
    Models,
    /// Leave sources out, one at a time.
    Sources,
}

/// Folds of a cross-validation by model.
const FOLDS: usize = 6;
/// A fit that starts from a good one needs few iterations.
const PATIENCE_LEFT_OUT: usize = 6;

const PRESETS: [Column; 8] = [
    Column::new("NAME"),
    Column::new("PARAMETERS"),
    Column::new("ACTIVE").rank(4),
    Column::new("LAYERS").rank(6),
    Column::new("HIDDEN").rank(5),
    Column::new("HEADS").rank(3),
    Column::new("VOCAB").rank(1),
    Column::new("SEQUENCE").rank(2),
];

const HARDWARE: [Column; 8] = [
    Column::new("NAME"),
    Column::new("PEAK FLOP/S"),
    Column::new("BEST MATMUL").rank(1),
    Column::new("MEMORY"),
    Column::new("BANDWIDTH").rank(4),
    Column::new("LINK").rank(5),
    Column::new("NETWORK").rank(6),
    Column::new("MEASURED").rank(3),
];

pub fn run(print: &Printer, model: &Model) -> Result<(), Failure> {
    match model {
        Model::Fit(arguments) => fit_constants(print, arguments),
        Model::Presets => list_presets(print),
        Model::Hardware => list_hardware(print),
    }
}

fn fit_constants(print: &Printer, arguments: &Fit) -> Result<(), Failure> {
    let start = parameters(arguments.start.as_ref())?;
    let table = read(&arguments.files, Catalog::built_in())?;
    let prior = Prior::built_in();
    let failed = |error| Failure::from(anyhow::Error::from(error));
    if let Some(kind) = arguments.cross_validate {
        let leave_out = match kind {
            CrossValidate::Models => LeaveOut::Models { folds: FOLDS },
            CrossValidate::Sources => LeaveOut::Sources,
        };
        let predicted = predict_left_out(&table.measurements, &start, &prior, leave_out, PATIENCE_LEFT_OUT);
        return compare_left_out(print, &table, &predicted.map_err(failed)?, &start);
    }
    let mut fitted = fit(&table.measurements, &start, &prior, arguments.patience.get()).map_err(failed)?;
    if arguments.bands {
        fitted.parameters = with_deviations(&table.measurements, &fitted.parameters, &prior, FOLDS, PATIENCE_LEFT_OUT)
            .map_err(failed)?;
    }
    aside!(
        "objective {:.1} after {} evaluations{}",
        fitted.objective,
        fitted.evaluations,
        if fitted.converged { "" } else { ", not converged" }
    );
    if let Some(out) = &arguments.out {
        let text = publish(&fitted.parameters).map_err(|error| Failure::from(anyhow::Error::from(error)))?;
        std::fs::write(out, text)?;
        aside!("written to {}", out.display());
    }
    compare(print, &table, &fitted.parameters)
}

/// The parameter file of a path, or the built-in one.
pub fn parameters(path: Option<&PathBuf>) -> Result<Parameters, Failure> {
    let Some(path) = path else { return Ok(Parameters::built_in().clone()) };
    let text = std::fs::read_to_string(path)?;
    Parameters::parse(&text).map_err(|error| Failure::from(anyhow::Error::from(error)))
}

fn list_presets(print: &Printer) -> Result<(), Failure> {
    let known: Vec<_> = presets().iter().map(|(name, preset)| (name, preset.shape())).collect();
    print.list(&known, &PRESETS, |(name, model)| preset_row(name, model), |(name, _)| (*name).clone())
}

fn preset_row(name: &str, shape: &ModelShape) -> Vec<String> {
    let model = Architecture::from(shape);
    vec![
        name.to_owned(),
        si(model.parameters()),
        si(model.active_parameters()),
        model.layers.to_string(),
        model.hidden.to_string(),
        format!("{}/{}", model.heads, model.kv_heads()),
        model.vocab.to_string(),
        model.seq_len.to_string(),
    ]
}

fn list_hardware(print: &Printer) -> Result<(), Failure> {
    let catalog = Catalog::built_in();
    let known: Vec<&str> = catalog.names().collect();
    print.list(&known, &HARDWARE, |name| hardware_row(catalog, name), |name| (*name).to_owned())
}

fn hardware_row(catalog: &Catalog, name: &str) -> Vec<String> {
    let measured = catalog.family(name).is_some_and(|family| Parameters::built_in().family.contains_key(family));
    catalog.find(name).map_or_else(Vec::new, |gpu| {
        vec![
            name.to_owned(),
            si(gpu.peak),
            si(gpu.best_matmul),
            format!("{:.0} GiB", gpu.memory / 1024f64.powi(3)),
            format!("{}B/s", si(gpu.memory_bandwidth)),
            format!("{}B/s", si(gpu.intra_node)),
            format!("{}B/s", si(gpu.inter_node)),
            if measured { "yes" } else { "no" }.to_owned(),
        ]
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_known_by_name_fits_the_terminal() {
        let catalog = Catalog::built_in();
        let models = presets().iter().map(|(name, preset)| (&PRESETS[..], preset_row(name, &preset.shape())));
        let gpus = catalog.names().map(|name| (&HARDWARE[..], hardware_row(catalog, name)));
        for (columns, row) in models.chain(gpus) {
            for width in [60, 80, 100, 120] {
                assert!(crate::table::widest(columns, row.clone(), width) <= width, "{width}: {row:?}");
            }
        }
    }
}
