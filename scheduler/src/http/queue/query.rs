//! What of the queue is asked for, read and held to what there is.

use std::collections::BTreeSet;

use headway_engine::view::View;
use headway_planner::name_gpu_type;
use headway_types::{GpuType, JobId, ReasonCode};
use serde::Deserialize;
use strum::VariantArray;
use uuid::Uuid;

use super::counts::Holds;
use super::line::{Rank, Row};
use crate::http::cursor;
use crate::http::problem::Problem;

pub const JOBS_AT_MOST: u32 = 500;
/// Told of a job that no round has looked at yet.
pub const UNPLANNED: &str = "unplanned";

#[derive(Debug, Default, Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
pub struct QueueQuery {
    project: Option<String>,
    /// Owner.
    user: Option<String>,
    /// The first reason why it waits, as in `totals.by_code`.
    code: Option<String>,
    /// A GPU type that it accepts, as nodes call it or the beginning of that ("H100").
    #[serde(rename = "type")]
    #[param(rename = "type")]
    gpu_type: Option<String>,
    /// Part of the name, in any case.
    q: Option<String>,
    /// This one alone.
    job: Option<Uuid>,
    /// The `next_cursor` of the page before, asked for with the same filter.
    cursor: Option<String>,
    /// 100 if absent, 500 at most.
    limit: Option<u32>,
}

/// The queue as it is wanted.
#[derive(Debug)]
pub struct Wanted {
    project: Option<String>,
    owner: Option<String>,
    code: Option<String>,
    gpu_type: Option<GpuType>,
    /// In small letters.
    part: Option<String>,
    job: Option<JobId>,
    pub after: Option<Rank>,
    pub limit: usize,
}

impl Wanted {
    pub fn of(query: QueueQuery, view: &View) -> Result<Self, Problem> {
        Ok(Self {
            project: query.project,
            owner: query.user,
            code: query.code.map(known_code).transpose()?,
            gpu_type: query.gpu_type.map(|of| known_type(of, view)).transpose()?,
            part: query.q.map(|part| part.to_lowercase()),
            job: query.job.map(JobId),
            after: query.cursor.as_deref().map(|given| cursor::position(given)?.parse()).transpose()?,
            limit: query.limit.unwrap_or(100) as usize,
        })
    }

    /// Which of the conditions that have choices hold; nothing where one of the others does not.
    pub fn holds(&self, row: &Row) -> Option<Holds> {
        let (job, spec) = (&row.job, &row.job.spec);
        let others = self.job.is_none_or(|wanted| wanted == job.id)
            && self.owner.as_ref().is_none_or(|wanted| *wanted == job.owner)
            && self.part.as_ref().is_none_or(|part| spec.name.to_lowercase().contains(part));
        let code = row.waiting.code.as_deref().unwrap_or(UNPLANNED);
        others.then(|| Holds {
            code: self.code.as_ref().is_none_or(|wanted| wanted == code),
            project: self.project.as_ref().is_none_or(|wanted| *wanted == spec.project),
            gpu_type: self.gpu_type.as_ref().is_none_or(|wanted| spec.role().gpus.accepts(wanted)),
        })
    }
}

fn known_code(code: String) -> Result<String, Problem> {
    if code == UNPLANNED || code.parse::<ReasonCode>().is_ok() {
        return Ok(code);
    }
    let known: Vec<&str> = ReasonCode::VARIANTS.iter().map(|known| <&str>::from(*known)).collect();
    let unknown = Problem::bad_request(format!("there is no reason \"{code}\"")).field("code");
    Err(unknown.hint(format!("reasons are {UNPLANNED}, {}", known.join(", "))))
}

fn known_type(written: String, view: &View) -> Result<GpuType, Problem> {
    let present: BTreeSet<&str> = view.nodes.values().map(|node| node.node.inventory.gpu_type.0.as_str()).collect();
    name_gpu_type(&present, &GpuType(written)).map_err(|misnamed| {
        Problem::bad_request(misnamed.to_string()).field("type").hint("headway node list names the types there are")
    })
}
