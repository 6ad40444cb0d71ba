//! Programs as a planner states them, drawn from a seed: concave values over GPU types and sizes, blocks of GPUs in
//! nodes and of nodes in domains, quotas within quotas, floors as rows with negative amounts, users, power and moves.

use headway_solver::{Column, Program, Use};

/// Which rows bind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Quotas,
    Blocks,
    Power,
    All,
}

/// Speed and watts of a GPU type.
const TYPES: [(f64, i64); 2] = [(1.0, 400), (1.9, 700)];
const PER_NODE: i64 = 8;
/// Sizes that fill blocks and sizes that do not.
const SIZES: [i64; 8] = [1, 2, 3, 4, 6, 8, 16, 24];
const PROJECTS: usize = 5;
const FLOORS: usize = 3;
const USERS: usize = 6;

/// Rows of a type, first to last: blocks of 1, 2, 4 and 8 GPUs in a node, nodes, pairs of nodes in a domain.
const OF_TYPE: usize = 6;
const PROJECT: usize = TYPES.len() * OF_TYPE;
const PARENT: usize = PROJECT + PROJECTS;
const FLOOR: usize = PARENT + 1;
const USER: usize = FLOOR + FLOORS;
const POWER: usize = USER + USERS;
const MOVES: usize = POWER + 1;
const ROWS: usize = MOVES + 1;

pub fn program(kind: Kind, seed: u64) -> Program {
    let mut random = Random(seed.wrapping_mul(0x9e37_79b9).wrapping_add(kind as u64));
    // Power and moves are hard for the backend, blocks are easy.
    let most = match kind {
        Kind::Quotas | Kind::Blocks => 60,
        Kind::Power => 36,
        Kind::All => 44,
    };
    let groups = 20 + (seed % (most - 19)) as usize;
    let nodes = [(groups as i64 / 5).max(2), (groups as i64 / 8).max(2)];
    // Many groups with many columns would take the backend minutes.
    let spread = if groups < 28 { 3 } else { 1 };
    let jobs: Vec<Vec<Column>> = (0..groups).map(|_| job(spread, &mut random)).collect();
    let capacity = capacity(kind, nodes, &mut random);
    let mut program = Program { groups: jobs, capacity, start: vec![0; groups] };
    populate(&mut program, &mut random);
    promise(kind, &mut program, &mut random);
    program
}

/// Nothing, and a few ways to run.
fn job(spread: usize, random: &mut Random) -> Vec<Column> {
    let (project, user) = (random.below(PROJECTS), random.below(USERS));
    let (weight, drag) = (random.between(0.8, 4.0), random.between(0.05, 0.4));
    let first = random.below(4);
    let sizes = &SIZES[first..(first + 2 + random.below(spread)).min(SIZES.len())];
    let mut columns = vec![Column { value: 0, uses: Vec::new() }];
    for (of, (speed, watts)) in TYPES.into_iter().enumerate() {
        let affinity = speed * random.between(0.7, 1.4);
        for &gpus in sizes {
            let speed = affinity * libm::pow(gpus as f64, 1.0 - drag);
            let worth = weight * (libm::pow(0.1, -0.5) - libm::pow(speed + 0.1, -0.5)) * 1e5;
            columns.push(Column { value: worth as i64, uses: uses(of, gpus, watts, project, user) });
        }
    }
    columns
}

fn uses(of: usize, gpus: i64, watts: i64, project: usize, user: usize) -> Vec<Use> {
    let (whole, rest) = (gpus / PER_NODE, gpus % PER_NODE);
    let nodes = whole + i64::from(rest > PER_NODE / 2);
    let mut amounts =
        vec![(PROJECT + project, gpus), (PARENT, if project < 3 { gpus } else { 0 }), (USER + user, gpus)];
    amounts.extend((0..4).map(|level| (of * OF_TYPE + level, whole * (PER_NODE >> level) + (rest >> level))));
    amounts.extend([(of * OF_TYPE + 4, nodes), (of * OF_TYPE + 5, nodes / 2), (POWER, gpus * watts), (MOVES, 1)]);
    if project < FLOORS {
        amounts.push((FLOOR + project, -gpus));
    }
    let held = amounts.into_iter().filter(|(_, amount)| *amount != 0);
    held.map(|(row, amount)| Use { row: row as u32, amount }).collect()
}

fn capacity(kind: Kind, nodes: [i64; 2], random: &mut Random) -> Vec<i64> {
    let mut capacity = vec![1 << 30; ROWS];
    let total = (nodes[0] + nodes[1]) * PER_NODE;
    let share = |random: &mut Random, least: f64, most: f64| (total as f64 * random.between(least, most)) as i64;
    for (of, nodes) in nodes.into_iter().enumerate() {
        let rows = &mut capacity[of * OF_TYPE..];
        rows[0] = nodes * PER_NODE - random.below(4) as i64;
        if matches!(kind, Kind::Blocks | Kind::All) {
            // Some GPUs are broken: each takes a block of every size with it.
            let broken = random.below(3) as i64;
            (0..4).for_each(|level| rows[level] = nodes * (PER_NODE >> level) - broken);
            (rows[4], rows[5]) = (nodes, nodes / 2 - random.below(2) as i64);
        }
    }
    if matches!(kind, Kind::Quotas | Kind::All) {
        (0..PROJECTS).for_each(|project| capacity[PROJECT + project] = share(random, 0.08, 0.3));
        capacity[PARENT] = share(random, 0.3, 0.6);
    }
    if matches!(kind, Kind::Power | Kind::All) {
        (0..USERS).for_each(|user| capacity[USER + user] = share(random, 0.1, 0.3));
        let most: i64 = nodes.iter().zip(TYPES).map(|(nodes, (_, watts))| nodes * PER_NODE * watts).sum();
        capacity[POWER] = (most as f64 * random.between(0.6, 0.95)) as i64;
    }
    capacity
}

/// A present that fits: most jobs have something, wherever there was room.
fn populate(program: &mut Program, random: &mut Random) {
    for group in 0..program.groups.len() {
        if random.below(10) < 6 {
            program.start[group] = random.below(program.groups[group].len());
            if !program.fits(&program.start) {
                program.start[group] = 0;
            }
        }
    }
}

/// Floors that the present meets, and a number of moves away from it.
fn promise(kind: Kind, program: &mut Program, random: &mut Random) {
    if matches!(kind, Kind::Power | Kind::All) {
        for (columns, &start) in program.groups.iter_mut().zip(&program.start) {
            for (at, column) in columns.iter_mut().enumerate() {
                column.uses.retain(|part| part.row as usize != MOVES);
                // Starting is no move; leaving or changing what one has is.
                if start != 0 && at != start {
                    column.uses.push(Use { row: MOVES as u32, amount: 1 });
                }
            }
        }
        program.capacity[MOVES] = (program.groups.len() / 3) as i64;
    }
    let used = program.used(&program.start);
    for (capacity, used) in program.capacity.iter_mut().zip(&used).skip(FLOOR).take(FLOORS) {
        let kept = if matches!(kind, Kind::Quotas | Kind::All) { random.between(0.7, 1.0) } else { 0.0 };
        *capacity = (*used as f64 * kept) as i64;
    }
}

/// SplitMix64. The solver imports nothing of the project, its tests neither.
struct Random(u64);

impl Random {
    fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, bound: usize) -> usize {
        (self.bits() % bound as u64) as usize
    }

    fn between(&mut self, least: f64, most: f64) -> f64 {
        least + (most - least) * ((self.bits() >> 11) as f64 / (1_u64 << 53) as f64)
    }
}
