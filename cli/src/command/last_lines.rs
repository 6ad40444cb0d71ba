//! What the rank that failed wrote last: part of why a job failed, on `headway why` and `headway describe` alike.

use headway_api::client::{Client, ClientError, LogRequest};
use headway_api::log_text;
use headway_api::v1::LastFailure;

/// Lines of a failed attempt that are shown.
const LAST_LINES: u32 = 10;
/// Characters of each that are shown.
const LONGEST_LINE: usize = 240;
/// A position behind every output, where a page is empty and says how long the output is.
const BEYOND: u64 = i64::MAX as u64;
/// The last bytes that are read where ten lines are more than one page.
const LAST_BYTES: u64 = 64 * 1024;

pub struct LastLines {
    pub rank: u32,
    /// Or why they cannot be had.
    pub lines: Result<String, String>,
}

impl LastLines {
    /// Of the attempt that failed, and of the rank that did, where the failure names one.
    pub async fn of(client: &Client, job: &str, failure: &LastFailure) -> Self {
        let wanted = wanted(failure);
        let end = end_of_output(client, job, wanted).await;
        Self { rank: wanted.rank, lines: end.map(|end| shown(&end)).map_err(|error| error.to_string()) }
    }
}

/// Reads the last lines; of lines that are too long for a page the last bytes.
async fn end_of_output(client: &Client, job: &str, wanted: LogRequest) -> Result<Vec<u8>, ClientError> {
    let page = client.logs(job, &wanted).await?;
    if page.at_end {
        return Ok(page.bytes);
    }
    let at = |offset| LogRequest { tail: None, offset: Some(offset), ..wanted };
    let length = client.logs(job, &at(BEYOND)).await?.next_offset;
    let page = client.logs(job, &at(length.saturating_sub(LAST_BYTES))).await?;
    Ok(page.bytes)
}

/// The lines as a terminal shows them: of a progress bar its last state.
fn shown(output: &[u8]) -> String {
    log_text::last_lines(&String::from_utf8_lossy(output), LAST_LINES as usize, LONGEST_LINE).join("\n")
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
    fn a_progress_bar_is_shown_in_its_last_state_and_no_line_is_wider_than_the_bound() {
        let bar: String = (0..400).map(|step| format!("\rTrain: {step}/400 {}", "#".repeat(40))).collect();
        let output = format!("{bar}\n{}\nRuntimeError: é", "y".repeat(24_000));
        let shown = shown(output.as_bytes());
        let lines: Vec<&str> = shown.lines().collect();
        assert_eq!(lines[0], format!("Train: 399/400 {}", "#".repeat(40)));
        assert_eq!(lines.len(), 3);
        assert!(lines.iter().all(|line| line.chars().count() <= LONGEST_LINE), "{shown}");
    }

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
