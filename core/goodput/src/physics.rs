//! The fitted constants of step time and memory: one set shared by all, multiplied per GPU family (in `catalog`) and per software
//! stack. They come from `physics.toml`, which `headway model fit` writes; nothing here is known of a job.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use serde::{Deserialize, Serialize};

use crate::band::{Deviation, Measured};
use crate::caution::Caution;

/// Declares the constants once: the struct, their names and their order in a fit.
macro_rules! constants {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// Constants of the step-time and memory formulas (docs/goodput.md says where each stands). Seconds, bytes and shares.
        #[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
        #[serde(deny_unknown_fields)]
        pub struct Physics { $($(#[$doc])* pub $name: f64,)* }

        impl Physics {
            /// Names of the constants, in the order of `values`.
            pub const NAMES: &'static [&'static str] = &[$(stringify!($name)),*];

            /// The constants in the order of `NAMES`.
            #[must_use]
            pub fn values(&self) -> Vec<f64> { vec![$(self.$name),*] }

            /// The constant of that name.
            pub fn get_mut(&mut self, name: &str) -> Option<&mut f64> {
                match name { $(stringify!($name) => Some(&mut self.$name),)* _ => None }
            }
        }
    };
}

constants! {
    /// Share of the best measured matrix rate that wide matrices reach.
    matmul_share,
    /// The same in 8 bits, over `matmul_share`.
    eight_bit_share,
    /// Passes over the inputs of narrow multiplications, in half precision, that bring each into 8 bits, as it is and transposed.
    quantise_passes,
    /// Share of the matrix rate that a grouped multiplication of several experts reaches.
    grouped_matmul_share,
    /// Inner dimension at which a matrix multiplication needs twice its time.
    half_rate_width,
    /// Exponent on the loss by partly filled waves of tiles.
    tile_loss,
    /// Start-up of one kernel on the device, seconds.
    kernel_seconds,
    /// Share of the memory bandwidth that kernels reach.
    memory_share,
    /// Passes over the hidden state per layer by norms, residuals and dropout.
    hidden_passes,
    /// Passes over the FFN's inner state by its activation function.
    ffn_passes,
    /// Passes over the hidden states of routed tokens by sorting them to their experts and summing what comes back.
    routed_passes,
    /// Passes over the logits by the loss.
    loss_passes,
    /// A stack's memory passes over the usual ones: below 1 with fused kernels.
    traffic,
    /// Passes over the attention matrix by an unfused softmax.
    softmax_passes,
    /// What they grow by where the fused softmax kernel refuses the shape.
    softmax_refused,
    /// Share of the matrix rate that unfused attention's batched multiplications reach.
    batched_matmul_share,
    /// Share of the matrix rate that fused attention reaches.
    fused_attention_share,
    /// Slow-down of the output projection over a vocabulary that tensor cores cannot tile.
    unaligned_vocabulary,
    /// Host time to launch one layer's forward pass, seconds.
    launch_seconds,
    /// The backward pass's launches over the forward pass's.
    launch_backward,
    /// Growth of launches per doubling of the tensor-parallel degree.
    launch_tensor,
    /// Growth of launches on a layer with experts: routing, sorting, and counts that the host waits for.
    expert_launches,
    /// Host time per micro-batch outside the layers, seconds.
    micro_batch_seconds,
    /// Growth of launches where tensor collectives wait behind transfers between nodes, times tp.
    entanglement,
    /// A stack's compute time over the usual one.
    compute,
    /// Share of a scale-up link that collectives reach.
    link_share,
    /// Latency of one hop inside a node, seconds.
    link_hop,
    /// Share of tensor collectives that computation does not hide.
    tensor_exposed,
    /// Share of the network that collectives reach.
    network_share,
    /// Latency of one hop between nodes, seconds.
    network_hop,
    /// Latency of a gradient ring's step from node to node, seconds.
    ring_step,
    /// Share of pipeline transfers that is not hidden.
    transfer_exposed,
    /// Latency of one pipeline transfer, seconds.
    transfer_seconds,
    /// −ln of the share of the gradient reduction that the last backward pass cannot hide.
    overlap,
    /// Share of the shorter of computation and sharded-parameter collectives that overlapping them costs.
    shard_interference,
    /// Bytes the optimizer moves per parameter.
    optimizer_bytes,
    /// Fixed cost of a step, seconds.
    step_seconds,
    /// Growth of a step per doubling of the nodes.
    straggling,
    /// Buffers beside weights and gradients, bytes per parameter.
    buffer_bytes,
    /// Activations kept per token and layer, bytes per hidden unit.
    activation_hidden,
    /// The same per unit of the FFN's width.
    activation_ffn,
    /// Activations that a stack keeps whole on every rank under sequence parallelism, bytes per hidden unit.
    activation_gathered,
    /// Activations that a stack keeps in 8 bits where it multiplies in 8 or 4, over those in half precision.
    narrow_activations,
    /// Logits and their gradients, bytes per token and vocabulary entry.
    logit_bytes,
    /// What stays of them from one micro-batch to the next.
    logit_carry,
    /// Share of the allocated memory lost to fragmentation.
    fragmentation,
    /// Device context and communication buffers, bytes.
    context_bytes,
}

impl Physics {
    /// Whether a constant is of the memory formulas, the others being of step time.
    #[must_use]
    pub fn is_of_memory(name: &str) -> bool {
        const MEMORY: [&str; 9] = [
            "buffer_bytes",
            "activation_hidden",
            "activation_ffn",
            "activation_gathered",
            "narrow_activations",
            "logit_bytes",
            "logit_carry",
            "fragmentation",
            "context_bytes",
        ];
        MEMORY.contains(&name)
    }
}

/// What a software stack does differently, besides its constants.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Traits {
    /// Stages are cut by cost, so that the last one gets fewer layers for its output projection.
    #[serde(skip_serializing_if = "is_false")]
    pub stages_by_cost: bool,
    /// Leaves a vocabulary that tensor cores cannot tile as it is.
    #[serde(skip_serializing_if = "is_false")]
    pub unpadded_vocabulary: bool,
    /// Reduces gradients in fp32 instead of half precision.
    #[serde(skip_serializing_if = "is_false")]
    pub fp32_gradients: bool,
    /// Reduces gradients in buckets as small as PyTorch's, whatever the number of replicas.
    #[serde(skip_serializing_if = "is_false")]
    pub small_buckets: bool,
    /// Gathers sharded-optimizer parameters behind the next forward pass.
    #[serde(skip_serializing_if = "is_false")]
    pub overlapped_gather: bool,
    /// Sends activations between interleaved stages behind the computation of other chunks.
    #[serde(skip_serializing_if = "is_false")]
    pub overlapped_transfers: bool,
    /// Keeps the inputs of tensor-parallel layers as they were gathered, where others gather them again.
    #[serde(skip_serializing_if = "is_false")]
    pub keeps_gathered: bool,
    /// Holds gradients in half precision, where others add them up in fp32.
    #[serde(skip_serializing_if = "is_false")]
    pub half_gradients: bool,
    /// Keeps weights, and for the backward pass of narrow multiplications what they were fed, in 8 bits.
    #[serde(skip_serializing_if = "is_false")]
    pub keeps_narrow: bool,
    /// Gathers sharded parameters when a layer needs them, where others gather them while the one before computes.
    #[serde(skip_serializing_if = "is_false")]
    pub no_prefetch: bool,
    /// Sends a token once to each node that has experts for it, where others send a copy for each expert.
    #[serde(skip_serializing_if = "is_false")]
    pub tokens_once: bool,
    /// Brings sharded-optimizer parameters back by broadcasts, piece by piece from node to node.
    #[serde(skip_serializing_if = "is_false")]
    pub broadcast_weights: bool,
}

impl Traits {
    /// Whether it keeps gathered inputs is not known, so memory is reckoned as if it did, like PyTorch's own tensor parallelism.
    fn of_unknown_software() -> Self {
        Self { keeps_gathered: true, ..Self::default() }
    }

    fn are_usual(&self) -> bool {
        *self == Self::default()
    }
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "the signature serde asks for")]
fn is_false(flag: &bool) -> bool {
    !flag
}

/// A software stack: its factors over the shared constants, on top of its parent's (a family's common factors, or an older release's).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Stack {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<String>,
    /// Sources of measurements that ran it, by exact name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sources: Vec<String>,
    /// Beginnings of framework names, longest match wins.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub frameworks: Vec<String>,
    #[serde(default, skip_serializing_if = "Traits::are_usual")]
    pub traits: Traits,
    #[serde(default)]
    pub factors: BTreeMap<String, f64>,
    /// How far its estimates are off; as far as those of unknown software where it is not known.
    #[serde(default, skip_serializing_if = "Measured::is_nothing")]
    pub deviation: Measured,
}

/// Factors of a GPU family over the shared constants.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct FamilyFactors {
    pub matmul_share: f64,
    pub fused_attention_share: f64,
    pub link_share: f64,
}

impl Default for FamilyFactors {
    fn default() -> Self {
        Self { matmul_share: 1.0, fused_attention_share: 1.0, link_share: 1.0 }
    }
}

/// Ancestors of a stack: a release, its software, its family.
const MOST_ANCESTORS: usize = 3;

/// The whole parameter file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Parameters {
    pub shared: Physics,
    /// How far estimates of unknown software are off, and what each other caution adds.
    pub deviation: BTreeMap<Caution, Deviation>,
    pub family: BTreeMap<String, FamilyFactors>,
    pub stack: BTreeMap<String, Stack>,
}

/// Why a parameter file is refused.
#[derive(Debug, thiserror::Error)]
pub enum ParametersError {
    #[error("reading the parameter file")]
    Syntax(#[from] toml::de::Error),
    #[error("stack {stack}: {name} is no constant of the model")]
    UnknownConstant { stack: String, name: String },
    #[error("stack {stack}: there is no parent {parent}")]
    UnknownParent { stack: String, parent: String },
    #[error("stack {stack} has more than {MOST_ANCESTORS} ancestors, or is its own")]
    TooManyAncestors { stack: String },
    #[error("{name} must be finite and above 0")]
    Impossible { name: String },
    #[error("{name}: deviations must be finite and not below 0")]
    Deviation { name: String },
    #[error("there is no deviation for {caution:?}")]
    NoDeviation { caution: Caution },
}

/// A stack's constants and traits, ready to use.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Profile {
    pub physics: Physics,
    pub traits: Traits,
}

impl Parameters {
    /// The committed parameters.
    #[must_use]
    pub fn built_in() -> &'static Parameters {
        static BUILT_IN: LazyLock<Parameters> = LazyLock::new(|| {
            Parameters::parse(include_str!("physics.toml")).expect("the committed file is tested to parse")
        });
        &BUILT_IN
    }

    /// Reads and checks a parameter file.
    pub fn parse(text: &str) -> Result<Self, ParametersError> {
        let mut parameters: Self = toml::from_str(text)?;
        // A file that was fitted before recurrent layers were known has no deviation of them.
        let recurrent = parameters.deviation.entry(Caution::Recurrent);
        recurrent.or_insert_with(|| Self::built_in().deviation[&Caution::Recurrent]);
        parameters.check()?;
        Ok(parameters)
    }

    fn check(&self) -> Result<(), ParametersError> {
        let possible = |name: &str, value: f64| {
            let fine = value.is_finite() && value > 0.0;
            fine.then_some(()).ok_or_else(|| ParametersError::Impossible { name: name.to_owned() })
        };
        let deviates = |name: &str, value: Option<f64>| {
            let fine = value.is_none_or(|value| value.is_finite() && value >= 0.0);
            fine.then_some(()).ok_or_else(|| ParametersError::Deviation { name: name.to_owned() })
        };
        for (name, value) in Physics::NAMES.iter().zip(self.shared.values()) {
            possible(name, value)?;
        }
        for (name, family) in &self.family {
            for value in [family.matmul_share, family.fused_attention_share, family.link_share] {
                possible(name, value)?;
            }
        }
        for caution in Caution::ALL {
            let Some(Deviation { time, memory }) = self.deviation.get(&caution) else {
                return Err(ParametersError::NoDeviation { caution });
            };
            deviates("deviation", Some(*time))?;
            deviates("deviation", Some(*memory))?;
        }
        for (name, stack) in &self.stack {
            deviates(name, stack.deviation.time)?;
            deviates(name, stack.deviation.memory)?;
            if let Some(parent) = &stack.parent
                && !self.stack.contains_key(parent)
            {
                return Err(ParametersError::UnknownParent { stack: name.clone(), parent: parent.clone() });
            }
            if self.lineage(name).count() > MOST_ANCESTORS + 1 {
                return Err(ParametersError::TooManyAncestors { stack: name.clone() });
            }
            for (constant, factor) in &stack.factors {
                if !Physics::NAMES.contains(&constant.as_str()) {
                    return Err(ParametersError::UnknownConstant { stack: name.clone(), name: constant.clone() });
                }
                possible(constant, *factor)?;
            }
        }
        Ok(())
    }

    /// Constants of a stack; without one, of a stack nobody has measured.
    #[must_use]
    pub fn profile(&self, stack: Option<&str>) -> Profile {
        let mut profile = Profile { physics: self.shared, traits: Traits::of_unknown_software() };
        let Some(name) = stack else { return profile };
        for (_, stack) in self.lineage(name) {
            for (name, factor) in &stack.factors {
                if let Some(value) = profile.physics.get_mut(name) {
                    *value *= factor;
                }
            }
        }
        profile.traits = self.stack.get(name).map(|own| own.traits).unwrap_or(profile.traits);
        profile
    }

    /// A stack and its ancestors, nearest first.
    pub fn lineage<'a>(&'a self, stack: &'a str) -> impl Iterator<Item = (&'a str, &'a Stack)> {
        let named = |name: &'a str| self.stack.get_key_value(name).map(|(name, stack)| (name.as_str(), stack));
        // One more than may be, so that a check sees what goes on for ever.
        std::iter::successors(named(stack), move |(_, stack)| named(stack.parent.as_deref()?)).take(MOST_ANCESTORS + 2)
    }

    /// The stack that measurements of a source and framework belong to.
    #[must_use]
    pub fn stack_of(&self, source: &str, framework: &str) -> Option<&str> {
        let by_source = self.stack.iter().find(|(_, stack)| stack.sources.iter().any(|known| known == source));
        let by_framework = || {
            self.stack
                .iter()
                .flat_map(|(name, stack)| stack.frameworks.iter().map(move |beginning| (name, beginning)))
                .filter(|(_, beginning)| framework.starts_with(beginning.as_str()))
                .max_by_key(|(_, beginning)| beginning.len())
                .map(|(name, _)| name)
        };
        by_source.map(|(name, _)| name).or_else(by_framework).map(String::as_str)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn the_committed_file_parses_and_keeps_to_five_factors_of_time_and_two_of_memory() {
        let parameters = Parameters::built_in();
        assert!(parameters.check().is_ok());
        for (name, stack) in &parameters.stack {
            let memory = stack.factors.keys().filter(|name| Physics::is_of_memory(name)).count();
            assert!(memory <= 2 && stack.factors.len() - memory <= 5, "{name}: {:?}", stack.factors);
        }
    }

    #[test]
    fn an_unknown_stack_has_the_shared_constants() {
        let parameters = Parameters::built_in();
        assert_eq!(parameters.profile(Some("never heard of")).physics, parameters.shared);
        assert_eq!(parameters.profile(None).traits, Traits { keeps_gathered: true, ..Traits::default() });
    }

    #[test]
    fn a_stack_multiplies_on_top_of_its_parent() {
        let mut parameters = Parameters::built_in().clone();
        let stack = |parent: Option<&str>, factor| Stack {
            parent: parent.map(str::to_owned),
            factors: BTreeMap::from([("compute".to_owned(), factor)]),
            ..Stack::default()
        };
        parameters.stack =
            BTreeMap::from([("a".to_owned(), stack(None, 2.0)), ("b".to_owned(), stack(Some("a"), 3.0))]);
        let ratio = parameters.profile(Some("b")).physics.compute / parameters.shared.compute;
        assert!((ratio - 6.0).abs() < 1e-12);
    }

    #[test]
    fn a_file_from_before_recurrent_layers_has_their_built_in_deviation() {
        let text = include_str!("physics.toml");
        let begin = text.find("[deviation.recurrent]").unwrap();
        let end = text[begin + 1..].find("\n[").map_or(text.len(), |next| begin + 1 + next);
        let older = Parameters::parse(&format!("{}{}", &text[..begin], &text[end..])).unwrap();
        assert_eq!(older.deviation, Parameters::built_in().deviation);
    }

    #[test]
    fn bad_files_are_refused_by_name() {
        let with = |edit: &dyn Fn(&mut Parameters)| {
            let mut parameters = Parameters::built_in().clone();
            edit(&mut parameters);
            parameters.check().unwrap_err().to_string()
        };
        assert_eq!(with(&|p| p.shared.link_hop = f64::NAN), "link_hop must be finite and above 0");
        let odd = Deviation { time: -0.1, memory: f64::NAN };
        assert!(with(&|p| *p.deviation.get_mut(&Caution::Software).unwrap() = odd).contains("not below 0"));
        let without = with(&|p| p.deviation.retain(|caution, _| *caution != Caution::Offload));
        assert!(without.contains("no deviation for Offload"), "{without}");
        let orphan = Stack { parent: Some("nobody".into()), ..Stack::default() };
        assert!(with(&|p| drop(p.stack.insert("x".into(), orphan.clone()))).contains("no parent nobody"));
        let own = Stack { parent: Some("x".into()), ..Stack::default() };
        assert!(with(&|p| drop(p.stack.insert("x".into(), own.clone()))).contains("or is its own"));
        let odd = Stack { factors: BTreeMap::from([("luck".to_owned(), 1.0)]), ..Stack::default() };
        assert!(with(&|p| drop(p.stack.insert("x".into(), odd.clone()))).contains("luck is no constant"));
        assert!(Parameters::parse("shared = 3").is_err());
    }
}
