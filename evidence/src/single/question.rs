//! What is asked of a single job: set-ups, courses of noise, worlds and rules.

use headway_emulation::Nature;

/// A model on a cluster of its own.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Case {
    pub model: &'static str,
    pub cluster: &'static str,
}

/// COPUS' four, then those of several nodes with 3 GB/s per GPU between them.
pub const CASES: [Case; 7] = [
    Case { model: "llama-3.2-3b", cluster: "H100x8=1" },
    Case { model: "llama-2-13b", cluster: "H100x8=2" },
    Case { model: "qwen-2.5-32b", cluster: "H100x8=4" },
    Case { model: "llama-2-7b", cluster: "MI210x8=4" },
    Case { model: "llama-2-13b", cluster: "H100x8=2@3" },
    Case { model: "qwen-2.5-32b", cluster: "H100x8=4@3" },
    Case { model: "llama-2-7b", cluster: "MI210x8=4@3" },
];
/// How many of them are COPUS'.
pub(super) const COPUS_CASES: usize = 4;
/// The courses of the study: measured ones at a batch in the middle of those measured.
pub const COURSES: [&str; 3] = ["exponential", "cifar10-1024", "deepspeech2-160"];
/// What a change of layout in the running processes takes of a restart: the planner's own figure.
const LIVE_SHARE: f64 = 0.2;

/// How far the truth is from what the scheduler believes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct World {
    pub name: &'static str,
    pub nature: Nature,
    /// Worlds without chance have one seed.
    pub drawn: bool,
}

/// As the model has it; with terms of the step time off; with every layout off by a factor of its own as well.
#[must_use]
pub fn worlds() -> [World; 3] {
    let nature = Nature {
        starts: 3.0,
        start_spread: 0.0,
        failures: 0.0,
        micro: 0.0,
        step: 0.0,
        live_layouts: Some(LIVE_SHARE),
        ..Nature::GENTLE
    };
    let Nature { micro, step, .. } = Nature::GENTLE;
    [
        World { name: "as modelled", nature, drawn: false },
        World { name: "terms off", nature: Nature { micro, step, ..nature }, drawn: true },
        World { name: "layouts off", nature: Nature { micro, step, layout: 0.08, ..nature }, drawn: true },
    ]
}

/// What Headway decides by.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rules {
    pub name: &'static str,
    /// Fields of its policy that differ from the defaults.
    pub policy: &'static str,
    pub at_will: bool,
    /// Whether layouts change in the running processes.
    pub live: bool,
    /// Hours that the best fixed batch trains.
    pub hours: f64,
}

/// The defaults first; then what stands between them and the ceiling.
pub const RULES: [Rules; 7] = [
    Rules { name: "defaults", policy: "", at_will: false, live: true, hours: 6.0 },
    Rules { name: "layouts by restart", policy: "", at_will: false, live: false, hours: 6.0 },
    Rules { name: "min_batch_gain 0.01", policy: ":min_batch_gain=0.01", at_will: false, live: true, hours: 6.0 },
    Rules { name: "min_gain 0.03", policy: ":min_gain=0.03:fresh_gain=0.03", at_will: false, live: true, hours: 6.0 },
    Rules {
        name: "both",
        policy: ":min_gain=0.03:fresh_gain=0.03:min_batch_gain=0.01",
        at_will: false,
        live: true,
        hours: 6.0,
    },
    Rules {
        name: "both, moves at will",
        policy: ":min_gain=0.03:fresh_gain=0.03:min_batch_gain=0.01",
        at_will: true,
        live: true,
        hours: 6.0,
    },
    Rules { name: "a run four times as long", policy: "", at_will: false, live: true, hours: 24.0 },
];

/// One comparison to be made.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Question {
    pub case: Case,
    pub course: &'static str,
    pub world: World,
    pub rules: Rules,
    pub seed: u64,
}

/// All of the study: every set-up, course and world by the defaults; other rules on COPUS' set-ups with exponential noise.
#[must_use]
pub fn questions(seeds: std::ops::RangeInclusive<u64>) -> Vec<Question> {
    let [defaults, others @ ..] = RULES;
    let mut questions = Vec::new();
    for world in worlds() {
        for case in CASES {
            for course in COURSES {
                let drawn = seeds.clone().filter(|seed| world.drawn || seed == seeds.start());
                questions.extend(drawn.map(|seed| Question { case, course, world, rules: defaults, seed }));
            }
        }
    }
    let [as_modelled, ..] = worlds();
    for case in &CASES[..COPUS_CASES] {
        let of = |rules| Question { case: *case, course: COURSES[0], world: as_modelled, rules, seed: *seeds.start() };
        questions.extend(others.map(of));
    }
    questions
}
