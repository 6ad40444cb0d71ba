//! `headway why`: one sentence, then numbers, then what would change it, then when it starts.

use std::fmt::Write as _;

use clap::Args;
use headway_api::client::Client;
use headway_api::v1::{Explanation, LastFailure, PredictedStart};

use super::last_lines::LastLines;
use super::resolve_job;
use crate::failure::Failure;
use crate::output::{self, Printer, duration, moment};

#[derive(Args, Clone, Debug)]
pub struct Why {
    /// Id, unique end or beginning of one, or name.
    pub job: String,
}

pub async fn run(client: &Client, print: &Printer, why: Why) -> Result<(), Failure> {
    let id = resolve_job(client, &why.job).await?;
    let explain = client.explain(&id).await?;
    if print.structured() {
        return print.value(&explain);
    }
    put!("{}", text(&explain))?;
    if let Some(failure) = &explain.last_failure {
        put!("{}", failed(failure, &explain.headline, &LastLines::of(client, &id, failure).await))?;
    }
    Ok(())
}

/// How the last attempt failed, as far as the headline has not said it, with what the rank that did wrote last.
fn failed(failure: &LastFailure, headline: &str, of: &LastLines) -> String {
    let node = failure.node.as_ref().map(|node| format!(" on {node}")).unwrap_or_default();
    let code = failure.exit_code.map(|code| format!(", exit code {code}")).unwrap_or_default();
    let mut text = format!("Last attempt failed at {}{node}{code}\n", moment(failure.at));
    if !headline.contains(&failure.message) {
        text.push_str(&format!("  {}\n", failure.message));
    }
    let (who, lines) = match of.rank {
        0 => ("it".to_owned(), "its last lines".to_owned()),
        rank => (format!("rank {rank}"), format!("last lines of rank {rank}")),
    };
    match &of.lines {
        Ok(words) if words.trim().is_empty() => text.push_str(&format!("  {who} wrote nothing\n")),
        Ok(words) => {
            text.push_str(&format!("  {lines}:\n"));
            words.lines().for_each(|line| text.push_str(&format!("    {line}\n")));
            text.extend(remedy(words).map(|remedy| format!("  {remedy}\n")));
        }
        // What did not start wrote nothing.
        Err(_) if failure.exit_code.is_none() => {}
        Err(why) => text.push_str(&format!("  its log cannot be read: {why}\n")),
    }
    text
}

/// What to do about errors that everybody meets.
fn remedy(words: &str) -> Option<String> {
    let after =
        |mark: &str| words.rsplit_once(mark).map(|(_, rest)| rest.split(['\'', '\n']).next().unwrap_or_default());
    if let Some(module) = after("ModuleNotFoundError: No module named '") {
        return Some(format!(
            "the interpreter has no {module}: give its path in run.command, or start with {{python}}, which is the node's own"
        ));
    }
    if words.contains("CUDA out of memory") || words.contains("OutOfMemoryError") {
        return Some(
            "it ran out of GPU memory: a smaller micro-batch, or a GPU type with more (resources.gpus.type)".into(),
        );
    }
    words
        .contains("Permission denied")
        .then(|| "something may not be read, written or run by the user that jobs run as: chmod +x for scripts".into())
}

fn text(explain: &Explanation) -> String {
    let mut lines = vec![explain.headline.clone()];
    for reason in &explain.reasons {
        let mark = if reason.binding { "●" } else { "○" };
        lines.push(format!("  {mark} {}: {}", reason.code, reason.detail));
    }
    lines.extend(numbers(explain));
    if !explain.funnel.is_empty() {
        lines.push("Where it could run".into());
        lines.extend(
            explain.funnel.iter().map(|stage| format!("  {:>5} {} ({})", stage.left, stage.name, stage.detail)),
        );
    }
    if !explain.counterfactuals.is_empty() {
        lines.push("What would change it".into());
        for one in &explain.counterfactuals {
            let mark = if one.possible { "✓" } else { "✗" };
            lines.push(format!("  {mark} {}: {}", one.question, one.answer));
        }
    }
    lines.extend(explain.predicted_start.as_ref().map(start));
    lines.extend(explain.left_out.clone());
    lines.iter().fold(String::new(), |mut all, line| {
        // Writing to a string does not fail.
        let _ = writeln!(all, "{line}");
        all
    })
}

/// What is scarce, and what another size would bring.
fn numbers(explain: &Explanation) -> Vec<String> {
    let mut lines = Vec::new();
    for limit in &explain.limits {
        let (of, needed, left) = (&limit.of, limit.needed, limit.left);
        let lose = format!("others would lose {:.2} of value by it", limit.price);
        lines.push(format!("  - {of}: {needed:.0} more needed, {left:.0} left; {lose}"));
    }
    // Of a job that has nothing, another size than the one it lacks is neither next nor a step up.
    let (runner_up, marginal) = match explain.predicted_start {
        Some(_) => (None, None),
        None => (explain.runner_up.as_ref(), explain.marginal_speed_up),
    };
    if let Some(runner_up) = runner_up {
        lines.push(format!("  next best: {}, speed-up {:.2}", output::gpus(runner_up.gpus), runner_up.speed_up));
    }
    if let Some(marginal) = marginal {
        lines.push(format!("  one step up would add {marginal:.2} of speed-up"));
    }
    if let Some(unmoved) = &explain.unmoved {
        let gain = format!("{:+.0} % goodput", unmoved.gain_pct);
        let (size, why) = (output::gpus(unmoved.to_gpus), &unmoved.detail);
        lines.push(format!("  {size} would be {gain}; it stays: {why}"));
    }
    lines
}

/// "Starts in 12m00s to 2h10m, as likely before as after 40m00s".
pub fn start(of: &PredictedStart) -> String {
    let within = |at: chrono::DateTime<chrono::Utc>| duration(((at - of.asked_at).as_seconds_f64()).max(0.0));
    match (of.p10, of.p50, of.p90) {
        (Some(p10), Some(p50), Some(p90)) => {
            format!("Starts in {} to {}, as likely before as after {}", within(p10), within(p90), within(p50))
        }
        (Some(p10), Some(p50), None) => {
            format!(
                "Starts in {} at the earliest, as likely before as after {}; it may take long",
                within(p10),
                within(p50)
            )
        }
        (Some(p10), ..) => format!("Starts in {} at the earliest, and more likely much later", within(p10)),
        (None, ..) => {
            let why = of.reason.as_deref().unwrap_or("nothing tells when what runs will end");
            format!("There is no telling when it starts: {why}")
        }
    }
}

#[cfg(test)]
mod tests {
    use chrono::{DateTime, TimeDelta};
    use headway_api::v1::{Counterfactual, FunnelStage, Limit, Reason, Shift};
    use uuid::Uuid;

    use super::*;

    fn explanation() -> Explanation {
        let asked_at = DateTime::UNIX_EPOCH;
        let shift = Shift { job_id: Uuid::nil(), job_name: "b".into(), from_gpus: 8, to_gpus: 4 };
        Explanation {
            job_id: Uuid::nil(),
            headline: "Needs 8 GPUs; 2 are free and taking 6 from a would lose more than it gains".into(),
            reasons: vec![Reason {
                code: "not_enough_free".into(),
                binding: true,
                detail: "needs 8 GPUs, 2 are free".into(),
            }],
            runner_up: None,
            marginal_speed_up: None,
            prediction: None,
            plan_id: None,
            limits: vec![Limit { of: "GPUs of H100-80G".into(), needed: 8.0, left: 2.0, price: 4.41 }],
            unmoved: None,
            funnel: vec![FunnelStage {
                name: "of a type it accepts".into(),
                left: 64,
                of: "gpus".into(),
                detail: "64 GPUs on 8 nodes".into(),
            }],
            counterfactuals: vec![Counterfactual {
                question: "if it accepted 4 GPUs".into(),
                changes: Vec::new(),
                answer: "starts now at 4 GPUs, shrinks b (8 → 4): objective −3.1 %".into(),
                possible: true,
                gpus: Some(4),
                losers: vec![shift],
                winners: Vec::new(),
                objective_change_pct: Some(-3.1),
                goodput_change_pct: -2.0,
                moves: 1,
                downtime_seconds: 30.0,
            }],
            predicted_start: Some(PredictedStart {
                asked_at,
                p10: Some(asked_at + TimeDelta::minutes(12)),
                p50: Some(asked_at + TimeDelta::minutes(40)),
                p90: Some(asked_at + TimeDelta::minutes(130)),
                method: "planner".into(),
                reason: None,
            }),
            left_out: None,
            last_failure: None,
        }
    }

    #[test]
    fn a_waiting_job_is_explained_from_the_sentence_to_the_start() {
        insta::assert_snapshot!(text(&explanation()));
    }

    #[test]
    fn what_nobody_looked_at_is_said() {
        let late = "Finding out what would change it takes longer than 15 s; ask again";
        let of = Explanation { left_out: Some(late.into()), ..explanation() };
        assert!(text(&of).ends_with(&format!("{late}\n")), "{}", text(&of));
    }

    #[test]
    fn a_failure_is_told_with_its_last_lines_and_what_to_do() {
        let failure = LastFailure {
            at: DateTime::UNIX_EPOCH,
            generation: 1,
            message: "eval broke: on node n1: rank 0 exited with code 1; the next start waits 10 s".into(),
            node: Some("n1".into()),
            exit_code: Some(1),
        };
        let words = "Traceback (most recent call last):\nModuleNotFoundError: No module named 'torch'\n".to_owned();
        let of = |rank, lines| LastLines { rank, lines };
        insta::assert_snapshot!(failed(&failure, "Needs 1 GPU", &of(0, Ok(words))));
        assert!(failed(&failure, &failure.message, &of(0, Ok(String::new()))).ends_with("  it wrote nothing\n"));
        assert!(failed(&failure, "", &of(3, Ok(String::new()))).ends_with("  rank 3 wrote nothing\n"));
        let of_another = failed(&failure, "", &of(3, Ok("step 41\n".into())));
        assert!(of_another.ends_with("  last lines of rank 3:\n    step 41\n"), "{of_another}");
        let gone = of(0, Err("node n1 is not connected".into()));
        assert!(failed(&failure, "", &gone).contains("cannot be read: node n1"));
    }

    #[test]
    fn no_telling_says_why() {
        let mut of = explanation().predicted_start.unwrap_or_else(|| unreachable!("it has one"));
        (of.p10, of.p50, of.p90) = (None, None, None);
        of.reason = Some("it needs 16 GPUs of one node class, and the largest has 8".into());
        assert!(start(&of).ends_with("the largest has 8"), "{}", start(&of));
    }
}
