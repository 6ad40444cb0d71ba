//! `headway version`: what this binary is, and what the scheduler that commands speak to is.

use std::time::Duration;

use headway_api::client::Client;
use headway_api::v1::Version;
use serde::Serialize;

use crate::VERSION;
use crate::failure::Failure;
use crate::output::Printer;

/// A scheduler that does not answer by then is left out.
const ANSWER: Duration = Duration::from_secs(2);

#[derive(Serialize)]
struct Versions {
    /// Of this binary, with the commit that it was built from.
    headway: &'static str,
    /// Absent where no scheduler is named, or it does not answer.
    scheduler: Option<Version>,
}

/// `client`: of the scheduler that commands speak to, where there is one.
pub async fn run(client: Option<Client>, print: &Printer) -> Result<(), Failure> {
    let scheduler = match client {
        Some(client) => tokio::time::timeout(ANSWER, client.version()).await.ok().and_then(Result::ok),
        None => None,
    };
    let versions = Versions { headway: VERSION, scheduler };
    if print.structured() {
        return print.value(&versions);
    }
    put!("{}", text(&versions))?;
    Ok(())
}

fn text(of: &Versions) -> String {
    let own = format!("headway {}\n", of.headway);
    match &of.scheduler {
        Some(scheduler) => format!("{own}scheduler {} ({})\n", scheduler.version, scheduler.build),
        None => own,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scheduler_that_does_not_answer_is_left_out() {
        let mut versions = Versions { headway: "0.1.0 (abc1234, 2026-11-22)", scheduler: None };
        assert_eq!(text(&versions), "headway 0.1.0 (abc1234, 2026-11-22)\n");
        let (version, build) = ("0.1.0".to_owned(), "def5678, 2026-11-23".to_owned());
        versions.scheduler = Some(Version { version, build, api: "v1".into() });
        assert!(text(&versions).ends_with("\nscheduler 0.1.0 (def5678, 2026-11-23)\n"));
    }
}
