//! Rows that every choice keeps but that the prices' undecided mixture breaks. A row is written relative to the column
//! that each group leans to, so that its right side is what is left over, and then rounded (mixed-integer rounding:
//! Nemhauser and Wolsey 1990; the choice of divisor and of what to write it relative to after Marchand and Wolsey
//! 2001). All in integers, so that what is cut off is never a choice.

use crate::choice::Choice;
use crate::dual::Dual;
use crate::program::LIMIT;
use crate::reduced::Reduced;

/// Cuts that are broken by less, over their length, are not worth a row.
const LEAST_DEPTH: f64 = 1e-4;

/// A row in the terms of the reduced program's columns.
#[derive(Debug)]
pub(crate) struct Cut {
    pub uses: Vec<(u32, i64)>,
    pub capacity: i64,
}

/// The deepest cut of every balanced row.
pub(crate) fn cuts(reduced: &Reduced, dual: &mut Dual) -> Vec<Cut> {
    let mixture = Mixture::new(reduced, dual);
    let rows = dual.balanced_rows().to_vec();
    let mut by_row: Vec<Vec<(u32, i64)>> = vec![Vec::new(); reduced.rows()];
    for column in 0..reduced.columns() {
        for (row, amount) in reduced.uses(column) {
            if rows.contains(&row) {
                by_row[row].push((column as u32, amount));
            }
        }
    }
    let cut = |row: &usize| mixture.deepest(reduced, &by_row[*row], reduced.capacity[*row]);
    let mut found: Vec<Cut> = rows.iter().filter_map(cut).collect();
    found.extend(dual.multipliers().iter().filter_map(|multipliers| combined(reduced, &dual.keys, multipliers)));
    found
}

/// Multipliers become whole numbers of this many parts.
const PARTS: i64 = 1 << 22;

/// The rounding of a sum of rows, each times its multiplier, relative to the keys (Gomory 1960, as mixed-integer
/// rounding). What a row leaves over is a whole number too, and is rounded like a column before it is written out.
fn combined(reduced: &Reduced, keys: &Choice, multipliers: &[(usize, f64)]) -> Option<Cut> {
    let mut times = vec![0i64; reduced.rows()];
    let mut room = 0i128;
    for &(row, multiplier) in multipliers {
        let parts = libm::round(multiplier / reduced.scale[row] * PARTS as f64);
        if parts.abs() > LIMIT as f64 {
            return None;
        }
        times[row] = parts as i64;
        room += i128::from(times[row]) * i128::from(keys.slack[row]);
    }
    let rest = room.rem_euclid(i128::from(PARTS));
    if rest < i128::from(PARTS / 256) || rest > i128::from(PARTS - PARTS / 256) {
        return None;
    }
    let parts = i128::from(PARTS);
    let of = |amount: i128| (parts - rest) * amount.div_euclid(parts) + (amount.rem_euclid(parts) - rest).max(0);
    // Σ of(sum of column) x + Σ of(times of row) slack ≤ of(room), and slack = its slack at the keys − Σ amount x.
    let left = times.iter().map(|&times| i64::try_from(of(i128::from(times))).ok()).collect::<Option<Vec<i64>>>()?;
    let spent: i128 = left.iter().zip(&keys.slack).map(|(&left, &slack)| i128::from(left) * i128::from(slack)).sum();
    let capacity = (parts - rest) * room.div_euclid(parts) - spent;
    let sums = |column: usize| {
        reduced.uses(column).fold((0i128, 0i128), |sums, (row, amount)| {
            let by = |factor: i64| i128::from(factor) * i128::from(amount);
            (sums.0 + by(times[row]), sums.1 + by(left[row]))
        })
    };
    let mut uses = Vec::new();
    let mut total = capacity.unsigned_abs();
    for group in 0..reduced.groups() {
        let own = sums(keys.columns[group] as usize);
        let mut most = 0;
        for column in reduced.group(group) {
            let sum = sums(column);
            let amount = of(sum.0 - own.0) - (sum.1 - own.1);
            most = most.max(amount.unsigned_abs());
            if amount != 0 {
                uses.push((column as u32, i64::try_from(amount).ok()?));
            }
        }
        total += most;
    }
    (total < LIMIT as u128).then_some(Cut { uses, capacity: capacity as i64 })
}

/// What prices leave undecided.
struct Mixture {
    /// The column with the greatest share of each group.
    leans: Vec<u32>,
    /// All other columns with a share.
    others: Vec<(u32, f64)>,
    group_of: Vec<u32>,
}

impl Mixture {
    fn new(reduced: &Reduced, dual: &mut Dual) -> Self {
        let mut leans = dual.keys.columns.clone();
        let mut others = Vec::new();
        for (group, columns) in dual.undecided() {
            let most = columns.iter().fold((0, 0.0), |most, one| if one.1 > most.1 { *one } else { most });
            leans[group] = most.0 as u32;
            others.extend(columns.iter().filter(|one| one.0 != most.0 && one.1 > 0.0).map(|one| (one.0 as u32, one.1)));
        }
        let mut group_of = vec![0; reduced.columns()];
        for group in 0..reduced.groups() {
            group_of[reduced.group(group)].fill(group as u32);
        }
        Self { leans, others, group_of }
    }

    /// The deepest rounding of one row.
    fn deepest(&self, reduced: &Reduced, row: &[(u32, i64)], capacity: i64) -> Option<Cut> {
        let relative = self.relative(reduced, row);
        let leaning: i64 =
            row.iter().filter(|(column, _)| self.leans[self.group(*column)] == *column).map(|part| part.1).sum();
        let room = capacity - leaning;
        let amount = |column: u32| relative.binary_search_by_key(&column, |part| part.0).map_or(0, |at| relative[at].1);
        let mixed: Vec<(i64, f64)> =
            self.others.iter().map(|&(column, share)| (amount(column), share)).filter(|one| one.0 != 0).collect();
        let mut divisors: Vec<i64> = mixed.iter().map(|one| one.0.abs()).filter(|divisor| *divisor > 1).collect();
        divisors.sort_unstable();
        divisors.dedup();
        let roundings = divisors.into_iter().filter_map(|divisor| Rounding::new(divisor, room));
        let depth = |rounding: &Rounding| {
            let used: f64 = mixed.iter().map(|(amount, share)| rounding.of(*amount) as f64 * share).sum();
            let broken = used - rounding.capacity as f64;
            if broken <= 0.0 {
                return 0.0;
            }
            let square = |part: &(u32, i64)| rounding.of(part.1) as f64 * rounding.of(part.1) as f64;
            broken / libm::sqrt(relative.iter().map(square).sum::<f64>().max(1.0))
        };
        let deepest = roundings.map(|rounding| (depth(&rounding), rounding)).fold(
            (0.0, None),
            |best: (f64, Option<Rounding>), one| {
                if one.0 > best.0 { (one.0, Some(one.1)) } else { best }
            },
        );
        let (depth, Some(rounding)) = deepest else { return None };
        let uses: Vec<(u32, i64)> =
            relative.iter().map(|&(column, amount)| (column, rounding.of(amount))).filter(|part| part.1 != 0).collect();
        let sum: u128 = uses.iter().map(|part| u128::from(part.1.unsigned_abs())).sum();
        (depth > LEAST_DEPTH && sum < LIMIT as u128).then_some(Cut { uses, capacity: rounding.capacity })
    }

    fn group(&self, column: u32) -> usize {
        self.group_of[column as usize] as usize
    }

    /// What each column of the row's groups uses more than the one its group leans to.
    fn relative(&self, reduced: &Reduced, row: &[(u32, i64)]) -> Vec<(u32, i64)> {
        let mut relative = Vec::with_capacity(row.len());
        for part in row.chunk_by(|a, b| self.group(a.0) == self.group(b.0)) {
            let group = self.group(part[0].0);
            let amount = |column: u32| part.iter().find(|one| one.0 == column).map_or(0, |one| one.1);
            let own = amount(self.leans[group]);
            let columns = reduced.group(group).map(|column| (column as u32, amount(column as u32) - own));
            relative.extend(columns.filter(|one| one.1 != 0));
        }
        relative
    }
}

/// Rounding by one divisor, times what makes it whole.
struct Rounding {
    divisor: i64,
    /// What is left of the room after division.
    rest: i64,
    capacity: i64,
}

impl Rounding {
    fn new(divisor: i64, room: i64) -> Option<Self> {
        let rest = room.rem_euclid(divisor);
        // Without a rest rounding changes nothing.
        (rest > 0).then(|| Self { divisor, rest, capacity: (divisor - rest) * room.div_euclid(divisor) })
    }

    fn of(&self, amount: i64) -> i64 {
        (self.divisor - self.rest) * amount.div_euclid(self.divisor)
            + (amount.rem_euclid(self.divisor) - self.rest).max(0)
    }
}
