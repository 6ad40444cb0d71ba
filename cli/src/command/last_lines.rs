//! What the rank that failed wrote last: part of why a job failed, on `headway why` and `headway describe` alike.

use headway_api::client::{Client, LogRequest};
use headway_api::v1::LastFailure;

/// Lines of a failed attempt that are shown.
const LAST_LINES: u32 = 10;

pub struct LastLines {
    pub rank: u32,
    /// Or why they cannot be had.
    pub lines: Result<String, String>,
}

impl LastLines {
    /// Of the attempt that failed, and of the rank that did, where the failure names one.
    pub async fn of(client: &Client, job: &str, failure: &LastFailure) -> Self {
        let wanted = wanted(failure);
        let page = client.logs(job, &wanted).await;
        Self { rank: wanted.rank, lines: page.map(|page| page.text).map_err(|error| error.to_string()) }
    }
}

fn wanted(failure: &LastFailure) -> LogRequest {
    LogRequest {
        rank: rank(&failure.message).unwrap_or(0),
        generation: Some(failure.generation),
        tail: Some(LAST_LINES),
        ..LogRequest::default()
    }
}

/// "… rank 3 …" → 3.
fn rank(message: &str) -> Option<u32> {
    let (_, after) = message.split_once("rank ")?;
    after.split(|sign: char| !sign.is_ascii_digit()).next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rank_that_failed_is_read_in_the_attempt_that_did() {
        let failure = |message: &str| LastFailure {
            at: chrono::DateTime::UNIX_EPOCH,
            generation: 7,
            message: message.into(),
            node: None,
            exit_code: Some(1),
        };
        let of_a_rank = wanted(&failure("on node n: rank 13: killed (exit code 137)"));
        assert_eq!((of_a_rank.rank, of_a_rank.generation, of_a_rank.tail), (13, Some(7), Some(LAST_LINES)));
        assert_eq!(wanted(&failure("not started on node n")).rank, 0);
    }
}
