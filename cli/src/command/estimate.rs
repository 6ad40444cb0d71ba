//! `headway estimate`: the best configurations of a model on GPUs from its architecture alone, every term of one, or the model against
//! measurements.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use headway_estimator::caution::cautions;
use headway_estimator::preset::{import, preset_named};
use headway_estimator::search::{Found, Ranked, Wanted, search};
use headway_goodput::architecture::Architecture;
use headway_goodput::catalog::Catalog;
use headway_goodput::collective::Cluster;
use headway_goodput::memory::USABLE;
use headway_goodput::physics::Parameters;
use headway_goodput::strategy::{Offload, Precision, Recompute, Sharding, Strategy};
use serde::Serialize;

use super::compare::{compare, read};
use super::model::parameters;
use crate::failure::{Failure, Kind};
use crate::output::{Printer, si};

#[derive(Args, Clone, Debug)]
pub struct Estimate {
    /// A model by name (`headway model presets`) or the path of its config.json.
    #[arg(long, required_unless_present = "compare")]
    pub model: Option<String>,
    /// GPUs, as in 64xH100.
    #[arg(long, required_unless_present = "compare")]
    pub gpus: Option<String>,
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
    #[arg(long, default_value_t = 8)]
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
    /// Files with more GPU types, in the form of the built-in hardware catalog.
    #[arg(long = "catalog")]
    pub catalogs: Vec<PathBuf>,
    /// Another parameter file than the built-in one.
    #[arg(long)]
    pub parameters: Option<PathBuf>,
    /// Score the model against measurement files instead.
    #[arg(long, num_args = 1.., conflicts_with_all = ["model", "gpus"])]
    pub compare: Vec<PathBuf>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Numbers {
    Bf16,
    Fp16,
    Fp32,
    Fp8,
    Fp4,
}

const TOKENS_PER_STEP: u64 = 2 << 20;
const SHOWN: usize = 10;
const GIB: f64 = 1024.0 * 1024.0 * 1024.0;

/// One configuration, for programs.
#[derive(Serialize)]
struct Line {
    strategy: Strategy,
    step_time_seconds: f64,
    tokens_per_second_per_gpu: f64,
    mfu: f64,
    bubble_share: f64,
    communication_share: f64,
    memory: headway_goodput::memory::MemoryUse,
    terms: std::collections::BTreeMap<&'static str, f64>,
}

#[derive(Serialize)]
struct Answer {
    parameters: f64,
    active_parameters: f64,
    gpu_type: String,
    global_batch: u64,
    best: Vec<Line>,
    evaluated: usize,
    excluded: std::collections::BTreeMap<String, usize>,
    cautions: Vec<String>,
}

pub fn run(print: &Printer, estimate: &Estimate) -> Result<(), Failure> {
    let parameters = parameters(estimate.parameters.as_ref())?;
    let catalog = Catalog::built_in().clone().with(&super::catalog::read(&estimate.catalogs, &parameters)?);
    if !estimate.compare.is_empty() {
        return compare(print, &read(&estimate.compare, &catalog)?, &parameters);
    }
    let architecture = architecture(estimate)?;
    let (count, gpu_type) = gpus(estimate.gpus.as_deref().unwrap_or_default(), &catalog)?;
    let hardware = catalog.find(&gpu_type).ok_or_else(|| Failure::new(Kind::Usage, "no such GPU type"))?;
    let stack = stack(estimate, &parameters)?;
    let profile = parameters.profile(stack);
    let mut cluster = Cluster::usual(&hardware, &profile, estimate.gpus_per_node.clamp(1, count));
    if let Some(gigabytes) = estimate.network.filter(|rate| *rate > 0.0) {
        cluster.network = gigabytes * 1e9;
    }
    let wanted = Wanted {
        gpus: count,
        global_batch: estimate.batch.unwrap_or((TOKENS_PER_STEP / u64::from(architecture.seq_len)).max(1)),
        precision: precision(estimate.precision),
        fused_attention: !estimate.unfused_attention,
        offload: estimate.offload,
    };
    let found = search(&architecture, &cluster, &wanted, SHOWN);
    let Some(best) = found.best.first() else { return Err(nothing_fits(&found, hardware.memory)) };
    let cautions: Vec<String> = cautions(&architecture, &best.strategy, &gpu_type, &catalog, &parameters, stack)
        .iter()
        .map(ToString::to_string)
        .collect();
    let lines: Vec<Line> = found.best.iter().map(|ranked| line(ranked, &architecture, hardware.peak)).collect();
    let answer = Answer {
        parameters: architecture.parameters(),
        active_parameters: architecture.active_parameters(),
        gpu_type,
        global_batch: wanted.global_batch,
        best: lines,
        evaluated: found.evaluated,
        excluded: found.excluded.iter().map(|(why, count)| (why.to_string(), *count)).collect(),
        cautions,
    };
    show(print, &answer, estimate.explain)
}

fn architecture(estimate: &Estimate) -> Result<Architecture, Failure> {
    let name = estimate.model.as_deref().unwrap_or_default();
    if let Some(preset) = preset_named(name) {
        let mut architecture = preset.architecture;
        architecture.seq_len = estimate.seq_len.unwrap_or(architecture.seq_len).max(1);
        return Ok(architecture);
    }
    let unknown = || {
        Failure::new(Kind::NotFound, format!("no model is called {name}, and there is no such file"))
            .hint("see `headway model presets`")
    };
    let text = std::fs::read_to_string(name).map_err(|_| unknown())?;
    import(&text, estimate.seq_len).map_err(|error| Failure::from(anyhow::Error::from(error)))
}

/// "64xH100" → 64 and the catalog's name; an unmistakable beginning is enough.
fn gpus(text: &str, catalog: &Catalog) -> Result<(u32, String), Failure> {
    let usage = |why: String| Failure::new(Kind::Usage, why).hint("write --gpus 64xH100; see `headway model hardware`");
    let (count, name) =
        text.split_once('x').ok_or_else(|| usage(format!("\"{text}\" is no number of GPUs of a type")))?;
    let count: u32 = count
        .parse()
        .ok()
        .filter(|count| (1..=1 << 20).contains(count))
        .ok_or_else(|| usage(format!("\"{count}\" is no number of GPUs")))?;
    if let Some(known) = catalog.canonical(name) {
        return Ok((count, known.to_owned()));
    }
    let mut beginning = catalog.names().filter(|known| known.starts_with(name) && !name.is_empty());
    match (beginning.next(), beginning.next()) {
        (Some(only), None) => Ok((count, only.to_owned())),
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

fn precision(numbers: Numbers) -> Precision {
    match numbers {
        Numbers::Bf16 => Precision::Bf16,
        Numbers::Fp16 => Precision::Fp16,
        Numbers::Fp32 => Precision::Fp32,
        Numbers::Fp8 => Precision::Fp8,
        Numbers::Fp4 => Precision::Fp4,
    }
}

fn nothing_fits(found: &Found, memory: f64) -> Failure {
    let reasons: Vec<String> = found.excluded.iter().map(|(why, count)| format!("{count}× {why}")).collect();
    let failure = Failure::new(Kind::Failed, format!("no configuration is possible: {}", reasons.join(", ")));
    match found.least_memory {
        Some(least) => failure.hint(format!(
            "the smallest needs {:.1} GiB per GPU, of which {:.1} GiB can be planned with",
            least / GIB,
            USABLE * memory / GIB
        )),
        None => failure,
    }
}

fn line(ranked: &Ranked, architecture: &Architecture, peak: f64) -> Line {
    let seconds = ranked.time.total().0;
    let tokens = ranked.strategy.global_batch() as f64 * f64::from(architecture.seq_len);
    let rate = tokens / seconds / f64::from(ranked.strategy.gpus());
    Line {
        strategy: ranked.strategy,
        step_time_seconds: seconds,
        tokens_per_second_per_gpu: rate,
        mfu: rate * architecture.training_flops_per_token() / peak,
        bubble_share: ranked.time.pipeline_bubble.0 / seconds,
        communication_share: ranked.time.communication().0 / seconds,
        memory: ranked.memory,
        terms: ranked.time.terms().into_iter().map(|(name, time)| (name, time.0)).collect(),
    }
}

fn show(print: &Printer, answer: &Answer, explain: bool) -> Result<(), Failure> {
    if print.structured() {
        return print.value(answer);
    }
    say!(
        "{} parameters on {}, {} sequences per step, {} configurations evaluated",
        si(answer.parameters),
        answer.gpu_type,
        answer.global_batch,
        answer.evaluated
    )?;
    let headers = [
        "CONFIGURATION",
        "STEP",
        "TOKENS/S/GPU",
        "MFU",
        "BUBBLE",
        "WAITING",
        "STATES",
        "ACTIVATIONS",
        "LOGITS",
        "TOTAL",
    ];
    say!("{}", print.table(&headers, answer.best.iter().map(row)))?;
    if explain && let Some(best) = answer.best.first() {
        say!("\nEvery term of the best, in seconds:")?;
        let terms = best.terms.iter().filter(|(_, seconds)| **seconds > 0.0);
        say!(
            "{}",
            print.table(
                &["TERM", "SECONDS", "SHARE"],
                terms.map(|(name, seconds)| {
                    vec![(*name).to_owned(), format!("{seconds:.4}"), percent(seconds / best.step_time_seconds)]
                })
            )
        )?;
        say!("\nLeft out:")?;
        for (why, count) in &answer.excluded {
            say!("{count:6}× {why}")?;
        }
    }
    for caution in &answer.cautions {
        say!("unconfirmed: {caution}")?;
    }
    Ok(())
}

fn row(line: &Line) -> Vec<String> {
    let gib = |bytes: f64| format!("{:.1} GiB", bytes / GIB);
    vec![
        describe(&line.strategy),
        format!("{:.3} s", line.step_time_seconds),
        format!("{:.0}", line.tokens_per_second_per_gpu),
        percent(line.mfu),
        percent(line.bubble_share),
        percent(line.communication_share),
        gib(line.memory.states),
        gib(line.memory.activations),
        gib(line.memory.logits),
        gib(line.memory.total()),
    ]
}

fn percent(share: f64) -> String {
    format!("{:.1} %", 100.0 * share)
}

fn describe(strategy: &Strategy) -> String {
    let mut words = vec![format!("dp{} tp{} pp{}", strategy.dp, strategy.tp, strategy.pp)];
    let degrees = [("cp", strategy.cp), ("ep", strategy.ep), ("vpp", strategy.vpp)];
    words.extend(degrees.iter().filter(|(_, degree)| *degree > 1).map(|(name, degree)| format!("{name}{degree}")));
    words.push(format!("mb{}×{}", strategy.micro_batch, strategy.micro_batches));
    words.extend(
        match strategy.sharding {
            Sharding::None => None,
            Sharding::Optimizer { .. } => Some("zero1"),
            Sharding::Gradients => Some("zero2"),
            Sharding::Parameters => Some("zero3"),
            Sharding::ParametersInNode => Some("hsdp"),
        }
        .map(str::to_owned),
    );
    match strategy.recompute {
        Recompute::None => {}
        Recompute::Selective => words.push("recompute half".into()),
        Recompute::Full => words.push("recompute".into()),
    }
    if strategy.offload != Offload::None {
        words.push("offload".into());
    }
    words.join(" ")
}

#[cfg(test)]
#[path = "estimate_tests.rs"]
mod tests;
