//! What is owed before anything is optimised: quotas are kept, floors of projects and jobs are met, what was borrowed
//! goes back, and a job that has waited long goes first. The witness is a feasible choice that honours all of it; the
//! solver starts there and may not fall behind. What cannot be honoured is relaxed by name, never dropped in silence.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use headway_types::GpuCount;
use headway_types::plan::Relaxed;
use headway_types::spec::Priority;

use crate::candidate::{Candidate, Options};
use crate::due;
use crate::input::{Freedom, PlanJob, PlanWork};
use crate::round::Round;
use crate::rows::RowKind;
use crate::witness::{Victims, Witness};

/// Why a floor is missed by jobs that have all they could get.
const CAN_TAKE_NO_MORE: &str = "no larger size fits the cluster as it is";

/// The ground the solver stands on.
#[derive(Clone, Debug)]
pub(crate) struct Guarantees {
    /// Row capacities, as far as they can be kept.
    pub capacity: Vec<i64>,
    /// A feasible choice.
    pub start: Vec<usize>,
    /// Jobs that must have at least so much.
    pub sure: BTreeMap<usize, GpuCount>,
    /// Those of them that get back what others borrowed.
    pub reclaiming: BTreeSet<usize>,
    pub relaxed: Vec<Relaxed>,
    /// Jobs that keep what they have: no other job is owed their GPUs.
    pub settled: BTreeSet<usize>,
    /// Jobs that were owed so much and found no room for it, so that nobody gives way to them.
    pub forgone: BTreeMap<usize, GpuCount>,
    /// Jobs that have more in the witness than now.
    raised: BTreeSet<usize>,
    /// Rows of floors, and whose they are.
    floors: Vec<(usize, Vec<usize>)>,
    /// Jobs that have something in the witness, within the quotas that bind them.
    rightful: Vec<usize>,
    /// Rows of quotas that may be exceeded by borrowing, and what the witness lets them hold.
    lent: Vec<(usize, i64)>,
}

impl Guarantees {
    /// Whether a candidate of a job respects what the job is sure of.
    pub fn allow(&self, options: &[Options<'_>], job: usize, candidate: usize) -> bool {
        let kept = !self.settled.contains(&job) || candidate == options[job].incumbent;
        kept && self.sure.get(&job).is_none_or(|least| options[job].candidates[candidate].gpus >= *least)
    }

    /// Jobs to which others give way in the witness and that a choice all the same leaves with less than they are owed,
    /// themselves or for their project.
    pub fn unmet(&self, options: &[Options<'_>], choice: &[usize]) -> BTreeSet<usize> {
        let gpus = |job: usize, at: usize| options[job].candidates[at].gpus;
        let used = |row: usize| -> i64 {
            let uses = options.iter().zip(choice).flat_map(|(of, &at)| &of.candidates[at].uses);
            uses.filter(|part| part.row as usize == row).map(|part| part.amount).sum()
        };
        let missed = self.floors.iter().filter(|(row, _)| used(*row) > self.capacity[*row]);
        let for_projects = missed.flat_map(|(_, members)| members).copied();
        let short = |job: &usize| gpus(*job, choice[*job]) < gpus(*job, self.start[*job]);
        let for_projects = for_projects.filter(short);
        let own = self.sure.iter().filter(|(job, least)| gpus(**job, choice[**job]) < **least).map(|(job, _)| *job);
        own.chain(for_projects).filter(|job| self.raised.contains(job)).collect()
    }

    /// The same with no more borrowing than the witness holds, where a choice takes everything from a job with a right to
    /// it while others borrow more. Who borrows would otherwise displace who lends, be reclaimed, and displace again.
    pub fn against_displacement(&self, options: &[Options<'_>], choice: &[usize]) -> Option<Guarantees> {
        if !self.rightful.iter().any(|&job| options[job].candidates[choice[job]].gpus == GpuCount(0)) {
            return None;
        }
        let used = |row: usize| -> i64 {
            let uses = options.iter().zip(choice).flat_map(|(of, &at)| &of.candidates[at].uses);
            uses.filter(|part| part.row as usize == row).map(|part| part.amount).sum()
        };
        let mut stricter = self.clone();
        for &(row, held) in self.lent.iter().filter(|(row, held)| used(*row) > *held) {
            stricter.capacity[row] = held;
        }
        (stricter.capacity != self.capacity).then_some(stricter)
    }
}

/// Takes out what would add to a limit that is overdrawn and cannot be brought back within it: a quota, what a user may
/// hold, a row of the site, power.
pub(crate) fn bar_additions(round: &Round<'_>, options: &mut [Options<'_>]) {
    let mut witness = Witness::new(round, options);
    let limits = (0..witness.capacity.len()).filter(|row| round.rows.is_limit(*row));
    let overdrawn: Vec<usize> = limits.filter(|row| !witness.shed(*row, &Victims::Anyone)).collect();
    if overdrawn.is_empty() {
        return;
    }
    for job in options {
        let of = |candidate: &Candidate, row: usize| {
            candidate.uses.iter().find(|part| part.row as usize == row).map_or(0, |part| part.amount)
        };
        let now: Vec<i64> = overdrawn.iter().map(|&row| of(&job.candidates[job.incumbent], row)).collect();
        let adds = |one: &Candidate| overdrawn.iter().zip(&now).find(|(row, now)| of(one, **row) > **now);
        let placed = || job.candidates.iter().filter(|one| one.shape.is_some());
        if placed().all(|one| adds(one).is_some()) {
            job.barred = placed().filter_map(adds).map(|(row, _)| *row).collect();
        }
        job.candidates.retain(|one| adds(one).is_none());
    }
}

/// What is owed to whom, but to `hopeless` jobs: those that found no room for it on the nodes.
pub(crate) fn guarantees(round: &Round<'_>, options: &[Options<'_>], hopeless: &BTreeSet<usize>) -> Guarantees {
    let (witness, sure, reclaiming) = (Witness::new(round, options), BTreeMap::new(), BTreeSet::new());
    let (relaxed, forgone, floors) = (Vec::new(), BTreeMap::new(), Vec::new());
    let mut owed = Owed { round, options, hopeless, witness, sure, reclaiming, relaxed, forgone, floors };
    owed.keep_capacities();
    owed.meet_project_floors();
    owed.meet_job_floors();
    owed.reclaim();
    owed.serve_the_due();
    let (rightful, lent, raised) = (owed.rightful(), owed.lent(), owed.raised());
    let (start, capacity) = owed.witness.finish();
    let keeps = |job: &usize| options[*job].keeps_its_place() && start[*job] == options[*job].incumbent;
    let settled = (0..options.len()).filter(keeps).collect();
    let Owed { sure, reclaiming, relaxed, forgone, floors, .. } = owed;
    Guarantees { capacity, start, sure, reclaiming, relaxed, settled, forgone, raised, floors, rightful, lent }
}

/// Highest priority first, of these the longest waiting, of these the first.
pub(crate) fn by_right(options: &[Options<'_>], mut jobs: Vec<usize>) -> Vec<usize> {
    jobs.sort_by(|&a, &b| {
        let (one, other) = (options[a].job, options[b].job);
        let order = other.priority.cmp(&one.priority).then(other.claim.waited.0.total_cmp(&one.claim.waited.0));
        order.then(one.submitted_at.cmp(&other.submitted_at)).then(a.cmp(&b))
    });
    let mut seen = BTreeSet::new();
    jobs.retain(|job| seen.insert(*job));
    jobs
}

/// The rule's name in reports.
pub(crate) fn floor_of_job(job: &PlanJob) -> String {
    format!("the floor of job {}", job.name)
}

/// Whether a job would take more than this on some cluster.
fn asks_for_more_than(job: &PlanJob, gpus: GpuCount) -> bool {
    let range = &job.range;
    let sizes: Vec<GpuCount> = match &job.work {
        PlanWork::Table(table) => table.sizes().collect(),
        PlanWork::Model(_) if !range.sizes.is_empty() => range.sizes.clone(),
        PlanWork::Opaque | PlanWork::Model(_) => vec![range.max],
    };
    !matches!(job.freedom, Freedom::Fixed { .. }) && sizes.into_iter().any(|size| size > gpus && range.allows(size))
}

struct Owed<'a, 'r> {
    round: &'r Round<'a>,
    options: &'r [Options<'a>],
    /// Nobody gives way to these.
    hopeless: &'r BTreeSet<usize>,
    witness: Witness<'a, 'r>,
    sure: BTreeMap<usize, GpuCount>,
    reclaiming: BTreeSet<usize>,
    relaxed: Vec<Relaxed>,
    forgone: BTreeMap<usize, GpuCount>,
    floors: Vec<(usize, Vec<usize>)>,
}

impl Owed<'_, '_> {
    fn relax(&mut self, rule: String, reason: String) {
        self.relaxed.push(Relaxed { rule, reason });
    }

    fn job(&self, job: usize) -> &PlanJob {
        self.options[job].job
    }

    /// The smallest size a job can have beyond nothing.
    fn least(&self, job: usize) -> Option<GpuCount> {
        self.options[job].candidates.iter().map(|one| one.gpus).filter(|gpus| gpus.0 > 0).min()
    }

    /// Sheds what the present holds beyond a row's capacity; what nobody can give up raises the capacity.
    fn keep_capacities(&mut self) {
        for row in 0..self.witness.capacity.len() {
            let kind = &self.round.rows.kinds[row];
            if matches!(kind, RowKind::Floor { .. } | RowKind::Moves) || self.witness.excess(row) <= 0 {
                continue;
            }
            // Who has a floor keeps it while others can give.
            self.protect_floors();
            let mut kept_within = self.witness.shed(row, &Victims::Anyone);
            self.witness.unprotect();
            kept_within = kept_within
                || self.witness.shed(row, &Victims::Anyone)
                || self.witness.shed_in_part(row, &Victims::Anyone);
            if kept_within {
                continue;
            }
            let (kept, wanted) = (self.witness.used[row], self.witness.capacity[row]);
            self.witness.capacity[row] = kept;
            if let RowKind::Site { row: of } = *kind {
                // Who is beyond it on some nodes takes nothing from who is on the others.
                self.widen_under(of, kept - wanted);
            }
            if self.round.rows.is_limit(row) {
                let reason = format!("{kept} instead of {wanted}: what is beyond it cannot be moved now");
                self.relax(self.round.rows.describe(row), reason);
            }
        }
    }

    fn widen_under(&mut self, of: usize, by: i64) {
        for (kind, capacity) in self.round.rows.kinds.iter().zip(&mut self.witness.capacity) {
            if matches!(kind, RowKind::Under { row, .. } if *row == of) {
                *capacity += by;
            }
        }
    }

    fn protect_floors(&mut self) {
        for job in 0..self.options.len() {
            if let Some(least) = self.floor_size(job).filter(|least| self.witness.gpus(job) >= *least) {
                self.witness.protect(job, least);
            }
        }
    }

    /// The size that meets a job's floor: between two sizes the larger, above all sizes the largest.
    fn floor_size(&self, job: usize) -> Option<GpuCount> {
        let floor = self.job(job).claim.floor;
        let sizes = || self.options[job].candidates.iter().map(|one| one.gpus);
        let least = sizes().filter(|gpus| *gpus >= floor).min().or_else(|| sizes().max());
        least.filter(|_| floor > GpuCount(0))
    }

    /// Every project's floor, deepest project first: meeting a part helps the whole.
    fn meet_project_floors(&mut self) {
        let depth = |project: usize| self.round.tree.lineage_of(&self.round.tree.projects[project].name).len();
        let mut projects: Vec<usize> = (0..self.round.tree.projects.len()).collect();
        projects.sort_by_key(|&project| (Reverse(depth(project)), project));
        for project in projects {
            let Some(row) = self.round.rows.row(&RowKind::Floor { project }).map(|row| row as usize) else { continue };
            let members = self.members(project);
            self.fill_floor(project, row, &members);
            // What cannot grow may still trade what it has for something larger.
            let mut order = by_right(self.options, members.clone());
            order.retain(|job| !self.hopeless.contains(job));
            while self.witness.excess(row) > 0 && order.iter().any(|&job| self.witness.trade(job, row)) {
                self.fill_floor(project, row, &members);
            }
            self.floors.push((row, members.clone()));
            let (reached, floor) = (-self.witness.used[row], -self.witness.capacity[row]);
            if reached < floor {
                self.witness.capacity[row] = -reached;
                if members.iter().any(|&job| asks_for_more_than(self.job(job), self.witness.gpus(job))) {
                    let more = members.iter().any(|&job| self.witness.could_grow(job));
                    let why = if more { "no more can be freed for its jobs now" } else { CAN_TAKE_NO_MORE };
                    self.relax(self.round.rows.describe(row), format!("{reached} of {floor} GPUs: {why}"));
                }
            }
        }
    }

    /// Who waits is served first, then all grow in turn, a size at a time.
    fn fill_floor(&mut self, project: usize, row: usize, members: &[usize]) {
        let mut order = by_right(self.options, members.to_vec());
        order.retain(|job| !self.hopeless.contains(job));
        let mut waiting = true;
        loop {
            let mut grew = false;
            for &job in &order {
                if self.witness.excess(row) <= 0 {
                    return;
                }
                if !waiting || self.witness.gpus(job) == GpuCount(0) {
                    grew |= self.witness.grow(job, &Victims::Outside { project });
                }
            }
            if !grew && !waiting {
                return;
            }
            waiting = false;
        }
    }

    fn members(&self, project: usize) -> Vec<usize> {
        let tree = &self.round.tree;
        let of = |job: &usize| tree.lineage_of(&self.job(*job).claim.project).contains(&project);
        (0..self.options.len()).filter(of).collect()
    }

    fn meet_job_floors(&mut self) {
        let owed = |job: &usize| self.job(*job).claim.floor > GpuCount(0);
        for job in by_right(self.options, (0..self.options.len()).filter(owed).collect()) {
            let floor = self.job(job).claim.floor;
            let Some(least) = self.floor_size(job) else { continue };
            let rule = floor_of_job(self.job(job));
            // What people force on a job may stop any other.
            let forced = self.round.input.forced.iter().any(|one| one.job == self.job(job).job);
            let victims = if forced { Victims::Anyone } else { Victims::UpTo { priority: Priority(u8::MAX) } };
            if !self.secure(job, least, &victims) {
                if self.forgone.contains_key(&job) {
                    continue;
                }
                let why = self.forbidden_by(job, least).unwrap_or_else(|| "no more can be freed for it now".into());
                self.relax(rule, format!("{floor} GPUs: {why}"));
            } else if least < floor && asks_for_more_than(self.job(job), least) {
                self.relax(rule, format!("{least} of {floor} GPUs: {CAN_TAKE_NO_MORE}"));
            }
        }
    }

    /// A row of the site that leaves a job less than this were it alone.
    fn forbidden_by(&self, job: usize, least: GpuCount) -> Option<String> {
        let rows = &self.round.rows;
        let sizes = || self.options[job].candidates.iter().filter(|one| one.gpus >= least);
        let forbids = |row: &usize| {
            let over = |part: &headway_solver::Use| part.row as usize == *row && part.amount > rows.capacity[*row];
            matches!(rows.kinds[*row], RowKind::Site { .. }) && sizes().all(|one| one.uses.iter().any(over))
        };
        let row = (0..rows.kinds.len()).find(forbids).filter(|_| sizes().next().is_some())?;
        Some(format!("{} allows {}", rows.describe(row), crate::explain::gpus(GpuCount(rows.capacity[row] as u32))))
    }

    /// Makes a job sure of at least so much, at the expense of who owes it.
    fn secure(&mut self, job: usize, least: GpuCount, victims: &Victims) -> bool {
        if least == GpuCount(0) {
            return true;
        }
        if self.hopeless.contains(&job) && self.witness.gpus(job) < least {
            let forgone = self.forgone.entry(job).or_insert(least);
            *forgone = (*forgone).max(least);
            return false;
        }
        let met = self.witness.gpus(job) >= least || self.witness.raise(job, least, victims);
        if met {
            self.witness.protect(job, least);
            let sure = self.sure.entry(job).or_insert(least);
            *sure = (*sure).max(least);
        }
        met
    }

    /// A job waits within its project's quota while others borrow: it gets what they borrowed, and they may not have it
    /// back in this round.
    fn reclaim(&mut self) {
        let borrowers = self.borrowers();
        if borrowers.is_empty() {
            return;
        }
        let waits = |job: &usize| self.witness.gpus(*job) == GpuCount(0) && self.within_quota(*job);
        for job in by_right(self.options, (0..self.options.len()).filter(waits).collect()) {
            let Some(least) = self.least(job) else { continue };
            if self.within_quota(job) && self.secure(job, least, &Victims::Members { projects: borrowers.clone() }) {
                self.reclaiming.insert(job);
            }
        }
        if self.reclaiming.is_empty() {
            return;
        }
        for &project in &borrowers {
            let quota = self.round.tree.projects[project].quota.map_or(0, |quota| i64::from(quota.0));
            if let Some(row) = self.round.rows.row(&RowKind::Quota { project }).map(|row| row as usize) {
                self.witness.capacity[row] = self.witness.used[row].max(quota).min(self.witness.capacity[row]);
            }
        }
    }

    fn raised(&self) -> BTreeSet<usize> {
        let now = |job: usize| self.options[job].candidates[self.options[job].incumbent].gpus;
        (0..self.options.len()).filter(|&job| self.witness.gpus(job) > now(job)).collect()
    }

    fn rightful(&self) -> Vec<usize> {
        let within = |job: &usize| {
            let lineage = self.round.tree.lineage_of(&self.job(*job).claim.project);
            let mut quotas = lineage.iter().filter_map(|&project| {
                let row = self.round.rows.row(&RowKind::Quota { project })?;
                let quota = self.round.tree.projects[project].quota?;
                Some(self.witness.used[row as usize] <= i64::from(quota.0))
            });
            self.witness.gpus(*job) > GpuCount(0) && quotas.next() == Some(true) && quotas.all(|within| within)
        };
        (0..self.options.len()).filter(within).collect()
    }

    fn lent(&self) -> Vec<(usize, i64)> {
        let borrows = |(project, of): (usize, &crate::project::PlanProject)| {
            let row = self.round.rows.row(&RowKind::Quota { project }).filter(|_| of.borrow > GpuCount(0))? as usize;
            Some((row, self.witness.used[row].max(i64::from(of.quota?.0))))
        };
        self.round.tree.projects.iter().enumerate().filter_map(borrows).collect()
    }

    /// Projects that hold more than their quota.
    fn borrowers(&self) -> Vec<usize> {
        let holds_more = |project: &usize| {
            let Some(row) = self.round.rows.row(&RowKind::Quota { project: *project }) else { return false };
            let quota = self.round.tree.projects[*project].quota.map_or(i64::MAX, |quota| i64::from(quota.0));
            self.witness.used[row as usize] > quota
        };
        (0..self.round.tree.projects.len()).filter(holds_more).collect()
    }

    /// Whether the job's smallest size fits the quota of its project, all above it included, without borrowing. A job
    /// that no quota binds has no right to what others borrow.
    fn within_quota(&self, job: usize) -> bool {
        let Some(least) = self.least(job) else { return false };
        let lineage = self.round.tree.lineage_of(&self.job(job).claim.project);
        let mut quotas = lineage.iter().filter_map(|&project| {
            let row = self.round.rows.row(&RowKind::Quota { project })?;
            let quota = self.round.tree.projects[project].quota?;
            Some(self.witness.used[row as usize] + i64::from(least.0) <= i64::from(quota.0))
        });
        quotas.next() == Some(true) && quotas.all(|fits| fits)
    }

    /// Jobs that are due get their smallest size where it is free or others can shrink for it; whoever had waited that
    /// long and runs now goes on. Those of higher priority are sure of going on meanwhile.
    fn serve_the_due(&mut self) {
        let due: Vec<usize> = (0..self.options.len()).filter(|&job| due::is_due(self.round, self.job(job))).collect();
        let due = due::in_serving_order(self.round, self.options, due);
        let (running, waiting): (Vec<usize>, Vec<usize>) =
            due.into_iter().partition(|&job| self.job(job).current.is_some());
        let had_their_turn = due::had_their_turn(self.round, self.options);
        let mut lowest: Option<Priority> = None;
        // Queues are long, and most that wait in them are alike.
        let mut refused: Vec<(usize, GpuCount)> = Vec::new();
        for job in running.into_iter().chain(waiting) {
            let Some(least) = self.least(job) else { continue };
            let of = self.options[job].job;
            let waits = self.witness.gpus(job) < least && !self.hopeless.contains(&job);
            let told = |(other, size): &(usize, GpuCount)| {
                due::speaks_for(self.round, (self.options[*other].job, *size), (of, least))
            };
            if waits && refused.iter().any(told) {
                continue;
            }
            if self.secure(job, least, &due::victims(self.round, of, &had_their_turn)) {
                lowest = Some(lowest.map_or(of.priority, |lowest| lowest.min(of.priority)));
            } else if waits {
                refused.push((job, least));
            }
        }
        let Some(lowest) = lowest else { return };
        for job in 0..self.options.len() {
            let runs = self.job(job).current.is_some() && self.witness.gpus(job) > GpuCount(0);
            if runs
                && self.job(job).priority > lowest
                && let Some(least) = self.least(job)
            {
                self.secure(job, least, &Victims::Nobody);
            }
        }
    }
}
