//! Documents nobody would write: refused or solved, never a panic; and what was solved before changes nothing.

use headway_api::solve as wire;
use headway_fuzz::Target;
use headway_planner::{CurveCache, plan, verify};
use proptest::prelude::*;
use serde_json::{Map, Value, json};

use super::Names;

/// Numbers that break things.
fn number() -> impl Strategy<Value = Value> {
    prop_oneof![
        4 => (0u32..20).prop_map(|number| json!(number)),
        2 => (0.0..1e5).prop_map(|number| json!(number)),
        1 => prop::sample::select(vec![-1.0, -0.0, 1e-300, 1e9, 1e23, 1e300, f64::MAX]).prop_map(|number| json!(number)),
        1 => prop::sample::select(vec![u64::from(u32::MAX), u64::MAX, 1 << 20]).prop_map(|number| json!(number)),
    ]
}

fn small() -> impl Strategy<Value = Value> {
    prop_oneof![9 => (1u32..17).prop_map(|number| json!(number)), 1 => number()]
}

fn name(of: &'static [&'static str]) -> impl Strategy<Value = Value> {
    prop::sample::select(of).prop_map(|name| json!(name))
}

/// A mapping with the given keys, of which those not required are there now and then.
fn mapping(
    required: Vec<(&'static str, BoxedStrategy<Value>)>,
    optional: Vec<(&'static str, BoxedStrategy<Value>)>,
) -> BoxedStrategy<Value> {
    let some = required.into_iter().map(|(key, value)| value.prop_map(move |value| Some((key, value))).boxed());
    let rare = optional
        .into_iter()
        .map(|(key, value)| prop_oneof![3 => Just(None), 1 => value.prop_map(move |value| Some((key, value)))].boxed());
    let fields: Vec<BoxedStrategy<Option<(&'static str, Value)>>> = some.chain(rare).collect();
    fields
        .prop_map(|fields| {
            let fields = fields.into_iter().flatten().map(|(key, value)| (key.to_owned(), value));
            Value::Object(fields.collect::<Map<_, _>>())
        })
        .boxed()
}

fn list(of: BoxedStrategy<Value>, most: usize) -> BoxedStrategy<Value> {
    prop::collection::vec(of, 0..=most).prop_map(Value::Array).boxed()
}

const NODES: &[&str] = &["h-0", "h-1", "a-0", "a-1", "nowhere"];
const TYPES: &[&str] = &["H", "A", "Z"];
const PROJECTS: &[&str] = &["p", "q", "r", ""];

fn nodes() -> BoxedStrategy<Value> {
    let group = |gpu_type: &'static str, prefix: &'static str| {
        let extra = vec![
            ("domain", name(&["r1", "r2"]).boxed()),
            ("cpus", small().boxed()),
            ("draining", list(name(NODES).boxed(), 1)),
            (
                "broken",
                (name(NODES), small()).prop_map(|(node, index)| json!({node.as_str().unwrap_or(""): [index]})).boxed(),
            ),
        ];
        mapping(
            vec![
                ("gpu_type", Just(json!(gpu_type)).boxed()),
                ("name", Just(json!(prefix)).boxed()),
                ("gpus_per_node", prop::sample::select(vec![1, 4, 8]).prop_map(|gpus| json!(gpus)).boxed()),
                ("count", (0u32..5).prop_map(|count| json!(count)).boxed()),
            ],
            extra,
        )
    };
    (group("H", "h"), group("A", "a")).prop_map(|(h, a)| json!([h, a])).boxed()
}

fn goodput() -> BoxedStrategy<Value> {
    let row = mapping(
        vec![("gpus", small().boxed()), ("goodput", number().boxed())],
        vec![
            ("gpu_type", name(TYPES).boxed()),
            ("nodes", small().boxed()),
            ("watts_per_gpu", number().boxed()),
            ("label", name(&["x", "y"]).boxed()),
        ],
    );
    let points = prop::collection::btree_map(1u32..17, 0.01..100.0f64, 1..5).prop_map(|points| json!(points));
    prop_oneof![list(row, 6), points].boxed()
}

fn allocation() -> BoxedStrategy<Value> {
    let held = prop_oneof![small(), list((0u32..9).prop_map(|index| json!(index)).boxed(), 4)];
    let nodes = prop::collection::btree_map(prop::sample::select(NODES), held, 0..3).prop_map(|nodes| json!(nodes));
    mapping(vec![("nodes", nodes.boxed())], vec![("goodput", number().boxed()), ("label", name(&["x", "y"]).boxed())])
}

fn job() -> BoxedStrategy<Value> {
    let range =
        mapping(vec![], vec![("min", small().boxed()), ("max", small().boxed()), ("sizes", list(small().boxed(), 4))]);
    let seconds = || number().boxed();
    mapping(
        vec![("goodput", goodput())],
        vec![
            ("gpus", prop_oneof![small(), range].boxed()),
            ("gpu_types", list(name(TYPES).boxed(), 2)),
            ("priority", (0u32..103).prop_map(|level| json!(level)).boxed()),
            ("project", name(PROJECTS).boxed()),
            ("user", name(&["u", "v"]).boxed()),
            ("age_seconds", seconds()),
            ("waited_seconds", seconds()),
            ("ran_seconds", seconds()),
            ("attained_gpu_seconds", seconds()),
            ("since_move_seconds", seconds()),
            ("remaining", seconds()),
            ("allocation", allocation()),
            ("pinned", any::<bool>().prop_map(|pinned| json!(pinned)).boxed()),
            ("restart_seconds", seconds()),
            ("rework_seconds", seconds()),
            ("reconfigure", name(&["restart", "never"]).boxed()),
            ("deadline_seconds", seconds()),
            ("budget_gpu_seconds", seconds()),
            ("time_left_seconds", seconds()),
            ("floor", small().boxed()),
            ("avoid", list(name(NODES).boxed(), 2)),
            ("spread", name(&["prefer", "require"]).boxed()),
            (
                "per_node",
                mapping(
                    vec![],
                    vec![
                        ("cpus", small().boxed()),
                        ("memory_bytes", number().boxed()),
                        ("shm_bytes", number().boxed()),
                        ("local_disk_bytes", number().boxed()),
                    ],
                ),
            ),
        ],
    )
}

fn policy() -> BoxedStrategy<Value> {
    let objectives = &[
        "goodput",
        "sia",
        "sia_simulated",
        "pollux",
        "pollux_layouts",
        "least_attained",
        "fifo_backfill",
        "shortest_remaining",
        "static",
    ];
    mapping(
        vec![("objective", name(objectives).boxed())],
        vec![
            ("power", prop::sample::select(vec![-1.0, 0.0, 0.5, 1.0]).prop_map(|power| json!(power)).boxed()),
            ("epsilon", number().boxed()),
            ("horizon_seconds", number().boxed()),
            ("patience_seconds", prop_oneof![number().boxed(), Just(Value::Null).boxed()].boxed()),
            ("service_exponent", number().boxed()),
            ("max_moves", small().boxed()),
            ("power_cap", mapping(vec![("watts", number().boxed())], vec![("idle_watts", number().boxed())])),
        ],
    )
}

fn document() -> BoxedStrategy<Value> {
    let project = mapping(
        vec![("name", name(PROJECTS).boxed())],
        vec![
            ("parent", name(PROJECTS).boxed()),
            ("quota", small().boxed()),
            ("borrow", small().boxed()),
            ("floor", small().boxed()),
            ("weight", number().boxed()),
            ("usage", number().boxed()),
            ("max_per_user", small().boxed()),
        ],
    );
    let reservation = mapping(
        vec![
            ("name", Just(json!("r")).boxed()),
            ("nodes", list(name(NODES).boxed(), 2)),
            ("until_seconds", number().boxed()),
        ],
        vec![("from_seconds", number().boxed()), ("users", list(name(&["u"]).boxed(), 1))],
    );
    let jobs = prop::collection::vec(job(), 0..6).prop_map(|mut jobs| {
        jobs.iter_mut().enumerate().for_each(|(at, job)| job["name"] = json!(format!("j{at}")));
        Value::Array(jobs)
    });
    mapping(
        vec![("version", Just(json!(1)).boxed()), ("nodes", nodes()), ("jobs", jobs.boxed())],
        vec![("projects", list(project, 3)), ("reservations", list(reservation, 2)), ("policy", policy())],
    )
}

/// The reply as bytes, or the refusal.
fn answer(document: &Value, names: &mut Names, curves: &mut CurveCache) -> Result<String, TestCaseError> {
    let input = wire::read(&document.to_string()).and_then(|document| super::input(document, names));
    let input = match input {
        Ok(input) => input,
        Err(error) => return Ok(error.to_string()),
    };
    let plan = plan(&input, curves).map_err(|error| TestCaseError::fail(format!("no plan: {error}")))?;
    verify(&input, &plan).map_err(|violation| TestCaseError::fail(format!("the plan does not hold: {violation}")))?;
    let reply = serde_json::to_string(&super::reply(None, &input, &plan));
    reply.map_err(|error| TestCaseError::fail(error.to_string()))
}

proptest! {
    #[test]
    fn any_document_is_refused_or_solved(document in document()) {
        answer(&document, &mut Names::default(), &mut CurveCache::new())?;
    }

    #[test]
    fn what_was_solved_before_changes_nothing(documents in prop::collection::vec(document(), 2..4)) {
        let (mut names, mut curves) = (Names::default(), CurveCache::new());
        for document in documents {
            let after = answer(&document, &mut names, &mut curves)?;
            let alone = answer(&document, &mut Names::default(), &mut CurveCache::new())?;
            prop_assert_eq!(after, alone);
        }
    }
}

#[rustfmt::skip]
const WORDS: &[&str] = &[
    "version", "round", "trigger", "nodes", "jobs", "projects", "reservations", "policy", "gpu_type", "gpus_per_node",
    "count", "name", "names", "domain", "broken", "draining", "cpus", "memory_bytes", "parent", "quota", "borrow",
    "floor", "weight", "usage", "max_per_user", "from_seconds", "until_seconds", "users", "goodput", "gpus", "min",
    "max", "sizes", "gpu_types", "priority", "project", "user", "age_seconds", "remaining", "allocation", "pinned",
    "restart_seconds", "reconfigure", "never", "deadline_seconds", "budget_gpu_seconds", "per_node", "spread",
    "require", "avoid", "label", "watts_per_gpu", "objective", "power", "solver", "rows", "exponent",
    "horizon_seconds", "H100-80G", "H100-80G-0",
];
/// Of what a million documents ask for, every so many-th is solved; they differ in how they are written far more than in what they ask.
const SOLVED: usize = 16;

#[test]
fn any_text_is_refused_or_solved() {
    let target = Target::text("plan-solve", WORDS).files("examples/plan-solve", ".json");
    let number = std::cell::Cell::new(0_usize);
    target.check(|input| {
        let text = String::from_utf8_lossy(input);
        let read = wire::read(&text).and_then(|document| super::input(document, &mut Names::default()));
        let input = match read {
            Ok(input) => input,
            Err(error) => {
                assert!(!error.to_string().is_empty());
                return false;
            }
        };
        number.set(number.get() + 1);
        // A thousand nodes and jobs are for the benchmarks.
        if number.get().is_multiple_of(SOLVED) && input.nodes.len() <= 64 && input.jobs.len() <= 16 {
            let plan = plan(&input, &mut CurveCache::new()).unwrap_or_else(|error| panic!("no plan: {error}"));
            verify(&input, &plan).unwrap_or_else(|violation| panic!("the plan does not hold: {violation}"));
            assert!(serde_json::to_string(&super::reply(None, &input, &plan)).is_ok());
        }
        true
    });
}
