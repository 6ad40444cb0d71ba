//! What was seen means this: pure, so that each bound has a test.

use chrono::{DateTime, TimeDelta, Utc};
use headway_api::v1::{AttentionItem, AvailabilityKind, LoginProvider, Node};
use headway_scheduler::store::Checkup;

use super::{Finding, Level};

/// Clocks of two machines may differ by so much.
const SKEW: TimeDelta = TimeDelta::seconds(5);
/// An open transaction keeps Postgres from cleaning up.
const OLD_TRANSACTION: f64 = 300.0;
/// Of a disk: below the first a warning, below the second a failure, in bytes and as a share.
const LITTLE: (u64, f64) = (10 << 30, 0.1);
const NONE_LEFT: (u64, f64) = (1 << 30, 0.02);
/// Files a server should be able to open.
const FILES: u64 = 65_536;
/// Nodes that are named.
const NAMED: usize = 5;

pub fn readiness(said: &str) -> Finding {
    match said.trim().strip_prefix("ready, but ") {
        None => Finding::ok("ready", "the server leads and answers"),
        Some(but) => Finding::warn("ready", but.to_owned(), "`headway events` and docs/operations.md say more"),
    }
}

pub fn versions(own: &str, own_build: &str, server: &str, server_build: &str) -> Finding {
    match (own == server, own_build == server_build) {
        (true, true) => Finding::ok("version", format!("{own} ({own_build}) here and there")),
        _ => Finding::warn(
            "version",
            format!("this is {own} ({own_build}), the server {server} ({server_build})"),
            "use the release that the server is of",
        ),
    }
}

/// Nothing of a server without one.
pub fn provider(there: &LoginProvider) -> Option<Finding> {
    let issuer = there.issuer.as_deref().filter(|_| there.enabled)?;
    Some(match there.reachable {
        Some(true) => Finding::ok("identity provider", format!("{issuer} answers the server")),
        _ => Finding::warn(
            "identity provider",
            format!("{issuer} does not answer the server: nobody can log in through it, and all else goes on"),
            "look whether it runs and whether the server can reach it: headway admin config validate --oidc FILE",
        ),
    })
}

/// `before` and `after`: this machine's clock around the request that `there` was asked by.
pub fn skew(check: &'static str, before: DateTime<Utc>, there: DateTime<Utc>, after: DateTime<Utc>) -> Finding {
    let off = if there < before { before - there } else { (there - after).max(TimeDelta::zero()) };
    if off <= SKEW {
        return Finding::ok(check, "agrees with this machine's to a few seconds");
    }
    let found = format!("differs from this machine's by {} s at least", off.num_seconds());
    Finding::warn(check, found, "set both clocks by NTP; an emulated cluster with --speed has a clock of its own")
}

pub fn nodes(nodes: &[Node]) -> Vec<Finding> {
    if nodes.is_empty() {
        let advice =
            "have each node join (`headway node token create`, on the node `headway node join`) and start its agent";
        return vec![Finding::warn("nodes", "no node has registered", advice)];
    }
    let few = |which: &dyn Fn(&&Node) -> bool| {
        let names: Vec<&str> = nodes.iter().filter(which).map(|node| node.name.as_str()).collect();
        let more = if names.len() > NAMED { format!(" and {} more", names.len() - NAMED) } else { String::new() };
        (names.len(), format!("{}{more}", names[..names.len().min(NAMED)].join(", ")))
    };
    let mut findings = Vec::new();
    let (away, names) = few(&|node| node.availability != AvailabilityKind::Available);
    findings.push(match away {
        0 => Finding::ok("nodes", format!("all {} are available", nodes.len())),
        away if away == nodes.len() => Finding::fail(
            "nodes",
            format!("none of {} is available: {names}", nodes.len()),
            "look whether agents reach the server's port for them, and at their logs",
        ),
        away => Finding::warn(
            "nodes",
            format!("{away} of {} are not available: {names}", nodes.len()),
            "their agents' logs; `headway node lost NODE` where one is dead for good",
        ),
    });
    let (ailing, names) = few(&|node| !node.conditions.is_empty());
    if ailing > 0 {
        let first = nodes.iter().flat_map(|node| &node.conditions).next().cloned().unwrap_or_default();
        let found = format!("{ailing} take nothing new: {names} ({first})");
        findings.push(Finding::warn("node conditions", found, "`headway node health NODE` says what ails each"));
    }
    let (remarked, names) = few(&|node| !node.remarks.is_empty());
    if remarked > 0 {
        let first = nodes.iter().flat_map(|node| &node.remarks).next().cloned().unwrap_or_default();
        let found = format!("{remarked} have remarks: {names} ({first})");
        findings.push(Finding::warn("node remarks", found, "`headway node health NODE` has them all"));
    }
    let broken: usize = nodes.iter().map(|node| node.gpus.iter().filter(|gpu| !gpu.healthy).count()).sum();
    let all: usize = nodes.iter().map(|node| node.gpus.len()).sum();
    findings.push(match broken {
        0 => Finding::ok("GPUs", format!("all {all} are healthy")),
        some => {
            Finding::warn("GPUs", format!("{some} of {all} are broken"), "`headway node gpus NODE` names the faults")
        }
    });
    findings
}

/// What the server itself wants looked at; the rest is only counted.
pub fn attention(items: &[AttentionItem]) -> Vec<Finding> {
    let pressing = items.iter().filter(|item| item.severity != "notice");
    let findings: Vec<Finding> = pressing
        .map(|item| {
            let level = if item.severity == "critical" { Level::Fail } else { Level::Warn };
            let advice = Some(item.next_step.clone());
            Finding { check: "attention", level, found: item.headline.clone(), advice }
        })
        .collect();
    if findings.is_empty() { vec![Finding::ok("attention", "nothing needs somebody now")] } else { findings }
}

/// Counters that must not have risen since the server started.
pub fn counters(metrics: &str) -> Finding {
    const MUST_BE_ZERO: &[(&str, &str)] = &[
        ("headway_engine_faults_total", "faults of the engine: report them with the log"),
        ("headway_rounds_failed_total", "rounds that broke down: report them with the log"),
        ("headway_audit_refusals_lost_total", "refusals that the audit lost: the database is too slow"),
    ];
    let value = |line: &str| line.rsplit_once(' ').and_then(|(_, value)| value.parse::<f64>().ok()).unwrap_or(0.0);
    let sum = |name: &str| {
        let of = |line: &&str| line.strip_prefix(name).is_some_and(|rest| rest.starts_with([' ', '{']));
        metrics.lines().filter(of).map(value).sum::<f64>()
    };
    let risen: Vec<String> = MUST_BE_ZERO
        .iter()
        .map(|(name, what)| (sum(name), what))
        .filter(|(sum, _)| *sum > 0.0)
        .map(|(sum, what)| format!("{sum:.0} {what}"))
        .collect();
    match risen.is_empty() {
        true => Finding::ok("counters", "nothing has been lost or broken down since the server started"),
        false => Finding::warn("counters", risen.join("; "), "docs/operations.md, \"What the metrics say\""),
    }
}

pub fn database(of: &Checkup) -> Vec<Finding> {
    let mut findings = vec![match of.not_durable.as_slice() {
        [] => Finding::ok(
            "database",
            format!("Postgres {}, {} GB, keeps what it confirms", of.postgres, gigabytes(of.size.0)),
        ),
        off => Finding::fail(
            "database",
            format!("{} is off", off.join(" and ")),
            "turn it on: what was confirmed may be lost",
        ),
    }];
    findings.push(match (of.unknown.as_slice(), of.pending.len()) {
        ([], 0) => Finding::ok("migrations", "the schema is this release's"),
        ([], some) => {
            let advice = "the server runs them at its start; ahead of it: `headway admin migrate`";
            Finding::warn("migrations", format!("{some} are to be run"), advice)
        }
        (newer, _) => {
            let advice = "use the release that made it, or a later one";
            Finding::fail("migrations", format!("the schema is of a newer release: {newer:?}"), advice)
        }
    });
    findings.push(match of.led {
        true => Finding::ok("leader", "a server holds the lead"),
        false => Finding::fail("leader", "no server holds the lead of this database", "start `headway server`"),
    });
    let share = of.connections as f64 / of.max_connections.max(1) as f64;
    let found = format!("{} of {} are open", of.connections, of.max_connections);
    findings.push(match share {
        share if share < 0.8 => Finding::ok("connections", found),
        _ => Finding::warn("connections", found, "raise max_connections, or find who holds them (pg_stat_activity)"),
    });
    if let Some(oldest) = of.oldest_transaction.filter(|oldest| oldest.0 > OLD_TRANSACTION) {
        let advice = "end it (pg_stat_activity): Postgres cannot clean up behind it";
        findings.push(Finding::warn("transactions", format!("one has been open for {}", oldest.words()), advice));
    }
    findings
}

/// Room on the disk of a path.
pub fn disk(check: &'static str, path: &str, free: u64, all: u64) -> Finding {
    let below = |bound: (u64, f64)| free < bound.0 && (free as f64) < bound.1 * all as f64;
    let found = format!("{} GB of {} GB are free at {path}", gigabytes(free), gigabytes(all));
    if below(NONE_LEFT) {
        Finding::fail(check, found, "make room now: Postgres stops when the disk is full")
    } else if below(LITTLE) {
        Finding::warn(check, found, "make room; docs/operations.md, \"Disk\", says what may go")
    } else {
        Finding::ok(check, found)
    }
}

pub fn open_files(limit: u64) -> Finding {
    let found = format!("{limit} may be open in one process here");
    match limit {
        limit if limit >= FILES => Finding::ok("open files", found),
        _ => Finding::warn(
            "open files",
            found,
            format!("LimitNOFILE={FILES} in the server's unit: each connection is one"),
        ),
    }
}

fn gigabytes(bytes: u64) -> String {
    format!("{:.1}", bytes as f64 / 1e9)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use headway_types::{Bytes, Seconds};

    use super::*;

    fn checkup() -> Checkup {
        Checkup {
            postgres: "15.8".into(),
            not_durable: vec![],
            connections: 17,
            max_connections: 100,
            size: Bytes(1 << 30),
            oldest_transaction: Some(Seconds(0.1)),
            led: true,
            pending: vec![],
            unknown: vec![],
            at: DateTime::from_timestamp(1_790_000_000, 0).unwrap(),
        }
    }

    fn worst(findings: &[Finding]) -> Level {
        findings.iter().map(|one| one.level).max().unwrap()
    }

    #[test]
    fn a_database_that_is_well_has_nothing_against_it_and_each_fault_is_told_with_what_to_do() {
        assert_eq!(worst(&database(&checkup())), Level::Ok);
        for (broken, level) in [
            (Checkup { not_durable: vec!["fsync"], ..checkup() }, Level::Fail),
            (Checkup { led: false, ..checkup() }, Level::Fail),
            (Checkup { unknown: vec![9999], ..checkup() }, Level::Fail),
            (Checkup { pending: vec![(49, "mark restored".into())], ..checkup() }, Level::Warn),
            (Checkup { connections: 90, ..checkup() }, Level::Warn),
            (Checkup { oldest_transaction: Some(Seconds(3_600.0)), ..checkup() }, Level::Warn),
        ] {
            let findings = database(&broken);
            assert_eq!(worst(&findings), level, "{findings:?}");
            assert!(findings.iter().all(|one| (one.level == Level::Ok) == one.advice.is_none()), "{findings:?}");
        }
    }

    #[test]
    fn a_large_disk_with_room_is_no_matter_however_small_the_share() {
        assert_eq!(disk("disk", "/", 500 << 30, 20 << 40).level, Level::Ok);
        assert_eq!(disk("disk", "/", 5 << 30, 100 << 30).level, Level::Warn);
        assert_eq!(disk("disk", "/", 1 << 20, 100 << 30).level, Level::Fail);
    }

    #[test]
    fn a_provider_that_is_away_is_told_and_none_is_no_matter() {
        let there = |reachable| LoginProvider {
            enabled: true,
            issuer: Some("https://sso.example".into()),
            reachable,
            ..LoginProvider::default()
        };
        assert_eq!(provider(&LoginProvider::default()), None);
        assert_eq!(provider(&there(Some(true))).unwrap().level, Level::Ok);
        assert!([None, Some(false)].into_iter().all(|away| provider(&there(away)).unwrap().level == Level::Warn));
    }

    #[test]
    fn clocks_are_held_together_over_the_time_that_the_answer_took() {
        let at = |seconds: i64| DateTime::from_timestamp(1_790_000_000 + seconds, 0).unwrap();
        assert_eq!(skew("clock", at(0), at(20), at(30)).level, Level::Ok);
        assert_eq!(skew("clock", at(0), at(-4), at(1)).level, Level::Ok);
        assert_eq!(skew("clock", at(0), at(-60), at(1)).level, Level::Warn);
        assert!(skew("clock", at(0), at(90), at(1)).found.contains("89 s"));
    }

    #[test]
    fn what_the_server_says_and_counts_is_taken_up() {
        assert_eq!(readiness("ready\n").level, Level::Ok);
        assert_eq!(
            readiness("ready, but 2 nodes follow the newer term t9\n").found,
            "2 nodes follow the newer term t9"
        );
        let metrics = "# HELP headway_engine_faults_total x\nheadway_engine_faults_total{kind=\"illegal\"} 2\nheadway_rounds_failed_total 0\n";
        assert!(counters(metrics).found.contains("2 faults of the engine"));
        assert_eq!(counters("headway_engine_faults_total 0\n").level, Level::Ok);
        assert_eq!(nodes(&[])[0].level, Level::Warn);
    }
}
