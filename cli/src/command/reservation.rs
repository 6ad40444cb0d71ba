//! `headway reservation …`: nodes set aside for some jobs.

use chrono::{DateTime, SecondsFormat, Utc};
use clap::{Args, Subcommand};
use headway_api::client::Client;
use headway_api::v1::{Reservation as ReservationReply, ReservationRequest};
use headway_types::Seconds;
use uuid::Uuid;

use super::{resolve_job, short};
use crate::failure::{Failure, Kind};
use crate::moment::parse_moment;
use crate::output::{Printer, gpus};
use crate::table::Column;

#[derive(Subcommand, Clone, Debug)]
pub enum Reservation {
    /// List reservations that are not over.
    List,
    /// Set nodes aside for projects, users or jobs, or for maintenance.
    Create(Create),
    /// End a reservation, or take it back before it begins.
    Delete {
        /// Name or id.
        reservation: String,
    },
}

#[derive(Args, Clone, Debug)]
pub struct Create {
    /// Name, unique among those that are not over.
    pub name: String,
    /// Why, for everybody who finds the nodes reserved; at most 500 characters.
    #[arg(long, value_name = "TEXT")]
    pub reason: Option<String>,
    /// Name or id of a node; may be repeated.
    #[arg(long = "node", required = true)]
    pub nodes: Vec<String>,
    /// When it begins; now, if absent.
    #[arg(long, value_name = "TIME", value_parser = parse_moment, allow_hyphen_values = true)]
    pub from: Option<DateTime<Utc>>,
    /// When it ends.
    #[arg(long, value_name = "TIME", value_parser = parse_moment, allow_hyphen_values = true, required_unless_present = "lasting", conflicts_with = "lasting")]
    pub until: Option<DateTime<Utc>>,
    /// How long it lasts ("2h").
    #[arg(long = "for", value_name = "DURATION", value_parser = headway_api::spec::duration)]
    pub lasting: Option<Seconds>,
    /// For nobody: the nodes are worked on, and nothing runs there until it is over.
    #[arg(long, conflicts_with_all = ["projects", "users", "jobs"])]
    pub maintenance: bool,
    /// Members: jobs of this project and its sub-projects; may be repeated.
    #[arg(long = "project")]
    pub projects: Vec<String>,
    /// Members: jobs of this user; may be repeated.
    #[arg(long = "user")]
    pub users: Vec<String>,
    /// A member; may be repeated.
    #[arg(long = "job")]
    pub jobs: Vec<String>,
}

pub async fn run(client: &Client, print: &Printer, reservation: Reservation) -> Result<(), Failure> {
    match reservation {
        Reservation::List => print.list(&client.reservations().await?, &COLUMNS, row, |one| one.id.to_string()),
        Reservation::Create(create) => {
            let made = client.reserve(&request(client, create).await?).await?;
            if print.structured() {
                return print.value(&made);
            }
            say!("{}", created(&made, Utc::now()))?;
            Ok(())
        }
        Reservation::Delete { reservation } => {
            let gone = client.cancel_reservation(&resolve(client, &reservation).await?).await?;
            if print.structured() {
                return print.value(&gone);
            }
            say!("reservation {} is gone", gone.name)?;
            Ok(())
        }
    }
}

/// A new reservation and what it costs.
fn created(made: &ReservationReply, now: DateTime<Utc>) -> String {
    let nodes = made.nodes.join(", ");
    let span = format!("from {} until {}", moment(made.from), moment(made.until));
    let why = made.reason.as_ref().map(|why| format!(": {why}")).unwrap_or_default();
    let mut lines = vec![format!("reservation {} of {nodes}, {span}{why}", made.name)];
    let Some(cost) = &made.cost else { return lines.remove(0) };
    lines.push(format!("takes {} ({:.1} GPU-hours)", gpus(cost.gpus), cost.gpu_hours));
    for job in &cost.jobs {
        let held = gpus(job.gpus);
        let in_time = if job.leaves_at <= now { "now".into() } else { format!("at {}", moment(job.leaves_at)) };
        lines.push(match job.ending.as_str() {
            "limit" => format!("{} ({held}) has ended before, by its time limit", job.job_name),
            "stays" => format!("{} ({held}) must not run twice and stays until it ends or is cancelled", job.job_name),
            "saves" => format!("{} ({held}) saves and leaves {in_time}", job.job_name),
            _ => format!("{} ({held}) is stopped {in_time} unless it has ended, perhaps without saving", job.job_name),
        });
    }
    lines.join("\n")
}

async fn request(client: &Client, create: Create) -> Result<ReservationRequest, Failure> {
    let mut jobs = Vec::new();
    for job in &create.jobs {
        let id = resolve_job(client, job).await?;
        jobs.push(Uuid::parse_str(&id).map_err(|_| Failure::new(Kind::Failed, format!("{id} is no id of a job")))?);
    }
    Ok(ReservationRequest {
        name: create.name,
        reason: create.reason,
        nodes: create.nodes,
        from: create.from,
        until: create.until,
        duration_seconds: create.lasting.map(|time| time.0),
        maintenance: create.maintenance,
        projects: create.projects,
        users: create.users,
        jobs,
    })
}

async fn resolve(client: &Client, text: &str) -> Result<String, Failure> {
    let all = client.reservations().await?;
    let named = all.iter().find(|one| one.name == text || one.id.to_string() == text);
    named.map(|one| one.id.to_string()).ok_or_else(|| {
        Failure::new(Kind::NotFound, format!("no reservation is called {text}")).hint("see `headway reservation list`")
    })
}

const COLUMNS: [Column; 10] = [
    Column::new("ID"),
    Column::new("NAME").cut(8),
    Column::new("NODES").cut_late(10, 24),
    Column::new("FROM").rank(2),
    Column::new("UNTIL"),
    Column::new("ACTIVE").rank(6),
    Column::new("FOR").cut_late(6, 16),
    Column::new("MADE BY").rank(1).cut(7),
    Column::new("GPU-HOURS").wide(),
    Column::new("REASON").rank(3).cut(12),
];

fn row(one: &ReservationReply) -> Vec<String> {
    let jobs = one.jobs.iter().map(|job| format!("job {}", short(&job.to_string())));
    let users = one.users.iter().map(|user| format!("user {user}"));
    let members: Vec<String> = one.projects.iter().cloned().chain(users).chain(jobs).collect();
    vec![
        short(&one.id.to_string()).into(),
        one.name.clone(),
        one.nodes.join(","),
        moment(one.from),
        moment(one.until),
        if one.active { "yes" } else { "no" }.into(),
        members.join(","),
        one.made_by.clone(),
        one.cost.as_ref().map_or_else(|| "-".into(), |cost| format!("{:.1}", cost.gpu_hours)),
        one.reason.clone().unwrap_or_else(|| "-".into()),
    ]
}

fn moment(at: DateTime<Utc>) -> String {
    at.to_rfc3339_opts(SecondsFormat::Secs, true)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::output::Layout;

    #[test]
    fn a_reservation_of_many_nodes_fits_the_terminal() {
        let one: ReservationReply = serde_json::from_value(serde_json::json!({
            "id": "018bcfe5-0001-7000-8000-000000000001", "name": "burn-in-of-the-new-racks", "active": true,
            "nodes": (0..32).map(|number| format!("h100-{number:04}")).collect::<Vec<_>>(),
            "from": "2026-03-01T12:00:00Z", "until": "2026-03-08T12:00:00Z", "projects": ["research-nlp", "vision"],
            "users": ["ada", "bob"], "jobs": [], "made_by": "operator", "made_at": "2026-02-01T12:00:00Z",
            "reason": "burn-in of the racks that were delivered in February, before anybody depends on them",
            "cost": {"gpus": 256, "gpu_hours": 43_008.0, "jobs": []},
        }))
        .unwrap();
        for width in [60, 80, 120, 160] {
            assert!(crate::table::widest(&COLUMNS, row(&one), width) <= width, "{width}");
        }
    }

    #[test]
    fn a_list_of_reservations_shows_their_reasons_and_what_they_cost() {
        let one: ReservationReply = serde_json::from_value(serde_json::json!({
            "id": "018bcfe5-0001-7000-8000-000000000001", "name": "r9", "active": false, "nodes": ["n1"],
            "from": "2026-03-01T12:00:00Z", "until": "2026-03-01T16:00:00Z", "projects": ["nlp"], "users": [],
            "jobs": [], "made_by": "opal", "made_at": "2026-03-01T08:00:00Z", "reason": "the board watches",
            "cost": {"gpus": 8, "gpu_hours": 32.0, "jobs": []},
        }))
        .unwrap();
        assert!(created(&one, one.made_at).starts_with(
            "reservation r9 of n1, from 2026-03-01T12:00:00Z until 2026-03-01T16:00:00Z: the board watches\n"
        ));
        let wide = Printer { layout: Layout::Wide, ..Printer::plain() };
        insta::assert_snapshot!(wide.rows(&COLUMNS, vec![row(&one)]), @"
        ID        NAME  NODES  FROM                  UNTIL                 ACTIVE  FOR  MADE BY  GPU-HOURS  REASON
        00000001  r9    n1     2026-03-01T12:00:00Z  2026-03-01T16:00:00Z  no      nlp  opal     32.0       the board watches
        ");
    }

    #[test]
    fn a_new_reservation_says_what_it_costs() {
        let leaving = |name: &str, ending: &str, at: &str| {
            serde_json::json!({"job_id": "018bcfe5-0001-7000-8000-000000000001", "job_name": name, "gpus": 2,
                "leaves_at": at, "ending": ending})
        };
        let jobs = [
            leaving("quick", "unsaved", "2026-03-01T08:00:00Z"),
            leaving("llama", "saves", "2026-03-01T11:56:30Z"),
            leaving("brief", "limit", "2026-03-01T12:00:00Z"),
            leaving("once", "stays", "2026-03-01T12:00:00Z"),
        ];
        let one: ReservationReply = serde_json::from_value(serde_json::json!({
            "id": "018bcfe5-0001-7000-8000-000000000001", "name": "r9", "active": false, "nodes": ["n1", "n2"],
            "from": "2026-03-01T12:00:00Z", "until": "2026-03-01T16:00:00Z", "projects": ["nlp"], "users": [],
            "jobs": [], "made_by": "operator", "made_at": "2026-03-01T08:00:00Z",
            "cost": {"gpus": 8, "gpu_hours": 32.0, "jobs": jobs},
        }))
        .unwrap();
        let told = created(&one, one.made_at);
        let lines = [
            "reservation r9 of n1, n2, from 2026-03-01T12:00:00Z until 2026-03-01T16:00:00Z",
            "takes 8 GPUs (32.0 GPU-hours)",
            "quick (2 GPUs) is stopped now unless it has ended, perhaps without saving",
            "llama (2 GPUs) saves and leaves at 2026-03-01T11:56:30Z",
            "brief (2 GPUs) has ended before, by its time limit",
            "once (2 GPUs) must not run twice and stays until it ends or is cancelled",
        ];
        assert_eq!(told.lines().collect::<Vec<_>>(), lines);
    }
}
