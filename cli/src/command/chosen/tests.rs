#![allow(clippy::unwrap_used)]
use std::cell::Cell;

use headway_api::v1::{JobArray, JobTotals};

use super::*;

/// What a scheduler knows, the oldest first, and how many requests and jobs that has cost.
struct Known {
    jobs: Vec<Job>,
    requests: Cell<usize>,
    told: Cell<usize>,
}

impl Known {
    fn of(jobs: impl IntoIterator<Item = Job>) -> Self {
        Self { jobs: jobs.into_iter().collect(), requests: Cell::new(0), told: Cell::new(0) }
    }

    fn id(&self, index: usize) -> String {
        self.jobs[index].id.to_string()
    }
}

impl Jobs for Known {
    async fn page(&self, filter: &JobFilter) -> Result<JobList, ClientError> {
        let live = filter.states == ["live"];
        assert!(filter.states.is_empty() || live, "{filter:?}");
        let admitted = |job: &&Job| {
            let id = job.id.to_string();
            (!live || !job.state.is_final())
                && filter.name.as_ref().is_none_or(|name| job.name == *name)
                && filter.id.as_ref().is_none_or(|end| id.starts_with(end) || id.ends_with(end))
        };
        let all: Vec<&Job> = self.jobs.iter().rev().filter(admitted).collect();
        let limit = filter.limit.unwrap() as usize;
        let next_cursor = all.get(limit).map(|job| job.id.to_string());
        let counted_at = "2026-01-01T00:00:00Z".parse().unwrap();
        let totals = JobTotals { jobs: all.len() as u64, by_state: Default::default(), counted_at };
        let items: Vec<Job> = all.into_iter().take(limit).cloned().collect();
        self.requests.set(self.requests.get() + 1);
        self.told.set(self.told.get() + items.len());
        Ok(JobList { items, next_cursor, totals: filter.totals.then_some(totals) })
    }

    async fn element_of(&self, array: &str) -> Result<Option<Job>, ClientError> {
        let element = |job: &&Job| job.array.as_ref().is_some_and(|of| of.name == array);
        Ok(self.jobs.iter().rev().find(element).cloned())
    }
}

fn job(number: u32, name: &str, state: &str) -> Job {
    let id = format!("018bcfe5-0001-7000-8000-{number:012x}");
    let at = format!("2026-01-01T{:02}:{:02}:{:02}Z", number / 3_600, number / 60 % 60, number % 60);
    serde_json::from_value(serde_json::json!({
        "id": id, "name": name, "state": state, "project": "default", "owner": "ada", "priority": 50, "version": 1,
        "submitted_at": at, "state_since": at, "gpus": 0, "gpus_min": 1, "gpus_max": 1, "gpu_sizes": [], "nodes": [],
        "progress_tokens": 0.0, "reconfigurations": 0, "batch_changes": 0, "generation": 0, "restarts": 0,
    }))
    .unwrap()
}

#[tokio::test]
async fn what_is_done_is_done_to_no_job_by_chance() {
    let known = Known::of([job(1, "train", "running"), job(2, "train", "queued"), job(3, "other", "queued")]);
    let refused = to_change(&known, "train").await.unwrap_err();
    assert_eq!(refused.kind, Kind::Conflict, "as the table of exit codes has it");
    insta::assert_snapshot!(refused.to_string());
    assert_eq!(to_change(&known, "other").await.unwrap(), known.id(2));
    assert_eq!(to_change(&known, "00000002").await.unwrap(), known.id(1), "as `ps` shows it");
}

#[tokio::test]
async fn of_a_name_that_others_had_the_live_one_is_meant() {
    let known = Known::of([job(1, "train", "running"), job(2, "train", "failed"), job(3, "train", "cancelled")]);
    assert_eq!(to_change(&known, "train").await.unwrap(), known.id(0));
}

#[tokio::test]
async fn an_array_is_no_job_but_its_elements_are() {
    let of = |index| JobArray { array_id: uuid::Uuid::nil(), name: "sweep".into(), index, count: 2 };
    let element = |index: u32| Job { array: Some(of(index)), ..job(index, &format!("sweep[{index}]"), "running") };
    let known = Known::of([element(1), element(2)]);
    assert_eq!(to_change(&known, "sweep[2]").await.unwrap(), known.id(1));
    assert_eq!(to_show(&known, "sweep[1]").await.unwrap().id, known.id(0));
    let told = [to_change(&known, "sweep").await.unwrap_err(), to_show(&known, "sweep[7]").await.unwrap_err()];
    insta::assert_snapshot!(told.map(|failure| failure.to_string()).join("\n"));
}

#[tokio::test]
async fn of_several_the_newest_is_shown_and_the_others_are_counted() {
    let known = Known::of([job(1, "train", "running"), job(2, "train", "failed")]);
    assert_eq!(to_show(&known, "train").await.unwrap(), Chosen { id: known.id(1), others: 1 });
}

#[tokio::test]
async fn an_id_is_known_by_either_end_where_only_one_has_it() {
    let known = Known::of([job(1, "a", "running"), job(2, "b", "running")]);
    assert_eq!(to_show(&known, "018bcfe5").await.unwrap_err().kind, Kind::Conflict);
    assert_eq!(to_show(&known, "0009").await.unwrap_err().kind, Kind::NotFound);
    assert_eq!(to_show(&known, "000001").await.unwrap().id, known.id(0));
}

#[tokio::test]
async fn a_job_of_very_many_costs_few_requests() {
    let ended = (2..5_000).map(|number| job(number, "train", "succeeded"));
    let known = Known::of(std::iter::once(job(1, "train", "running")).chain(ended));
    assert_eq!(to_change(&known, "train").await.unwrap(), known.id(0), "the only one that lives, however old");
    assert_eq!(to_show(&known, "train").await.unwrap(), Chosen { id: known.id(4_998), others: 4_998 });
    assert_eq!(to_show(&known, "00000001").await.unwrap().id, known.id(0));
    assert!(to_show(&known, "trains").await.is_err());
    assert!(known.requests.get() < 10 && known.told.get() < 50, "{:?}, {:?}", known.requests, known.told);
    let known = Known::of((1..5_000).map(|number| job(number, "train", "failed")));
    let refused = to_change(&known, "train").await.unwrap_err().to_string();
    assert!(refused.contains("4999 jobs are called train") && refused.contains("and 4989 more"), "{refused}");
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
