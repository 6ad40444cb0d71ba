//! From the wire to the vocabulary. What is missing or out of range is an error that names the field.

use core::fmt::Display;
use core::num::NonZeroU32;
use core::str::FromStr;
use std::collections::BTreeMap;

use headway_types::command::{GroupStatus, NodeAddress};
use headway_types::offer::{LONGEST_FAULT, LONGEST_NODE_WORD};
use headway_types::report::Flexibility;
use headway_types::spec::{MOST_NODE_LABELS, check_node_label};
use headway_types::{
    AgentCommand, ArrayPlace, Blame, BootId, Bytes, Capabilities, CheckpointRef, Condition, ConditionKind,
    Configuration, EmulatedDevice, Execution, Fabric, Fault, Generation, Gpu, GpuHealth, GpuType, GpuUuid,
    GroupOutcome, GroupPhase, Layout, MissingCheckpoint, NodeAccount, NodeInventory, NodeReport, NodeSlice,
    NoiseSample, Offload, Seconds, Sequences, Serial, Shares, StatedDevice, StepReport, StopMode, Term, Tokens,
};

use super::{AgentToScheduler, LogChunk, LogMark, LogRequest, SchedulerToAgent, Secrets, WireError, wire};
use crate::secret::Secret;

mod order;

use order::launch_order;

/// Of a start, as its script names them.
const MOST_PHASES: usize = 256;
const LONGEST_PHASE: usize = 256;
/// Of a checkpoint, in bytes.
const LONGEST_PATH: usize = 8_192;

pub(super) type Read<T> = Result<T, WireError>;

pub(super) fn present<T>(field: &'static str, value: Option<T>) -> Read<T> {
    value.ok_or(WireError::Missing { field })
}

pub(super) fn parse<T: FromStr>(field: &'static str, text: &str) -> Read<T>
where
    T::Err: Display,
{
    if text.is_empty() {
        return Err(WireError::Missing { field });
    }
    text.parse().map_err(|error: T::Err| WireError::Bad { field, message: error.to_string() })
}

fn port(value: u32) -> Read<u16> {
    u16::try_from(value).map_err(|error| WireError::Bad { field: "rendezvous_port", message: error.to_string() })
}

/// A finite duration that is not negative.
fn seconds(field: &'static str, value: f64) -> Read<Seconds> {
    if value.is_finite() && value >= 0.0 {
        Ok(Seconds(value))
    } else {
        Err(WireError::Bad { field, message: format!("{value} is not a duration") })
    }
}

pub(super) fn positive(field: &'static str, value: f64) -> Read<f64> {
    if value.is_finite() && value > 0.0 {
        Ok(value)
    } else {
        Err(WireError::Bad { field, message: format!("{value} is not positive") })
    }
}

fn unknown<T>(field: &'static str, value: impl Display) -> Read<T> {
    Err(WireError::Bad { field, message: format!("{value} is not known to this version") })
}

/// The highest term that a node has followed, as its registration says; 0: it says none.
#[must_use]
pub fn followed(message: &wire::AgentMessage) -> Term {
    match &message.body {
        Some(wire::agent_message::Body::Registered(registered)) => Term(registered.followed_term),
        _ => Term(0),
    }
}

impl TryFrom<wire::AgentMessage> for AgentToScheduler {
    type Error = WireError;

    fn try_from(message: wire::AgentMessage) -> Read<Self> {
        use wire::agent_message::Body;
        let report = match present("body", message.body)? {
            Body::Registered(registered) => NodeReport::Registered {
                inventory: Box::new(inventory(present("inventory", registered.inventory)?)?),
                groups: registered.groups.into_iter().map(group_status).collect::<Read<_>>()?,
            },
            Body::Heartbeat(wire::Heartbeat {}) => NodeReport::Heartbeat,
            Body::Inventory(changed) => NodeReport::Inventory { inventory: Box::new(inventory(changed)?) },
            Body::RankTimes(times) => NodeReport::RankTimes {
                job: parse("job_id", &times.job_id)?,
                generation: Generation(times.generation),
                busy: times
                    .busy_seconds_by_rank
                    .into_iter()
                    .map(|(rank, value)| Ok((rank, seconds("busy_seconds_by_rank", value)?)))
                    .collect::<Read<_>>()?,
            },
            Body::GroupStatus(status) => NodeReport::Group { status: group_status(status)? },
            Body::Declared(declared) => NodeReport::Declared {
                job: parse("job_id", &declared.job_id)?,
                generation: Generation(declared.generation),
                capabilities: capabilities(present("capabilities", declared.capabilities)?)?,
            },
            Body::StepReport(report) => NodeReport::Steps { report: Box::new(step_report(report)?) },
            Body::CheckpointWritten(written) => NodeReport::CheckpointWritten {
                job: parse("job_id", &written.job_id)?,
                checkpoint: reported_checkpoint(present("checkpoint", written.checkpoint)?)?,
                duration: seconds("duration_seconds", written.duration_seconds)?,
            },
            Body::LossAnomaly(anomaly) => NodeReport::LossAnomaly {
                job: parse("job_id", &anomaly.job_id)?,
                generation: Generation(anomaly.generation),
                step: anomaly.step,
                loss: anomaly.loss,
                usual: anomaly.usual_loss,
            },
            Body::Activity(activity) => NodeReport::Activity {
                job: parse("job_id", &activity.job_id)?,
                generation: Generation(activity.generation),
                quiet: seconds("quiet_seconds", activity.quiet_seconds)?,
                busy: activity.busy.filter(|busy| (0.0..=1.0).contains(busy)),
            },
            Body::StartPhases(phases) => NodeReport::StartPhases {
                job: parse("job_id", &phases.job_id)?,
                generation: Generation(phases.generation),
                phases: start_phases(phases.seconds_by_phase)?,
            },
            Body::GpuReadings(readings) => return Ok(Self::Readings(super::readings::from_wire(readings)?)),
            Body::ExecPiece(piece) => return Ok(Self::Exec(piece.into())),
            Body::LogChunk(chunk) => {
                return Ok(Self::Log(LogChunk {
                    request_id: chunk.request_id,
                    bytes: chunk.bytes,
                    next_offset: chunk.next_offset,
                    eof: chunk.eof,
                    error: chunk.error,
                    marks: chunk.marks.iter().map(|mark| LogMark { offset: mark.offset, at_ms: mark.at_ms }).collect(),
                    clock_ms: chunk.clock_ms,
                }));
            }
        };
        Ok(Self::Report(report))
    }
}

impl TryFrom<wire::SchedulerMessage> for SchedulerToAgent {
    type Error = WireError;

    fn try_from(message: wire::SchedulerMessage) -> Read<Self> {
        use wire::scheduler_message::Body;
        Ok(match present("body", message.body)? {
            Body::Welcome(welcome) => Self::Welcome {
                term: Term(welcome.term),
                lease: seconds("lease_seconds", welcome.lease_seconds)?,
                heartbeat: seconds("heartbeat_seconds", welcome.heartbeat_seconds)?,
                // A scheduler that keeps the time of day sends none.
                speed: if welcome.speed == 0.0 { 1.0 } else { positive("speed", welcome.speed)? },
                checkpoint_root: Some(welcome.checkpoint_root).filter(|root| !root.is_empty()),
            },
            Body::Command(wire::Command { term, serial, body }) => {
                let mut body = present("command body", body)?;
                let secrets = secrets(&mut body);
                let serial = (serial > 0).then_some(Serial(serial));
                Self::Command { term: Term(term), serial, command: command(body)?, secrets }
            }
            Body::LogRequest(request) => Self::Log(LogRequest {
                request_id: request.request_id,
                job: parse("job_id", &request.job_id)?,
                generation: Generation(request.generation),
                rank: request.rank,
                offset: request.offset,
                limit_bytes: request.limit_bytes,
                tail_lines: request.tail_lines,
                since_ms: request.since_ms,
            }),
            Body::ExecRequest(request) => Self::Exec(request.try_into()?),
            Body::RenewCertificate(_) => Self::Renew,
            Body::Refused(refused) => Self::Refused { reason: refused.reason, term: refused.term.map(Term) },
        })
    }
}

fn array_place(place: wire::ArrayPlace) -> Read<ArrayPlace> {
    let wire::ArrayPlace { array_id, index, count, first, last } = place;
    Ok(ArrayPlace { array: parse("array_id", &array_id)?, index, count, first, last })
}

/// Taken out of a launch, so that nothing else keeps them.
fn secrets(body: &mut wire::command::Body) -> Secrets {
    let wire::command::Body::Launch(launch) = body else { return Secrets::new() };
    std::mem::take(&mut launch.secrets).into_iter().map(|(name, value)| (name, Secret::new(value))).collect()
}

fn command(body: wire::command::Body) -> Read<AgentCommand> {
    use wire::command::Body;
    Ok(match body {
        Body::Prepare(prepare) => {
            AgentCommand::Prepare { order: Box::new(launch_order(present("order", prepare.order)?)?) }
        }
        Body::Launch(launch) => AgentCommand::Launch {
            job: parse("job_id", &launch.job_id)?,
            generation: Generation(launch.generation),
            rendezvous_port: port(launch.rendezvous_port)?,
        },
        Body::Stop(stop) => AgentCommand::Stop {
            job: parse("job_id", &stop.job_id)?,
            generation: Generation(stop.generation),
            mode: match stop.mode() {
                wire::StopMode::Unspecified => return unknown("mode", stop.mode),
                wire::StopMode::Checkpoint => StopMode::Checkpoint,
                wire::StopMode::Terminate => StopMode::Terminate,
                wire::StopMode::Kill => StopMode::Kill,
            },
            grace: seconds("grace_seconds", stop.grace_seconds)?,
        },
        Body::Configure(configure) => AgentCommand::Configure {
            job: parse("job_id", &configure.job_id)?,
            generation: Generation(configure.generation),
            revision: configure.revision,
            configuration: configuration(present("configuration", configure.configuration)?)?,
            lr_scale: configure.lr_scale,
        },
        Body::Checkpoint(save) => {
            AgentCommand::Checkpoint { job: parse("job_id", &save.job_id)?, generation: Generation(save.generation) }
        }
        Body::Notify(notify) => AgentCommand::Notify {
            job: parse("job_id", &notify.job_id)?,
            generation: Generation(notify.generation),
            number: notify.number,
        },
        Body::Prune(prune) => AgentCommand::Prune {
            job: parse("job_id", &prune.job_id)?,
            committed: checkpoint(present("committed", prune.committed)?),
            keep: NonZeroU32::new(prune.keep).ok_or(WireError::Missing { field: "keep" })?,
        },
        Body::Forget(forget) => {
            AgentCommand::Forget { job: parse("job_id", &forget.job_id)?, generation: Generation(forget.generation) }
        }
    })
}

fn node_slice(slice: wire::NodeSlice) -> Read<NodeSlice> {
    Ok(NodeSlice { node: parse("node_id", &slice.node_id)?, gpus: slice.gpu_uuids.into_iter().map(GpuUuid).collect() })
}

fn node_address(node: wire::NodeAddress) -> Read<NodeAddress> {
    Ok(NodeAddress { node: parse("node_id", &node.node_id)?, name: node.name, address: node.address })
}

fn inventory(inventory: wire::NodeInventory) -> Read<NodeInventory> {
    Ok(NodeInventory {
        node: parse("node_id", &inventory.node_id)?,
        name: inventory.name,
        boot: BootId(inventory.boot_id),
        gpu_type: GpuType(inventory.gpu_type),
        gpus: inventory.gpus.into_iter().map(gpu).collect::<Read<_>>()?,
        emulated: inventory.emulated.map(|device| EmulatedDevice {
            flop_per_second: device.flop_per_second,
            link_bytes_per_second: device.link_bytes_per_second,
        }),
        fabric: Fabric { domain: present("fabric", inventory.fabric)?.domain },
        cpus: inventory.cpus,
        memory: Bytes(inventory.memory_bytes),
        shm: inventory.shm_bytes.map(Bytes),
        local_disk: inventory.local_disk_bytes.map(Bytes),
        address: inventory.address,
        isolated: inventory.isolated,
        not_isolated_reason: Some(inventory.not_isolated_reason).filter(|reason| !reason.is_empty()),
        leaving_reason: Some(inventory.leaving_reason).filter(|reason| !reason.is_empty()),
        agent_version: inventory.agent_version,
        tells_shares: inventory.tells_shares,
        account: inventory
            .account
            .map(|account| NodeAccount { user: account.user, takes_others: account.takes_others }),
        // A newer agent's condition is nothing this version could act on.
        conditions: inventory.conditions.into_iter().filter_map(condition).collect(),
        stated: inventory.stated.map(stated).transpose()?,
        labels: labels(inventory.labels.into_iter())?,
    })
}

fn labels(labels: impl ExactSizeIterator<Item = (String, String)>) -> Read<BTreeMap<String, String>> {
    let bad = |message: String| WireError::Bad { field: "labels", message };
    if labels.len() > MOST_NODE_LABELS {
        return Err(bad(format!("a node has {MOST_NODE_LABELS} labels at most, not {}", labels.len())));
    }
    let check = |(name, value): (String, String)| check_node_label(&name, &value).map(|()| (name, value)).map_err(bad);
    labels.map(check).collect()
}

/// A rate of 0 would be divided by.
fn stated(device: wire::StatedDevice) -> Read<StatedDevice> {
    let zero = |field: &'static str| WireError::Bad { field, message: "must be above 0".into() };
    let positive = |field: &'static str, value: u64| if value > 0 { Ok(value) } else { Err(zero(field)) };
    Ok(StatedDevice {
        family: device.family,
        peak_flops: positive("peak_flops", device.peak_flops)?,
        matmul_flops: positive("matmul_flops", device.matmul_flops)?,
        matmul_8bit_flops: positive("matmul_8bit_flops", device.matmul_8bit_flops)?,
        matmul_4bit_flops: positive("matmul_4bit_flops", device.matmul_4bit_flops)?,
        matmul_32bit_flops: positive("matmul_32bit_flops", device.matmul_32bit_flops)?,
        memory: Bytes(positive("memory_bytes", device.memory_bytes)?),
        memory_bytes_per_second: positive("memory_bytes_per_second", device.memory_bytes_per_second)?,
        link_bytes_per_second: positive("link_bytes_per_second", device.link_bytes_per_second)?,
        mesh: device.mesh,
        domain: device.domain,
        network_bytes_per_second: positive("network_bytes_per_second", device.network_bytes_per_second)?,
        multiprocessors: positive("multiprocessors", device.multiprocessors.into()).map(|_| device.multiprocessors)?,
        measured: device.measured,
    })
}

fn condition(condition: wire::Condition) -> Option<Condition> {
    let kind = match condition.kind() {
        wire::ConditionKind::Unspecified => return None,
        wire::ConditionKind::DiskPressure => ConditionKind::DiskPressure,
        wire::ConditionKind::MemoryPressure => ConditionKind::MemoryPressure,
        wire::ConditionKind::Throttled => ConditionKind::Throttled,
        wire::ConditionKind::Unbounded => ConditionKind::Unbounded,
        wire::ConditionKind::LedgerDamaged => ConditionKind::LedgerDamaged,
    };
    Some(Condition { kind, message: condition.message })
}

fn gpu(gpu: wire::Gpu) -> Read<Gpu> {
    if gpu.uuid.is_empty() {
        return Err(WireError::Missing { field: "gpu uuid" });
    }
    Ok(Gpu {
        uuid: GpuUuid(gpu.uuid),
        index: gpu.index,
        memory: Bytes(gpu.memory_bytes),
        health: match present("gpu health", gpu.health)? {
            wire::gpu::Health::Healthy(wire::Healthy {}) => GpuHealth::Healthy,
            wire::gpu::Health::Broken(broken) => GpuHealth::Broken(broken.cause),
        },
    })
}

fn group_status(status: wire::GroupStatus) -> Read<GroupStatus> {
    use wire::group_status::Phase;
    Ok(GroupStatus {
        job: parse("job_id", &status.job_id)?,
        generation: Generation(status.generation),
        gpus: status.gpu_uuids.into_iter().map(GpuUuid).collect(),
        phase: match present("phase", status.phase)? {
            Phase::Preparing(wire::Preparing {}) => GroupPhase::Preparing,
            Phase::Prepared(prepared) => {
                GroupPhase::Prepared { rendezvous_port: prepared.rendezvous_port.map(port).transpose()? }
            }
            Phase::Running(wire::Running {}) => GroupPhase::Running,
            Phase::Stopping(wire::Stopping {}) => GroupPhase::Stopping,
            Phase::Ended(ended) => GroupPhase::Ended { outcome: outcome(present("outcome", ended.outcome)?) },
        },
        revision: status.revision,
        notice: status.notice,
    })
}

fn blame(blame: wire::Blame, unspecified: Blame) -> Blame {
    match blame {
        wire::Blame::Unspecified => unspecified,
        wire::Blame::Job => Blame::Job,
        wire::Blame::Node => Blame::Node,
        wire::Blame::Infrastructure => Blame::Infrastructure,
    }
}

/// What a failure is told by, as long as anybody reads.
fn told(mut message: String) -> String {
    if let Some((end, _)) = message.char_indices().nth(LONGEST_FAULT) {
        message.truncate(end);
        message.push('…');
    }
    message
}

fn bounded(field: &'static str, length: usize, most: usize) -> Read<()> {
    let wrong = || WireError::Bad { field, message: format!("is {length} long, at most {most}") };
    if length <= most { Ok(()) } else { Err(wrong()) }
}

fn start_phases(phases: BTreeMap<String, f64>) -> Read<BTreeMap<String, Seconds>> {
    bounded("seconds_by_phase", phases.len(), MOST_PHASES)?;
    let phase = |(phase, value): (String, f64)| {
        bounded("seconds_by_phase", phase.len(), LONGEST_PHASE)?;
        Ok((phase, seconds("seconds_by_phase", value)?))
    };
    phases.into_iter().map(phase).collect()
}

/// Of a node; it is kept with the job.
fn reported_checkpoint(reported: wire::Checkpoint) -> Read<CheckpointRef> {
    bounded("checkpoint.path", reported.path.len(), LONGEST_PATH)?;
    bounded("checkpoint.manifest_sha256", reported.manifest_sha256.len(), LONGEST_NODE_WORD)?;
    Ok(checkpoint(reported))
}

fn outcome(outcome: wire::ended::Outcome) -> GroupOutcome {
    use wire::ended::Outcome;
    match outcome {
        Outcome::Succeeded(wire::Succeeded {}) => GroupOutcome::Succeeded,
        Outcome::Stopped(wire::Stopped {}) => GroupOutcome::Stopped,
        Outcome::Failed(failed) => {
            let (out_of_memory, mistake) = (failed.out_of_memory, failed.mistake);
            let blame = blame(failed.blame(), Blame::Job);
            let full_disk = failed.full_disk;
            let fault = Fault { out_of_memory, mistake, full_disk, blame, ..Fault::of_job(told(failed.message)) };
            GroupOutcome::Failed { exit_code: failed.exit_code, fault }
        }
        Outcome::NotStarted(failed) => {
            let blame = blame(failed.blame(), Blame::Node);
            let (mistake, full_disk) = (failed.mistake, failed.full_disk);
            // One beyond its bounds is none: that the group has ended is heard all the same.
            let newest =
                |missing: wire::MissingCheckpoint| missing.newest.and_then(|one| reported_checkpoint(one).ok());
            let missing_checkpoint = failed.missing_checkpoint.map(|one| MissingCheckpoint { newest: newest(one) });
            let fault = Fault::of_job(told(failed.message));
            GroupOutcome::NotStarted { fault: Fault { blame, mistake, full_disk, missing_checkpoint, ..fault } }
        }
    }
}

fn capabilities(capabilities: wire::Capabilities) -> Read<Capabilities> {
    let flexibility = |field, value| match wire::Flexibility::try_from(value) {
        Ok(wire::Flexibility::Live) => Ok(Flexibility::Live),
        Ok(wire::Flexibility::Restart) => Ok(Flexibility::Restart),
        Ok(wire::Flexibility::Never) => Ok(Flexibility::Never),
        Ok(wire::Flexibility::Unspecified) | Err(_) => unknown(field, value),
    };
    Ok(Capabilities {
        batch: flexibility("capabilities batch", capabilities.batch)?,
        layout: flexibility("capabilities layout", capabilities.layout)?,
    })
}

fn noise_sample(noise: wire::NoiseSample) -> NoiseSample {
    NoiseSample {
        small_sqr: noise.small_sqr,
        big_sqr: noise.big_sqr,
        small_batch: noise.small_batch,
        big_batch: noise.big_batch,
    }
}

fn step_report(report: wire::StepReport) -> Read<StepReport> {
    Ok(StepReport {
        job: parse("job_id", &report.job_id)?,
        generation: Generation(report.generation),
        step: report.step,
        steps: report.steps,
        samples_seen: Sequences(report.samples_seen),
        tokens: Tokens(report.tokens),
        duration: seconds("duration_seconds", report.duration_seconds)?,
        configuration: configuration(present("configuration", report.configuration)?)?,
        loss: report.loss,
        noise: report.noise.map(noise_sample),
        preconditioned: report.preconditioned.map(noise_sample),
        memory_peak: report.memory_peak.map(Bytes),
    })
}

fn configuration(configuration: wire::Configuration) -> Read<Configuration> {
    let layout = present("layout", configuration.layout)?;
    let execution = configuration.execution.map_or(Ok(Execution::PLAIN), execution)?;
    if [layout.dp, layout.tp, layout.pp, execution.cp, execution.ep, execution.vpp].contains(&0) {
        return unknown("degree of parallelism", "0".to_owned());
    }
    let shares = execution.shares;
    if !shares.are_sound(layout.dp) {
        return unknown("shares of replicas", format!("{shares:?}"));
    }
    Ok(Configuration {
        layout: Layout { dp: layout.dp, tp: layout.tp, pp: layout.pp, execution },
        micro_batch: Sequences(configuration.micro_batch),
        global_batch: Sequences(configuration.global_batch),
    })
}

fn execution(execution: wire::Execution) -> Read<Execution> {
    let wire::Execution { cp, ep, vpp, schedule, sharding, recompute, sequence_parallel, offload, shares } = execution;
    let uneven = |wire::Shares { slower, faster, of_faster }| Shares { slower, faster, of_faster };
    Ok(Execution {
        cp,
        ep,
        vpp,
        schedule: schedule.parse().or_else(|_| unknown("schedule", schedule))?,
        sharding: sharding.parse().or_else(|_| unknown("sharding", sharding))?,
        recompute: recompute.parse().or_else(|_| unknown("recompute", recompute))?,
        sequence_parallel,
        offload: match offload.as_str() {
            "" => Offload::default(),
            told => told.parse().or_else(|_| unknown("offload", told.to_owned()))?,
        },
        shares: shares.map_or(Shares::EVEN, uneven),
    })
}

fn checkpoint(checkpoint: wire::Checkpoint) -> CheckpointRef {
    CheckpointRef {
        generation: Generation(checkpoint.generation),
        path: checkpoint.path,
        step: checkpoint.step,
        samples_seen: Sequences(checkpoint.samples_seen),
        manifest_sha256: checkpoint.manifest_sha256,
    }
}
