#![allow(clippy::unwrap_used)]

use headway_types::random::SplitMix64;
use headway_types::spec::{Training, Work};
use headway_types::{Execution, GpuCount, NodeCount, Shares};
use proptest::prelude::*;

use super::*;
use crate::examples::{class_of, emulated_class, llama3_8b, report, tiny, training};
use crate::searches::Searches;

fn at(dp: u32, micro: u64, global: u64) -> Configuration {
    let layout = Layout { dp, ..Layout::single() };
    Configuration { layout, micro_batch: Sequences(micro), global_batch: Sequences(global) }
}

fn sharing() -> Layout {
    let shares = Shares { slower: 1, faster: 2, of_faster: 1 };
    Layout { execution: Execution { shares, ..Execution::PLAIN }, ..Layout::single() }
}

/// A ratio is wrong where nothing of it has agreed; else it was the micro-batch.
#[test]
fn what_was_measured_of_a_ratio_elsewhere_counts_where_none_of_it_agreed() {
    let uneven = |micro, slowdown| Spot { ratio: Ratio::of(sharing()), ..spot(micro, 6, slowdown) };
    let at = |ground: &Ground, layout: Layout, micro| ground.slowdown(layout, NodeCount(1), Sequences(micro), 6);
    let wide = Layout { tp: 2, ..sharing() };
    let wrong = Ground::new(vec![spot(4, 6, None), uneven(8, Some(1.5))]);
    assert_eq!([at(&wrong, sharing(), 8), at(&wrong, sharing(), 4), at(&wrong, wide, 2)], [1.5; 3]);
    assert_eq!([at(&wrong, Layout::single(), 8), at(&wrong, Layout::single(), 4)], [1.0; 2]);
    let sound = Ground::new(vec![uneven(4, None), uneven(8, Some(1.5))]);
    assert_eq!([at(&sound, sharing(), 8), at(&sound, sharing(), 4), at(&sound, wide, 2)], [1.5, 1.0, 1.0]);
}

fn spot(micro: u64, cycles: u64, slowdown: Option<f64>) -> Spot {
    Spot {
        degrees: Degrees::of(Layout::single()),
        ratio: Ratio::of(Layout::single()),
        nodes: NodeCount(1),
        micro_batch: Sequences(micro),
        cycles,
        slowdown,
    }
}

/// A job on four emulated GPUs whose true steps are off by factors the same for all, and where micro-batches smaller than `cliff` take as long as
/// that one.
struct Trained {
    model: JobModel,
    class: NodeClass,
    gpus: GpuCount,
    off: f64,
    cliff: u64,
    draws: SplitMix64,
}

impl Trained {
    fn new(off: f64, cliff: u64, seed: u64) -> Self {
        let training = Training { target: None, ..training(Work::Model(tiny()), 48, (48, 256)) };
        let training =
            Training { layouts: headway_types::spec::LayoutLimits::degrees(vec![], vec![], Sequences(16)), ..training };
        let (model, class) = (JobModel::new(training), emulated_class(4));
        Self { model, class, gpus: GpuCount(3), off, cliff, draws: SplitMix64(seed) }
    }

    fn truth(&self, at: &Configuration) -> f64 {
        let prior = JobModel::new(self.model.training.clone());
        let modelled = prior.step_time(&self.class, self.gpus, NodeCount(1), at).unwrap().time.0;
        modelled * self.off * (self.cliff as f64 / at.micro_batch.0 as f64).max(1.0)
    }

    /// So many reports of a configuration, with three per cent of scatter.
    fn trains(&mut self, at: &Configuration, reports: u32) {
        for _ in 0..reports {
            let seconds = self.truth(at) * (1.0 + 0.03 * (2.0 * self.draws.uniform() - 1.0));
            self.model.observe(&self.class, NodeCount(1), &report(*at, 1, seconds));
        }
    }

    fn predicted(&self, at: &Configuration) -> f64 {
        self.model.predict(&self.class, self.gpus, NodeCount(1), at).unwrap().step_time.0
    }

    fn contradicts(&self, at: &Configuration) -> bool {
        self.model.contradiction(&self.class, NodeCount(1), at).is_some()
    }
}

const GROUND: (u64, u64) = (16, 192);

#[test]
fn two_slow_reports_contradict_and_one_does_not() {
    let mut job = Trained::new(1.2, 16, 1);
    let (sound, ruined) = (at(3, GROUND.0, GROUND.1), at(3, 1, 255));
    job.trains(&sound, 20);
    let promised = job.predicted(&ruined);
    job.trains(&ruined, 1);
    assert!(!job.contradicts(&ruined), "the first step after a change may hold what the change takes");
    job.trains(&ruined, 1);
    let told = job.model.contradiction(&job.class, NodeCount(1), &ruined).unwrap();
    assert!((told.expected.0 / promised - 1.0).abs() < 0.01 && told.measured.0 > 14.0 * promised, "{told}");
    assert!((job.predicted(&ruined) / told.measured.0 - 1.0).abs() < 0.01, "what was measured counts there");
    assert!((job.predicted(&sound) / job.truth(&sound) - 1.0).abs() < 0.05, "and nowhere else");
    assert!(job.predicted(&at(3, 1, 192)) > 10.0 * job.predicted(&sound), "but at all batches of that micro-batch");
    let wider = JobModel::clone(&job.model).predict(&emulated_class(4), GpuCount(4), NodeCount(1), &at(4, 1, 256));
    assert!(wider.unwrap().step_time.0 > 10.0 * job.predicted(&sound), "and of all numbers of replicas");
}

#[test]
fn a_slow_first_report_alone_is_forgiven() {
    let mut job = Trained::new(1.2, 0, 1);
    let (sound, fresh) = (at(3, GROUND.0, GROUND.1), at(3, 8, 216));
    job.trains(&sound, 10);
    let compiling = 30.0 * job.truth(&fresh);
    job.model.observe(&job.class, NodeCount(1), &report(fresh, 1, compiling));
    job.trains(&fresh, 5);
    assert!(!job.contradicts(&fresh));
}

#[test]
fn what_was_contradicted_is_believed_again_once_its_steps_are_fast() {
    let mut job = Trained::new(1.0, 16, 1);
    let (sound, fresh) = (at(3, GROUND.0, GROUND.1), at(3, 8, 216));
    job.trains(&sound, 10);
    job.trains(&fresh, 2);
    assert!(job.contradicts(&fresh));
    job.cliff = 0;
    job.trains(&fresh, 1);
    assert!(!job.contradicts(&fresh));
}

#[test]
fn what_slows_down_later_is_drift_and_no_contradiction() {
    let mut job = Trained::new(1.0, 0, 1);
    let (sound, fresh) = (at(3, GROUND.0, GROUND.1), at(3, 8, 216));
    job.trains(&sound, 10);
    job.trains(&fresh, 5);
    job.off = 3.0;
    job.trains(&fresh, 10);
    assert!(!job.contradicts(&fresh));
    assert!(job.model.contradictions(&job.class).next().is_none());
}

#[test]
fn a_first_report_on_a_gpu_type_contradicts_nothing() {
    let mut job = Trained::new(9.0, 0, 1);
    job.trains(&at(3, GROUND.0, GROUND.1), 3);
    assert!(!job.contradicts(&at(3, GROUND.0, GROUND.1)), "nothing of the job had been measured there");
}

#[test]
fn what_is_slow_on_two_nodes_is_what_it_was_on_one() {
    let mut job = Trained::new(1.0, 0, 1);
    job.gpus = GpuCount(4);
    let of = at(4, 16, 192);
    job.trains(&of, 10);
    let usual = job.truth(&of);
    let on_two = job.model.step_time(&job.class, GpuCount(4), NodeCount(2), &of).unwrap().time.0;
    for _ in 0..3 {
        job.model.observe(&job.class, NodeCount(2), &report(of, 1, 2.0 * on_two));
    }
    assert!(job.model.contradiction(&job.class, NodeCount(2), &of).is_some() && !job.contradicts(&of));
    let slow = job.model.predict(&job.class, GpuCount(4), NodeCount(2), &of).unwrap().step_time.0;
    assert!(slow > 1.7 * on_two, "{slow} after {on_two}");
    assert!((job.predicted(&of) / usual - 1.0).abs() < 0.1, "{} for {usual}", job.predicted(&of));
}

#[test]
fn however_much_is_contradicted_what_comes_is_learnt() {
    let mut job = Trained::new(1.0, 16, 1);
    let sound = at(3, GROUND.0, GROUND.1);
    job.trains(&sound, 10);
    for batch in 0..40 {
        job.trains(&at(3, 1, 48 + 3 * batch), 2);
    }
    assert!(job.model.contradictions(&job.class).count() > 12, "nothing else came");
    job.gpus = GpuCount(1);
    for batch in 0..13 {
        job.trains(&at(1, 16, 48 + 16 * batch), 1);
    }
    job.gpus = GpuCount(3);
    let kept = job.model.contradictions(&job.class).count();
    assert!((2..=12).contains(&kept), "{kept}");
    job.off = 1.5;
    job.trains(&sound, 20);
    assert!((job.predicted(&sound) / job.truth(&sound) - 1.0).abs() < 0.1, "{}", job.predicted(&sound));
}

#[test]
fn a_contradiction_outlives_the_scheduler_and_any_number_of_other_configurations() {
    let mut job = Trained::new(1.1, 16, 1);
    job.trains(&at(3, GROUND.0, GROUND.1), 10);
    job.trains(&at(3, 1, 255), 2);
    for batch in 0..40 {
        job.trains(&at(3, 16, 48 * (1 + batch % 5)), 1);
        job.trains(&at(1, 16, 48 + 16 * (batch % 13)), 0);
    }
    for micro_batches in 4..40 {
        job.model.observe(&job.class, NodeCount(1), &report(at(2, 4, 8 * micro_batches), 1, 1.0));
    }
    let kept: JobModel = serde_json::from_str(&serde_json::to_string(&job.model).unwrap()).unwrap();
    assert!(kept.contradiction(&job.class, NodeCount(1), &at(3, 1, 255)).is_some());
}

#[test]
fn a_batch_whose_micro_batch_is_known_teaches_the_factors_even_where_it_contradicts_them() {
    // All of the time is found to be paid once per micro-batch although half of it is paid once per step.
    let mut job = Trained::new(1.0, 0, 1);
    let (few, many) = (at(3, 16, 48), at(3, 16, 240));
    job.trains(&few, 10);
    let slow = 2.0 * job.truth(&many);
    for _ in 0..4 {
        job.model.observe(&job.class, NodeCount(1), &report(many, 1, slow));
    }
    assert!(job.contradicts(&many));
    assert!((job.predicted(&many) / slow - 1.0).abs() < 0.06);
    let between = job.predicted(&at(3, 16, 144));
    assert!(between > 1.3 * job.truth(&at(3, 16, 144)), "what lies between follows: {between}");
}

#[test]
fn a_job_comes_to_far_micro_batches_in_steps() {
    let ground = Ground::new(vec![spot(16, 4, None), spot(1, 8, Some(9.0))]);
    let reached = |present| {
        let within = |micro: &u64| ground.reaches(Layout::single(), Sequences(*micro), Sequences(present));
        [1, 2, 4, 8, 16, 32].into_iter().filter(within).collect::<Vec<u64>>()
    };
    assert_eq!(reached(16), [8, 16, 32]);
    assert_eq!(reached(4), [2, 4, 8, 16, 32], "what it runs in is known, and what was measured well");
    let elsewhere = Layout { tp: 2, ..Layout::single() };
    assert!(!ground.reaches(elsewhere, Sequences(8), Sequences(1)), "other degrees are other ground");
    assert_eq!(ground.unmeasured(Layout::single(), Sequences(4), None), 2.0 * PER_DOUBLING);
    assert_eq!(ground.unmeasured(Layout::single(), Sequences(4), Some(Sequences(4))), 0.0);
    assert_eq!(Ground::default().unmeasured(Layout::single(), Sequences(4), None), 0.0);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(debug_assertions) { 48 } else { 512 }))]

    #[test]
    fn where_predictions_hold_nothing_is_contradicted(
        off in 0.4..3.0f64, seed: u64, changes in prop::collection::vec((0u32..5, 3u64..16), 1..12),
    ) {
        let mut job = Trained::new(off, 0, seed);
        job.trains(&at(3, GROUND.0, GROUND.1), 5);
        for (power, count) in changes {
            let micro = 1 << power;
            let to = at(3, micro, (3 * micro * count).clamp(3 * micro * 48u64.div_ceil(3 * micro), 255 / (3 * micro) * 3 * micro));
            job.trains(&to, 4);
            prop_assert!(!job.contradicts(&to), "{to}: {}", job.model.contradiction(&job.class, NodeCount(1), &to).unwrap());
        }
    }

    #[test]
    fn a_ruined_step_is_known_after_two_reports_and_its_loss_is_not_promised_as_a_gain(
        off in 0.4..3.0f64, seed: u64, before in 2u32..30, cliff in 2u32..5, worse in 1u32..4,
    ) {
        let cliff = 1u64 << cliff;
        let mut job = Trained::new(off, cliff, seed);
        let sound = at(3, cliff, 192);
        job.trains(&sound, before);
        let ruined = at(3, (cliff >> worse).max(1), 240);
        job.trains(&ruined, 2);
        prop_assert!(job.contradicts(&ruined));
        let goodput = |of: &Configuration| job.model.predict(&job.class, job.gpus, NodeCount(1), of).unwrap().goodput;
        prop_assert!(goodput(&ruined) < goodput(&sound));
        prop_assert!((job.predicted(&ruined) / job.truth(&ruined) - 1.0).abs() < 0.08);
        let (best, _) = job.model.best_batch(&job.class, job.gpus, NodeCount(1), sound.layout).unwrap();
        prop_assert!(best.micro_batch != ruined.micro_batch, "{best}");
    }

    #[test]
    fn slowdowns_only_slow_and_the_nearest_that_was_measured_counts(
        spots in prop::collection::vec((1u64..64, prop::option::of(1.0..20.0f64)), 1..12), micro_batches in 1u64..128,
    ) {
        let ground = Ground::new(spots.iter().map(|(many, slowdown)| spot(2, *many, *slowdown)).collect());
        let slowdown = ground.slowdown(Layout::single(), NodeCount(1), Sequences(2), micro_batches);
        prop_assert!(slowdown >= 1.0);
        prop_assert!(slowdown == 1.0 || spots.iter().any(|(_, known)| *known == Some(slowdown)));
        prop_assert_eq!(ground.slowdown(Layout::single(), NodeCount(1), Sequences(4), micro_batches), 1.0);
        if let Some((many, _)) = spots.iter().find(|(many, _)| spots.iter().filter(|(other, _)| other == many).count() == 1) {
            let own = spots.iter().find(|(other, _)| other == many).unwrap().1;
            prop_assert_eq!(ground.slowdown(Layout::single(), NodeCount(1), Sequences(2), *many), own.unwrap_or(1.0));
        }
    }

    #[test]
    fn kept_searches_answer_as_new_ones_while_steps_contradict(seed: u64, slow in 1.5..20.0f64, present in 0u32..4) {
        let class = class_of("H100-80G", 8);
        let mut model = JobModel::new(training(Work::Model(llama3_8b()), 64, (64, 1024)));
        let (mut searches, mut draws) = (Searches::new(&model, &class), SplitMix64(seed));
        let (gpus, nodes) = (GpuCount(8), NodeCount(1));
        for round in 0..10 {
            let best = model.best(&class, gpus, nodes).unwrap().configuration.unwrap();
            prop_assert_eq!(searches.best(&model, gpus, nodes), model.best(&class, gpus, nodes).ok());
            let of = Configuration { micro_batch: Sequences(1 << present), ..best };
            let kept = searches.best_within_reach(&model, gpus, nodes, &of);
            let anew = Searches::new(&model, &class).best_within_reach(&model, gpus, nodes, &of);
            prop_assert_eq!(&kept, &anew);
            if let Ok(offer) = kept {
                let found = offer.configuration.unwrap();
                prop_assert!(model.ground(&class).reaches(found.layout, found.micro_batch, of.micro_batch));
            }
            let truth = if round % 3 == 2 { slow } else { 1.0 };
            let seconds = model.step_time(&class, gpus, nodes, &best).unwrap().time.0 * truth;
            for _ in 0..2 {
                let seconds = Seconds(seconds * (1.0 + 0.02 * draws.uniform()));
                model.observe(&class, nodes, &report(best, 1, seconds.0));
                searches.follow(&model);
            }
        }
    }
}
