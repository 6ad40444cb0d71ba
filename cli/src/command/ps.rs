//! `headway ps`: jobs with their newest numbers, why who waits does, and how far the others are.

use std::time::Duration;

use chrono::{DateTime, Utc};
use clap::Args;
use clap::builder::PossibleValuesParser;
use headway_api::client::{Client, JobFilter};
use headway_api::v1::{Array, Job, JobTotals, PastJob};
use headway_types::JobStateKind;
use strum::VariantArray;

use super::{array, short, watch};
use crate::failure::Failure;
use crate::moment::parse_moment;
use crate::output::{Format, Printer, age, duration, moment, optional, si};
use crate::table::Column;

/// What the scheduler gives at once.
const JOBS_PER_PAGE: u32 = 500;
const JOBS: u32 = 100;

#[derive(Args, Clone, Debug)]
pub struct Ps {
    /// Every job: ended ones too, and without a limit unless one is given.
    #[arg(short, long)]
    pub all: bool,
    /// Only jobs in this state.
    #[arg(long, value_parser = PossibleValuesParser::new(states()))]
    pub state: Vec<String>,
    /// Only jobs of this project.
    #[arg(long)]
    pub project: Option<String>,
    /// Only jobs of this owner.
    #[arg(long)]
    pub user: Option<String>,
    /// Only jobs with this label: `name=value`, or `name` with any value.
    #[arg(short, long)]
    pub label: Vec<String>,
    /// Only jobs with this in their name.
    #[arg(long)]
    pub name: Option<String>,
    /// Sort by this: submitted, name, owner, project, ended; of jobs that have not ended also priority, gpus, goodput, progress, lost, eta,
    /// position. A `-` before it turns it round.
    #[arg(long, allow_hyphen_values = true)]
    pub sort: Option<String>,
    /// A line for each element of an array instead of one for all of them; as with --sort and --at.
    #[arg(long)]
    pub expand: bool,
    /// At most this many [default: 100]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..))]
    pub limit: Option<u32>,
    /// As it was at this moment ("2026-03-01 14:02"): jobs that had not ended, with what is known of them.
    #[arg(long, value_name = "TIME", value_parser = parse_moment, allow_hyphen_values = true, conflicts_with_all = ["all", "watch", "label", "sort"])]
    pub at: Option<DateTime<Utc>>,
    /// Repeat every two seconds.
    #[arg(short, long)]
    pub watch: bool,
}

const COLUMNS: [Column; 21] = [
    Column::new("ID"),
    Column::new("NAME").cut(12),
    Column::new("STATE").state(),
    Column::new("GPUS"),
    Column::new("OWNER").rank(10).cut(5),
    Column::new("AGE").rank(11),
    Column::new("DONE").rank(9),
    Column::new("ETA").rank(6),
    Column::new("STARTS").rank(5),
    Column::new("GOODPUT").rank(4),
    Column::new("TOK/S").rank(3),
    Column::new("LAYOUT").rank(3),
    Column::new("BATCH").rank(2),
    Column::new("EFF").rank(1),
    Column::new("LOSS").rank(1),
    Column::new("PROJECT").wide(),
    Column::new("PRIORITY").wide(),
    Column::new("GNS").wide(),
    Column::new("RESTARTS").wide(),
    Column::new("LOST").wide(),
    Column::new("WHY").cut_late(18, 44),
];

const PAST: [Column; 6] = [
    Column::new("ID"),
    Column::new("NAME").cut(12),
    Column::new("STATE").state(),
    Column::new("SINCE").rank(1),
    Column::new("GPUS"),
    Column::new("NODES").cut(10),
];

pub async fn run(client: &Client, print: &Printer, ps: Ps) -> Result<(), Failure> {
    if ps.watch {
        watch(Duration::from_secs(2), || show(client, print, &ps)).await
    } else {
        show(client, print, &ps).await
    }
}

/// Every state by name, and the words for all that have ended and all others.
fn states() -> impl Iterator<Item = &'static str> {
    JobStateKind::VARIANTS.iter().map(|state| <&str>::from(*state)).chain(["live", "ended"])
}

impl Ps {
    fn most(&self) -> Option<u32> {
        self.limit.or((!self.all).then_some(JOBS))
    }

    /// Whether only some jobs are asked for, whatever their state.
    fn is_narrowed(&self) -> bool {
        self.project.is_some() || self.user.is_some() || self.name.is_some() || !self.label.is_empty()
    }

    fn is_collapsed(&self) -> bool {
        !self.expand && self.sort.is_none() && self.at.is_none()
    }

    fn filter(&self) -> JobFilter {
        let live = self.state.is_empty() && !self.all && self.at.is_none();
        JobFilter {
            states: if live { vec!["live".into()] } else { self.state.clone() },
            project: self.project.clone(),
            user: self.user.clone(),
            name: None,
            id: None,
            name_contains: self.name.clone(),
            array: None,
            collapsed: self.is_collapsed(),
            labels: self.label.clone(),
            sort: self.sort.clone(),
            totals: self.at.is_none(),
            cursor: None,
            limit: Some(self.most().unwrap_or(JOBS_PER_PAGE).min(JOBS_PER_PAGE)),
        }
    }
}

async fn show(client: &Client, print: &Printer, ps: &Ps) -> Result<(), Failure> {
    if let Some(at) = ps.at {
        let page = client.jobs_at(&ps.filter(), at).await?;
        return print.list(&page.items, &PAST, past_row, |job| job.id.to_string());
    }
    let (jobs, whole, totals) = gather(client, ps).await?;
    // By the scheduler's clock, which runs faster where a cluster is emulated.
    let now = totals.as_ref().map_or_else(Utc::now, |totals| totals.counted_at);
    print.list(&jobs, &COLUMNS, |job| row(job, now), id)?;
    let footer = match (&totals, ps.state.is_empty() && !ps.all) {
        (Some(totals), true) if jobs.is_empty() => Some(nobody(totals, ps.is_narrowed())),
        (Some(totals), _) => footer(shown(&jobs), whole, totals),
        (None, _) => None,
    };
    if let (Format::Table, Some(footer)) = (print.format, footer) {
        // Not among the rows: a pipe gets rows alone.
        aside!("{footer}");
    }
    Ok(())
}

/// What is named by a line: a job, or an array.
fn id(row: &Job) -> String {
    row.stands_for.as_ref().map_or(row.id, |of| of.id).to_string()
}

/// Jobs that rows stand for.
fn shown(rows: &[Job]) -> usize {
    rows.iter().map(|row| row.stands_for.as_ref().map_or(1, |array| array.count as usize)).sum()
}

/// Page by page, as many as are wanted; what the filter admits is counted once.
async fn gather(client: &Client, ps: &Ps) -> Result<(Vec<Job>, bool, Option<JobTotals>), Failure> {
    let (mut filter, mut jobs, mut totals) = (ps.filter(), Vec::new(), None);
    loop {
        let page = client.jobs(&filter).await?;
        jobs.extend(page.items);
        totals = totals.or(page.totals);
        filter.totals = false;
        let left = ps.most().map(|most| most.saturating_sub(jobs.len() as u32));
        if page.next_cursor.is_none() || left == Some(0) {
            return Ok((jobs, page.next_cursor.is_none(), totals));
        }
        filter.cursor = page.next_cursor;
        filter.limit = Some(left.unwrap_or(JOBS_PER_PAGE).min(JOBS_PER_PAGE));
    }
}

/// That a list of jobs which have not ended is empty, and where those are that have.
fn nobody(totals: &JobTotals, narrowed: bool) -> String {
    let ended = |state: &&str| totals.by_state.get(*state).copied().unwrap_or_default();
    let ended: u64 = ["succeeded", "failed", "cancelled"].iter().map(ended).sum();
    match ended {
        0 if narrowed => "there is no such job".into(),
        0 => "no jobs; headway submit --gpus 1 -- ./train.sh makes one".into(),
        ended => format!("none waits or runs; --all shows {ended} that have ended"),
    }
}

/// That there is more than is shown. `whole`: so much was asked for, and there is no more.
fn footer(shown: usize, whole: bool, totals: &JobTotals) -> Option<String> {
    let all = totals.jobs;
    (!whole && (shown as u64) < all).then(|| format!("{shown} of {all} jobs; --limit {all} shows them all"))
}

fn past_row(job: &PastJob) -> Vec<String> {
    let nodes = if job.nodes.is_empty() { "-".into() } else { job.nodes.join(",") };
    vec![
        short(&job.id.to_string()).into(),
        job.name.clone(),
        job.state.to_string(),
        moment(job.state_since),
        job.gpus.to_string(),
        nodes,
    ]
}

/// dp × tp × pp and what else the layout is.
fn layout(job: &Job) -> String {
    let Some(layout) = job.layout else { return "-".into() };
    let more = job.execution.unwrap_or_default();
    format!("{}×{}×{}{more}", layout.dp, layout.tp, layout.pp)
}

/// One line of the table of jobs.
fn row(job: &Job, now: DateTime<Utc>) -> Vec<String> {
    if let Some(of) = &job.stands_for {
        return array_row(job, of, now);
    }
    let since = |at: DateTime<Utc>| (job.ended_at.unwrap_or(now) - at).num_milliseconds() as f64 / 1_000.0;
    vec![
        short(&job.id.to_string()).into(),
        job.name.clone(),
        job.state.to_string(),
        if job.gpus == 0 { format!("0/{}", job.gpus_max) } else { job.gpus.to_string() },
        job.owner.clone(),
        age(since(job.submitted_at)),
        done(job),
        optional(job.eta_seconds, duration),
        starts(job, now),
        optional(job.goodput_tokens_per_second, si),
        optional(job.throughput_tokens_per_second, si),
        layout(job),
        batch(job),
        optional(job.efficiency, |e| format!("{e:.2}")),
        loss(job),
        job.project.clone(),
        job.priority.to_string(),
        optional(job.noise_scale_tokens, si),
        (job.restarts + job.disruptions + job.preemptions).to_string(),
        if job.lost_gpu_hours > 0.0 { format!("{:.2} GPU-h", job.lost_gpu_hours) } else { "-".into() },
        why(job, now),
    ]
}

/// The line of an array: what its elements have in common, and how far they are.
fn array_row(first: &Job, of: &Array, now: DateTime<Utc>) -> Vec<String> {
    let of_states = |states: &[&str]| states.iter().filter_map(|state| of.by_state.get(*state)).sum::<u32>();
    let ended = of_states(&["succeeded", "failed", "cancelled"]);
    let state = match (of_states(&["running", "starting", "stopping"]), of_states(&["held"])) {
        _ if ended == of.count => "ended",
        (1.., _) => "running",
        // Whoever waits for its turn is not held.
        (0, held) if held > 0 && held + ended == of.count => "held",
        _ => "queued",
    };
    let mut cells = vec!["-".to_owned(); COLUMNS.len()];
    let known = [
        (0, short(&of.id.to_string()).to_owned()),
        (1, array::called(of)),
        (2, state.to_owned()),
        (3, format!("{}×{}", of.count, first.gpus_max)),
        (4, of.owner.clone()),
        (5, age((now - of.submitted_at).num_milliseconds() as f64 / 1_000.0)),
        (6, format!("{:.0}%", 100.0 * f64::from(ended) / f64::from(of.count.max(1)))),
        (15, of.project.clone()),
        (16, first.priority.to_string()),
        (20, array::counts(of)),
    ];
    for (column, text) in known {
        cells[column] = text;
    }
    cells
}

/// The numbers of a job, for a table of jobs under way.
pub fn numbers(job: &Job) -> Vec<String> {
    vec![
        short(&job.id.to_string()).into(),
        job.name.clone(),
        job.state.to_string(),
        gpus(job),
        layout(job),
        batch(job),
        optional(job.throughput_tokens_per_second, si),
        optional(job.noise_scale_tokens, si),
        optional(job.efficiency, |e| format!("{e:.2}")),
        optional(job.goodput_tokens_per_second, si),
        loss(job),
        done(job),
        optional(job.eta_seconds, duration),
    ]
}

/// Formats the newest loss.
pub fn loss(job: &Job) -> String {
    match job.loss_not_finite_since_step {
        Some(_) => "NaN".into(),
        None => optional(job.loss, |loss| format!("{loss:.3}")),
    }
}

/// Of a job that waits: when it is as likely to have started as not, and its place.
fn starts(job: &Job, now: DateTime<Utc>) -> String {
    let Some(waiting) = &job.waiting else { return "-".into() };
    let p50 = waiting.p50.map(|at| format!("~{}", duration((at - now).num_milliseconds() as f64 / 1_000.0)));
    match (waiting.position, p50) {
        (Some(place), Some(p50)) => format!("{p50} (#{place})"),
        (Some(place), None) => format!("#{place}"),
        _ => "-".into(),
    }
}

/// Why it is where it is, in a sentence: how it last failed while it waits to try again, what it waits for, what it stops for, how it ended.
pub fn why(job: &Job, now: DateTime<Utc>) -> String {
    let waits_after_failure = job.not_before.is_some_and(|until| until > now) && job.state == JobStateKind::Queued;
    let failed = job.last_failure.as_ref().filter(|_| waits_after_failure);
    if let (Some(failure), Some(until)) = (failed, job.not_before) {
        let left = duration((until - now).num_milliseconds() as f64 / 1_000.0);
        let code = failure.exit_code.map_or("failed".to_owned(), |code| format!("exit code {code}"));
        return format!("{code}, tries again in {left}: {}", failure.message);
    }
    if let Some(lost) = unreachable(job, now) {
        return lost;
    }
    match (&job.waiting, &job.state_cause) {
        (Some(waiting), _) => waiting.headline.clone(),
        (None, Some(cause)) => cause.clone(),
        (None, None) => "-".into(),
    }
}

/// Says which nodes of a job are out of contact: "node-1 unreachable for 44s".
pub fn unreachable(job: &Job, now: DateTime<Utc>) -> Option<String> {
    let lost = job.unreachable.as_ref()?;
    let silent = duration(((now - lost.since).num_milliseconds() as f64 / 1_000.0).max(0.0));
    Some(format!("{} unreachable for {silent}", lost.nodes.join(", ")))
}

/// Of the target, and what of that is only credited to small batches.
fn done(job: &Job) -> String {
    let credit = job.target_tokens.map_or(0.0, |target| job.credit_tokens / target);
    let credited = if credit >= 0.005 { format!(" ({:.0}% credit)", credit * 100.0) } else { String::new() };
    optional(job.progress_fraction, |part| format!("{:.0}%{credited}", part * 100.0))
}

pub fn gpus(job: &Job) -> String {
    if job.gpus == 0 { format!("0 of {}", job.gpus_max) } else { job.gpus.to_string() }
}

/// Micro-batches of a replica and step: `4`, or of uneven shares those on slower and on faster nodes, `3:6`.
fn accumulated(job: &Job, global: u64, micro: u64) -> String {
    let shares = job.execution.unwrap_or_default().shares;
    let cycle = job.layout.map_or(0, |layout| shares.micro_batches(layout.dp)) * micro;
    match job.accumulation {
        None if !shares.are_even() && cycle > 0 => {
            let of = |share: u32| u64::from(share) * global / cycle;
            format!("{}:{}", of(shares.slower), of(shares.faster))
        }
        accumulation => accumulation.unwrap_or(1).to_string(),
    }
}

pub fn batch(job: &Job) -> String {
    match (job.global_batch_sequences, job.micro_batch_sequences) {
        (Some(global), Some(micro)) => format!("{global} ({micro}×{})", accumulated(job, global, micro)),
        _ => "-".into(),
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use crate::output::Layout;

    pub const JOBS: &str = include_str!("../../tests/jobs.json");

    pub fn now() -> DateTime<Utc> {
        "2026-03-01T14:00:00Z".parse().expect("a moment")
    }

    pub fn jobs() -> Vec<Job> {
        serde_json::from_str(JOBS).expect("jobs as the scheduler writes them")
    }

    fn table(layout: Layout) -> String {
        let printer = Printer { layout, ..Printer::plain() };
        printer.rows(&COLUMNS, jobs().iter().map(|job| row(job, now())).collect())
    }

    #[test]
    fn uneven_shares_show_what_both_kinds_of_replicas_accumulate() {
        let mut job = jobs().into_iter().find(|job| job.layout.is_some()).expect("one runs");
        let layout = headway_api::v1::Layout { dp: 4, tp: 1, pp: 1 };
        let shares = headway_types::Shares { slower: 1, faster: 2, of_faster: 2 };
        let execution = headway_types::Execution { shares, ..headway_types::Execution::PLAIN };
        (job.layout, job.execution, job.accumulation) = (Some(layout), Some(execution), None);
        (job.global_batch_sequences, job.micro_batch_sequences) = (Some(36), Some(2));
        assert_eq!((batch(&job), super::layout(&job)), ("36 (2×3:6)".into(), "4×1×1 shares1:2".into()));
    }

    #[test]
    fn ps_fits_eighty_columns() {
        insta::assert_snapshot!(table(Layout::Within(Some(80))));
    }

    #[test]
    fn ps_fits_one_hundred_and_twenty_columns() {
        insta::assert_snapshot!(table(Layout::Within(Some(120))));
    }

    #[test]
    fn ps_fits_two_hundred_columns() {
        insta::assert_snapshot!(table(Layout::Within(Some(200))));
    }

    #[test]
    fn ps_is_not_cut_for_a_pipe_and_wide_has_all_columns() {
        insta::assert_snapshot!(format!("{}\n\n{}", table(Layout::Within(None)), table(Layout::Wide)));
    }

    #[test]
    fn who_does_not_show_all_says_so() {
        let totals = JobTotals { jobs: 500, by_state: [("queued".into(), 500)].into(), counted_at: now() };
        assert_eq!(footer(100, false, &totals).as_deref(), Some("100 of 500 jobs; --limit 500 shows them all"));
        assert_eq!(footer(500, false, &totals), None);
        assert_eq!(
            footer(100, true, &totals),
            None,
            "that of some elements of an array more were admitted says nothing"
        );
    }

    #[test]
    fn an_empty_list_says_where_to_look() {
        let totals = |by_state: &[(&str, u64)]| JobTotals {
            jobs: 0,
            by_state: by_state.iter().map(|(state, jobs)| ((*state).into(), *jobs)).collect(),
            counted_at: now(),
        };
        let told = nobody(&totals(&[("succeeded", 3), ("failed", 1), ("queued", 2)]), false);
        assert_eq!(told, "none waits or runs; --all shows 4 that have ended");
        assert!(nobody(&totals(&[]), false).starts_with("no jobs; headway submit"));
        assert_eq!(nobody(&totals(&[]), true), "there is no such job");
    }

    #[test]
    fn an_array_is_held_where_none_of_it_may_run() {
        let state = |by_state: &[(&str, u32)]| {
            array_row(&jobs()[0], &array::tests::array(1, "sweep", by_state), now()).swap_remove(2)
        };
        assert_eq!(state(&[("held", 100)]), "held");
        assert_eq!(state(&[("held", 60), ("failed", 40)]), "held");
        assert_eq!(state(&[("held", 60), ("queued", 40)]), "queued");
        assert_eq!(state(&[("held", 60), ("running", 40)]), "running");
        assert_eq!(state(&[("failed", 100)]), "ended");
    }

    #[test]
    fn an_array_is_one_line_among_jobs() {
        let of = array::tests::array(1, "sweep", &[("running", 8), ("queued", 40), ("succeeded", 52)]);
        let mut jobs = jobs();
        jobs.truncate(2);
        jobs[0].stands_for = Some(of);
        assert_eq!(shown(&jobs), 101);
        let printer = Printer { layout: Layout::Within(Some(120)), ..Printer::plain() };
        insta::assert_snapshot!(printer.rows(&COLUMNS, jobs.iter().map(|job| row(job, now())).collect()));
    }
}
