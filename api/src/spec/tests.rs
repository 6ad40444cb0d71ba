#![allow(clippy::unwrap_used)]
//! Good specifications and what they become; bad ones and what is said of them.

use headway_types::preset::presets;
use headway_types::report::Flexibility;
use headway_types::spec::{
    BatchPolicy, Command, ExecutionLimits, LrScaling, NodeChoice, Precision, RunPer, Target, TargetCount, Topology,
    Work,
};
use headway_types::{Capabilities, GpuCount, GpuType, Offload, Recompute, Seconds, Sequences, Sharding, Tokens};
use proptest::prelude::*;
use serde_json::json;

use super::*;

pub(super) const FULL: &str = "
version: 1
name: llama-8b-pretrain
project: nlp
priority: high
labels: {exp: ablation-3, seed: 7}
resources:
  gpus: {min: 8, max: 64, sizes: [64, 8, 16, 32, 128], type: [H100-80G, A100-80G]}
  per_node: {cpus: 64, memory: 512GiB, shm: 64GiB, local_disk: 2TiB}
  nodes: {exclude: [node-7, node-9]}
  topology: {require: rack}
training:
  model: llama-3-8b
  precision: bf16
  reference_batch: 4Mi tokens
  batch: {min: 1Mi tokens, max: 16Mi tokens}
  lr_scaling: linear
  target: 300B tokens
  layouts: {tp: [1, 2, 4, 8], pp: 8, micro_batch: 16, vpp: 2, sharding: [none, optimizer, parameters], recompute: full, sequence_parallel: true, offload: [none, host], uneven_stages: true}
  checkpoint: {dir: '/ckpt/{job_name}', every: 15m, grace: 180s, fenced: false, keep: 3}
  progress: {source: socket}
  reconfigure: {batch: live, layout: restart}
  kappa: 1.5
elastic: {min_runtime: 10m, max_resizes_per_hour: 2, max_overhead_pct: 3, min_share: 0.5}
limits: {time: 48h, max_restarts: 5}
deadline: 2026-12-24T18:00:00+01:00
budget: {gpu_hours: 512.5}
run:
  per: gpu
  workdir: /home/ada/proj
  command: >-
    torchrun --nnodes={nnodes} --node-rank={node_rank} --master-addr={master_addr} train.py
    --tp {tp} --pp {pp} --dp {dp} --micro-batch-size {micro_batch} --global-batch-size {global_batch_sequences} $EXTRA ${MORE}
  env: {NCCL_DEBUG: WARN, OMP_NUM_THREADS: 4}
";

/// The least that is well formed, with one line replaced by others.
fn with(replace: &str, by: &str) -> String {
    let least = "version: 1
name: least
resources: {gpus: {min: 1, max: 4}}
training:
  model: gpt2-124m
  reference_batch: 64 sequences
run: {command: python train.py}
";
    assert!(least.contains(replace), "{replace} is a line of the least specification");
    least.replace(replace, by)
}

#[test]
fn several_documents_and_lists_are_one_submission() {
    let (least, other) = (with("name: least", "name: least"), with("name: least", "name: other"));
    let names =
        |text: &str| -> Vec<String> { read_submission_yaml(text).unwrap().into_iter().map(|spec| spec.name).collect() };
    let two = format!("{least}---\n{other}---\n");
    assert_eq!(names(&two), ["least", "other"]);
    assert_eq!(names(&least), ["least"]);
    let indented: String = least.lines().map(|line| format!("    {line}\n")).collect();
    assert_eq!(names(&format!("jobs:\n  -\n{indented}---\n{other}")), ["least", "other"]);
    assert!(read_yaml(&two).is_err());
    assert!(read_submission_yaml("").is_err());
}

fn wrong(text: &str) -> String {
    read_yaml(text).map(|spec| spec.name).unwrap_err().to_string()
}

#[test]
fn a_full_specification_is_read() {
    let spec = read_yaml(FULL).unwrap();
    assert_eq!((spec.priority, spec.labels["seed"].as_str()), (Priority(75), "7"));
    let role = spec.role();
    assert_eq!(role.gpus.sizes, [8, 16, 32, 64].map(GpuCount));
    assert_eq!(role.gpus.types, [GpuType("H100-80G".into()), GpuType("A100-80G".into())]);
    assert_eq!(role.per_node.memory.unwrap().0, 512 << 30);
    assert_eq!(role.per_node.shm.unwrap().0, 64 << 30);
    assert_eq!(role.per_node.local_disk.unwrap().0, 2 << 40);
    assert_eq!(role.run.per, RunPer::Gpu);
    assert_eq!(role.run.env["OMP_NUM_THREADS"], "4");
    let training = spec.training().unwrap();
    assert_eq!(training.reference_batch, Sequences(512));
    assert_eq!((training.batch.min, training.batch.max), (Sequences(128), Sequences(2048)));
    assert_eq!(training.target, Some(Tokens(3e11).into()));
    assert_eq!(training.lr_scaling, LrScaling::Linear);
    assert_eq!(
        (training.layouts.tp.as_slice(), training.layouts.pp.as_slice()),
        (&[1, 2, 4, 8][..], &[1, 2, 4, 8][..])
    );
    let execution = &training.layouts.execution;
    assert_eq!((execution.vpp.as_slice(), execution.cp.as_slice()), (&[1, 2][..], &[1][..]));
    assert_eq!(execution.sharding, [Sharding::None, Sharding::Optimizer, Sharding::Parameters]);
    assert_eq!(execution.recompute, [Recompute::Full]);
    assert!(execution.sequence_parallel && execution.uneven_stages);
    assert_eq!(execution.offload, [Offload::None, Offload::Host]);
    assert_eq!(training.checkpoint.dir.as_deref(), Some("/ckpt/llama-8b-pretrain"));
    assert_eq!(training.checkpoint.every, Seconds(900.0));
    assert!(!training.checkpoint.fenced);
    assert_eq!(training.checkpoint.keep.map(std::num::NonZeroU32::get), Some(3));
    assert_eq!(training.reconfigure, Capabilities { batch: Flexibility::Live, layout: Flexibility::Restart });
    assert_eq!(spec.limits.time, Some(Seconds(172_800.0)));
    assert!((spec.elastic.max_overhead - 0.03).abs() < 1e-12);
    assert_eq!(spec.elastic.min_share, Some(0.5));
    assert_eq!(spec.limits.deadline, Some(Timestamp(1_798_131_600_000_000)));
    assert_eq!(spec.limits.budget, Some(GpuSeconds(512.5 * 3_600.0)));
    assert_eq!(role.nodes.exclude.iter().collect::<Vec<_>>(), ["node-7", "node-9"]);
    assert_eq!(role.nodes.topology, Topology::RequireRack);
}

#[test]
fn the_micro_batch_of_a_huge_batch_is_written_as_it_is_read() {
    let spec = read_yaml(&with("64 sequences", "4000000 sequences")).unwrap();
    assert_eq!(spec.training().unwrap().layouts.max_micro_batch, Sequences(1 << 20));
    assert_eq!(read_json(&to_json(&spec)), Ok(spec));
}

#[test]
fn what_is_left_out_is_careful() {
    let spec = read_yaml(&with("", "")).unwrap();
    assert_eq!((spec.project.as_str(), spec.priority), ("default", Priority(50)));
    let training = spec.training().unwrap();
    assert_eq!((training.batch.min, training.batch.max), (Sequences(64), Sequences(64)));
    assert_eq!(training.batch_policy, BatchPolicy::Goodput);
    assert_eq!((training.layouts.tp.as_slice(), training.layouts.pp.as_slice()), (&[1][..], &[1][..]));
    assert_eq!(training.layouts.execution, ExecutionLimits::default());
    assert_eq!(training.reconfigure, Capabilities::UNKNOWN_SCRIPT);
    assert_eq!(training.precision, Precision::Bf16);
    assert_eq!(training.target, None);
    assert_eq!(spec.role().run.command, Command::Shell("python train.py".into()));
    let rigid = read_yaml("{version: 1, name: a, resources: {gpus: 8}, run: {command: [a, b]}}").unwrap();
    assert_eq!((rigid.role().gpus.min, rigid.role().gpus.max), (GpuCount(8), GpuCount(8)));
    assert!(rigid.training().is_none());
    assert_eq!((rigid.limits.deadline, rigid.limits.budget, rigid.elastic.min_share), (None, None, None));
    assert_eq!(rigid.role().nodes, NodeChoice::default());
}

#[test]
fn a_target_says_what_counts_towards_it() {
    let read = |target: &str| read_yaml(&with("64 sequences", &format!("64 sequences\n  target: {target}"))).unwrap();
    let counts = |count| Some(Target { tokens: Tokens(3e11), count });
    for (text, count) in [
        ("300B tokens", TargetCount::Both),
        ("{tokens: 300B}", TargetCount::Both),
        ("{tokens: 300B tokens, count: raw}", TargetCount::Raw),
        ("{tokens: 300000000000, count: reference}", TargetCount::Reference),
    ] {
        let spec = read(text);
        assert_eq!(spec.training().unwrap().target, counts(count), "{text}");
        assert_eq!(read_json(&to_json(&spec)).unwrap(), spec, "{text}");
    }
}

#[test]
fn a_whole_number_written_with_a_point_is_a_count() {
    let spec = read_yaml(&with("{gpus: {min: 1, max: 4}}", "{gpus: {min: 1.0, max: 4.0, sizes: [1.0, 4]}}")).unwrap();
    assert_eq!(spec.role().gpus.sizes, [GpuCount(1), GpuCount(4)]);
    assert!(read_yaml(&with("{gpus: {min: 1, max: 4}}", "{gpus: 1.5}")).is_err());
}

#[test]
fn a_curve_stands_for_a_model() {
    let spec = read_yaml(&with("  model: gpt2-124m", "  curve: {1: 1.0, 2: 1.9}\n  seq_len: 128")).unwrap();
    let points = [(GpuCount(1), 1.0), (GpuCount(2), 1.9)].into();
    assert_eq!(spec.training().unwrap().work, Work::Curve { points, seq_len: 128 });
}

#[test]
fn the_example_is_well_formed_and_needs_nothing_but_headway() {
    let spec = read_yaml(include_str!("../../examples/tiny.yaml")).unwrap();
    assert_eq!(spec.training().unwrap().batch.max, Sequences(256));
    assert_eq!(spec.role().run.command, Command::Argv(vec!["{headway}".into(), "emulated-worker".into()]));
}

#[test]
fn every_preset_is_a_model() {
    for (name, preset) in presets() {
        let read = read_yaml(&with("gpt2-124m", name)).unwrap();
        assert_eq!(read.training().unwrap().work, Work::Model(preset.shape()), "{name}");
        assert_eq!(read_json(&to_json(&read)).unwrap(), read, "{name}");
    }
    let spec = read_yaml(&with("gpt2-124m", "{preset: gpt2-124m, seq_len: 512}")).unwrap();
    assert_eq!(spec.training().unwrap().work.seq_len(), 512);
}

#[test]
fn a_model_of_experts_is_told_in_each_way() {
    let of = |model: &str| read_yaml(&with("gpt2-124m", model)).map(|spec| spec.training().unwrap().work.clone());
    let mixtral = Work::Model(presets()["mixtral-8x7b"].shape());
    let dimensions = "{layers: 32, hidden: 4096, heads: 32, kv_heads: 8, ffn_hidden: 14336, vocab: 32000, seq_len: 4096, \
                      experts: {count: 8, active: 2, ffn_hidden: 14336}}";
    let config = "{config: {model_type: mixtral, hidden_size: 4096, intermediate_size: 14336, num_attention_heads: 32, \
                  num_hidden_layers: 32, num_key_value_heads: 8, vocab_size: 32000, max_position_embeddings: 32768, \
                  num_local_experts: 8, num_experts_per_tok: 2, rope_scaling: ~, hidden_act: silu}, seq_len: 4096}";
    for told in ["{preset: mixtral-8x7b, seq_len: 4096}", dimensions, config] {
        let Work::Model(shape) = of(told).unwrap() else { panic!("{told}") };
        assert_eq!(Work::Model(ModelShape { seq_len: presets()["mixtral-8x7b"].seq_len, ..shape }), mixtral, "{told}");
    }
    let refused = [
        "config.json",
        "{preset: mixtral-8x7b, config: {}}",
        "{config: {hidden_size: 4096}}",
        "{config: {model_type: mixtral, max_position_embeddings: 32768}}",
        "{config: {model_type: llama, attn_layer_period: 8}, seq_len: 4096}",
        "{preset: llama-3-8b, kinds: {window: {layers: 33, tokens: 128}}}",
        "{preset: llama-3-8b, kinds: {windows: {layers: 3}}}",
        "{preset: mixtral-8x7b, experts: {count: 8, active: 9, ffn_hidden: 1}}",
        "{preset: mixtral-8x7b, experts: {count: 8}}",
        "{preset: llama-3-8b, latent: {kv_rank: 512}}",
    ];
    let told: Vec<String> = refused.iter().map(|model| of(model).unwrap_err().to_string()).collect();
    insta::assert_snapshot!(told.join("\n"));
}

#[test]
fn an_echo_reads_as_what_it_echoes() {
    let auto = with("  model: gpt2-124m", "  model: gpt2-124m\n  layouts: auto");
    let curve = with("  model: gpt2-124m", "  curve: {1: 1.0, 2: 1.9}\n  seq_len: 128\n  target: 0.5k sequences");
    let rigid = "{version: 1, name: a, resources: {gpus: 8}, run: {command: ['{python}', '{{}}']}}".to_owned();
    let norm_test =
        with("64 sequences", "64 sequences\n  batch: {max: 512 sequences, policy: norm_test, eta: 0.2}\n  noise: adam");
    let after = with("name: least", "name: least\nafter: [{job: prep}, {job: b, on: any}]");
    let array = with("name: least", "name: least\narray: {range: \"1,3,5-9\", parallel: 2}");
    for text in [FULL.to_owned(), with("", ""), auto, curve, rigid, norm_test, after, array] {
        let spec = read_yaml(&text).unwrap();
        assert_eq!(read_json(&to_json(&spec)).unwrap(), spec);
    }
    for case in ["dbrx", "nemotron-h-8b", "llama4-maverick", "qwen3-next-80b-a3b", "deepseek-v2-lite", "mamba-2.8b"] {
        let config = std::fs::read_to_string(format!("src/spec/config_json/cases/{case}.json")).unwrap();
        let config = config.replace('\n', " ");
        let spec = read_yaml(&with("gpt2-124m", &format!("{{config: {config}, seq_len: 4096}}"))).unwrap();
        assert_eq!(read_json(&to_json(&spec)).unwrap(), spec, "{case}");
    }
}

#[test]
fn several_specifications_are_read_together() {
    let one = json!({"version": 1, "name": "a", "resources": {"gpus": 1}, "run": {"command": "true"}});
    assert_eq!(read_submission_json(&one).unwrap().len(), 1);
    assert_eq!(read_submission_json(&json!({"jobs": [one, one]})).unwrap().len(), 2);
    let mut bad = one.clone();
    bad["resources"]["gpus"] = json!(0);
    let error = read_submission_json(&json!({"jobs": [one, bad]})).unwrap_err();
    assert_eq!(error.field, "jobs[1].resources.gpus");
    assert!(read_submission_json(&json!({"jobs": []})).is_err());
    assert!(read_submission_yaml("jobs: 3").is_err());
}

#[test]
fn a_mistake_is_named_with_its_place_and_what_to_do() {
    let cases = [
        ("name: least", "nmae: least"),
        ("name: least", "name: -least"),
        ("version: 1", "version: 2"),
        ("name: least", "name: least\nqueue: x"),
        ("name: least", "name: least\nafter: [{job: prep, on: sucess}]"),
        ("name: least", "name: least\nafter: [prep, {on: any}, {job: \"a b\"}]"),
        ("name: least", "name: least\nafter: {jobs: prep}"),
        ("name: least", "name: least\narray: {range: 9-0, parallel: 0}"),
        ("name: least", "name: least\narray: {range: 0-9%2, parallel: 3}"),
        // What is understood has to be read again from how it is written, where parallel is a number with a bound.
        ("name: least", "name: least\narray: 0-9%2147483648"),
        ("name: least", "name: least\narray: {range: [1, 1], paralel: 3}"),
        ("name: least", "name: least\narray: 0-9%none"),
        ("name: least", "name: least\npriority: urgent"),
        ("name: least", "name: least\nlimits: {time: 48, stall_after: 20m}"),
        ("{min: 1, max: 4}", "{min: 8, max: 4}"),
        ("{min: 1, max: 4}", "{max: 4, sizes: [8, 16]}"),
        ("{min: 1, max: 4}", "{min: 2}"),
        ("{min: 1, max: 4}", "{max: 5000000000}"),
        ("{gpus: {min: 1, max: 4}}", "{gpus: 1, per_node: {memory: 512Gi, disk: 1GiB}}"),
        ("gpt2-124m", "llama3-8b"),
        ("gpt2-124m", "{layers: 2, hidden: 65, heads: 4, ffn_hidden: 8, vocab: 8, seq_len: 8}"),
        ("gpt2-124m", "{layers: 2, hiden: 64}"),
        ("64 sequences", "64"),
        ("64 sequences", "1000 tokens"),
        ("64 sequences", "64 sequences\n  batch: {min: 128 sequences, max: 32 sequences}"),
        ("64 sequences", "64 sequences\n  batch: {policy: norm_tests}"),
        ("64 sequences", "64 sequences\n  batch: {policy: norm_test, eta: 1.5}"),
        ("64 sequences", "64 sequences\n  batch: {policy: norm_test}"),
        ("64 sequences", "64 sequences\n  batch: {max: 128 sequences, eta: 0.3}"),
        ("64 sequences", "64 sequences\n  kappa: 0\n  noise: sgd"),
        ("64 sequences", "64 sequences\n  target: {token: 1B, count: progress}"),
        ("64 sequences", "64 sequences\n  layouts: [{tp: 1}]"),
        ("64 sequences", "64 sequences\n  layouts: {tp: 2048, pp: []}"),
        ("64 sequences", "64 sequences\n  layouts: {sharding: [zero1], recompute: [], cp: 0, schedule: 1f1b}"),
        ("64 sequences", "64 sequences\n  lr_scaling: cubic"),
        ("64 sequences", "64 sequences\n  checkpoint: {dir: '/ckpt/${USER}', signal: USR1}"),
        ("64 sequences", "64 sequences\n  progress: {source: stdout, regex: 'loss (?P<los>.)'}"),
        ("python train.py", "'{pyton} train.py'"),
        ("python train.py", "[python, 3]"),
        ("{command: python train.py}", "{command: a, hooks: {prolog: x}, env: {A: '{dpp}'}, workdir: proj}"),
        ("name: least", "name: least\ndeadline: tomorrow\nbudget: {gpu_hours: 0}"),
        ("name: least", "name: least\ndeadline: 2026-12-24\nbudget: 12"),
        ("name: least", "name: least\nelastic: {min_share: 1.5}\nbudget: {}"),
        ("{gpus: {min: 1, max: 4}}", "{gpus: 1, nodes: {include: [a]}, topology: {prefer: row}}"),
        ("{gpus: {min: 1, max: 4}}", "{gpus: 1, nodes: {exclude: [[a]]}, topology: rack}"),
        ("{gpus: {min: 1, max: 4}}", "{gpus: 1, topology: {prefer: rack, require: rack}}"),
        ("name: least", "name: least\nname: again"),
        ("run: {command: python train.py}", ""),
        ("{command: python train.py}", "{command: a, env: {HF_TOKEN: null, A: b}}"),
        ("name: least", "name: least\nlabels: {exp: }"),
    ];
    let said: Vec<String> = cases
        .iter()
        .map(|(replace, by)| {
            format!("{}\n  → {}", by.replace('\n', "\\n"), wrong(&with(replace, by)).replace('\n', "\n  → "))
        })
        .collect();
    insta::assert_snapshot!(said.join("\n"));
}

#[test]
fn a_checkpoint_directory_is_filled_in_with_the_jobs_name_and_ends_in_its_id_anyhow() {
    let training = "training: {model: gpt2-124m, reference_batch: 64 sequences, checkpoint: {dir: DIR}}";
    let read = |dir: &str| {
        let text = format!("version: 1\nname: llama\nresources: {{gpus: 1}}\nrun: {{command: x}}\n{training}");
        let spec = read_yaml(&text.replace("DIR", &format!("'{dir}'")))?;
        Ok::<_, SpecError>(spec.training().unwrap().checkpoint.dir.clone().unwrap())
    };
    for (written, kept) in [
        ("/ckpt/${JOB_NAME}", "/ckpt/llama"),
        ("/ckpt/{job_name}/a", "/ckpt/llama/a"),
        // The job saves below /ckpt/<its id>.
        ("/ckpt/${JOB_ID}", "/ckpt"),
        ("/ckpt/${JOB_NAME}/{job_id}", "/ckpt/llama"),
        ("/${JOB_ID}", "/"),
    ] {
        assert_eq!(read(written).unwrap(), kept, "{written}");
    }
    for wrong in ["/ckpt/${JOB_ID}/a", "/ckpt/$JOB_NAME", "/ckpt/${HOME}", "/ckpt/run-${JOB_ID}", "${JOB_NAME}"] {
        let error = read(wrong).unwrap_err();
        assert_eq!(error.field, "training.checkpoint.dir", "{wrong}");
        let hint = error.hint.unwrap_or_default();
        assert!(wrong == "${JOB_NAME}" || hint.contains("${JOB_NAME} is filled in"), "{wrong}: {hint}");
    }
}

#[test]
fn a_job_keeps_all_checkpoints_unless_it_says_how_many_and_one_at_least() {
    let read = |checkpoint: &str| {
        let with_section = format!("64 sequences\n  checkpoint: {checkpoint}");
        read_yaml(&with("64 sequences", &with_section)).map(|spec| spec.checkpoint_policy().keep.map(|keep| keep.get()))
    };
    assert_eq!(read("{every: 1m}").unwrap(), None);
    assert_eq!(read("{keep: 1}").unwrap(), Some(1));
    assert_eq!(
        read("{keep: 0}").unwrap_err().to_string(),
        "training.checkpoint.keep: must be 1 at least: a job restarts from its newest checkpoint (remove it to keep all checkpoints, or give \
         1 to keep the newest alone)"
    );
    for wrong in ["-1", "1.5", "all", "'2'"] {
        let error = read(&format!("{{keep: {wrong}}}")).unwrap_err();
        assert_eq!(error.field, "training.checkpoint.keep", "{wrong}");
    }
}

#[test]
fn a_job_without_training_has_one_size_and_no_configuration() {
    assert_eq!(
        wrong("{version: 1, name: a, resources: {gpus: {min: 1, max: 2}}, run: {command: 't --dp {dp}'}}"),
        "run.command: {dp} has no value for a job without a training section (write {{ and }} for braces that are \
         meant literally)\nresources.gpus: a range needs a training section: without it Headway cannot tell what a \
         size is worth (add training, or give one number of GPUs)"
    );
}

#[test]
fn what_is_no_mapping_is_refused() {
    for text in ["", "[]", "3", "a: [", "!tag {}", "? {a: 1}\n: 2"] {
        assert!(read_yaml(text).is_err(), "{text}");
    }
}

fn leaf() -> impl Strategy<Value = Value> {
    prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        "[0-9]{0,30}(\\.[0-9]{0,5})? ?(Ki|Mi|B|T|GiB|s|m|h)? ?(tokens|sequences)?".prop_map(Value::from),
        ".{0,20}".prop_map(Value::from),
        Just(json!([])),
        Just(json!([[], {}, 0, "{"])),
        Just(json!({})),
        Just(json!({"0": "{", "ü": []})),
    ]
}

/// Replaces the `index`-th value below `value`, counted in depth.
fn replace(value: &mut Value, index: &mut usize, by: &Value) {
    if *index == 0 {
        *value = by.clone();
    }
    *index = index.wrapping_sub(1);
    match value {
        Value::Object(map) => map.values_mut().for_each(|inner| replace(inner, index, by)),
        Value::Array(list) => list.iter_mut().for_each(|inner| replace(inner, index, by)),
        _ => {}
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn whatever_stands_somewhere_is_read_or_refused(mut index in 0_usize..70, by in leaf()) {
        let mut value = to_json(&read_yaml(FULL).unwrap());
        replace(&mut value, &mut index, &by);
        match read_json(&value) {
            Ok(spec) => prop_assert_eq!(read_json(&to_json(&spec)).unwrap().name, spec.name),
            Err(error) => prop_assert!(!error.message.is_empty()),
        }
    }
}

#[test]
fn an_array_is_written_in_several_ways() {
    let read = |array: &str| read_yaml(&with("name: least", &format!("name: least\narray: {array}"))).unwrap();
    for (written, range, parallel) in [
        ("{range: 0-99, parallel: 8}", "0-99", Some(8)),
        ("{range: 0-99%8}", "0-99", Some(8)),
        ("0-99%8", "0-99", Some(8)),
        ("{range: \"0-99:2\"}", "0-98:2", None),
        ("{range: [9, 1, 4]}", "1,4,9", None),
        ("{range: 7}", "7", None),
    ] {
        let array = read(written).array.unwrap();
        assert_eq!((array.indices.to_string().as_str(), array.parallel), (range, parallel), "{written}");
    }
    // An element is submitted again as an array of its own, whose only element it is.
    let element = read("0-99%8").element(7);
    assert_eq!(element.name, "least[7]");
    let again = read_json(&to_json(&element)).unwrap();
    assert_eq!((again.name.as_str(), again.array), ("least", element.array));
}

#[test]
fn a_gang_may_mix_classes_where_a_model_foresees_it() {
    let with = |gpus: &str, beside: &str| {
        format!("version: 1\nname: a\nresources:\n  gpus: {gpus}\n{beside}\nrun: {{command: train}}\n")
    };
    let training = "training: {model: llama-3-8b, precision: bf16, reference_batch: 512 sequences}";
    let spec = read_yaml(&with("{min: 8, max: 64, mix: true}", training)).unwrap();
    assert!(spec.role().gpus.mixed);
    assert_eq!(to_json(&spec)["resources"]["gpus"], json!({"min": 8, "max": 64, "mix": true}));
    let told = |text: String| read_yaml(&text).unwrap_err().to_string();
    let sharing = |layouts: &str| training.replace('}', &format!(", layouts: {layouts}}}"));
    let uneven = sharing("{tp: 2, sharding: [none, optimizer], uneven_shares: true}");
    let spec = read_yaml(&with("{min: 8, max: 64, mix: true}", &uneven)).unwrap();
    assert!(spec.training().unwrap().layouts.execution.uneven_shares);
    assert_eq!(to_json(&spec)["training"]["layouts"]["uneven_shares"], true);
    assert_eq!(read_json(&to_json(&spec)), Ok(spec));
    assert!(told(with("{min: 8, max: 64}", &uneven)).contains("uneven_shares: is for gangs over two kinds of nodes"));
    let sharded = sharing("{8: {sharding: parameters, uneven_shares: true}}");
    assert!(told(with("{min: 8, max: 8, mix: true}", &sharded)).contains("never possible with sharded gradients"));
    assert!(told(with("{min: 8, max: 8, mix: true}", "")).contains("resources.gpus.mix: needs a model"));
    let in_one_rack = format!("  topology: {{require: rack}}\n{training}");
    assert!(told(with("{min: 8, max: 64, mix: true}", &in_one_rack)).contains("contradicts topology"));
}
