//! What a node may say of itself when it registers, and of the groups in its ledger. An agent is trusted with its own machine and with no
//! other: whatever it says is held to bounds far beyond every machine there is, so that one that errs or lies costs nobody else anything.

use crate::command::GroupStatus;
use crate::hardware::{Gpu, GpuHealth, NodeInventory, StatedDevice};
use crate::spec::{MOST_NODE_LABELS, check_node_label};
use crate::unit::Bytes;

/// GPUs of one node. Rounds leave out nodes that have more.
pub const MOST_GPUS_PER_NODE: u32 = 256;
/// Characters of a node's name, its GPU type, its fabric domain and its address.
pub const LONGEST_NODE_WORD: usize = 128;
/// Any rate of a device per second: FLOP, bytes.
pub const FASTEST: u64 = 1_000_000_000_000_000_000;

/// Of a failure; what is longer is cut where it arrives.
pub const LONGEST_FAULT: usize = 4_096;

const LONGEST_REASON: usize = 1_024;
const MOST_CONDITIONS: usize = 16;
const MOST_CPUS: u32 = 1 << 16;
const MOST_MULTIPROCESSORS: u32 = 1 << 16;
const MOST_IN_A_DOMAIN: u32 = 1 << 20;
const MOST_GPU_MEMORY: Bytes = Bytes(1 << 44);
const MOST_MEMORY: Bytes = Bytes(1 << 50);
const MOST_DISK: Bytes = Bytes(1 << 60);

/// What is beyond the bounds, by its name in the protocol.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{field} {wrong}")]
pub struct OfferError {
    pub field: &'static str,
    /// What is wrong with it and what would not be: "are 5000, at most 256".
    pub wrong: String,
}

impl NodeInventory {
    /// Whether a node may say this of itself.
    ///
    /// # Errors
    /// The first that is beyond its bounds.
    pub fn check(&self) -> Result<(), OfferError> {
        // First what is cheap to see: nothing else is looked at of an offer that is too long.
        count("gpus", self.gpus.len(), MOST_GPUS_PER_NODE as usize)?;
        count("labels", self.labels.len(), MOST_NODE_LABELS)?;
        count("conditions", self.conditions.len(), MOST_CONDITIONS)?;
        word("name", &self.name)?;
        word("boot_id", &self.boot.0)?;
        word("gpu_type", &self.gpu_type.0)?;
        printable("fabric.domain", &self.fabric.domain, 0..=LONGEST_NODE_WORD)?;
        printable("address", &self.address, 0..=LONGEST_NODE_WORD)?;
        if let Some(account) = &self.account {
            printable("account.user", &account.user, 1..=LONGEST_NODE_WORD)?;
        }
        printable("agent_version", &self.agent_version, 0..=LONGEST_NODE_WORD)?;
        self.labels.iter().try_for_each(|(name, value)| {
            check_node_label(name, value).map_err(|wrong| OfferError { field: "labels", wrong })
        })?;
        let told = self.conditions.iter().map(|one| &one.message);
        told.into_iter().try_for_each(|message| short("conditions.message", message, LONGEST_REASON))?;
        self.leaving_reason.iter().try_for_each(|reason| short("leaving_reason", reason, LONGEST_REASON))?;
        whole("cpus", self.cpus.into(), 0..=MOST_CPUS.into())?;
        whole("memory_bytes", self.memory.0, 0..=MOST_MEMORY.0)?;
        self.shm.map_or(Ok(()), |shm| whole("shm_bytes", shm.0, 0..=MOST_MEMORY.0))?;
        self.local_disk.map_or(Ok(()), |disk| whole("local_disk_bytes", disk.0, 0..=MOST_DISK.0))?;
        self.gpus.iter().try_for_each(check_gpu)?;
        if let Some(device) = &self.emulated {
            whole("emulated.flop_per_second", device.flop_per_second, 1..=FASTEST)?;
            whole("emulated.link_bytes_per_second", device.link_bytes_per_second, 1..=FASTEST)?;
        }
        self.stated.as_ref().map_or(Ok(()), StatedDevice::check)
    }
}

impl GroupStatus {
    /// Whether a node may say this of a group.
    ///
    /// # Errors
    /// The first that is beyond its bounds.
    pub fn check(&self) -> Result<(), OfferError> {
        count("groups.gpus", self.gpus.len(), MOST_GPUS_PER_NODE as usize)?;
        self.gpus.iter().try_for_each(|uuid| word("groups.gpus", &uuid.0))
    }
}

fn check_gpu(gpu: &Gpu) -> Result<(), OfferError> {
    word("gpus.uuid", &gpu.uuid.0)?;
    whole("gpus.index", gpu.index.into(), 0..=MOST_CPUS.into())?;
    whole("gpus.memory_bytes", gpu.memory.0, 0..=MOST_GPU_MEMORY.0)?;
    match &gpu.health {
        GpuHealth::Healthy => Ok(()),
        GpuHealth::Broken(cause) => short("gpus.broken", cause, LONGEST_REASON),
    }
}

impl StatedDevice {
    /// Whether anything can be computed with it.
    ///
    /// # Errors
    /// The first that is beyond its bounds.
    pub fn check(&self) -> Result<(), OfferError> {
        printable("stated.family", &self.family, 0..=LONGEST_NODE_WORD)?;
        let rates = [
            ("stated.peak_flops", self.peak_flops),
            ("stated.matmul_flops", self.matmul_flops),
            ("stated.matmul_8bit_flops", self.matmul_8bit_flops),
            ("stated.matmul_4bit_flops", self.matmul_4bit_flops),
            ("stated.matmul_32bit_flops", self.matmul_32bit_flops),
            ("stated.memory_bytes_per_second", self.memory_bytes_per_second),
            ("stated.link_bytes_per_second", self.link_bytes_per_second),
            ("stated.network_bytes_per_second", self.network_bytes_per_second),
        ];
        rates.into_iter().try_for_each(|(field, rate)| whole(field, rate, 1..=FASTEST))?;
        whole("stated.memory_bytes", self.memory.0, 1..=MOST_GPU_MEMORY.0)?;
        whole("stated.multiprocessors", self.multiprocessors.into(), 1..=MOST_MULTIPROCESSORS.into())?;
        whole("stated.domain", self.domain.unwrap_or(0).into(), 0..=MOST_IN_A_DOMAIN.into())
    }
}

fn count(field: &'static str, count: usize, most: usize) -> Result<(), OfferError> {
    let wrong = || OfferError { field, wrong: format!("are {count}, at most {most}") };
    if count <= most { Ok(()) } else { Err(wrong()) }
}

fn whole(field: &'static str, value: u64, within: core::ops::RangeInclusive<u64>) -> Result<(), OfferError> {
    let wrong = || OfferError { field, wrong: format!("is {value}, from {} to {}", within.start(), within.end()) };
    if within.contains(&value) { Ok(()) } else { Err(wrong()) }
}

/// A name: there, printable, without spaces.
fn word(field: &'static str, text: &str) -> Result<(), OfferError> {
    printable(field, text, 1..=LONGEST_NODE_WORD)?;
    if text.contains(char::is_whitespace) {
        return Err(OfferError { field, wrong: format!("holds a space: \"{text}\"") });
    }
    Ok(())
}

fn printable(field: &'static str, text: &str, letters: core::ops::RangeInclusive<usize>) -> Result<(), OfferError> {
    if text.is_empty() && *letters.start() > 0 {
        return Err(OfferError { field, wrong: "is empty".into() });
    }
    short(field, text, *letters.end())?;
    match text.chars().find(|letter| !is_plain(*letter)) {
        None => Ok(()),
        Some(letter) => Err(OfferError {
            field,
            wrong: format!("holds a character that cannot be shown: {}", letter.escape_unicode()),
        }),
    }
}

/// Neither control characters nor such as change how what stands beside them is read.
fn is_plain(letter: char) -> bool {
    let invisible = matches!(letter, '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2028}' | '\u{2029}' | '\u{2060}'..='\u{2069}' | '\u{feff}');
    !letter.is_control() && !invisible
}

fn short(field: &'static str, text: &str, most: usize) -> Result<(), OfferError> {
    // Counting characters is not worth it where even bytes would do.
    let length = if text.len() <= most { 0 } else { text.chars().count() };
    let wrong = || OfferError { field, wrong: format!("is {length} characters long, at most {most}") };
    if length <= most { Ok(()) } else { Err(wrong()) }
}

#[cfg(all(test, feature = "examples"))]
mod tests {
    use super::*;
    use crate::example;
    use crate::hardware::{Condition, ConditionKind, EmulatedDevice};
    use crate::{BootId, Generation, GpuType, GpuUuid, GroupPhase, IdSource, Timestamp};

    fn offer(gpus: u32) -> NodeInventory {
        example::inventory(IdSource::seeded(1).node(Timestamp(0)), 1, gpus)
    }

    #[test]
    fn every_machine_there_is_is_within_bounds() {
        for gpus in [0, 1, 8, 16, MOST_GPUS_PER_NODE] {
            assert_eq!(offer(gpus).check(), Ok(()));
        }
        let emulated = Some(EmulatedDevice { flop_per_second: 1, link_bytes_per_second: FASTEST });
        assert_eq!(NodeInventory { emulated, name: "knoten-ü.example.org".into(), ..offer(8) }.check(), Ok(()));
    }

    #[test]
    fn whatever_is_beyond_its_bounds_is_named() {
        type Spoil = fn(&mut NodeInventory);
        let table: [(&str, Spoil); 22] = [
            ("gpus", |it| it.gpus = vec![it.gpus[0].clone(); 5_000]),
            ("name", |it| it.name.clear()),
            ("name", |it| it.name = "x".repeat(129)),
            ("name", |it| it.name = "a\u{1b}[2J".into()),
            ("name", |it| it.name = "evil\u{202e}edon".into()),
            ("name", |it| it.name = "two words".into()),
            ("boot_id", |it| it.boot = BootId("x".repeat(1 << 20))),
            ("gpu_type", |it| it.gpu_type = GpuType("\0".into())),
            ("fabric.domain", |it| it.fabric.domain = "x".repeat(1 << 20)),
            ("address", |it| it.address = "10.0.0.1\nHost: b".into()),
            ("agent_version", |it| it.agent_version = "9".repeat(200)),
            ("labels", |it| drop(it.labels.insert("a b".into(), "c".into()))),
            ("labels", |it| it.labels = (0..65).map(|name| (format!("l{name}"), "v".into())).collect()),
            ("conditions.message", |it| {
                it.conditions.push(Condition { kind: ConditionKind::Throttled, message: "x".repeat(2_000) });
            }),
            ("cpus", |it| it.cpus = u32::MAX),
            ("memory_bytes", |it| it.memory = Bytes(u64::MAX)),
            ("shm_bytes", |it| it.shm = Some(Bytes(u64::MAX))),
            ("local_disk_bytes", |it| it.local_disk = Some(Bytes(u64::MAX))),
            ("gpus.uuid", |it| it.gpus[0].uuid = GpuUuid(String::new())),
            ("gpus.memory_bytes", |it| it.gpus[0].memory = Bytes(u64::MAX)),
            ("gpus.broken", |it| it.gpus[0].health = GpuHealth::Broken("x".repeat(2_000))),
            ("emulated.flop_per_second", |it| {
                it.emulated = Some(EmulatedDevice { flop_per_second: u64::MAX, link_bytes_per_second: 1 });
            }),
        ];
        for (field, spoil) in table {
            let mut inventory = offer(4);
            spoil(&mut inventory);
            assert_eq!(inventory.check().map_err(|error| error.field), Err(field));
        }
        let mut group = GroupStatus {
            job: IdSource::seeded(1).job(Timestamp(0)),
            generation: Generation(1),
            gpus: vec![GpuUuid("GPU-1".into()); MOST_GPUS_PER_NODE as usize],
            phase: GroupPhase::Running,
            revision: 0,
            notice: 0,
        };
        assert_eq!(group.check(), Ok(()));
        group.gpus[7] = GpuUuid("x".repeat(1 << 20));
        assert_eq!(group.check().map_err(|error| error.field), Err("groups.gpus"));
        group.gpus = vec![GpuUuid("GPU-1".into()); 5_000];
        assert_eq!(group.check().map_err(|error| error.to_string()), Err("groups.gpus are 5000, at most 256".into()));
        let mut many = offer(1);
        many.gpus = vec![many.gpus[0].clone(); 5_000];
        assert_eq!(many.check().map_err(|error| error.to_string()), Err("gpus are 5000, at most 256".into()));
    }
}
