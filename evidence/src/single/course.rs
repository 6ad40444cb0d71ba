//! How the gradient noise of a single job goes over its training: by a formula, or as others measured it.
//!
//! Training is counted in noise-free steps: a step of batch B is worth B/(φ + B) of them. Only over these is the time that a batch takes
//! a plain mean over the noise, T(B)·(1 + ⟨φ⟩/B); steps at a reference batch, which measurements come in, are converted.

use std::sync::OnceLock;

/// A course of φ in parts.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Course {
    pub name: &'static str,
    /// Shares of the noise-free steps at which a part ends, ascending to 1, and φ during it in sequences.
    pub parts: &'static [(f64, f64)],
}

/// The mean of φ, and of its square root, over noise-free steps.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Moments {
    pub mean: f64,
    pub mean_root: f64,
}

/// Sequences at the beginning and the end of the exponential course.
const GROWTH: (f64, f64) = (4.0, 1_024.0);
const PARTS: u32 = 256;
/// Measured courses keep their shape and get the mean of the exponential one, in sequences: (1,024 − 4)/ln 256.
pub const MEAN: f64 = 183.944_1;
/// See the head of the file.
const MEASURED: &str = include_str!("../../data/pollux_noise.csv");
/// Models of it, and their reference batches.
const REFERENCE: [(&str, f64); 2] = [("cifar10", 128.0), ("deepspeech2", 20.0)];

/// Courses by name, each as its parts.
type NamedParts = Vec<(String, Vec<(f64, f64)>)>;

/// All courses: the exponential one, and every measured one by model and batch.
#[must_use]
pub fn courses() -> Vec<Course> {
    static READ: OnceLock<NamedParts> = OnceLock::new();
    let all = READ.get_or_init(|| {
        let exponential = ("exponential".to_owned(), exponential());
        std::iter::once(exponential).chain(measured(MEASURED)).collect()
    });
    all.iter().map(|(name, parts)| Course { name, parts }).collect()
}

impl Course {
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        courses().into_iter().find(|course| course.name == name)
    }

    /// Lengths of the parts, and φ during each.
    pub fn weights(&self) -> impl Iterator<Item = (f64, f64)> {
        let begins = std::iter::once(0.0).chain(self.parts.iter().map(|(end, _)| *end));
        self.parts.iter().zip(begins).map(|((end, phi), begin)| (end - begin, *phi))
    }

    #[must_use]
    pub fn moments(&self) -> Moments {
        Moments::of(self.weights())
    }
}

impl Moments {
    /// Of parts by their lengths, which sum to 1.
    pub fn of(parts: impl Iterator<Item = (f64, f64)>) -> Self {
        let add = |sum: Self, (length, phi): (f64, f64)| Self {
            mean: sum.mean + length * phi,
            mean_root: sum.mean_root + length * phi.sqrt(),
        };
        parts.fold(Self { mean: 0.0, mean_root: 0.0 }, add)
    }
}

fn exponential() -> Vec<(f64, f64)> {
    let (first, last) = GROWTH;
    let at = |share: f64| first * (last / first).powf(share);
    (0..PARTS)
        .map(|part| (f64::from(part + 1) / f64::from(PARTS), at((f64::from(part) + 0.5) / f64::from(PARTS))))
        .collect()
}

/// The courses of a file of measurements.
fn measured(text: &str) -> NamedParts {
    let mut courses = NamedParts::new();
    let mut before = 0.0;
    for line in text.lines().filter(|line| !line.starts_with('#')).skip(1) {
        let Some((model, batch, [progress, squared_norm, variance])) = row(line) else { continue };
        let Some((_, reference)) = REFERENCE.iter().find(|(known, _)| *known == model) else { continue };
        let name = format!("{model}-{batch}");
        if courses.last().is_none_or(|(last, _)| *last != name) {
            courses.push((name, Vec::new()));
            before = 0.0;
        }
        let phi = reference * variance / squared_norm;
        // A step at the reference batch is worth B₀/(φ + B₀) noise-free ones.
        let length = (progress - before) * reference / (phi + reference);
        before = progress;
        courses.last_mut().into_iter().for_each(|(_, parts)| parts.push((length, phi)));
    }
    courses.into_iter().map(|(name, parts)| (name, scaled(&parts))).collect()
}

fn row(line: &str) -> Option<(&str, &str, [f64; 3])> {
    let fields: Vec<&str> = line.split(',').collect();
    let [model, batch, progress, squared_norm, variance] = fields.as_slice() else { return None };
    let number = |text: &str| text.parse::<f64>().ok();
    Some((model, batch, [number(progress)?, number(squared_norm)?, number(variance)?]))
}

/// Ends of parts as shares of the whole, and φ with the common mean.
fn scaled(parts: &[(f64, f64)]) -> Vec<(f64, f64)> {
    let whole: f64 = parts.iter().map(|(length, _)| length).sum();
    let mean = parts.iter().map(|(length, phi)| length * phi).sum::<f64>() / whole;
    let mut end = 0.0;
    let mut scaled = Vec::with_capacity(parts.len());
    for (length, phi) in parts {
        end += length / whole;
        scaled.push((end, phi * MEAN / mean));
    }
    scaled
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn every_course_has_the_same_mean_and_ends_with_its_run() {
        let all = courses();
        assert_eq!(all.len(), 13);
        for course in all {
            let Moments { mean, mean_root } = course.moments();
            assert!((mean / MEAN - 1.0).abs() < 1e-3, "{}: {mean}", course.name);
            assert!(mean_root < mean.sqrt(), "{}", course.name);
            assert!((course.parts.last().unwrap().0 - 1.0).abs() < 1e-9 && course.parts.len() > 60, "{}", course.name);
            assert!(course.weights().all(|(length, phi)| length > 0.0 && phi > 0.0), "{}", course.name);
        }
    }

    #[test]
    fn a_measured_step_counts_as_what_its_noise_leaves_of_it() {
        let text = "# of a test\nmodel,batch,progress,grad_sqr,grad_var\ncifar10,128,10,1,1\ncifar10,128,30,1,3\n";
        let [(name, parts)] = &measured(text)[..] else { panic!("one course") };
        // 10 steps worth half a noise-free step each, then 20 worth a quarter.
        assert_eq!((name.as_str(), parts.len()), ("cifar10-128", 2));
        assert!((parts[0].0 - 0.5).abs() < 1e-12 && (parts[1].1 / parts[0].1 - 3.0).abs() < 1e-12, "{parts:?}");
    }
}
