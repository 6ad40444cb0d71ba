//! Gangs over nodes of unlike classes. Every rank does as much as every other, so a step takes what its slowest member takes, over the
//! slower network, and has to fit the smaller memory (the case of one cluster with several networks: Holmes, Yang et al. 2023, section 3).

use headway_types::{Bytes, EmulatedDevice, Fabric, NodeClass, StatedDevice};

use crate::catalog::{self, Catalog, Device, Hardware};
use crate::physics::Parameters;

/// The class that a gang over nodes of these classes is valued by: its GPU type is that of the slowest member, whose reports it shares, and
/// each rate and the memory are the least of any. The order of the classes does not matter, and of equal ones it is the one.
/// `None`: of no classes, or of some that cannot be compared: a GPU type that nobody knows, or emulated beside real devices.
#[must_use]
pub fn slowest<'c>(classes: impl IntoIterator<Item = &'c NodeClass>) -> Option<NodeClass> {
    let mut classes = classes.into_iter();
    let first = classes.next()?.clone();
    classes.try_fold(first, |slowest, class| if slowest == *class { Some(slowest) } else { slower(&slowest, class) })
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
    Some(NodeClass { gpu_type: slower.gpu_type.clone(), gpus_per_node, emulated, fabric: Fabric { domain }, stated })
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
    use headway_types::spec::Work;
    use headway_types::{Configuration, GpuCount, GpuType, Layout, NodeCount, Sequences, example};
    use proptest::prelude::*;
    use proptest::sample::select;

    use super::*;
    use crate::examples::{class_of, emulated_class};
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
