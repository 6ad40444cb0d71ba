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
            if pivot != step {
                self.order.swap(pivot, step);
                (0..size).for_each(|column| self.cells.swap(pivot * size + column, step * size + column));
            }
            let (above, below) = self.cells.split_at_mut((step + 1) * size);
            let top = &above[step * size..];
            for row in below.chunks_exact_mut(size) {
                if row[step] != 0.0 {
                    let factor = row[step] / top[step];
                    row[step] = factor;
                    for column in step + 1..size {
                        row[column] -= factor * top[column];
                    }
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
            let known: f64 = (0..row).map(|column| self.cells[row * n + column] * x[column]).sum();
            x[row] -= known;
        }
        for row in (0..n).rev() {
            let known: f64 = (row + 1..n).map(|column| self.cells[row * n + column] * x[column]).sum();
            x[row] = (x[row] - known) / self.cells[row * n + row];
        }
        x
    }

    /// x with Mᵀ·x = `right`.
    pub fn solve_transposed(&self, right: &[f64]) -> Vec<f64> {
        let n = self.size;
        let mut y = right.to_vec();
        for row in 0..n {
            let known: f64 = (0..row).map(|column| self.cells[column * n + row] * y[column]).sum();
            y[row] = (y[row] - known) / self.cells[row * n + row];
        }
        for row in (0..n).rev() {
            let known: f64 = (row + 1..n).map(|column| self.cells[column * n + row] * y[column]).sum();
            y[row] -= known;
        }
        let mut x = vec![0.0; n];
        for (place, &row) in self.order.iter().enumerate() {
            x[row] = y[place];
        }
        x
    }
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
