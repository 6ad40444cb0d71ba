//! What the processes of a cluster complained of in their logs, and which complaints a test brings upon them on purpose.

/// A warning or an error that a test's own kills and pauses cause: its level, the module that says it, and how its
/// message begins. Anything else that is said at these levels fails the test, and so does every panic.
#[derive(Clone, Copy, Debug)]
pub struct Expected {
    level: &'static str,
    module: &'static str,
    message: &'static str,
}

impl Expected {
    /// A statement takes as long as the process that made it is stopped.
    pub const SLOW_STATEMENT: Self = Self::warning("sqlx::query", "slow statement");
    /// So does the wait for a connection of the pool.
    pub const SLOW_CONNECTION: Self =
        Self::warning("sqlx::pool::acquire", "acquired connection, but time to acquire exceeded slow threshold");
    /// What was measured before it was stopped comes too late: another may lead by then.
    pub const LOST_MEASUREMENTS: Self =
        Self::warning("headway_scheduler::observer", "measurements lost: this server does not lead");
    /// All that a server says of having been stopped.
    pub const STOPPED: &[Self] = &[Self::SLOW_STATEMENT, Self::SLOW_CONNECTION, Self::LOST_MEASUREMENTS];

    /// All that servers say while their database, or whoever led, is away.
    pub const OUTAGE: &[Self] = &[
        Self::error("headway_scheduler::driver", "commit failed"),
        Self::warning("headway_scheduler::driver", ""),
        Self::warning("headway_scheduler::driver::standby", ""),
        Self::warning("headway_scheduler::leader", "Postgres does not answer"),
        Self::warning("headway_scheduler::observer", ""),
        Self::warning("headway_scheduler::archive", ""),
        Self::warning("headway_scheduler::sampler", ""),
        Self::warning("headway_scheduler::foretelling", ""),
        Self::warning("headway_scheduler::webhooks", ""),
        Self::warning("headway_scheduler::http::problem", ""),
        Self::error("headway_scheduler::http::problem", ""),
        Self::warning("sqlx::postgres::notice", ""),
        Self::warning("sqlx_core::pool::connection", ""),
        Self::error("sqlx_core::pool::inner", ""),
        Self::error("headway_scheduler::grpc::credentials", "credential lookup failed"),
        Self::warning("headway_scheduler::grpc::credentials", ""),
        Self::warning("headway_scheduler::audit", "refusals are not in the audit"),
        Self::warning("headway_agent::session", "no session for a while"),
        Self::SLOW_STATEMENT,
        Self::SLOW_CONNECTION,
    ];

    pub const fn warning(module: &'static str, message: &'static str) -> Self {
        Self { level: "WARN", module, message }
    }

    pub const fn error(module: &'static str, message: &'static str) -> Self {
        Self { level: "ERROR", module, message }
    }

    fn is(self, level: &str, said: &str) -> bool {
        // Spans may stand before the module; a message stands behind it, and its fields behind that.
        let said = format!(" {said}");
        level == self.level && said.contains(&format!(" {}: {}", self.module, self.message))
    }
}

/// The lines of a log that nobody expects.
pub fn unexpected<'a>(log: &'a str, expected: &[Expected]) -> Vec<&'a str> {
    let complains = |line: &&str| match level(line) {
        Some((level @ ("WARN" | "ERROR"), said)) => !expected.iter().any(|one| one.is(level, said)),
        Some(_) => false,
        // What is no line of the log is output that went past it: a panic, or a message before logging began.
        None => [" WARN ", " ERROR ", "panicked"].iter().any(|word| line.contains(word)),
    };
    log.lines().filter(complains).collect()
}

/// `2026-01-02T03:04:05.678901Z  WARN rest of the line`
fn level(line: &str) -> Option<(&str, &str)> {
    let (time, rest) = line.split_once(' ')?;
    let is_time = time.ends_with('Z') && time.as_bytes().get(10) == Some(&b'T');
    let (level, said) = rest.trim_start().split_once(' ')?;
    (is_time && ["ERROR", "WARN", "INFO", "DEBUG", "TRACE"].contains(&level)).then_some((level, said))
}

#[cfg(test)]
mod tests {
    use super::*;

    const EXPECTED: &[Expected] = &[Expected::warning("headway_scheduler::grpc::sessions", "agent refused")];
    const AT: &str = "2026-01-02T03:04:05.678901Z";

    #[test]
    fn what_a_test_brings_about_is_expected() {
        for said in [
            "WARN headway_scheduler::grpc::sessions: agent refused node_id=7",
            "WARN event{job_id=3}:round: headway_scheduler::grpc::sessions: agent refused node_id=7",
            "INFO headway_agent::session: no session, dialling goes on error=connecting: WARN ERROR",
        ] {
            let log = format!("{AT} {said:>5}\n");
            assert!(unexpected(&log, EXPECTED).is_empty(), "{log}");
        }
    }

    #[test]
    fn a_foreign_complaint_fails_the_test() {
        for said in [
            // Of the same module.
            "WARN headway_scheduler::grpc::sessions: agent does not read its commands, disconnecting it",
            // The same words from elsewhere, at another level, or as a field.
            "WARN headway_scheduler::grpc::gateway: agent refused node_id=7",
            "ERROR headway_scheduler::grpc::sessions: agent refused node_id=7",
            "WARN headway_scheduler::planning: round failed error=agent refused",
        ] {
            let log = format!("{AT}  INFO headway: all is well\n{AT} {said}\n");
            assert_eq!(unexpected(&log, EXPECTED), [format!("{AT} {said}")]);
        }
        let panic = "thread 'main' (7) panicked at headway_scheduler::grpc::sessions: agent refused";
        assert_eq!(unexpected(panic, EXPECTED), [panic]);
    }
}
