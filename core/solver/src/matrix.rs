//! Small dense systems of equations, solved by elimination with partial pivoting: fresh every time, so no error
//! builds up.

/// A square matrix in factors.
#[derive(Clone, Default)]
pub(crate) struct Factors {
    size: usize,
    /// Row by row; the lower factor without its unit diagonal below, the upper one above.
    cells: Vec<f64>,
    /// Which given row stands in each place.
    order: Vec<usize>,
}

impl Factors {
    /// Factors `cells`, `size` rows of `size`. `false` where the matrix is singular as far as floats can tell.
    pub fn set(&mut self, size: usize, cells: &[f64]) -> bool {
        self.size = size;
        self.cells.clear();
        self.cells.extend_from_slice(cells);
        self.order.clear();
        self.order.extend(0..size);
        for step in 0..size {
            let weight = |row: usize| self.cells[row * size + step].abs();
            let pivot = (step..size).fold(step, |best, row| if weight(row) > weight(best) { row } else { best });
            if weight(pivot) < 1e-9 {
                return false;
            }
            let (above, below) = self.cells.split_at_mut((step + 1) * size);
            let top = &mut above[step * size..];
            if pivot != step {
                self.order.swap(pivot, step);
                top.swap_with_slice(&mut below[(pivot - step - 1) * size..][..size]);
            }
            let (head, tail) = top.split_at(step + 1);
            for row in below.chunks_exact_mut(size) {
                let (left, right) = row.split_at_mut(step + 1);
                if left[step] != 0.0 {
                    left[step] /= head[step];
                    subtract(right, left[step], tail);
                }
            }
        }
        true
    }

    /// x with M·x = `right`.
    pub fn solve(&self, right: &[f64]) -> Vec<f64> {
        let n = self.size;
        let mut x: Vec<f64> = self.order.iter().map(|&row| right[row]).collect();
        for row in 0..n {
            let known: f64 = self.row(row)[..row].iter().zip(&x).map(|(cell, x)| cell * x).sum();
            x[row] -= known;
        }
        for row in (0..n).rev() {
            let cells = self.row(row);
            let known: f64 = cells[row + 1..].iter().zip(&x[row + 1..]).map(|(cell, x)| cell * x).sum();
            x[row] = (x[row] - known) / cells[row];
        }
        x
    }

    /// x with Mᵀ·x = `right`.
    pub fn solve_transposed(&self, right: &[f64]) -> Vec<f64> {
        let n = self.size;
        let mut y = right.to_vec();
        for row in 0..n {
            let cells = self.row(row);
            let (known, unknown) = y.split_at_mut(row + 1);
            known[row] /= cells[row];
            subtract(unknown, known[row], &cells[row + 1..]);
        }
        for row in (0..n).rev() {
            let (unknown, known) = y.split_at_mut(row);
            subtract(unknown, known[0], &self.row(row)[..row]);
        }
        let mut x = vec![0.0; n];
        for (place, &row) in self.order.iter().enumerate() {
            x[row] = y[place];
        }
        x
    }

    fn row(&self, row: usize) -> &[f64] {
        &self.cells[row * self.size..][..self.size]
    }
}

/// `from` less so many times `what`.
fn subtract(from: &mut [f64], times: f64, what: &[f64]) {
    from.iter_mut().zip(what).for_each(|(from, what)| *from -= times * what);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_system_and_its_transpose_are_solved() {
        let mut factors = Factors::default();
        assert!(factors.set(3, &[0.0, 2.0, 1.0, 1.0, 1.0, 0.0, 4.0, 0.0, 3.0]));
        assert_eq!(factors.solve(&[7.0, 3.0, 13.0]), vec![1.0, 2.0, 3.0]);
        assert_eq!(factors.solve_transposed(&[14.0, 4.0, 10.0]), vec![1.0, 2.0, 3.0]);
    }

    #[test]
    fn a_singular_system_is_told() {
        assert!(!Factors::default().set(2, &[1.0, 2.0, 2.0, 4.0]));
    }
}
