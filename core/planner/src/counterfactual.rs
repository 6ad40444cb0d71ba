//! What if: a round solved once more with something supposed or forced, and what would come of it. Asked by people, never
//! on the loop: an answer costs a round. It changes nothing, and claims nothing that [`verify`](crate::verify()) refuses.
//!
//! `question` says what may be asked, `suppose` makes the round of it, `answer` compares the two plans, `usual` asks
//! what people would ask next.

mod answer;
mod question;
mod suppose;
mod usual;

#[cfg(test)]
mod laws;

use headway_types::{JobId, NodeId, Plan};

use crate::check::PlanError;
use crate::curves::CurveCache;
use crate::input::PlanInput;
use crate::round;
use crate::verify;

pub use answer::{Answer, Shift};
pub use question::{Question, Supposition};
pub use suppose::supposed;
pub use usual::usual;

/// Why a question has no answer.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum AskError {
    #[error("job {0} is not part of the round")]
    NoSuchJob(JobId),
    #[error("node {0} is not part of the round")]
    NoSuchNode(NodeId),
    #[error("project {0} is not part of the round")]
    NoSuchProject(String),
    #[error("the policy has no row {0}")]
    NoSuchRow(String),
    #[error("rounds leave the job as it is: {0}")]
    LeftOut(String),
    #[error("solving the round once more")]
    Plan(#[source] PlanError),
}

/// What would have come of the round that made `plan` out of `input`.
///
/// # Errors
/// A question about what the round does not know.
pub fn ask(input: &PlanInput, plan: &Plan, curves: &mut CurveCache, question: &Question) -> Result<Answer, AskError> {
    ask_for_plan(input, plan, curves, question).map(|(answer, _)| answer)
}

/// The same with the plan that the answer was read off; `None` where what is asked is so already.
///
/// # Errors
/// A question about what the round does not know.
pub fn ask_for_plan(
    input: &PlanInput,
    plan: &Plan,
    curves: &mut CurveCache,
    question: &Question,
) -> Result<(Answer, Option<Plan>), AskError> {
    let supposed = suppose::supposed(input, question)?;
    if question.holds_already(input, plan) {
        return Ok((Answer::already(input, plan, question), None));
    }
    let other = round::plan(&supposed, curves).map_err(AskError::Plan)?;
    let left_out = other.report.left_out.iter().find(|one| question.force.as_ref().is_some_and(|of| of.job == one.job));
    if let Some(left_out) = left_out {
        return Err(AskError::LeftOut(left_out.reason.clone()));
    }
    let refused = verify(&supposed, &other).err();
    Ok((Answer::of(input, plan, &supposed, &other, question, refused), Some(other)))
}
