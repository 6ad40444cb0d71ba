//! `headway plan rebalance` and `rollback`: a proposal is shown, perhaps made anew without some of its moves, and applied after confirmation.

use std::collections::BTreeMap;
use std::io::IsTerminal as _;
use std::time::Duration;

use clap::Args;
use headway_api::client::Client;
use headway_api::v1::{ForcedJob, Plan, PlanScope, RebalanceRequest};
use tokio::time::Instant;
use uuid::Uuid;

use super::plan::show;
use super::simulate::{job_id, nodes, number, pair};
use super::{chosen, outcome};
use crate::failure::{Failure, Kind};
use crate::output::Printer;

/// Between two looks at how far the moves have come.
const LOOK: Duration = Duration::from_secs(1);

#[derive(Args, Clone, Debug)]
pub struct Rebalance {
    /// Show the proposal and change nothing.
    #[arg(long)]
    pub dry_run: bool,
    /// Least gain for a move, in per cent: 1% (or 1).
    #[arg(long, value_name = "PERCENT", value_parser = percent)]
    pub min_gain: Option<f64>,
    /// Most jobs that are moved.
    #[arg(long)]
    pub max_moves: Option<u32>,
    /// Move running jobs of this project only, and of those below it.
    #[arg(long, value_name = "PROJECT")]
    pub project: Vec<String>,
    /// Move running jobs on this node only.
    #[arg(long, value_name = "NODE")]
    pub node: Vec<String>,
    /// Move this running job only.
    #[arg(long, value_name = "JOB")]
    pub job: Vec<String>,
    /// Leave this running job as it is.
    #[arg(long, value_name = "JOB")]
    pub exclude: Vec<String>,
    /// A job that must get GPUs: JOB, or JOB=GPUS.
    #[arg(long, value_name = "JOB[=GPUS]")]
    pub force: Vec<String>,
    #[command(flatten)]
    pub confirm: Confirm,
}

#[derive(Args, Clone, Debug)]
pub struct Rollback {
    /// The plan whose moves are taken back; by default the one in force.
    pub id: Option<String>,
    /// Show the proposal and change nothing.
    #[arg(long)]
    pub dry_run: bool,
    #[command(flatten)]
    pub confirm: Confirm,
}

#[derive(Args, Clone, Debug)]
pub struct Confirm {
    /// Why, for the event log.
    #[arg(long)]
    pub reason: Option<String>,
    /// Apply without asking.
    #[arg(long)]
    pub yes: bool,
    /// Leave the proposal to whoever approves it.
    #[arg(long, conflicts_with = "yes")]
    pub propose: bool,
    /// After it is applied, wait until its moves are done, and say how they went.
    #[arg(long)]
    pub wait: bool,
    /// Stop waiting after so many seconds (exit code 124).
    #[arg(long, default_value_t = 1_800, requires = "wait")]
    pub timeout: u64,
}

pub async fn run(client: &Client, print: &Printer, asked: &Rebalance) -> Result<(), Failure> {
    asked.confirm.possible(asked.dry_run)?;
    let mut request = request(client, asked).await?;
    loop {
        let proposal = client.rebalance(&request).await?;
        match decide(client, print, &proposal, &asked.confirm, asked.dry_run).await? {
            Decision::Done => return Ok(()),
            Decision::Without(job) => request.exclude.push(job),
        }
    }
}

pub async fn roll_back(client: &Client, print: &Printer, asked: &Rollback) -> Result<(), Failure> {
    asked.confirm.possible(asked.dry_run)?;
    let id = match &asked.id {
        Some(id) => chosen::plan(client, id).await?,
        None => client.current_plan().await?.id.to_string(),
    };
    let proposal = client.rollback(&id, asked.confirm.reason.as_deref()).await?;
    match decide(client, print, &proposal, &asked.confirm, asked.dry_run).await? {
        Decision::Done => Ok(()),
        Decision::Without(_) => Err(Failure::new(Kind::Failed, "not applied: what is taken back is taken back whole")),
    }
}

impl Confirm {
    fn possible(&self, dry_run: bool) -> Result<(), Failure> {
        if dry_run || self.yes || self.propose || std::io::stdin().is_terminal() {
            return Ok(());
        }
        Err(Failure::new(Kind::Usage, "nobody can confirm here").hint("give --yes, --propose, or --dry-run"))
    }
}

enum Decision {
    Done,
    /// Once more, and this job stays as it is.
    Without(Uuid),
}

async fn decide(
    client: &Client,
    print: &Printer,
    proposal: &Plan,
    confirm: &Confirm,
    dry_run: bool,
) -> Result<Decision, Failure> {
    show(print, proposal)?;
    let id = proposal.id.to_string();
    if dry_run || proposal.moves.is_empty() {
        client.reject(&id, Some(if dry_run { "dry run" } else { "nothing to move" })).await?;
        return Ok(Decision::Done);
    }
    if confirm.propose {
        if !print.structured() {
            say!("plan {id} waits for approval: headway plan approve {id}")?;
        }
        return Ok(Decision::Done);
    }
    if !confirm.yes {
        match answer(proposal)? {
            Answer::Yes => {}
            Answer::Without(job) => {
                client.reject(&id, Some("made anew without one of its moves")).await?;
                return Ok(Decision::Without(job));
            }
            Answer::No => {
                client.reject(&id, Some("not confirmed")).await?;
                return Err(Failure::new(Kind::Failed, "not applied"));
            }
        }
    }
    let adopted = client.approve(&id, Some(&proposal.hash)).await?;
    if !print.structured() {
        say!("plan {} is {}", adopted.id, adopted.state)?;
        let forced = proposal.terms.as_ref().is_some_and(|terms| !terms.force.is_empty());
        if forced {
            say!(
                "later rounds may move again what was forced, once its protection is over; `headway job pin` keeps a job where it is"
            )?;
        }
    }
    if confirm.wait {
        follow(client, print, &id, Duration::from_secs(confirm.timeout)).await?;
    }
    Ok(Decision::Done)
}

enum Answer {
    Yes,
    No,
    Without(Uuid),
}

fn answer(proposal: &Plan) -> Result<Answer, Failure> {
    loop {
        eprint!("apply {} moves? [y/N, or the name of a job to leave as it is] ", proposal.moves.len());
        let mut answer = String::new();
        std::io::stdin().read_line(&mut answer)?;
        let answer = answer.trim();
        match answer {
            "y" | "Y" | "yes" => return Ok(Answer::Yes),
            "" | "n" | "N" | "no" => return Ok(Answer::No),
            _ => {}
        }
        match proposal.moves.iter().find(|one| one.job_name == answer) {
            Some(one) => return Ok(Answer::Without(one.job_id)),
            None => aside!("no move of the plan is of a job called {answer}"),
        }
    }
}

/// Says how far each move has come whenever one has come further.
async fn follow(client: &Client, print: &Printer, id: &str, timeout: Duration) -> Result<(), Failure> {
    let deadline = Instant::now() + timeout;
    let mut told = BTreeMap::new();
    loop {
        let plan = client.plan(id).await?;
        for one in &plan.moves {
            let Some(outcome) = &one.outcome else { continue };
            if told.insert(one.job_id, outcome.state.clone()).as_ref() != Some(&outcome.state) && !print.structured() {
                say!("{}", outcome::in_words(one, outcome))?;
            }
        }
        let under_way = |state: &String| !["done", "overtaken"].contains(&state.as_str());
        if !told.values().any(under_way) {
            return if print.structured() { print.value(&plan) } else { Ok(()) };
        }
        if Instant::now() >= deadline {
            let open = told.values().filter(|state| under_way(state)).count();
            return Err(Failure::new(
                Kind::WaitTimeout,
                format!("{open} moves are not done after {} s", timeout.as_secs()),
            )
            .hint(format!("headway plan show {id}")));
        }
        tokio::time::sleep(LOOK).await;
    }
}

async fn request(client: &Client, asked: &Rebalance) -> Result<RebalanceRequest, Failure> {
    let mut scope = PlanScope { projects: asked.project.clone(), ..PlanScope::default() };
    if !asked.node.is_empty() {
        let known = nodes(client).await?;
        for name in &asked.node {
            let node = known.get(name).copied().or_else(|| Uuid::parse_str(name).ok());
            scope.nodes.push(node.ok_or_else(|| Failure::new(Kind::NotFound, format!("no node is called {name}")))?);
        }
    }
    for job in &asked.job {
        scope.jobs.push(job_id(client, job).await?);
    }
    let mut exclude = Vec::new();
    for job in &asked.exclude {
        exclude.push(job_id(client, job).await?);
    }
    let mut force = Vec::new();
    for text in &asked.force {
        let (job, gpus) = match pair(text) {
            Ok((job, gpus)) => (job, Some(number(text, gpus)?)),
            Err(_) => (text.as_str(), None),
        };
        force.push(ForcedJob { job_id: job_id(client, job).await?, gpus, gpu_type: None });
    }
    let (min_gain_pct, max_moves) = (asked.min_gain, asked.max_moves);
    Ok(RebalanceRequest { min_gain_pct, max_moves, scope, exclude, force, reason: asked.confirm.reason.clone() })
}

/// "1%", or "1" of the same.
fn percent(text: &str) -> Result<f64, String> {
    let number = text.strip_suffix('%').unwrap_or(text).trim_end().parse::<f64>();
    let number = number.ok().filter(|number| (0.0..=100.0).contains(number));
    number.ok_or_else(|| "must be 0 to 100 per cent, such as 1% or 0.5%".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gain_is_in_per_cent_with_or_without_the_sign() {
        assert_eq!(
            [percent("1%"), percent("1"), percent("0.01"), percent("2.5 %")],
            [Ok(1.0), Ok(1.0), Ok(0.01), Ok(2.5)]
        );
        for wrong in ["", "%", "-1%", "1%%", "NaN", "inf%", "101%", "a lot"] {
            assert!(percent(wrong).is_err_and(|why| why.contains("such as 1%")), "{wrong}");
        }
    }
}
