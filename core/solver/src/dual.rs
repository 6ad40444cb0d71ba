//! Prices for rows. At any prices the best column of every group on its own, plus the price of all capacity, bounds
//! what a choice can be worth; ascent looks for the prices where that bound is least. It knows nothing of feasible
//! choices but the value of the best one, which tells it how far to step.

use crate::reduced::{HIGHEST_PRICE, Reduced};

/// Steps without a better bound before the step is shortened.
const PATIENCE: u32 = 8;
/// How much of the former direction the next one keeps.
const MEMORY: f64 = 0.3;

/// Subgradient ascent with Polyak's step (Polyak 1969) along a direction deflected by the former one (Camerini, Fratta
/// and Maffioli 1975).
pub(crate) struct Ascent {
    /// Quanta per share of each row.
    prices: Vec<f64>,
    direction: Vec<f64>,
    length: f64,
    stale: u32,
    /// The column each group takes at `prices`.
    pub response: Vec<u32>,
    pub best_prices: Vec<f64>,
    pub best_bound: f64,
    pub steps: u32,
}

impl Ascent {
    pub fn new(reduced: &Reduced, prices: Vec<f64>) -> Self {
        Self {
            direction: vec![0.0; prices.len()],
            length: 1.0,
            stale: 0,
            response: reduced.start(),
            best_prices: prices.clone(),
            best_bound: f64::INFINITY,
            steps: 0,
            prices,
        }
    }

    /// One step towards `target`, the value of a known choice. `false` where no step leads further.
    pub fn step(&mut self, reduced: &Reduced, target: f64) -> bool {
        self.steps += 1;
        let capacity = |row: usize| reduced.capacity[row] as f64 / reduced.scale[row];
        let mut slack: Vec<f64> = (0..reduced.rows()).map(capacity).collect();
        let value = self.respond(reduced, &mut slack);
        if value < self.best_bound {
            self.best_bound = value;
            self.best_prices.clone_from(&self.prices);
            self.stale = 0;
        } else {
            self.stale += 1;
            if self.stale.is_multiple_of(PATIENCE) {
                self.length *= 0.5;
            }
        }
        let rows = self.direction.iter_mut().zip(&slack).zip(&self.prices);
        let mut norm = 0.0;
        for ((direction, slack), price) in rows {
            *direction = MEMORY * *direction - slack;
            // A row that is free and left over stays free; only the others steer.
            if *direction < 0.0 && *price <= 0.0 {
                *direction = 0.0;
            }
            norm += *direction * *direction;
        }
        if norm <= 0.0 {
            return false;
        }
        let step = self.length * (value - target).max(0.0) / norm;
        for (price, direction) in self.prices.iter_mut().zip(&self.direction) {
            *price = (*price + step * direction).clamp(0.0, HIGHEST_PRICE);
        }
        true
    }

    /// Lets every group take its best column at the prices, takes its shares from `slack`, and returns the
    /// Lagrangian's value.
    fn respond(&mut self, reduced: &Reduced, slack: &mut [f64]) -> f64 {
        let mut value: f64 = self.prices.iter().zip(slack.iter()).map(|(price, slack)| price * slack).sum();
        for (group, response) in self.response.iter_mut().enumerate() {
            let mut best = f64::NEG_INFINITY;
            for column in reduced.group(group) {
                let worth = reduced.reduced_value(column, &self.prices);
                if worth > best {
                    (best, *response) = (worth, column as u32);
                }
            }
            value += best;
            for (row, share) in reduced.shares(*response as usize) {
                slack[row] -= share;
            }
        }
        value
    }
}
