//! Which job or plan is meant by what a user writes.

use headway_api::client::Client;
use headway_api::v1::{Job, PlanSummary};
use headway_types::JobStateKind;

use super::short;
use crate::failure::{Failure, Kind};
use crate::output::moment;

/// A job, and how many others have its name.
#[derive(Debug, PartialEq, Eq)]
pub struct Chosen {
    pub id: String,
    pub others: usize,
}

/// The newest of a name, else the only one of an id.
pub fn to_show(jobs: &[Job], text: &str) -> Result<Chosen, Failure> {
    let named: Vec<&Job> = jobs.iter().filter(|job| job.name == text).collect();
    match named.iter().max_by_key(|job| (job.submitted_at, job.id)) {
        Some(newest) => Ok(Chosen { id: newest.id.to_string(), others: named.len() - 1 }),
        None => by_id(jobs, text).map(|id| Chosen { id, others: 0 }),
    }
}

/// The only live one of a name, or the only one there was; else the only one of an id.
pub fn to_change(jobs: &[Job], text: &str) -> Result<String, Failure> {
    let named: Vec<&Job> = jobs.iter().filter(|job| job.name == text).collect();
    let live: Vec<&Job> = named.iter().copied().filter(|job| !ended(job)).collect();
    match if live.is_empty() { named } else { live }.as_slice() {
        [] => by_id(jobs, text),
        [only] => Ok(only.id.to_string()),
        several => Err(ambiguous(format!("{} jobs are called {text}", several.len()), several)),
    }
}

/// Of a plan's whole id that; else the only one of the newest that begins or ends so.
pub async fn plan(client: &Client, text: &str) -> Result<String, Failure> {
    match text.len() {
        WHOLE_ID => Ok(text.to_owned()),
        _ => newest_plan(&client.plans(None).await?.items, text),
    }
}

const WHOLE_ID: usize = 36;

fn newest_plan(plans: &[PlanSummary], text: &str) -> Result<String, Failure> {
    let ids = plans.iter().map(|plan| plan.id.to_string());
    let matching: Vec<String> = ids.filter(|id| id.starts_with(text) || id.ends_with(text)).collect();
    match matching.as_slice() {
        [only] => Ok(only.clone()),
        [] => Err(Failure::new(Kind::NotFound, format!("no plan of the newest {} is {text}", plans.len()))
            .hint("see `headway plan list`; an older one is named by its whole id")),
        several => Err(Failure::new(Kind::Conflict, format!("{} plan ids begin or end with {text}", several.len()))
            .hint(format!("name one of\n    {}", several.join("\n    ")))),
    }
}

fn ended(job: &Job) -> bool {
    matches!(job.state, JobStateKind::Succeeded | JobStateKind::Failed | JobStateKind::Cancelled)
}

fn by_id(jobs: &[Job], text: &str) -> Result<String, Failure> {
    let matches = |job: &&Job| {
        let id = job.id.to_string();
        id.starts_with(text) || id.ends_with(text)
    };
    let matching: Vec<&Job> = jobs.iter().filter(matches).collect();
    match matching.as_slice() {
        [only] => Ok(only.id.to_string()),
        [] => Err(no_job(jobs, text)),
        several => Err(ambiguous(format!("{} job ids begin or end with {text}", several.len()), several)),
    }
}

/// What is called so may be an array: it is no job, but its elements are.
fn no_job(jobs: &[Job], text: &str) -> Failure {
    let name = text.split_once('[').map_or(text, |(name, _)| name);
    let element = |job: &&Job| job.array.as_ref().is_some_and(|of| of.name == name);
    let Some(of) = jobs.iter().filter(element).max_by_key(|job| job.id).and_then(|job| job.array.as_ref()) else {
        return Failure::new(Kind::NotFound, format!("no job is called {text}")).hint("see `headway ps --all`");
    };
    let (count, index) = (of.count, of.index);
    let (message, all) = match name == text {
        true => (
            format!("{text} is an array of {count} jobs"),
            format!("for all of them: headway array --help, as in headway array get {name}"),
        ),
        false => {
            (format!("array {name} has no element {text}"), format!("headway array get {name} lists those it has"))
        }
    };
    Failure::new(Kind::Usage, message).hint(format!("name one of its elements, such as '{name}[{index}]'; {all}"))
}

fn ambiguous(message: String, candidates: &[&Job]) -> Failure {
    const NAMED: usize = 10;
    let line = |job: &&Job| {
        format!("    {}  {}  {}  of {}", short(&job.id.to_string()), job.name, job.state, moment(job.submitted_at))
    };
    let mut lines: Vec<String> = candidates.iter().take(NAMED).map(line).collect();
    if candidates.len() > NAMED {
        lines.push(format!("    and {} more", candidates.len() - NAMED));
    }
    Failure::new(Kind::Conflict, message).hint(format!("name one by its id:\n{}", lines.join("\n")))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn job(number: u32, name: &str, state: &str) -> Job {
        let id = format!("018bcfe5-0001-7000-8000-{number:012x}");
        let at = format!("2026-01-01T00:00:{number:02}Z");
        serde_json::from_value(serde_json::json!({
            "id": id, "name": name, "state": state, "project": "default", "owner": "ada", "priority": 50, "version": 1,
            "submitted_at": at, "state_since": at, "gpus": 0, "gpus_min": 1, "gpus_max": 1, "gpu_sizes": [], "nodes": [],
            "progress_tokens": 0.0, "reconfigurations": 0, "batch_changes": 0, "generation": 0, "restarts": 0,
        }))
        .unwrap()
    }

    #[test]
    fn what_is_done_is_done_to_no_job_by_chance() {
        let jobs = [job(1, "train", "running"), job(2, "train", "queued"), job(3, "other", "queued")];
        let refused = to_change(&jobs, "train").unwrap_err();
        assert_eq!(refused.kind, Kind::Conflict, "as the table of exit codes has it");
        insta::assert_snapshot!(refused.to_string());
        assert_eq!(to_change(&jobs, "other").unwrap(), jobs[2].id.to_string());
        assert_eq!(to_change(&jobs, "00000002").unwrap(), jobs[1].id.to_string(), "as `ps` shows it");
    }

    #[test]
    fn of_a_name_that_others_had_the_live_one_is_meant() {
        let jobs = [job(1, "train", "running"), job(2, "train", "failed"), job(3, "train", "cancelled")];
        assert_eq!(to_change(&jobs, "train").unwrap(), jobs[0].id.to_string());
    }

    #[test]
    fn an_array_is_no_job_but_its_elements_are() {
        let of =
            |index| headway_api::v1::JobArray { array_id: uuid::Uuid::nil(), name: "sweep".into(), index, count: 2 };
        let element = |index: u32| Job { array: Some(of(index)), ..job(index, &format!("sweep[{index}]"), "running") };
        let jobs = [element(1), element(2)];
        assert_eq!(to_change(&jobs, "sweep[2]").unwrap(), jobs[1].id.to_string());
        assert_eq!(to_show(&jobs, "sweep[1]").unwrap().id, jobs[0].id.to_string());
        let told = [to_change(&jobs, "sweep").unwrap_err(), to_show(&jobs, "sweep[7]").unwrap_err()];
        insta::assert_snapshot!(told.map(|failure| failure.to_string()).join("\n"));
    }

    #[test]
    fn of_several_the_newest_is_shown_and_the_others_are_counted() {
        let jobs = [job(1, "train", "running"), job(2, "train", "failed")];
        assert_eq!(to_show(&jobs, "train").unwrap(), Chosen { id: jobs[1].id.to_string(), others: 1 });
    }

    #[test]
    fn an_id_is_known_by_either_end_where_only_one_has_it() {
        let jobs = [job(1, "a", "running"), job(2, "b", "running")];
        assert_eq!(to_show(&jobs, "018bcfe5").unwrap_err().kind, Kind::Conflict);
        assert_eq!(to_show(&jobs, "0009").unwrap_err().kind, Kind::NotFound);
        assert_eq!(to_show(&jobs, "000001").unwrap().id, jobs[0].id.to_string());
    }

    #[test]
    fn a_plan_is_known_by_an_end_that_only_one_has() {
        let plan = |number: u32| -> PlanSummary {
            let id = format!("018bcfe5-0001-7000-8000-{number:012x}");
            serde_json::from_value(serde_json::json!({
                "id": id, "made_at": "2026-01-01T00:00:00Z", "state": "adopted", "trigger": "", "objective_before": 0.0,
                "objective": 0.0, "moves": 0,
            }))
            .unwrap()
        };
        let plans = [plan(0x1a), plan(0x2a)];
        assert_eq!(newest_plan(&plans, "1a").unwrap(), plans[0].id.to_string());
        assert!(newest_plan(&plans, "a").unwrap_err().to_string().contains("2 plan ids"));
        assert!(newest_plan(&plans, "3").is_err());
    }
}
