//! `headway job notify-test`: whether a job's webhooks answer.

use headway_api::client::Client;
use headway_api::v1::TestedWebhook;

use super::resolve_only_job;
use crate::failure::{Failure, Kind};
use crate::output::{Printer, optional};
use crate::table::Column;

const COLUMNS: [Column; 5] = [
    Column::new("WEBHOOK").cut(20),
    Column::new("SIGNED WITH").rank(2).cut(11),
    Column::new("OUTCOME"),
    Column::new("TOOK").rank(1),
    Column::new("WHY").wrap(24),
];

/// Fails where one of them did not take it.
pub async fn test(client: &Client, print: &Printer, job: &str) -> Result<(), Failure> {
    let tested = client.test_delivery(&resolve_only_job(client, job).await?).await?.items;
    print.list(&tested, &COLUMNS, row, |one| one.webhook.clone())?;
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_test_fits_the_terminal_and_says_all_of_why() {
        let webhook = "https://hooks.example/services/T0001/B0002/training-of-language-models";
        let why = "no answer within 10 s: error sending the request: operation timed out";
        for width in [60, 80, 120] {
            let row = [webhook, "HOOK_SECRET", "failed", "10.00 s", why].map(str::to_owned).to_vec();
            assert!(crate::table::widest(&COLUMNS, row, width) <= width, "{width}");
        }
    }
}
