//! A choice of columns under repair: what does not fit is taken back, what fits is improved. It never looks for
//! anything better than the next step.

use crate::solver::Problem;
use crate::value::Quanta;

/// A choice with its use of each resource.
#[derive(Clone, Debug)]
pub(crate) struct Primal {
    pub choice: Vec<usize>,
    pub used: Vec<i64>,
    pub value: Quanta,
}

impl Primal {
    pub fn new(problem: &Problem, choice: Vec<usize>) -> Self {
        let mut used = vec![0; problem.capacity.len()];
        for (job, &column) in problem.jobs.iter().zip(&choice) {
            for part in &job[column].uses {
                used[part.resource] += i64::from(part.amount);
            }
        }
        let value = problem.value(&choice);
        Self { choice, used, value }
    }

    pub fn fits(&self, problem: &Problem) -> bool {
        self.excess(problem) == 0
    }

    fn excess(&self, problem: &Problem) -> i64 {
        self.used.iter().zip(&problem.capacity).map(|(used, cap)| (used - i64::from(*cap)).max(0)).sum()
    }

    /// Excess after giving `job` another column.
    fn excess_with(&self, problem: &Problem, job: usize, column: usize) -> i64 {
        let mut excess = self.excess(problem);
        let columns = &problem.jobs[job];
        let mut delta: Vec<(usize, i64)> = Vec::new();
        let parts = columns[column].uses.iter().map(|part| (part.resource, i64::from(part.amount)));
        let lost = columns[self.choice[job]].uses.iter().map(|part| (part.resource, -i64::from(part.amount)));
        for (resource, amount) in parts.chain(lost) {
            match delta.iter_mut().find(|(at, _)| *at == resource) {
                Some((_, sum)) => *sum += amount,
                None => delta.push((resource, amount)),
            }
        }
        for (resource, amount) in delta {
            let over = |used: i64| (used - i64::from(problem.capacity[resource])).max(0);
            excess += over(self.used[resource] + amount) - over(self.used[resource]);
        }
        excess
    }

    fn set(&mut self, problem: &Problem, job: usize, column: usize) {
        for part in &problem.jobs[job][self.choice[job]].uses {
            self.used[part.resource] -= i64::from(part.amount);
        }
        for part in &problem.jobs[job][column].uses {
            self.used[part.resource] += i64::from(part.amount);
        }
        self.value.0 += problem.jobs[job][column].value.0 - problem.jobs[job][self.choice[job]].value.0;
        self.choice[job] = column;
    }

    /// Takes back what does not fit, cheapest loss per unit of excess first. `false` where that leads nowhere.
    pub fn repair(&mut self, problem: &Problem, columns: &[Vec<usize>]) -> bool {
        loop {
            let excess = self.excess(problem);
            if excess == 0 {
                return true;
            }
            let mut best: Option<(f64, usize, usize)> = None;
            for (job, active) in columns.iter().enumerate() {
                for &column in active {
                    let relief = excess - self.excess_with(problem, job, column);
                    if relief > 0 {
                        let loss = problem.jobs[job][self.choice[job]].value.0 - problem.jobs[job][column].value.0;
                        let rate = loss as f64 / relief as f64;
                        if best.is_none_or(|(least, ..)| rate < least) {
                            best = Some((rate, job, column));
                        }
                    }
                }
            }
            let Some((_, job, column)) = best else { return false };
            self.set(problem, job, column);
        }
    }

    /// Gives single jobs better columns while some fit.
    pub fn improve(&mut self, problem: &Problem, columns: &[Vec<usize>]) {
        let mut changed = true;
        while changed {
            changed = false;
            for (job, active) in columns.iter().enumerate() {
                for &column in active {
                    let better = problem.jobs[job][column].value > problem.jobs[job][self.choice[job]].value;
                    if better && self.excess_with(problem, job, column) == 0 {
                        self.set(problem, job, column);
                        changed = true;
                    }
                }
            }
        }
    }
}
