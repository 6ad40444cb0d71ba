//! A measured run in the model's words: what was trained, how, on what, and what came out. Rows that cannot be understood are skipped
//! with a reason; what a row leaves out and the field usually means is assumed, and said.

use std::collections::BTreeSet;
use std::ops::RangeInclusive;

use headway_goodput::architecture::Architecture;
use headway_goodput::catalog::{Catalog, Hardware};
use headway_goodput::collective::Cluster;
use headway_goodput::physics::Profile;
use headway_goodput::strategy::{Offload, Precision, Recompute, Schedule, Sharding, Strategy};
use headway_types::preset::{self, Preset};
use headway_types::{Experts, ModelShape};

use crate::row::Row;
use crate::wording::{Found, ending, gpu_type, precision, sharding};

/// Columns without which a row is scored, but teaches nothing.
const DECISIVE: [&str; 6] = ["gpu", "heads", "vocab", "global_batch", "unknown dp_mode", "unknown precision"];
/// The largest job, micro-batch and batch that are taken for real.
const MOST_GPUS: u32 = 1 << 20;
const MOST_SEQUENCES: u32 = 1 << 24;
/// Step times, memory and link rates that are taken for real.
const STEP_SECONDS: RangeInclusive<f64> = 1e-4..=1e6;
const MEMORY_BYTES: RangeInclusive<f64> = 1e6..=1e13;
const LINK_GIGABYTES: RangeInclusive<f64> = 0.01..=1e5;
/// Width of a head and vocabulary where a row does not say.
const USUAL_HEAD: u32 = 128;
const USUAL_VOCABULARY: u32 = 50_304;
/// Bytes in the unit memory is reported in.
const GIB: f64 = 1024.0 * 1024.0 * 1024.0;

/// How a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Ending {
    Ran,
    OutOfMemory,
}

/// One measured run.
#[derive(Clone, Debug)]
pub struct Measurement {
    pub source: String,
    pub framework: String,
    pub row_id: String,
    pub model: String,
    pub gpu_type: String,
    pub hardware: Hardware,
    pub architecture: Architecture,
    pub strategy: Strategy,
    pub gpus_per_node: u32,
    /// Bytes/s per GPU and direction.
    pub link: f64,
    pub network: f64,
    pub ending: Ending,
    /// Seconds of one step.
    pub step_time: Option<f64>,
    /// Bytes of the largest rank.
    pub memory: Option<f64>,
    /// No cluster trouble is known of, and a tensor-parallel group fits a node.
    pub clean: bool,
    /// What the row left out.
    pub assumed: BTreeSet<&'static str>,
}

/// Why a row is of no use.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, thiserror::Error)]
pub enum Skip {
    #[error("status {0}: not a complete run")]
    Status(String),
    #[error("{0} missing or no positive number")]
    Missing(&'static str),
    #[error("GPU type {0} not in the catalog")]
    UnknownGpu(String),
    #[error("impossible model")]
    Architecture,
    #[error("GPUs are not dp × tp × pp × cp")]
    WrongSize,
    #[error("{0} beyond anything real")]
    Absurd(&'static str),
    #[error("global batch is smaller than dp × micro-batch")]
    Indivisible,
    #[error("ep does not divide tp × cp × dp, or there are fewer experts")]
    Experts,
    #[error("neither step time nor memory measured")]
    NothingMeasured,
}

impl Measurement {
    /// Reads a row.
    pub fn read(row: &Row, file: &str, catalog: &Catalog) -> Result<Self, Skip> {
        let mut assumed = BTreeSet::new();
        let ending = ending(row.text("status"))?;
        let gpu = row.text("gpu").ok_or(Skip::Missing("gpu"))?;
        let Found { name: gpu_type, hardware, similar } =
            gpu_type(gpu, catalog).ok_or_else(|| Skip::UnknownGpu(gpu.to_owned()))?;
        if similar {
            assumed.insert("gpu");
        }
        let architecture = architecture(row, &mut assumed)?;
        let strategy = strategy(row, &architecture, &mut assumed)?;
        let sequences = row.positive("global_batch").unwrap_or(strategy.global_batch() as f64);
        let tokens = sequences * f64::from(architecture.seq_len);
        let step_time = row
            .positive("step_time_s")
            .or_else(|| row.positive("tokens_per_s_per_gpu").map(|rate| tokens / (rate * f64::from(strategy.gpus()))));
        let memory = row.positive("peak_mem_gb").map(|gib| gib * GIB);
        if step_time.is_some_and(|seconds| !STEP_SECONDS.contains(&seconds)) {
            return Err(Skip::Absurd("step_time_s"));
        }
        if memory.is_some_and(|bytes| !MEMORY_BYTES.contains(&bytes)) {
            return Err(Skip::Absurd("peak_mem_gb"));
        }
        if ending == Ending::Ran && step_time.is_none() && memory.is_none() {
            return Err(Skip::NothingMeasured);
        }
        let mut usual = |name: &'static str, rate: f64| {
            row.positive(name).filter(|gigabytes| LINK_GIGABYTES.contains(gigabytes)).map_or_else(
                || {
                    assumed.insert(name);
                    rate
                },
                |gigabytes| gigabytes * 1e9,
            )
        };
        let link = usual("intra_gbps_per_gpu", hardware.intra_node);
        let network = usual("inter_gbps_per_gpu", hardware.inter_node);
        let gpus_per_node = row.count("gpus_per_node").unwrap_or(8).min(strategy.gpus());
        let clean = row.flag("anomaly") != Some(true)
            && row.number("mfu_pct").is_none_or(|share| share >= 12.0)
            && strategy.tp <= gpus_per_node.max(hardware.domain.unwrap_or(0))
            && DECISIVE.iter().all(|column| !assumed.contains(column));
        Ok(Self {
            source: row.text("source").unwrap_or(file).to_owned(),
            framework: row.text("framework").unwrap_or_default().to_owned(),
            row_id: row.text("row_id").unwrap_or_default().to_owned(),
            model: row.text("model").unwrap_or("unnamed").to_owned(),
            gpu_type,
            hardware,
            architecture,
            strategy,
            gpus_per_node,
            link,
            network,
            ending,
            step_time: if ending == Ending::Ran { step_time } else { None },
            memory: if ending == Ending::Ran { memory } else { None },
            clean,
            assumed,
        })
    }

    /// The run's cluster under a software profile.
    #[must_use]
    pub fn cluster<'a>(&'a self, hardware: &'a Hardware, profile: &'a Profile) -> Cluster<'a> {
        Cluster { hardware, profile, gpus_per_node: self.gpus_per_node, link: self.link, network: self.network }
    }

    /// FLOPs of one step on one GPU, repeated forward passes included.
    #[must_use]
    pub fn flops_per_gpu(&self) -> f64 {
        let tokens = self.strategy.global_batch() as f64 * f64::from(self.architecture.seq_len);
        let again = if self.strategy.recompute == Recompute::Full { 4.0 / 3.0 } else { 1.0 };
        self.architecture.training_flops_per_token() * tokens * again / f64::from(self.strategy.gpus())
    }
}

/// A column or what is usual without it.
fn or_usual<T>(value: Option<T>, usual: T, name: &'static str, assumed: &mut BTreeSet<&'static str>) -> T {
    value.unwrap_or_else(|| {
        assumed.insert(name);
        usual
    })
}

fn architecture(row: &Row, assumed: &mut BTreeSet<&'static str>) -> Result<Architecture, Skip> {
    let possible =
        |shape: ModelShape| shape.check().map(|()| Architecture::from(&shape)).map_err(|_| Skip::Architecture);
    let known = row.text("model").and_then(preset::named).map(Preset::shape);
    let (Some(layers), Some(hidden)) = (row.count("layers"), row.count("hidden")) else {
        // A well-known model needs no sizes.
        let known = known.ok_or(Skip::Missing(if row.count("layers").is_none() { "layers" } else { "hidden" }))?;
        return possible(ModelShape { seq_len: row.count("seq_len").unwrap_or(known.seq_len), ..known });
    };
    let heads = or_usual(row.count("heads"), (hidden / USUAL_HEAD).max(1), "heads", assumed);
    let kv_heads = or_usual(row.count("kv_heads"), heads, "kv_heads", assumed);
    let experts = row.count("experts").filter(|count| *count > 1).map(|count| Experts {
        count,
        active: row.count("active_experts").unwrap_or(2),
        ffn_hidden: row.count("expert_ffn_hidden").or(row.count("ffn_hidden")).unwrap_or(hidden.saturating_mul(4)),
        shared_ffn_hidden: row.count("shared_ffn_hidden").unwrap_or(0),
        dense_layers: row.count("dense_layers").unwrap_or(0),
    });
    possible(ModelShape {
        layers,
        hidden,
        heads,
        kv_heads,
        // Some models' heads do not divide their width; what is left over is not computed.
        head_width: Some(row.count("head_width").unwrap_or(hidden / heads)),
        latent: None,
        kinds: None,
        ffn_hidden: or_usual(row.count("ffn_hidden"), hidden.saturating_mul(4), "ffn_hidden", assumed),
        gated: or_usual(row.flag("gated"), false, "gated", assumed),
        experts,
        vocab: or_usual(row.count("vocab"), USUAL_VOCABULARY, "vocab", assumed),
        tied: or_usual(row.flag("tied"), false, "tied", assumed),
        seq_len: row.count("seq_len").ok_or(Skip::Missing("seq_len"))?,
    })
}

/// Data, tensor, pipeline, context and expert degrees.
fn degrees(row: &Row, architecture: &Architecture) -> Result<[u32; 5], Skip> {
    let degree = |name: &str| row.count(name).unwrap_or(1);
    let (tp, pp, cp, ep) = (degree("tp"), degree("pp"), degree("cp"), degree("ep"));
    let model_parallel = tp.checked_mul(pp).and_then(|both| both.checked_mul(cp)).ok_or(Skip::WrongSize)?;
    let whole = || row.count("dp")?.checked_mul(model_parallel);
    let gpus = row.count("num_gpus").or_else(whole).ok_or(Skip::Missing("num_gpus"))?;
    if gpus > MOST_GPUS {
        return Err(Skip::Absurd("num_gpus"));
    }
    if !gpus.is_multiple_of(model_parallel) || row.count("dp").is_some_and(|dp| dp != gpus / model_parallel) {
        return Err(Skip::WrongSize);
    }
    let dp = gpus / model_parallel;
    if !(tp * cp * dp).is_multiple_of(ep) || architecture.experts.map_or(1, |experts| experts.count) < ep {
        return Err(Skip::Experts);
    }
    Ok([dp, tp, pp, cp, ep])
}

/// Micro-batch and micro-batches per replica. Without a micro-batch, that of the stated accumulation, never a guess: it decides all. A
/// batch that its replicas cannot share evenly takes as long as the next larger one.
fn batches(row: &Row, dp: u32, assumed: &mut BTreeSet<&'static str>) -> Result<(u64, u64), Skip> {
    let (batch, accumulation) = (row.count("global_batch"), row.count("grad_accum"));
    for (name, value) in
        [("global_batch", batch), ("micro_batch", row.count("micro_batch")), ("grad_accum", accumulation)]
    {
        if value.is_some_and(|value| value > MOST_SEQUENCES) {
            return Err(Skip::Absurd(name));
        }
    }
    let (replicas, batch) = (u64::from(dp), batch.map(u64::from));
    let accumulated = || {
        let round = replicas * u64::from(accumulation?);
        batch.filter(|batch| batch.is_multiple_of(round)).map(|batch| batch / round)
    };
    let micro_batch =
        row.count("micro_batch").map(u64::from).or_else(accumulated).ok_or(Skip::Missing("micro_batch"))?;
    let Some(batch) = batch else {
        let accumulation = accumulation.ok_or(Skip::Missing("global_batch"))?;
        return Ok((micro_batch, u64::from(accumulation)));
    };
    let round = replicas * micro_batch;
    if batch < round {
        return Err(Skip::Indivisible);
    }
    if !batch.is_multiple_of(round) {
        assumed.insert("global_batch");
    }
    Ok((micro_batch, batch.div_ceil(round)))
}

fn strategy(row: &Row, architecture: &Architecture, assumed: &mut BTreeSet<&'static str>) -> Result<Strategy, Skip> {
    let [dp, tp, pp, cp, ep] = degrees(row, architecture)?;
    let (micro_batch, micro_batches) = batches(row, dp, assumed)?;
    let mode = or_usual(row.text("dp_mode"), "", "dp_mode", assumed);
    let number = or_usual(row.text("precision"), "bf16", "precision", assumed);
    Ok(Strategy {
        dp,
        tp,
        pp,
        cp,
        ep,
        vpp: row.count("vpp").unwrap_or(1),
        micro_batch,
        micro_batches,
        schedule: match row.text("schedule") {
            Some("gpipe") => Schedule::GPipe,
            Some("breadth_first") => Schedule::BreadthFirst,
            _ => Schedule::OneForwardOneBackward,
        },
        sequence_parallel: or_usual(row.flag("seq_par"), false, "seq_par", assumed),
        sharding: or_usual(sharding(mode), Sharding::None, "unknown dp_mode", assumed),
        recompute: match row.text("recompute") {
            Some("full") => Recompute::Full,
            Some("selective") => Recompute::Selective,
            Some(_) => Recompute::None,
            None => or_usual(None, Recompute::None, "recompute", assumed),
        },
        offload: if mode.contains("offload") { Offload::Host } else { Offload::None },
        precision: or_usual(precision(number), Precision::Bf16, "unknown precision", assumed),
        fused_attention: or_usual(row.flag("flash"), true, "flash", assumed),
    })
}

#[cfg(test)]
#[path = "measurement_tests.rs"]
mod tests;
