//! Job specifications for tests.

/// The reference trainer on a tiny model; `run` comes last, so that an `env` may follow.
pub fn tiny_training(name: &str, gpus: u32, priority: u32, samples: u64) -> String {
    format!(
        "version: 1
name: {name}
priority: {priority}
resources:
  gpus: {{min: {gpus}, max: 4}}
training:
  model: {{layers: 2, hidden: 32, heads: 4, kv_heads: 2, ffn_hidden: 64, gated: true, vocab: 256, seq_len: 32, tied: true}}
  precision: fp32
  reference_batch: 16 sequences
  batch: {{min: 8 sequences, max: 128 sequences}}
  layouts: {{tp: [1], pp: [1], micro_batch: 4}}
  reconfigure: {{batch: live, layout: restart}}
  checkpoint: {{every: 5s, grace: 30s}}
elastic: {{min_runtime: 0s, max_resizes_per_hour: 1000}}
run:
  command: [\"{{python}}\", -m, headway.trainer, --layers, \"2\", --hidden, \"32\", --heads, \"4\", --kv-heads, \"2\", --ffn, \"64\",
            --vocab, \"256\", --seq-len, \"32\", --tied, --lr, \"3e-3\", --noise-every, \"1\",
            --max-samples, \"{samples}\"]
"
    )
}

/// An elastic job whose workers follow a performance model instead of training. `speed` compresses its time.
pub struct EmulatedJob {
    pub name: String,
    pub min_gpus: u32,
    pub max_gpus: u32,
    pub priority: u32,
    /// Sequences after which the workers exit 0.
    pub samples: u64,
    /// φ0, φmax and s0 of the noise scale φ(s) = φ0 + φmax·s/(s+s0), in sequences.
    pub noise: (f64, f64, f64),
    pub speed: f64,
    pub checkpoint_seconds: f64,
}

impl EmulatedJob {
    pub fn named(name: &str) -> Self {
        Self {
            name: name.into(),
            min_gpus: 1,
            max_gpus: 8,
            priority: 50,
            samples: 1_000_000,
            noise: (16.0, 400.0, 20_000.0),
            speed: 5.0,
            checkpoint_seconds: 2.0,
        }
    }

    /// The specification as a user would write it.
    pub fn yaml(&self) -> String {
        let Self { name, min_gpus, max_gpus, priority, samples, noise, speed, checkpoint_seconds } = self;
        format!(
            "version: 1
name: {name}
project: tests
priority: {priority}
resources:
  gpus: {{min: {min_gpus}, max: {max_gpus}}}
training:
  model: {{layers: 4, hidden: 64, heads: 4, kv_heads: 2, ffn_hidden: 176, gated: true, vocab: 256, seq_len: 64, tied: true}}
  precision: fp32
  reference_batch: 32 sequences
  batch: {{min: 8 sequences, max: 256 sequences}}
  lr_scaling: sqrt
  layouts: {{tp: [1], pp: [1], micro_batch: 4}}
  reconfigure: {{batch: live, layout: restart}}
  checkpoint: {{every: {checkpoint_seconds}s, grace: 10s}}
elastic: {{min_runtime: 0s, max_resizes_per_hour: 1000}}
run:
  command: [\"{{headway}}\", emulated-worker]
  env:
    HEADWAY_EMULATED_SEQ_LEN: \"64\"
    HEADWAY_EMULATED_FLOPS_PER_TOKEN: \"1150000\"
    HEADWAY_EMULATED_PARAMETERS: \"200000\"
    HEADWAY_EMULATED_SPEED: \"{speed}\"
    HEADWAY_EMULATED_SAMPLES: \"{samples}\"
    HEADWAY_EMULATED_NOISE: \"{},{},{}\"
",
            noise.0, noise.1, noise.2
        )
    }
}
