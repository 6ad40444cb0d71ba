//! `headway cancel`: end a job for good, with a reason that stays in its history.

use clap::Args;
use headway_api::client::Client;
use headway_api::v1::CancelRequest;
use headway_types::Seconds;

use super::resolve_only_job;
use crate::failure::Failure;
use crate::output::Printer;

#[derive(Args, Clone, Debug)]
pub struct Cancel {
    /// Ids, unique ends or beginnings of one, or names.
    #[arg(required = true)]
    pub jobs: Vec<String>,
    /// Why, for the event log.
    #[arg(long)]
    pub reason: Option<String>,
    #[command(flatten)]
    pub grace: Grace,
}

/// How long what runs may take to stop.
#[derive(Args, Clone, Debug)]
pub struct Grace {
    /// From SIGTERM to SIGKILL: seconds, or "2m"; at most a day [default: the job's own, training.checkpoint.grace].
    #[arg(long, value_name = "SECONDS", value_parser = grace)]
    pub grace: Option<Seconds>,
}

pub async fn run(client: &Client, print: &Printer, cancel: Cancel) -> Result<(), Failure> {
    // All are found before the first is ended: what is not clear ends nothing.
    let mut ids = Vec::with_capacity(cancel.jobs.len());
    for text in &cancel.jobs {
        ids.push(resolve_only_job(client, text).await?);
    }
    let request = CancelRequest { reason: cancel.reason, grace_s: cancel.grace.grace.map(|grace| grace.0) };
    for id in ids {
        let job = client.cancel_as(&id, &request).await?;
        if print.structured() {
            print.value(&job)?;
        } else {
            say!("job {} is {}", job.name, job.state)?;
        }
    }
    Ok(())
}

/// A day at most, as the scheduler takes it; at once is none.
fn grace(text: &str) -> Result<Seconds, String> {
    const DAY: f64 = 86_400.0;
    let seconds = text.parse::<f64>().map(Seconds).or_else(|_| headway_api::spec::duration(text));
    seconds
        .ok()
        .filter(|grace| (0.0..=DAY).contains(&grace.0))
        .ok_or_else(|| "must be seconds (30) or a time (2m), a day at most".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_grace_is_of_seconds_or_a_time() {
        let read = |text| grace(text).map(|grace| grace.0);
        assert_eq!([read("30"), read("0"), read("1.5"), read("2m")], [Ok(30.0), Ok(0.0), Ok(1.5), Ok(120.0)]);
        for wrong in ["", "-1", "NaN", "inf", "25h", "soon"] {
            assert!(read(wrong).is_err_and(|why| why.contains("seconds (30)")), "{wrong}");
        }
    }
}
