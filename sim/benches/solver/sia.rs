//! Rounds in Sia's own formulation (Jayaram Subramanya et al., SOSP'23): rows for the GPUs of each type and nothing else,
//! Σ U + λ · (jobs left out) to be least with U = (r · G / min G)^p rounded to two decimals as its simulator does, p = −0.5, λ = 1.1.

use headway_emulation::{Random, Seed};
use headway_solver::{Column, Program, Use};

use super::instance::Shape;

/// λ: what leaving a job out costs.
const LEFT_OUT: f64 = 1.1;
const POWER: f64 = -0.5;
/// Utilities have two decimals: a quantum is a hundredth.
const QUANTA: f64 = 100.0;
/// How many GPUs a node of each type has, and how fast one is.
const TYPES: [(i64, f64); 3] = [(4, 1.0), (8, 1.6), (8, 3.1)];
/// The most GPUs a job takes.
const LARGEST: i64 = 64;
/// Seconds that a restart costs.
const RESTART: f64 = 30.0;

struct Way {
    kind: usize,
    gpus: i64,
    goodput: f64,
}

/// The program of such a round: four jobs in five run, at what they were given when fewer were there.
pub fn instance(shape: Shape, seed: u64) -> Program {
    let mut random = Random::new(Seed(0x51a).about(&seed.to_le_bytes()));
    let capacity: Vec<i64> = TYPES.iter().map(|(node, _)| shape.gpus / TYPES.len() as i64 / node * node).collect();
    let mut room = capacity.clone();
    let (mut groups, mut start) = (Vec::with_capacity(shape.jobs), Vec::with_capacity(shape.jobs));
    for _ in 0..shape.jobs {
        let ways = ways(&mut random);
        let present = random.chance(0.8).then(|| present(&ways, &mut room, &mut random)).flatten();
        let (age, restarts) = (random.between(300.0, 40_000.0), random.below(8) as f64);
        let factor = present.map_or(1.0, |_| (age - restarts * RESTART).max(0.0) / (age + RESTART));
        let most = present.map_or(i64::MAX, |at: usize| 2 * ways[at].gpus);
        let least = ways.iter().map(|way| way.goodput).fold(f64::INFINITY, f64::min);
        let worth = |(at, way): (usize, &Way)| {
            let rate = way.goodput / least * if present == Some(at) { 1.0 } else { factor };
            let utility = libm::round(libm::pow(rate.max(1e-4), POWER) * QUANTA);
            let value = libm::round(LEFT_OUT * QUANTA - utility) as i64;
            Column { value, uses: vec![Use { row: way.kind as u32, amount: way.gpus }] }
        };
        let nothing = Column { value: 0, uses: Vec::new() };
        let kept = ways.iter().enumerate().filter(|(_, way)| way.gpus <= most);
        start.push(present.map_or(0, |at| 1 + kept.clone().take_while(|(other, _)| *other != at).count()));
        groups.push(std::iter::once(nothing).chain(kept.map(worth)).collect());
    }
    Program { groups, capacity, start }
}

/// Powers of two inside a node and whole nodes beyond, on every type: Sia's configurations.
fn ways(random: &mut Random) -> Vec<Way> {
    let (drag, crossing) = (random.between(0.02, 0.35), random.between(0.75, 0.98));
    let largest = 1 << (2 + random.below(5));
    let mut found = Vec::new();
    for (kind, (node, speed)) in TYPES.into_iter().enumerate() {
        let affinity = speed * libm::exp(random.between(-0.3, 0.3));
        let inside = (0..).map(|power| 1 << power).take_while(|gpus| *gpus < node);
        for gpus in inside.chain((1..).map(|nodes| nodes * node).take_while(|gpus| *gpus <= LARGEST)) {
            if gpus <= largest {
                let across = if gpus > node { crossing } else { 1.0 };
                let goodput = affinity * across * libm::pow(gpus as f64, 1.0 - drag);
                found.push(Way { kind, gpus, goodput });
            }
        }
    }
    found
}

/// One of the job's ways for which there is room, if there is one.
fn present(ways: &[Way], room: &mut [i64], random: &mut Random) -> Option<usize> {
    let at = random.below(ways.len());
    let way = &ways[at];
    (room[way.kind] >= way.gpus).then(|| {
        room[way.kind] -= way.gpus;
        at
    })
}
