//! Which job or plan is meant by what a user writes. The scheduler is asked for what has the name or the end of an id, and never for all there is.

use headway_api::client::{ArrayQuery, Client, ClientError, JobFilter, PlanQuery};
use headway_api::v1::{Job, JobList, PlanSummary};

use super::{may_end_an_id, short};
use crate::failure::{Failure, Kind};
use crate::output::moment;

/// Jobs that a refusal names.
const NAMED: usize = 10;

/// A job, and how many others have its name.
#[derive(Debug, PartialEq, Eq)]
pub struct Chosen {
    pub id: String,
    pub others: usize,
}

/// Who knows the jobs there are.
pub trait Jobs {
    async fn page(&self, filter: &JobFilter) -> Result<JobList, ClientError>;

    /// The last element of the newest array that is called so.
    async fn element_of(&self, array: &str) -> Result<Option<Job>, ClientError>;
}

impl Jobs for Client {
    async fn page(&self, filter: &JobFilter) -> Result<JobList, ClientError> {
        self.jobs(filter).await
    }

    async fn element_of(&self, array: &str) -> Result<Option<Job>, ClientError> {
        let named = ArrayQuery { name: Some(array.to_owned()), ..ArrayQuery::default() };
        let Some(newest) = self.arrays(&named).await?.into_iter().find(|one| one.name == array) else {
            return Ok(None);
        };
        let elements = JobFilter { array: Some(newest.id.to_string()), limit: Some(1), ..JobFilter::default() };
        Ok(self.jobs(&elements).await?.items.pop())
    }
}

/// The newest of a name, else the only one of an id.
pub async fn to_show(known: &impl Jobs, text: &str) -> Result<Chosen, Failure> {
    let named = Found::named(known, text, &[]).await?;
    match named.jobs.first() {
        Some(newest) => Ok(Chosen { id: newest.id.to_string(), others: named.all - 1 }),
        None => by_id(known, text).await.map(|id| Chosen { id, others: 0 }),
    }
}

/// The only live one of a name, or the only one there was; else the only one of an id.
pub async fn to_change(known: &impl Jobs, text: &str) -> Result<String, Failure> {
    let named = Found::named(known, text, &[]).await?;
    let live = match named.is_whole() {
        true => Found::whole(named.jobs.iter().filter(|job| !job.state.is_final()).cloned().collect()),
        // The newest may have ended while an old one runs.
        false => Found::named(known, text, &["live"]).await?,
    };
    let meant = if live.jobs.is_empty() { named } else { live };
    match meant.jobs.as_slice() {
        [] => by_id(known, text).await,
        [only] if meant.is_whole() => Ok(only.id.to_string()),
        _ => Err(meant.ambiguous(format!("{} jobs are called {text}", meant.all))),
    }
}

/// Of a plan's whole id that; else the only one of the newest that begins or ends so.
pub async fn plan(client: &Client, text: &str) -> Result<String, Failure> {
    match text.len() {
        WHOLE_ID => Ok(text.to_owned()),
        _ => newest_plan(&client.plans(&PlanQuery::default()).await?.items, text),
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

/// Jobs that a text may mean.
struct Found {
    /// The newest first, and of very many no more than can be told.
    jobs: Vec<Job>,
    all: usize,
}

impl Found {
    fn whole(jobs: Vec<Job>) -> Self {
        Self { all: jobs.len(), jobs }
    }

    fn is_whole(&self) -> bool {
        self.jobs.len() == self.all
    }

    async fn named(known: &impl Jobs, name: &str, states: &[&str]) -> Result<Self, Failure> {
        let states = states.iter().map(|state| (*state).to_owned()).collect();
        let filter = JobFilter { name: Some(name.to_owned()), states, ..JobFilter::default() };
        Self::of(known, filter, |job| job.name == name).await
    }

    /// The newest that are meant, counted where there are more. `meant`: a server that does not know what it is asked for by is not obeyed.
    async fn of(known: &impl Jobs, filter: JobFilter, meant: impl Fn(&Job) -> bool) -> Result<Self, Failure> {
        let page = known.page(&JobFilter { limit: Some(NAMED as u32 + 1), ..filter.clone() }).await?;
        let jobs: Vec<Job> = page.items.into_iter().filter(meant).collect();
        if page.next_cursor.is_none() {
            return Ok(Self::whole(jobs));
        }
        let counted = known.page(&JobFilter { limit: Some(1), totals: true, ..filter }).await?;
        // Counts are a moment old.
        let all = counted.totals.map_or(0, |totals| totals.jobs as usize).max(jobs.len() + 1);
        Ok(Self { jobs, all })
    }

    fn ambiguous(&self, message: String) -> Failure {
        let line = |job: &Job| {
            format!("    {}  {}  {}  of {}", short(&job.id.to_string()), job.name, job.state, moment(job.submitted_at))
        };
        let mut lines: Vec<String> = self.jobs.iter().take(NAMED).map(line).collect();
        if self.all > lines.len() {
            lines.push(format!("    and {} more", self.all - lines.len()));
        }
        Failure::new(Kind::Conflict, message).hint(format!("name one by its id:\n{}", lines.join("\n")))
    }
}

async fn by_id(known: &impl Jobs, text: &str) -> Result<String, Failure> {
    // Of other texts no id has any.
    if may_end_an_id(text) {
        let filter = JobFilter { id: Some(text.to_owned()), ..JobFilter::default() };
        let end = text.to_ascii_lowercase();
        let begins_or_ends = |job: &Job| {
            let id = job.id.to_string();
            id.starts_with(&end) || id.ends_with(&end)
        };
        let found = Found::of(known, filter, begins_or_ends).await?;
        match found.jobs.as_slice() {
            [only] if found.is_whole() => return Ok(only.id.to_string()),
            [] => {}
            _ => return Err(found.ambiguous(format!("{} job ids begin or end with {text}", found.all))),
        }
    }
    Err(no_job(known, text).await?)
}

/// What is called so may be an array: it is no job, but its elements are.
async fn no_job(known: &impl Jobs, text: &str) -> Result<Failure, Failure> {
    let name = text.split_once('[').map_or(text, |(name, _)| name);
    let Some(of) = known.element_of(name).await?.and_then(|job| job.array) else {
        return Ok(Failure::new(Kind::NotFound, format!("no job is called {text}")).hint("see `headway ps --all`"));
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
    Ok(Failure::new(Kind::Usage, message).hint(format!("name one of its elements, such as '{name}[{index}]'; {all}")))
}

#[cfg(test)]
mod tests;
