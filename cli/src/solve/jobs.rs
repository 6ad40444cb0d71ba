//! Jobs of a document: what they ask for, what it is worth, what they have had and hold.

use std::collections::BTreeSet;
use std::sync::Arc;

use headway_api::solve::{GpuRequest, GpuRequestRange, Job, Pin, Reconfigure, SolveError, Spread as WireSpread};
use headway_api::spec;
use headway_goodput::JobModel;
use headway_planner::{Bounds, Claim, Downtime, Freedom, Needs, PlanJob, PlanProject, PlanWork, Spread};
use headway_types::report::Flexibility;
use headway_types::spec::{GpuRange, NodeResources, NodeSelector, Priority};
use headway_types::{
    Assignment, Bytes, GpuCount, GpuSeconds, GpuType, JobId, Prediction, Seconds, Tokens, TokensPerSecond,
};

use super::NOW;
use super::allocation::{self, Holders};
use super::check::{FASTEST, Findings, LARGEST, MOST};
use super::nodes::Nodes;
use super::ways;

/// The jobs of a round, ids ascending in the document's order. A job with a finding may be missing.
pub fn jobs(
    of: Vec<Job>,
    ids: &[JobId],
    nodes: &Nodes,
    projects: &[PlanProject],
    findings: &mut Findings,
) -> Vec<PlanJob> {
    let mut names = BTreeSet::new();
    for (at, job) in of.iter().enumerate() {
        if job.name.is_empty() {
            findings.add(format_args!("jobs[{at}].name"), "is empty");
        } else if !names.insert(job.name.as_str()) {
            findings.add(format_args!("jobs[{at}].name"), format!("a second job is called \"{}\"", job.name));
        }
    }
    let types = nodes.types();
    let mut holders = Holders::new(nodes);
    for (at, job) in of.iter().enumerate() {
        job.allocation.iter().for_each(|allocation| holders.claim(at, allocation, findings));
    }
    let mut round = Round { nodes, projects, types, holders, findings };
    of.into_iter().enumerate().zip(ids).filter_map(|((at, job), id)| round.job(at, job, *id)).collect()
}

/// What one job's conversion may look at.
struct Round<'a> {
    nodes: &'a Nodes,
    projects: &'a [PlanProject],
    types: Vec<GpuType>,
    holders: Holders<'a>,
    findings: &'a mut Findings,
}

impl Round<'_> {
    fn job(&mut self, at: usize, mut job: Job, id: JobId) -> Option<PlanJob> {
        let field = format!("jobs[{at}]");
        let work = self.work(&mut job, &field);
        let current = self.current(&job, at, work.as_ref());
        let age = self.findings.seconds(job.age_seconds, format_args!("{field}.age_seconds"));
        let claim = self.claim(&job, &field, age, current.is_some());
        let bounds = self.bounds(&job, &field);
        let needs = self.needs(&job, &field);
        let restart = job.restart_seconds;
        let restart = restart.map(|took| self.findings.seconds(took, format_args!("{field}.restart_seconds")));
        let rework = self.findings.seconds(job.rework_seconds, format_args!("{field}.rework_seconds"));
        let freedom = self.freedom(&job, &field);
        let work = work?;
        let range = self.range(&job, &work, &field)?;
        let left = job.remaining;
        let left =
            left.map(|left| Tokens(self.findings.number(left, 0.0..=LARGEST, format_args!("{field}.remaining"))));
        // Of a modelled job that never ran all of its target is left; of any other nobody but the caller knows.
        let fresh = job.attained_gpu_seconds == 0.0 && job.allocation.is_none();
        let mut told = PlanJob::new(id, job.name, NOW - age, range, work);
        if job.reconfigure == Some(Reconfigure::Never) {
            told.capabilities.layout = Flexibility::Never;
        }
        Some(PlanJob {
            priority: job.priority.map_or(Priority::default(), |priority| Priority(priority.0)),
            remaining: left.or(told.remaining.filter(|_| fresh)),
            current,
            downtime: restart.map_or(told.downtime, Downtime::of_restart),
            rework,
            freedom,
            claim,
            bounds,
            needs,
            ..told
        })
    }

    fn work(&mut self, job: &mut Job, field: &str) -> Option<PlanWork> {
        match (job.goodput.take(), &job.training) {
            (None, None) => {
                self.reconfigures(job, field, "a rigid job has one size");
                Some(PlanWork::Opaque)
            }
            (Some(_), Some(_)) => {
                self.findings.add(format_args!("{field}.goodput"), "stands instead of training, not beside it");
                None
            }
            (Some(ways), None) => {
                let table = ways::table(ways, &self.types, &format!("{field}.goodput"), self.findings);
                Some(PlanWork::Table(Arc::new(table)))
            }
            (None, Some(training)) => {
                self.reconfigures(job, field, "write it into training");
                match spec::read_training(training, &format!("{field}.training"), &job.name) {
                    Ok(training) => Some(PlanWork::Model(Arc::new(JobModel::new(training)))),
                    Err(error) => {
                        self.findings.include(SolveError::from(error));
                        None
                    }
                }
            }
        }
    }

    /// Only a job with a goodput table says here what it can do.
    fn reconfigures(&mut self, job: &Job, field: &str, hint: &str) {
        if job.reconfigure.is_some() {
            self.findings.hint(format_args!("{field}.reconfigure"), "belongs to jobs with goodput", hint);
        }
    }

    fn range(&mut self, job: &Job, work: &PlanWork, field: &str) -> Option<GpuRange> {
        let field = format!("{field}.gpus");
        let sizes: BTreeSet<u32> = match work {
            PlanWork::Table(table) => table.rows.iter().map(|row| row.gpus.0).filter(|size| *size > 0).collect(),
            PlanWork::Opaque | PlanWork::Model(_) => BTreeSet::new(),
        };
        let request = match (&job.gpus, work) {
            (Some(request), _) => request.clone(),
            (None, PlanWork::Table(_)) => GpuRequest::Range(GpuRequestRange::default()),
            (None, _) => {
                self.findings.hint(&field, "is required", "as in \"gpus\": 8; only a goodput table implies it");
                return None;
            }
        };
        let types = job.gpu_types.iter().cloned().map(GpuType).collect();
        let exactly = |gpus: u32, types| GpuRange {
            min: GpuCount(gpus),
            max: GpuCount(gpus),
            sizes: Vec::new(),
            types,
            mixed: false,
        };
        let range = match request {
            GpuRequest::Exactly(gpus) => exactly(self.findings.whole(gpus, 1..=MOST, &field), types),
            GpuRequest::Range(request) => self.span(&request, &sizes, types, &field)?,
        };
        if matches!(work, PlanWork::Opaque) && range.min != range.max {
            let hint = "add goodput or training, or give one number of GPUs";
            self.findings.hint(&field, "a range needs goodput: nothing tells what a size is worth", hint);
        }
        if matches!(work, PlanWork::Table(_)) && !sizes.iter().any(|size| range.allows(GpuCount(*size))) {
            self.findings.add(&field, "no size of its goodput table is allowed");
        }
        Some(range)
    }

    /// A range; what it leaves out follows from its sizes, or from those of the job's table.
    fn span(
        &mut self,
        request: &GpuRequestRange,
        table: &BTreeSet<u32>,
        types: Vec<GpuType>,
        field: &str,
    ) -> Option<GpuRange> {
        let listed: BTreeSet<u32> =
            if request.sizes.is_empty() { table.clone() } else { request.sizes.iter().copied().collect() };
        let min = request.min.or(listed.first().copied()).unwrap_or(1);
        let Some(max) = request.max.or(listed.last().copied()) else {
            self.findings.hint(format_args!("{field}.max"), "is required", "or give sizes, or a goodput table");
            return None;
        };
        let min = self.findings.whole(min, 1..=MOST, format_args!("{field}.min"));
        let max = self.findings.whole(max, 1..=MOST, format_args!("{field}.max"));
        if min > max {
            self.findings.add(format_args!("{field}.min"), format!("{min} is more than max, {max}"));
            return None;
        }
        let sizes: Vec<GpuCount> = listed.range(min..=max).copied().map(GpuCount).collect();
        if sizes.is_empty() && !listed.is_empty() {
            self.findings.add(field, format!("no size lies between min, {min}, and max, {max}"));
            return None;
        }
        Some(GpuRange { min: GpuCount(min), max: GpuCount(max), sizes, types, mixed: false })
    }

    fn current(&mut self, job: &Job, at: usize, work: Option<&PlanWork>) -> Option<Assignment> {
        let held = job.allocation.as_ref()?;
        let placement = self.holders.placement(at, held, self.findings)?;
        let field = format!("jobs[{at}].allocation");
        let mut configuration = held
            .configuration
            .as_ref()
            .map(|of| allocation::configuration(of, &format!("{field}.configuration"), self.findings));
        if configuration.is_some() && work.is_some_and(|work| work.model().is_none()) {
            let hint = "a goodput table's row is named by its label";
            self.findings.hint(format_args!("{field}.configuration"), "needs a job with training", hint);
            configuration = None;
        }
        if let Some(layout) = configuration.map(|of| of.layout)
            && layout.gpus() != placement.gpus()
        {
            let message = format!("{layout} takes {} GPUs, not {}", layout.gpus(), placement.gpus());
            self.findings.add(format_args!("{field}.configuration.layout"), message);
        }
        let told = held.goodput.map(|rate| self.findings.number(rate, 0.0..=FASTEST, format_args!("{field}.goodput")));
        let predicted = Prediction {
            step_time: Seconds(0.0),
            throughput: TokensPerSecond(0.0),
            efficiency: 1.0,
            goodput: TokensPerSecond(told.unwrap_or(0.0)),
            speed_up: 1.0,
        };
        Some(Assignment { placement, configuration, predicted, label: held.label.clone() })
    }

    fn claim(&mut self, job: &Job, field: &str, age: Seconds, runs: bool) -> Claim {
        if !job.project.is_empty()
            && !self.projects.is_empty()
            && self.projects.binary_search_by(|project| project.name.cmp(&job.project)).is_err()
        {
            let hint = "projects are listed, so a job's own must be among them";
            self.findings.hint(
                format_args!("{field}.project"),
                format!("no project is called \"{}\"", job.project),
                hint,
            );
        }
        let attained =
            self.findings.number(job.attained_gpu_seconds, 0.0..=LARGEST, format_args!("{field}.attained_gpu_seconds"));
        let fresh = !runs && attained == 0.0;
        let waited = match job.waited_seconds {
            Some(waited) => self.findings.seconds(waited, format_args!("{field}.waited_seconds")),
            None if fresh => age,
            None => Seconds(0.0),
        };
        let ran = self.findings.seconds(job.ran_seconds, format_args!("{field}.ran_seconds"));
        let since_move = job.since_move_seconds;
        let since_move =
            since_move.map(|since| self.findings.seconds(since, format_args!("{field}.since_move_seconds")));
        Claim {
            project: job.project.clone(),
            user: job.user.clone(),
            labels: job.labels.clone(),
            floor: GpuCount(job.floor),
            waited,
            ran,
            attained: GpuSeconds(attained),
            restarts: job.restarts,
            most: job.most_gpus.iter().map(|(kind, gpus)| (GpuType(kind.clone()), GpuCount(*gpus))).collect(),
            // Whoever does not say is taken to have moved when it last started: too much caution costs a few gains, too little a restart a round.
            since_move: since_move.or(runs.then_some(ran)),
        }
    }

    fn bounds(&mut self, job: &Job, field: &str) -> Bounds {
        let findings = &mut *self.findings;
        Bounds {
            deadline: job
                .deadline_seconds
                .map(|from_now| NOW + Seconds(findings.moment(from_now, format_args!("{field}.deadline_seconds")))),
            budget_left: job.budget_gpu_seconds.map(|left| {
                GpuSeconds(findings.number(left, 0.0..=LARGEST, format_args!("{field}.budget_gpu_seconds")))
            }),
            time_left: job
                .time_left_seconds
                .map(|left| findings.seconds(left, format_args!("{field}.time_left_seconds"))),
        }
    }

    fn needs(&mut self, job: &Job, field: &str) -> Needs {
        let names = job.avoid.iter().enumerate();
        let avoid = names
            .filter_map(|(at, name)| self.nodes.known(name, format_args!("{field}.avoid[{at}]"), self.findings))
            .map(|number| self.nodes.get(number).node)
            .collect();
        Needs {
            per_node: NodeResources {
                cpus: job.per_node.cpus,
                memory: job.per_node.memory_bytes.map(Bytes),
                shm: job.per_node.shm_bytes.map(Bytes),
                local_disk: job.per_node.local_disk_bytes.map(Bytes),
            },
            avoid,
            only: NodeSelector::default(),
            spread: match job.spread {
                WireSpread::Prefer => Spread::Prefer,
                WireSpread::Require => Spread::Require,
            },
            layout: None,
        }
    }

    fn freedom(&mut self, job: &Job, field: &str) -> Freedom {
        let Pin::Pinned(reason) = &job.pinned else { return Freedom::Free };
        if job.allocation.is_none() {
            let hint = "leave the job out of the round if it must wait";
            self.findings.hint(format_args!("{field}.pinned"), "needs an allocation to keep", hint);
        }
        Freedom::Fixed { reason: reason.clone().unwrap_or_else(|| "it is pinned".into()) }
    }
}
