//! Seconds that groups of ranks spend talking, from where they sit: ranks run tensor-parallel fastest, then context, then data, then
//! pipeline (Megatron-LM), so a group's members stand a fixed stride apart. It knows no model.

use std::sync::LazyLock;

use crate::catalog::Hardware;
use crate::kernel::longer;
use crate::physics::Profile;
use crate::strategy::Strategy;

/// GPUs of one type on one network, with the software's fitted constants.
#[derive(Clone, Copy, Debug)]
pub struct Cluster<'a> {
    pub hardware: &'a Hardware,
    pub profile: &'a Profile,
    /// GPUs of the job on each node.
    pub gpus_per_node: u32,
    /// Scale-up link and network per GPU, bytes/s and direction; they differ between builds of the same GPU.
    pub link: f64,
    pub network: f64,
}

/// Ranks that take part in one collective.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Group {
    pub members: f64,
    /// Nodes they sit on.
    pub nodes: f64,
    pub bandwidth: f64,
    pub hop: f64,
    /// What one member alone reaches inside its node and beyond it.
    link: f64,
    port: f64,
}

impl<'a> Cluster<'a> {
    /// The usual build of a GPU type.
    #[must_use]
    pub fn usual(hardware: &'a Hardware, profile: &'a Profile, gpus_per_node: u32) -> Self {
        Self { hardware, profile, gpus_per_node, link: hardware.intra_node, network: hardware.inter_node }
    }

    /// Whether matrices are multiplied in fewer than 16 bits: asked for, and possible.
    pub(crate) fn multiplies_narrow(&self, strategy: &Strategy) -> bool {
        strategy.precision.is_narrow() && self.hardware.supports(strategy.precision)
    }

    /// GPUs that reach each other over the scale-up network.
    pub fn scale_up(&self) -> u32 {
        self.hardware.domain.unwrap_or(0).max(self.gpus_per_node).max(1)
    }

    /// Scale-up bytes/s among that many GPUs; in a mesh each pair has its own link.
    pub(crate) fn link_rate(&self, members: u32) -> f64 {
        let links = if self.hardware.mesh { f64::from(members.clamp(2, 8) - 1) } else { 1.0 };
        links * self.link * self.profile.physics.link_share * self.hardware.factors.link_share
    }

    pub(crate) fn network_rate(&self) -> f64 {
        self.network * self.profile.physics.network_share
    }

    /// Ranks `stride` apart. Across nodes every local member brings its own network port.
    pub(crate) fn group(&self, members: u32, stride: u32) -> Group {
        let physics = &self.profile.physics;
        let local = (self.scale_up() / stride.max(1)).clamp(1, members.max(1));
        let link = self.link_rate(local);
        let (bandwidth, hop) = if members > local {
            ((f64::from(local) * self.network_rate()).min(link), physics.network_hop)
        } else {
            (link, physics.link_hop)
        };
        let members = f64::from(members.max(1));
        Group { members, nodes: members / f64::from(local), bandwidth, hop, link, port: self.network_rate() }
    }
}

/// Binary logarithms of whole numbers below this are looked up.
const WHOLE: usize = 4_096;

/// The binary logarithm of a number of ranks or nodes, at least 1.
pub(crate) fn log2(count: f64) -> f64 {
    static KNOWN: LazyLock<Vec<f64>> =
        LazyLock::new(|| (0..WHOLE).map(|count| libm::log2((count.max(1)) as f64)).collect());
    let whole = count as usize;
    if whole as f64 == count && whole < WHOLE { KNOWN[whole] } else { libm::log2(count) }
}

impl Group {
    fn latency(&self) -> f64 {
        self.hop * (log2(self.members) + 0.5)
    }

    /// One half of a ring: each member's share to all, or all members' shares summed to one each.
    pub(crate) fn gather(&self, bytes: f64) -> f64 {
        if self.members <= 1.0 {
            return 0.0;
        }
        (self.members - 1.0) / self.members * bytes / self.bandwidth + self.latency()
    }

    /// Ring all-reduce: 2(n − 1)/n of the bytes.
    pub(crate) fn all_reduce(&self, bytes: f64) -> f64 {
        2.0 * self.gather(bytes)
    }

    /// Each member's bytes spread evenly over all, in `copies` of the same values. What leaves a node leaves by the sender's own port, while
    /// the rest goes over the links. `once`: a node that several copies are for gets one and spreads it (DeepEP).
    pub(crate) fn all_to_all(&self, bytes: f64, copies: f64, once: bool) -> f64 {
        if self.members <= 1.0 {
            return 0.0;
        }
        let local = self.members / self.nodes;
        let within = (local - 1.0) / self.members * bytes;
        let beyond = if once && self.nodes > 1.0 {
            (self.nodes - 1.0) * (1.0 - libm::pow(1.0 - 1.0 / self.nodes, copies)) / copies * bytes
        } else {
            (self.nodes - 1.0) / self.nodes * bytes
        };
        longer(within / self.link, beyond / self.port) + self.latency()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::catalog::Catalog;
    use crate::physics::Parameters;

    fn on(gpu: &str, check: impl FnOnce(Cluster)) {
        let hardware = Catalog::built_in().find(gpu).unwrap();
        check(Cluster::usual(&hardware, &Parameters::built_in().profile(None), 8));
    }

    #[test]
    fn an_all_reduce_moves_twice_n_minus_1_over_n() {
        on("H100-80G", |cluster| {
            let group = Group { hop: 0.0, ..cluster.group(8, 1) };
            assert!((group.all_reduce(8e9) * group.bandwidth / 14e9 - 1.0).abs() < 1e-12);
            assert_eq!(cluster.group(1, 1).all_reduce(1e9), 0.0);
        });
    }

    #[test]
    fn across_nodes_local_members_share_the_load_up_to_the_links_rate() {
        on("H100-80G", |cluster| {
            let (alone, together) = (cluster.group(8, 8), cluster.group(64, 1));
            assert!((together.bandwidth / alone.bandwidth).min(8.0) > 4.0);
            assert!(together.bandwidth <= cluster.link_rate(8));
            assert!(cluster.group(8, 1).bandwidth > alone.bandwidth);
        });
    }

    #[test]
    fn an_all_to_all_beyond_the_node_is_as_slow_as_a_port() {
        on("H100-80G", |cluster| {
            let (inside, beyond) = (cluster.group(8, 1), cluster.group(64, 1));
            let seconds = beyond.all_to_all(8e9, 8.0, false);
            assert!(inside.all_to_all(8e9, 8.0, false) < 7e9 / inside.link + 1e-3);
            assert!((seconds * cluster.network_rate() / 7e9 - 1.0).abs() < 1e-2, "{seconds}");
            assert!(seconds > 4.0 * beyond.gather(8e9));
        });
    }

    #[test]
    fn a_mesh_is_faster_the_more_peers_take_part() {
        on("MI300X", |cluster| assert!(cluster.link_rate(8) > 3.0 * cluster.link_rate(2)));
        on("H100-80G", |cluster| assert_eq!(cluster.link_rate(8), cluster.link_rate(2)));
    }

    #[test]
    fn a_scale_up_domain_reaches_beyond_the_node() {
        on("GB200", |cluster| assert_eq!(cluster.group(64, 1).bandwidth, cluster.group(8, 1).bandwidth));
    }
}
