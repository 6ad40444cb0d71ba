//! `headway plan simulate`: what would come of something that is not so. Names become ids here; the answer is the server's.

use std::collections::BTreeMap;

use headway_api::client::Client;
use headway_api::v1::{DrainEffect, ForcedJob, Foreseen, JobSpecification, Shift, Simulation, SimulationRequest};
use headway_api::{spec, yaml};
use uuid::Uuid;

use super::plan::Simulate;
use super::{read, resolve_job};
use crate::failure::{Failure, Kind};
use crate::output::{self, Printer, change, duration, moment};

pub async fn run(client: &Client, print: &Printer, simulate: Simulate) -> Result<(), Failure> {
    let request = request(client, &simulate).await?;
    let simulation = client.simulate(&request).await?;
    if print.structured() {
        return print.value(&simulation);
    }
    put!("{}", text(&simulation))?;
    Ok(())
}

async fn request(client: &Client, simulate: &Simulate) -> Result<SimulationRequest, Failure> {
    let mut request = match &simulate.file {
        Some(file) => yaml::read(&read(file)?)
            .map_err(|error| Failure::new(Kind::Usage, format!("{}: {error}", file.display())))?,
        None => SimulationRequest::default(),
    };
    for file in &simulate.submit {
        let specs = spec::read_submission_yaml(&read(file)?)
            .map_err(|error| Failure::new(Kind::Usage, format!("{}: {error}", file.display())))?;
        request.jobs.extend(specs.iter().map(|spec| JobSpecification(spec::to_json(spec))));
    }
    for job in &simulate.without {
        request.jobs_gone.push(job_id(client, job).await?);
    }
    for text in &simulate.priority {
        let (job, points) = pair(text)?;
        request.priorities.insert(job_id(client, job).await?, number(text, points)?);
    }
    for (texts, limits) in [(&simulate.quota, &mut request.quotas), (&simulate.row, &mut request.rows)] {
        for text in texts {
            let (name, gpus) = pair(text)?;
            let limit = if gpus == "none" { None } else { Some(number(text, gpus)?) };
            limits.insert(name.to_owned(), limit);
        }
    }
    let named = [&simulate.node_gone, &simulate.node_back, &simulate.more_like].iter().any(|names| !names.is_empty());
    let nodes = if named { nodes(client).await? } else { BTreeMap::new() };
    let node = |name: &str| {
        let found = nodes.get(name).copied().or_else(|| Uuid::parse_str(name).ok());
        found.ok_or_else(|| Failure::new(Kind::NotFound, format!("no node is called {name}")))
    };
    for name in &simulate.node_gone {
        request.nodes_gone.push(node(name)?);
    }
    for name in &simulate.node_back {
        request.nodes_back.push(node(name)?);
    }
    for text in &simulate.more_like {
        let (name, count) = pair(text)?;
        request.more_nodes.insert(node(name)?, number(text, count)?);
    }
    if let Some(text) = &simulate.force {
        let (job, gpus) = match pair(text) {
            Ok((job, gpus)) => (job, Some(number(text, gpus)?)),
            Err(_) => (text.as_str(), None),
        };
        request.force = Some(ForcedJob { job_id: job_id(client, job).await?, gpus, gpu_type: None });
    }
    Ok(request)
}

pub async fn job_id(client: &Client, job: &str) -> Result<Uuid, Failure> {
    let id = resolve_job(client, job).await?;
    Uuid::parse_str(&id).map_err(|error| Failure::new(Kind::Failed, format!("the id of {job}: {error}")))
}

pub async fn nodes(client: &Client) -> Result<BTreeMap<String, Uuid>, Failure> {
    Ok(client.nodes().await?.into_iter().map(|node| (node.name, node.id)).collect())
}

pub fn pair(text: &str) -> Result<(&str, &str), Failure> {
    text.rsplit_once('=').ok_or_else(|| Failure::new(Kind::Usage, format!("{text}: NAME=VALUE is expected")))
}

pub fn number<T: std::str::FromStr>(whole: &str, text: &str) -> Result<T, Failure> {
    text.parse().map_err(|_| Failure::new(Kind::Usage, format!("{whole}: {text} is no number that can be meant here")))
}

/// What a dry run is told of, beside what is printed of its reply.
pub fn tell_foreseen(foreseen: Option<&Foreseen>) {
    aside!("{}", foreseen_in_words(foreseen).trim_end());
}

fn foreseen_in_words(of: Option<&Foreseen>) -> String {
    let told = match of {
        Some(Foreseen { plan_id: Some(plan_id), outcome: Some(outcome), drain, .. }) => {
            let drain = drain.as_ref().map(drained).unwrap_or_default();
            text(&Simulation { plan_id: *plan_id, outcome: outcome.clone() }) + &drain
        }
        Some(Foreseen { left_out: Some(why), .. }) => format!("what would come of it is not known: {why}\n"),
        _ => String::new(),
    };
    format!("dry run, nothing is changed; what would be:\n{told}")
}

fn text(simulation: &Simulation) -> String {
    let outcome = &simulation.outcome;
    let mark = if outcome.possible { "✓" } else { "✗" };
    let mut lines = vec![format!("{mark} {}: {}", outcome.question, outcome.answer)];
    lines.extend(outcome.losers.iter().chain(&outcome.winners).map(shift));
    let objective = outcome.objective_change_pct.map(|pct| format!(", objective {}", change(pct)));
    lines.push(format!("speed-ups {}{}", change(outcome.goodput_change_pct), objective.unwrap_or_default()));
    let downtime = duration(outcome.downtime_seconds);
    let moves = format!("moves beyond those of plan {}: {}", simulation.plan_id, outcome.moves);
    lines.push(format!("{moves}, standing still for {downtime} in all"));
    lines.join("\n") + "\n"
}

/// What becomes of those who are on a node that drains.
fn drained(of: &DrainEffect) -> String {
    let free = match of.free_at {
        Some(at) => format!("free by {}", moment(at)),
        None => "when it would be free is not known".into(),
    };
    let jobs = match of.jobs.len() {
        0 => "nobody is on it".into(),
        1 => "1 job".into(),
        many => format!("{many} jobs"),
    };
    let gpus = output::gpus(of.gpus);
    let first = format!("on the node: {jobs}, {gpus}; {free}; {:.2} GPU-hours of standstill", of.gpu_hours);
    let rest = of.jobs.iter().map(|job| {
        let nodes = if job.to_nodes.is_empty() { String::new() } else { format!(" on {}", job.to_nodes.join(", ")) };
        let lot = match job.effect.as_str() {
            "stops" => "stops and waits for room".into(),
            "stays" => "has nowhere to go and stays until the deadline".into(),
            "unknown" => "was not known to the newest round".into(),
            effect => format!("{effect}: {} -> {}{nodes}", job.from_gpus, output::gpus(job.to_gpus)),
        };
        let cost = job.standstill_seconds.zip(job.gpu_hours);
        let cost = cost.map(|(time, hours)| format!(", standing still for {} ({hours:.2} GPU-hours)", duration(time)));
        format!("  {}: {lot}{}", job.job_name, cost.unwrap_or_default())
    });
    std::iter::once(first).chain(rest).collect::<Vec<_>>().join("\n") + "\n"
}

fn shift(of: &Shift) -> String {
    format!("  {}: {} -> {}", of.job_name, of.from_gpus, output::gpus(of.to_gpus))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn an_answer_names_who_loses_and_who_gains() {
        let simulation: Simulation = serde_json::from_value(serde_json::json!({
            "plan_id": "018bcfe5-0003-7000-8000-000000000001",
            "outcome": {
                "question": "if the quota of project nlp were 16 GPUs", "answer": "b starts at 8 GPUs", "possible": true,
                "gpus": null, "objective_change_pct": 4.5, "goodput_change_pct": 3.25, "moves": 1, "downtime_seconds": 30.0,
                "losers": [{"job_id": Uuid::nil(), "job_name": "a", "from_gpus": 16, "to_gpus": 8}],
                "winners": [{"job_id": Uuid::nil(), "job_name": "b", "from_gpus": 0, "to_gpus": 8}],
            },
        }))
        .unwrap();
        insta::assert_snapshot!(text(&simulation));
    }

    #[test]
    fn a_dry_run_says_first_that_it_is_one() {
        assert_eq!(foreseen_in_words(None), "dry run, nothing is changed; what would be:\n");
        let unknown = Foreseen {
            plan_id: None,
            outcome: None,
            drain: None,
            left_out: Some("no round has been planned yet".into()),
        };
        let told = foreseen_in_words(Some(&unknown));
        assert!(told.ends_with("what would come of it is not known: no round has been planned yet\n"), "{told}");
    }

    #[test]
    fn a_name_may_hold_an_equals_sign_and_a_value_may_not() {
        assert_eq!(pair("a=b=4").ok().unwrap(), ("a=b", "4"));
        assert!(pair("a").is_err());
        assert!(number::<u8>("a=400", "400").is_err());
    }

    #[test]
    fn a_drain_says_who_goes_where_and_when_the_node_is_free() {
        let job = |name: &str, effect: &str, to: u32, nodes: &[&str], seconds: Option<f64>| {
            serde_json::json!({
                "job_id": uuid::Uuid::nil(), "job_name": name, "effect": effect, "from_gpus": 8, "to_gpus": to, "to_nodes": nodes,
                "standstill_seconds": seconds, "gpu_hours": seconds.map(|seconds| 8.0 * seconds / 3_600.0),
            })
        };
        let effect: DrainEffect = serde_json::from_value(serde_json::json!({
            "gpus": 14, "gpu_hours": 0.3, "free_at": "2026-03-01T14:02:00Z",
            "jobs": [job("llama", "shrinks", 4, &["h100-2"], Some(90.0)), job("sweep", "stops", 0, &[], Some(45.0)),
                job("new", "unknown", 0, &[], None)],
        }))
        .unwrap();
        insta::assert_snapshot!(drained(&effect), @"
        on the node: 3 jobs, 14 GPUs; free by 2026-03-01T14:02:00Z; 0.30 GPU-hours of standstill
          llama: shrinks: 8 -> 4 GPUs on h100-2, standing still for 1m30s (0.20 GPU-hours)
          sweep: stops and waits for room, standing still for 45s (0.10 GPU-hours)
          new: was not known to the newest round
        ");
    }
}
