//! Why a job of a list waits and when it starts: the word of the newest round and of the newest forecast, as they are kept. Nothing is planned or
//! predicted for it, so that a list of any length costs its rows.

use headway_api::v1;
use headway_engine::record::JobState;
use headway_engine::view::{JobView, View};

use super::{conversions, explain};
use crate::asking::Foretold;

/// A live job as lists, pages and the stream show it.
pub fn live_job(of: &JobView, view: &View, foretold: &Foretold) -> v1::Job {
    v1::Job { waiting: waiting(of, view, foretold), ..conversions::live_job(of, view) }
}

/// Of a job that waits or is held.
pub fn waiting(of: &JobView, view: &View, foretold: &Foretold) -> Option<v1::Waiting> {
    let job = &*of.job;
    let queued = matches!(job.state, JobState::Queued { .. });
    if !queued && !matches!(job.state, JobState::Held { .. }) {
        return None;
    }
    let account = explain::account(view, job, view.verdict(job.id).as_deref(), view.at);
    let told = foretold.starts.get(&job.id).filter(|_| queued);
    let start = told.map(|(_, start)| start);
    Some(v1::Waiting {
        code: account.reasons.first().map(|reason| reason.code.to_string()),
        headline: account.headline,
        position: told.map(|(place, _)| *place),
        p10: start.map(|start| conversions::time(start.p10)),
        p50: start.and_then(|start| start.p50).map(conversions::time),
        p90: start.and_then(|start| start.p90).map(conversions::time),
        predicted_at: told.map(|_| conversions::time(foretold.made_at)),
    })
}
