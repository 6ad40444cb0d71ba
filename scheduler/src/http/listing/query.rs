//! What a list is asked for, read and held to what there is.

use std::collections::BTreeSet;
use std::sync::LazyLock;

use chrono::{DateTime, Utc};
use headway_api::v1;
use headway_types::{ArrayId, JobId, JobStateKind};
use serde::Deserialize;
use strum::VariantArray;
use utoipa::PartialSchema;
use utoipa::openapi::RefOr;
use utoipa::openapi::schema::Schema;
use uuid::Uuid;

use super::orders::{LiveKey, LiveOrder};
use crate::http::cursor;
use crate::http::labels;
use crate::http::problem::Problem;
use crate::store::{IdEnd, JobFilter, JobKey, JobOrder};

pub const JOBS_AT_MOST: u32 = 500;

#[derive(Debug, Default, Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
pub struct JobsQuery {
    /// Comma-separated states; `live` stands for all that have not ended, `ended` for the others.
    state: Option<String>,
    project: Option<String>,
    /// Owner.
    user: Option<String>,
    /// Comma-separated labels that a job has, all of them: `name=value`, or `name` with any value.
    label: Option<String>,
    /// Only elements of this array.
    array: Option<Uuid>,
    /// `expanded` (as by default): a row for each element of an array; `collapsed`: one row for each array of which an element is admitted, which stands
    /// for all of them (`stands_for`), in the place of its first element. Only in the order of submission.
    arrays: Option<String>,
    /// Part of the name, in any case.
    q: Option<String>,
    /// The whole name. Not with `at`, nor with `arrays=collapsed`.
    name: Option<String>,
    /// The beginning or the end of the id, such as the eight digits that lists show; of more than 1000 such jobs the newest. Not with `at`, nor with
    /// `arrays=collapsed`.
    id: Option<String>,
    /// `submitted` (the newest first), `name`, `owner`, `project` or `ended` (the first to end first); with `state=live` also
    /// `priority`, `gpus`, `goodput`, `progress`, `lost` (the most first), `eta` or `position` (the soonest first). A `-` before it turns it round.
    sort: Option<String>,
    /// Comma-separated fields that each job shall have; all if absent.
    fields: Option<String>,
    /// Also count what the filter admits, by state.
    totals: Option<bool>,
    /// A past moment: the reply is a `PastJobList` of the jobs that had not ended, with what is known of them.
    pub at: Option<DateTime<Utc>>,
    /// The `next_cursor` of the page before, asked for with the same filter and order.
    cursor: Option<String>,
    /// 100 if absent, 500 at most.
    limit: Option<u32>,
}

/// A list as it is wanted.
pub struct Wanted {
    /// With the order and the cursor, where the store has them.
    pub filter: JobFilter,
    /// By which the store knows the only jobs that are wanted.
    pub id: Option<IdEnd>,
    pub sort: Sort,
    /// Where the page before ended.
    pub position: Option<String>,
    pub fields: Option<Fields>,
    pub totals: bool,
    /// One row per array.
    pub collapsed: bool,
}

/// Who knows the order.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Sort {
    Stored,
    Live(LiveOrder),
}

impl Wanted {
    pub fn of(query: JobsQuery) -> Result<Self, Problem> {
        let states = states(query.state.as_deref())?;
        let (order, sort) = sort(query.sort.as_deref(), &states)?;
        let position = query.cursor.as_deref().map(cursor::position).transpose()?;
        let cursor = match (sort, position) {
            (Sort::Stored, Some(text)) => Some(text.parse::<JobId>().map_err(|_| cursor::unknown())?),
            _ => None,
        };
        let collapsed = collapsed(query.arrays.as_deref())?;
        if collapsed && (order != JobOrder::default() || sort != Sort::Stored || query.at.is_some()) {
            let problem =
                Problem::bad_request("a list with one row per array has the order of submission alone, and no past");
            return Err(problem.field("arrays").hint("leave out sort and at, or arrays"));
        }
        let of_one = query.name.is_some() || query.id.is_some();
        if collapsed && of_one {
            let problem = Problem::bad_request("a list with one row per array is not searched by whole names and ids");
            return Err(problem.field("arrays").hint("leave out arrays, or ask /arrays"));
        }
        let filter = JobFilter {
            array: query.array.map(ArrayId),
            states,
            project: query.project,
            owner: query.user,
            labels: labels::wanted(query.label.as_deref())?,
            name: query.name,
            name_contains: query.q.filter(|part| !part.is_empty()),
            among: None,
            out_of_sight: None,
            order,
            limit: query.limit.unwrap_or(100),
            cursor,
        };
        let fields = query.fields.as_deref().map(Fields::read).transpose()?;
        let (id, totals) = (query.id.as_deref().map(id_end).transpose()?, query.totals.unwrap_or(false));
        let position = position.map(str::to_owned);
        Ok(Self { filter, id, sort, position, fields, totals, collapsed })
    }

    /// The past knows jobs in the order of their submission, and of each what its history tells.
    pub fn filter_of_the_past(self) -> Result<JobFilter, Problem> {
        let given = [
            ("sort", self.filter.order != JobOrder::default() || self.sort != Sort::Stored),
            ("label", !self.filter.labels.is_empty()),
            ("fields", self.fields.is_some()),
            ("totals", self.totals),
            ("array", self.filter.array.is_some()),
            ("name", self.filter.name.is_some()),
            ("id", self.id.is_some()),
        ];
        match given.into_iter().find(|(_, given)| *given) {
            Some((name, _)) => Err(Problem::bad_request(format!("a past moment has no {name}")).field(name)),
            None => Ok(self.filter),
        }
    }
}

fn collapsed(text: Option<&str>) -> Result<bool, Problem> {
    match text {
        None | Some("expanded") => Ok(false),
        Some("collapsed") => Ok(true),
        Some(other) => {
            let problem = Problem::bad_request(format!("arrays are not shown \"{other}\"")).field("arrays");
            Err(problem.hint("arrays are expanded or collapsed"))
        }
    }
}

/// The beginning or the end of an id that somebody names.
pub fn id_end(text: &str) -> Result<IdEnd, Problem> {
    text.parse::<IdEnd>().map_err(|wrong| Problem::bad_request(wrong.to_string()).field("id"))
}

fn states(text: Option<&str>) -> Result<Vec<JobStateKind>, Problem> {
    let group = |ended: bool| JobStateKind::VARIANTS.iter().copied().filter(move |state| state.is_final() == ended);
    let mut states = Vec::new();
    for name in text.unwrap_or_default().split(',').map(str::trim).filter(|name| !name.is_empty()) {
        match (name, name.parse()) {
            ("live", _) => states.extend(group(false)),
            ("ended", _) => states.extend(group(true)),
            (_, Ok(state)) => states.push(state),
            (_, Err(_)) => {
                let known: String = JobStateKind::VARIANTS.iter().map(|state| format!("{state}, ")).collect();
                let unknown = Problem::bad_request(format!("there is no state \"{name}\"")).field("state");
                return Err(unknown.hint(format!("states are {known}live, ended")));
            }
        }
    }
    Ok(states)
}

fn sort(text: Option<&str>, states: &[JobStateKind]) -> Result<(JobOrder, Sort), Problem> {
    let Some(text) = text else { return Ok((JobOrder::default(), Sort::Stored)) };
    let (name, backwards) = text.strip_prefix('-').map_or((text, false), |name| (name, true));
    let stored = match name {
        "submitted" => Some(JobKey::Submitted),
        "name" => Some(JobKey::Name),
        "owner" => Some(JobKey::Owner),
        "project" => Some(JobKey::Project),
        "ended" => Some(JobKey::Ended),
        _ => None,
    };
    if let Some(key) = stored {
        return Ok((JobOrder { key, backwards }, Sort::Stored));
    }
    let key = LiveKey::VARIANTS.iter().find(|key| <&str>::from(**key) == name);
    let Some(key) = key else {
        let live: Vec<&str> = LiveKey::VARIANTS.iter().map(|key| <&str>::from(*key)).collect();
        let unknown = Problem::bad_request(format!("jobs cannot be sorted by \"{name}\"")).field("sort");
        let hint = format!("sort by submitted, name, owner, project, ended; with state=live by {}", live.join(", "));
        return Err(unknown.hint(hint));
    };
    if states.is_empty() || states.iter().any(|state| state.is_final()) {
        let problem = Problem::bad_request(format!("only jobs that have not ended can be sorted by {name}"));
        return Err(problem.field("sort").hint("add state=live, or states that are no end"));
    }
    Ok((JobOrder::default(), Sort::Live(LiveOrder { key: *key, backwards })))
}

/// Fields of a job that a list shall have.
#[derive(Debug, PartialEq)]
pub struct Fields(BTreeSet<String>);

/// Those that there are, as the document tells them.
static KNOWN: LazyLock<BTreeSet<String>> = LazyLock::new(|| match v1::Job::schema() {
    RefOr::T(Schema::Object(job)) => job.properties.keys().cloned().collect(),
    _ => BTreeSet::new(),
});

impl Fields {
    pub fn read(text: &str) -> Result<Self, Problem> {
        let names: BTreeSet<String> =
            text.split(',').map(str::trim).filter(|name| !name.is_empty()).map(str::to_owned).collect();
        if let Some(unknown) = names.iter().find(|name| !KNOWN.contains(*name)) {
            let known: Vec<&str> = KNOWN.iter().map(String::as_str).collect();
            let problem = Problem::bad_request(format!("a job has no field \"{unknown}\"")).field("fields");
            return Err(problem.hint(format!("fields are {}", known.join(", "))));
        }
        Ok(Self(names))
    }

    pub fn admit(&self, name: &str) -> bool {
        self.0.contains(name)
    }

    /// What is wanted of a row.
    pub fn of(&self, job: &str) -> String {
        let mut fields: serde_json::Map<String, serde_json::Value> =
            serde_json::from_str(job).expect("a row is a JSON object");
        fields.retain(|name, _| self.admit(name));
        serde_json::to_string(&fields).expect("it was JSON")
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn states_are_named_one_by_one_or_by_group() {
        assert_eq!(states(Some("running,failed")).unwrap(), [JobStateKind::Running, JobStateKind::Failed]);
        assert_eq!(states(Some("ended")).unwrap().len(), 3);
        assert!(states(None).unwrap().is_empty());
        assert!(states(Some("runing")).is_err());
    }

    #[test]
    fn what_only_live_jobs_have_sorts_live_jobs_alone() {
        let live = states(Some("live")).unwrap();
        let (_, by_goodput) = sort(Some("-goodput"), &live).unwrap();
        assert_eq!(by_goodput, Sort::Live(LiveOrder { key: LiveKey::Goodput, backwards: true }));
        assert!(sort(Some("goodput"), &[]).is_err());
        assert!(sort(Some("goodput"), &states(Some("running,failed")).unwrap()).is_err());
        assert!(sort(Some("colour"), &live).is_err());
        let (order, _) = sort(Some("-name"), &[]).unwrap();
        assert_eq!(order, JobOrder { key: JobKey::Name, backwards: true });
    }

    #[test]
    fn fields_are_those_of_the_document() {
        assert!(Fields::read("id,name,waiting,eta_seconds").is_ok());
        assert!(Fields::read("id,nmae").is_err());
    }
}
