//! `headway admin …`: what operators do after something has gone badly wrong.

use clap::Subcommand;
use headway_api::client::Client;

use crate::failure::Failure;
use crate::output::Printer;

#[derive(Subcommand, Clone, Debug)]
pub enum Admin {
    /// After a backup was restored: have nodes follow this database though they have followed a newer term. What they run that it does
    /// not know is stopped.
    Readmit {
        /// Why, for the event log.
        #[arg(long)]
        reason: Option<String>,
    },
}

pub async fn run(client: &Client, print: &Printer, admin: Admin) -> Result<(), Failure> {
    let Admin::Readmit { reason } = admin;
    let done = client.readmit(reason.as_deref()).await?;
    if print.structured() {
        return print.value(&done);
    }
    for node in &done.nodes {
        say!("{} followed term t{}", node.name, node.term)?;
    }
    if client.is_dry_run() {
        say!("They would be readmitted: the next term would be t{} or above", done.term)?;
    } else {
        say!("They are readmitted: the next term is t{} or above; they register within seconds", done.term)?;
    }
    Ok(())
}
