//! A measured run in the model's words: what was trained, how, on what, and what came out. Rows that cannot be understood are skipped
//! with a reason; what a row leaves out and the field usually means is assumed, and said.

use std::collections::BTreeSet;

use headway_goodput::architecture::{Architecture, Attention, Experts};
use headway_goodput::catalog::{Catalog, Hardware};
use headway_goodput::collective::Cluster;
use headway_goodput::physics::Profile;
use headway_goodput::strategy::{Offload, Precision, Recompute, Schedule, Sharding, Strategy};

use crate::row::Row;

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
    #[error("global batch is no multiple of dp × micro-batch")]
    Indivisible,
    #[error("ep does not divide dp, or there are fewer experts")]
    Experts,
    #[error("neither step time nor memory measured")]
    NothingMeasured,
}

impl Measurement {
    /// Reads a row.
    pub fn read(row: &Row, file: &str, catalog: &Catalog) -> Result<Self, Skip> {
        let mut assumed = BTreeSet::new();
        let ending = match row.text("status") {
            None | Some("ok") => Ending::Ran,
            Some("oom" | "fail_oom_or_crash" | "fail_oom") => Ending::OutOfMemory,
            Some(other) => return Err(Skip::Status(other.to_owned())),
        };
        let gpu = row.text("gpu").ok_or(Skip::Missing("gpu"))?;
        let hardware = catalog.find(gpu).ok_or_else(|| Skip::UnknownGpu(gpu.to_owned()))?;
        let architecture = architecture(row, &mut assumed)?;
        let strategy = strategy(row, &architecture, &mut assumed)?;
        let tokens = strategy.global_batch() as f64 * f64::from(architecture.seq_len);
        let step_time = row
            .positive("step_time_s")
            .or_else(|| row.positive("tokens_per_s_per_gpu").map(|rate| tokens / (rate * f64::from(strategy.gpus()))));
        let memory = row.positive("peak_mem_gb").map(|gib| gib * GIB);
        if ending == Ending::Ran && step_time.is_none() && memory.is_none() {
            return Err(Skip::NothingMeasured);
        }
        let mut usual = |name: &'static str, rate: f64| {
            row.positive(name).map_or_else(
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
            && strategy.tp <= gpus_per_node.max(hardware.domain.unwrap_or(0));
        Ok(Self {
            source: row.text("source").unwrap_or(file).to_owned(),
            framework: row.text("framework").unwrap_or_default().to_owned(),
            row_id: row.text("row_id").unwrap_or_default().to_owned(),
            model: row.text("model").unwrap_or("unnamed").to_owned(),
            gpu_type: gpu.to_owned(),
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
    let needed = |name: &'static str| row.count(name).ok_or(Skip::Missing(name));
    let (layers, hidden, heads) = (needed("layers")?, needed("hidden")?, needed("heads")?);
    let kv_heads = or_usual(row.count("kv_heads"), heads, "kv_heads", assumed);
    let experts = row.count("experts").filter(|count| *count > 1).map(|count| Experts {
        count,
        active: row.count("active_experts").unwrap_or(2),
        ffn_hidden: row.count("expert_ffn_hidden").or(row.count("ffn_hidden")).unwrap_or(4 * hidden),
        shared_ffn_hidden: row.count("shared_ffn_hidden").unwrap_or(0),
        dense_layers: row.count("dense_layers").unwrap_or(0),
    });
    let architecture = Architecture {
        layers,
        hidden,
        heads,
        attention: Attention::Grouped { kv_heads, head_width: row.count("head_width").unwrap_or(hidden / heads) },
        ffn_hidden: or_usual(row.count("ffn_hidden"), hidden.saturating_mul(4), "ffn_hidden", assumed),
        gated: or_usual(row.flag("gated"), false, "gated", assumed),
        experts,
        vocab: needed("vocab")?,
        tied: or_usual(row.flag("tied"), false, "tied", assumed),
        seq_len: needed("seq_len")?,
    };
    architecture.check().map_err(|_| Skip::Architecture)?;
    Ok(architecture)
}

fn strategy(row: &Row, architecture: &Architecture, assumed: &mut BTreeSet<&'static str>) -> Result<Strategy, Skip> {
    let degree = |name: &str| row.count(name).unwrap_or(1);
    let (tp, pp, cp, ep) = (degree("tp"), degree("pp"), degree("cp"), degree("ep"));
    let gpus = row.count("num_gpus").ok_or(Skip::Missing("num_gpus"))?;
    let model_parallel = tp.checked_mul(pp).and_then(|both| both.checked_mul(cp)).ok_or(Skip::WrongSize)?;
    if !gpus.is_multiple_of(model_parallel) || row.count("dp").is_some_and(|dp| dp != gpus / model_parallel) {
        return Err(Skip::WrongSize);
    }
    let dp = gpus / model_parallel;
    if !dp.is_multiple_of(ep) || architecture.experts.map_or(1, |experts| experts.count) < ep {
        return Err(Skip::Experts);
    }
    let micro_batch = u64::from(row.count("micro_batch").ok_or(Skip::Missing("micro_batch"))?);
    let micro_batches = match row.count("global_batch") {
        Some(batch) => {
            let round = u64::from(dp) * micro_batch;
            if u64::from(batch) % round != 0 || batch == 0 {
                return Err(Skip::Indivisible);
            }
            u64::from(batch) / round
        }
        None => u64::from(row.count("grad_accum").ok_or(Skip::Missing("global_batch"))?),
    };
    let mode = row.text("dp_mode").unwrap_or_default();
    if row.text("dp_mode").is_none() {
        assumed.insert("dp_mode");
    }
    Ok(Strategy {
        dp,
        tp,
        pp,
        cp,
        ep,
        vpp: degree("vpp"),
        micro_batch,
        micro_batches,
        schedule: match row.text("schedule") {
            Some("gpipe") => Schedule::GPipe,
            Some("breadth_first") => Schedule::BreadthFirst,
            _ => Schedule::OneForwardOneBackward,
        },
        sequence_parallel: or_usual(row.flag("seq_par"), false, "seq_par", assumed),
        sharding: sharding(mode),
        recompute: match row.text("recompute") {
            Some("full") => Recompute::Full,
            Some("selective") => Recompute::Selective,
            Some(_) => Recompute::None,
            None => or_usual(None, Recompute::None, "recompute", assumed),
        },
        offload: if mode.contains("offload") { Offload::Host } else { Offload::None },
        precision: precision(row.text("precision"), assumed),
        fused_attention: or_usual(row.flag("flash"), true, "flash", assumed),
    })
}

/// What data-parallel ranks share, from the names the sources use.
fn sharding(mode: &str) -> Sharding {
    let group = mode.split_once("group").and_then(|(_, size)| size.parse().ok()).filter(|size| *size > 0);
    if mode.contains("hsdp") {
        Sharding::ParametersInNode
    } else if mode.contains("zero2") {
        Sharding::Gradients
    } else if mode.contains("zero3") || mode.contains("fsdp") {
        Sharding::Parameters
    } else if mode.contains("zero1") || mode.contains("distopt") || mode == "zero-dp" || mode == "zero-offload" {
        Sharding::Optimizer { group }
    } else {
        Sharding::None
    }
}

fn precision(name: Option<&str>, assumed: &mut BTreeSet<&'static str>) -> Precision {
    let Some(name) = name else { return or_usual(None, Precision::Bf16, "precision", assumed) };
    if name.contains("fp4") {
        Precision::Fp4
    } else if name.contains("fp8") {
        Precision::Fp8
    } else if name.contains("fp32") {
        Precision::Fp32
    } else if name.contains("fp16") {
        Precision::Fp16
    } else {
        Precision::Bf16
    }
}

#[cfg(test)]
#[path = "measurement_tests.rs"]
mod tests;
