//! The three jobs of the demonstration and when they arrive.

use std::time::Duration;

use super::Demo;

/// A job and the moment it is submitted, from the start of the demonstration.
pub struct Scripted {
    pub after: Duration,
    pub yaml: String,
}

struct Shape {
    name: &'static str,
    after: u64,
    priority: &'static str,
    gpus: (u32, u32),
    batch: (u32, u32, u32),
    /// layers, hidden, heads, kv_heads, ffn_hidden
    model: (u32, u32, u32, u32, u32),
    /// Tokens at which the job is done, seen and of progress.
    target: f64,
}

const SHAPES: [Shape; 3] = [
    Shape {
        name: "llama-large",
        after: 0,
        priority: "normal",
        gpus: (2, 8),
        batch: (16, 32, 512),
        model: (4, 64, 4, 2, 176),
        target: 1_150e3,
    },
    Shape {
        name: "llama-small",
        after: 0,
        priority: "low",
        gpus: (1, 4),
        batch: (8, 16, 256),
        model: (3, 48, 4, 2, 128),
        target: 850e3,
    },
    Shape {
        name: "ablation",
        after: 75,
        priority: "high",
        gpus: (2, 4),
        batch: (16, 32, 256),
        model: (3, 64, 4, 4, 128),
        target: 350e3,
    },
];

/// The jobs in the order of their arrival.
pub fn script(demo: &Demo) -> Vec<Scripted> {
    SHAPES.iter().map(|shape| Scripted { after: Duration::from_secs(shape.after), yaml: yaml(shape, demo) }).collect()
}

fn yaml(shape: &Shape, demo: &Demo) -> String {
    let Shape { name, priority, gpus, batch, model, .. } = shape;
    let (layers, hidden, heads, kv_heads, ffn) = *model;
    // Whole sequences at the reference batch.
    let target = (shape.target * demo.scale / 64.0).round() * 64.0;
    let corpus = demo.corpus.as_ref().map(|path| format!(", --corpus, \"{}\"", path.display())).unwrap_or_default();
    format!(
        "version: 1
name: {name}
project: demo
priority: {priority}
resources:
  gpus: {{min: {gpu_min}, max: {gpu_max}}}
training:
  model: {{layers: {layers}, hidden: {hidden}, heads: {heads}, kv_heads: {kv_heads}, ffn_hidden: {ffn}, gated: true, vocab: 256, seq_len: 64, tied: true}}
  precision: fp32
  reference_batch: {reference} sequences
  batch: {{min: {batch_min} sequences, max: {batch_max} sequences}}
  lr_scaling: sqrt
  target: {target} tokens
  layouts: {{tp: [1], pp: [1], micro_batch: 8}}
  reconfigure: {{batch: live, layout: restart}}
  checkpoint: {{every: 20s, grace: 30s}}
elastic: {{min_runtime: 20s, max_resizes_per_hour: 60, max_overhead_pct: 25}}
run:
  command: [\"{{python}}\", -m, headway.trainer, --layers, \"{layers}\", --hidden, \"{hidden}\", --heads, \"{heads}\",
            --kv-heads, \"{kv_heads}\", --ffn, \"{ffn}\", --vocab, \"256\", --seq-len, \"64\", --tied, --lr, \"3e-3\",
            --noise-every, \"1\"{corpus}]
  env: {{PYTHONPATH: \"{worker}\"}}
",
        gpu_min = gpus.0,
        gpu_max = gpus.1,
        batch_min = batch.0,
        reference = batch.1,
        batch_max = batch.2,
        worker = demo.worker_path.display(),
    )
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn the_demonstration_jobs_are_well_formed() {
        let demo = Demo { corpus: None, worker_path: "/opt/headway/worker/src".into(), scale: 1.0, deadline: 900 };
        for job in script(&demo) {
            let spec = headway_api::spec::read_yaml(&job.yaml).unwrap();
            assert_eq!(spec.project, "demo");
        }
    }
}
