//! The integer program behind one boundary: `solve(&Problem) -> Solution`. It knows columns and capacities, nothing
//! of jobs or GPUs.
//!
//! Prices per resource (Lagrangian dual, subgradient) bound the optimum and guide a greedy primal; columns whose reduced
//! cost proves them useless are fixed; what is left goes to exact branch and bound when it is small. Work is limited by
//! counts, never by time, and the incumbent wins ties, so the same problem always has the same solution.

use good_lp::{Expression, SolverModel, Variable, constraint, default_solver, variable, variables};

use crate::primal::Primal;
use crate::resource::Use;
use crate::value::Quanta;

/// The branch and bound is exact but slow on large programs; beyond these the dual's gap is reported instead.
const EXACT_JOBS: usize = 60;
const EXACT_COLUMNS: usize = 480;
const DUAL_STEPS: u32 = 160;
/// Dual steps between two primal repairs.
const REPAIR_EVERY: u32 = 16;

/// One way to serve one job.
#[derive(Clone, Debug)]
pub(crate) struct Column {
    pub value: Quanta,
    pub uses: Vec<Use>,
}

/// Choose one column per job, within capacities, for the greatest sum of values.
#[derive(Clone, Debug)]
pub(crate) struct Problem {
    pub jobs: Vec<Vec<Column>>,
    pub capacity: Vec<u32>,
    /// A feasible choice.
    pub incumbent: Vec<usize>,
    pub node_budget: u32,
}

#[derive(Clone, Debug)]
pub(crate) struct Solution {
    pub choice: Vec<usize>,
    pub objective: Quanta,
    /// No choice is worth more.
    pub bound: Quanta,
    /// Objective units per unit of each resource.
    pub prices: Vec<f64>,
}

pub(crate) fn solve(problem: &Problem) -> Solution {
    let columns: Vec<Vec<usize>> = problem.jobs.iter().map(|job| non_dominated(job)).collect();
    let mut best = Primal::new(problem, problem.incumbent.clone());
    best.improve(problem, &columns);
    let incumbent_value = problem.value(&problem.incumbent);
    let dual = dual_ascent(problem, &columns, &mut best);
    let mut bound = Quanta(dual.bound.floor() as i64).max(best.value);
    if best.value < bound {
        let core = fix_by_reduced_cost(problem, &columns, &dual, best.value);
        if let Some((choice, proven)) = branch_and_bound(problem, &core, &best) {
            let exact = Primal::new(problem, choice);
            if exact.value > best.value && exact.fits(problem) {
                best = exact;
            }
            if proven {
                bound = best.value;
            }
        }
    }
    if best.value <= incumbent_value {
        best = Primal::new(problem, problem.incumbent.clone());
    }
    let prices = dual.prices.iter().map(|price| price / 1e6).collect();
    Solution { choice: best.choice, objective: best.value, bound, prices }
}

impl Problem {
    pub fn value(&self, choice: &[usize]) -> Quanta {
        Quanta(self.jobs.iter().zip(choice).map(|(job, &column)| job[column].value.0).sum())
    }
}

/// Columns no other column of the job beats in value at no greater use; of equals the first stays.
fn non_dominated(job: &[Column]) -> Vec<usize> {
    (0..job.len())
        .filter(|&column| {
            !(0..job.len()).any(|other| {
                let (a, b) = (&job[other], &job[column]);
                let no_worse = a.value >= b.value && covers(&b.uses, &a.uses);
                let equal = a.value == b.value && covers(&a.uses, &b.uses);
                other != column && no_worse && (!equal || other < column)
            })
        })
        .collect()
}

/// Whether `outer` uses at least what `inner` does of every resource.
fn covers(outer: &[Use], inner: &[Use]) -> bool {
    inner.iter().all(|need| outer.iter().any(|has| has.resource == need.resource && has.amount >= need.amount))
}

struct Dual {
    /// In quanta per unit of resource.
    prices: Vec<f64>,
    bound: f64,
}

/// The best column per job at `prices`, and the Lagrangian's value.
fn respond(problem: &Problem, columns: &[Vec<usize>], prices: &[f64]) -> (Vec<usize>, f64) {
    let mut value: f64 = prices.iter().zip(&problem.capacity).map(|(price, cap)| price * f64::from(*cap)).sum();
    let choice = columns
        .iter()
        .enumerate()
        .map(|(job, active)| {
            let mut best = (active[0], f64::NEG_INFINITY);
            for &column in active {
                let reduced = reduced_value(&problem.jobs[job][column], prices);
                if reduced > best.1 {
                    best = (column, reduced);
                }
            }
            value += best.1;
            best.0
        })
        .collect();
    (choice, value)
}

fn reduced_value(column: &Column, prices: &[f64]) -> f64 {
    column.value.0 as f64 - column.uses.iter().map(|part| prices[part.resource] * f64::from(part.amount)).sum::<f64>()
}

/// Subgradient ascent with Polyak's step towards the best primal so far.
fn dual_ascent(problem: &Problem, columns: &[Vec<usize>], best: &mut Primal) -> Dual {
    let mut prices = vec![0.0; problem.capacity.len()];
    let mut dual = Dual { prices: prices.clone(), bound: f64::INFINITY };
    let (mut scale, mut since_better) = (1.0, 0);
    for step in 0..DUAL_STEPS {
        let (choice, value) = respond(problem, columns, &prices);
        if value < dual.bound {
            dual = Dual { prices: prices.clone(), bound: value };
            since_better = 0;
        } else {
            since_better += 1;
            if since_better % 8 == 0 {
                scale *= 0.5;
            }
        }
        let mut primal = Primal::new(problem, choice);
        let gradient: Vec<f64> =
            primal.used.iter().zip(&problem.capacity).map(|(used, cap)| *used as f64 - f64::from(*cap)).collect();
        if step % REPAIR_EVERY == 0 && primal.repair(problem, columns) {
            primal.improve(problem, columns);
            if primal.value > best.value {
                *best = primal;
            }
        }
        // A resource that is free and left over stays free; only the others steer.
        let norm: f64 =
            gradient.iter().zip(&prices).filter(|(g, price)| **g > 0.0 || **price > 0.0).map(|(g, _)| g * g).sum();
        let gap = dual.bound - best.value.0 as f64;
        if norm == 0.0 || gap < 1.0 {
            break;
        }
        for (price, g) in prices.iter_mut().zip(&gradient) {
            *price = (*price + scale * gap * g / norm).max(0.0);
        }
    }
    dual
}

/// Columns that could still be part of something better than `known`.
fn fix_by_reduced_cost(problem: &Problem, columns: &[Vec<usize>], dual: &Dual, known: Quanta) -> Vec<Vec<usize>> {
    columns
        .iter()
        .zip(&problem.jobs)
        .map(|(active, job)| {
            let reduced = |column: usize| reduced_value(&job[column], &dual.prices);
            let top = active.iter().map(|&column| reduced(column)).fold(f64::NEG_INFINITY, f64::max);
            let needed = |column: usize| dual.bound - (top - reduced(column)) > known.0 as f64;
            active.iter().copied().filter(|&column| needed(column)).collect()
        })
        .collect()
}

/// Exact, when the core is small. `None`: too large, or the backend gave nothing. The flag says "proven".
fn branch_and_bound(problem: &Problem, core: &[Vec<usize>], best: &Primal) -> Option<(Vec<usize>, bool)> {
    let free = core.iter().filter(|columns| columns.len() > 1).count();
    let count: usize = core.iter().map(Vec::len).sum();
    if core.iter().any(Vec::is_empty) {
        // No better choice exists for that job, so none exists at all.
        return Some((best.choice.clone(), true));
    }
    if free > EXACT_JOBS || count - (core.len() - free) > EXACT_COLUMNS {
        return None;
    }
    let mut names = variables!();
    let mut handles: Vec<(usize, usize, Variable)> = Vec::new();
    for (job, columns) in core.iter().enumerate().filter(|(_, columns)| columns.len() > 1) {
        handles.extend(columns.iter().map(|&column| (job, column, names.add(variable().binary()))));
    }
    let column = |job: usize, column: usize| &problem.jobs[job][column];
    let objective: Expression = handles.iter().map(|&(j, c, x)| column(j, c).value.units() * x).sum();
    let mut model = names.maximise(objective).using(default_solver);
    for (job, _) in core.iter().enumerate().filter(|(_, columns)| columns.len() > 1) {
        let one: Expression = handles.iter().filter(|(j, ..)| *j == job).map(|&(.., x)| x).sum();
        model.add_constraint(constraint!(one == 1));
    }
    for (resource, &capacity) in problem.capacity.iter().enumerate() {
        let amount = |j: usize, c: usize| {
            column(j, c).uses.iter().find(|part| part.resource == resource).map_or(0.0, |part| f64::from(part.amount))
        };
        let taken: f64 = (0..core.len()).filter(|&j| core[j].len() == 1).map(|j| amount(j, core[j][0])).sum();
        let used: Expression =
            handles.iter().filter(|&&(j, c, _)| amount(j, c) > 0.0).map(|&(j, c, x)| amount(j, c) * x).sum();
        model.add_constraint(constraint!(used <= f64::from(capacity) - taken));
    }
    // good_lp has no word for a node budget; its backend has.
    let mut options = microlp::SolveOptions::default();
    options.node_limit = Some(u64::from(problem.node_budget));
    let outcome = match model.as_inner().solve_with(options) {
        Ok(outcome) => outcome,
        // Nothing beats the best known choice when the core alone is infeasible.
        Err(microlp::Error::Infeasible) => return Some((best.choice.clone(), true)),
        Err(_) => return None,
    };
    let proven = outcome.is_optimal();
    let solution = outcome.into_solution().ok()?;
    let mut choice: Vec<usize> = core.iter().map(|columns| columns[0]).collect();
    for ((job, column, _), (_, value)) in handles.iter().zip(solution.iter()) {
        if value > 0.5 {
            choice[*job] = *column;
        }
    }
    Some((choice, proven))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn problem() -> impl Strategy<Value = Problem> {
        let column = (0i64..5_000_000, 0u32..6, 0usize..2);
        let jobs = proptest::collection::vec(proptest::collection::vec(column, 0..5), 1..6);
        (jobs, proptest::collection::vec(0u32..12, 2)).prop_map(|(jobs, capacity)| Problem {
            incumbent: vec![0; jobs.len()],
            jobs: jobs
                .into_iter()
                .map(|columns| {
                    let nothing = Column { value: Quanta(0), uses: Vec::new() };
                    let some = columns.into_iter().map(|(value, amount, resource)| Column {
                        value: Quanta(value),
                        uses: if amount == 0 { Vec::new() } else { vec![Use { resource, amount }] },
                    });
                    std::iter::once(nothing).chain(some).collect()
                })
                .collect(),
            capacity,
            node_budget: 10_000,
        })
    }

    fn best_of_all(problem: &Problem) -> i64 {
        fn search(problem: &Problem, choice: &mut Vec<usize>) -> i64 {
            if choice.len() == problem.jobs.len() {
                let primal = Primal::new(problem, choice.clone());
                return if primal.fits(problem) { primal.value.0 } else { i64::MIN };
            }
            (0..problem.jobs[choice.len()].len())
                .map(|column| {
                    choice.push(column);
                    let value = search(problem, choice);
                    choice.pop();
                    value
                })
                .max()
                .expect("every job has a column")
        }
        search(problem, &mut Vec::new())
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(200))]

        #[test]
        fn a_small_problem_is_solved_to_proven_optimality(problem in problem()) {
            let solution = solve(&problem);
            prop_assert!(Primal::new(&problem, solution.choice.clone()).fits(&problem));
            prop_assert_eq!(solution.objective.0, best_of_all(&problem));
            prop_assert_eq!(solution.bound, solution.objective);
        }
    }

    #[test]
    fn a_large_problem_comes_with_a_small_gap() {
        let jobs = (0..300i64)
            .map(|job| {
                let sizes = [0u32, 1, 2, 4, 8, 16];
                sizes
                    .into_iter()
                    .map(|gpus| Column {
                        value: Quanta(
                            (f64::from(gpus).sqrt() * 1e6) as i64 * (3 + job % 7) + job * i64::from(gpus > 0),
                        ),
                        uses: if gpus == 0 { Vec::new() } else { vec![Use { resource: 0, amount: gpus }] },
                    })
                    .collect()
            })
            .collect();
        let problem = Problem { jobs, capacity: vec![1_000], incumbent: vec![0; 300], node_budget: 1_000 };
        let solution = solve(&problem);
        let gap = (solution.bound.0 - solution.objective.0) as f64 / solution.bound.0 as f64;
        assert!(gap < 5e-3, "gap {gap}");
        assert!(solution.prices[0] > 0.0);
    }
}
