//! What a submitted job is to a round, whoever asks: the engine, which lays over it what it has seen of the job; a dry
//! run, which knows no more than this; a round solved for others. The priors of what nobody has seen yet are here alone.

use headway_goodput::{JobModel, Lessons};
use headway_types::report::{Capabilities, Flexibility};
use headway_types::spec::{GpuRange, Priority, Topology};
use headway_types::{GpuCount, IdSource, JobId, JobSpec, Seconds, Timestamp, Tokens};

use crate::claim::{Bounds, Claim, Needs, Spread};
use crate::ending::Departure;
use crate::input::{Downtime, Freedom, PlanInput, PlanJob, PlanNode, PlanWork};

/// What a change of layout in memory takes of a restart before one was measured: 30–56 s against 231–809 s (COPUS, table 2).
const LAYOUT_SHARE: f64 = 0.2;

impl Downtime {
    /// Of a job that has never restarted.
    pub const RESTART: Seconds = Seconds(30.0);

    /// The priors of a job of whose changes nothing is known but what a restart takes.
    #[must_use]
    pub fn of_restart(restart: Seconds) -> Self {
        let layout = Some(Seconds(LAYOUT_SHARE * restart.0));
        Self { batch: Seconds(0.1), micro_batch: Seconds(1.0), layout, restart }
    }
}

impl Departure {
    /// How a job leaves of which nothing is known but its specification: a script with a training section that speaks to
    /// its agent saves when it is asked to, and every script has its grace time. A job that must not run twice never
    /// leaves before its end, whatever it saves: only a time limit keeps it within an end of its nodes.
    #[must_use]
    pub fn of_spec(spec: &JobSpec) -> Self {
        let speaks = spec.training().is_some() && spec.reads_steps_by().is_none();
        let never = spec.limits.forbid_restart();
        Self { saves: speaks && !never, never, takes: spec.checkpoint_policy().grace + spec.role().run.hooks.after() }
    }
}

impl PlanWork {
    /// What a specification tells, and what jobs alike have taught.
    #[must_use]
    pub fn of(spec: &JobSpec, lessons: &Lessons) -> Self {
        spec.training().map_or(Self::Opaque, |training| {
            let mut model = JobModel::new(training.clone());
            model.learn(lessons);
            Self::Model(model.into())
        })
    }

    fn capabilities(&self) -> Capabilities {
        match self {
            Self::Opaque => Capabilities::UNKNOWN_SCRIPT,
            Self::Model(model) => model.training.reconfigure,
            Self::Table(_) => Capabilities { batch: Flexibility::Restart, layout: Flexibility::Restart },
        }
    }
}

impl PlanJob {
    /// A job of which nothing is known but its sizes and what they are worth: it holds nothing, is owed nothing and bound
    /// by nothing.
    #[must_use]
    pub fn new(job: JobId, name: String, submitted_at: Timestamp, range: GpuRange, work: PlanWork) -> Self {
        Self {
            job,
            name,
            priority: Priority::default(),
            submitted_at,
            range,
            capabilities: work.capabilities(),
            remaining: work.model().and_then(|model| Some(model.training.target?.tokens)),
            work,
            current: None,
            downtime: Downtime::of_restart(Downtime::RESTART),
            rework: Seconds(0.0),
            freedom: Freedom::Free,
            batch_bound: None,
            claim: Claim::default(),
            bounds: Bounds::default(),
            departure: Departure::default(),
            needs: Needs::default(),
        }
    }

    /// The fewest GPUs it runs on. A job that nothing tunes has one size.
    #[must_use]
    pub fn least(&self) -> GpuCount {
        let least = if self.work.is_opaque() { self.range.max } else { self.range.min };
        least.max(GpuCount(1))
    }

    /// Whether it runs on one number of GPUs only.
    pub(crate) fn has_one_size(&self) -> bool {
        self.work.is_opaque() || self.range.min == self.range.max || self.range.sizes.len() == 1
    }

    /// How long it stands still where it starts or moves: the restart, and the work that is redone.
    pub(crate) fn start_cost(&self) -> Seconds {
        self.downtime.restart + self.rework
    }

    /// What it has left to do, where that says when it ends: of a job whose goodput nobody knows it does not.
    pub(crate) fn to_do(&self) -> Option<Tokens> {
        self.remaining.filter(|_| !self.work.is_opaque())
    }
}

/// What the jobs of a round find there: its nodes, and an equal share of what is usable on them.
#[derive(Clone, Copy, Debug)]
pub struct Premises<'a> {
    nodes: &'a [PlanNode],
    fair_share: GpuCount,
}

impl<'a> Premises<'a> {
    /// Shared by so many jobs.
    #[must_use]
    pub fn new(nodes: &'a [PlanNode], jobs: usize) -> Self {
        let usable: usize =
            nodes.iter().filter(|node| !node.draining && node.is_sound()).map(|node| node.gpus.len()).sum();
        Self { nodes, fair_share: GpuCount((usable / jobs.max(1)) as u32) }
    }

    #[must_use]
    pub fn fair_share(&self) -> GpuCount {
        self.fair_share
    }

    /// A job as its specification and nothing else tells it.
    #[must_use]
    pub fn job(&self, job: JobId, spec: &JobSpec, user: &str, submitted_at: Timestamp, work: PlanWork) -> PlanJob {
        let (role, training, limits) = (spec.role(), spec.training(), &spec.limits);
        let closed = |node: &&PlanNode| role.nodes.exclude.contains(&node.name) || !node.takes_owner(user);
        let excluded = self.nodes.iter().filter(closed);
        PlanJob {
            priority: spec.priority,
            capabilities: training.map_or(Capabilities::UNKNOWN_SCRIPT, |training| training.reconfigure),
            remaining: training.and_then(|training| Some(training.target?.tokens)),
            claim: Claim {
                project: spec.project.clone(),
                user: user.to_owned(),
                labels: spec.labels.clone(),
                floor: self.floor(spec),
                ..Claim::default()
            },
            bounds: Bounds { deadline: limits.deadline, budget_left: limits.budget, time_left: limits.time },
            departure: Departure::of_spec(spec),
            needs: Needs {
                per_node: role.per_node,
                avoid: excluded.map(|node| node.node).collect(),
                only: role.nodes.only.clone(),
                spread: match role.nodes.topology {
                    Topology::PreferRack => Spread::Prefer,
                    Topology::RequireRack => Spread::Require,
                },
                layout: None,
            },
            ..PlanJob::new(job, spec.name.clone(), submitted_at, role.gpus.clone(), work)
        }
    }

    /// What `elastic.min_share` makes a job sure of: that part of the fair share, but of at least the job's minimum,
    /// rounded up to a size the job allows.
    fn floor(&self, spec: &JobSpec) -> GpuCount {
        let range = &spec.role().gpus;
        spec.elastic.min_share.map_or(GpuCount(0), |share| {
            let wanted = share * f64::from(self.fair_share.max(range.min).0);
            range.size_from(GpuCount(libm::ceil(wanted - 1e-9) as u32))
        })
    }
}

impl PlanInput {
    /// Jobs as they would come into this round were they submitted now, under ids that nobody else has.
    #[must_use]
    pub fn submitted<'s>(&self, specs: impl ExactSizeIterator<Item = &'s JobSpec>, user: &str) -> Vec<PlanJob> {
        let mut ids = IdSource::seeded(self.jobs.len() as u64);
        let premises = Premises::new(&self.nodes, self.jobs.len() + specs.len());
        let mut own = || {
            loop {
                let id = ids.job(self.now);
                if self.job(id).is_none() {
                    return id;
                }
            }
        };
        specs.map(|spec| premises.job(own(), spec, user, self.now, PlanWork::of(spec, &self.lessons))).collect()
    }

    /// The round with these jobs in it.
    #[must_use]
    pub fn with(mut self, jobs: impl IntoIterator<Item = PlanJob>) -> Self {
        self.jobs.extend(jobs);
        self.jobs.sort_by_key(|job| job.job);
        self
    }

    pub(crate) fn job(&self, job: JobId) -> Option<&PlanJob> {
        self.jobs.binary_search_by_key(&job, |one| one.job).ok().map(|at| &self.jobs[at])
    }
}
