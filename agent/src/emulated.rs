//! The emulated worker: a process that speaks the worker protocol and keeps the time of a device of stated speed
//! instead of training, with a known gradient noise scale. One process per node; the node of rank 0 does the talking.
//!
//! It is a worker like any other: it knows nothing of the agent but the launch contract in its environment. Its own
//! knobs, all `HEADWAY_EMULATED_…`: `SEQ_LEN`, `PARAMETERS`, `FLOPS_PER_TOKEN` (default 6 × parameters), `SAMPLES`
//! (done at, default never), `SPEED` (device seconds per wall second; reports stay in device seconds), and `NOISE`
//! (`phi0,phimax,s0` in sequences: φ(s) = φ0 + φmax · s / (s + s0)).

mod checkpoint;
mod link;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use headway_emulation::noise::loss;
use headway_emulation::{Random, Seed, StatedTruth};
use headway_types::{Configuration, Execution, Generation, JobId, Layout, Sequences, Shares};
use serde_json::json;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::time::Instant;

use link::{Link, Order};

/// Reports cover at least this much wall time, so that fast steps do not flood the agent.
const REPORT_EVERY: Duration = Duration::from_millis(200);
/// How often the other nodes look whether the first is done.
const DONE_POLL: Duration = Duration::from_millis(50);
/// Written into the generation's directory when rank 0 is done in good order.
const DONE: &str = "done";
/// 128 + SIGTERM.
const TERMINATED: u8 = 143;

/// `headway emulated-worker`: runs until its samples are done or it is told to stop.
#[must_use]
pub fn emulated_worker_main() -> ExitCode {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let ended = runtime.map_err(|error| error.to_string()).and_then(|runtime| runtime.block_on(work()));
    match ended {
        Ok(End::AsOrdered) => ExitCode::SUCCESS,
        Ok(End::Signalled) => ExitCode::from(TERMINATED),
        Err(message) => {
            eprintln!("emulated worker: {message}");
            ExitCode::FAILURE
        }
    }
}

/// How training ended without an error.
enum End {
    /// Complete, or stopped by an order over the socket.
    AsOrdered,
    /// Stopped by SIGTERM alone: whoever reads the exit code must not take it for success.
    Signalled,
}

async fn work() -> Result<End, String> {
    let (settings, truth) = Settings::read(&|name| std::env::var(name).ok())?;
    let terminate = signal(SignalKind::terminate()).map_err(|error| error.to_string())?;
    if settings.node_rank > 0 {
        return wait_for_rank_zero(&settings, terminate).await;
    }
    let end = train(&settings, truth, terminate).await?;
    // The others take it for their own end; after a failure or a signal they wait to be stopped, as in a collective.
    if let End::AsOrdered = end {
        let done = settings.directory().join(DONE);
        std::fs::write(&done, "").map_err(|error| format!("writing {}: {error}", done.display()))?;
    }
    Ok(end)
}

async fn wait_for_rank_zero(settings: &Settings, mut terminate: Signal) -> Result<End, String> {
    let done = settings.directory().join(DONE);
    while !done.exists() {
        tokio::select! {
            _ = terminate.recv() => return Ok(End::Signalled),
            () = tokio::time::sleep(DONE_POLL) => {}
        }
    }
    Ok(End::AsOrdered)
}

async fn train(settings: &Settings, truth: StatedTruth, mut terminate: Signal) -> Result<End, String> {
    let mut run = Run::begin(settings, truth)?;
    let mut link = Link::open(settings);
    let mut configuration = settings.configuration;
    let mut revision = 0;
    let mut batch = Batch::default();
    let mut saved_at = Instant::now();
    let mut phases_sent = false;
    println!("training from step {} at {configuration}", run.step);
    loop {
        let duration = run.truth.step_time(&configuration);
        let step_ends = Instant::now() + Duration::from_secs_f64(duration / settings.speed);
        let mut save = false;
        let mut stop = None;
        let mut ordered = false;
        let mut next = configuration;
        loop {
            tokio::select! {
                () = tokio::time::sleep_until(step_ends) => break,
                _ = terminate.recv() => stop = Some(true),
                order = link.order() => match order {
                    Order::Configure { revision: newer, configuration: wanted } if newer > revision => {
                        revision = newer;
                        if wanted.layout == configuration.layout {
                            next = wanted;
                        }
                    }
                    Order::Checkpoint => save = true,
                    Order::Stop { checkpoint } => {
                        stop = Some(checkpoint);
                        ordered = true;
                    }
                    Order::Configure { .. } | Order::Welcome | Order::Refused | Order::Unknown => {}
                },
            }
        }
        run.step += 1;
        run.samples_seen += configuration.global_batch;
        batch.add(&run, &configuration, duration);
        if !phases_sent {
            phases_sent = true;
            link.say(json!({"type": "phases", "phases": {"first_step": duration}}));
        }
        let done = settings.samples.is_some_and(|samples| run.samples_seen >= samples);
        if done || stop.is_some() || next != configuration || batch.since.elapsed() >= REPORT_EVERY {
            link.say(batch.take(&mut run, &configuration));
        }
        configuration = next;
        if done || save || stop == Some(true) || saved_at.elapsed() >= settings.checkpoint_every {
            link.say(checkpoint::write(settings, run.step, run.samples_seen)?);
            saved_at = Instant::now();
        }
        if done {
            println!("done after step {} with {} samples", run.step, run.samples_seen);
            link.close().await;
            return Ok(End::AsOrdered);
        }
        if stop.is_some() {
            println!("stopped after step {}", run.step);
            link.say(json!({"type": "stopped", "step": run.step, "samples_seen": run.samples_seen}));
            link.close().await;
            return Ok(if ordered { End::AsOrdered } else { End::Signalled });
        }
    }
}

/// Where training stands.
struct Run {
    step: u64,
    samples_seen: Sequences,
    truth: StatedTruth,
}

impl Run {
    fn begin(settings: &Settings, truth: StatedTruth) -> Result<Self, String> {
        let directory = settings.directory();
        std::fs::create_dir_all(&directory).map_err(|error| format!("making {}: {error}", directory.display()))?;
        let (step, samples_seen) = match &settings.resume {
            None => (0, Sequences(0)),
            Some((path, expected)) => checkpoint::read(path, *expected)?,
        };
        Ok(Self { step, samples_seen, truth })
    }
}

/// Steps not yet reported.
struct Batch {
    since: Instant,
    steps: u32,
    sequences: u64,
    duration: f64,
    loss: f64,
}

impl Default for Batch {
    fn default() -> Self {
        Self { since: Instant::now(), steps: 0, sequences: 0, duration: 0.0, loss: 0.0 }
    }
}

impl Batch {
    fn add(&mut self, run: &Run, configuration: &Configuration, duration: f64) {
        self.steps += 1;
        self.sequences += configuration.global_batch.0;
        self.duration += duration;
        self.loss += loss(run.samples_seen);
    }

    /// The report, and an empty batch for the next.
    fn take(&mut self, run: &mut Run, configuration: &Configuration) -> serde_json::Value {
        let batch = std::mem::take(self);
        let steps = f64::from(batch.steps);
        let mut report = json!({
            "type": "step",
            "step": run.step,
            "steps": batch.steps,
            "samples_seen": run.samples_seen,
            "tokens": batch.sequences as f64 * run.truth.seq_len,
            "duration_s": batch.duration,
            "configuration": configuration,
            "loss": batch.loss / steps,
        });
        if let Some(noise) = run.truth.measure(configuration, run.samples_seen, batch.steps) {
            report["noise"] = json!(noise);
        }
        report
    }
}

/// The launch contract and the emulation's own knobs.
pub(crate) struct Settings {
    job: JobId,
    generation: Generation,
    node_rank: u32,
    socket: Option<(PathBuf, String)>,
    configuration: Configuration,
    checkpoint_dir: PathBuf,
    checkpoint_every: Duration,
    resume: Option<(PathBuf, Sequences)>,
    /// Wall seconds pass this many times faster than the device's own.
    speed: f64,
    /// Samples after which the job is done.
    samples: Option<Sequences>,
}

impl Settings {
    fn read(variable: &dyn Fn(&str) -> Option<String>) -> Result<(Self, StatedTruth), String> {
        fn number<T: std::str::FromStr>(
            variable: &dyn Fn(&str) -> Option<String>,
            name: &str,
        ) -> Result<Option<T>, String> {
            let parse = |text: String| text.parse().map_err(|_| format!("{name} is not a number: {text}"));
            variable(name).map(parse).transpose()
        }
        let text = |name: &str| variable(name).ok_or_else(|| format!("{name} is not set"));
        let count = |name: &str, default: u32| Ok::<u32, String>(number(variable, name)?.unwrap_or(default));
        let real = |name: &str, default: f64| Ok::<f64, String>(number(variable, name)?.unwrap_or(default));

        let job: JobId = text("HEADWAY_JOB_ID")?.parse().map_err(|_| "HEADWAY_JOB_ID is no id".to_owned())?;
        let generation = Generation(number(variable, "HEADWAY_GENERATION")?.unwrap_or(0));
        let dp = count("HEADWAY_DP", count("WORLD_SIZE", 1)?)?;
        let shares = variable("HEADWAY_SHARES").map_or(Ok(Shares::EVEN), |list| list.parse());
        let shares = shares.map_err(|error| format!("HEADWAY_SHARES: {error}"))?;
        let execution = Execution { shares, ..Execution::PLAIN };
        let layout = Layout { dp, tp: count("HEADWAY_TP", 1)?, pp: count("HEADWAY_PP", 1)?, execution };
        let micro_batch = Sequences(number(variable, "HEADWAY_MICRO_BATCH")?.unwrap_or(1));
        let global_batch = number(variable, "HEADWAY_GLOBAL_BATCH")?.unwrap_or(layout.micro_batches() * micro_batch.0);
        let resumed = Sequences(number(variable, "HEADWAY_SAMPLES_SEEN")?.unwrap_or(0));
        let parameters = real("HEADWAY_EMULATED_PARAMETERS", 1e6)?;
        let noise = variable("HEADWAY_EMULATED_NOISE").unwrap_or_else(|| "8,64,20000".to_owned());
        let truth = StatedTruth {
            seq_len: real("HEADWAY_EMULATED_SEQ_LEN", 64.0)?,
            flops_per_token: real("HEADWAY_EMULATED_FLOPS_PER_TOKEN", 6.0 * parameters)?,
            parameters,
            device_flops: real("HEADWAY_DEVICE_FLOPS", 1e9)?,
            link_bytes_per_second: real("HEADWAY_LINK_BYTES_PER_SECOND", 1e9)?,
            noise: noise.parse().map_err(|error| format!("HEADWAY_EMULATED_NOISE: {error}"))?,
            random: Random::new(Seed(job.0.as_u128() as u64 ^ generation.0)),
        };
        let settings = Self {
            job,
            generation,
            node_rank: count("NODE_RANK", 0)?,
            socket: variable("HEADWAY_SOCKET").map(PathBuf::from).zip(variable("HEADWAY_SECRET")),
            configuration: Configuration { layout, micro_batch, global_batch: Sequences(global_batch) },
            checkpoint_dir: text("HEADWAY_CHECKPOINT_DIR")?.into(),
            checkpoint_every: Duration::from_secs_f64(real("HEADWAY_CHECKPOINT_EVERY", 900.0)?.clamp(0.1, 1e6)),
            resume: variable("HEADWAY_RESUME_PATH").map(|path| (path.into(), resumed)),
            speed: real("HEADWAY_EMULATED_SPEED", 1.0)?.max(1e-3),
            samples: number(variable, "HEADWAY_EMULATED_SAMPLES")?.map(Sequences),
        };
        Ok((settings, truth))
    }

    /// The only directory this generation writes to.
    fn directory(&self) -> PathBuf {
        Path::new(&self.checkpoint_dir).join(self.generation.to_string())
    }
}

#[cfg(test)]
pub(crate) mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    /// Settings as an agent would pass them, checkpoints below `directory`.
    pub(crate) fn settings(directory: &Path) -> Settings {
        let directory = directory.display().to_string();
        let variable = |name: &str| match name {
            "HEADWAY_JOB_ID" => Some("00000000-0000-0000-0000-000000000001".to_owned()),
            "HEADWAY_GENERATION" => Some("2".to_owned()),
            "HEADWAY_CHECKPOINT_DIR" => Some(directory.clone()),
            "HEADWAY_DP" => Some("4".to_owned()),
            "HEADWAY_GLOBAL_BATCH" => Some("16".to_owned()),
            _ => None,
        };
        Settings::read(&variable).unwrap().0
    }

    #[test]
    fn the_launch_contract_is_read() {
        let settings = settings(Path::new("/c"));
        assert_eq!(settings.directory(), Path::new("/c/g2"));
        assert_eq!(settings.configuration.to_string(), "dp4 tp1 pp1 mb1 gb16");
        assert!(Settings::read(&|_| None).is_err());
    }

    /// Trains in this process, on a fast device, as the agent's order says.
    pub(crate) async fn train_until_stopped(
        job: JobId,
        socket: String,
        secret: String,
        checkpoints: String,
    ) -> Result<(), String> {
        let variable = |name: &str| match name {
            "HEADWAY_JOB_ID" => Some(job.to_string()),
            "HEADWAY_GENERATION" => Some("1".to_owned()),
            "HEADWAY_CHECKPOINT_DIR" => Some(checkpoints.clone()),
            "HEADWAY_SOCKET" => Some(socket.clone()),
            "HEADWAY_SECRET" => Some(secret.clone()),
            "HEADWAY_DP" => Some("2".to_owned()),
            "HEADWAY_GLOBAL_BATCH" => Some("8".to_owned()),
            "HEADWAY_EMULATED_SPEED" => Some("100".to_owned()),
            _ => None,
        };
        let (settings, truth) = Settings::read(&variable)?;
        train(&settings, truth, signal(SignalKind::terminate()).unwrap()).await.map(|_| ())
    }
}
