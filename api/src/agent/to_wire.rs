//! From the vocabulary to the wire. It cannot fail.

use headway_types::command::{GroupStatus, NodeAddress};
use headway_types::report::Flexibility;
use headway_types::spec::{Command, LrScaling, NoticeTo, Precision, PrintingRank, Run, RunPer};
use headway_types::{
    AgentCommand, ArrayPlace, Blame, Bytes, Capabilities, CheckpointRef, Condition, ConditionKind, Configuration,
    Execution, Gpu, GpuHealth, GroupOutcome, GroupPhase, LaunchOrder, LayerKinds, MissingCheckpoint, ModelShape,
    NodeInventory, NodeReport, NodeSlice, NoiseSample, RecurrentKind, Serial, Shares, StatedDevice, StepReport,
    StopMode, Term,
};

use super::{AgentToScheduler, LogChunk, LogRequest, SchedulerToAgent, Secrets, wire};

fn array_place(place: ArrayPlace) -> wire::ArrayPlace {
    let ArrayPlace { array, index, count, first, last } = place;
    wire::ArrayPlace { array_id: array.to_string(), index, count, first, last }
}

impl From<&AgentToScheduler> for wire::AgentMessage {
    fn from(message: &AgentToScheduler) -> Self {
        match message {
            AgentToScheduler::Report(report) => report.into(),
            AgentToScheduler::Log(chunk) => chunk.into(),
            AgentToScheduler::Readings(readings) => {
                Self { body: Some(wire::agent_message::Body::GpuReadings(super::readings::to_wire(readings))) }
            }
            AgentToScheduler::Exec(piece) => Self { body: Some(wire::agent_message::Body::ExecPiece(piece.into())) },
        }
    }
}

/// The first message of a session, with the highest term that the node has followed.
#[must_use]
pub fn registration(report: &NodeReport, followed: Term) -> wire::AgentMessage {
    let mut message: wire::AgentMessage = report.into();
    if let Some(wire::agent_message::Body::Registered(registered)) = &mut message.body {
        registered.followed_term = followed.0;
    }
    message
}

impl From<&NodeReport> for wire::AgentMessage {
    fn from(report: &NodeReport) -> Self {
        use wire::agent_message::Body;
        let body = match report {
            NodeReport::Registered { inventory, groups } => Body::Registered(wire::Registered {
                inventory: Some(inventory.as_ref().into()),
                groups: groups.iter().map(Into::into).collect(),
                followed_term: 0,
            }),
            NodeReport::Heartbeat => Body::Heartbeat(wire::Heartbeat {}),
            NodeReport::Inventory { inventory } => Body::Inventory(inventory.as_ref().into()),
            NodeReport::RankTimes { job, generation, busy } => Body::RankTimes(wire::RankTimes {
                job_id: job.to_string(),
                generation: generation.0,
                busy_seconds_by_rank: busy.iter().map(|(rank, seconds)| (*rank, seconds.0)).collect(),
            }),
            NodeReport::Group { status } => Body::GroupStatus(status.into()),
            NodeReport::Declared { job, generation, capabilities } => Body::Declared(wire::Declared {
                job_id: job.to_string(),
                generation: generation.0,
                capabilities: Some(capabilities.into()),
            }),
            NodeReport::Steps { report } => Body::StepReport(report.as_ref().into()),
            NodeReport::CheckpointWritten { job, checkpoint, duration } => {
                Body::CheckpointWritten(wire::CheckpointWritten {
                    job_id: job.to_string(),
                    checkpoint: Some(checkpoint.into()),
                    duration_seconds: duration.0,
                })
            }
            NodeReport::LossAnomaly { job, generation, step, loss, usual } => Body::LossAnomaly(wire::LossAnomaly {
                job_id: job.to_string(),
                generation: generation.0,
                step: *step,
                loss: *loss,
                usual_loss: *usual,
            }),
            NodeReport::Activity { job, generation, quiet, busy } => Body::Activity(wire::Activity {
                job_id: job.to_string(),
                generation: generation.0,
                quiet_seconds: quiet.0,
                busy: *busy,
            }),
            NodeReport::StartPhases { job, generation, phases } => Body::StartPhases(wire::StartPhases {
                job_id: job.to_string(),
                generation: generation.0,
                seconds_by_phase: phases.iter().map(|(phase, seconds)| (phase.clone(), seconds.0)).collect(),
            }),
        };
        Self { body: Some(body) }
    }
}

impl From<&LogChunk> for wire::AgentMessage {
    fn from(chunk: &LogChunk) -> Self {
        let chunk = wire::LogChunk {
            request_id: chunk.request_id,
            bytes: chunk.bytes.clone(),
            next_offset: chunk.next_offset,
            eof: chunk.eof,
            error: chunk.error.clone(),
            marks: chunk.marks.iter().map(|mark| wire::LogMark { offset: mark.offset, at_ms: mark.at_ms }).collect(),
            clock_ms: chunk.clock_ms,
        };
        Self { body: Some(wire::agent_message::Body::LogChunk(chunk)) }
    }
}

impl From<&SchedulerToAgent> for wire::SchedulerMessage {
    fn from(message: &SchedulerToAgent) -> Self {
        use wire::scheduler_message::Body;
        let body = match message {
            SchedulerToAgent::Welcome { term, lease, heartbeat, speed, checkpoint_root } => {
                Body::Welcome(wire::Welcome {
                    term: term.0,
                    lease_seconds: lease.0,
                    heartbeat_seconds: heartbeat.0,
                    speed: *speed,
                    checkpoint_root: checkpoint_root.clone().unwrap_or_default(),
                })
            }
            SchedulerToAgent::Command { term, serial, command, secrets } => {
                Body::Command(command_to_wire(*term, *serial, command, secrets))
            }
            SchedulerToAgent::Log(request) => Body::LogRequest(request.into()),
            SchedulerToAgent::Exec(request) => Body::ExecRequest(request.into()),
            SchedulerToAgent::Renew => Body::RenewCertificate(wire::RenewCertificate {}),
            SchedulerToAgent::Refused { reason, term } => {
                Body::Refused(wire::Refused { reason: reason.clone(), term: term.map(|term| term.0) })
            }
        };
        Self { body: Some(body) }
    }
}

impl From<&LogRequest> for wire::LogRequest {
    fn from(request: &LogRequest) -> Self {
        Self {
            request_id: request.request_id,
            job_id: request.job.to_string(),
            generation: request.generation.0,
            rank: request.rank,
            offset: request.offset,
            limit_bytes: request.limit_bytes,
            tail_lines: request.tail_lines,
            since_ms: request.since_ms,
        }
    }
}

fn command_to_wire(term: Term, serial: Option<Serial>, command: &AgentCommand, secrets: &Secrets) -> wire::Command {
    use wire::command::Body;
    let (job, generation) = command.subject();
    let (job_id, generation) = (job.to_string(), generation.0);
    let body = match command {
        AgentCommand::Prepare { order } => Body::Prepare(wire::Prepare { order: Some(order.as_ref().into()) }),
        AgentCommand::Launch { rendezvous_port, .. } => {
            let secrets = secrets.iter().map(|(name, value)| (name.clone(), value.expose().to_owned())).collect();
            Body::Launch(wire::Launch { job_id, generation, rendezvous_port: u32::from(*rendezvous_port), secrets })
        }
        AgentCommand::Stop { mode, grace, .. } => {
            let mode = match mode {
                StopMode::Checkpoint => wire::StopMode::Checkpoint,
                StopMode::Terminate => wire::StopMode::Terminate,
                StopMode::Kill => wire::StopMode::Kill,
            };
            Body::Stop(wire::Stop { job_id, generation, mode: mode.into(), grace_seconds: grace.0 })
        }
        AgentCommand::Configure { revision, configuration, lr_scale, .. } => Body::Configure(wire::Configure {
            job_id,
            generation,
            revision: *revision,
            configuration: Some(configuration.into()),
            lr_scale: *lr_scale,
        }),
        AgentCommand::Checkpoint { .. } => Body::Checkpoint(wire::SaveCheckpoint { job_id, generation }),
        AgentCommand::Notify { number, .. } => Body::Notify(wire::Notify { job_id, generation, number: *number }),
        AgentCommand::Prune { committed, keep, .. } => {
            Body::Prune(wire::Prune { job_id, committed: Some(committed.into()), keep: keep.get() })
        }
        AgentCommand::Forget { .. } => Body::Forget(wire::Forget { job_id, generation }),
    };
    wire::Command { term: term.0, serial: serial.map_or(0, |serial| serial.0), body: Some(body) }
}

impl From<&LaunchOrder> for wire::LaunchOrder {
    fn from(order: &LaunchOrder) -> Self {
        Self {
            job_id: order.job.to_string(),
            generation: order.generation.0,
            job_name: order.job_name.clone(),
            array: order.array.map(array_place),
            owner: order.owner.clone(),
            run: Some((&order.run).into()),
            model: order.model.as_ref().map(|(shape, precision)| model(shape, *precision)),
            placement: order.placement.slices().iter().map(Into::into).collect(),
            nodes: order.nodes.iter().map(Into::into).collect(),
            configuration: order.configuration.as_ref().map(Into::into),
            lr_scale: order.lr_scale,
            lr_scaling: match order.lr_scaling {
                LrScaling::None => wire::LrScaling::None,
                LrScaling::Sqrt => wire::LrScaling::Sqrt,
                LrScaling::Linear => wire::LrScaling::Linear,
                LrScaling::Adascale => wire::LrScaling::Adascale,
            }
            .into(),
            reference_batch: order.reference_batch.map(|batch| batch.0),
            checkpoint_dir: order.checkpoint_dir.clone(),
            checkpoint_every_seconds: order.checkpoint_every.0,
            resume: order.resume.as_ref().map(Into::into),
            grace_seconds: order.grace.0,
            notice: order.notice.map(|notice| wire::Notice {
                signal: notice.signal.to_string(),
                before_seconds: notice.before.0,
                command_alone: notice.to == NoticeTo::Command,
            }),
            watched: order.watched,
        }
    }
}

fn model(shape: &ModelShape, precision: Precision) -> wire::Model {
    let precision = match precision {
        Precision::Bf16 => wire::Precision::Bf16,
        Precision::Fp16 => wire::Precision::Fp16,
        Precision::Fp32 => wire::Precision::Fp32,
        Precision::Fp8 => wire::Precision::Fp8,
    };
    wire::Model {
        layers: shape.layers,
        hidden: shape.hidden,
        heads: shape.heads,
        kv_heads: shape.kv_heads,
        ffn_hidden: shape.ffn_hidden,
        gated: shape.gated,
        vocab: shape.vocab,
        seq_len: shape.seq_len,
        tied: shape.tied,
        precision: precision.into(),
        head_width: shape.head_width,
        experts: shape.experts.map(|of| wire::Experts {
            count: of.count,
            active: of.active,
            ffn_hidden: of.ffn_hidden,
            shared_ffn_hidden: of.shared_ffn_hidden,
            dense_layers: of.dense_layers,
        }),
        latent: shape.latent.map(|of| wire::Latent {
            query_rank: of.query_rank,
            kv_rank: of.kv_rank,
            plain_width: of.plain_width,
            rotary_width: of.rotary_width,
            value_width: of.value_width,
        }),
        kinds: shape.kinds.as_ref().map(layer_kinds),
    }
}

fn layer_kinds(kinds: &LayerKinds) -> wire::LayerKinds {
    let kind = |kind| match kind {
        RecurrentKind::Mamba => wire::RecurrentKind::Mamba,
        RecurrentKind::Mamba2 => wire::RecurrentKind::Mamba2,
        RecurrentKind::GatedDelta => wire::RecurrentKind::GatedDelta,
        RecurrentKind::Lightning => wire::RecurrentKind::Lightning,
        RecurrentKind::Convolution => wire::RecurrentKind::Convolution,
    };
    wire::LayerKinds {
        window: kinds.window.map(|of| wire::AttentionWindow {
            layers: of.layers,
            tokens: of.tokens,
            chunked: of.chunked,
        }),
        recurrent: kinds.recurrent.map(|of| wire::RecurrentLayers {
            layers: of.layers,
            kind: kind(of.kind).into(),
            heads: of.heads,
            head_width: of.head_width,
            state: of.state,
            groups: of.groups,
            convolution: of.convolution,
            rank: of.rank,
        }),
        ffn_only: kinds.ffn_only,
        without_ffn: kinds.without_ffn,
        gated_attention: kinds.gated_attention,
        positions: kinds.positions,
    }
}

impl From<&Run> for wire::Run {
    fn from(run: &Run) -> Self {
        Self {
            per: match run.per {
                RunPer::Node => wire::RunPer::Node,
                RunPer::Gpu => wire::RunPer::Gpu,
            }
            .into(),
            command: Some(match &run.command {
                Command::Shell(line) => wire::run::Command::Shell(line.clone()),
                Command::Argv(words) => wire::run::Command::Argv(wire::Argv { words: words.clone() }),
            }),
            workdir: run.workdir.clone(),
            env: run.env.clone(),
            secrets: run.secrets.clone(),
            secret_files: run.secret_files.iter().cloned().collect(),
            hooks: (!run.hooks.are_none()).then(|| wire::Hooks {
                prolog: run.hooks.prolog.clone(),
                epilog: run.hooks.epilog.clone(),
                timeout_seconds: run.hooks.timeout.0,
            }),
            progress: run.progress.as_ref().map(|progress| wire::PrintedProgress {
                regex: progress.regex.clone(),
                last_rank: progress.rank == PrintingRank::Last,
                samples_per_step: progress.samples_per_step.map(|samples| samples.0),
                tokens_per_step: progress.tokens_per_step.map(|tokens| tokens.0),
                sequence_length: progress.sequence_length,
            }),
        }
    }
}

impl From<&NodeSlice> for wire::NodeSlice {
    fn from(slice: &NodeSlice) -> Self {
        Self { node_id: slice.node.to_string(), gpu_uuids: slice.gpus.iter().map(|gpu| gpu.0.clone()).collect() }
    }
}

impl From<&NodeAddress> for wire::NodeAddress {
    fn from(node: &NodeAddress) -> Self {
        Self { node_id: node.node.to_string(), name: node.name.clone(), address: node.address.clone() }
    }
}

impl From<&NodeInventory> for wire::NodeInventory {
    fn from(inventory: &NodeInventory) -> Self {
        Self {
            node_id: inventory.node.to_string(),
            name: inventory.name.clone(),
            boot_id: inventory.boot.0.clone(),
            gpu_type: inventory.gpu_type.0.clone(),
            gpus: inventory.gpus.iter().map(Into::into).collect(),
            emulated: inventory.emulated.map(|device| wire::EmulatedDevice {
                flop_per_second: device.flop_per_second,
                link_bytes_per_second: device.link_bytes_per_second,
            }),
            fabric: Some(wire::Fabric { domain: inventory.fabric.domain.clone() }),
            cpus: inventory.cpus,
            memory_bytes: inventory.memory.0,
            address: inventory.address.clone(),
            isolated: inventory.isolated,
            not_isolated_reason: inventory.not_isolated_reason.clone().unwrap_or_default(),
            leaving_reason: inventory.leaving_reason.clone().unwrap_or_default(),
            agent_version: inventory.agent_version.clone(),
            tells_shares: inventory.tells_shares,
            account: inventory
                .account
                .as_ref()
                .map(|account| wire::NodeAccount { user: account.user.clone(), takes_others: account.takes_others }),
            conditions: inventory.conditions.iter().map(Into::into).collect(),
            shm_bytes: inventory.shm.map(|bytes| bytes.0),
            local_disk_bytes: inventory.local_disk.map(|bytes| bytes.0),
            stated: inventory.stated.as_ref().map(Into::into),
            labels: inventory.labels.clone().into_iter().collect(),
        }
    }
}

impl From<&StatedDevice> for wire::StatedDevice {
    fn from(device: &StatedDevice) -> Self {
        Self {
            family: device.family.clone(),
            peak_flops: device.peak_flops,
            matmul_flops: device.matmul_flops,
            matmul_8bit_flops: device.matmul_8bit_flops,
            matmul_4bit_flops: device.matmul_4bit_flops,
            matmul_32bit_flops: device.matmul_32bit_flops,
            memory_bytes: device.memory.0,
            memory_bytes_per_second: device.memory_bytes_per_second,
            link_bytes_per_second: device.link_bytes_per_second,
            mesh: device.mesh,
            domain: device.domain,
            network_bytes_per_second: device.network_bytes_per_second,
            multiprocessors: device.multiprocessors,
            measured: device.measured,
        }
    }
}

impl From<&Condition> for wire::Condition {
    fn from(condition: &Condition) -> Self {
        let kind = match condition.kind {
            ConditionKind::DiskPressure => wire::ConditionKind::DiskPressure,
            ConditionKind::MemoryPressure => wire::ConditionKind::MemoryPressure,
            ConditionKind::Throttled => wire::ConditionKind::Throttled,
            ConditionKind::Unbounded => wire::ConditionKind::Unbounded,
            ConditionKind::LedgerDamaged => wire::ConditionKind::LedgerDamaged,
        };
        Self { kind: kind.into(), message: condition.message.clone() }
    }
}

fn blame(blame: Blame) -> i32 {
    match blame {
        Blame::Job => wire::Blame::Job,
        Blame::Node => wire::Blame::Node,
        Blame::Infrastructure => wire::Blame::Infrastructure,
    }
    .into()
}

impl From<&Gpu> for wire::Gpu {
    fn from(gpu: &Gpu) -> Self {
        Self {
            uuid: gpu.uuid.0.clone(),
            index: gpu.index,
            memory_bytes: gpu.memory.0,
            health: Some(match &gpu.health {
                GpuHealth::Healthy => wire::gpu::Health::Healthy(wire::Healthy {}),
                GpuHealth::Broken(cause) => wire::gpu::Health::Broken(wire::Broken { cause: cause.clone() }),
            }),
        }
    }
}

impl From<&GroupStatus> for wire::GroupStatus {
    fn from(status: &GroupStatus) -> Self {
        use wire::group_status::Phase;
        Self {
            job_id: status.job.to_string(),
            generation: status.generation.0,
            gpu_uuids: status.gpus.iter().map(|gpu| gpu.0.clone()).collect(),
            phase: Some(match &status.phase {
                GroupPhase::Preparing => Phase::Preparing(wire::Preparing {}),
                GroupPhase::Prepared { rendezvous_port } => {
                    Phase::Prepared(wire::Prepared { rendezvous_port: rendezvous_port.map(u32::from) })
                }
                GroupPhase::Running => Phase::Running(wire::Running {}),
                GroupPhase::Stopping => Phase::Stopping(wire::Stopping {}),
                GroupPhase::Ended { outcome } => Phase::Ended(wire::Ended { outcome: Some(outcome.into()) }),
            }),
            revision: status.revision,
            notice: status.notice,
        }
    }
}

impl From<&GroupOutcome> for wire::ended::Outcome {
    fn from(outcome: &GroupOutcome) -> Self {
        match outcome {
            GroupOutcome::Succeeded => Self::Succeeded(wire::Succeeded {}),
            GroupOutcome::Stopped => Self::Stopped(wire::Stopped {}),
            GroupOutcome::Failed { exit_code, fault } => Self::Failed(wire::Failed {
                exit_code: *exit_code,
                message: fault.message.clone(),
                blame: blame(fault.blame),
                out_of_memory: fault.out_of_memory,
                mistake: fault.mistake,
                full_disk: fault.full_disk,
            }),
            GroupOutcome::NotStarted { fault } => Self::NotStarted(wire::NotStarted {
                message: fault.message.clone(),
                blame: blame(fault.blame),
                mistake: fault.mistake,
                full_disk: fault.full_disk,
                missing_checkpoint: fault.missing_checkpoint.as_ref().map(Into::into),
            }),
        }
    }
}

impl From<&Capabilities> for wire::Capabilities {
    fn from(capabilities: &Capabilities) -> Self {
        let flexibility = |flexibility| match flexibility {
            Flexibility::Live => wire::Flexibility::Live.into(),
            Flexibility::Restart => wire::Flexibility::Restart.into(),
            Flexibility::Never => wire::Flexibility::Never.into(),
        };
        Self { batch: flexibility(capabilities.batch), layout: flexibility(capabilities.layout) }
    }
}

impl From<&StepReport> for wire::StepReport {
    fn from(report: &StepReport) -> Self {
        Self {
            job_id: report.job.to_string(),
            generation: report.generation.0,
            step: report.step,
            steps: report.steps,
            samples_seen: report.samples_seen.0,
            tokens: report.tokens.0,
            duration_seconds: report.duration.0,
            configuration: Some((&report.configuration).into()),
            loss: report.loss,
            noise: report.noise.as_ref().map(Into::into),
            preconditioned: report.preconditioned.as_ref().map(Into::into),
            memory_peak: report.memory_peak.map(|Bytes(bytes)| bytes),
        }
    }
}

impl From<&NoiseSample> for wire::NoiseSample {
    fn from(noise: &NoiseSample) -> Self {
        Self {
            small_sqr: noise.small_sqr,
            big_sqr: noise.big_sqr,
            small_batch: noise.small_batch,
            big_batch: noise.big_batch,
        }
    }
}

impl From<&Configuration> for wire::Configuration {
    fn from(configuration: &Configuration) -> Self {
        let layout = configuration.layout;
        Self {
            layout: Some(wire::Layout { dp: layout.dp, tp: layout.tp, pp: layout.pp }),
            micro_batch: configuration.micro_batch.0,
            global_batch: configuration.global_batch.0,
            execution: (!layout.execution.is_plain()).then(|| (&layout.execution).into()),
        }
    }
}

impl From<&Execution> for wire::Execution {
    fn from(execution: &Execution) -> Self {
        let Execution { cp, ep, vpp, schedule, sharding, recompute, sequence_parallel, offload, shares } = *execution;
        let Shares { slower, faster, of_faster } = shares;
        Self {
            cp,
            ep,
            vpp,
            schedule: schedule.to_string(),
            sharding: sharding.to_string(),
            recompute: recompute.to_string(),
            sequence_parallel,
            offload: offload.to_string(),
            shares: (!shares.are_even()).then_some(wire::Shares { slower, faster, of_faster }),
        }
    }
}

impl From<&MissingCheckpoint> for wire::MissingCheckpoint {
    fn from(missing: &MissingCheckpoint) -> Self {
        Self { newest: missing.newest.as_ref().map(Into::into) }
    }
}

impl From<&CheckpointRef> for wire::Checkpoint {
    fn from(checkpoint: &CheckpointRef) -> Self {
        Self {
            generation: checkpoint.generation.0,
            path: checkpoint.path.clone(),
            step: checkpoint.step,
            samples_seen: checkpoint.samples_seen.0,
            manifest_sha256: checkpoint.manifest_sha256.clone(),
        }
    }
}
