//! Who could give up GPUs at least loss: one sorted pass per class, so that every waiting job can ask.

use headway_types::GpuCount;

use crate::candidate::Options;
use crate::decide::Decision;
use crate::guarantee::Guarantees;
use crate::round::Round;

/// What a job's next smaller choices would free in its class, and lose.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Offer {
    freed: u32,
    loss: i64,
    job: usize,
}

/// Per class, ascending by what is freed; each is the cheapest of all that free as much or more.
pub(super) struct Givers(Vec<Vec<Offer>>);

impl Givers {
    pub fn new(round: &Round<'_>, options: &[Options<'_>], owed: &Guarantees, decision: &Decision) -> Self {
        let mut classes: Vec<Vec<Offer>> = vec![Vec::new(); round.cluster.classes.len()];
        for (job, of) in options.iter().enumerate() {
            let chosen = &of.candidates[decision.choice[job]];
            let class = class_of(round, of, decision.choice[job]);
            let Some(class) = class.filter(|class| !round.cluster.is_mix(*class)) else { continue };
            for (at, candidate) in of.candidates.iter().enumerate() {
                let stays_in_class = candidate.gpus.0 == 0 || candidate.shape.is_some_and(|shape| shape.class == class);
                if stays_in_class && candidate.gpus < chosen.gpus && owed.allow(options, job, at) {
                    let freed = chosen.gpus.0 - candidate.gpus.0;
                    classes[class].push(Offer { freed, loss: chosen.value.0 - candidate.value.0, job });
                }
            }
        }
        Self(classes.into_iter().map(cheapest).collect())
    }

    /// The job that could give so many GPUs of a class at least loss, and that loss.
    pub fn cheapest(&self, class: usize, gpus: GpuCount) -> Option<(i64, usize)> {
        let offers = &self.0[class];
        let first = offers.partition_point(|offer| offer.freed < gpus.0);
        offers.get(first).map(|offer| (offer.loss, offer.job))
    }
}

/// The class in which a candidate's GPUs are.
pub(super) fn class_of(round: &Round<'_>, of: &Options<'_>, candidate: usize) -> Option<usize> {
    let candidate = &of.candidates[candidate];
    let held = of.job.current.as_ref().filter(|_| candidate.stays);
    candidate.shape.map(|shape| shape.class).or_else(|| round.cluster.class_of_placement(&held?.placement))
}

fn cheapest(mut offers: Vec<Offer>) -> Vec<Offer> {
    offers.sort_unstable();
    let mut kept: Vec<Offer> = Vec::new();
    for offer in offers.into_iter().rev() {
        match kept.last_mut() {
            Some(last) if offer.loss < last.loss && offer.freed == last.freed => *last = offer,
            Some(last) if offer.loss >= last.loss => {}
            _ => kept.push(offer),
        }
    }
    kept.reverse();
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cheapest_of_all_that_free_enough_is_kept() {
        let offer = |freed, loss, job| Offer { freed, loss, job };
        let kept = cheapest(vec![offer(1, 5, 1), offer(2, 9, 1), offer(2, 3, 2), offer(4, 8, 3), offer(4, 7, 4)]);
        assert_eq!(kept, [offer(2, 3, 2), offer(4, 7, 4)]);
    }
}
