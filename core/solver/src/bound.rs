//! The value of the Lagrangian at given prices, in integers: prices are first rounded to a fixed binary grid, and any
//! non-negative prices give a valid bound, so nothing that floats do can make it too small.

use crate::program::LIMIT;
use crate::reduced::Reduced;

/// No choice of the allowed columns is worth more. (Lagrangian relaxation: Fisher 1981, equation 2.)
pub(crate) fn bound(reduced: &Reduced, prices: &[f64], allowed: impl Fn(usize) -> bool) -> i64 {
    let grid = Grid::new(reduced, prices);
    let room: i128 =
        grid.prices.iter().zip(&reduced.capacity).map(|(&price, &cap)| i128::from(price) * i128::from(cap)).sum();
    let groups: i128 = (0..reduced.groups())
        .map(|group| {
            let columns = reduced.group(group).filter(|&column| allowed(column));
            columns.map(|column| grid.reduced_value(reduced, column)).max().unwrap_or(0)
        })
        .sum();
    // An arithmetic shift rounds down, which is safe: the value of a choice is a whole number.
    i64::try_from((room + groups) >> grid.bits).unwrap_or(LIMIT)
}

/// Prices as whole multiples of 2^-bits.
struct Grid {
    prices: Vec<i64>,
    bits: u32,
}

impl Grid {
    fn new(reduced: &Reduced, prices: &[f64]) -> Self {
        let per_unit: Vec<f64> = prices.iter().zip(&reduced.scale).map(|(price, scale)| price / scale).collect();
        let greatest = per_unit.iter().copied().fold(1.0, f64::max);
        // Sums of amounts need 53 bits, and there are as many of them as rows; the sum of all must stay within 127.
        let rows = usize::BITS - reduced.rows().leading_zeros();
        let whole = libm::frexp(greatest).1.max(1) as u32;
        let bits = (70 - rows).min(62).saturating_sub(whole).min(60);
        let grid = |price: &f64| libm::ldexp(*price, bits as i32) as i64;
        Self { prices: per_unit.iter().map(grid).collect(), bits }
    }

    fn reduced_value(&self, reduced: &Reduced, column: usize) -> i128 {
        let cost: i128 =
            reduced.uses(column).map(|(row, amount)| i128::from(self.prices[row]) * i128::from(amount)).sum();
        (i128::from(reduced.value[column]) << self.bits) - cost
    }
}
