//! `headway describe`: one job whole, as YAML for people and JSON for programs.

use clap::Args;
use headway_api::client::Client;

use super::resolve_job;
use crate::failure::Failure;
use crate::output::Printer;

#[derive(Args, Clone, Debug)]
pub struct Describe {
    /// Id, unique end or beginning of one, or name.
    pub job: String,
}

pub async fn run(client: &Client, print: &Printer, describe: Describe) -> Result<(), Failure> {
    let id = resolve_job(client, &describe.job).await?;
    print.value(&client.job(&id).await?)
}
