//! `headway job notify-test`: whether a job's webhooks answer.

use headway_api::client::Client;
use headway_api::v1::TestedWebhook;

use super::resolve_only_job;
use crate::failure::{Failure, Kind};
use crate::output::{Printer, optional};

const HEADERS: &[&str] = &["WEBHOOK", "SIGNED WITH", "OUTCOME", "TOOK", "WHY"];

/// Fails where one of them did not take it.
pub async fn test(client: &Client, print: &Printer, job: &str) -> Result<(), Failure> {
    let tested = client.test_delivery(&resolve_only_job(client, job).await?).await?.items;
    print.list(&tested, HEADERS, row, |one| one.webhook.clone())?;
    match tested.iter().filter(|one| one.outcome == "failed").count() {
        0 => Ok(()),
        failed => Err(Failure::new(Kind::Failed, format!("{failed} of {} webhooks did not take it", tested.len()))),
    }
}

fn row(of: &TestedWebhook) -> Vec<String> {
    vec![
        of.webhook.clone(),
        of.signed_with.clone().unwrap_or_else(|| "-".into()),
        of.outcome.clone(),
        optional(of.took_seconds, |seconds| format!("{seconds:.2} s")),
        of.error.clone().unwrap_or_else(|| "-".into()),
    ]
}
