//! The day that `headway up --demo` plays: people of four projects with quotas and priorities on 64 nodes of two kinds, more work than
//! the nodes can do, a backlog at the beginning, and an operator who services one node after the other.
//!
//! `headway evaluate --workload demo` runs the same day in virtual time, without arrays and without the maintenance of four nodes: the
//! elements of the demo's array come as jobs of their own, six at a time.

use headway_engine::Request;
use headway_engine::record::ProjectRules;
use headway_sim::deed::{Act, Deed, Moment, Operation};
use headway_types::spec::Priority;
use headway_types::{GpuCount, Seconds};

use crate::cluster::Cluster;
use crate::workload::{Job, Kind, Named, Owner, Plenty, Site, Workload};

/// What is emulated where nobody says.
pub const NODES: &str = "H100x8=48,A100-80Gx8=16";
/// What a day holds beyond what the nodes could do as people ask for it: there is always a queue.
pub const PLENTY: Plenty = Plenty { load: 1.1, lasts: Seconds(86_400.0), median: Seconds(10_800.0) };
/// A cluster that begins has the work of so many hours at once.
pub const BACKLOG: Seconds = Seconds(6.0 * 3_600.0);
/// A node is taken out of service every so often, and for how long.
pub const SERVICE: (Seconds, Seconds) = (Seconds(5.0 * 3_600.0), Seconds(2.0 * 3_600.0));
/// Elements of the array that somebody submits every day, how many run at once, and how long each runs.
pub const SWEEP: (u32, u32, Seconds) = (24, 6, Seconds(4_500.0));
/// Projects are there before the first job comes.
const FIRST_JOB: Seconds = Seconds(60.0);

/// A project of the demo.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Project {
    pub name: &'static str,
    /// GPUs by right, and beyond them.
    pub quota: Option<u32>,
    pub borrow: u32,
    pub weight: f64,
    pub people: &'static [&'static str],
}

/// All projects. The last one's people submit the array of the day.
pub const PROJECTS: [Project; 4] = [
    Project { name: "pretraining", quota: None, borrow: 0, weight: 3.0, people: &["ada", "grace"] },
    Project { name: "alignment", quota: Some(192), borrow: 128, weight: 2.0, people: &["barbara", "edsger", "tony"] },
    Project { name: "multimodal", quota: Some(128), borrow: 64, weight: 1.0, people: &["margaret", "donald"] },
    Project { name: "evaluation", quota: Some(64), borrow: 32, weight: 1.0, people: &["frances"] },
];

/// Returns who submits a job of the day, as a place among the people of all projects.
#[must_use]
pub fn person_of(number: usize) -> usize {
    let people: usize = PROJECTS.iter().map(|project| project.people.len()).sum();
    (number * 7 + number / 5) % people
}

/// Returns the priority of a job of the day.
#[must_use]
pub fn priority_of(number: usize) -> Priority {
    if number.is_multiple_of(13) {
        Priority::HIGH
    } else if number.is_multiple_of(9) {
        Priority(25)
    } else {
        Priority::default()
    }
}

/// Draws the day: the jobs of the backlog come at once, the others as many hours earlier.
#[must_use]
pub fn draw(seed: u64, cluster: &Cluster, plenty: &Plenty) -> Workload {
    let mut workload = Named::Day.draw(seed, cluster, plenty);
    let later = |at: Seconds| Seconds((at.0 - BACKLOG.0).max(FIRST_JOB.0));
    workload.jobs.iter_mut().for_each(|job| job.arrives = later(job.arrives));
    workload.arrivals = later(plenty.lasts);
    let projects: Vec<&str> = PROJECTS.iter().flat_map(|one| one.people.iter().map(|_| one.name)).collect();
    let owner = |number| Owner { project: projects[person_of(number)].to_owned(), priority: priority_of(number) };
    let mut owners: Vec<Owner> = (0..workload.jobs.len()).map(owner).collect();
    let last = PROJECTS[PROJECTS.len() - 1].name.to_owned();
    for element in 0..SWEEP.0 {
        let arrives = Seconds(FIRST_JOB.0 + f64::from(element / SWEEP.1) * SWEEP.2.0);
        workload.jobs.push(Job {
            name: format!("sweep-{element}"),
            arrives,
            requested: GpuCount(1),
            sizes: vec![GpuCount(1)],
            duration: SWEEP.2,
            kind: Kind::Opaque,
        });
        owners.push(Owner { project: last.clone(), priority: Priority::default() });
    }
    let services = service(cluster.shapes().len(), workload.arrivals);
    workload.name = "demo".into();
    workload.site = Site { owners, acts: projects_made().chain(services).collect() };
    workload
}

fn projects_made() -> impl Iterator<Item = Act> {
    PROJECTS.into_iter().map(|project| {
        let rules = ProjectRules {
            quota: project.quota.map(GpuCount),
            borrow: GpuCount(project.borrow),
            weight: project.weight,
            ..ProjectRules::default()
        };
        let body = Request::PutProject { name: project.name.to_owned(), rules, expected: None };
        Act { when: Moment::At(Seconds(0.0)), deed: Deed::Operate(Operation::Plain(Box::new(body))) }
    })
}

/// One node after the other is drained for a while.
fn service(nodes: usize, until: Seconds) -> impl Iterator<Item = Act> {
    let period = SERVICE.0 + SERVICE.1;
    let moments = (0_u32..).map(move |turn| Seconds(SERVICE.0.0 / 4.0) + period * f64::from(turn));
    moments.take_while(move |at| at.0 < until.0).map(move |at| {
        let node = (at.0 / SERVICE.0.0) as usize * 11 % nodes.max(1);
        let operation = Operation::Drain { node, undone_after: SERVICE.1 };
        Act { when: Moment::At(at), deed: Deed::Operate(operation) }
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn every_job_of_the_day_has_an_owner_and_comes_after_the_projects() {
        let cluster: Cluster = NODES.parse().unwrap();
        let day = draw(20_000, &cluster, &PLENTY);
        assert_eq!(day, draw(20_000, &cluster, &PLENTY));
        assert_eq!(day.site.owners.len(), day.jobs.len());
        assert!(day.jobs.iter().all(|job| job.arrives.0 >= FIRST_JOB.0 && job.arrives.0 <= day.arrivals.0));
        for project in PROJECTS {
            let jobs = day.site.owners.iter().filter(|owner| owner.project == project.name).count();
            assert!(jobs > 10, "{}: {jobs}", project.name);
        }
    }
}
