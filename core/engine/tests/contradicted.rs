//! Live changes of the batch whose first steps contradict what was expected of them.

use headway_engine::event::Request;
use headway_engine::record::{PolicyMode, PolicySettings};
use headway_goodput::JobModel;
use headway_types::spec::{BatchPolicy, BatchRange, Training};
use headway_types::{
    AgentCommand, Configuration, EmulatedDevice, GpuCount, GroupPhase, JobId, NodeCount, NodeInventory, NodeReport,
    NoiseSample, ReasonCode, Seconds, Sequences, StepReport,
};

use crate::harness::{Cluster, inventory, spec, training};

/// Nearly half of a step at the reference batch goes into the exchange of gradients, so that larger ones gain.
fn slowly_linked() -> NodeInventory {
    let device = EmulatedDevice { flop_per_second: 100_000_000_000, link_bytes_per_second: 25_000_000 };
    NodeInventory { emulated: Some(device), ..inventory(0, 3) }
}

/// A noise scale far above any batch, in sequences.
fn noise() -> NoiseSample {
    let phi = 1e5;
    NoiseSample { small_sqr: 1.0 + phi / 4.0, big_sqr: 1.0 + phi / 16.0, small_batch: 4.0, big_batch: 16.0 }
}

/// A job on three GPUs. At its reference batch, 48, it runs in micro-batches of 16; `most` decides which larger batches divide, and into what.
struct Story {
    cluster: Cluster,
    job: JobId,
    training: Training,
    samples: u64,
    /// How many times as long as the prior has it a step takes below micro-batches of 16.
    ruin: f64,
    /// Seconds of training.
    trained: f64,
}

impl Story {
    fn new(most: u64, ruin: f64) -> Self {
        Self::of(most, ruin, BatchPolicy::Goodput)
    }

    fn of(most: u64, ruin: f64, batch_policy: BatchPolicy) -> Self {
        let mut cluster = Cluster::new(&[]);
        cluster.register(slowly_linked(), Vec::new());
        let batch = BatchRange { min: Sequences(48), max: Sequences(most) };
        let training = Training { reference_batch: Sequences(48), batch, batch_policy, target: None, ..training(true) };
        let job = cluster.submit(spec("ruined", 3, 3, Some(training.clone())));
        cluster.start(job);
        let mut story = Self { cluster, job, training, samples: 0, ruin, trained: 0.0 };
        assert_eq!(story.at(), (16, 48));
        let run = story.cluster.status(job, story.cluster.jobs[&job].generation, GroupPhase::Running);
        story.cluster.report(0, NodeReport::Group { status: run });
        story
    }

    /// Micro-batch and batch that it is told to run in.
    fn at(&self) -> (u64, u64) {
        let at = self.configuration();
        (at.micro_batch.0, at.global_batch.0)
    }

    fn configuration(&self) -> Configuration {
        self.cluster.allocation(self.job).configuration.unwrap()
    }

    fn step(&self, at: &Configuration) -> f64 {
        let prior = JobModel::new(self.training.clone());
        let modelled = prior.step_time(&slowly_linked().class(), GpuCount(3), NodeCount(1), at).unwrap().time.0;
        modelled * if at.micro_batch.0 < 16 { self.ruin } else { 1.0 }
    }

    /// One step, and its report.
    fn trains(&mut self) {
        let at = self.configuration();
        let seconds = self.step(&at);
        self.samples += at.global_batch.0;
        self.trained += seconds;
        self.cluster.pass_beating(seconds, &[0]);
        let duration = Seconds(seconds);
        // What was told while it stepped it takes after the step.
        let report = StepReport {
            duration,
            configuration: at,
            noise: Some(noise()),
            ..self.cluster.report_of(self.job, self.samples)
        };
        self.cluster.report(0, NodeReport::Steps { report: Box::new(report) });
    }

    fn trains_until(&mut self, verb: &str, most: usize) -> usize {
        for steps in 0..most {
            if self.cluster.count(verb) > 0 {
                return steps;
            }
            self.trains();
        }
        panic!("no {verb} within {most} steps: {:#?}", self.cluster.messages)
    }

    fn reasons(&self) -> Vec<(ReasonCode, String)> {
        let view = self.cluster.engine.view();
        let verdict = view.verdict(self.job).unwrap();
        verdict.reasons.iter().map(|reason| (reason.code, reason.detail.clone())).collect()
    }

    fn told_of(&self, code: ReasonCode) -> Option<String> {
        self.reasons().into_iter().find(|(known, _)| *known == code).map(|(_, detail)| detail)
    }

    fn rounds(&mut self, mode: PolicyMode) {
        let settings = PolicySettings { mode, ..PolicySettings::default() };
        self.cluster.request(Request::SetPolicy { settings: settings.into(), expected: None });
    }

    fn counts(&self) -> [usize; 3] {
        ["job.batch_changed", "job.batch_contradicted", "job.batch_taken_back"].map(|verb| self.cluster.count(verb))
    }
}

#[test]
fn a_change_that_ruins_the_step_is_taken_back_after_two_steps_and_not_made_again() {
    let mut story = Story::new(95, 10.0);
    story.trains_until("job.batch_changed", 40);
    assert_eq!(story.at(), (8, 72), "a step of the micro-batch's ladder, for a sixth more goodput");
    let steps = story.trains_until("job.batch_taken_back", 10);
    assert!(steps <= 3, "one step in the old batch, two in the new: {steps}");
    assert_eq!(story.at(), (16, 48));
    let told = story.cluster.commands.iter().rev().find_map(|(_, command)| match command {
        AgentCommand::Configure { configuration, .. } => Some(*configuration),
        _ => None,
    });
    assert_eq!(told, Some(story.configuration()), "and its node hears of it at once");
    for _ in 0..100 {
        story.trains();
        assert_eq!(story.at(), (16, 48), "{:#?}", story.cluster.messages);
    }
    assert_eq!(story.counts(), [1, 1, 1], "{:#?}", story.cluster.messages);
    let why = story.told_of(ReasonCode::BatchContradicted).expect("why it is not tried again");
    assert!(why.starts_with("steps of a batch of 72 in micro-batches of 8 took"), "{why}");
    let last = story.cluster.jobs[&story.job].last_change.clone().unwrap();
    assert!(last.reason.contains("were expected"), "{}", last.reason);
}

#[test]
fn where_steps_take_what_was_expected_nothing_is_taken_back() {
    let mut story = Story::new(95, 1.0);
    story.trains_until("job.batch_changed", 40);
    for _ in 0..60 {
        story.trains();
    }
    let [changes, contradicted, taken_back] = story.counts();
    assert!((1..=2).contains(&changes) && contradicted + taken_back == 0, "{:#?}", story.cluster.messages);
    assert_eq!(story.told_of(ReasonCode::BatchContradicted), None);
}

#[test]
fn it_is_taken_back_while_rounds_are_paused_and_after_the_scheduler_has_died() {
    for paused in [true, false] {
        let mut story = Story::new(95, 10.0);
        story.trains_until("job.batch_changed", 40);
        if paused {
            story.rounds(PolicyMode::Paused);
        }
        story.trains();
        story.cluster.restart_knowing();
        let running = story.cluster.status(story.job, story.cluster.jobs[&story.job].generation, GroupPhase::Running);
        story.cluster.register(slowly_linked(), vec![running]);
        story.trains_until("job.batch_taken_back", 4);
        assert_eq!(story.at(), (16, 48));
        story.rounds(PolicyMode::Auto);
        story.cluster.restart_knowing();
        let running = story.cluster.status(story.job, story.cluster.jobs[&story.job].generation, GroupPhase::Running);
        story.cluster.register(slowly_linked(), vec![running]);
        for _ in 0..40 {
            story.trains();
        }
        assert_eq!(story.counts(), [1, 1, 1], "{:#?}", story.cluster.messages);
    }
}

#[test]
fn a_batch_whose_micro_batches_nobody_knows_is_not_gone_to_in_one_leap() {
    // Only micro-batches of 4 and less divide a batch of more than 48.
    let mut story = Story::new(71, 10.0);
    story.trains_until("job.batch_held", 40);
    for _ in 0..60 {
        story.trains();
        assert_eq!(story.at(), (16, 48));
    }
    assert_eq!(story.counts(), [0, 0, 0]);
    let why = story.told_of(ReasonCode::BatchUntried).expect("why it is not tried");
    assert!(why.contains("in micro-batches of 1 would be"), "{why}");
    let hours = 1 + (story.trained / 3600.0) as usize;
    assert!(story.cluster.count("job.batch_held") <= hours, "once an hour: {:#?}", story.cluster.messages);
}

#[test]
fn a_batch_that_the_norm_test_asks_for_finds_another_micro_batch_and_never_falls() {
    let mut story = Story::of(95, 10.0, BatchPolicy::NormTest { eta: 0.5.try_into().unwrap() });
    story.trains_until("job.batch_contradicted", 60);
    let (_, reached) = story.at();
    assert!(reached > 48);
    for _ in 0..60 {
        story.trains();
        assert!(story.at().1 >= reached, "{:#?}", story.cluster.messages);
    }
    assert!(story.cluster.count("job.batch_changed") <= 6, "{:#?}", story.cluster.messages);
}
