//! `headway up --demo`: people of four projects who submit a day's work to an emulated cluster, and an operator who mends its nodes. Day after day
//! is drawn from its number, in the shape of published traces (`headway_evidence::workload`), and what is submitted carries its number as
//! idempotency key: a demo that was stopped goes on where the cluster's time is.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use chrono::{DateTime, Utc};
use headway_agent::FleetGroup;
use headway_api::client::{Client, ClientError};
use headway_api::spec;
use headway_api::v1::{DrainRequest, ProjectRequest, ReservationRequest, TokenRequest};
use headway_evidence::demo::{BACKLOG, PLENTY, PROJECTS, SERVICE, SWEEP, person_of, priority_of};
use headway_evidence::workload::Job;
use headway_evidence::{Cluster, Contender, Named};
use headway_types::{NodePolicyKind, ProjectRole, TokenScope};
use serde_json::{Value, json};

use super::written;
use crate::failure::{Failure, Kind};

/// An hour of the cluster takes a minute.
pub const SPEED: f64 = 60.0;
/// Published rates would break one node in four days of the cluster.
pub const FAILURES: f64 = 15.0;

const DAY: f64 = 86_400.0;
/// How often it is looked who comes, by the wall clock.
const LOOK: Duration = Duration::from_secs(1);
const SERVICED: &str = "replace a fan";

/// In a data directory that is a demo's.
const MARK: &str = "demo";

/// Refuses a directory that holds another cluster: a demo runs its time ahead, makes people of its own and submits what nobody asked for.
pub fn claim(root: &Path) -> Result<(), Failure> {
    let mark = root.join(MARK);
    if root.join("postgres").exists() && !mark.exists() {
        let taken = format!("{} holds the data of a cluster, which is no demo", root.display());
        return Err(Failure::new(Kind::Conflict, taken).hint("give the demo another directory: --data-dir DIRECTORY"));
    }
    std::fs::write(&mark, "headway up --demo\n")
        .map_err(|error| anyhow::Error::new(error).context("marking the demo's directory"))?;
    Ok(())
}

/// Asks until there is an answer: a scheduler that starts again, a busy one, or one whose database is away is asked again.
async fn patiently<T>(ask: impl AsyncFn() -> Result<T, ClientError>) -> Result<T, ClientError> {
    let mut told = false;
    loop {
        let error = match ask().await {
            Err(error) if passes(&error) => error,
            answer => return answer,
        };
        if !std::mem::replace(&mut told, true) {
            aside!("headway: demo: asking again until the scheduler answers: {error}");
        }
        tokio::time::sleep(LOOK).await;
    }
}

fn passes(error: &ClientError) -> bool {
    match error {
        ClientError::Unreachable { .. } => true,
        ClientError::Problem(problem) => problem.status >= 500 || problem.status == 429,
        ClientError::Setup { .. } | ClientError::BadReply { .. } => false,
    }
}

/// Somebody who submits.
struct Person {
    project: &'static str,
    client: Client,
}

/// Plays until it is dropped; returns only what it cannot go on with.
pub async fn play(url: &str, admin: &Client, groups: &[FleetGroup]) -> Result<(), Failure> {
    let nodes = written(groups);
    let cluster = cluster(&nodes)?;
    let goodput = Contender::read("goodput", &[]).map_err(|error| Failure::new(Kind::Usage, error.to_string()))?;
    let people = people(url, admin).await?;
    let begun = now(admin).await?;
    let mut days: BTreeMap<i64, Vec<Job>> = BTreeMap::new();
    let mut operator = Operator::new(admin, begun);
    let mut submitted = seconds(begun) - BACKLOG.0;
    let mut interval = tokio::time::interval(LOOK);
    interval.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        interval.tick().await;
        let at = now(admin).await?;
        let until = seconds(at);
        for day in day(submitted)..=day(until) {
            if !days.contains_key(&day) {
                sweep(&people[people.len() - 1], day).await?;
            }
            let work = days.entry(day).or_insert_with(|| Named::Day.draw(day as u64, &cluster, &PLENTY).jobs);
            let begins = day as f64 * DAY;
            let due = |job: &&(usize, &Job)| (submitted..until).contains(&(begins + job.1.arrives.0));
            let due: Vec<(usize, &Job)> = work.iter().enumerate().filter(|job| due(&job)).collect();
            for (number, job) in due {
                let person = &people[person_of(number)];
                // Other nodes draw other work.
                let key = format!("demo-{nodes}-{day}-{number}");
                submit(person, &key, told(person, number, spec::to_json(&goodput.spec(job, &cluster)))).await?;
            }
        }
        submitted = until;
        days.retain(|one, _| *one >= day(until));
        if let Err(error) = operator.look(at).await {
            aside!("headway: demo: nodes stay as they are: {error}");
        }
    }
}

fn cluster(nodes: &str) -> Result<Cluster, Failure> {
    nodes.parse().map_err(|error: headway_evidence::ClusterError| {
        Failure::new(Kind::Usage, format!("the demo cannot draw work for these nodes: {error}"))
            .hint("emulate GPU types of the built-in catalog")
    })
}

/// Makes projects and people where they are not there yet. Tokens of an earlier start are revoked.
async fn people(url: &str, admin: &Client) -> Result<Vec<Person>, Failure> {
    let mut people = Vec::new();
    for of in PROJECTS {
        let project = of.name;
        let rules = ProjectRequest {
            quota_gpus: of.quota,
            borrow_gpus: of.borrow,
            weight: of.weight,
            parent: None,
            floor_gpus: 0,
            max_per_user_gpus: None,
        };
        patiently(async || unless_there(admin.create_project(project, &rules).await)).await?;
        for member in of.people {
            patiently(async || admin.set_user(member, TokenScope::User).await).await?;
            patiently(async || admin.set_member(project, member, ProjectRole::User).await).await?;
            let tokens = patiently(async || admin.tokens(Some(member)).await).await?;
            for token in tokens.iter().filter(|token| token.name == "demo") {
                patiently(async || admin.revoke_token(&token.id.to_string()).await).await?;
            }
            let request = TokenRequest {
                name: "demo".into(),
                scope: Some(TokenScope::User),
                user: Some((*member).into()),
                ttl_s: None,
                never_expires: true,
            };
            let secret = patiently(async || admin.create_token(&request).await).await?.secret;
            people.push(Person { project, client: Client::new(url, &secret)? });
        }
    }
    Ok(people)
}

/// What is there already is as good.
fn unless_there<T>(made: Result<T, ClientError>) -> Result<(), ClientError> {
    match made {
        Err(ClientError::Problem(problem)) if problem.status == 409 => Ok(()),
        made => made.map(drop),
    }
}

/// A job as its owner tells it.
fn told(person: &Person, number: usize, mut spec: Value) -> Value {
    spec["project"] = json!(person.project);
    spec["priority"] = json!(priority_of(number).0);
    spec
}

/// A handful of small runs that nobody tells anything of, and what looks at their results.
async fn sweep(person: &Person, day: i64) -> Result<(), Failure> {
    let script = |name: String, seconds: u32| {
        json!({
            "version": 1, "name": name, "project": person.project, "resources": {"gpus": 1},
            "run": {"command": "true", "env": {"HEADWAY_EMULATED_SECONDS": seconds.to_string()}},
        })
    };
    let name = format!("sweep-{day}");
    let (elements, at_once, lasts) = SWEEP;
    let mut sweep = script(name.clone(), lasts.0 as u32);
    sweep["array"] = json!(format!("0-{}%{at_once}", elements - 1));
    submit(person, &format!("demo-{day}-sweep"), sweep).await?;
    let mut report = script(format!("report-{day}"), 900);
    report["after"] = json!([{"job": name, "on": "success"}]);
    submit(person, &format!("demo-{day}-report"), report).await
}

/// What a project's rules refuse is told, and the day goes on. What an earlier start submitted in other words is there already.
async fn submit(person: &Person, key: &str, spec: Value) -> Result<(), Failure> {
    match patiently(async || person.client.submit_json(&spec, Some(key)).await).await {
        Ok(_) => Ok(()),
        Err(ClientError::Problem(problem)) => {
            if problem.code != "idempotency_key_reused" {
                aside!("headway: demo: {} was not taken: {}", spec["name"], problem.detail);
            }
            Ok(())
        }
        Err(error) => Err(error.into()),
    }
}

/// Takes one node after the other out of service for a while, and reserves a night for the rest.
struct Operator<'a> {
    client: &'a Client,
    next: f64,
    reserved: bool,
}

impl<'a> Operator<'a> {
    fn new(client: &'a Client, begun: DateTime<Utc>) -> Self {
        Self { client, next: seconds(begun) + SERVICE.0.0 / 4.0, reserved: false }
    }

    async fn look(&mut self, at: DateTime<Utc>) -> Result<(), ClientError> {
        let now = seconds(at);
        if now < self.next {
            return Ok(());
        }
        self.next = now + SERVICE.1.0;
        let mut nodes = patiently(async || self.client.nodes().await).await?;
        nodes.sort_by(|one, other| one.name.cmp(&other.name));
        let serviced = nodes.iter().find(|node| node.policy_reason.as_deref() == Some(SERVICED));
        if let Some(node) = serviced {
            self.next = now + SERVICE.0.0;
            return patiently(async || self.client.uncordon(&node.name).await).await.map(drop);
        }
        let usable: Vec<_> = nodes.iter().filter(|node| node.policy == NodePolicyKind::Schedulable).collect();
        if let Some(node) = usable.get((now / SERVICE.0.0) as usize * 11 % usable.len().max(1)) {
            let request = DrainRequest { reason: Some(SERVICED.into()), deadline: None, within_seconds: None };
            patiently(async || self.client.drain(&node.name, &request).await).await?;
        }
        if !std::mem::replace(&mut self.reserved, true) {
            let request = ReservationRequest {
                name: format!("driver-update-{}", day(now)),
                reason: Some("new driver".to_owned()),
                nodes: nodes.iter().rev().take(4).map(|node| node.name.clone()).collect(),
                from: Some(at + chrono::TimeDelta::hours(10)),
                until: None,
                duration_seconds: Some(7_200.0),
                maintenance: true,
                ..ReservationRequest::default()
            };
            patiently(async || unless_there(self.client.reserve(&request).await)).await?;
        }
        Ok(())
    }
}

async fn now(client: &Client) -> Result<DateTime<Utc>, ClientError> {
    Ok(patiently(async || client.overview().await).await?.at)
}

fn seconds(at: DateTime<Utc>) -> f64 {
    at.timestamp_millis() as f64 / 1e3
}

fn day(seconds: f64) -> i64 {
    (seconds / DAY).floor() as i64
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use headway_evidence::demo::NODES;

    use super::*;

    #[test]
    fn a_demo_takes_no_other_clusters_directory() {
        let dir = tempfile::tempdir().unwrap();
        claim(dir.path()).unwrap();
        std::fs::create_dir(dir.path().join("postgres")).unwrap();
        claim(dir.path()).unwrap();
        std::fs::remove_file(dir.path().join(MARK)).unwrap();
        assert_eq!(claim(dir.path()).unwrap_err().kind, Kind::Conflict);
    }

    /// What the demo submits is what people can submit, and its names are new every day.
    #[test]
    fn a_day_is_drawn_from_its_number_and_can_be_submitted() {
        let cluster: Cluster = NODES.parse().unwrap();
        let goodput = Contender::read("goodput", &[]).unwrap();
        let (today, again) = (Named::Day.draw(20_000, &cluster, &PLENTY), Named::Day.draw(20_000, &cluster, &PLENTY));
        assert_eq!(today.jobs, again.jobs);
        assert!(today.jobs.len() > 100, "{} jobs", today.jobs.len());
        let person = Person { project: "alignment", client: Client::new("http://127.0.0.1:1", "t").unwrap() };
        for (number, job) in today.jobs.iter().enumerate() {
            let told = told(&person, number, spec::to_json(&goodput.spec(job, &cluster)));
            let read = spec::read_json(&told);
            assert!(read.is_ok(), "{told}: {read:?}");
        }
    }
}
