//! `headway estimate`: the best configurations of a model on GPUs from its architecture alone, with how far off that may be; GPUs side by
//! side; how many a deadline takes; or the model against measurements.

mod answer;
mod picture;
mod search;

use std::path::PathBuf;

use anyhow::Context as _;
use clap::{Args, ValueEnum};
use headway_api::spec::{ImportError, import, parse_config};
use headway_goodput::architecture::Architecture;
use headway_goodput::catalog::Catalog;
use headway_goodput::physics::Parameters;
use headway_goodput::strategy::Precision;
use headway_goodput::summary::summarize_model;
use headway_types::ModelShape;
use headway_types::preset::{self, Preset};

use super::compare::{compare, compare_rows, read};
use super::model::parameters;
use crate::failure::{Failure, Kind};
use crate::output::Printer;
use crate::submission::describe_origin;
use answer::Answer;
pub(super) use answer::describe;
use search::Question;

#[derive(Args, Clone, Debug)]
pub struct Estimate {
    /// A model by name (`headway model presets`) or the path of its config.json.
    #[arg(long, required_unless_present = "compare")]
    pub model: Option<String>,
    /// GPUs, as in 64xH100; several to compare (64xH100,64xB200). With --days a type alone: H100.
    #[arg(long, required_unless_present = "compare", value_delimiter = ',')]
    pub gpus: Vec<String>,
    /// Tokens to train on (300G, 15T): says how long that takes.
    #[arg(long, value_parser = tokens)]
    pub tokens: Option<f64>,
    /// Days in which they should be trained: finds the fewest GPUs of each type.
    #[arg(long, requires = "tokens", value_parser = days)]
    pub days: Option<f64>,
    /// Sequences per step; two million tokens' worth otherwise.
    #[arg(long)]
    pub batch: Option<u64>,
    /// Tokens per sequence.
    #[arg(long)]
    pub seq_len: Option<u32>,
    /// Numbers that are multiplied.
    #[arg(long, value_enum, default_value_t = Numbers::Bf16)]
    pub precision: Numbers,
    /// The training software, for its measured habits: megatron, nemo, torchtitan, llm-foundry, …
    #[arg(long)]
    pub stack: Option<String>,
    /// GPUs per node.
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=1 << 16))]
    pub gpus_per_node: u32,
    /// Network per GPU in GB/s and direction; the usual build's otherwise.
    #[arg(long)]
    pub network: Option<f64>,
    /// Try optimizer states in host memory too.
    #[arg(long)]
    pub offload: bool,
    /// Attention that keeps its matrix, as before fused kernels.
    #[arg(long)]
    pub unfused_attention: bool,
    /// Show every term of the best configuration.
    #[arg(long)]
    pub explain: bool,
    /// Draw what the steps of the best configurations are made of, with their bands, into an SVG file.
    #[arg(long, conflicts_with = "compare")]
    pub svg: Option<PathBuf>,
    /// Files with more GPU types, in the form of the built-in hardware catalog.
    #[arg(long = "catalog")]
    pub catalogs: Vec<PathBuf>,
    /// Another parameter file than the built-in one.
    #[arg(long)]
    pub parameters: Option<PathBuf>,
    /// Score the model against measurement files instead.
    #[arg(long, num_args = 1.., conflicts_with_all = ["model", "gpus", "tokens"])]
    pub compare: Vec<PathBuf>,
    /// With --compare: every row with what was measured and what is predicted.
    #[arg(long, requires = "compare")]
    pub rows: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Numbers {
    Bf16,
    Fp16,
    Fp32,
    Fp8,
    Fp4,
}

/// The GPUs that are asked about: of a type, and how many where that is said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wish {
    pub count: Option<u32>,
    pub gpu_type: String,
}

pub fn run(print: &Printer, estimate: &Estimate) -> Result<(), Failure> {
    let parameters = parameters(estimate.parameters.as_ref())?;
    let catalog = Catalog::built_in().clone().with(&super::catalog::read(&estimate.catalogs, &parameters)?);
    if !estimate.compare.is_empty() {
        let table = read(&estimate.compare, &catalog)?;
        return if estimate.rows {
            compare_rows(print, &table, &parameters)
        } else {
            compare(print, &table, &parameters)
        };
    }
    let (shape, origin) = read_model(estimate)?;
    let question = Question {
        estimate,
        architecture: Architecture::from(&shape),
        stack: stack(estimate, &parameters)?,
        parameters: &parameters,
        catalog: &catalog,
    };
    if estimate.gpus.len() > 1 && (estimate.svg.is_some() || estimate.explain) {
        return Err(
            Failure::new(Kind::Usage, "--svg and --explain show the GPUs of one type").hint("ask for one at a time")
        );
    }
    let wishes: Vec<Wish> = estimate.gpus.iter().map(|text| wish(text, &catalog)).collect::<Result<_, _>>()?;
    let answers: Vec<Answer> = wishes.iter().map(|wish| question.answer(wish)).collect::<Result<_, _>>()?;
    if !print.structured() {
        say!("{origin}: {}", summarize_model(&shape))?;
    }
    let [only] = answers.as_slice() else { return answer::compare(print, &answers) };
    if let Some(file) = &estimate.svg {
        std::fs::write(file, picture::draw(only)?)?;
        aside!("drawn to {}", file.display());
    }
    answer::show(print, only, estimate.explain)
}

/// Reads the model that is asked about, and says where it is from.
fn read_model(estimate: &Estimate) -> Result<(ModelShape, String), Failure> {
    let name = estimate.model.as_deref().unwrap_or_default();
    if let Some(shape) = preset::named(name).map(Preset::shape) {
        let seq_len = estimate.seq_len.unwrap_or(shape.seq_len).max(1);
        return Ok((ModelShape { seq_len, ..shape }, format!("preset {name}")));
    }
    let unknown = || {
        Failure::new(Kind::NotFound, format!("no model is called {name}, and there is no such file"))
            .hint("see `headway model presets`")
    };
    let text = std::fs::read_to_string(name).map_err(|_| unknown())?;
    let config = parse_config(&text).with_context(|| format!("{name} is no JSON"))?;
    let imported = import(&config, estimate.seq_len).map_err(|error| refuse_configuration(name, &error))?;
    Ok((imported.shape, describe_origin(name, &imported)))
}

fn refuse_configuration(name: &str, error: &ImportError) -> Failure {
    let hint = match error {
        ImportError::NoSequenceLength { .. } => "write --seq-len 4096",
        ImportError::NoObject | ImportError::NoType => error.hint(),
        _ => "see `headway model presets` for models that are known by name",
    };
    Failure::new(Kind::Usage, format!("{name}: {error}")).hint(hint)
}

/// "64xH100" → 64 and the catalog's name; an unmistakable beginning is enough. "H100" is the type alone.
fn wish(text: &str, catalog: &Catalog) -> Result<Wish, Failure> {
    let usage = |why: String| Failure::new(Kind::Usage, why).hint("write --gpus 64xH100; see `headway model hardware`");
    let (count, name) = match text.split_once('x').filter(|(count, _)| count.parse::<i64>().is_ok()) {
        Some((count, name)) => {
            let possible = count.parse().ok().filter(|count| (1..=1 << 20).contains(count));
            (Some(possible.ok_or_else(|| usage(format!("\"{count}\" is no number of GPUs")))?), name)
        }
        None => (None, text),
    };
    if let Some(known) = catalog.canonical(name) {
        return Ok(Wish { count, gpu_type: known.to_owned() });
    }
    let mut beginning = catalog.names().filter(|known| known.starts_with(name) && !name.is_empty());
    match (beginning.next(), beginning.next()) {
        (Some(only), None) => Ok(Wish { count, gpu_type: only.to_owned() }),
        (Some(_), Some(_)) => Err(usage(format!("\"{name}\" is the beginning of several GPU types"))),
        _ => Err(usage(format!("GPU type {name} is not in the hardware catalog"))),
    }
}

fn stack<'a>(estimate: &'a Estimate, parameters: &Parameters) -> Result<Option<&'a str>, Failure> {
    match estimate.stack.as_deref() {
        Some(name) if !parameters.stack.contains_key(name) => {
            let known: Vec<&str> = parameters.stack.keys().map(String::as_str).collect();
            Err(Failure::new(Kind::Usage, format!("no stack is called {name}; there are {}", known.join(", "))))
        }
        stack => Ok(stack),
    }
}

fn days(text: &str) -> Result<f64, String> {
    let days = text.trim().parse().ok().filter(|days: &f64| days.is_finite() && *days > 0.0);
    days.ok_or_else(|| "write a number of days above 0".to_owned())
}

/// "300G" → 3·10¹¹.
fn tokens(text: &str) -> Result<f64, String> {
    let text = text.trim();
    let (number, times) = match text.char_indices().last() {
        Some((end, 'k' | 'K')) => (&text[..end], 1e3),
        Some((end, 'M')) => (&text[..end], 1e6),
        Some((end, 'G' | 'B')) => (&text[..end], 1e9),
        Some((end, 'T')) => (&text[..end], 1e12),
        _ => (text, 1.0),
    };
    let value = number.trim().parse::<f64>().ok().map(|value| value * times);
    value.filter(|value| value.is_finite() && *value > 0.0).ok_or_else(|| "write 300G or 15T".to_owned())
}

fn precision(numbers: Numbers) -> Precision {
    match numbers {
        Numbers::Bf16 => Precision::Bf16,
        Numbers::Fp16 => Precision::Fp16,
        Numbers::Fp32 => Precision::Fp32,
        Numbers::Fp8 => Precision::Fp8,
        Numbers::Fp4 => Precision::Fp4,
    }
}

#[cfg(test)]
mod config_tests;
#[cfg(test)]
mod tests;
