//! Jobs that no shape of this cluster suits, now or ever.

use headway_types::spec::HostResource;
use headway_types::{GpuCount, Reason, ReasonCode, Seconds};

use super::{gpus, list, reason, span};
use crate::candidate::may_mix;
use crate::claim::Spread;
use crate::curves::Lack;
use crate::ending;
use crate::input::PlanJob;
use crate::obstacle::{Closed, Obstacle};
use crate::round::Round;

/// Nodes that a sentence names.
const MOST_NAMED: usize = 3;
const GIB: f64 = (1u64 << 30) as f64;

/// The headline and what stands behind it.
pub(crate) fn obstructed(round: &Round<'_>, job: &PlanJob, obstacle: &Obstacle) -> (String, Vec<Reason>) {
    let (wanted, least) = (&job.range, job.least());
    let never = |code, detail: String| {
        let headline = format!("Cannot run on this cluster: {detail}");
        (headline, vec![reason(ReasonCode::Never, true, detail.clone()), reason(code, true, detail)])
    };
    let waits = |code, detail: String| (format!("Needs {}; {detail}", gpus(least)), vec![reason(code, true, detail)]);
    match obstacle {
        Obstacle::WrongType => {
            let types: Vec<String> = wanted.types.iter().map(ToString::to_string).collect();
            never(ReasonCode::WrongGpuType, format!("it accepts only {}, and no node has that", types.join(", ")))
        }
        Obstacle::TooLarge { built } if round.cluster.classes.is_empty() => {
            let detail = format!("no node offers GPUs yet ({built} of {})", gpus(least));
            (format!("Waits: {detail}"), vec![reason(ReasonCode::NodesUnhealthy, true, detail)])
        }
        Obstacle::TooLarge { built } => {
            let (of, largest) = match job.needs.spread {
                Spread::Prefer if may_mix(job) => ("two node classes", "the largest two have"),
                Spread::Prefer => ("one node class", "the largest has"),
                Spread::Require => ("one rack", "the largest has"),
            };
            let detail = format!("it needs {} of {of}, and {largest} {built}", gpus(least));
            never(ReasonCode::NotEnoughFree, detail)
        }
        Obstacle::HostTooSmall { lacking } => {
            let lacking: Vec<String> = lacking.iter().map(|of| host_need(job, *of)).collect();
            let detail = format!("it takes {} on each node, more than the nodes it accepts have", list(&lacking));
            never(ReasonCode::HostResources, detail)
        }
        Obstacle::Infeasible { refusal, fits } => {
            let code = match refusal.lacks {
                Lack::Memory => ReasonCode::MemoryInfeasible,
                Lack::Layout => ReasonCode::LayoutInfeasible,
                Lack::Batch => ReasonCode::BatchInfeasible,
                Lack::Known => ReasonCode::WrongGpuType,
            };
            let (headline, mut reasons) = never(code, refusal.detail.clone());
            if refusal.lacks != Lack::Memory {
                return (headline, reasons);
            }
            let would = fits.iter().map(|fit| fit.in_words(wanted)).reduce(|all, one| format!("{all}, or on {one}"));
            let detail = match would {
                Some(would) => format!("it would fit on {would}"),
                None => "no size on any GPU type here would hold it".into(),
            };
            let headline = format!("{headline}; {detail}");
            reasons.push(reason(code, false, detail));
            (headline, reasons)
        }
        Obstacle::Reserved { by } => {
            let detail = format!("all nodes it could use are reserved: {}", closed_by(round, by));
            let (headline, mut reasons) = waits(ReasonCode::Reserved, detail);
            reasons.extend(before_reservations(round, job, by));
            (headline, reasons)
        }
        Obstacle::Host { lacking } => {
            let lacking: Vec<String> = lacking.iter().map(|of| host_need(job, *of)).collect();
            waits(ReasonCode::HostResources, format!("it takes {} on each node, more than nodes have", list(&lacking)))
        }
        Obstacle::NotAskedFor => {
            let asked = job.needs.only.in_words();
            never(ReasonCode::Excluded, format!("it needs {} on {asked}, and those cannot hold it", gpus(least)))
        }
        Obstacle::AskedFor => {
            let asked = job.needs.only.in_words();
            waits(ReasonCode::Excluded, format!("it asks for {asked}, of which too few are usable now"))
        }
        Obstacle::Avoided => waits(ReasonCode::Excluded, avoided(round, job)),
        Obstacle::Ruled { by } => waits(
            ReasonCode::SiteRow,
            format!("no node that could hold it is left enough GPUs by the site's rows: {}", list(by)),
        ),
        Obstacle::NotUsable { usable, reserved: GpuCount(0), .. } => waits(
            ReasonCode::NodesUnhealthy,
            format!("{usable} are usable now; the others are broken, closed or unreachable"),
        ),
        Obstacle::NotUsable { usable, reserved, by } => {
            let detail = format!("{usable} are usable now, and {reserved} are reserved: {}", closed_by(round, by));
            let (headline, mut reasons) = waits(ReasonCode::Reserved, detail);
            reasons.extend(before_reservations(round, job, by));
            (headline, reasons)
        }
    }
}

fn closed_by(round: &Round<'_>, by: &[Closed]) -> String {
    let named: Vec<String> = by.iter().map(|one| one.in_words(round.input.now)).collect();
    list(&named)
}

/// As a span shows it, but never more: a limit that is a little too long does not fit.
fn rounded_down(limit: Seconds) -> Seconds {
    let unit = match limit.0 {
        seconds if seconds < 120.0 => 1.0,
        seconds if seconds < 7_200.0 => 60.0,
        seconds if seconds < 172_800.0 => 360.0,
        _ => 8_640.0,
    };
    Seconds(libm::floor(limit.0 / unit) * unit)
}

/// How the job could still use nodes before a reservation begins that keeps it from them.
pub(super) fn before_reservations(round: &Round<'_>, job: &PlanJob, by: &[Closed]) -> Option<Reason> {
    let now = round.input.now;
    let last = by.iter().map(|one| one.from).max().filter(|from| *from > now)?;
    let limit = ending::longest_limit(job, now, last)?;
    let why = if job.departure.never {
        "it must not run twice, so it never leaves before its end"
    } else if job.departure.saves {
        "too little time is left to start, work, save and leave"
    } else {
        "the scheduler does not know that it saves when it is asked to stop"
    };
    let detail = format!("until then it starts only with a time limit of at most {}: {why}", span(rounded_down(limit)));
    Some(reason(ReasonCode::Reserved, false, detail))
}

/// Why a job may not use nodes that have room: it excludes them, or they run jobs as an account that is not its owner's.
fn avoided(round: &Round<'_>, job: &PlanJob) -> String {
    let of_others = accounts_of_others(round, job);
    if of_others.is_empty() {
        return "the nodes that could hold it are ones it must not use".into();
    }
    format!("the nodes that could hold it are ones it must not use; {}", list(&of_others))
}

/// "n7 runs jobs of ada alone", by the nodes that are closed to the job's owner.
pub(super) fn accounts_of_others(round: &Round<'_>, job: &PlanJob) -> Vec<String> {
    let closed = round.cluster.nodes.iter().filter(|node| !node.takes_owner(&job.claim.user));
    let told = closed.filter_map(|node| {
        let user = &node.account.as_ref()?.user;
        Some(format!("{} runs jobs of {user} alone", node.name))
    });
    told.take(MOST_NAMED).collect()
}

fn host_need(job: &PlanJob, of: HostResource) -> String {
    host_amount(of, job.needs.per_node.amount(of).unwrap_or(0))
}

/// "64 GiB of shared memory", "8 CPUs".
pub(crate) fn host_amount(of: HostResource, amount: u64) -> String {
    match of {
        HostResource::Cpus => format!("{amount} CPUs"),
        HostResource::Memory | HostResource::Shm | HostResource::LocalDisk => {
            format!("{:.0} GiB of {}", amount as f64 / GIB, of.in_words())
        }
    }
}
