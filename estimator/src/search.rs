//! All strategies for a model on a number of GPUs at a batch, best first, and why the others are out. Where `curve` chooses among what a
//! scheduled job can be told, this chooses among everything the model knows.

use std::collections::BTreeMap;

use headway_goodput::architecture::Architecture;
use headway_goodput::band::{Band, Deviation};
use headway_goodput::collective::Cluster;
use headway_goodput::estimate::{divides_layers, step_time_of};
use headway_goodput::memory::{MemoryUse, USABLE, memory_of};
use headway_goodput::step_time::StepTime;
use headway_goodput::strategy::{Offload, Precision, Recompute, Sharding, Strategy};
use serde::{Deserialize, Serialize};

/// What is fixed before the search.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Wanted {
    pub gpus: u32,
    /// Sequences per step.
    pub global_batch: u64,
    pub precision: Precision,
    pub fused_attention: bool,
    /// Try optimizer states in host memory too.
    pub offload: bool,
}

/// Why a strategy is out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, thiserror::Error)]
#[serde(rename_all = "snake_case")]
pub enum Exclusion {
    #[error("tensor-parallel group would span nodes")]
    TensorSpansNodes,
    #[error("tp does not divide the heads or the key/value heads")]
    Heads,
    #[error("pp × vpp divides neither the layers nor these with embedding and output projection")]
    Layers,
    #[error("the GPUs do not divide into tp × pp × cp")]
    Gpus,
    #[error("the batch does not divide into dp × micro-batch")]
    Batch,
    #[error("cp does not divide the sequence into two parts per rank")]
    Sequence,
    #[error("ep does not divide the experts or tp × cp × dp")]
    Experts,
    #[error("interleaved stages need a multiple of pp micro-batches")]
    Interleaving,
    #[error("nothing to shard over: dp × cp = 1")]
    NothingToShard,
    #[error("does not fit the device's memory")]
    Memory,
    #[error("unlikely to fit the device's memory")]
    UnlikelyMemory,
}

/// A strategy with what it takes, and how far both may be off.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ranked {
    pub strategy: Strategy,
    pub time: StepTime,
    pub memory: MemoryUse,
    pub deviation: Deviation,
}

/// The result of a search.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Found {
    /// Fastest first.
    pub best: Vec<Ranked>,
    /// Those that fit only at the lower half of their band: more likely than not they run out of memory. Fastest first.
    pub unlikely: Vec<Ranked>,
    /// Strategies whose time and memory were computed.
    pub evaluated: usize,
    pub excluded: BTreeMap<Exclusion, usize>,
    /// Of those that do not fit, the one that needs least, in bytes.
    pub least_memory: Option<f64>,
}

/// Tokens of a sequence that each rank keeps at least when it is split over ranks.
const LEAST_CONTEXT: u32 = 4096;
const MOST_CONTEXT: u32 = 16;
const LARGEST_MICRO_BATCH: u64 = 256;

/// Searches all strategies and keeps the `keep` fastest. `deviation` says how far off estimates of a strategy may be.
#[must_use]
pub fn search(
    architecture: &Architecture,
    cluster: &Cluster,
    wanted: &Wanted,
    keep: usize,
    deviation: &dyn Fn(&Strategy) -> Deviation,
) -> Found {
    let mut found = Found::default();
    let room = Room { architecture, cluster, wanted, deviation };
    for tp in divisors(wanted.gpus).filter(|tp| *tp <= 64) {
        for pp in divisors(wanted.gpus / tp) {
            for cp in contexts(architecture) {
                room.degrees((tp, pp, cp), &mut found);
            }
        }
    }
    for ranked in [&mut found.best, &mut found.unlikely] {
        ranked.sort_by(|left, right| {
            left.time.total().0.total_cmp(&right.time.total().0).then_with(|| left.strategy.cmp(&right.strategy))
        });
        ranked.truncate(keep);
    }
    found
}

fn contexts(architecture: &Architecture) -> impl Iterator<Item = u32> + use<> {
    let most = (architecture.seq_len / LEAST_CONTEXT).clamp(1, MOST_CONTEXT);
    std::iter::successors(Some(1), |cp| Some(cp * 2)).take_while(move |cp| *cp <= most)
}

fn divisors(number: u32) -> impl Iterator<Item = u32> {
    (1..=number).filter(move |divisor| number.is_multiple_of(*divisor))
}

/// What a search stays within.
struct Room<'a> {
    architecture: &'a Architecture,
    cluster: &'a Cluster<'a>,
    wanted: &'a Wanted,
    deviation: &'a dyn Fn(&Strategy) -> Deviation,
}

impl Room<'_> {
    /// Why no strategy of these degrees can run.
    fn obstacle(&self, (tp, pp, cp): (u32, u32, u32)) -> Option<Exclusion> {
        let (architecture, scale_up, gpus) = (self.architecture, self.cluster.scale_up(), self.wanted.gpus);
        if tp > scale_up || !scale_up.min(gpus).is_multiple_of(tp) {
            Some(Exclusion::TensorSpansNodes)
        } else if !architecture.heads.is_multiple_of(tp) || !architecture.kv_heads().is_multiple_of(tp) {
            Some(Exclusion::Heads)
        } else if !divides_layers(architecture.layers, pp) {
            Some(Exclusion::Layers)
        } else if !gpus.is_multiple_of(tp * pp * cp) {
            Some(Exclusion::Gpus)
        } else if !architecture.seq_len.is_multiple_of(2 * cp) && cp > 1 {
            Some(Exclusion::Sequence)
        } else {
            None
        }
    }

    fn degrees(&self, degrees: (u32, u32, u32), found: &mut Found) {
        if let Some(why) = self.obstacle(degrees) {
            *found.excluded.entry(why).or_default() += 1;
            return;
        }
        let ((tp, pp, cp), batch) = (degrees, self.wanted.global_batch);
        let dp = self.wanted.gpus / (tp * pp * cp);
        let base = Strategy {
            dp,
            tp,
            pp,
            cp,
            sequence_parallel: tp > 1,
            precision: self.wanted.precision,
            fused_attention: self.wanted.fused_attention,
            ..Strategy::single()
        };
        let mut micro_batch = 1;
        while micro_batch <= LARGEST_MICRO_BATCH && u64::from(dp) * micro_batch <= batch {
            if batch.is_multiple_of(u64::from(dp) * micro_batch) {
                let micro_batches = batch / (u64::from(dp) * micro_batch);
                self.variants(Strategy { micro_batch, micro_batches, ..base }, found);
            } else {
                *found.excluded.entry(Exclusion::Batch).or_default() += 1;
            }
            micro_batch *= 2;
        }
        if u64::from(dp) > batch {
            *found.excluded.entry(Exclusion::Batch).or_default() += 1;
        }
    }

    /// Interleaving, expert parallelism, sharding, recomputation and offload of a layout with its batch.
    fn variants(&self, base: Strategy, found: &mut Found) {
        let chunks = (0..4).map(|power| 1u32 << power).filter(|vpp| *vpp == 1 || base.pp > 1);
        for vpp in chunks {
            if !divides_layers(self.architecture.layers, base.pp * vpp) {
                *found.excluded.entry(Exclusion::Layers).or_default() += 1;
                continue;
            }
            if vpp > 1 && !base.micro_batches.is_multiple_of(u64::from(base.pp)) {
                *found.excluded.entry(Exclusion::Interleaving).or_default() += 1;
                continue;
            }
            for ep in experts(self.architecture, base.tp * base.cp * base.dp, found) {
                self.shardings(Strategy { vpp, ep, ..base }, found);
            }
        }
    }

    fn shardings(&self, base: Strategy, found: &mut Found) {
        for sharding in
            [Sharding::None, Sharding::Optimizer { group: None }, Sharding::Parameters, Sharding::ParametersInNode]
        {
            let in_node = sharding == Sharding::ParametersInNode;
            if sharding != Sharding::None && base.dp * base.cp == 1 {
                *found.excluded.entry(Exclusion::NothingToShard).or_default() += 1;
                continue;
            }
            if in_node && self.wanted.gpus <= self.cluster.gpus_per_node {
                continue;
            }
            for recompute in [Recompute::None, Recompute::Selective, Recompute::Full] {
                let strategy = Strategy { sharding, recompute, ..base };
                self.weigh(strategy, found);
                if self.wanted.offload {
                    self.weigh(Strategy { offload: Offload::Host, ..strategy }, found);
                }
            }
        }
    }

    /// Selective recomputation changes nothing under fused attention without sharded parameters.
    fn weigh(&self, strategy: Strategy, found: &mut Found) {
        let idle =
            strategy.recompute == Recompute::Selective && strategy.fused_attention && !strategy.sharding.gathers();
        if idle {
            return;
        }
        let (architecture, cluster) = (self.architecture, self.cluster);
        let (memory, deviation) = (memory_of(architecture, &strategy, cluster), (self.deviation)(&strategy));
        let room = USABLE * cluster.hardware.memory;
        found.evaluated += 1;
        if Band::around(memory.total(), deviation.memory).p10 > room {
            *found.excluded.entry(Exclusion::Memory).or_default() += 1;
            let least = found.least_memory.unwrap_or(f64::INFINITY).min(memory.total());
            found.least_memory = Some(least);
            return;
        }
        let ranked = Ranked { strategy, time: step_time_of(architecture, &strategy, cluster), memory, deviation };
        if memory.total() > room {
            *found.excluded.entry(Exclusion::UnlikelyMemory).or_default() += 1;
            found.unlikely.push(ranked);
        } else {
            found.best.push(ranked);
        }
    }
}

fn experts(architecture: &Architecture, ranks: u32, found: &mut Found) -> Vec<u32> {
    let Some(experts) = architecture.experts else { return vec![1] };
    let (fit, out): (Vec<u32>, Vec<u32>) =
        divisors(ranks).partition(|ep| ep.is_power_of_two() && experts.count.is_multiple_of(*ep));
    *found.excluded.entry(Exclusion::Experts).or_default() += out.len();
    fit
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use headway_goodput::catalog::Catalog;
    use headway_goodput::physics::Parameters;

    use super::*;

    fn architecture(model: &str) -> Architecture {
        Architecture::from(&headway_types::preset::named(model).unwrap().shape())
    }

    fn searched(model: &str, gpu: &str, gpus: u32, batch: u64) -> Found {
        let hardware = Catalog::built_in().find(gpu).unwrap();
        let profile = Parameters::built_in().profile(Some("nemo"));
        let cluster = Cluster::usual(&hardware, &profile, gpus.min(8));
        let wanted =
            Wanted { gpus, global_batch: batch, precision: Precision::Bf16, fused_attention: true, offload: false };
        let deviation = |_: &Strategy| Deviation { time: 0.1, memory: 0.1 };
        search(&architecture(model), &cluster, &wanted, 10, &deviation)
    }

    #[test]
    fn the_best_ten_fit_run_and_come_in_order() {
        let found = searched("llama-3-70b", "H100-80G", 64, 512);
        assert_eq!(found.best.len(), 10);
        for ranked in &found.best {
            assert_eq!(ranked.strategy.gpus(), 64);
            assert_eq!(ranked.strategy.global_batch(), 512);
            assert!(ranked.memory.total() <= USABLE * 80.0 * (1u64 << 30) as f64);
        }
        assert!(found.best.is_sorted_by(|left, right| left.time.total().0 <= right.time.total().0));
        let tokens = 512.0 * 8192.0 / found.best[0].time.total().0 / 64.0;
        let utilisation = architecture("llama-3-70b").training_flops_per_token() * tokens / 989e12;
        assert!((0.3..0.6).contains(&utilisation), "{utilisation}");
    }

    #[test]
    fn what_never_fits_says_how_much_it_needs() {
        let found = searched("llama-3.1-405b", "H100-80G", 8, 8);
        assert!(found.best.is_empty());
        assert!(found.least_memory.unwrap() > 80e9);
        assert!(found.excluded[&Exclusion::Memory] > 0);
    }

    #[test]
    fn experts_are_spread_over_replicas() {
        let found = searched("mixtral-8x7b", "H100-80G", 64, 512);
        assert!(found.best.iter().all(|Ranked { strategy, .. }| {
            8 % strategy.ep == 0 && (strategy.tp * strategy.cp * strategy.dp).is_multiple_of(strategy.ep)
        }));
    }

    #[test]
    fn embedding_and_projection_may_take_a_layers_place() {
        let found = searched("llama-3.1-405b", "H100-80G", 1024, 1024);
        assert!(found.best.iter().any(|ranked| ranked.strategy.pp > 2), "126 layers, 128 with both");
    }

    #[test]
    fn what_may_fit_is_kept_apart_from_what_does() {
        let found = searched("llama-3-70b", "H100-80G", 64, 512);
        assert!(!found.unlikely.is_empty());
        let room = USABLE * 80.0 * (1u64 << 30) as f64;
        assert!(
            found.unlikely.iter().all(|ranked| ranked.memory.total() > room && ranked.memory.total() < 1.14 * room)
        );
    }
}
