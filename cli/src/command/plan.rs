//! `headway plan …`: what was decided, and what a rebalance would do. Solving a round of one's own is in `solve`.

use std::io::IsTerminal as _;

use clap::{Args, Subcommand};
use headway_api::client::Client;
use headway_api::v1::{Move, Plan as PlanReply};

use super::solve::Solve;
use crate::failure::{Failure, Kind};
use crate::output::{Printer, duration, optional, si};

#[derive(Subcommand, Clone, Debug)]
pub enum Plan {
    /// The plan in force, or the one named.
    Show { id: Option<String> },
    /// Solve a round of one's own, without a server.
    Solve(Solve),
    /// Propose a better plan; applied after confirmation.
    Rebalance(Rebalance),
    /// Make a proposal the target.
    Approve { id: String },
    /// Drop a proposal.
    Reject {
        id: String,
        #[arg(long)]
        reason: Option<String>,
    },
}

#[derive(Args, Clone, Debug)]
pub struct Rebalance {
    /// Show the proposal and change nothing.
    #[arg(long)]
    pub dry_run: bool,
    /// Least gain for a move, percent.
    #[arg(long)]
    pub min_gain: Option<f64>,
    /// Apply without asking.
    #[arg(long)]
    pub yes: bool,
}

pub async fn run(client: &Client, print: &Printer, plan: Plan) -> Result<(), Failure> {
    match plan {
        Plan::Show { id } => {
            let plan = match id {
                Some(id) => client.plan(&id).await?,
                None => client.current_plan().await?,
            };
            show(print, &plan)
        }
        Plan::Solve(solve) => super::solve::run(print, &solve),
        Plan::Rebalance(rebalance) => propose(client, print, &rebalance).await,
        Plan::Approve { id } => show(print, &client.approve(&id).await?),
        Plan::Reject { id, reason } => show(print, &client.reject(&id, reason.as_deref()).await?),
    }
}

async fn propose(client: &Client, print: &Printer, rebalance: &Rebalance) -> Result<(), Failure> {
    if !rebalance.dry_run && !rebalance.yes && !std::io::stdin().is_terminal() {
        return Err(Failure::new(Kind::Usage, "nobody can confirm here").hint("give --yes, or --dry-run"));
    }
    let proposal = client.rebalance(rebalance.min_gain).await?;
    show(print, &proposal)?;
    let id = proposal.id.to_string();
    if rebalance.dry_run || proposal.moves.is_empty() {
        client.reject(&id, Some(if rebalance.dry_run { "dry run" } else { "nothing to move" })).await?;
        return Ok(());
    }
    if !rebalance.yes && !confirmed(proposal.moves.len())? {
        client.reject(&id, Some("not confirmed")).await?;
        return Err(Failure::new(Kind::Failed, "not applied"));
    }
    let adopted = client.approve(&id).await?;
    if !print.structured() {
        println!("plan {} is {}", adopted.id, adopted.state);
    }
    Ok(())
}

fn confirmed(moves: usize) -> Result<bool, Failure> {
    eprint!("apply {moves} moves? [y/N] ");
    let mut answer = String::new();
    std::io::stdin().read_line(&mut answer)?;
    Ok(matches!(answer.trim(), "y" | "Y" | "yes"))
}

fn show(print: &Printer, plan: &PlanReply) -> Result<(), Failure> {
    if print.structured() {
        return print.value(plan);
    }
    println!("plan {} ({}), made because {}", plan.id, plan.state, plan.trigger);
    println!(
        "objective {:.4} -> {:.4}, bound {:.4}, gap {:.2} %",
        plan.objective_before,
        plan.objective,
        plan.bound,
        plan.gap * 100.0
    );
    for (gpu_type, price) in &plan.shadow_prices {
        println!("one more {gpu_type} GPU would be worth {price:.4}");
    }
    if plan.moves.is_empty() {
        println!("no moves: the present allocation is the best found");
        return Ok(());
    }
    let headers = ["JOB", "MOVE", "GPUS", "GOODPUT", "DOWNTIME", "PAYS BACK", "REASON"];
    println!("{}", print.table(&headers, plan.moves.iter().map(row)));
    Ok(())
}

fn row(step: &Move) -> Vec<String> {
    vec![
        step.job_name.clone(),
        step.kind.clone(),
        format!("{} -> {}", step.from_gpus, step.to_gpus),
        format!("{} -> {}", si(step.goodput_before_tokens_per_second), si(step.goodput_after_tokens_per_second)),
        duration(step.downtime_seconds),
        optional(step.pays_back_after_seconds, duration),
        step.reason.clone(),
    ]
}
