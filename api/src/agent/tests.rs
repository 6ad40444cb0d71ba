#![allow(clippy::unwrap_used)]
//! Every message survives the wire as bytes, and a hole in a message is named.

use std::collections::BTreeMap;

use headway_types::command::{GroupStatus, NodeAddress};
use headway_types::report::Flexibility;
use headway_types::spec::{
    Command, Hooks, LrScaling, Notice, NoticeSignal, NoticeTo, Precision, PrintedProgress, PrintingRank, Run, RunPer,
};
use headway_types::{
    AgentCommand, ArrayId, ArrayPlace, AttentionWindow, BootId, Bytes, Capabilities, CheckpointRef, Condition,
    ConditionKind, Configuration, EmulatedDevice, Execution, Experts, Fabric, Fault, Generation, Gpu, GpuHealth,
    GpuType, GpuUuid, GroupOutcome, GroupPhase, IdSource, JobId, Latent, LaunchOrder, LayerKinds, Layout, ModelShape,
    NodeAccount, NodeId, NodeInventory, NodeReport, NodeSlice, NoiseSample, Placement, RecurrentKind, RecurrentLayers,
    Seconds, Sequences, Serial, Sharding, Shares, StatedDevice, StepReport, StopMode, Term, Timestamp, Tokens,
};
use prost::Message;

use super::*;
use crate::secret::Secret;

fn job() -> JobId {
    IdSource::seeded(1).job(Timestamp(1_000_000))
}

fn node() -> NodeId {
    IdSource::seeded(2).node(Timestamp(1_000_000))
}

fn configuration() -> Configuration {
    let shares = Shares { slower: 1, faster: 3, of_faster: 1 };
    let execution = Execution { sharding: Sharding::Optimizer, sequence_parallel: true, shares, ..Execution::PLAIN };
    Configuration {
        layout: Layout { dp: 4, tp: 2, pp: 1, execution },
        micro_batch: Sequences(2),
        global_batch: Sequences(32),
    }
}

fn checkpoint() -> CheckpointRef {
    CheckpointRef {
        generation: Generation(3),
        path: "/ckpt/a/g3/step-000000120".into(),
        step: 120,
        samples_seen: Sequences(7680),
        manifest_sha256: "ab".repeat(32),
    }
}

fn status(phase: GroupPhase) -> GroupStatus {
    GroupStatus {
        job: job(),
        generation: Generation(3),
        gpus: vec![GpuUuid("GPU-0".into())],
        phase,
        revision: 4,
        notice: 2,
    }
}

fn inventory() -> NodeInventory {
    NodeInventory {
        node: node(),
        name: "node-a".into(),
        boot: BootId("boot".into()),
        gpu_type: GpuType("H100-80G".into()),
        gpus: vec![
            Gpu { uuid: GpuUuid("GPU-0".into()), index: 0, memory: Bytes(1 << 36), health: GpuHealth::Healthy },
            Gpu {
                uuid: GpuUuid("GPU-1".into()),
                index: 1,
                memory: Bytes(1 << 36),
                health: GpuHealth::Broken("XID 79".into()),
            },
        ],
        emulated: Some(EmulatedDevice { flop_per_second: 1, link_bytes_per_second: 2 }),
        fabric: Fabric { domain: "rack-1".into() },
        stated: Some(stated()),
        cpus: 64,
        memory: Bytes(1 << 39),
        shm: Some(Bytes(64 << 30)),
        local_disk: None,
        address: "10.0.0.1".into(),
        isolated: false,
        not_isolated_reason: Some("no bpf file system".into()),
        leaving_reason: Some("its agent got SIGTERM".into()),
        conditions: vec![Condition { kind: ConditionKind::DiskPressure, message: "3 GiB left".into() }],
        labels: [("disk".to_owned(), "nvme".to_owned())].into(),
        agent_version: "0.1.0".into(),
        tells_shares: true,
        account: Some(NodeAccount { user: "ada".into(), takes_others: true }),
    }
}

fn stated() -> StatedDevice {
    StatedDevice {
        family: "H100".into(),
        peak_flops: 9,
        matmul_flops: 8,
        matmul_8bit_flops: 7,
        matmul_4bit_flops: 6,
        matmul_32bit_flops: 2,
        memory: Bytes(1 << 36),
        memory_bytes_per_second: 5,
        link_bytes_per_second: 4,
        mesh: true,
        domain: Some(72),
        network_bytes_per_second: 3,
        multiprocessors: 132,
        measured: true,
    }
}

fn shape() -> ModelShape {
    ModelShape {
        layers: 2,
        hidden: 64,
        heads: 4,
        kv_heads: 2,
        ffn_hidden: 176,
        gated: true,
        vocab: 256,
        seq_len: 64,
        tied: true,
        head_width: Some(24),
        experts: Some(Experts { count: 8, active: 2, ffn_hidden: 96, shared_ffn_hidden: 32, dense_layers: 1 }),
        latent: Some(Latent { query_rank: Some(48), kv_rank: 16, plain_width: 8, rotary_width: 4, value_width: 8 }),
        kinds: Some(LayerKinds {
            window: Some(AttentionWindow { layers: 1, tokens: 16, chunked: true }),
            recurrent: Some(RecurrentLayers {
                layers: 1,
                kind: RecurrentKind::GatedDelta,
                heads: 4,
                head_width: 8,
                state: 16,
                groups: 2,
                convolution: 3,
                rank: 5,
            }),
            ffn_only: 6,
            without_ffn: 7,
            gated_attention: true,
            positions: 9,
        }),
    }
}

fn order(command: Command, per: RunPer, lr_scaling: LrScaling, tuned: bool) -> LaunchOrder {
    let hooks = Hooks {
        prolog: tuned.then(|| "./check.sh".into()),
        epilog: None,
        timeout: Seconds(if tuned { 30.0 } else { 300.0 }),
    };
    LaunchOrder {
        job: job(),
        generation: Generation(3),
        job_name: "tiny".into(),
        array: tuned.then(|| ArrayPlace { array: ArrayId(job().0), index: 7, count: 3, first: 5, last: 9 }),
        owner: "ada".into(),
        model: tuned.then_some((shape(), Precision::Fp16)),
        run: Run {
            per,
            command,
            workdir: tuned.then(|| "/w".into()),
            env: [("A".into(), "1".into())].into(),
            secrets: [("HF_TOKEN".into(), "team-hf".into()), ("OLD".into(), "old".into())].into(),
            secret_files: ["HF_TOKEN".into()].into(),
            hooks,
            progress: tuned.then(|| PrintedProgress {
                regex: r"step (\d+)".into(),
                rank: PrintingRank::Last,
                samples_per_step: Some(Sequences(8)),
                tokens_per_step: Some(Tokens(512.0)),
                sequence_length: Some(64),
            }),
        },
        placement: Placement::try_new(vec![NodeSlice { node: node(), gpus: vec![GpuUuid("GPU-0".into())] }]).unwrap(),
        nodes: vec![NodeAddress { node: node(), name: "node-a".into(), address: "10.0.0.1".into() }],
        configuration: tuned.then(configuration),
        lr_scale: 1.5,
        lr_scaling,
        reference_batch: tuned.then_some(Sequences(16)),
        checkpoint_dir: "/ckpt/a".into(),
        checkpoint_every: Seconds(900.0),
        resume: tuned.then(checkpoint),
        grace: Seconds(180.0),
        notice: Some(Notice { signal: NoticeSignal::Usr1, before: Seconds(120.0), to: NoticeTo::Command }),
        watched: true,
    }
}

fn not_started(fault: Fault) -> GroupPhase {
    GroupPhase::Ended { outcome: GroupOutcome::NotStarted { fault } }
}

pub(super) fn from_agent() -> Vec<AgentToScheduler> {
    let (job, generation) = (job(), Generation(3));
    let phases = [
        GroupPhase::Preparing,
        GroupPhase::Prepared { rendezvous_port: Some(29_500) },
        GroupPhase::Prepared { rendezvous_port: None },
        GroupPhase::Running,
        GroupPhase::Stopping,
        GroupPhase::Ended { outcome: GroupOutcome::Succeeded },
        GroupPhase::Ended { outcome: GroupOutcome::Stopped },
        GroupPhase::Ended { outcome: GroupOutcome::Failed { exit_code: Some(-9), fault: Fault::of_job("rank 3") } },
        GroupPhase::Ended { outcome: GroupOutcome::Failed { exit_code: None, fault: Fault::of_infrastructure("") } },
        GroupPhase::Ended { outcome: GroupOutcome::NotStarted { fault: Fault::of_node("no such directory") } },
        not_started(Fault::of_missing_checkpoint("gone", None)),
        not_started(Fault::of_missing_checkpoint("gone", Some(checkpoint()))),
    ];
    let steps = |loss, noise| StepReport {
        job,
        generation,
        step: 120,
        steps: 4,
        samples_seen: Sequences(7680),
        tokens: Tokens(65_536.0),
        duration: Seconds(2.41),
        configuration: configuration(),
        loss,
        noise,
        preconditioned: noise,
        memory_peak: Some(Bytes(1 << 34)),
    };
    let noise = NoiseSample { small_sqr: 0.81, big_sqr: 0.22, small_batch: 4.0, big_batch: 16.0 };
    let mut reports = vec![
        NodeReport::Registered {
            inventory: Box::new(inventory()),
            groups: phases.iter().cloned().map(status).collect(),
        },
        NodeReport::Registered { inventory: Box::new(NodeInventory { emulated: None, ..inventory() }), groups: vec![] },
        NodeReport::Heartbeat,
        NodeReport::Inventory { inventory: Box::new(inventory()) },
        NodeReport::Activity { job, generation, quiet: Seconds(4.0), busy: Some(0.5) },
        NodeReport::Activity { job, generation, quiet: Seconds(0.0), busy: None },
        NodeReport::RankTimes { job, generation, busy: [(0, Seconds(0.5)), (7, Seconds(0.75))].into() },
        NodeReport::Steps { report: Box::new(steps(Some(2.3), Some(noise))) },
        NodeReport::Steps { report: Box::new(steps(None, None)) },
        NodeReport::CheckpointWritten { job, checkpoint: checkpoint(), duration: Seconds(0.31) },
        NodeReport::LossAnomaly { job, generation, step: 9, loss: Some(7.5), usual: Some(2.5) },
        NodeReport::LossAnomaly { job, generation, step: 9, loss: None, usual: None },
        NodeReport::StartPhases { job, generation, phases: BTreeMap::from([("import".into(), Seconds(3.1))]) },
    ];
    reports.extend(phases.into_iter().map(|phase| NodeReport::Group { status: status(phase) }));
    let every = [Flexibility::Live, Flexibility::Restart, Flexibility::Never];
    reports.extend(every.map(|batch| NodeReport::Declared {
        job,
        generation,
        capabilities: Capabilities { batch, layout: Flexibility::Never },
    }));
    let mut messages: Vec<_> = reports.into_iter().map(AgentToScheduler::Report).collect();
    messages.push(AgentToScheduler::Log(LogChunk {
        request_id: 7,
        bytes: b"step 1\n\xff".to_vec(),
        next_offset: 8,
        eof: true,
        error: Some("rank 9 is not on this node".into()),
        marks: vec![LogMark { offset: 3, at_ms: 1_790_000_000_000 }],
        clock_ms: Some(1_790_000_000_123),
    }));
    let gpu = GpuUuid("GPU-1".into());
    let reading = GpuReading { gpu, busy: Some(0.5), celsius: Some(64.0), watts: None, memory_used: Some(Bytes(7)) };
    messages.push(AgentToScheduler::Readings(vec![reading]));
    let ended = ExecEnded { exit_code: Some(3), signal: None, timed_out: false };
    messages.push(AgentToScheduler::Exec(ExecPiece {
        request_id: 8,
        stdout: b"\xff\x00".to_vec(),
        stderr: b"no".to_vec(),
        ended: Some(ended),
        error: Some("there is no such command".into()),
    }));
    messages
}

pub(super) fn from_scheduler() -> Vec<SchedulerToAgent> {
    let (job, generation) = (job(), Generation(3));
    let argv = Command::Argv(vec!["python".into(), "train.py".into()]);
    let shell = Command::Shell("python train.py".into());
    let mut commands: Vec<_> = [LrScaling::None, LrScaling::Sqrt, LrScaling::Linear, LrScaling::Adascale]
        .map(|rule| AgentCommand::Prepare { order: Box::new(order(argv.clone(), RunPer::Gpu, rule, true)) })
        .into();
    commands.push(AgentCommand::Prepare { order: Box::new(order(shell, RunPer::Node, LrScaling::None, false)) });
    commands.push(AgentCommand::Launch { job, generation, rendezvous_port: 29_500 });
    commands.extend([StopMode::Checkpoint, StopMode::Terminate, StopMode::Kill].map(|mode| AgentCommand::Stop {
        job,
        generation,
        mode,
        grace: Seconds(30.0),
    }));
    commands.push(AgentCommand::Configure {
        job,
        generation,
        revision: 2,
        configuration: configuration(),
        lr_scale: 1.414,
    });
    commands.push(AgentCommand::Checkpoint { job, generation });
    commands.push(AgentCommand::Notify { job, generation, number: 2 });
    commands.push(AgentCommand::Forget { job, generation });
    commands.push(AgentCommand::Prune { job, committed: checkpoint(), keep: std::num::NonZeroU32::MIN });
    let serials = [None, Some(Serial(7))].into_iter().cycle();
    let mut messages: Vec<_> = commands
        .into_iter()
        .zip(serials)
        .map(|(command, serial)| {
            let secrets = match command {
                AgentCommand::Launch { .. } => [("HF_TOKEN".to_owned(), Secret::new("hunter22"))].into(),
                _ => Secrets::new(),
            };
            SchedulerToAgent::Command { term: Term(9), serial, command, secrets }
        })
        .collect();
    for checkpoint_root in [None, Some("/shared/checkpoints".to_owned())] {
        messages.push(SchedulerToAgent::Welcome {
            term: Term(9),
            lease: Seconds(30.0),
            heartbeat: Seconds(5.0),
            speed: 60.0,
            checkpoint_root,
        });
    }
    messages.push(SchedulerToAgent::Renew);
    messages.push(SchedulerToAgent::Refused { reason: "it leads t3".into(), term: Some(Term(3)) });
    messages.push(SchedulerToAgent::Refused { reason: "node is known under another token".into(), term: None });
    messages.push(SchedulerToAgent::Log(LogRequest {
        request_id: 7,
        job,
        generation: Generation(0),
        rank: Some(0),
        offset: 5,
        limit_bytes: 65_536,
        tail_lines: Some(100),
        since_ms: Some(-1),
    }));
    let command = vec!["nvidia-smi".to_owned(), String::new()];
    let start = ExecStart { job, generation, rank: 9, command, timeout: Seconds(60.0) };
    for start in [Some(start), None] {
        messages.push(SchedulerToAgent::Exec(ExecRequest { request_id: 8, exec: uuid::Uuid::from_u128(5), start }));
    }
    messages
}

#[test]
fn every_message_of_an_agent_survives_the_wire() {
    for message in from_agent() {
        let bytes = wire::AgentMessage::from(&message).encode_to_vec();
        let read = wire::AgentMessage::decode(bytes.as_slice()).unwrap();
        assert_eq!(AgentToScheduler::try_from(read), Ok(message));
    }
}

#[test]
fn every_message_of_the_scheduler_survives_the_wire() {
    for message in from_scheduler() {
        let bytes = wire::SchedulerMessage::from(&message).encode_to_vec();
        let read = wire::SchedulerMessage::decode(bytes.as_slice()).unwrap();
        assert_eq!(SchedulerToAgent::try_from(read), Ok(message));
    }
}

#[test]
fn a_hole_in_a_message_is_named() {
    use wire::{agent_message, command, scheduler_message};
    let agent = |body| AgentToScheduler::try_from(wire::AgentMessage { body }).unwrap_err();
    let command = |body| {
        let command = wire::Command { term: 1, serial: 0, body: Some(body) };
        let body = Some(scheduler_message::Body::Command(command));
        SchedulerToAgent::try_from(wire::SchedulerMessage { body }).unwrap_err()
    };
    let job_id = job().to_string();
    assert_eq!(agent(None), WireError::Missing { field: "body" });
    assert_eq!(
        agent(Some(agent_message::Body::Registered(wire::Registered::default()))),
        WireError::Missing { field: "inventory" }
    );
    assert_eq!(
        agent(Some(agent_message::Body::GroupStatus(wire::GroupStatus::default()))),
        WireError::Missing { field: "job_id" }
    );
    assert!(matches!(
        agent(Some(agent_message::Body::GroupStatus(wire::GroupStatus { job_id: "x".into(), ..Default::default() }))),
        WireError::Bad { field: "job_id", .. }
    ));
    assert!(matches!(
        command(command::Body::Launch(wire::Launch {
            job_id: job_id.clone(),
            generation: 1,
            rendezvous_port: 70_000,
            ..Default::default()
        })),
        WireError::Bad { field: "rendezvous_port", .. }
    ));
    let stop = |mode, grace_seconds| {
        command::Body::Stop(wire::Stop { job_id: job_id.clone(), generation: 1, mode, grace_seconds })
    };
    assert!(matches!(command(stop(0, 1.0)), WireError::Bad { field: "mode", .. }));
    assert!(matches!(command(stop(99, 1.0)), WireError::Bad { field: "mode", .. }));
    assert!(matches!(command(stop(1, f64::NAN)), WireError::Bad { field: "grace_seconds", .. }));
    let order = wire::LaunchOrder { job_id: job_id.clone(), ..Default::default() };
    assert!(matches!(
        command(command::Body::Prepare(wire::Prepare { order: Some(order) })),
        WireError::Bad { field: "lr_scaling", .. }
    ));
}

#[test]
fn what_a_node_reports_is_kept_to_what_anybody_reads() {
    let told = |message: String| {
        let fault = Fault::of_job(message);
        let phase = GroupPhase::Ended { outcome: GroupOutcome::Failed { exit_code: Some(1), fault } };
        let status = GroupStatus { job: job(), generation: Generation(1), gpus: vec![], phase, revision: 0, notice: 0 };
        let message = wire::AgentMessage::from(&NodeReport::Group { status });
        match AgentToScheduler::try_from(message).unwrap() {
            AgentToScheduler::Report(NodeReport::Group {
                status: GroupStatus { phase: GroupPhase::Ended { outcome: GroupOutcome::Failed { fault, .. } }, .. },
            }) => fault.message,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(told("ü".repeat(4_096)), "ü".repeat(4_096));
    assert_eq!(told("ü".repeat(1 << 20)), format!("{}…", "ü".repeat(4_096)));

    let phases = |names: usize, letters: usize| {
        let phases = (0..names).map(|name| (format!("{name:0>letters$}"), Seconds(1.0))).collect();
        let report = NodeReport::StartPhases { job: job(), generation: Generation(1), phases };
        AgentToScheduler::try_from(wire::AgentMessage::from(&report)).map(drop).map_err(|error| error.to_string())
    };
    assert_eq!(phases(256, 256), Ok(()));
    assert!(phases(257, 8).unwrap_err().contains("seconds_by_phase"));
    assert!(phases(1, 257).unwrap_err().contains("at most 256"));

    let saved = |letters: usize| {
        let checkpoint = CheckpointRef {
            generation: Generation(1),
            path: "x".repeat(letters),
            step: 1,
            samples_seen: Sequences(1),
            manifest_sha256: "00".into(),
        };
        let report = NodeReport::CheckpointWritten { job: job(), checkpoint, duration: Seconds(1.0) };
        AgentToScheduler::try_from(wire::AgentMessage::from(&report)).map(drop).map_err(|error| error.to_string())
    };
    assert_eq!(saved(8_192), Ok(()));
    assert!(saved(8_193).unwrap_err().contains("checkpoint.path"));

    let found = |letters: usize| {
        let newest = CheckpointRef { path: "x".repeat(letters), ..checkpoint() };
        let phase = not_started(Fault::of_missing_checkpoint("gone", Some(newest)));
        let status = GroupStatus { job: job(), generation: Generation(1), gpus: vec![], phase, revision: 0, notice: 0 };
        let message = wire::AgentMessage::from(&NodeReport::Group { status });
        match AgentToScheduler::try_from(message).unwrap() {
            AgentToScheduler::Report(NodeReport::Group {
                status: GroupStatus { phase: GroupPhase::Ended { outcome: GroupOutcome::NotStarted { fault } }, .. },
            }) => fault.missing_checkpoint.unwrap().newest.is_some(),
            other => panic!("{other:?}"),
        }
    };
    assert!(found(8_192) && !found(8_193), "that it has ended is heard all the same");
}
