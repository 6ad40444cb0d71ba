//! What the planner says would come of a request, for its dry run.

use std::sync::Arc;
use std::time::Duration;

use headway_api::v1;
use headway_engine::event::Request;
use headway_engine::view::View;
use headway_planner::counterfactual::{Question, Supposition};

use super::conversions;
use super::nodes::leaving::{self, Leaving};
use crate::asking::{Asking, Unanswered};
use crate::metrics;

/// With the request itself it stays below the request limit.
const FORESIGHT_TIME: Duration = Duration::from_secs(15);

/// What the planner is asked about a request; `None` where a round would find nothing other than before, or nothing it knows of.
pub fn question(of: &Request) -> Option<Question> {
    let supposed = match of {
        Request::Cancel { job, .. } | Request::Hold { job, .. } => Supposition::JobGone { job: *job },
        Request::Change { job, change, .. } => Supposition::Priority { job: *job, priority: change.priority? },
        Request::Resize { job, min, max, .. } => Supposition::Resized { job: *job, min: *min, max: *max },
        Request::Drain { node, .. } | Request::MarkLost { node, .. } | Request::DeleteNode { node, .. } => {
            Supposition::NodeGone { node: *node }
        }
        Request::Uncordon { node } => Supposition::NodeBack { node: *node },
        Request::PutProject { name, rules, .. } => Supposition::Quota { project: name.clone(), quota: rules.quota },
        Request::DeleteProject { name, .. } => Supposition::Quota { project: name.clone(), quota: None },
        _ => return None,
    };
    Some(Question { suppose: vec![supposed], force: None })
}

/// The drain that a request is, for what would come of it to those who are on the node.
pub fn leaving(of: &Request) -> Option<Leaving> {
    match of {
        Request::Drain { node, deadline, .. } => Some(Leaving { node: *node, deadline: *deadline }),
        _ => None,
    }
}

/// The newest round solved once more with what was asked for, or why it is not.
pub async fn foresee(
    asking: &Asking,
    user: &str,
    question: Question,
    leaving: Option<Leaving>,
    view: &View,
) -> v1::Foreseen {
    let left_out = |why: String| v1::Foreseen { plan_id: None, outcome: None, drain: None, left_out: Some(why) };
    let Some(round) = asking.round() else { return left_out("no round has been planned yet".into()) };
    let plan_id = Some(round.plan.id.0);
    match tokio::time::timeout(FORESIGHT_TIME, asking.ask_for_plan(user, Arc::clone(&round), question)).await {
        Ok(Ok(Ok((answer, plan)))) => v1::Foreseen {
            plan_id,
            outcome: Some(conversions::counterfactual(&answer, view)),
            drain: leaving.zip(plan).and_then(|(of, plan)| leaving::effect(of, view, &round.input, &plan)),
            left_out: None,
        },
        Ok(Ok(Err(error))) => left_out(error.to_string()),
        Ok(Err(Unanswered::BrokeDown)) => {
            left_out("the round with it could not be planned; the scheduler's log says why".into())
        }
        Ok(Err(many)) => left_out(format!("{many}; ask again")),
        Err(_) => {
            metrics::answer_left_out("dry_run");
            left_out(format!("planning the round with it takes longer than {} s; ask again", FORESIGHT_TIME.as_secs()))
        }
    }
}
