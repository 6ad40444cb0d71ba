#![allow(clippy::unwrap_used)]
use headway_planner::Policy;
use headway_types::{IdSource, Timestamp};

use super::*;

fn round(ids: &mut IdSource) -> PlanInput {
    PlanInput {
        plan: ids.plan(Timestamp(0)),
        parent: None,
        now: Timestamp(0),
        trigger: "test".into(),
        policy: Policy::default(),
        nodes: vec![],
        jobs: vec![],
        projects: vec![],
        reservations: vec![],
        lessons: std::sync::Arc::default(),
        deferred: BTreeSet::new(),
        forced: Vec::new(),
    }
}

fn request(planning: &Planning, round: PlanInput) {
    planning.request(round.plan, move || round);
}

async fn answer(inbox: &mut mpsc::Receiver<Input>) -> (PlanId, String) {
    let event = tokio::time::timeout(Duration::from_secs(10), inbox.recv()).await.unwrap().unwrap();
    match event {
        Input::Event { event: Event::PlanFailed { plan, message } | Event::PlanGivenUp { plan, message }, .. } => {
            (plan, message)
        }
        other => panic!("unexpected {other:?}"),
    }
}

/// A round of two modelled jobs on a node.
fn modelled(ids: &mut IdSource) -> PlanInput {
    let mut jobs = [1, 2].map(|number| headway_planner::builder::job(number, 1, 8)).to_vec();
    jobs[1].work = headway_planner::PlanWork::Model(headway_planner::builder::model_of(
        headway_types::spec::Work::Model(headway_types::example::small()),
    ));
    let nodes = vec![headway_planner::builder::node(1, "H100-80G", 8)];
    PlanInput { nodes, jobs, ..round(ids) }
}

#[test]
fn without_time_for_curves_their_jobs_are_late_and_with_it_none_is() {
    let input = modelled(&mut IdSource::seeded(1));
    let (mut cache, none) = (CurveCache::new(), BTreeSet::new());
    let late = make_ahead(&input, &mut cache, Duration::ZERO, &none);
    assert_eq!(late, input.jobs.iter().map(|job| job.job).collect());
    assert_eq!(make_ahead(&input, &mut cache, CURVE_BUDGET, &late), none);
    assert_eq!(make_ahead(&input, &mut cache, Duration::ZERO, &none), none, "what is made stays made");
}

#[tokio::test]
async fn a_round_out_of_time_decides_with_the_curves_it_has_and_its_stored_input_says_so() {
    let (inbox, mut answers) = mpsc::channel(16);
    let planning = Planning::with(Box::new(solve), Duration::from_secs(60), Duration::ZERO, inbox).unwrap();
    let mut ids = IdSource::seeded(1);
    let input = modelled(&mut ids);
    planning.request(input.plan, move || input);
    let answer = tokio::time::timeout(Duration::from_secs(10), answers.recv()).await.unwrap().unwrap();
    let Input::Event { event: Event::PlanReady { plan: made }, .. } = answer else { panic!("{answer:?}") };
    assert_eq!(made.plan().report.left_out.iter().filter(|one| one.deferred).count(), 2);
    let last = planning.last_round().borrow().clone().unwrap();
    assert_eq!(plan(&last.input, &mut CurveCache::new()).unwrap(), **made.plan(), "decided again it is the same");
}

#[tokio::test]
async fn a_round_that_panics_has_failed_and_the_thread_takes_the_next() {
    let solver = |input: &PlanInput, _: &mut CurveCache| match input.trigger.as_str() {
        "panic" => panic!("no such row"),
        _ => Event::PlanFailed { plan: input.plan, message: "solved".into() },
    };
    let (inbox, mut answers) = mpsc::channel(16);
    let planning = Planning::with(Box::new(solver), ROUND_DEADLINE, CURVE_BUDGET, inbox).unwrap();
    let [broken, healthy] = [1, 2].map(|seed| round(&mut IdSource::seeded(seed)));
    let broken = PlanInput { trigger: "panic".into(), ..broken };
    let ids = [broken.plan, healthy.plan];
    planning.request(ids[0], move || broken);
    assert_eq!(answer(&mut answers).await, (ids[0], "the planner panicked: no such row".into()));
    planning.request(ids[1], move || healthy);
    assert_eq!(answer(&mut answers).await, (ids[1], "solved".into()));
}

#[tokio::test]
async fn a_planner_that_hangs_again_and_again_is_replaced_until_too_many_hang() {
    let (release, hanging) = channel::<()>();
    let hanging = Mutex::new(hanging);
    let solver = move |input: &PlanInput, _: &mut CurveCache| {
        if input.trigger == "hang" {
            // Only one of them waits for the word at a time; the others wait for it to be done.
            let _ = hanging.lock().unwrap().recv();
        }
        Event::PlanFailed { plan: input.plan, message: "solved".into() }
    };
    let (inbox, mut answers) = mpsc::channel(16);
    let planning = Planning::with(Box::new(solver), Duration::from_millis(120), CURVE_BUDGET, inbox).unwrap();
    let mut ids = IdSource::seeded(1);
    for _ in 0..=MOST_ABANDONED {
        let healthy = round(&mut ids);
        let id = healthy.plan;
        request(&planning, healthy);
        assert_eq!(answer(&mut answers).await, (id, "solved".into()));
        let stuck = PlanInput { trigger: "hang".into(), ..round(&mut ids) };
        let id = stuck.plan;
        request(&planning, stuck);
        let (failed, message) = answer(&mut answers).await;
        assert_eq!(failed, id);
        assert!(message.starts_with("no plan after"), "{message}");
    }
    request(&planning, round(&mut ids));
    // It ends at once, and so would the next: the loop is told to wait.
    match answers.recv().await {
        Some(Input::Event { event: Event::PlanFailed { message, .. }, .. }) => {
            assert!(message.starts_with("the planner hangs"), "{message}");
        }
        other => panic!("unexpected {other:?}"),
    }

    release.send(()).unwrap();
    let solved = async {
        loop {
            request(&planning, round(&mut ids));
            if answer(&mut answers).await.1 == "solved" {
                return;
            }
        }
    };
    tokio::time::timeout(Duration::from_secs(10), solved).await.unwrap();
}
