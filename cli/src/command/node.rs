//! `headway node …`: the machines.

mod enrolment;
mod insight;
mod page;

use std::collections::{BTreeMap, BTreeSet};

use chrono::{DateTime, Utc};
use clap::{Args, Subcommand};
use headway_api::client::Client;
use headway_api::v1::{DeletedNode, DrainRequest, Node as NodeReply, NodeGpus, NodePatch, PastNode};
use headway_types::Seconds;
use headway_types::spec::check_node_label;

pub use enrolment::{Join, JoinTokens, join};

use crate::confirm::Yes;
use crate::failure::Failure;
use crate::moment::parse_moment;
use crate::output::{Printer, moment};
use crate::table::Column;

#[derive(Subcommand, Clone, Debug)]
pub enum Node {
    /// List nodes.
    List(List),
    /// One node whole, as it is for programs.
    Get(Name),
    /// One node whole, as a page.
    Describe(Name),
    /// Set labels, which jobs choose nodes by (`resources.nodes.labels`), or take some away.
    Label(Label),
    /// Move running jobs away (checkpoint first) and start nothing new.
    Drain(Drain),
    /// Start nothing new; what runs stays.
    Cordon(Change),
    /// Take a node back into service.
    Undrain(Name),
    /// Take a node back into service.
    Uncordon(Name),
    /// Vouch that nothing runs on an unreachable node any more.
    Lost(Final),
    /// The GPUs of a node: what each does, who holds it, what has befallen it.
    Gpus(Name),
    /// Whether a node is in reach and trusted with work, why not, and how that came about.
    Health(Name),
    /// Forget a node that is gone for good and on which nothing holds GPUs. Its certificate opens nothing any more; a node that comes back
    /// joins as a new one.
    Delete(Final),
    /// On the node: make a key, and have the scheduler sign a certificate of it. The key stays here.
    Join(Join),
    /// Tokens that admit nodes.
    #[command(subcommand)]
    Token(JoinTokens),
    /// Who has joined, and until when the certificates hold.
    Certificates,
    /// Have the certificate of a node or a fleet open nothing any more: its session ends within a second. What runs there goes on until the
    /// node is lost or has joined again.
    Revoke(Final),
}

#[derive(Args, Clone, Debug)]
pub struct List {
    /// As they were at this moment ("2026-03-01 14:02"), with what is known of them.
    #[arg(long, value_name = "TIME", value_parser = parse_moment, allow_hyphen_values = true)]
    pub at: Option<DateTime<Utc>>,
    /// Those that have this label: NAME=VALUE, or NAME with any value; may be given more than once.
    #[arg(long = "label", value_name = "NAME[=VALUE]", conflicts_with = "at")]
    pub labels: Vec<String>,
}

#[derive(Args, Clone, Debug)]
pub struct Label {
    /// Name or id of the node.
    pub node: String,
    /// NAME=VALUE sets one, NAME- takes one away; what is not named stays. One that the node's agent declares is so again once it is
    /// set to that.
    #[arg(required = true, value_name = "NAME=VALUE|NAME-", value_parser = label_change)]
    pub changes: Vec<(String, Option<String>)>,
}

#[derive(Args, Clone, Debug)]
pub struct Name {
    /// Name or id of the node.
    pub node: String,
}

#[derive(Args, Clone, Debug)]
pub struct Drain {
    #[command(flatten)]
    pub change: Change,
    /// Let jobs that have nowhere else to go stay this long ("30m", "2h").
    #[arg(long, value_name = "TIME", value_parser = within)]
    pub within: Option<Seconds>,
}

#[derive(Args, Clone, Debug)]
pub struct Change {
    /// Name or id of the node.
    pub node: String,
    /// Why, for the event log.
    #[arg(long)]
    pub reason: Option<String>,
}

/// A change that nothing takes back.
#[derive(Args, Clone, Debug)]
pub struct Final {
    #[command(flatten)]
    pub change: Change,
    #[command(flatten)]
    pub yes: Yes,
}

const COLUMNS: [Column; 10] = [
    Column::new("NAME"),
    Column::new("GPU TYPE").rank(3),
    Column::new("GPUS"),
    Column::new("BUSY").rank(4),
    Column::new("AVAILABILITY").state(),
    Column::new("POLICY").rank(2).state(),
    Column::new("STANDING").rank(1).state(),
    Column::new("JOBS").wide(),
    Column::new("LABELS").wide(),
    Column::new("REASON").cut(16),
];

const PAST: [Column; 8] = [
    Column::new("NAME"),
    Column::new("GPUS"),
    Column::new("BUSY").rank(4),
    Column::new("AVAILABILITY").state(),
    Column::new("POLICY").rank(2).state(),
    Column::new("STANDING").rank(1).state(),
    Column::new("SINCE").rank(3),
    Column::new("JOBS").cut(12),
];

pub async fn run(client: &Client, print: &Printer, node: Node) -> Result<(), Failure> {
    let changed = match node {
        Node::List(List { at: Some(at), .. }) => {
            let nodes = client.nodes_at(at).await?.items;
            return print.list(&nodes, &PAST, past_row, |node| node.name.clone());
        }
        Node::List(List { at: None, labels }) => {
            let nodes = client.nodes_labelled(&labels).await?;
            return print.list(&nodes, &COLUMNS, row, |node| node.name.clone());
        }
        Node::Gpus(Name { node }) => {
            let NodeGpus { gpus, reservation, .. } = client.node_gpus(&node).await?;
            print.list(&gpus, &insight::GPUS, insight::gpu_row, |gpu| gpu.uuid.clone())?;
            if let Some(one) = reservation.filter(|_| !print.is_for_programs()) {
                aside!("node {node} is reserved {}", page::reserved(&one));
            }
            return Ok(());
        }
        Node::Health(Name { node }) => {
            let health = client.node_health(&node).await?;
            if print.structured() {
                return print.value(&health);
            }
            say!("{}", insight::health(&health))?;
            return Ok(());
        }
        Node::Drain(Drain { change, within }) => {
            // The scheduler adds it to its own clock, which is the one that counts.
            let within_seconds = within.map(|time| time.0);
            let drain = DrainRequest { reason: change.reason, deadline: None, within_seconds };
            client.drain(&change.node, &drain).await?
        }
        Node::Cordon(change) => client.cordon(&change.node, change.reason.as_deref()).await?,
        Node::Lost(Final { change, yes }) => {
            let nothing = "its jobs start elsewhere, and two of one would run if something still did";
            yes.or_ask(client, &format!("vouch that nothing runs on node {} any more ({nothing})?", change.node))?;
            client.lost(&change.node, change.reason.as_deref()).await?
        }
        Node::Delete(Final { change, yes }) => {
            yes.or_ask(client, &format!("forget node {} for good?", change.node))?;
            let gone = client.delete_node(&change.node, change.reason.as_deref()).await?;
            if print.structured() {
                return print.value(&gone);
            }
            say!("{}", deleted(&gone))?;
            return Ok(());
        }
        Node::Get(name) => {
            let node = client.node(&name.node).await?;
            return print.one(&node, &node.name);
        }
        Node::Describe(name) => {
            let node = client.node(&name.node).await?;
            if print.is_for_programs() {
                return print.one(&node, &node.name);
            }
            say!("{}", page::text(&node))?;
            return Ok(());
        }
        Node::Label(label) => {
            let patch = NodePatch { labels: label.changes.into_iter().collect() };
            let node = client.update_node(&label.node, &patch).await?;
            if print.structured() {
                return print.value(&node);
            }
            say!("node {} is labelled {}", node.name, labelled(&node.labels))?;
            return Ok(());
        }
        // Before there is a client: it needs none.
        Node::Join(one) => return join(print, one).await,
        Node::Token(one) => return enrolment::tokens(client, print, one).await,
        Node::Certificates => return enrolment::certificates(client, print).await,
        Node::Revoke(Final { change, yes }) => {
            yes.or_ask(client, &format!("have the certificate of {} open nothing any more?", change.node))?;
            return enrolment::revoke(client, print, change).await;
        }
        Node::Undrain(name) | Node::Uncordon(name) => client.uncordon(&name.node).await?,
    };
    if print.structured() {
        print.value(&changed)
    } else {
        say!("node {} is {}, {}", changed.name, changed.policy, changed.availability)?;
        Ok(())
    }
}

fn row(node: &NodeReply) -> Vec<String> {
    let healthy = node.gpus.iter().filter(|gpu| gpu.healthy).count();
    let busy = node.gpus.iter().filter(|gpu| gpu.job_id.is_some()).count();
    let jobs: BTreeSet<_> = node.gpus.iter().filter_map(|gpu| gpu.job_id).collect();
    vec![
        node.name.clone(),
        node.gpu_type.clone(),
        format!("{healthy} of {}", node.gpus.len()),
        busy.to_string(),
        node.availability.to_string(),
        node.policy.to_string(),
        node.standing.to_string(),
        if jobs.is_empty() { "-".into() } else { jobs.len().to_string() },
        labelled(&node.labels),
        reason(node),
    ]
}

fn labelled(labels: &BTreeMap<String, String>) -> String {
    let told: Vec<String> = labels.iter().map(|(name, value)| format!("{name}={value}")).collect();
    if told.is_empty() { "-".into() } else { told.join(",") }
}

/// A label of a node as flags name it.
pub fn node_label(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once('=').ok_or("must be NAME=VALUE")?;
    check_node_label(name, value)?;
    Ok((name.to_owned(), value.to_owned()))
}

fn label_change(text: &str) -> Result<(String, Option<String>), String> {
    match text.strip_suffix('-').filter(|_| !text.contains('=')) {
        Some(name) => check_node_label(name, "gone").map(|()| (name.to_owned(), None)),
        None => node_label(text)
            .map(|(name, value)| (name, Some(value)))
            .map_err(|why| format!("{why}, or NAME- to take it away")),
    }
}

fn past_row(node: &PastNode) -> Vec<String> {
    let busy: usize = node.held.iter().map(|held| held.gpu_uuids.len()).sum();
    let jobs: Vec<&str> = node.held.iter().map(|held| held.job_name.as_str()).collect();
    vec![
        node.name.clone(),
        format!("{} of {}", node.gpus_healthy, node.gpus),
        busy.to_string(),
        node.availability.to_string(),
        node.policy.to_string(),
        node.standing.to_string(),
        moment(node.since),
        if jobs.is_empty() { "-".into() } else { jobs.join(",") },
    ]
}

/// That it is gone, and what named it.
fn deleted(gone: &DeletedNode) -> String {
    let named = |names: &[String]| names.join(", ");
    let mut lines = vec![format!("node {} is gone", gone.name)];
    if !gone.reservations.is_empty() {
        lines.push(format!("reservations that go on without it: {}", named(&gone.reservations)));
    }
    if !gone.reservations_cancelled.is_empty() {
        lines.push(format!(
            "reservations cancelled, since it was their last node: {}",
            named(&gone.reservations_cancelled)
        ));
    }
    if !gone.policy_rows.is_empty() {
        lines.push(format!(
            "rows of the policy that still name it (`headway policy set --rows FILE`): {}",
            named(&gone.policy_rows)
        ));
    }
    lines.join("\n")
}

fn within(text: &str) -> Result<Seconds, String> {
    headway_api::spec::duration(text)
}

/// Why a node takes nothing new, whoever says so, and what else is to be known of it.
fn reason(node: &NodeReply) -> String {
    let said = [&node.policy_reason, &node.leaving_reason, &node.standing_reason].into_iter().flatten().cloned();
    let reserved = node.reservations.first().map(|one| format!("reserved {}", page::reserved(one)));
    let reasons: Vec<String> =
        said.chain(reserved).chain(node.conditions.iter().chain(&node.remarks).cloned()).collect();
    if reasons.is_empty() { "-".into() } else { reasons.join("; ") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::Layout;

    fn nodes() -> Vec<NodeReply> {
        serde_json::from_str(include_str!("../../tests/nodes.json")).expect("nodes as the scheduler writes them")
    }

    fn table(layout: Layout) -> String {
        let printer = Printer { layout, ..Printer::plain() };
        printer.rows(&COLUMNS, nodes().iter().map(row).collect())
    }

    #[test]
    fn nodes_fit_the_terminal() {
        let tables = [Some(80), Some(120), Some(200)].map(|width| table(Layout::Within(width)));
        insta::assert_snapshot!(tables.join("\n\n"));
        insta::assert_snapshot!(table(Layout::Wide));
    }

    #[test]
    fn a_label_is_set_or_taken_away() {
        assert_eq!(label_change("disk=nvme-"), Ok(("disk".into(), Some("nvme-".into()))));
        assert_eq!(label_change("disk-"), Ok(("disk".into(), None)));
        for wrong in ["disk", "-", "=x", "disk=", "a b-"] {
            assert!(label_change(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_node_is_described_with_its_labels() {
        let mut node = nodes().remove(0);
        node.labels = [("disk".to_owned(), "nvme".to_owned()), ("gen".to_owned(), "4".to_owned())].into();
        node.declared_labels = [("gen".to_owned(), "4".to_owned())].into();
        insta::assert_snapshot!(page::text(&node));
    }

    #[test]
    fn a_reserved_node_names_the_reservation() {
        let mut node = nodes().remove(0);
        let coming = serde_json::json!({"id": uuid::Uuid::nil(), "name": "psu-swap", "maintenance": true, "active": false,
            "from": "2026-03-01T12:00:00Z", "until": "2026-03-01T16:00:00Z"});
        node.reservations = vec![serde_json::from_value(coming).expect("a reservation of a node")];
        let told = "for the maintenance psu-swap from 2026-03-01T12:00:00Z until 2026-03-01T16:00:00Z";
        assert_eq!(reason(&node), format!("reserved {told}"));
        assert!(page::text(&node).contains(&format!("  reserved     {told}")), "{}", page::text(&node));
        node.gpus[0].job_name = None;
        assert!(page::text(&node).contains(" free"), "{}", page::text(&node));
        node.reservations[0].active = true;
        node.reservations[0].reason = Some("a fan is loud".to_owned());
        assert_eq!(reason(&node), "reserved for the maintenance psu-swap until 2026-03-01T16:00:00Z: a fan is loud");
        assert!(page::text(&node).contains(" closed for the maintenance psu-swap"), "{}", page::text(&node));
        node.reservations[0].maintenance = false;
        assert!(page::text(&node).contains(" free for members of psu-swap"), "{}", page::text(&node));
    }

    #[test]
    fn a_deletion_says_what_named_the_node() {
        let alone = DeletedNode {
            id: uuid::Uuid::nil(),
            name: "node-7".into(),
            reservations: Vec::new(),
            reservations_cancelled: Vec::new(),
            policy_rows: Vec::new(),
        };
        insta::assert_snapshot!(deleted(&alone), @"node node-7 is gone");
        let named = DeletedNode {
            reservations: vec!["demo".into()],
            reservations_cancelled: vec!["burn-in".into(), "talk".into()],
            policy_rows: vec!["guests".into()],
            ..alone
        };
        insta::assert_snapshot!(deleted(&named), @"
        node node-7 is gone
        reservations that go on without it: demo
        reservations cancelled, since it was their last node: burn-in, talk
        rows of the policy that still name it (`headway policy set --rows FILE`): guests
        ");
    }
}
