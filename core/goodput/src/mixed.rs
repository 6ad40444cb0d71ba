//! Gangs over nodes of unlike classes. A step takes what its slowest member takes, over the slower network, and has to fit the smaller memory (the case of
//! one cluster with several networks: Holmes, Yang et al. 2023, section 3). Where all replicas do as much, that is the slower node's; where they may do
//! unequal numbers of micro-batches, one has to know the faster nodes too.

use headway_types::{Ahead, Bytes, EmulatedDevice, Fabric, NodeClass, NodeCount, StatedDevice};

use crate::catalog::{self, Catalog, Device, Hardware};
use crate::physics::Parameters;

/// The class that a gang over nodes of these classes is valued by: its GPU type is that of the slowest member, whose reports it shares, and
/// each rate and the memory are the least of any. The order of the classes does not matter, and of equal ones it is the one.
/// Which nodes are ahead of it is not said. `None`: of no classes, or of some that cannot be compared: a GPU type that nobody knows, or emulated beside real devices.
#[must_use]
pub fn slowest<'c>(classes: impl IntoIterator<Item = &'c NodeClass>) -> Option<NodeClass> {
    let mut classes = classes.into_iter();
    let first = classes.next()?.clone();
    classes.try_fold(first, |slowest, class| if slowest == *class { Some(slowest) } else { slower(&slowest, class) })
}

/// The class that a gang is valued by, whose nodes are given in rank order, so many of a class in a row: [`slowest`], and which nodes are ahead of it. None are
/// where there are more than two kinds, or a slower node follows a faster one: replicas are told apart by their rank.
#[must_use]
pub fn of_gang<'c>(runs: impl IntoIterator<Item = (&'c NodeClass, NodeCount)>) -> Option<NodeClass> {
    let mut kinds: Vec<(&NodeClass, NodeCount)> = Vec::new();
    let mut valued: Option<NodeClass> = None;
    for (class, nodes) in runs {
        valued = Some(match valued {
            None => class.clone(),
            Some(valued) if valued == *class => valued,
            Some(valued) => slower(&valued, class)?,
        });
        match kinds.last_mut() {
            Some((last, many)) if are_alike(last, class) => many.0 += nodes.0,
            _ => kinds.push((class, nodes)),
        }
    }
    let ahead = match kinds[..] {
        [(slower, _), (faster, nodes)] => ahead_of(slower, faster, nodes),
        _ => None,
    };
    Some(NodeClass { ahead, ..valued? })
}

/// Nodes of a class, where they are faster than those of another.
#[must_use]
pub fn ahead_of(slower: &NodeClass, faster: &NodeClass, nodes: NodeCount) -> Option<Ahead> {
    let is_faster = speed(slower)?.0 < speed(faster)?.0;
    let alike = NodeClass { fabric: Fabric { domain: String::new() }, ..faster.clone() };
    is_faster.then(|| Ahead { class: Box::new(alike), nodes })
}

/// Wherever they are.
fn are_alike(a: &NodeClass, b: &NodeClass) -> bool {
    let kind = |class: &NodeClass| (class.gpu_type.clone(), class.gpus_per_node, class.emulated, class.stated.clone());
    a == b || kind(a) == kind(b)
}

fn slower(a: &NodeClass, b: &NodeClass) -> Option<NodeClass> {
    let gpus_per_node = a.gpus_per_node.min(b.gpus_per_node);
    let domain = if a.fabric == b.fabric { a.fabric.domain.clone() } else { String::new() };
    if (&a.gpu_type, a.emulated, &a.stated) == (&b.gpu_type, b.emulated, &b.stated) {
        return Some(NodeClass { gpus_per_node, fabric: Fabric { domain }, ..a.clone() });
    }
    let (slower, faster) = if speed(a)? <= speed(b)? { (a, b) } else { (b, a) };
    let (emulated, stated) = match (slower.emulated, faster.emulated) {
        (None, None) => (None, least(slower, faster)?),
        (Some(slower), Some(faster)) => (Some(least_emulated(slower, faster)), None),
        (Some(_), None) | (None, Some(_)) => return None,
    };
    let (gpu_type, fabric) = (slower.gpu_type.clone(), Fabric { domain });
    Some(NodeClass { gpu_type, gpus_per_node, emulated, fabric, stated, ahead: None })
}

/// Ascending by what decides which of two GPU types is the slower; of equal rates by name.
fn speed(class: &NodeClass) -> Option<(u64, &str)> {
    let rate = match catalog::device(class).ok()? {
        Device::Emulated(device) => device.flop_per_second,
        Device::Catalogued(hardware) => hardware.best_matmul as u64,
    };
    Some((rate, &class.gpu_type.0))
}

fn least_emulated(a: EmulatedDevice, b: EmulatedDevice) -> EmulatedDevice {
    EmulatedDevice {
        flop_per_second: a.flop_per_second.min(b.flop_per_second),
        link_bytes_per_second: a.link_bytes_per_second.min(b.link_bytes_per_second),
    }
}

/// What both devices can do at least; nothing where that is what the slower one's entry in the catalog says anyway.
fn least(slower: &NodeClass, faster: &NodeClass) -> Option<Option<StatedDevice>> {
    let (own, other) = (promised(slower)?, promised(faster)?);
    let least = StatedDevice {
        family: own.family.clone(),
        peak_flops: own.peak_flops.min(other.peak_flops),
        matmul_flops: own.matmul_flops.min(other.matmul_flops),
        matmul_8bit_flops: own.matmul_8bit_flops.min(other.matmul_8bit_flops),
        matmul_4bit_flops: own.matmul_4bit_flops.min(other.matmul_4bit_flops),
        matmul_32bit_flops: own.matmul_32bit_flops.min(other.matmul_32bit_flops),
        memory: own.memory.min(other.memory),
        memory_bytes_per_second: own.memory_bytes_per_second.min(other.memory_bytes_per_second),
        link_bytes_per_second: own.link_bytes_per_second.min(other.link_bytes_per_second),
        mesh: own.mesh || other.mesh,
        domain: own.domain.zip(other.domain).map(|(own, other)| own.min(other)),
        network_bytes_per_second: own.network_bytes_per_second.min(other.network_bytes_per_second),
        multiprocessors: own.multiprocessors.min(other.multiprocessors),
        measured: false,
    };
    Some((Catalog::built_in().stated(&slower.gpu_type.0) != Some(&least)).then_some(least))
}

/// What a class states or the catalog says of it, as a data sheet would: what a probe achieved is less than that.
fn promised(class: &NodeClass) -> Option<StatedDevice> {
    let stated = class.stated.as_ref().or_else(|| Catalog::built_in().stated(&class.gpu_type.0))?;
    if !stated.measured {
        return Some(stated.clone());
    }
    let Hardware { memory_bandwidth, intra_node, inter_node, .. } = Hardware::of(stated, Parameters::built_in());
    Some(StatedDevice {
        memory: Bytes(stated.memory.0),
        memory_bytes_per_second: memory_bandwidth as u64,
        link_bytes_per_second: intra_node as u64,
        network_bytes_per_second: inter_node as u64,
        measured: false,
        ..stated.clone()
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use headway_types::spec::{BatchRange, ExecutionLimits, LayoutLimits, Work};
    use headway_types::{Configuration, Execution, GpuCount, GpuType, Layout, Sequences, Sharding, Shares, example};
    use proptest::prelude::*;
    use proptest::sample::select;

    use super::*;
    use crate::examples::{class_of, emulated_class, report};
    use crate::model::JobModel;

    fn any_class() -> impl Strategy<Value = NodeClass> {
        let names: Vec<&'static str> = catalog::names().collect();
        (select(names), select(vec![4, 8]), prop::option::of(1_u64..100)).prop_map(|(name, gpus, network)| {
            let mut class = class_of(name, gpus);
            class.stated = network.map(|gigabytes| StatedDevice {
                network_bytes_per_second: gigabytes * 1_000_000_000,
                ..Catalog::built_in().stated(name).unwrap().clone()
            });
            class
        })
    }

    proptest! {
        #[test]
        fn the_order_of_classes_and_how_often_each_is_named_do_not_matter(a in any_class(), b in any_class(), c in any_class()) {
            let all = slowest([&a, &b, &c]);
            prop_assert!(all.is_some());
            for order in [[&b, &c, &a, &a], [&c, &b, &a, &c], [&a, &c, &b, &b]] {
                prop_assert_eq!(&slowest(order), &all);
            }
            let pair = slowest([&a, &b]).unwrap();
            prop_assert_eq!(slowest([&pair, &c]), all);
        }

        #[test]
        fn no_rate_is_better_than_any_members(a in any_class(), b in any_class()) {
            let mixed = slowest([&a, &b]).unwrap();
            prop_assert!(mixed.gpu_type == a.gpu_type || mixed.gpu_type == b.gpu_type);
            let Device::Catalogued(mixed) = catalog::device(&mixed).unwrap() else { panic!("not emulated") };
            for one in [&a, &b] {
                let Device::Catalogued(one) = catalog::device(one).unwrap() else { panic!("not emulated") };
                let rates = |of: &Hardware| [of.best_matmul, of.memory, of.memory_bandwidth, of.intra_node, of.inter_node];
                prop_assert!(rates(&mixed).iter().zip(rates(&one)).all(|(mixed, one)| *mixed <= one));
            }
        }
    }

    /// A script that takes uneven shares, at a fixed batch.
    fn sharing() -> JobModel {
        let mut training = example::training(Work::Model(example::llama2_7b()));
        let execution = ExecutionLimits {
            sharding: vec![Sharding::None, Sharding::Optimizer],
            uneven_shares: true,
            ..ExecutionLimits::default()
        };
        let layouts = LayoutLimits::degrees(vec![1, 2, 4, 8], vec![], Sequences(4));
        training.layouts = LayoutLimits { execution, ..layouts };
        training.reference_batch = Sequences(1_536);
        training.batch = BatchRange { min: Sequences(1_536), max: Sequences(1_536) };
        JobModel::new(training)
    }

    #[test]
    fn faster_nodes_take_more_of_a_step_and_pay_for_it() {
        let (slow, fast, model) = (class_of("A100-80G", 8), class_of("H100-80G", 8), sharing());
        let nodes = [(&slow, NodeCount(2)), (&fast, NodeCount(2))];
        let best = |class: &NodeClass, nodes: u32| {
            let offer = model.best(class, GpuCount(8 * nodes), NodeCount(nodes)).unwrap();
            (offer.configuration.unwrap(), offer.prediction.goodput.0)
        };
        let (even, uneven) = (best(&slowest([&slow, &fast]).unwrap(), 4), best(&of_gang(nodes).unwrap(), 4));
        let (alone, shares) = (best(&fast, 2), uneven.0.layout.execution.shares);
        assert!(shares.slower < shares.faster && even.1 < alone.1, "{} {even:?} {alone:?}", uneven.0);
        let both = alone.1 + best(&slow, 2).1;
        assert!(uneven.1 > 0.9 * both && uneven.1 <= 1.02 * both, "{} of {both}: {}", uneven.1, uneven.0);
        let reversed = [(&fast, NodeCount(2)), (&slow, NodeCount(2))];
        assert_eq!(best(&of_gang(reversed).unwrap(), 4), even, "ranks of the slower nodes have to come first");
    }

    /// They always accumulate gradients.
    #[test]
    fn replicas_on_faster_nodes_need_what_their_micro_batches_need() {
        let (slow, fast, model) = (class_of("A100-80G", 8), class_of("H100-80G", 8), sharing());
        let gang = of_gang([(&slow, NodeCount(1)), (&fast, NodeCount(1))]).unwrap();
        let memory = |shares: Shares, cycles: u64| {
            let layout =
                Layout { execution: Execution { shares, ..Execution::PLAIN }, ..Layout::data_parallel(GpuCount(16)) };
            let global_batch = Sequences(layout.micro_batches() * cycles);
            let at = Configuration { layout, micro_batch: Sequences(1), global_batch };
            model.memory(&gang, &at).unwrap().bytes
        };
        let uneven = Shares { slower: 1, faster: 2, of_faster: 8 };
        assert!(memory(Shares::EVEN, 2) > memory(Shares::EVEN, 1), "a second micro-batch is added to something");
        assert_eq!([memory(uneven, 1), memory(uneven, 2)], [memory(Shares::EVEN, 2); 2]);
    }

    /// It was not its steps that were wrong, but how much faster the others are.
    #[test]
    fn shares_that_turn_out_too_uneven_are_left_and_say_nothing_of_the_slower_nodes_alone() {
        let (slow, fast, mut model) = (class_of("A100-80G", 8), class_of("H100-80G", 8), sharing());
        let gang = of_gang([(&slow, NodeCount(1)), (&fast, NodeCount(1))]).unwrap();
        let best = |model: &JobModel, class: &NodeClass, nodes: u32| {
            model.best(class, GpuCount(8 * nodes), NodeCount(nodes)).unwrap()
        };
        let alone = best(&model, &slow, 1);
        let seconds = alone.prediction.step_time.0;
        for _ in 0..5 {
            model.observe(&slow, NodeCount(1), &report(alone.configuration.unwrap(), 1, seconds));
        }
        let before = best(&model, &slow, 1).prediction.goodput.0;
        let chosen = best(&model, &gang, 2);
        let uneven = chosen.configuration.unwrap();
        let Shares { slower, faster, .. } = uneven.layout.execution.shares;
        assert!(slower < faster);
        for _ in 0..3 {
            model.observe(&gang, NodeCount(2), &report(uneven, 1, 1.8 * chosen.prediction.step_time.0));
        }
        assert!(model.contradiction(&gang, NodeCount(2), &uneven).is_some());
        assert!((best(&model, &slow, 1).prediction.goodput.0 / before - 1.0).abs() < 0.01);
        let next = best(&model, &gang, 2).configuration.unwrap().layout.execution.shares;
        assert_ne!((next.slower, next.faster), (slower, faster));
        assert_eq!(model.lessons().count(), 1, "what others learn of is the slower nodes alone");
    }

    /// However many uneven situations come after them.
    #[test]
    fn even_shares_go_on_saying_how_fast_a_type_is() {
        let (slow, fast, mut model) = (class_of("A100-80G", 8), class_of("H100-80G", 8), sharing());
        let gang = of_gang([(&slow, NodeCount(1)), (&fast, NodeCount(1))]).unwrap();
        for (class, off) in [(&slow, 1.4), (&fast, 0.7)] {
            let offer = model.best(class, GpuCount(8), NodeCount(1)).unwrap();
            for _ in 0..5 {
                let seconds = off * offer.prediction.step_time.0;
                model.observe(class, NodeCount(1), &report(offer.configuration.unwrap(), 1, seconds));
            }
        }
        let learnt = model.lead_learnt(&gang);
        assert!(learnt < 0.6, "{learnt}");
        for cycles in 1..40 {
            let shares = Shares { slower: 1, faster: 3, of_faster: 8 };
            let execution = Execution { shares, ..Execution::PLAIN };
            let layout = Layout { execution, ..Layout::data_parallel(GpuCount(16)) };
            let global_batch = Sequences(layout.micro_batches() * cycles);
            let at = Configuration { layout, micro_batch: Sequences(1), global_batch };
            let seconds = model.step_time(&gang, GpuCount(16), NodeCount(2), &at).unwrap().time.0;
            model.observe(&gang, NodeCount(2), &report(at, 1, seconds));
        }
        assert_eq!((model.lead_learnt(&gang), model.lessons().count()), (learnt, 2));
    }

    /// Where one type is faster than the prior says and the other slower, each on its own, together they do more unequal shares.
    #[test]
    fn what_even_shares_show_of_both_types_moves_the_uneven_ones() {
        let (slow, fast, mut model) = (class_of("A100-80G", 8), class_of("H100-80G", 8), sharing());
        let gang = of_gang([(&slow, NodeCount(1)), (&fast, NodeCount(1))]).unwrap();
        let ratio = |model: &JobModel| {
            let at = model.best(&gang, GpuCount(16), NodeCount(2)).unwrap().configuration.unwrap();
            let shares = at.layout.execution.shares;
            f64::from(shares.faster) / f64::from(shares.slower)
        };
        let before = ratio(&model);
        for (class, off) in [(&slow, 1.4), (&fast, 0.7)] {
            let offer = model.best(class, GpuCount(8), NodeCount(1)).unwrap();
            for _ in 0..9 {
                let seconds = off * offer.prediction.step_time.0;
                model.observe(class, NodeCount(1), &report(offer.configuration.unwrap(), 1, seconds));
            }
            if off > 1.0 {
                assert_eq!(ratio(&model), before, "of one type alone it may be the software");
            }
        }
        let after = ratio(&model) / before;
        assert!((1.6..=2.4).contains(&after), "{after}");
    }

    #[test]
    fn who_is_ahead_follows_the_ranks() {
        let (slow, fast) = (class_of("A100-80G", 8), class_of("H100-80G", 8));
        let elsewhere = NodeClass { fabric: Fabric { domain: "rack-2".into() }, ..fast.clone() };
        let one = NodeCount(1);
        let ahead =
            |runs: &[(&NodeClass, NodeCount)]| of_gang(runs.iter().copied()).unwrap().ahead.map(|it| it.nodes.0);
        assert_eq!(ahead(&[(&slow, one), (&fast, one), (&elsewhere, one), (&fast, one)]), Some(3));
        assert_eq!(ahead(&[(&fast, one), (&elsewhere, one)]), None);
        assert_eq!(ahead(&[(&fast, one), (&slow, one)]), None);
        assert_eq!(ahead(&[(&slow, one), (&fast, one), (&slow, one)]), None);
        assert_eq!(ahead(&[(&slow, one), (&fast, one), (&class_of("B200", 8), one)]), None);
        assert_eq!(of_gang([]), None);
    }

    proptest! {
        #[test]
        fn a_gang_is_valued_by_its_slowest(a in any_class(), b in any_class(), of_a in 1u32..4, of_b in 1u32..4) {
            let gang = of_gang([(&a, NodeCount(of_a)), (&b, NodeCount(of_b))]).unwrap();
            let ahead = gang.ahead.clone();
            prop_assert_eq!(NodeClass { ahead: None, ..gang.clone() }, slowest([&a, &b]).unwrap());
            if let Some(ahead) = ahead {
                prop_assert_eq!((ahead.nodes.0, &gang.gpu_type), (of_b, &a.gpu_type));
            }
        }

        /// With uneven shares a step takes what the share of either takes on its own, over the slower network.
        #[test]
        fn a_step_of_uneven_shares_takes_what_its_slower_half_takes(
            slower in 1u32..4, more in 1u32..4, cycles in 1u64..9, tp in select(vec![1u32, 2, 8]),
        ) {
            let (slow, fast, model) = (class_of("A100-80G", 8), class_of("H100-80G", 8), sharing());
            let gang = of_gang([(&slow, NodeCount(1)), (&fast, NodeCount(1))]).unwrap();
            let shares = Shares { slower, faster: slower + more, of_faster: 8 / tp };
            let execution = Execution { shares, ..Execution::PLAIN };
            let layout = Layout { dp: 16 / tp, tp, pp: 1, execution };
            let batch = |layout: Layout, cycles: u64| Sequences(layout.micro_batches() * cycles);
            let at = Configuration { layout, micro_batch: Sequences(1), global_batch: batch(layout, cycles) };
            let of = |class: &NodeClass, at| model.prior_step_time(class, GpuCount(16), NodeCount(2), &at).unwrap();
            let even = |class: &NodeClass, micro_batches: u32| {
                let layout = Layout { execution: Execution::PLAIN, ..layout };
                let global_batch = batch(layout, u64::from(micro_batches) * cycles);
                of(class, Configuration { layout, micro_batch: Sequences(1), global_batch })
            };
            let (time, of_slower, of_faster) = (of(&gang, at), even(&slow, slower), even(&fast, slower + more));
            prop_assert!((time.micro().0 / of_slower.micro().0.max(of_faster.micro().0) - 1.0).abs() < 1e-9);
            prop_assert!((time.step().0 / of_slower.step().0 - 1.0).abs() < 1e-9);
        }
    }

    #[test]
    fn classes_that_cannot_be_compared_are_no_gang() {
        let unknown = NodeClass { gpu_type: GpuType("Potato-1G".into()), ..class_of("H200", 8) };
        assert_eq!(slowest([&unknown, &class_of("H200", 8)]), None);
        assert_eq!(slowest([&emulated_class(8), &class_of("H200", 8)]), None);
        assert_eq!(slowest([]), None);
        assert_eq!(slowest([&unknown]), Some(unknown.clone()), "of one there is nothing to compare");
        let elsewhere = NodeClass { fabric: Fabric { domain: "rack-2".into() }, ..unknown.clone() };
        let anywhere = NodeClass { fabric: Fabric { domain: String::new() }, ..unknown.clone() };
        assert_eq!(slowest([&elsewhere, &unknown]), Some(anywhere), "nor of one type in two racks");
    }

    #[test]
    fn a_step_takes_no_less_than_the_slowest_member_alone_on_as_many_nodes() {
        let model = JobModel::new(example::training(Work::Model(example::llama2_7b())));
        let layout = Layout { dp: 8, tp: 4, ..Layout::single() };
        let configuration = Configuration { layout, micro_batch: Sequences(1), global_batch: Sequences(64) };
        let time = |class: &NodeClass| {
            model
                .step_time(class, GpuCount(32), NodeCount(4), &configuration)
                .map(|step| step.time.0)
                .unwrap_or_default()
        };
        for (a, b) in [("A100-80G", "H100-80G"), ("H100-80G", "H200"), ("H100-80G", "B200"), ("A100-40G", "A100-80G")] {
            let (a, b) = (class_of(a, 8), class_of(b, 8));
            let mixed = slowest([&a, &b]).unwrap();
            assert!(time(&mixed) >= time(&a).max(time(&b)) * 0.999, "{} {}", time(&mixed), time(&a));
        }
    }
}
