#![allow(clippy::unwrap_used)]

use headway_types::random::SplitMix64;
use headway_types::spec::{BatchPolicy, ExecutionLimits, Work};
use headway_types::{Bytes, NoiseSample, Recompute, Schedule, Sharding, StepReport};
use proptest::prelude::*;
use strum::VariantArray;

use super::*;
use crate::examples::{self, class_of, llama3_8b, tiny, training};
use crate::mixed::ahead_of;
use crate::peers::Lessons;

const SIZES: [(u32, u32); 9] = [(1, 1), (2, 1), (3, 1), (4, 1), (6, 1), (8, 1), (12, 2), (16, 2), (64, 8)];

fn limits(every_schedule: bool) -> ExecutionLimits {
    ExecutionLimits {
        cp: vec![1, 2],
        vpp: vec![1, 2],
        schedule: if every_schedule { Schedule::VARIANTS.to_vec() } else { vec![Schedule::default()] },
        sharding: vec![Sharding::None, Sharding::Optimizer, Sharding::Parameters],
        recompute: Recompute::VARIANTS.to_vec(),
        sequence_parallel: true,
        ..ExecutionLimits::default()
    }
}

/// A report of the best configuration of an allocation: the prior, off by `truth`, with some scatter.
fn report(
    model: &JobModel,
    class: &NodeClass,
    at: (u32, u32),
    draws: &mut SplitMix64,
    truth: f64,
) -> Option<StepReport> {
    let offer = model.best(class, GpuCount(at.0), NodeCount(at.1)).ok()?;
    let configuration = offer.configuration?;
    let mut near = |value: f64, scatter: f64| value * (1.0 + scatter * (2.0 * draws.uniform() - 1.0));
    let (small_batch, big_batch) = (configuration.micro_batch.0 as f64, configuration.global_batch.0 as f64);
    let noise = NoiseSample {
        small_sqr: near(1.0 + 300.0 / small_batch, 0.05),
        big_sqr: near(1.0 + 300.0 / big_batch, 0.05),
        small_batch,
        big_batch,
    };
    let prior = JobModel::new(model.training.clone());
    let peak = prior.memory(class, &configuration).map(|needed| Bytes(near(needed.bytes, 0.05) as u64));
    let step_time = prior.step_time(class, GpuCount(at.0), NodeCount(at.1), &configuration).ok()?.time;
    Some(StepReport {
        noise: (big_batch > small_batch).then_some(noise),
        memory_peak: peak,
        ..examples::report(configuration, 1, near(step_time.0 * truth, 0.05))
    })
}

fn shapes() -> Vec<(Work, u64, (u64, u64))> {
    vec![
        (Work::Model(tiny()), 16, (8, 512)),
        (Work::Model(llama3_8b()), 256, (64, 1024)),
        (Work::Model(llama3_8b()), 64, (64, 64)),
    ]
}

fn agree(searches: &mut Searches, model: &JobModel, class: &NodeClass) -> Result<(), TestCaseError> {
    searches.divide(class);
    for (gpus, nodes) in SIZES.map(|(gpus, nodes)| (GpuCount(gpus), NodeCount(nodes))) {
        let anew = model.best(class, gpus, nodes);
        prop_assert_eq!(searches.best(model, gpus, nodes), anew.clone().ok(), "{} GPUs", gpus);
        if let Ok(Offer { configuration: Some(at), .. }) = anew {
            let kept = searches.best_batch(model, gpus, nodes, at.layout);
            let kept = kept.map(|offer| (offer.configuration.unwrap(), offer.prediction));
            prop_assert_eq!(kept, model.best_batch(class, gpus, nodes, at.layout));
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(debug_assertions) { 24 } else { 256 }))]

    #[test]
    fn whatever_reports_teach_the_answers_are_those_of_a_search_from_nothing(
        which in 0usize..3, seed in 0u64..1_000_000, truth in 0.4..2.5f64, every_schedule: bool, norm_test: bool,
        on in 0usize..3, ran_out in 0u32..8, taught in 0u32..16, uneven_shares: bool,
    ) {
        let (work, reference, range) = shapes().swap_remove(which);
        let mut training = training(work, reference, range);
        training.layouts.execution = ExecutionLimits { uneven_shares, ..limits(every_schedule) };
        if norm_test {
            training.batch_policy = BatchPolicy::NormTest { eta: 0.3.try_into().unwrap() };
        }
        let (ours, other) = (class_of("H100-80G", 8), class_of("A100-80G", 8));
        let gang = |of_faster| NodeClass { ahead: ahead_of(&other, &ours, NodeCount(of_faster)), ..other.clone() };
        let mut model = JobModel::new(training);
        let mut searches = [&ours, &other, &gang(1)].map(|class| Searches::new(&model, class));
        let mut draws = SplitMix64(seed);
        let mut peer = model.clone();
        if let Some(report) = report(&peer, &ours, (8, 1), &mut draws, 1.5 / truth) {
            peer.observe(&ours, NodeCount(1), &report);
        }
        let lessons = Lessons::default().renewed(peer.lessons()).unwrap_or_default();
        for step in 0..12u32 {
            agree(&mut searches[0], &model, &ours)?;
            agree(&mut searches[1], &model, &other)?;
            let divided = gang(1 + step % 3);
            agree(&mut searches[2], &model, &divided)?;
            let class = [&ours, &other, &divided][on];
            let at = SIZES[(draws.uniform() * SIZES.len() as f64) as usize];
            if let Some(report) = report(&model, class, at, &mut draws, truth) {
                model.observe(class, NodeCount(at.1), &report);
                if step == ran_out {
                    model.exhausted(class, &report.configuration);
                    model.exhausted(class, &report.configuration);
                }
            }
            if step == taught {
                model.learn(&lessons);
            }
            searches.iter_mut().for_each(|of| of.follow(&model));
        }
    }
}

#[test]
fn a_job_that_goes_on_reporting_is_searched_for_only_at_first() {
    let mut training = training(Work::Model(llama3_8b()), 256, (64, 1024));
    training.layouts.execution = limits(false);
    let class = class_of("H100-80G", 8);
    let mut model = JobModel::new(training);
    let mut searches = Searches::new(&model, &class);
    let mut draws = SplitMix64(3);
    let (mut asked, mut listed, mut longest) = (0, 0, 0);
    for step in 0..30 {
        for (gpus, nodes) in SIZES {
            let key = (GpuCount(gpus), NodeCount(nodes));
            let search = Search::with(&model, &class, searches.known.as_mut().unwrap(), searches.learnt).unwrap();
            let held = searches.allocations.get(&(key.0, key.1, NodeCount(0))).is_some_and(|kept| match &kept.found {
                Found::Again(again) => again.list.as_ref().is_some_and(|list| list.best(&search).is_some()),
                Found::Nothing { peaks: Some(peaks) } => search.memory.is_within(peaks),
                _ => false,
            });
            if step >= 10 {
                (asked, listed) = (asked + 1, listed + u32::from(held));
            }
            searches.best(&model, key.0, key.1);
            if let Some(Answered { found: Found::Again(again), .. }) =
                searches.allocations.get(&(key.0, key.1, NodeCount(0)))
            {
                longest = longest.max(again.list.as_ref().map_or(0, Shortlist::len));
            }
        }
        let report = report(&model, &class, (16, 2), &mut draws, 1.3).unwrap();
        model.observe(&class, NodeCount(2), &report);
        searches.follow(&model);
    }
    assert!(listed * 10 >= asked * 9, "{listed} of {asked}; the longest list has {longest}");
}

#[test]
fn what_is_unlikely_to_fit_is_asked_anew_after_a_peak_however_well_it_was_predicted() {
    let class = class_of("H100-80G", 8);
    let (gpus, nodes) = (GpuCount(2), NodeCount(1));
    let mut model = JobModel::new(training(Work::Model(llama3_8b()), 256, (64, 1024)));
    let mut searches = Searches::new(&model, &class);
    let offer = searches.best(&model, gpus, nodes).unwrap();
    let at = offer.configuration.unwrap();
    assert!(offer.unlikely && searches.best(&model, gpus, nodes) == Some(offer));
    // Twice, so that whatever is kept for the next question is kept.
    for peak in [None, Some(Bytes((1.01 * model.memory(&class, &at).unwrap().bytes) as u64))] {
        let told = examples::report(at, 1, 1.5 * offer.prediction.step_time.0);
        model.observe(&class, nodes, &StepReport { memory_peak: peak, ..told });
        searches.follow(&model);
        let (kept, fresh) =
            (searches.best(&model, gpus, nodes), Searches::new(&model, &class).best(&model, gpus, nodes));
        assert_eq!(kept, fresh);
        assert_eq!(kept.is_some_and(|offer| offer.unlikely), peak.is_none());
    }
}
