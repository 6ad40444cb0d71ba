//! One job on GPUs that nobody contests: what does following the gradient noise gain over the best fixed batch and layout, and how much of what could be gained?
//!
//! The set-ups are those of COPUS (arXiv 2604.26687) and the same on slow networks; the noise grows exponentially, or as measured ([`course`]). Headway
//! is run whole ([`race`]). Its rivals, and the ceiling above every policy ([`ceiling`]), are computed from the true step times ([`options`]), and pay for the start
//! alone: a fixed batch is trained in its fastest layout, a follower of the critical batch knows φ and changes for nothing. No checkpoints are saved.

mod bench;
pub mod ceiling;
pub mod comparison;
pub mod course;
pub mod options;
mod page;
pub mod question;
pub mod race;
#[cfg(test)]
mod tests;

pub use bench::QuestionError;
pub use comparison::Comparison;
pub use page::document;
pub use question::{Question, questions};
