//! Rounds with a little of everything: several classes and fabric domains, broken and draining nodes, hosts, reservations,
//! a tree of projects, users, floors, power and move limits, and jobs of every kind, some of which run already.

use std::fmt;
use std::sync::Arc;

use headway_types::report::{Capabilities, Flexibility};
use headway_types::spec::{NodeResources, Priority, Work};
use headway_types::{Bytes, GpuCount, GpuSeconds, GpuType, Layout, NodeCount, Seconds, Timestamp, Tokens};
use proptest::prelude::*;
use proptest::sample::select;

use crate::builder::{NOW, after, job, model_of, node, node_id, project, reservation, round, table};
use crate::claim::Spread;
use crate::curves::CurveCache;
use crate::ending::Departure;
use crate::input::{Freedom, PlanInput, PlanJob, PlanNode, PlanWork};
use crate::plan;
use crate::policy::{Policy, PowerCap};
use crate::project::PlanProject;
use crate::reservation::Reservation;
use crate::site::{Amount, Label, SiteRow};

/// GPU types of the nodes, and the GPUs of one.
const KINDS: [(&str, u32); 5] = [("alpha", 4), ("alpha", 4), ("alpha", 2), ("beta", 4), ("gamma", 4)];
/// How fast a type is, as a multiple of `alpha`.
const SPEEDS: [(&str, f64); 3] = [("alpha", 1.0), ("beta", 3.0), ("gamma", 0.25)];
const PROJECTS: [&str; 4] = ["a", "b", "c", "d"];
const USERS: [&str; 2] = ["ada", "bob"];

type NodeParts = (usize, u8, usize, bool, NodeResources);
type ProjectParts = (usize, (Option<u32>, u32, Option<u32>, Option<u32>), f64, f64);

fn rarely<T: Clone + std::fmt::Debug + 'static>(
    value: impl Strategy<Value = T> + 'static,
) -> impl Strategy<Value = Option<T>> {
    proptest::option::weighted(0.2, value)
}

/// What hosts have, or jobs need of them: each rarely told, in steps of what rows count in.
fn host(below: u32) -> impl Strategy<Value = NodeResources> {
    let bytes = move || rarely(1..u64::from(below)).prop_map(|units| units.map(|units| Bytes(units << 24)));
    (rarely(1..below), bytes(), bytes(), bytes()).prop_map(|(cpus, memory, shm, local_disk)| NodeResources {
        cpus,
        memory,
        shm,
        local_disk,
    })
}

fn nodes() -> impl Strategy<Value = Vec<PlanNode>> {
    let host = host(9);
    let kind = (0..KINDS.len(), 0u8..2, 0usize..6, proptest::bool::weighted(0.1), host);
    proptest::collection::vec(kind, 1..5).prop_map(|kinds| {
        let made = |(number, (kind, domain, broken, draining, host)): (usize, NodeParts)| {
            let (gpu_type, gpus): (&str, u32) = KINDS[kind];
            let mut node = node(number as u32 + 1, gpu_type, gpus);
            node.class.fabric.domain = format!("rack-{domain}");
            let speed = SPEEDS.iter().find(|(name, _)| *name == gpu_type).map_or(1.0, |(_, speed)| *speed);
            if let Some(device) = &mut node.class.emulated {
                device.flop_per_second = (device.flop_per_second as f64 * speed) as u64;
            }
            // Mostly whole, sometimes one or two GPUs short.
            node.gpus.truncate(node.gpus.len().saturating_sub(broken.saturating_sub(3)));
            node.draining = draining;
            node.host = host;
            node
        };
        kinds.into_iter().enumerate().map(made).collect()
    })
}

fn works(min: u32, max: u32) -> impl Strategy<Value = PlanWork> {
    let modelled = Just(job(1, 1, 1).work);
    let curve = proptest::collection::btree_map((min..=max).prop_map(GpuCount), 0.5..4.0f64, 1..3)
        .prop_map(|points| PlanWork::Model(model_of(Work::Curve { points, seq_len: 64 })));
    let row = (min..=max, 0.0..4.0f64, rarely(1u32..3), rarely(50.0..900.0f64), 0usize..3, 0usize..2);
    let told = proptest::collection::vec(row, 0..4).prop_map(|rows| {
        let made =
            |(gpus, goodput, nodes, watts, label, gpu_type): (u32, f64, Option<u32>, Option<f64>, usize, usize)| {
                let mut row =
                    table(["alpha", "beta"][gpu_type], &[(gpus, goodput, [None, Some("x"), Some("y")][label])])
                        .rows
                        .remove(0);
                row.nodes = nodes.map(NodeCount);
                row.watts_per_gpu = watts;
                row
            };
        PlanWork::Table(Arc::new(crate::table::GoodputTable { rows: rows.into_iter().map(made).collect() }))
    });
    prop_oneof![3 => modelled, 3 => Just(PlanWork::Opaque), 1 => curve, 3 => told]
}

/// What a job is owed, and what bounds it.
fn claimed(job: PlanJob) -> impl Strategy<Value = PlanJob> {
    let who = (0..=PROJECTS.len() + 1, 0..USERS.len(), 0u8..101);
    let owed = (rarely(0u32..5), rarely(0.0..9_000.0f64), rarely(0.0..9_000.0f64), rarely(0.0..2_000.0f64));
    let ends = (rarely(1.0..1e6f64), rarely(1.0..5_000.0f64), rarely(-1.0..1e6f64), rarely(0.0..2_000.0f64));
    (who, owed, ends).prop_map(
        move |((project, user, priority), (floor, waited, ran, since), (left, due, budget, time))| {
            let mut job = job.clone();
            job.priority = Priority(priority);
            // Beyond the last: a project that the round does not know.
            job.claim.project = PROJECTS.get(project).map_or("unknown", |name| *name).into();
            job.claim.user = USERS[user].into();
            job.claim.floor = GpuCount(floor.unwrap_or(0));
            job.claim.waited = Seconds(waited.unwrap_or(0.0));
            job.claim.ran = Seconds(ran.unwrap_or(0.0));
            job.claim.since_move = since.map(Seconds);
            job.remaining = left.map(Tokens);
            job.bounds.deadline = due.map(|seconds| NOW + Seconds(seconds));
            job.bounds.budget_left = budget.map(GpuSeconds);
            job.bounds.time_left = time.map(Seconds);
            let takes = [0.0, 60.0, 600.0, 1e5][usize::from(priority % 4)];
            job.departure = Departure { saves: takes > 0.0, never: false, takes: Seconds(takes) };
            job
        },
    )
}

/// What it needs of its nodes, and what its script can do.
fn needing(job: PlanJob) -> impl Strategy<Value = PlanJob> {
    let host = host(6);
    let script = (select(vec![Flexibility::Live, Flexibility::Restart, Flexibility::Never]), rarely(1u32..5));
    let bound = (rarely(0u32..5), any::<bool>(), rarely(0usize..2));
    (host, script, proptest::bool::weighted(0.3), bound).prop_map(
        move |(host, (batch, layout), never, (avoid, spread, gpu_type))| {
            let mut job = job.clone();
            job.needs.per_node = host;
            job.needs.avoid = avoid.map(node_id).into_iter().collect();
            job.needs.spread = if spread { Spread::Require } else { Spread::Prefer };
            job.needs.layout = layout.map(|dp| Layout { dp, tp: 1, pp: 1, ..Layout::single() });
            job.range.mixed = !spread;
            job.range.types = gpu_type.map(|kind| GpuType(["alpha", "beta"][kind].into())).into_iter().collect();
            let layout = if never { Flexibility::Never } else { Flexibility::Restart };
            job.capabilities = Capabilities { batch, layout };
            job
        },
    )
}

pub(super) fn jobs(most: usize) -> impl Strategy<Value = Vec<PlanJob>> {
    let one = (1u32..4, 0u32..5)
        .prop_flat_map(|(min, more)| works(min, min + more).prop_map(move |work| (min, min + more, work)));
    let one = one.prop_map(|(min, max, work)| PlanJob { work, ..job(1, min, max) });
    let one = one.prop_flat_map(claimed).prop_flat_map(needing);
    proptest::collection::vec(one, 1..=most).prop_map(|jobs| {
        let numbered = |(number, of): (usize, PlanJob)| {
            let PlanJob { job, name, .. } = self::job(number as u32 + 1, 1, 1);
            PlanJob { job, name, ..of }
        };
        jobs.into_iter().enumerate().map(numbered).collect()
    })
}

fn projects() -> impl Strategy<Value = Vec<PlanProject>> {
    let limits = (proptest::option::of(0u32..8), 0u32..4, rarely(1u32..6), rarely(0u32..5));
    let one = (0..=PROJECTS.len() + 1, limits, 0.0..3.0f64, 0.0..100.0f64);
    proptest::collection::vec(one, 0..=PROJECTS.len()).prop_map(|projects| {
        let made = |(at, (parent, (quota, borrow, floor, most), weight, usage)): (usize, ProjectParts)| {
            // Itself, unknown ones and circles included.
            let parent: Option<&str> =
                if parent > PROJECTS.len() { Some("nobody") } else { PROJECTS.get(parent).copied() };
            PlanProject {
                quota: quota.map(GpuCount),
                borrow: GpuCount(borrow),
                floor: GpuCount(floor.unwrap_or(0)),
                max_per_user: most.map(GpuCount),
                weight,
                usage,
                ..project(PROJECTS[at], parent)
            }
        };
        projects.into_iter().enumerate().map(made).collect()
    })
}

fn reservations() -> impl Strategy<Value = Vec<Reservation>> {
    let time = || select(vec![-900.0, 0.0, 600.0, 1_200.0]);
    let one = (proptest::collection::vec(0u32..6, 0..3), time(), time(), 0usize..5, 0usize..4);
    proptest::collection::vec(one, 0..3).prop_map(|all| {
        let made = |(nodes, from, until, project, user): (Vec<u32>, f64, f64, usize, usize)| {
            // Minutes, hours or about a week away.
            let stretched = [1.0, 1.0, 12.0, 1_000.0][user];
            let at = |seconds: f64| Timestamp(NOW.0 + (seconds * stretched * 1e6) as i64);
            let mut made = reservation("maintenance", &nodes, at(from), at(until));
            made.projects = PROJECTS.get(project).map(|name| (*name).to_owned()).into_iter().collect();
            made.users = USERS.get(user).map(|name| (*name).to_owned()).into_iter().collect();
            made
        };
        all.into_iter().map(made).collect()
    })
}

fn policies() -> impl Strategy<Value = Policy> {
    let cap = (0.0..12_000.0f64, 0.0..150.0f64, rarely(100.0..1_000.0f64));
    (rarely(0u32..3), rarely(cap), select(vec![None, Some(3_600.0)]), select(vec![-0.5, 0.0, 1.0])).prop_map(
        |(max_moves, cap, patience, power)| {
            let power_cap = cap.map(|(watts, idle, busy)| {
                let busy = busy.map(|watts| (GpuType("alpha".into()), watts)).into_iter().collect();
                PowerCap { watts, busy, idle }
            });
            Policy { max_moves, power_cap, patience: patience.map(Seconds), power, ..Policy::default() }
        },
    )
}

/// A round that a failing law shows in a few lines.
#[derive(Clone)]
pub(crate) struct AnyRound(pub PlanInput);

impl fmt::Debug for AnyRound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let PlanInput { policy, nodes, jobs, projects, reservations, .. } = &self.0;
        writeln!(f, "{policy:?}")?;
        for PlanNode { name, class, gpus, draining, host, .. } in nodes {
            let (kind, built, domain) = (&class.gpu_type, class.gpus_per_node, &class.fabric.domain);
            let usable = gpus.len();
            writeln!(f, "{name}: {kind} {usable} of {built} in {domain}, draining {draining}, {host:?}")?;
        }
        for PlanJob {
            name,
            priority,
            range,
            work,
            capabilities,
            current,
            freedom,
            claim,
            bounds,
            departure,
            needs,
            remaining,
            ..
        } in jobs
        {
            let work = match work {
                PlanWork::Opaque => "opaque".to_owned(),
                PlanWork::Model(model) => format!("{:?}", model.training.work),
                PlanWork::Table(table) => format!("{:?}", table.rows),
            };
            let (least, most, types) = (range.min, range.max, &range.types);
            writeln!(
                f,
                "{name}: {least}..={most} of {types:?}, {priority:?}, {capabilities:?}, {freedom:?}, {remaining:?}, {work}"
            )?;
            writeln!(f, "  {claim:?}\n  {bounds:?} {departure:?}\n  {needs:?}")?;
            if let Some(at) = current {
                let held: Vec<&str> = at.placement.ranks().map(|(_, gpu)| gpu.0.as_str()).collect();
                writeln!(f, "  holds {held:?} with {:?} {:?}", at.configuration, at.label)?;
            }
        }
        projects.iter().try_for_each(|project| writeln!(f, "{project:?}"))?;
        reservations.iter().try_for_each(|reservation| writeln!(f, "{reservation:?}"))
    }
}

/// A round of up to `most` jobs. Those that came first run, placed before there were any rules.
pub(crate) fn any_round(most: usize) -> impl Strategy<Value = AnyRound> {
    let rules = (projects(), reservations(), policies());
    (nodes(), jobs(most), rules, 0..most, rarely(0..most)).prop_map(
        |(nodes, jobs, (projects, reservations, policy), running, fixed)| {
            let mut input = PlanInput { projects, reservations, policy, ..round(nodes, jobs) };
            let mut early = round(input.nodes.clone(), input.jobs[..running.min(input.jobs.len())].to_vec());
            early.nodes.iter_mut().for_each(|node| node.draining = false);
            let running = after(&early, &plan(&early, &mut CurveCache::new()).expect("a round without rules"));
            for (job, earlier) in input.jobs.iter_mut().zip(&running.jobs) {
                job.current.clone_from(&earlier.current);
            }
            if let Some(job) = fixed.and_then(|fixed| input.jobs.get_mut(fixed)) {
                job.freedom = Freedom::Fixed { reason: "it started a minute ago".into() };
            }
            AnyRound(input)
        },
    )
}

/// What a row counts: mostly one thing, of which half the jobs have the label, sometimes two.
fn amounts() -> impl Strategy<Value = Amount> {
    let one = (0usize..4, 0u32..5, 0usize..PROJECTS.len());
    proptest::collection::vec(one, 1..3).prop_map(|named| {
        let mut amount = Amount::default();
        for (what, node, project) in named {
            match what {
                0 => amount.gpu_type = Some(GpuType("alpha".into())),
                1 => amount.project = Some(PROJECTS[project].into()),
                2 => amount.label = Some(Label { key: "team".into(), value: "x".into() }),
                _ => amount.node = Some(format!("n{}", node + 1)),
            }
        }
        amount
    })
}

/// The same with rows of the site's own.
pub(super) fn any_ruled_round(most: usize) -> impl Strategy<Value = AnyRound> {
    let rows = proptest::collection::vec((amounts(), 0u32..9), 1..4);
    (any_round(most), rows, proptest::collection::vec(any::<bool>(), most)).prop_map(
        |(AnyRound(mut input), rows, labelled)| {
            let row = |(at, (amount, at_most)): (usize, (Amount, u32))| SiteRow {
                name: format!("r{at}"),
                amount,
                at_most: GpuCount(at_most),
            };
            input.policy.rows = rows.into_iter().enumerate().map(row).collect();
            for (job, _) in input.jobs.iter_mut().zip(labelled).filter(|(_, labelled)| *labelled) {
                job.claim.labels = [("team".to_owned(), "x".to_owned())].into();
            }
            AnyRound(input)
        },
    )
}
