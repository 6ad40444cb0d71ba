//! Rounds of a planner as programs, drawn from a seed: concave values per node class, size and layout, projects within
//! parents, floors, users, host resources, block rows, broken GPUs, a present assignment that was good a while ago and
//! a budget of moves away from it.

use headway_emulation::{Random, Seed};
use headway_solver::{Column, Program, Use};

/// The size of a round.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    pub jobs: usize,
    pub gpus: i64,
    pub types: usize,
    /// Layouts per class and size; beyond one, power and racks bind too.
    pub layouts: usize,
    pub racks: i64,
}

const PROJECTS: usize = 20;
const PARENTS: usize = 4;
const FLOORS: usize = 5;
const QUANTA: f64 = 1e6;
/// Blocks of 2, 4 and 8 GPUs inside a node, then of 2, 4, 8 … nodes inside a rack.
const NODE_LEVELS: u32 = 3;
const RACK_LEVELS: u32 = 5;

/// A node class: how fast it is, how many GPUs a node has, the share of all GPUs, watts per GPU.
const CLASSES: [(f64, i64, f64, i64); 5] =
    [(1.0, 8, 0.5, 400), (2.2, 8, 0.3, 700), (0.45, 4, 0.2, 300), (2.6, 8, 0.15, 700), (0.6, 4, 0.15, 350)];

struct Class {
    speed: f64,
    per_node: i64,
    watts: i64,
    nodes: i64,
    /// The row of its GPUs; block rows, CPU cores and memory follow.
    row: u32,
}

struct Job {
    project: usize,
    user: usize,
    weight: f64,
    base: f64,
    /// Relative speed on each class; zero where it does not run.
    affinity: Vec<f64>,
    /// How much is lost with each doubling.
    drag: f64,
    sizes: Vec<i64>,
    cores: i64,
    memory: i64,
}

/// What a column stands for.
#[derive(Clone, Copy, PartialEq)]
struct Candidate {
    class: usize,
    gpus: i64,
    layout: usize,
    value: f64,
}

struct Rows {
    classes: Vec<Class>,
    projects: u32,
    parents: u32,
    floors: u32,
    users: u32,
    power: u32,
    moves: u32,
    count: usize,
}

struct Draw {
    shape: Shape,
    random: Random,
    rows: Rows,
    jobs: Vec<Job>,
}

/// The program of a round of this shape.
pub fn instance(shape: Shape, seed: u64) -> Program {
    let mut random = Random::new(Seed(0x5eed).about(&seed.to_le_bytes()));
    let rows = rows(shape);
    let jobs = (0..shape.jobs).map(|_| job(shape, &mut random)).collect();
    Draw { shape, random, rows, jobs }.program()
}

fn rows(shape: Shape) -> Rows {
    let total: f64 = CLASSES[..shape.types].iter().map(|class| class.2).sum();
    let mut next = 0;
    let classes = CLASSES[..shape.types]
        .iter()
        .map(|&(speed, per_node, share, watts)| {
            let nodes = ((shape.gpus as f64 * share / total) as i64 / per_node).max(1);
            let row = next;
            next += 1 + NODE_LEVELS + 2 + if shape.racks > 0 { RACK_LEVELS } else { 0 };
            Class { speed, per_node, watts, nodes, row }
        })
        .collect();
    let projects = next;
    let parents = projects + PROJECTS as u32;
    let floors = parents + PARENTS as u32;
    let users = floors + FLOORS as u32;
    let power = users + users_of(shape) as u32;
    Rows { classes, projects, parents, floors, users, power, moves: power + 1, count: power as usize + 2 }
}

fn users_of(shape: Shape) -> usize {
    (shape.jobs / 20).clamp(10, 60)
}

fn job(shape: Shape, random: &mut Random) -> Job {
    let largest = [1, 2, 4, 8, 16, 32, 64, 128];
    // Most jobs are small, few are large: the exponent is drawn from the lower half twice as often.
    let top = if random.chance(0.6) { 3 + random.below(2) } else { 4 + random.below(4) };
    let top = if shape.layouts > 1 { 7 } else { top };
    let span = if random.chance(0.06) { 0 } else { 4 + random.below(3) };
    let span = if shape.layouts > 1 { 7 } else { span };
    let affinity = (0..shape.types)
        .map(|_| if shape.layouts == 1 && random.chance(0.05) { 0.0 } else { libm::exp(random.between(-0.35, 0.35)) });
    let mut affinity: Vec<f64> = affinity.collect();
    affinity[0] = affinity[0].max(0.7);
    let project = (random.uniform() * random.uniform() * PROJECTS as f64) as usize;
    Job {
        project,
        user: random.below(users_of(shape)),
        weight: [1.0, 2.0, 4.0][random.below(3)] * random.between(0.8, 1.6),
        base: libm::exp(random.between(-1.5, 1.5)),
        affinity,
        drag: random.between(0.02, 0.22),
        sizes: largest[top.saturating_sub(span)..=top].to_vec(),
        cores: 4 + 2 * random.below(7) as i64,
        memory: 32 + 16 * random.below(9) as i64,
    }
}

impl Draw {
    fn program(mut self) -> Program {
        let candidates: Vec<Vec<Candidate>> = (0..self.jobs.len()).map(|job| self.candidates(job)).collect();
        let mut capacity = self.capacity();
        let start = self.assignment(&candidates, &capacity);
        let mut groups: Vec<Vec<Column>> = Vec::with_capacity(candidates.len());
        let mut running = 0;
        for (job, (candidates, &present)) in candidates.iter().zip(&start).enumerate() {
            running += i64::from(present > 0);
            let nothing = Column { value: 0, uses: self.moved(present, 0) };
            let some = candidates.iter().enumerate().map(|(at, candidate)| {
                let mut uses = self.uses(job, candidate);
                uses.extend(self.moved(present, at + 1));
                // A move costs downtime; so does a start, alike for all columns of a job that waits.
                let kept = if present == at + 1 { 1.0 } else { 0.93 };
                Column { value: (candidate.value * kept * QUANTA) as i64, uses }
            });
            groups.push(std::iter::once(nothing).chain(some).collect());
        }
        capacity[self.rows.moves as usize] = running / 6;
        let mut program = Program { groups, capacity, start };
        self.set_floors(&mut program);
        program
    }

    /// Non-dominated candidates: on one class the best layout of every size, or all layouts where power counts.
    fn candidates(&mut self, job: usize) -> Vec<Candidate> {
        let (shape, random) = (self.shape, &mut self.random);
        let job = &self.jobs[job];
        let mut found = Vec::new();
        for (class, node) in self.rows.classes.iter().enumerate() {
            for &gpus in &job.sizes {
                for layout in 0..shape.layouts {
                    let nodes = gpus / node.per_node;
                    let fits =
                        gpus <= node.nodes * node.per_node && (shape.racks == 0 || nodes <= node.nodes / shape.racks);
                    if job.affinity[class] == 0.0 || !fits {
                        continue;
                    }
                    let doublings = libm::log2(gpus as f64);
                    let crossing = if nodes > 1 { 0.93 } else { 1.0 };
                    let luck = random.between(0.95, 1.05) * if layout > 0 { random.between(0.5, 1.0) } else { 1.0 };
                    let speed = job.base * job.affinity[class] * node.speed * crossing * luck;
                    let goodput = speed * gpus as f64 * libm::exp(-job.drag * doublings) / (1.0 + 0.01 * gpus as f64);
                    // u(s) = ((s + ε)^p − ε^p) / p with p = −0.5, ε = 1, of goodput relative to what was asked for.
                    let asked = job.base * job.sizes[job.sizes.len() / 2] as f64;
                    let utility = 2.0 * (1.0 - libm::pow(goodput / asked + 1.0, -0.5));
                    found.push(Candidate { class, gpus, layout, value: job.weight * utility });
                }
            }
        }
        found
    }

    fn uses(&self, job: usize, candidate: &Candidate) -> Vec<Use> {
        let (rows, class) = (&self.rows, &self.rows.classes[candidate.class]);
        let job = &self.jobs[job];
        let gpus = candidate.gpus;
        let mut uses: Vec<Use> =
            (0..=NODE_LEVELS).map(|level| Use { row: class.row + level, amount: gpus >> level }).collect();
        let host = class.row + NODE_LEVELS + 1;
        uses.push(Use { row: host, amount: gpus * job.cores });
        // Some layouts offload to host memory, and draw less power.
        let offload = 1 + (candidate.layout % 3) as i64;
        uses.push(Use { row: host + 1, amount: gpus * job.memory * offload });
        if self.shape.racks > 0 {
            let nodes = gpus / class.per_node;
            uses.extend((1..=RACK_LEVELS).map(|level| Use { row: host + 1 + level, amount: nodes >> level }));
        }
        uses.push(Use { row: rows.projects + job.project as u32, amount: gpus });
        uses.push(Use { row: rows.parents + (job.project % PARENTS) as u32, amount: gpus });
        uses.push(Use { row: rows.users + job.user as u32, amount: gpus });
        if job.project < FLOORS {
            uses.push(Use { row: rows.floors + job.project as u32, amount: -gpus });
        }
        let watts = class.watts - class.watts / 8 * (candidate.layout % 4) as i64;
        uses.push(Use { row: rows.power, amount: gpus * watts });
        uses.retain(|part| part.amount != 0);
        uses
    }

    fn moved(&self, present: usize, column: usize) -> Vec<Use> {
        if present == 0 || present == column { Vec::new() } else { vec![Use { row: self.rows.moves, amount: 1 }] }
    }

    fn capacity(&mut self) -> Vec<i64> {
        let mut capacity = vec![0; self.rows.count];
        let mut watts = 0;
        for class in &self.rows.classes {
            let row = class.row as usize;
            for _ in 0..class.nodes {
                let free = class.per_node - i64::from(self.random.chance(0.02));
                (0..=NODE_LEVELS as usize).for_each(|level| capacity[row + level] += free >> level);
            }
            let host = row + NODE_LEVELS as usize + 1;
            capacity[host] = class.nodes * class.per_node * 14;
            capacity[host + 1] = class.nodes * class.per_node * 160;
            watts += class.nodes * class.per_node * class.watts;
            if self.shape.racks > 0 {
                let whole = capacity[row + 3].max(class.nodes * i64::from(class.per_node < 8));
                for level in 1..=RACK_LEVELS as usize {
                    capacity[host + 1 + level] = self.shape.racks * ((whole / self.shape.racks) >> level);
                }
            }
        }
        let all = self.shape.gpus as f64;
        let mut wanted = [0.0; PROJECTS];
        self.jobs.iter().for_each(|job| wanted[job.project] += 1.0 / self.jobs.len() as f64);
        for (project, share) in wanted.into_iter().enumerate() {
            let quota = (all * share * self.random.between(0.7, 1.6)) as i64;
            capacity[self.rows.projects as usize + project] = quota.max(8);
        }
        for parent in 0..PARENTS {
            let share: f64 =
                (0..PROJECTS).filter(|project| project % PARENTS == parent).map(|project| wanted[project]).sum();
            capacity[self.rows.parents as usize + parent] = (all * share * self.random.between(0.8, 1.2)) as i64;
        }
        let users = users_of(self.shape);
        for user in 0..users {
            capacity[self.rows.users as usize + user] = (all / users as f64 * self.random.between(1.0, 2.5)) as i64;
        }
        let cap = if self.shape.layouts > 1 { 0.75 } else { 1.0 };
        capacity[self.rows.power as usize] = (watts as f64 * cap) as i64;
        capacity
    }

    /// What runs at present: chosen greedily by values of a while ago, for the jobs that were there.
    fn assignment(&mut self, candidates: &[Vec<Candidate>], capacity: &[i64]) -> Vec<usize> {
        let mut room = capacity.to_vec();
        let mut start = vec![0; candidates.len()];
        let mut steps: Vec<(f64, usize, usize)> = Vec::new();
        for (job, candidates) in candidates.iter().enumerate() {
            if self.random.chance(0.15) {
                continue;
            }
            for (at, candidate) in candidates.iter().enumerate() {
                let class = &self.rows.classes[candidate.class];
                let rate = candidate.value * self.random.between(0.7, 1.4) / candidate.gpus as f64 / class.speed;
                steps.push((rate, job, at + 1));
            }
        }
        steps.sort_by(|a, b| b.0.total_cmp(&a.0));
        for (_, job, column) in steps {
            let present = start[job];
            let larger = present == 0 || candidates[job][column - 1].gpus > candidates[job][present - 1].gpus;
            let same = present == 0 || candidates[job][column - 1].class == candidates[job][present - 1].class;
            if !larger || !same {
                continue;
            }
            let apply = |room: &mut Vec<i64>, column: usize, times: i64| {
                if column > 0 {
                    for part in self.uses(job, &candidates[job][column - 1]) {
                        room[part.row as usize] -= times * part.amount;
                    }
                }
            };
            apply(&mut room, present, -1);
            apply(&mut room, column, 1);
            let floors = self.rows.floors as usize..self.rows.floors as usize + FLOORS;
            if room.iter().enumerate().any(|(row, &room)| room < 0 && !floors.contains(&row)) {
                apply(&mut room, column, -1);
                apply(&mut room, present, 1);
            } else {
                start[job] = column;
            }
        }
        start
    }

    /// Floors that the present assignment fulfils: some with room, some without.
    fn set_floors(&mut self, program: &mut Program) {
        let used = program.used(&program.start);
        let floors = self.rows.floors as usize..self.rows.floors as usize + FLOORS;
        for (capacity, used) in program.capacity[floors.clone()].iter_mut().zip(&used[floors]) {
            *capacity = (*used as f64 * self.random.between(0.7, 1.0)) as i64;
        }
    }
}
