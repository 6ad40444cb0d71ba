//! What the node knows of why a process died, beyond its exit status. Reads, never decides. What a job's own text can bring about is never
//! the node's fault here.

mod disk;

use headway_node::{Exit, Share};
use headway_types::{Bytes, Fault, GpuHealth, LaunchOrder, NodeInventory};

use crate::cgroup::OutOfMemory;
pub(crate) use disk::full_disk;

/// A group that held so much of its GPUs' share of the host's memory is who filled it, as far as can be told: the rest of the host needs
/// some too.
const ITS_OWN: f64 = 0.9;

/// Looked at when a process starts, and compared when it ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Before {
    oom_kills: u64,
}

impl Before {
    pub(crate) fn now() -> Self {
        Self { oom_kills: host_oom_kills(&std::fs::read_to_string("/proc/vmstat").unwrap_or_default()) }
    }
}

/// The cause of a failed exit, where it is not the command's own.
pub(crate) fn of(
    exit: Exit,
    before: Before,
    killed: Option<OutOfMemory>,
    last_words: &str,
    order: &LaunchOrder,
    inventory: &NodeInventory,
) -> Option<Fault> {
    if exit == Exit::Code(0) {
        return None;
    }
    let out_of_memory = || match killed {
        Some(OutOfMemory::Limit) => Some(Fault::of_job("it ran out of its own memory limit")),
        Some(OutOfMemory::Host { held }) => Some(host_out_of_memory(held, order, inventory)),
        Some(OutOfMemory::No) => device_oom(last_words).then(Fault::out_of_memory),
        None => host_oom(exit, before, Before::now()).or_else(|| device_oom(last_words).then(Fault::out_of_memory)),
    };
    broken_gpu(order, inventory).or_else(out_of_memory)
}

/// The kernel has killed in this group, since the host had no more. Whoever held no more than its share did not bring that about.
fn host_out_of_memory(held: Option<Bytes>, order: &LaunchOrder, inventory: &NodeInventory) -> Fault {
    let share = share_of_memory(order, inventory);
    match held.filter(|held| held.0 as f64 >= ITS_OWN * share) {
        Some(held) => Fault::of_job(format!(
            "the host ran out of memory, of which it had taken {} GiB; its GPUs' share is {:.0} GiB",
            held.0 >> 30,
            share / f64::from(1 << 30)
        )),
        None => Fault::of_node("the host ran out of memory"),
    }
}

/// Of the host's, by the GPUs that a group was granted; in bytes.
pub(crate) fn share_of_memory(order: &LaunchOrder, inventory: &NodeInventory) -> f64 {
    let granted = Share::of(order, inventory.node).map_or(0, |share| share.slice.gpus.len());
    inventory.memory.0 as f64 * granted as f64 / inventory.gpus.len().max(1) as f64
}

/// A GPU of the group that is broken now. Whichever rank held it, the others fail in the next collective.
fn broken_gpu(order: &LaunchOrder, inventory: &NodeInventory) -> Option<Fault> {
    let share = Share::of(order, inventory.node)?;
    share.slice.gpus.iter().find_map(|uuid| {
        let gpu = inventory.gpus.iter().find(|gpu| gpu.uuid == *uuid);
        match gpu.map(|gpu| &gpu.health) {
            Some(GpuHealth::Healthy) => None,
            Some(GpuHealth::Broken(cause)) => Some(Fault::of_node(format!("GPU {uuid} broke: {cause}"))),
            None => Some(Fault::of_node(format!("GPU {uuid} is gone"))),
        }
    })
}

/// How PyTorch and the CUDA and HIP runtimes say that a device has no more memory.
const DEVICE_OUT_OF_MEMORY: [&str; 4] =
    ["CUDA out of memory", "HIP out of memory", "CUDA error: out of memory", "torch.OutOfMemoryError"];

fn device_oom(last_words: &str) -> bool {
    DEVICE_OUT_OF_MEMORY.iter().any(|words| last_words.contains(words))
}

/// A process killed while the kernel was killing for want of memory, where there is no cgroup to tell whom it chose and who held how much: this
/// may blame the node for a `kill -9` by somebody else, or for what the job itself has taken; the other way round, the job would pay for its
/// neighbours. It is one owner's word (`core/engine/src/health.rs`).
fn host_oom(exit: Exit, before: Before, after: Before) -> Option<Fault> {
    let killed = matches!(exit, Exit::Signal(9) | Exit::Code(137));
    (killed && after.oom_kills > before.oom_kills).then(|| Fault::of_node("the host ran out of memory"))
}

fn host_oom_kills(vmstat: &str) -> u64 {
    vmstat.lines().find_map(|line| line.strip_prefix("oom_kill ")?.trim().parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use headway_types::Blame;

    use super::*;
    use crate::node::tests::fixture;

    #[test]
    fn a_rank_killed_while_the_host_had_no_memory_is_the_nodes_fault() {
        let (before, after) = (Before { oom_kills: 1 }, Before { oom_kills: 2 });
        assert_eq!(host_oom_kills("nr_free_pages 7\noom_kill 2\n"), 2);
        assert_eq!(host_oom(Exit::Code(137), before, after).map(|fault| fault.blame), Some(Blame::Node));
        assert_eq!(host_oom(Exit::Code(137), before, before), None);
        assert_eq!(host_oom(Exit::Code(1), before, after), None);
    }

    #[test]
    fn a_rank_that_fails_beside_a_broken_gpu_is_the_nodes_fault() {
        let mut inventory = fixture::inventory(2);
        let order = fixture::order(&inventory, 1, "true");
        assert_eq!(of(Exit::Code(1), Before::now(), None, "", &order, &inventory), None);
        let words = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.";
        let fault = of(Exit::Code(1), Before::now(), None, words, &order, &inventory);
        assert_eq!(fault, Some(Fault::out_of_memory()));
        assert_eq!(of(Exit::Code(0), Before::now(), None, words, &order, &inventory), None);
        inventory.gpus[1].health = GpuHealth::Broken("XID 79".into());
        let fault = of(Exit::Code(1), Before::now(), None, "", &order, &inventory);
        assert!(fault.is_some_and(|fault| fault.blame == Blame::Node && fault.message.contains("XID 79")));
        let limit = of(Exit::Signal(9), Before::now(), Some(OutOfMemory::Limit), "", &order, &fixture::inventory(2));
        assert_eq!(limit.map(|fault| fault.blame), Some(Blame::Job));
        assert_eq!(of(Exit::Code(0), Before::now(), None, "", &order, &inventory), None);
    }

    #[test]
    fn a_group_that_has_filled_the_hosts_memory_answers_for_it_and_its_neighbours_do_not() {
        let mut inventory = fixture::inventory(4);
        let mut order = fixture::order(&inventory, 1, "true");
        order.placement = headway_types::example::order(
            order.job,
            1,
            inventory.node,
            inventory.gpus[..2].iter().map(|gpu| gpu.uuid.clone()).collect(),
        )
        .placement;
        inventory.memory = Bytes(64 << 30);
        let blamed = |held: Option<u64>| {
            let killed = Some(OutOfMemory::Host { held: held.map(|held| Bytes(held << 30)) });
            of(Exit::Signal(9), Before::now(), killed, "", &order, &inventory).map(|fault| fault.blame)
        };
        assert_eq!(blamed(Some(60)), Some(Blame::Job));
        assert_eq!(blamed(Some(29)), Some(Blame::Job), "its share is 32 GiB, and the host needs some itself");
        assert_eq!(blamed(Some(20)), Some(Blame::Node), "others have filled it");
        assert_eq!(blamed(None), Some(Blame::Node));
    }
}
