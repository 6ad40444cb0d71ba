//! Whom the jobs of a submission name. Asked by the engine when it admits them, and by shells that tell beforehand what is wrong.

use std::collections::BTreeSet;

use headway_types::spec::After;
use headway_types::{ArrayId, JobId, JobSpec, Timestamp};

use super::Other;
use crate::event::Known;
use crate::record::{Awaited, DependencyStanding};

/// Whom a dependency means.
#[derive(Clone, Debug, PartialEq)]
pub enum Referent {
    /// A job or an array of the same submission, by its place.
    Member(usize),
    Other(Other),
}

/// A dependency as it is at the submission.
#[derive(Clone, Debug, PartialEq)]
pub struct Resolved {
    pub referent: Referent,
    pub standing: DependencyStanding,
}

/// Why a submission is refused for its dependencies. `job` and `after` are places.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unresolved {
    #[error("{name} waits for {text}, and there is no such job of yours in project {project}")]
    Unknown { job: usize, after: usize, name: String, text: String, project: String },
    #[error("{name} waits for {text}, and {count} jobs of this submission are called so")]
    Ambiguous { job: usize, after: usize, name: String, text: String, count: usize },
    #[error("{name} waits for {text}, which {state} already: that can never be met")]
    Never { job: usize, after: usize, name: String, text: String, state: &'static str },
    #[error("the jobs wait for each other in a circle: {circle}")]
    Circle { job: usize, circle: String },
}

impl Unresolved {
    /// The job and the dependency that it is about, by their places.
    #[must_use]
    pub fn place(&self) -> (usize, Option<usize>) {
        match self {
            Self::Unknown { job, after, .. } | Self::Ambiguous { job, after, .. } | Self::Never { job, after, .. } => {
                (*job, Some(*after))
            }
            Self::Circle { job, .. } => (*job, None),
        }
    }
}

/// The dependencies of each job, in the order of their specifications. `find` knows rows at their newest.
///
/// # Errors
/// The first that names nobody or several, can never be met, or closes a circle.
pub fn resolve(
    specs: &[JobSpec],
    known: &Known,
    find: impl Fn(Awaited) -> Option<Other>,
    now: Timestamp,
) -> Result<Vec<Vec<Resolved>>, Unresolved> {
    let mut resolved = Vec::with_capacity(specs.len());
    for (job, spec) in specs.iter().enumerate() {
        let mut of_job = Vec::with_capacity(spec.after.len());
        for (after, one) in spec.after.iter().enumerate() {
            let place = (job, after);
            let referent = referent(specs, place, one, known, &find)?;
            let standing = match &referent {
                Referent::Member(_) => DependencyStanding::Open,
                Referent::Other(other) => other.judge(one.on, now),
            };
            if let (DependencyStanding::Never { .. }, Referent::Other(other)) = (standing, &referent) {
                let (name, text, state) = (spec.name.clone(), one.job.clone(), other.outcome());
                return Err(Unresolved::Never { job, after, name, text, state });
            }
            of_job.push(Resolved { referent, standing });
        }
        resolved.push(of_job);
    }
    match circle(&members(&resolved)) {
        None => Ok(resolved),
        Some(around) => {
            let name = |place: &usize| specs[*place].name.as_str();
            let after = around.iter().cycle().skip(1);
            let waits: Vec<String> =
                around.iter().zip(after).map(|(job, next)| format!("{} waits for {}", name(job), name(next))).collect();
            Err(Unresolved::Circle { job: around[0], circle: waits.join(", ") })
        }
    }
}

fn referent(
    specs: &[JobSpec],
    (job, after): (usize, usize),
    one: &After,
    known: &Known,
    find: impl Fn(Awaited) -> Option<Other>,
) -> Result<Referent, Unresolved> {
    let (spec, text) = (&specs[job], one.job.clone());
    let called =
        |(place, other): &(usize, &JobSpec)| *place != job && other.name == text && other.project == spec.project;
    let members: Vec<usize> = specs.iter().enumerate().filter(called).map(|(place, _)| place).collect();
    let name = spec.name.clone();
    match members.as_slice() {
        [only] => return Ok(Referent::Member(*only)),
        [] => {}
        several => return Err(Unresolved::Ambiguous { job, after, name, text, count: several.len() }),
    }
    let named = || known.names.get(&(spec.project.clone(), text.clone())).copied();
    let by_id = text.parse::<JobId>().ok();
    let by_id = by_id.and_then(|id| find(Awaited::Job(id)).or_else(|| find(Awaited::Array(ArrayId(id.0)))));
    by_id.or_else(|| named().and_then(&find)).map(Referent::Other).ok_or_else(|| Unresolved::Unknown {
        job,
        after,
        name,
        text,
        project: spec.project.clone(),
    })
}

/// By place, the members that each waits for.
fn members(resolved: &[Vec<Resolved>]) -> Vec<Vec<usize>> {
    let member = |one: &Resolved| match one.referent {
        Referent::Member(place) => Some(place),
        Referent::Other(_) => None,
    };
    resolved.iter().map(|of_job| of_job.iter().filter_map(member).collect()).collect()
}

/// Members that wait for each other, each for the next and the last for the first.
fn circle(waits: &[Vec<usize>]) -> Option<Vec<usize>> {
    // Whoever waits for nobody who is left is taken away, until nobody is.
    let mut left: BTreeSet<usize> = (0..waits.len()).collect();
    loop {
        let free: Vec<usize> =
            left.iter().copied().filter(|job| waits[*job].iter().all(|next| !left.contains(next))).collect();
        if free.is_empty() {
            break;
        }
        left.retain(|job| !free.contains(job));
    }
    let mut path = vec![*left.first()?];
    loop {
        let next = waits[*path.last()?].iter().copied().find(|next| left.contains(next))?;
        if let Some(at) = path.iter().position(|job| *job == next) {
            return Some(path.split_off(at));
        }
        path.push(next);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_circle_is_named_without_the_way_to_it() {
        assert_eq!(circle(&[vec![1], vec![2], vec![3], vec![1]]), Some(vec![1, 2, 3]));
        assert_eq!(circle(&[vec![1], vec![2], vec![]]), None);
        assert_eq!(circle(&[]), None);
    }

    proptest! {
        #[test]
        fn who_waits_only_for_earlier_ones_is_in_no_circle(draws in proptest::collection::vec(any::<[u8; 3]>(), 0..40)) {
            let waits: Vec<Vec<usize>> = draws
                .iter()
                .enumerate()
                .map(|(job, drawn)| drawn.iter().filter(|_| job > 0).map(|one| usize::from(*one) % job.max(1)).collect())
                .collect();
            prop_assert_eq!(circle(&waits), None);
        }

        #[test]
        fn what_is_called_a_circle_is_one(draws in proptest::collection::vec(any::<[u8; 2]>(), 1..40)) {
            let many = draws.len();
            let waits: Vec<Vec<usize>> =
                draws.iter().map(|drawn| drawn.iter().map(|one| usize::from(*one) % many).collect()).collect();
            let around = circle(&waits).expect("everybody waits for somebody");
            let next = around.iter().cycle().skip(1);
            prop_assert!(around.iter().zip(next).all(|(job, next)| waits[*job].contains(next)));
        }
    }
}
