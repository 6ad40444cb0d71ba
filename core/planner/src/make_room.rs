//! Defragmentation, only when it pays: jobs that could as well run elsewhere move out of the way of one that finds no
//! room, if all of them find room elsewhere and lose less by it than the one would lose by its next best.

use std::collections::{BTreeMap, BTreeSet};

use crate::candidate::Candidate;
use crate::cluster::{Reach, Shape, Slot};
use crate::input::Freedom;
use crate::place::Placing;

/// A node that could be had, and what moving everybody out of the way there costs.
struct Site {
    node: usize,
    domain: usize,
    loss: i64,
    residents: Vec<usize>,
}

/// Finds room for a job's shape by moving others. `false`, and nothing changed, where that does not pay, or where the shape is of two classes.
pub(crate) fn for_job(placing: &mut Placing<'_, '_>, job: usize, shape: Shape) -> bool {
    if placing.round.cluster.is_mix(shape.class) {
        return false;
    }
    let worth = placing.candidate(job).value.0 - next_best_value(placing, job);
    let Some(sites) = choose(placing, job, shape, worth) else { return false };
    let residents: BTreeSet<usize> = sites.iter().flat_map(|site| site.residents.iter().copied()).collect();
    if residents.len() as i64 > placing.moves_left() {
        return false;
    }
    let (choice, used) = (placing.choice.clone(), placing.used.clone());
    let lifted: Vec<(usize, Vec<Slot>)> = residents.iter().map(|&one| (one, placing.lift(one))).collect();
    let mut settled = Vec::new();
    if let Some(slots) = placing.find(job, placing.candidate(job)) {
        placing.put(job, slots);
        settled.push(job);
        for &(resident, _) in &lifted {
            let Some(at) = elsewhere(placing, resident) else { break };
            let Some(slots) = placing.find(resident, &placing.options[resident].candidates[at]) else { break };
            placing.choose(resident, at);
            placing.put(resident, slots);
            settled.push(resident);
        }
    }
    if settled.len() == lifted.len() + 1 {
        return true;
    }
    for one in settled {
        placing.lift(one);
    }
    (placing.choice, placing.used) = (choice, used);
    for (resident, slots) in lifted {
        placing.put(resident, slots);
    }
    false
}

fn next_best_value(placing: &Placing<'_, '_>, job: usize) -> i64 {
    let (at, _) = placing.next_best(job);
    placing.options[job].candidates[at].value.0
}

/// The cheapest nodes that could hold the shape if others left, where that costs less than it is worth.
fn choose(placing: &Placing<'_, '_>, job: usize, shape: Shape, worth: i64) -> Option<Vec<Site>> {
    let residents = residents(placing, shape.class);
    let mut sites: Vec<Site> = placing.round.cluster.classes[shape.class]
        .nodes
        .iter()
        .filter_map(|&node| site(placing, job, shape, node, residents.get(&node).map_or(&[], Vec::as_slice)))
        .filter(|site| site.loss < worth)
        .collect();
    sites.sort_by_key(|site| (site.loss, site.node));
    let wanted = shape.nodes.0 as usize;
    let within = shape.reach == Reach::Domain && wanted > 1;
    let chosen = if within {
        let mut by_domain: BTreeMap<usize, Vec<Site>> = BTreeMap::new();
        for site in sites {
            let of = by_domain.entry(site.domain).or_default();
            if of.len() < wanted {
                of.push(site);
            }
        }
        let full = by_domain.into_values().filter(|sites| sites.len() == wanted);
        full.min_by_key(|sites| sites.iter().map(|site| site.loss).sum::<i64>())?
    } else {
        sites.truncate(wanted);
        sites
    };
    let loss: i64 = chosen.iter().map(|site| site.loss).sum();
    (chosen.len() == wanted && loss < worth).then_some(chosen)
}

/// Jobs that stay on nodes of a class and could move, by node.
fn residents(placing: &Placing<'_, '_>, class: usize) -> BTreeMap<usize, Vec<usize>> {
    let mut by_node: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
    for job in 0..placing.options.len() {
        let free = matches!(placing.options[job].job.freedom, Freedom::Free);
        if !free || !placing.candidate(job).stays || elsewhere(placing, job).is_none() {
            continue;
        }
        let mut nodes: Vec<usize> = placing.slots[job].iter().map(|slot| slot.node).collect();
        nodes.dedup();
        // A job of several nodes would have to leave all of them for the sake of one.
        if let [node] = nodes[..]
            && placing.round.cluster.class_of(node) == class
        {
            by_node.entry(node).or_default().push(job);
        }
    }
    by_node
}

/// What a node would cost: its residents leave in the order of their loss per GPU until the slice fits.
fn site(placing: &Placing<'_, '_>, job: usize, shape: Shape, node: usize, residents: &[usize]) -> Option<Site> {
    let wanted = shape.per_node();
    let domain = placing.round.cluster.domain_of(node);
    if placing.free.has_room(placing.seeker(job, placing.candidate(job)), node, wanted) {
        return Some(Site { node, domain, loss: 0, residents: Vec::new() });
    }
    let mut order: Vec<(i64, u32, usize)> = residents
        .iter()
        .filter_map(|&one| {
            let gpus = placing.candidate(one).gpus.0.max(1);
            let loss =
                placing.candidate(one).value.0 - placing.options[one].candidates[elsewhere(placing, one)?].value.0;
            Some((loss.max(0), gpus, one))
        })
        .collect();
    order.sort_by_key(|&(loss, gpus, one)| (loss / i64::from(gpus), one));
    let (mut room, mut loss, mut leaving) = (placing.free.count(node), 0, Vec::new());
    for (cost, gpus, one) in order {
        if room >= wanted {
            break;
        }
        room += gpus;
        loss += cost;
        leaving.push(one);
    }
    (room >= wanted).then_some(Site { node, domain, loss, residents: leaving })
}

/// The candidate by which a job that stays would go on elsewhere as it is, within every row.
fn elsewhere(placing: &Placing<'_, '_>, job: usize) -> Option<usize> {
    let chosen = placing.candidate(job);
    let alike = |one: &Candidate| {
        let layout = |of: &Candidate| of.configuration.map(|at| at.layout);
        one.shape.is_some_and(|shape| shape.nodes.0 == 1) && one.gpus == chosen.gpus && layout(one) == layout(chosen)
    };
    let candidates = &placing.options[job].candidates;
    let found = candidates.iter().enumerate().filter(|(at, one)| alike(one) && placing.affordable(job, *at));
    found.max_by_key(|(at, one)| (one.value, std::cmp::Reverse(*at))).map(|(at, _)| at)
}
