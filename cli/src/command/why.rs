//! `headway why`: one sentence, then numbers, then what would change it.

use clap::Args;
use headway_api::client::Client;

use super::resolve_job;
use crate::failure::Failure;
use crate::output::Printer;

#[derive(Args, Clone, Debug)]
pub struct Why {
    /// Id, unique end or beginning of one, or name.
    pub job: String,
}

pub async fn run(client: &Client, print: &Printer, why: Why) -> Result<(), Failure> {
    let id = resolve_job(client, &why.job).await?;
    let explain = client.explain(&id).await?;
    if print.structured() {
        return print.value(&explain);
    }
    println!("{}", explain.headline);
    for reason in &explain.reasons {
        println!("  {} {}: {}", if reason.binding { "●" } else { "○" }, reason.code, reason.detail);
    }
    if let Some(runner_up) = &explain.runner_up {
        println!("  next best: {} GPUs, speed-up {:.2}", runner_up.gpus, runner_up.speed_up);
    }
    if let Some(marginal) = explain.marginal_speed_up {
        println!("  one step up would add {:.2} of speed-up", marginal);
    }
    Ok(())
}
