//! What an estimate says, for people and programs.

use std::collections::BTreeMap;

use headway_estimator::search::{Found, Ranked, Wanted};
use headway_goodput::architecture::Architecture;
use headway_goodput::band::Band;
use headway_goodput::catalog::Hardware;
use headway_goodput::caution::Caution;
use headway_goodput::memory::MemoryUse;
use headway_goodput::strategy::{Offload, Recompute, Sharding, Strategy};
use serde::Serialize;

use crate::failure::Failure;
use crate::output::{Printer, duration, si};
use crate::table::Column;

const GIB: f64 = 1024.0 * 1024.0 * 1024.0;
/// Width of the longest bar.
const BAR: f64 = 32.0;

/// One configuration.
#[derive(Serialize)]
pub struct Line {
    pub strategy: Strategy,
    pub step_time_seconds: f64,
    /// Between which the step time comes to lie in four of five cases.
    pub step_time_band: Band,
    tokens_per_second_per_gpu: f64,
    mfu: f64,
    bubble_share: f64,
    communication_share: f64,
    /// The longest term beside computing.
    limit: &'static str,
    memory: MemoryUse,
    memory_band: Band,
    pub terms: BTreeMap<&'static str, f64>,
}

/// Training on so many tokens with the best configuration.
#[derive(Serialize)]
struct Training {
    tokens: f64,
    seconds: f64,
    band: Band,
    gpu_hours: f64,
}

#[derive(Serialize)]
pub struct Answer {
    parameters: f64,
    active_parameters: f64,
    /// Tokens of a sequence.
    seq_len: u32,
    pub gpu_type: String,
    pub gpus: u32,
    pub global_batch: u64,
    pub best: Vec<Line>,
    /// What more likely than not does not fit, although it may.
    unlikely_to_fit: Vec<Line>,
    training: Option<Training>,
    evaluated: usize,
    excluded: BTreeMap<String, usize>,
    cautions: Vec<String>,
}

impl Answer {
    pub fn new(
        architecture: &Architecture,
        gpu_type: &str,
        hardware: &Hardware,
        wanted: &Wanted,
        found: &Found,
        cautions: &[Caution],
        tokens: Option<f64>,
    ) -> Self {
        let lines = |ranked: &[Ranked]| -> Vec<Line> {
            ranked.iter().map(|ranked| Line::of(ranked, architecture, hardware.peak)).collect()
        };
        let (best, unlikely_to_fit) = (lines(&found.best), lines(&found.unlikely));
        let training = tokens.zip(best.first()).map(|(tokens, line)| {
            let steps = tokens / (wanted.global_batch as f64 * f64::from(architecture.seq_len));
            let (seconds, Band { p10, p90 }) = (steps * line.step_time_seconds, line.step_time_band);
            let band = Band { p10: steps * p10, p90: steps * p90 };
            Training { tokens, seconds, band, gpu_hours: seconds * f64::from(wanted.gpus) / 3600.0 }
        });
        Self {
            parameters: architecture.parameters(),
            active_parameters: architecture.active_parameters(),
            seq_len: architecture.seq_len,
            gpu_type: gpu_type.to_owned(),
            gpus: wanted.gpus,
            global_batch: wanted.global_batch,
            best,
            unlikely_to_fit,
            training,
            evaluated: found.evaluated,
            excluded: found.excluded.iter().map(|(why, count)| (why.to_string(), *count)).collect(),
            cautions: cautions.iter().map(ToString::to_string).collect(),
        }
    }
}

impl Line {
    fn of(ranked: &Ranked, architecture: &Architecture, peak: f64) -> Self {
        let seconds = ranked.time.total().0;
        let tokens = ranked.strategy.global_batch() as f64 * f64::from(architecture.seq_len);
        let rate = tokens / seconds / f64::from(ranked.strategy.gpus());
        let terms = ranked.time.terms();
        let others = terms.iter().filter(|(name, _)| !["compute", "logits"].contains(name));
        let limit = others.max_by(|left, right| left.1.0.total_cmp(&right.1.0)).map_or("compute", |(name, _)| *name);
        Self {
            strategy: ranked.strategy,
            step_time_seconds: seconds,
            step_time_band: Band::around(seconds, ranked.deviation.time),
            tokens_per_second_per_gpu: rate,
            mfu: rate * architecture.training_flops_per_token() / peak,
            bubble_share: ranked.time.pipeline_bubble.0 / seconds,
            communication_share: ranked.time.communication().0 / seconds,
            limit,
            memory: ranked.memory,
            memory_band: Band::around(ranked.memory.total(), ranked.deviation.memory),
            terms: terms.into_iter().map(|(name, time)| (name, time.0)).collect(),
        }
    }

    fn row(&self) -> Vec<String> {
        let gib = |bytes: f64| format!("{:.1} GiB", bytes / GIB);
        let share = self.terms.get(self.limit).map_or(0.0, |seconds| seconds / self.step_time_seconds);
        vec![
            describe(&self.strategy),
            time(self.step_time_seconds),
            band(&self.step_time_band),
            format!("{:.0}", self.tokens_per_second_per_gpu),
            percent(self.mfu),
            format!("{} {}", self.limit, percent(share)),
            percent(self.bubble_share),
            percent(self.communication_share),
            gib(self.memory.states),
            gib(self.memory.activations),
            gib(self.memory.logits),
            gib(self.memory.total()),
        ]
    }
}

const COLUMNS: [Column; 12] = [
    Column::new("CONFIGURATION"),
    Column::new("STEP"),
    Column::new("P10–P90").rank(3),
    Column::new("TOKENS/S/GPU").rank(2),
    Column::new("MFU"),
    Column::new("MOST BESIDE COMPUTING").rank(4),
    Column::new("BUBBLE").wide(),
    Column::new("WAITING").wide(),
    Column::new("STATES").wide(),
    Column::new("ACTIVATIONS").wide(),
    Column::new("LOGITS").wide(),
    Column::new("MEMORY").rank(1),
];

/// One answer, whole.
pub fn show(print: &Printer, answer: &Answer, explain: bool) -> Result<(), Failure> {
    if print.structured() {
        return print.value(answer);
    }
    say!(
        "{} parameters on {} {}, {} sequences of {} tokens per step, {} configurations evaluated",
        si(answer.parameters),
        answer.gpus,
        answer.gpu_type,
        answer.global_batch,
        answer.seq_len,
        answer.evaluated
    )?;
    if !answer.best.is_empty() {
        say!("{}", print.table(&COLUMNS, answer.best.iter().map(Line::row)))?;
    }
    if let Some(training) = &answer.training {
        say!(
            "\n{} tokens take {} ({} to {}), {} GPU-hours",
            si(training.tokens),
            duration(training.seconds),
            duration(training.band.p10),
            duration(training.band.p90),
            si(training.gpu_hours)
        )?;
    }
    if explain {
        explained(print, answer)?;
    }
    unlikely(print, answer)?;
    for caution in &answer.cautions {
        say!("unconfirmed: {caution}")?;
    }
    Ok(())
}

fn explained(print: &Printer, answer: &Answer) -> Result<(), Failure> {
    if let Some(best) = answer.best.first() {
        terms(print, best)?;
    }
    say!("\nLeft out:")?;
    for (why, count) in &answer.excluded {
        say!("{count:6}× {why}")?;
    }
    Ok(())
}

fn terms(print: &Printer, best: &Line) -> Result<(), Failure> {
    say!("\nEvery term of the best, in seconds:")?;
    let mut terms: Vec<(&str, f64)> = best.terms.iter().map(|(name, seconds)| (*name, *seconds)).collect();
    terms.retain(|(_, seconds)| *seconds > 0.0);
    terms.sort_by(|left, right| right.1.total_cmp(&left.1));
    let longest = terms.first().map_or(1.0, |(_, seconds)| *seconds);
    let row = |(name, seconds): &(&str, f64)| {
        let bar = "█".repeat((BAR * seconds / longest).round() as usize);
        vec![(*name).to_owned(), format!("{seconds:.4}"), percent(seconds / best.step_time_seconds), bar]
    };
    say!("{}", print.table(&["TERM", "SECONDS", "SHARE", ""], terms.iter().map(row)))?;
    Ok(())
}

/// What would be faster if it fits.
fn unlikely(print: &Printer, answer: &Answer) -> Result<(), Failure> {
    let slowest = answer.best.first().map_or(f64::INFINITY, |line| line.step_time_seconds);
    let mut faster = answer.unlikely_to_fit.iter().filter(|line| line.step_time_seconds < slowest).peekable();
    if faster.peek().is_none() {
        return Ok(());
    }
    say!("\nUnlikely to fit, but not beyond what the estimate of memory may be off:")?;
    say!("{}", print.table(&COLUMNS, faster.take(3).map(Line::row)))?;
    Ok(())
}

/// Several side by side, each by its best.
pub fn compare(print: &Printer, answers: &[Answer]) -> Result<(), Failure> {
    if print.structured() {
        return print.value(&answers);
    }
    let headers = ["GPUS", "BEST", "STEP", "P10–P90", "TOKENS/S", "MFU", "TRAINING", "GPU-HOURS"];
    let rows = answers.iter().map(|answer| {
        let Some(line) = answer.best.first().or(answer.unlikely_to_fit.first()) else { return Vec::new() };
        let training = |show: &dyn Fn(&Training) -> String| answer.training.as_ref().map_or("-".to_owned(), show);
        vec![
            format!("{}x{}", answer.gpus, answer.gpu_type),
            format!("{}{}", describe(&line.strategy), if answer.best.is_empty() { " (unlikely to fit)" } else { "" }),
            time(line.step_time_seconds),
            band(&line.step_time_band),
            si(line.tokens_per_second_per_gpu * f64::from(answer.gpus)),
            percent(line.mfu),
            training(&|training| duration(training.seconds)),
            training(&|training| si(training.gpu_hours)),
        ]
    });
    say!("{}", print.table(&headers, rows))?;
    for answer in answers {
        for caution in &answer.cautions {
            say!("unconfirmed on {}: {caution}", answer.gpu_type)?;
        }
    }
    Ok(())
}

fn time(seconds: f64) -> String {
    if seconds < 10.0 { format!("{seconds:.3} s") } else { format!("{seconds:.1} s") }
}

fn band(band: &Band) -> String {
    format!("{} to {}", time(band.p10), time(band.p90))
}

fn percent(share: f64) -> String {
    format!("{:.1} %", 100.0 * share)
}

/// A configuration by what is unusual about it.
pub fn describe(strategy: &Strategy) -> String {
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
