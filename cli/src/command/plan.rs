//! `headway plan …`: what was decided, and what a rebalance would do. Solving a round of one's own is in `solve`.

use std::path::PathBuf;

use chrono::{DateTime, Utc};
use clap::{Args, Subcommand};
use headway_api::client::{ClientError, PlanQuery};
use headway_api::v1::{Move, Plan as PlanReply, PlanSummary, Policy, Unmoved};

use super::job::{self, Job};
use super::rebalance::{self, Rebalance, Rollback};
use super::replay::Replay;
use super::solve::Solve;
use super::why::{self, Why};
use super::{chosen, outcome, short};
use crate::context::Connection;
use crate::failure::Failure;
use crate::moment::parse_moment;
use crate::output::{Format, Printer, change, duration, moment, optional, proven, si, solved_by};
use crate::table::Column;

/// The scheduler refuses more at once.
const PLANS_PER_PAGE: u32 = 200;

const PLANS: [Column; 7] = [
    Column::new("ID"),
    Column::new("MADE").rank(6),
    Column::new("STATE"),
    Column::new("OBJECTIVE").rank(1),
    Column::new("MOVES"),
    Column::new("BECAUSE").cut_late(20, 48),
    Column::new("WHOLE ID").wide(),
];

const MOVES: [Column; 7] = [
    Column::new("JOB").cut(8),
    Column::new("MOVE"),
    Column::new("GPUS"),
    Column::new("GOODPUT"),
    Column::new("DOWNTIME").rank(2),
    Column::new("PAYS BACK").rank(1),
    Column::new("REASON").wrap(24),
];

const STAYS: [Column; 5] = [
    Column::new("STAYS").cut(8),
    Column::new("GPUS"),
    Column::new("WOULD GAIN"),
    Column::new("CODE").rank(1),
    Column::new("WHY").wrap(24),
];

#[derive(Subcommand, Clone, Debug)]
pub enum Plan {
    /// Plans, newest first.
    List(List),
    /// The plan in force, or the one named.
    Show { id: Option<String> },
    /// Why a job has what it has in the plan in force (`headway why`), or without one what the plan is (`headway plan show`).
    Explain {
        /// Id, unique end or beginning of one, or name.
        job: Option<String>,
    },
    /// Keep a job on the GPUs it has (`headway job pin`).
    Pin {
        /// Id, unique end or beginning of one, or name.
        job: String,
        /// Why, for the event log and for whoever asks why it does not move.
        #[arg(long)]
        reason: Option<String>,
    },
    /// Let a pinned job be moved again (`headway job unpin`).
    Unpin {
        /// Id, unique end or beginning of one, or name.
        job: String,
    },
    /// What would come of jobs, nodes, quotas or priorities that are not so. Nothing is changed by it.
    Simulate(Simulate),
    /// Solve a round of one's own, without a server.
    Solve(Solve),
    /// Decide a past round again and say whether the answer is the same (exit code 1: it is not).
    Replay(Replay),
    /// Propose a better plan; applied after confirmation.
    Rebalance(Rebalance),
    /// Propose to take back what a plan has moved; applied after confirmation.
    Rollback(Rollback),
    /// Plans that were carried out: what was expected of them, and what came of it.
    History {
        /// At most this many.
        #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..))]
        limit: u32,
    },
    /// What a plan (by default the one in force) gives otherwise than another (by default the one it was made from).
    Diff { id: Option<String>, against: Option<String> },
    /// No rounds until they are resumed: nothing starts and nothing moves.
    Pause {
        /// Why, for the event log.
        #[arg(long)]
        reason: Option<String>,
    },
    /// Rounds again, in the mode they had.
    Resume {
        /// Why, for the event log.
        #[arg(long)]
        reason: Option<String>,
    },
    /// Make a proposal the target.
    Approve {
        id: String,
        /// Only if the plan has this hash, as `plan show -o json` tells it.
        #[arg(long)]
        hash: Option<String>,
    },
    /// Drop a proposal.
    Reject {
        id: String,
        /// Why, for the event log.
        #[arg(long)]
        reason: Option<String>,
    },
}

#[derive(Args, Clone, Debug)]
pub struct List {
    /// Those that counted at this moment ("2026-03-01 14:02"): the plan that was being carried out and those that waited.
    #[arg(long, value_name = "TIME", value_parser = parse_moment, allow_hyphen_values = true)]
    pub at: Option<DateTime<Utc>>,
    /// At most this many.
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..))]
    pub limit: u32,
}

#[derive(Args, Clone, Debug)]
pub struct Simulate {
    /// What to suppose, as `POST /plans/simulate` takes it (YAML or JSON), `-` for standard input.
    #[arg(value_name = "FILE")]
    pub file: Option<PathBuf>,
    /// Jobs submitted now: a specification file.
    #[arg(long, value_name = "FILE")]
    pub submit: Vec<PathBuf>,
    /// Jobs gone, by name or id.
    #[arg(long, value_name = "JOB")]
    pub without: Vec<String>,
    /// A priority: JOB=0..100.
    #[arg(long, value_name = "JOB=POINTS")]
    pub priority: Vec<String>,
    /// A quota: PROJECT=GPUS, or PROJECT=none.
    #[arg(long, value_name = "PROJECT=GPUS")]
    pub quota: Vec<String>,
    /// What a row of the policy allows: ROW=GPUS, or ROW=none.
    #[arg(long, value_name = "ROW=GPUS")]
    pub row: Vec<String>,
    /// A node gone, by name.
    #[arg(long, value_name = "NODE")]
    pub node_gone: Vec<String>,
    /// A node whole and back in service, by name.
    #[arg(long, value_name = "NODE")]
    pub node_back: Vec<String>,
    /// More nodes like one: NODE=COUNT.
    #[arg(long, value_name = "NODE=COUNT")]
    pub more_like: Vec<String>,
    /// A job that must get GPUs: JOB, or JOB=GPUS.
    #[arg(long, value_name = "JOB[=GPUS]")]
    pub force: Option<String>,
}

pub async fn run(connection: &Connection, print: &Printer, plan: Plan) -> Result<(), Failure> {
    // Not every command needs a scheduler.
    let client = || connection.client();
    match plan {
        Plan::List(List { at, limit }) => {
            let (client, query) = (client()?, PlanQuery { at, ..PlanQuery::default() });
            let page = |cursor, limit: u32| {
                let query = PlanQuery { cursor, limit: Some(limit.min(PLANS_PER_PAGE)), ..query.clone() };
                let client = &client;
                async move { client.plans(&query).await.map(|page| (page.items, page.next_cursor)) }
            };
            let found = gather(limit, page).await?;
            print.list(&found.plans, &PLANS, summary, |plan| plan.id.to_string())?;
            found.tell_of_more(print);
            Ok(())
        }
        Plan::Show { id } => {
            let plan = match id {
                Some(id) => {
                    let client = client()?;
                    client.plan(&chosen::plan(&client, &id).await?).await?
                }
                None => client()?.current_plan().await?,
            };
            show(print, &plan)
        }
        Plan::Explain { job: Some(job) } => why::run(&client()?, print, Why { job }).await,
        Plan::Explain { job: None } => show(print, &client()?.current_plan().await?),
        Plan::Pin { job, reason } => job::change(&client()?, print, Job::Pin { job, reason }).await,
        Plan::Unpin { job } => job::change(&client()?, print, Job::Unpin { job }).await,
        Plan::Simulate(simulate) => super::simulate::run(&client()?, print, simulate).await,
        Plan::Solve(solve) => super::solve::run(print, &solve),
        Plan::Replay(replay) => super::replay::run(connection, print, &replay).await,
        Plan::Rebalance(asked) => {
            // A proposal moves nothing: the dry run of a rebalance is one that is dropped.
            let client = Connection { dry_run: false, ..connection.clone() }.client()?;
            rebalance::run(&client, print, &asked).await
        }
        Plan::Rollback(asked) => {
            let client = Connection { dry_run: false, ..connection.clone() }.client()?;
            rebalance::roll_back(&client, print, &asked).await
        }
        Plan::History { limit } => outcome::history(&client()?, print, limit).await,
        Plan::Diff { id, against } => outcome::diff(&client()?, print, id, against).await,
        Plan::Pause { reason } => mode(print, &client()?.pause_plans(reason.as_deref()).await?),
        Plan::Resume { reason } => mode(print, &client()?.resume_plans(reason.as_deref()).await?),
        Plan::Approve { id, hash } => {
            let client = client()?;
            show(print, &client.approve(&chosen::plan(&client, &id).await?, hash.as_deref()).await?)
        }
        Plan::Reject { id, reason } => {
            let client = client()?;
            show(print, &client.reject(&chosen::plan(&client, &id).await?, reason.as_deref()).await?)
        }
    }
}

/// Plans page by page, the newest first.
pub struct Gathered<T> {
    pub plans: Vec<T>,
    /// Whether there are others.
    more: bool,
}

/// As many as are wanted, however many the scheduler gives at once. `page` is asked with the cursor of the page before and how many are missing.
pub async fn gather<T, F>(limit: u32, page: impl Fn(Option<String>, u32) -> F) -> Result<Gathered<T>, ClientError>
where
    F: Future<Output = Result<(Vec<T>, Option<String>), ClientError>>,
{
    let (mut plans, mut cursor) = (Vec::new(), None);
    loop {
        let left = limit.saturating_sub(plans.len() as u32);
        let (items, next) = page(cursor, left).await?;
        plans.extend(items);
        // A page may be empty and others follow.
        if next.is_none() || plans.len() >= limit as usize {
            plans.truncate(limit as usize);
            return Ok(Gathered { plans, more: next.is_some() });
        }
        cursor = next;
    }
}

impl<T> Gathered<T> {
    /// Not among the rows: a pipe gets rows alone.
    pub fn tell_of_more(&self, print: &Printer) {
        if self.more && print.format == Format::Table {
            let shown = match self.plans.len() {
                1 => "the newest plan".to_owned(),
                several => format!("the newest {several} plans"),
            };
            eprintln!("{shown}; there are more: --limit {}", 10 * self.plans.len());
        }
    }
}

fn mode(print: &Printer, policy: &Policy) -> Result<(), Failure> {
    if print.structured() {
        return print.value(policy);
    }
    say!("the mode of planning is {}", policy.mode)?;
    Ok(())
}

pub fn show(print: &Printer, plan: &PlanReply) -> Result<(), Failure> {
    if print.is_for_programs() {
        return print.one(plan, &plan.id.to_string());
    }
    put!("{}", text(print, plan))?;
    Ok(())
}

fn text(print: &Printer, plan: &PlanReply) -> String {
    let mut lines = vec![format!("plan {} ({}), made because {}", plan.id, plan.state, plan.trigger), worth(plan)];
    lines.extend(plan.solver.as_ref().map(solved_by));
    lines.extend(plan.valid_until.map(|until| format!("waits for approval until {}", moment(until))));
    lines.extend(plan.relaxed.iter().map(|one| format!("not kept: {} ({})", one.rule, one.reason)));
    lines.extend(plan.left_out.iter().map(|one| format!("left as it is: {} ({})", one.job_name, one.reason)));
    if plan.moves.is_empty() {
        lines.push("no moves: the present allocation is the best found".into());
    } else {
        lines.push(print.table(&MOVES, plan.moves.iter().map(row)));
        lines.extend(outcome::of_moves(print, &plan.moves));
    }
    let mut scarce: Vec<Vec<String>> =
        plan.scarce.iter().map(|one| vec![one.of.clone(), format!("{:.4}", one.price)]).collect();
    if scarce.is_empty() {
        // A plan from before there was a list of them.
        let of = |(gpu_type, price): (&String, &f64)| vec![format!("GPUs of {gpu_type}"), format!("{price:.4}")];
        scarce = plan.shadow_prices.iter().filter(|(_, price)| **price > 0.0).map(of).collect();
    }
    if !scarce.is_empty() {
        lines.push(String::new());
        lines.push(print.table(&["SCARCE", "ONE MORE IS WORTH"], scarce.into_iter()));
    }
    if !plan.unmoved.is_empty() {
        lines.push(String::new());
        lines.push(print.table(&STAYS, plan.unmoved.iter().map(stays)));
    }
    lines.join("\n") + "\n"
}

/// "goodput -28.7 %, forced; objective 4.0100 -> 3.6187, bound 3.6187, gap 0.00 %".
fn worth(plan: &PlanReply) -> String {
    let goodput = plan.goodput_change_pct.map(|percent| format!("goodput {}", change(percent)));
    let forced = plan.forced.then(|| "forced".to_owned());
    let gains: Vec<String> = goodput.into_iter().chain(forced).collect();
    let proven = proven(plan.bound, plan.gap, 2);
    let objective = format!("objective {:.4} -> {:.4}, {proven}", plan.objective_before, plan.objective);
    if gains.is_empty() { objective } else { format!("{}; {objective}", gains.join(", ")) }
}

fn summary(of: &PlanSummary) -> Vec<String> {
    vec![
        short(&of.id.to_string()).to_owned(),
        moment(of.made_at),
        of.state.to_string(),
        format!("{:.4}", of.objective),
        of.moves.to_string(),
        if of.forced { format!("forced: {}", of.trigger) } else { of.trigger.clone() },
        of.id.to_string(),
    ]
}

fn stays(of: &Unmoved) -> Vec<String> {
    vec![
        of.job_name.clone(),
        format!("{} not {}", of.from_gpus, of.to_gpus),
        change(of.gain_pct),
        of.code.clone(),
        of.detail.clone(),
    ]
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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[tokio::test]
    async fn plans_are_read_page_by_page_up_to_the_limit() {
        // Twelve, four at once, and an empty page in between.
        let pages = [(0..4, "a"), (4..4, "b"), (4..8, "c"), (8..12, "")];
        let page = |cursor: Option<String>, limit: u32| {
            let at = cursor.map_or(0, |cursor| 1 + pages.iter().position(|(_, next)| *next == cursor).unwrap());
            let (plans, next) = pages[at].clone();
            let next = if plans.len() > limit as usize { "elsewhere" } else { next };
            let page = (plans.take(limit as usize).collect::<Vec<u32>>(), (!next.is_empty()).then(|| next.to_owned()));
            std::future::ready(Ok(page))
        };
        for (limit, found, more) in [(3, 3, true), (4, 4, true), (6, 6, true), (12, 12, false), (100, 12, false)] {
            let gathered = gather(limit, page).await.unwrap();
            assert_eq!((gathered.plans, gathered.more), ((0..found).collect(), more), "{limit}");
        }
    }

    #[test]
    fn a_plan_shows_what_is_scarce_and_who_stays_and_why() {
        let plan: PlanReply = serde_json::from_value(serde_json::json!({
            "id": "018bcfe5-0003-7000-8000-000000000001", "parent_id": null, "state": "adopted", "state_reason": null,
            "made_at": "2026-01-01T00:00:00Z", "decided_at": null, "decided_by": null, "trigger": "job b arrived",
            "objective_before": 1.5, "objective": 2.25, "bound": 2.25, "gap": 0.0, "candidates": 12,
            "shadow_prices": {"H100-80G": 0.125}, "assignments": [], "moves": [], "verdicts": [],
            "scarce": [{"of": "GPUs of H100-80G", "price": 0.125}, {"of": "the quota of project nlp", "price": 0.05}],
            "relaxed": [{"rule": "the floor of job c", "reason": "0 of 4 GPUs: no more can be freed for it now"}],
            "left_out": [{"job_id": "018bcfe5-0001-7000-8000-000000000004", "job_name": "d", "reason": "rework is NaN"}],
            "unmoved": [{"job_id": "018bcfe5-0001-7000-8000-000000000001", "job_name": "a", "from_gpus": 4, "to_gpus": 8,
                "gain_pct": 62.0, "forgone": 0.1, "code": "cooldown", "detail": "it has run 60 s of 600 s"}],
        }))
        .unwrap();
        insta::assert_snapshot!(text(&Printer::plain(), &plan));
        let forced = PlanReply { forced: true, goodput_change_pct: Some(-28.74), objective: 1.25, ..plan };
        let told = worth(&forced);
        assert_eq!(told, "goodput -28.7 %, forced; objective 1.5000 -> 1.2500, bound 2.2500, gap 0.00 %");
    }
}
