use super::*;
use headway_types::random::SplitMix64;
use headway_types::{Layout, Sequences};
use proptest::prelude::*;

const MICRO: f64 = 0.2;
const REDUCE: f64 = 0.15;

fn at(dp: u32, accumulation: u64) -> (Configuration, StepTime) {
    let layout = Layout { dp, tp: 1, pp: 1, ..Layout::single() };
    let configuration =
        Configuration { layout, micro_batch: Sequences(2), global_batch: Sequences(2 * u64::from(dp) * accumulation) };
    let ring = 2.0 * f64::from(dp - 1) / f64::from(dp);
    let prior = StepTime {
        compute: Seconds(MICRO * accumulation as f64),
        data_collectives: Seconds(REDUCE * ring),
        ..StepTime::default()
    };
    (configuration, prior)
}

fn gpu() -> GpuType {
    GpuType("emulated".into())
}

fn predicted(correction: &Correction, dp: u32, accumulation: u64) -> Corrected {
    let prior = at(dp, accumulation).1;
    correction.apply(&gpu(), &prior).unwrap_or_else(|| Correction::uncorrected(&prior))
}

fn teach(correction: &mut Correction, dp: u32, accumulation: u64, seconds: f64) {
    let (configuration, prior) = at(dp, accumulation);
    correction.observe(&gpu(), NodeCount(1), &configuration, &prior, Seconds(seconds));
}

#[test]
fn without_reports_the_prior_stands_with_its_full_uncertainty() {
    let before = predicted(&Correction::default(), 4, 4);
    assert_eq!(before.time, at(4, 4).1.total());
    assert!(before.relative_error > 0.3);
}

#[test]
fn one_report_already_corrects_and_unseen_layouts_inherit() {
    let mut correction = Correction::default();
    let slow = 1.8 * at(4, 4).1.total().0;
    teach(&mut correction, 4, 4, slow);
    assert!((predicted(&correction, 4, 4).time.0 / slow - 1.0).abs() < 0.1);
    assert!(predicted(&correction, 2, 8).time.0 > 1.3 * at(2, 8).1.total().0);
    assert!(predicted(&correction, 4, 4).relative_error < 0.15);
}

#[test]
fn a_twofold_surprise_is_learnt_from_one_report() {
    for factor in [0.5, 2.0] {
        let mut correction = Correction::default();
        let seconds = factor * at(4, 4).1.total().0;
        teach(&mut correction, 4, 4, seconds);
        assert!((predicted(&correction, 4, 4).time.0 / seconds - 1.0).abs() < 0.12, "{factor}");
    }
}

#[test]
fn uncertainty_shrinks_with_reports_and_is_larger_where_nothing_was_seen() {
    let mut correction = Correction::default();
    teach(&mut correction, 4, 4, 1.4);
    let after_one = predicted(&correction, 4, 4).relative_error;
    for _ in 0..30 {
        teach(&mut correction, 4, 4, 1.4);
    }
    let after_many = predicted(&correction, 4, 4).relative_error;
    assert!(after_many < after_one);
    assert!(predicted(&correction, 4, 64).relative_error > after_many);
}

#[test]
fn one_outlier_hardly_moves_it() {
    let mut correction = Correction::default();
    for number in 0..10 {
        teach(&mut correction, 4, 2 + number % 3, 1.1 * at(4, 2 + number % 3).1.total().0);
    }
    let before = predicted(&correction, 4, 4).time.0;
    teach(&mut correction, 4, 4, 60.0);
    teach(&mut correction, 2, 9, 60.0);
    assert!((predicted(&correction, 4, 4).time.0 / before - 1.0).abs() < 0.1);
}

#[test]
fn nonsense_is_skipped() {
    let mut correction = Correction::default();
    for seconds in [0.0, -1.0, f64::NAN, f64::INFINITY] {
        teach(&mut correction, 4, 4, seconds);
    }
    assert_eq!(correction, Correction::default());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn it_converges_to_a_synthetic_truth(
        micro in 0.6..3.0f64, reduce in 0.5..3.0f64, extra in 0.0..0.12f64, seed in 0u64..1000,
    ) {
        let truth = |dp: u32, accumulation: u64| {
            let prior = at(dp, accumulation).1;
            micro * prior.micro().0 + reduce * prior.step().0 + extra
        };
        let mut correction = Correction::default();
        let mut random = SplitMix64(seed);
        for number in 0..120u64 {
            let scatter = 1.0 + 0.03 * (2.0 * random.uniform() - 1.0);
            let (dp, accumulation) = ([1, 2, 4][(number % 3) as usize], [1, 2, 4, 8][(number / 3 % 4) as usize]);
            teach(&mut correction, dp, accumulation, scatter * truth(dp, accumulation));
        }
        for (dp, accumulation) in [(4, 1), (2, 4), (8, 2), (4, 16), (1, 8)] {
            let predicted = predicted(&correction, dp, accumulation);
            let error = predicted.time.0 / truth(dp, accumulation) - 1.0;
            prop_assert!(error.abs() < 0.06, "dp {dp} × {accumulation}: {error}, {predicted:?}");
        }
    }
}
