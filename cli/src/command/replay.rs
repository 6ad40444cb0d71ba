//! `headway plan replay`: decides a past round again, with the planner of this binary, and says whether the answer is
//! the same. It changes nothing; a round from a file needs no scheduler.

use std::collections::BTreeMap;
use std::path::PathBuf;

use clap::Args;
use headway_api::v1::StoredRound;
use headway_planner::{CurveCache, PlanInput, plan};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::solve;
use crate::context::Connection;
use crate::failure::{Failure, Kind};
use crate::output::Printer;

/// Differences that are printed for people; programs get all.
const SHOWN: usize = 40;
/// Characters of a value that are printed for people.
const WIDTH: usize = 48;

#[derive(Args, Clone, Debug)]
pub struct Replay {
    /// Id of the plan.
    #[arg(required_unless_present = "file", conflicts_with = "file")]
    pub id: Option<String>,
    /// A round that was saved, `-` for standard input.
    #[arg(long)]
    pub file: Option<PathBuf>,
    /// Keep the round in a file, to be replayed elsewhere. It names jobs, users, projects and nodes; it holds no environment.
    #[arg(long, value_name = "FILE", conflicts_with = "file")]
    pub save: Option<PathBuf>,
}

/// What came of deciding again.
#[derive(Debug, Serialize)]
struct Replayed {
    plan_id: String,
    made_by: String,
    decided_by: &'static str,
    same: bool,
    same_assignments: bool,
    differences: Vec<Difference>,
}

/// A part of the answer that is not what it was; `null`: absent.
#[derive(Debug, PartialEq, Serialize)]
struct Difference {
    of: String,
    stored: Value,
    now: Value,
}

pub async fn run(connection: &Connection, print: &Printer, command: &Replay) -> Result<(), Failure> {
    let round = match (&command.file, &command.id) {
        (Some(file), _) => serde_json::from_str(&solve::read(file)?).map_err(|error| {
            Failure::new(Kind::Usage, format!("{} is no stored round: {error}", file.display()))
                .hint("`headway plan replay ID --save FILE` writes one")
        })?,
        (None, Some(id)) => connection.client()?.plan_input(id).await?,
        (None, None) => return Err(Failure::new(Kind::Usage, "name a plan, or give --file")),
    };
    if let Some(file) = &command.save {
        let text = serde_json::to_string(&round).map_err(std::io::Error::from)?;
        std::fs::write(file, text)
            .map_err(|error| Failure::new(Kind::Failed, format!("writing {}: {error}", file.display())))?;
    }
    let replayed = replay(&round)?;
    if print.structured() {
        print.value(&replayed)?;
    } else {
        put!("{}", text(print, &replayed))?;
    }
    if replayed.same { Ok(()) } else { Err(Failure::new(Kind::Failed, "the answer is not the same")) }
}

fn replay(round: &StoredRound) -> Result<Replayed, Failure> {
    let ours = crate::VERSION;
    let made_by = &round.headway_version;
    let input: PlanInput = PlanInput::deserialize(&round.input).map_err(|error| {
        Failure::new(Kind::Usage, format!("headway {ours} cannot read a round made by headway {made_by}: {error}"))
            .hint(format!("decide it again with headway {made_by}"))
    })?;
    let plan = plan(&input, &mut CurveCache::new())
        .map_err(|error| Failure::new(Kind::Failed, format!("the round has no plan any more: {error}")))?;
    let now = serde_json::to_value(&plan).map_err(std::io::Error::from)?;
    let names = input.jobs.iter().map(|job| (job.job.to_string(), job.name.clone())).collect();
    let mut differences = Vec::new();
    compare(&names, String::new(), &round.plan, &now, &mut differences);
    Ok(Replayed {
        plan_id: round.plan_id.to_string(),
        made_by: made_by.clone(),
        decided_by: ours,
        same: differences.is_empty(),
        same_assignments: round.plan.get("assignments") == now.get("assignments"),
        differences,
    })
}

/// Descends as long as both sides have parts; jobs go by their names.
fn compare(names: &BTreeMap<String, String>, of: String, stored: &Value, now: &Value, found: &mut Vec<Difference>) {
    match (stored, now) {
        (Value::Object(before), Value::Object(after)) => {
            let mut keys: Vec<&String> = before.keys().chain(after.keys()).collect();
            keys.sort();
            keys.dedup();
            for key in keys {
                let name = names.get(key).unwrap_or(key);
                let of = if of.is_empty() { name.clone() } else { format!("{of}.{name}") };
                let part = |side: &serde_json::Map<String, Value>| side.get(key).cloned().unwrap_or(Value::Null);
                compare(names, of, &part(before), &part(after), found);
            }
        }
        (Value::Array(before), Value::Array(after)) if before.len() == after.len() => {
            for (at, (before, after)) in before.iter().zip(after).enumerate() {
                compare(names, format!("{of}[{at}]"), before, after, found);
            }
        }
        _ if stored == now => {}
        _ => found.push(Difference { of, stored: stored.clone(), now: now.clone() }),
    }
}

fn text(print: &Printer, of: &Replayed) -> String {
    let mut lines = vec![format!(
        "plan {}, made by headway {}, decided again by headway {}",
        of.plan_id, of.made_by, of.decided_by
    )];
    lines.push(match (of.same, of.same_assignments) {
        (true, _) => "the same answer, byte for byte".into(),
        (false, true) => "the same assignments, another account of them".into(),
        (false, false) => "other assignments".into(),
    });
    if !of.same {
        let rows =
            of.differences.iter().take(SHOWN).map(|one| vec![one.of.clone(), brief(&one.stored), brief(&one.now)]);
        lines.push(print.table(&["OF", "STORED", "NOW"], rows));
    }
    if of.differences.len() > SHOWN {
        lines.push(format!("and {} more; -o json shows all", of.differences.len() - SHOWN));
    }
    lines.join("\n") + "\n"
}

fn brief(value: &Value) -> String {
    let text = if value.is_null() { "-".into() } else { value.to_string() };
    if text.chars().count() <= WIDTH { text } else { text.chars().take(WIDTH - 1).chain(['…']).collect() }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use serde_json::json;

    use super::*;

    fn round() -> StoredRound {
        let input: Value = serde_json::from_str(include_str!("../../tests/stored_round.json")).unwrap();
        let read = PlanInput::deserialize(&input).unwrap();
        let plan = serde_json::to_value(plan(&read, &mut CurveCache::new()).unwrap()).unwrap();
        let (plan_id, headway_version) = (read.plan.0, "0.0.9".into());
        StoredRound { plan_id, made_at: Default::default(), headway_version, input, plan }
    }

    fn shown(round: &StoredRound) -> String {
        text(&Printer::plain(), &replay(round).unwrap())
    }

    #[test]
    fn a_round_decided_again_by_the_same_planner_gives_the_same_answer() {
        let replayed = replay(&round()).unwrap();
        assert!(replayed.same && replayed.same_assignments && replayed.differences.is_empty());
        assert!(shown(&round()).contains("the same answer"));
    }

    #[test]
    fn what_differs_is_named_by_job_and_number() {
        let mut changed = round();
        changed.plan["report"]["objective"] = json!(0.5);
        let text = shown(&changed);
        assert!(text.contains("the same assignments") && text.contains("report.objective") && text.contains("0.5"));
        let (id, _) = changed.plan["assignments"].as_object().unwrap().iter().next().unwrap();
        let id = id.clone();
        changed.plan["assignments"].as_object_mut().unwrap().remove(&id);
        let replayed = replay(&changed).unwrap();
        assert!(!replayed.same_assignments);
        let name = changed.input["jobs"].as_array().unwrap().iter().find(|job| job["job"] == id.as_str()).unwrap();
        let of = format!("assignments.{}", name["name"].as_str().unwrap());
        assert!(replayed.differences.iter().any(|one| one.of == of && one.stored.is_null()), "{replayed:?}");
    }

    #[test]
    fn a_round_of_another_form_names_the_version_that_reads_it() {
        let mut other = round();
        other.input["nodes"] = json!("three");
        let failure = replay(&other).unwrap_err();
        assert_eq!(failure.kind, Kind::Usage);
        assert!(failure.message.contains("cannot read a round made by headway 0.0.9"), "{failure}");
    }
}
