//! The page on single jobs: every gain with the ceiling beside it.

use super::ceiling::{gain_of, most_saved};
use super::comparison::{Comparison, Fixed, Follower};
use super::course::{Moments, courses};
use super::question::{CASES, COPUS_CASES, COURSES, RULES, worlds};
use crate::document::Document;
use crate::plot::{Bars, Curves, PlotError};
use crate::table::over_seeds;

const ABOUT: &str = "What does following the gradient noise gain over the best fixed batch and layout, and how much of what could be gained? The \
    set-ups are those of COPUS (arXiv 2604.26687), then those of several nodes on a network of 3 GB/s per GPU: sequences of 2,048 tokens, plain \
    data, tensor and pipeline parallelism with or without recomputation, batches of 4 to 2,048 sequences that begin at 16, targets that count reference \
    tokens. Every run is to the same number of noise-free steps; in the best fixed batch it takes six hours. φ has a mean of 184 sequences: it grows from 4 to 1,024, or as measured.";
const COLUMNS: &str = "**Gain**: how much longer the best fixed batch takes, in its fastest layout; which batch that is, is known only afterwards. \
    **Ceiling**: the gain of whoever knows φ and all step times, and changes batch and layout for nothing; no policy is above it. **Share**: gain over \
    ceiling. **Batch alone**: the ceiling in the one layout that is best for it. **By 10 % (3 %)**: the gain of whoever knows all and changes \
    where goodput grows by so much, as COPUS does; a change of the layout takes its time. **Critical batch**: the gain of a batch of 2φ (COPUS' constant) or, \
    in brackets, of the multiple of φ that turns out best, in the layout that is fastest for 16 sequences (small) or for the largest batch (large); they know φ \
    and change for nothing. **Changes**: of the batch, of the layout, and restarts; **s per layout**: how long Headway's job stands still for one. Means over seeds ± standard deviation.";
const BOUND: &str = "Where a step takes T(B) = a + βB, a batch that follows φ saves 2x/(1 + x)² · (1 − ⟨√φ⟩/√⟨φ⟩) of the time of the best fixed one, with \
    x² = a/(β⟨φ⟩): at most half of the bracket, and that only where a = β⟨φ⟩. The means are over noise-free steps, of which a step of batch B is worth B/(φ + B): over \
    steps at a reference batch B₀, in which measurements come, each counts B₀/(φ + B₀). Measured: two models at the batches of the authors of Pollux \
    (petuum/adaptdl, Apache-2.0).";
const RULES_ABOUT: &str = "The same on COPUS' set-ups with exponential noise and step times as modelled, by other rules of decision. `min_batch_gain`: what a \
    live change of the batch must gain (default 0.03). `min_gain`: what a live change of the layout must gain, with `fresh_gain` (default 0.2). At will: no least time \
    between changes of the layout. In a run four times as long the noise grows as much in four times the hours.";

/// The page of all answers there are.
pub fn document(answers: &[&Comparison], command: &str) -> Result<Document, PlotError> {
    let mut document = Document::default();
    document.heading(1, "A single job that follows its noise");
    document.paragraph(ABOUT);
    document.code(command);
    document.paragraph(COLUMNS);
    summarise(&mut document, answers);
    document.heading(2, "What could be gained at most");
    document.paragraph(BOUND);
    tabulate_bounds(&mut document);
    for world in worlds() {
        let these = answers_in(answers, world.name, RULES[0].name);
        if these.is_empty() {
            continue;
        }
        document.heading(2, title(world.name));
        document.table(HEADERS.map(str::to_owned).to_vec(), rows(&these));
        let name = format!("single-{}", world.name.replace(' ', "-"));
        document.figure(name, "Gain over the best fixed batch and its ceiling, exponential noise", bars(&these)?);
    }
    let by_rules = rules_table(answers);
    if by_rules.len() > 1 {
        document.heading(2, "What stands between");
        document.paragraph(RULES_ABOUT);
        let cases = CASES[..COPUS_CASES]
            .iter()
            .map(|case| format!("{} {}: gain / ceiling % (share)", case.model, case.cluster));
        document.table(std::iter::once("rules".to_owned()).chain(cases).collect(), by_rules);
    }
    let paths = answers_in(answers, worlds()[0].name, RULES[0].name);
    if !paths.is_empty() {
        document.figure(
            "single-batches",
            "Batch over the run, exponential noise, step times as modelled",
            curves(&paths)?,
        );
    }
    Ok(document)
}

fn title(world: &str) -> &'static str {
    match world {
        "as modelled" => "Step times as the model has them",
        "terms off" => "Terms of the step time off (± 15 % per micro-batch, ± 30 % per step)",
        _ => "Every layout off by a factor of its own as well (± 8 %)",
    }
}

fn answers_in<'a>(answers: &[&'a Comparison], world: &str, rules: &str) -> Vec<&'a Comparison> {
    answers.iter().copied().filter(|one| one.world == world && one.rules == rules).collect()
}

/// The seeds of one set-up and course.
fn seeds_of<'a>(answers: &[&'a Comparison], model: &str, cluster: &str, course: &str) -> Vec<&'a Comparison> {
    let same = |one: &&&Comparison| one.model == model && one.cluster == cluster && one.course == course;
    answers.iter().filter(same).copied().collect()
}

/// The sentence that the study is made for.
fn summarise(document: &mut Document, answers: &[&Comparison]) {
    for world in worlds() {
        let these = answers_in(answers, world.name, RULES[0].name);
        let mut words = Vec::new();
        for case in &CASES[..COPUS_CASES] {
            let seeds = seeds_of(&these, case.model, case.cluster, COURSES[0]);
            if !seeds.is_empty() {
                let [gain, ceiling] = [Comparison::gain, Comparison::ceiling].map(|of| mean(&seeds, of));
                words.push(format!("{gain:.1} of {ceiling:.1} % ({})", share(gain, ceiling)));
            }
        }
        if words.len() == COPUS_CASES {
            document.paragraph(format!(
                "{}: on COPUS' four set-ups with exponential noise Headway gains {}.",
                title(world.name),
                words.join(", ")
            ));
        }
    }
}

fn mean(answers: &[&Comparison], of: impl Fn(&Comparison) -> f64) -> f64 {
    over_seeds(&answers.iter().map(|one| of(one)).collect::<Vec<f64>>()).0
}

/// Gain over ceiling, where there is anything to be gained.
fn share(gain: f64, ceiling: f64) -> String {
    if ceiling < 0.5 { "–".to_owned() } else { format!("{:.0} %", 100.0 * gain / ceiling) }
}

fn tabulate_bounds(document: &mut Document) {
    let headers = ["noise", "φ at first", "φ at last", "⟨√φ⟩/√⟨φ⟩", "saved at most %", "gained at most %"];
    let rows = courses().into_iter().map(|course| {
        let moments @ Moments { mean, mean_root } = course.moments();
        let [first, last] = [course.parts.first(), course.parts.last()].map(|part| part.map_or(0.0, |(_, phi)| *phi));
        let saved = most_saved(moments);
        vec![
            course.name.to_owned(),
            format!("{first:.1}"),
            format!("{last:.0}"),
            format!("{:.3}", mean_root / mean.sqrt()),
            format!("{:.1}", 100.0 * saved),
            format!("{:.1}", gain_of(saved)),
        ]
    });
    document.table(headers.map(str::to_owned).to_vec(), rows.collect());
}

const HEADERS: [&str; 15] = [
    "model",
    "cluster",
    "noise",
    "best fixed",
    "h",
    "Headway h",
    "gain %",
    "ceiling %",
    "share",
    "batch alone %",
    "by 10 % (3 %)",
    "critical batch, small %",
    "critical batch, large %",
    "changes",
    "s per layout",
];

fn rows(answers: &[&Comparison]) -> Vec<Vec<String>> {
    let mut rows = Vec::new();
    for case in CASES {
        for course in COURSES {
            let seeds = seeds_of(answers, case.model, case.cluster, course);
            if !seeds.is_empty() {
                rows.push(row(&seeds, [case.model, case.cluster, course]));
            }
        }
    }
    rows
}

fn row(seeds: &[&Comparison], names: [&str; 3]) -> Vec<String> {
    let written = |of: &dyn Fn(&Comparison) -> f64| {
        let values: Vec<f64> = seeds.iter().map(|one| of(one)).collect();
        let (mean, spread) = over_seeds(&values);
        if values.len() > 1 { format!("{mean:.1} ± {spread:.1}") } else { format!("{mean:.1}") }
    };
    let plain = |of: &dyn Fn(&Comparison) -> f64| format!("{:.1}", mean(seeds, of));
    let mut best: Vec<String> =
        seeds.iter().filter_map(|one| one.best()).map(|one: &Fixed| format!("{}: {}", one.batch, one.layout)).collect();
    best.dedup();
    let [gain, ceiling] = [Comparison::gain, Comparison::ceiling].map(|of| mean(seeds, of));
    let follower = |of: fn(&Comparison) -> Follower| {
        let gained = |hours: fn(Follower) -> f64| mean(seeds, |one| one.gain_of(hours(of(one))));
        format!("{:.0} ({:.1})", gained(|one| one.copus), gained(|one| one.kindest))
    };
    let changes = |of: fn(&Comparison) -> f64| format!("{:.0}", mean(seeds, of));
    let mut cells = names.map(str::to_owned).to_vec();
    cells.extend([
        best.join("; "),
        format!("{:.2}", mean(seeds, |one| one.best().map_or(0.0, |best| best.hours))),
        format!("{:.2}", mean(seeds, |one| one.headway.hours)),
        written(&Comparison::gain),
        written(&Comparison::ceiling),
        share(gain, ceiling),
        plain(&|one| one.gain_of(one.batch_alone)),
        format!(
            "{:.1} ({:.1})",
            mean(seeds, |one| one.gain_of(one.by_ten_percent)),
            mean(seeds, |one| one.gain_of(one.by_three_percent))
        ),
        follower(|one| one.pessimistic),
        follower(|one| one.optimistic),
        [
            changes(|one| f64::from(one.headway.batch_changes)),
            changes(|one| f64::from(one.headway.layout_changes)),
            changes(|one| one.headway.restarts as f64),
        ]
        .join(", "),
        format!("{:.0}", 60.0 * mean(seeds, |one| one.change_minutes)),
    ]);
    cells
}

/// A row per set of rules, the defaults first, a cell per set-up.
fn rules_table(answers: &[&Comparison]) -> Vec<Vec<String>> {
    let mut rows = Vec::new();
    for rules in RULES {
        let these = answers_in(answers, worlds()[0].name, rules.name);
        let cells = CASES[..COPUS_CASES].iter().map(|case| {
            let seeds = seeds_of(&these, case.model, case.cluster, COURSES[0]);
            let [gain, ceiling] = [Comparison::gain, Comparison::ceiling].map(|of| mean(&seeds, of));
            if seeds.is_empty() {
                "–".to_owned()
            } else {
                format!("{gain:.1} / {ceiling:.1} ({})", share(gain, ceiling))
            }
        });
        if !these.is_empty() {
            rows.push(std::iter::once(rules.name.to_owned()).chain(cells).collect());
        }
    }
    rows
}

fn short_name(model: &str, cluster: &str) -> String {
    format!("{} {cluster}", model.rsplit('-').next().unwrap_or(model))
}

fn bars(answers: &[&Comparison]) -> Result<String, PlotError> {
    let (mut groups, mut gains, mut ceilings) = (Vec::new(), Vec::new(), Vec::new());
    for case in CASES {
        let seeds = seeds_of(answers, case.model, case.cluster, COURSES[0]);
        if seeds.is_empty() {
            continue;
        }
        groups.push(short_name(case.model, case.cluster));
        gains.push(over_seeds(&seeds.iter().map(|one| one.gain()).collect::<Vec<f64>>()));
        ceilings.push(over_seeds(&seeds.iter().map(|one| one.ceiling()).collect::<Vec<f64>>()));
    }
    Bars { y: "gain %", groups, series: vec![("ceiling".into(), ceilings), ("Headway".into(), gains)] }.svg()
}

fn curves(answers: &[&Comparison]) -> Result<String, PlotError> {
    let mut series = Vec::new();
    for case in &CASES[..COPUS_CASES] {
        for one in seeds_of(answers, case.model, case.cluster, COURSES[0]) {
            series.push((short_name(case.model, case.cluster), stairs(&one.headway.path)));
        }
    }
    Curves { x: "share of the noise-free steps", y: "log₂ of the batch", series }.svg()
}

/// A batch holds until the next one.
fn stairs(path: &[(f64, u64)]) -> Vec<(f64, f64)> {
    let height = |batch: u64| (batch.max(1) as f64).log2();
    let ends = path.iter().skip(1).map(|(share, _)| *share).chain([1.0]);
    path.iter().zip(ends).flat_map(|((from, batch), to)| [(*from, height(*batch)), (to, height(*batch))]).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::single::race::Finish;

    fn answer(hours: f64) -> Comparison {
        let case = CASES[0];
        let follower = Follower { copus: 12.0, kindest: 10.0 };
        Comparison {
            model: case.model.into(),
            cluster: case.cluster.into(),
            course: COURSES[0].into(),
            world: worlds()[0].name.into(),
            rules: RULES[0].name.into(),
            seed: 1,
            fixed: vec![
                Fixed { batch: 32, layout: "dp8".into(), hours: 10.5 },
                Fixed { batch: 64, layout: "dp4".into(), hours: 12.0 },
            ],
            pessimistic: follower,
            optimistic: follower,
            by_ten_percent: 10.3,
            by_three_percent: 10.1,
            joint: 10.0,
            batch_alone: 10.2,
            change_minutes: 0.4,
            headway: Finish { hours, batch_changes: 5, path: vec![(0.0, 16), (0.5, 64)], ..Finish::default() },
        }
    }

    #[test]
    fn every_gain_stands_beside_its_ceiling() {
        let one = answer(10.25);
        let text = document(&[&one], "headway evaluate").unwrap().markdown();
        assert!(
            text.contains("| 32: dp8 | 10.50 | 10.25 | 2.4 | 5.0 | 49 % | 2.9 | 1.9 (4.0) | -12 (5.0) |"),
            "{text}"
        );
        assert!(text.contains("gained at most %") && text.contains("| exponential | 4.0 |"), "{text}");
    }

    #[test]
    fn a_batch_holds_until_the_next() {
        assert_eq!(stairs(&[(0.0, 4), (0.5, 16)]), [(0.0, 2.0), (0.5, 2.0), (0.5, 4.0), (1.0, 4.0)]);
    }
}
