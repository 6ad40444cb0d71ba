//! Searches that a round will ask for, in parts that depend on nothing of each other, so that a shell may have them made side by side and
//! before the round. What is not made ahead is made in the round: the parts change when it is decided, never what.

use std::collections::BTreeMap;
use std::sync::Arc;

use headway_goodput::JobModel;
use headway_types::{Configuration, GpuCount, JobId, Layout, NodeClass, NodeCount};

use crate::candidate;
use crate::cluster::Cluster;
use crate::curves::{CurveCache, Curves};
use crate::input::{PlanInput, PlanJob};
use crate::project::Tree;
use crate::round::Round;
use crate::sound::Sound;

/// What one training's searches lack. Jobs of equal trainings that nothing is learnt of are in one part.
#[derive(Debug)]
pub struct Part {
    at: usize,
    curves: Curves,
    wants: Vec<Want>,
    /// Whose curves they are.
    pub jobs: Vec<JobId>,
}

#[derive(Debug)]
struct Want {
    model: Arc<JobModel>,
    class: NodeClass,
    gpus: GpuCount,
    nodes: NodeCount,
    only: Only,
}

/// Of what the best is wanted.
#[derive(Clone, Copy, Debug)]
enum Only {
    Anything,
    Of(Layout),
    WithinReach(Configuration),
}

impl Want {
    fn is_known(&self, curves: &Curves) -> bool {
        match &self.only {
            Only::Anything => curves.know(&self.class, self.gpus, self.nodes, None),
            Only::Of(layout) => curves.know(&self.class, self.gpus, self.nodes, Some(*layout)),
            Only::WithinReach(present) => curves.know_within_reach(&self.class, self.gpus, self.nodes, present),
        }
    }

    fn make(&self, curves: &mut Curves) {
        let (model, class, gpus, nodes) = (&self.model, &self.class, self.gpus, self.nodes);
        match &self.only {
            Only::Anything => drop(curves.best(model, class, gpus, nodes, None)),
            Only::Of(layout) => drop(curves.best(model, class, gpus, nodes, Some(*layout))),
            Only::WithinReach(present) => drop(curves.within_reach(model, class, (gpus, nodes), present)),
        }
    }
}

impl Part {
    /// Makes what is lacking.
    pub fn make(&mut self) {
        for want in self.wants.drain(..) {
            want.make(&mut self.curves);
        }
    }

    /// Searches that are lacking.
    #[must_use]
    pub fn lacks(&self) -> usize {
        self.wants.len()
    }
}

impl CurveCache {
    /// What the round lacks. Until the parts are [taken back](Self::take_back) the cache is without them.
    pub fn ahead(&mut self, input: &PlanInput) -> Vec<Part> {
        // Whatever is wrong with the round, the round says it.
        let Ok(sound) = Sound::of(input) else { return Vec::new() };
        self.begin(&sound.input);
        let (cluster, tree) = (Cluster::new(&sound.input), Tree::new(&sound.input.projects));
        let round = Round::new(&sound.input, &cluster, &tree);
        let mut parts: BTreeMap<usize, (Vec<Want>, Vec<JobId>)> = BTreeMap::new();
        for job in &sound.input.jobs {
            let Some(model) = job.work.model() else { continue };
            let model = candidate::effective_model(&round, job, model);
            let wants = wants(&round, job, &model);
            let (at, curves) = self.curves_of(job.job, &model);
            let lacking: Vec<Want> = wants.into_iter().filter(|want| !want.is_known(curves)).collect();
            if !lacking.is_empty() {
                let part = parts.entry(at).or_default();
                // Of equal trainings the first says it all, unless their sizes differ.
                part.0.extend(lacking);
                part.1.push(job.job);
            }
        }
        let part = |(at, (wants, jobs))| Part { at, curves: self.lend(at), wants, jobs };
        parts.into_iter().map(part).collect()
    }

    /// Parts, whether made or not.
    pub fn take_back(&mut self, parts: impl IntoIterator<Item = Part>) {
        parts.into_iter().for_each(|part| self.put_back(part.at, part.curves));
    }
}

/// Everything that the round will ask of a job's curves.
fn wants(round: &Round<'_>, job: &PlanJob, model: &Arc<JobModel>) -> Vec<Want> {
    let bound = candidate::bound_layout(job);
    let suits = |shape: &crate::cluster::Shape| round.cluster.could_hold(job, &job.needs, *shape);
    let shapes: Vec<_> = candidate::open_shapes(round, job).into_iter().filter(suits).collect();
    let want = |shape: &crate::cluster::Shape, only| Want {
        model: Arc::clone(model),
        class: round.cluster.valued_by(*shape, model).into_owned(),
        gpus: shape.gpus,
        nodes: shape.nodes,
        only,
    };
    let free = shapes.iter().map(|shape| want(shape, Only::Anything));
    let of_bound = |layout: Layout| shapes.iter().filter(move |shape| layout.gpus() == shape.gpus);
    let kept = bound.into_iter().flat_map(|layout| of_bound(layout).map(move |shape| (shape, layout)));
    let in_place = candidate::in_place(round, job, model).into_iter().flat_map(|at| {
        [Only::Of(at.present.layout), Only::WithinReach(at.present)].map(|only| Want {
            model: Arc::clone(model),
            class: at.class.clone().into_owned(),
            gpus: at.gpus,
            nodes: at.nodes,
            only,
        })
    });
    free.chain(kept.map(|(shape, layout)| want(shape, Only::Of(layout)))).chain(in_place).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::builder::{after, round};
    use crate::laws::rounds::{AnyRound, any_round};
    use crate::plan;
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(if cfg!(debug_assertions) { 32 } else { 256 }))]

        #[test]
        fn what_is_made_ahead_in_any_order_or_not_at_all_decides_nothing(
            AnyRound(input) in any_round(8), made in prop::collection::vec(any::<bool>(), 8), backwards: bool,
        ) {
            let mut ahead = CurveCache::new();
            let mut input = input;
            for _ in 0..2 {
                let mut parts = ahead.ahead(&input);
                if backwards {
                    parts.reverse();
                }
                let chosen = parts.iter_mut().zip(made.iter().cycle()).filter(|(_, made)| **made);
                chosen.for_each(|(part, _)| part.make());
                ahead.take_back(parts);
                let with = plan(&input, &mut ahead);
                let without = plan(&input, &mut CurveCache::new());
                prop_assert_eq!(&with, &without);
                let Ok(plan) = with else { return Ok(()) };
                input = after(&input, &plan);
            }
        }
    }

    #[test]
    fn once_everything_is_made_nothing_is_lacking() {
        let input = round(
            vec![crate::builder::node(1, "H100-80G", 8)],
            vec![crate::builder::job(1, 1, 8), crate::builder::job(2, 1, 8)],
        );
        let mut curves = CurveCache::new();
        let mut parts = curves.ahead(&input);
        assert_eq!(parts.len(), 1, "equal trainings are one part");
        parts.iter_mut().for_each(Part::make);
        curves.take_back(parts);
        assert!(curves.ahead(&input).is_empty());
    }
}
