//! Which layouts a model, its script and a node class allow on an allocation, and why not another. It weighs none against another.

use headway_types::spec::{ExecutionLimits, LayoutLimits};
use headway_types::{
    Execution, GpuCount, Layout, ModelShape, NodeClass, NodeCount, Offload, Recompute, Schedule, Sharding, Shares,
};

use crate::estimate::divides_layers;

/// Micro-batches of a slower replica in a cycle: with more, batches are multiples of more than ratios gain.
const MOST_OF_SLOWER: u32 = 3;

/// How many times as fast as the slower nodes of a gang over two classes the faster ones are: at least, and at most.
pub(crate) type Lead = [f64; 2];

/// Everything that says whether a layout may be.
#[derive(Clone, Copy)]
pub(crate) struct Room<'a> {
    pub shape: &'a ModelShape,
    pub limits: &'a LayoutLimits,
    pub class: &'a NodeClass,
    pub gpus: GpuCount,
    pub nodes: NodeCount,
    pub lead: Lead,
}

impl<'a> Room<'a> {
    pub(crate) fn limits(&self) -> (&'a [u32], &'a [u32], &'a ExecutionLimits) {
        self.limits.on(self.gpus)
    }

    /// Why a layout is not possible.
    pub(crate) fn obstacle(&self, layout: Layout) -> Option<String> {
        self.degree_obstacle(layout)
            .or_else(|| not_offered(self.limits().2, &layout.execution))
            .or_else(|| self.misfit(layout).map(str::to_owned))
    }

    fn degree_obstacle(&self, layout: Layout) -> Option<String> {
        let Layout { dp, tp, pp, execution } = layout;
        let ((tps, pps, _), shape) = (self.limits(), self.shape);
        let per_node = self.per_node();
        if [dp, tp, pp, execution.cp, execution.ep, execution.vpp].contains(&0) {
            Some("degrees start at 1".to_owned())
        } else if !tps.is_empty() && !tps.contains(&tp) {
            Some(format!("the script does not offer tp {tp}"))
        } else if !pps.is_empty() && !pps.contains(&pp) {
            Some(format!("the script does not offer pp {pp}"))
        } else if self.class.emulated.is_some() && (tp > 1 || !is_plain_but_for_shares(&execution)) {
            Some("emulated devices keep the time of data parallelism and plain pipelines only".to_owned())
        } else if self.class.emulated.is_some() && pp > 1 && pps.is_empty() {
            Some("on emulated devices a script has to name its pipelines".to_owned())
        } else if !per_node.is_multiple_of(tp) {
            Some(format!("a tensor-parallel group must not span nodes of {per_node} GPUs"))
        } else if shape.latent.is_some() && !shape.heads.is_multiple_of(tp) {
            Some(format!("tp must divide {} heads", shape.heads))
        } else if shape.latent.is_none() && (!shape.heads.is_multiple_of(tp) || !shape.kv_heads.is_multiple_of(tp)) {
            Some(format!("tp must divide {} heads and {} key/value heads", shape.heads, shape.kv_heads))
        } else if !self.cuts(pp) {
            Some(match self.limits().2.uneven_stages {
                true => {
                    format!("pp must divide {} layers, or these and two for the embedding and the output", shape.layers)
                }
                false => format!("pp must divide {} layers", shape.layers),
            })
        } else {
            self.expert_obstacle(layout).or_else(|| self.share_obstacle(layout))
        }
    }

    fn per_node(&self) -> u32 {
        self.gpus.0 / self.nodes.0.max(1)
    }

    /// Whether the script cuts the layers into so many stages or chunks.
    fn cuts(&self, chunks: u32) -> bool {
        let layers = self.shape.layers;
        layers.is_multiple_of(chunks) || (self.limits().2.uneven_stages && divides_layers(layers, chunks))
    }

    fn expert_obstacle(&self, layout: Layout) -> Option<String> {
        let Layout { dp, tp, execution: Execution { cp, ep, .. }, .. } = layout;
        if ep == 1 {
            return None;
        }
        let Some(experts) = self.shape.experts else {
            return Some("a dense model has no experts to spread".to_owned());
        };
        if !experts.count.is_multiple_of(ep) {
            return Some(format!("ep must divide {} experts", experts.count));
        }
        (!(tp * cp * dp).is_multiple_of(ep)).then(|| format!("ep must divide the {} ranks of a stage", tp * cp * dp))
    }

    /// Replicas do unequal numbers of micro-batches, so nothing that one of these needs may be another's.
    fn share_obstacle(&self, layout: Layout) -> Option<String> {
        let Layout { dp, tp, pp, execution: Execution { cp, ep, shares, .. } } = layout;
        if shares.are_even() {
            return None;
        }
        let Some(of_faster) = self.replicas_on_faster(tp * cp) else {
            return Some(
                "uneven shares are of replicas within the nodes of two classes, the slower nodes first".to_owned(),
            );
        };
        if pp > 1 {
            Some("of uneven shares a replica must not span stages".to_owned())
        } else if ep > 1 {
            Some("of uneven shares no two replicas may share experts".to_owned())
        } else if shares.of_faster != of_faster {
            Some(format!("{of_faster} of its replicas are on faster nodes, not {}", shares.of_faster))
        } else if !shares.are_sound(dp) {
            Some(format!("replicas on faster nodes take more of a cycle, and {} micro-batches at most", Shares::MOST))
        } else {
            None
        }
    }

    /// Of replicas of so many ranks; `None` where not all nodes have whole ones, or none is faster than another.
    fn replicas_on_faster(&self, ranks: u32) -> Option<u32> {
        let ahead = self.class.ahead.as_ref().filter(|ahead| ahead.nodes < self.nodes)?;
        self.per_node().is_multiple_of(ranks).then(|| ahead.nodes.0 * (self.per_node() / ranks))
    }

    /// Uneven shares that these degrees could have: as near the lead as few micro-batches a cycle allow.
    fn uneven(&self, degrees: Layout) -> Vec<Layout> {
        let of_faster = self.replicas_on_faster(degrees.tp * degrees.execution.cp);
        let Some(of_faster) = of_faster.filter(|_| self.limits().2.uneven_shares) else { return Vec::new() };
        let shares = ratios(self.lead).into_iter().map(|(slower, faster)| Shares { slower, faster, of_faster });
        let layouts = shares.map(|shares| Layout { execution: Execution { shares, ..degrees.execution }, ..degrees });
        layouts.filter(|layout| self.share_obstacle(*layout).is_none()).collect()
    }

    /// Why an execution does not go with the model and its degrees.
    fn misfit(&self, layout: Layout) -> Option<&'static str> {
        let Layout { tp, pp, execution, .. } = layout;
        let Execution { cp, vpp, schedule, sharding, sequence_parallel, shares, .. } = execution;
        if cp > 1 && !self.shape.seq_len.is_multiple_of(2 * cp) {
            Some("cp must divide the sequence into two parts per rank")
        } else if vpp > 1 && pp == 1 {
            Some("a single stage has nothing to interleave")
        } else if vpp > 1 && schedule == Schedule::GPipe {
            Some("gpipe does not interleave")
        } else if !self.cuts(pp * vpp) {
            Some("pp × vpp must divide the layers")
        } else if sequence_parallel && tp == 1 {
            Some("sequence parallelism is among tensor-parallel ranks")
        } else if sharding >= Sharding::Gradients && !shares.are_even() {
            Some("of uneven shares replicas must not exchange gradients or parameters in each micro-batch")
        } else {
            None
        }
    }

    /// Degrees of exactly these GPUs that are allowed, plain but for cp, ep and shares; least tp first, then pp, then cp, then ep, even shares before
    /// others.
    pub(crate) fn degrees(&self) -> Vec<Layout> {
        let (shape, gpus, limits) = (self.shape, self.gpus.0, self.limits().2);
        let mut found = Vec::new();
        let most = if shape.latent.is_some() { shape.heads } else { shape.kv_heads };
        for tp in (1..=self.class.gpus_per_node.0.min(most)).filter(|tp| gpus.is_multiple_of(*tp)) {
            for pp in (1..=shape.layers.min(gpus / tp)).filter(|pp| (gpus / tp).is_multiple_of(*pp)) {
                let ranks = gpus / (tp * pp);
                for cp in limits.cp.iter().copied().filter(|cp| ranks.is_multiple_of(*cp)) {
                    let layouts = limits.ep.iter().map(|ep| {
                        let execution = Execution { cp, ep: *ep, ..self.least() };
                        Layout { dp: ranks / cp, tp, pp, execution }
                    });
                    for layout in layouts.filter(|layout| self.degree_obstacle(*layout).is_none()) {
                        found.push(layout);
                        found.extend(self.uneven(layout));
                    }
                }
            }
        }
        found
    }

    /// What the script does when it is told as little as it can be.
    fn least(&self) -> Execution {
        let ExecutionLimits { ep, vpp, schedule, sharding, recompute, offload, .. } = self.limits().2;
        let first = |degrees: &[u32]| degrees.first().copied().unwrap_or(1);
        Execution {
            ep: first(ep),
            vpp: first(vpp),
            schedule: schedule.first().copied().unwrap_or_default(),
            sharding: sharding.first().copied().unwrap_or_default(),
            recompute: recompute.first().copied().unwrap_or_default(),
            offload: offload.first().copied().unwrap_or_default(),
            ..Execution::PLAIN
        }
    }

    /// The layouts of some degrees that differ in what they cost, the plainest first.
    pub(crate) fn executions(&self, degrees: Layout) -> impl Iterator<Item = Layout> + use<'_> {
        let limits = self.limits().2;
        let sequence: &[bool] = if limits.sequence_parallel { &[false, true] } else { &[false] };
        let chunks = limits.vpp.iter().flat_map(|vpp| limits.schedule.iter().map(move |schedule| (*vpp, *schedule)));
        let sharded = chunks.flat_map(|(vpp, schedule)| limits.sharding.iter().map(move |to| (vpp, schedule, *to)));
        let placed = sharded.flat_map(move |(vpp, schedule, sharding)| {
            let plain = Execution { vpp, schedule, sharding, ..degrees.execution };
            limits.offload.iter().map(move |offload| Execution { offload: *offload, ..plain })
        });
        let least = self.least();
        placed
            .flat_map(move |placed| {
                let kept =
                    limits.recompute.iter().flat_map(move |recompute| sequence.iter().map(move |sp| (*recompute, *sp)));
                kept.map(move |(recompute, sequence_parallel)| {
                    let told = Execution { recompute, sequence_parallel, ..placed };
                    Layout { execution: told, ..degrees }
                })
            })
            .filter(move |layout| !idle(layout, &least, limits) && self.misfit(*layout).is_none())
            .filter(|layout| self.class.emulated.is_none() || is_plain_but_for_shares(&layout.execution))
    }
}

/// Small whole numbers in the ratio of 1 to a lead, and those next to it.
fn ratios([least, most]: Lead) -> Vec<(u32, u32)> {
    let mut found = Vec::new();
    for slower in 1..=MOST_OF_SLOWER {
        let [least, most] = [libm::floor(f64::from(slower) * least), libm::ceil(f64::from(slower) * most)];
        for faster in least as u32..=most as u32 {
            let known = found.iter().any(|(s, f)| s * faster == f * slower);
            if slower < faster && faster <= Shares::MOST && !known {
                found.push((slower, faster));
            }
        }
    }
    found
}

/// What emulated workers keep the time of.
fn is_plain_but_for_shares(execution: &Execution) -> bool {
    Execution { shares: Shares::EVEN, ..*execution }.is_plain()
}

/// Whether a layout costs no less than a plainer one: a schedule without a pipeline, or one of whole stages that keeps more micro-batches
/// than 1F1B and gathers no parameters; sharding without replicas; selective recomputation where attention keeps nothing to recompute.
fn idle(layout: &Layout, least: &Execution, limits: &ExecutionLimits) -> bool {
    let execution = &layout.execution;
    let gathers = execution.sharding >= Sharding::Gradients;
    let selective = execution.recompute == Recompute::Selective;
    let alone = is_alone(layout);
    let hoards = execution.vpp == 1
        && execution.schedule != Schedule::OneForwardOneBackward
        && limits.schedule.contains(&Schedule::OneForwardOneBackward)
        && (execution.schedule == Schedule::GPipe || !gathers);
    hoards
        || (layout.pp == 1 && execution.schedule != least.schedule)
        || (alone && execution.sharding != least.sharding && !(gathers && selective))
        || (selective && !gathers && limits.recompute.contains(&Recompute::None))
}

/// Whether no two ranks hold the same parameters.
pub(crate) fn is_alone(layout: &Layout) -> bool {
    let Layout { dp, tp, execution, .. } = layout;
    // Of experts that are whole on their rank, tensor-parallel ranks hold the same.
    dp * execution.cp == 1 && (execution.ep == 1 || *tp == execution.ep)
}

fn not_offered(limits: &ExecutionLimits, execution: &Execution) -> Option<String> {
    if limits.allow(execution) {
        return None;
    }
    let Execution { cp, ep, vpp, schedule, sharding, recompute, sequence_parallel, offload, shares } = execution;
    let what = if !limits.cp.contains(cp) {
        format!("cp {cp}")
    } else if !limits.ep.contains(ep) {
        format!("ep {ep}")
    } else if !limits.vpp.contains(vpp) {
        format!("vpp {vpp}")
    } else if !limits.schedule.contains(schedule) {
        format!("the schedule {schedule}")
    } else if !limits.sharding.contains(sharding) {
        format!("sharding {sharding}")
    } else if !limits.recompute.contains(recompute) {
        format!("recompute {recompute}")
    } else if *sequence_parallel && !limits.sequence_parallel {
        "sequence parallelism".to_owned()
    } else if !shares.are_even() && !limits.uneven_shares {
        "uneven shares".to_owned()
    } else {
        match offload {
            Offload::None => "optimizer states on the device".to_owned(),
            Offload::Host | Offload::Disk => format!("offload to {offload}"),
        }
    };
    Some(format!("the script does not offer {what}"))
}
