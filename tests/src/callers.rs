//! Clients that submit, cancel, hold, release and read jobs of their own, and take down what they did and what they were told.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use headway_api::client::{Client, ClientError};
use headway_api::v1::{Job, JobStateKind};
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};
use tokio::task::JoinHandle;

use crate::history::{Call, Deed, History, Moment, Outcome, Recorder, Seen, Stored, read_runs, worker_script};
use crate::wait::{soon, until};

/// Live jobs that a client keeps at most.
const LIVE: usize = 5;
/// How long the answer to what is not repeated is waited for.
const PATIENCE: Duration = Duration::from_secs(8);

/// How they behave.
#[derive(Clone, Debug)]
pub struct Habits {
    pub count: usize,
    pub seed: u64,
    /// Between two calls of one client, on average.
    pub pause: Duration,
}

pub struct Callers {
    tasks: Vec<JoinHandle<()>>,
    recorder: Arc<Recorder>,
    stop: Arc<AtomicBool>,
    submitted: Arc<AtomicUsize>,
    runs: PathBuf,
}

impl Callers {
    /// `dir`: where their jobs' program is put, and what workers tell of themselves.
    pub fn start(urls: &[String], token: &str, dir: &Path, habits: &Habits) -> Self {
        let (runs, locks, script) = (dir.join("runs"), dir.join("locks"), dir.join("work.sh"));
        std::fs::create_dir_all(&locks).expect("a directory for locks");
        std::fs::write(&script, worker_script(&runs, &locks)).expect("writing the program");
        let (recorder, stop, submitted) = (Arc::<Recorder>::default(), Arc::<AtomicBool>::default(), Arc::default());
        let one = |number: usize| {
            let caller = Caller {
                number,
                client: Client::new(&urls.join(","), token).expect("a client"),
                reader: reqwest::Client::builder().no_proxy().timeout(PATIENCE).build().expect("a client"),
                token: token.to_owned(),
                script: script.clone(),
                recorder: Arc::clone(&recorder),
                stop: Arc::clone(&stop),
                submitted: Arc::clone(&submitted),
                random: StdRng::seed_from_u64(habits.seed ^ ((number as u64) << 32)),
                pause: habits.pause,
            };
            tokio::spawn(caller.call())
        };
        let tasks = (0..habits.count).map(one).collect();
        Self { tasks, recorder, stop, submitted, runs }
    }

    /// Acknowledged so far.
    pub fn submitted(&self) -> usize {
        self.submitted.load(Ordering::Relaxed)
    }

    /// Waits for so many more acknowledged submits.
    pub async fn go_on(&self, count: usize) {
        let moment = self.submitted() + count;
        until("some submits", soon(), || async { (self.submitted() >= moment).then_some(()) }).await;
    }

    /// Has them end with what they are at; then jobs end that can, and all that was done is told.
    pub async fn finish(self, client: &Client) -> History {
        self.stop.store(true, Ordering::Relaxed);
        for task in self.tasks {
            task.await.expect("a caller does not panic");
        }
        let jobs = until("jobs that run to end", 4 * soon(), || async {
            let jobs = client.all_jobs().await.ok()?;
            // The others ask for more than there is.
            let live = jobs.iter().filter(|job| job.name.contains("-run-") && !job.state.is_final());
            let live: Vec<&Job> = live.collect();
            for held in live.iter().filter(|job| job.state == JobStateKind::Held) {
                client.release(&held.id.to_string()).await.ok()?;
            }
            live.is_empty().then_some(jobs)
        })
        .await;
        let stored =
            jobs.into_iter().map(|job| Stored { id: job.id.to_string(), name: job.name, state: job.state }).collect();
        History { calls: self.recorder.calls(), runs: read_runs(&self.runs), stored }
    }
}

struct Caller {
    number: usize,
    client: Client,
    /// Who is told whether a standby answers.
    reader: reqwest::Client,
    token: String,
    script: PathBuf,
    recorder: Arc<Recorder>,
    stop: Arc<AtomicBool>,
    submitted: Arc<AtomicUsize>,
    random: StdRng,
    pause: Duration,
}

/// A job of his, as far as he knows.
struct Mine {
    name: String,
    id: String,
}

impl Caller {
    async fn call(mut self) {
        let (mut live, mut old) = (Vec::<Mine>::new(), Vec::<Mine>::new());
        for turn in 0.. {
            tokio::time::sleep(self.pause.mul_f64(self.random.random_range(0.0..2.0))).await;
            if self.stop.load(Ordering::Relaxed) {
                return;
            }
            let choice = self.random.random_range(0..100);
            if live.is_empty() || (choice < 45 && live.len() < LIVE) {
                live.extend(self.submit(turn).await);
                continue;
            }
            let place = self.random.random_range(0..live.len());
            match choice {
                0..65 => {
                    let ended = self.read(&live[place]).await;
                    if ended {
                        old.push(live.swap_remove(place));
                    }
                }
                65..72 => drop(self.change(Deed::Hold, &live[place]).await),
                72..80 => drop(self.change(Deed::Release, &live[place]).await),
                80..94 => {
                    if self.change(Deed::Cancel, &live[place]).await {
                        old.push(live.swap_remove(place));
                    }
                }
                _ => {
                    if let Some(mine) = old.last() {
                        self.read(mine).await;
                    }
                }
            }
        }
    }

    async fn submit(&mut self, turn: usize) -> Option<Mine> {
        let runs = self.random.random_range(0..100) < 35;
        let kind = if runs { "run" } else { "wait" };
        let name = format!("c{}-{kind}-{turn}", self.number);
        let (gpus, seconds) = (if runs { 1 } else { 64 }, self.random.random_range(1..20_u32));
        let script = self.script.display();
        let yaml = format!(
            "version: 1\nname: {name}\nresources:\n  gpus: {gpus}\nlimits: {{max_restarts: 100}}\nrun:\n  command: [bash, \"{script}\", \"{}.{}\"]\n",
            seconds / 10,
            seconds % 10
        );
        let invoked = Moment::now();
        let mut outcome = Outcome::Unknown;
        while outcome == Outcome::Unknown && !self.stop.load(Ordering::Relaxed) {
            // Dropped where it takes too long; what it asked for is asked for again by the same key.
            let asked = self.client.submit_yaml_for(&yaml, Some(&name), true);
            outcome = match tokio::time::timeout(2 * PATIENCE, asked).await {
                Ok(Ok(reply)) => Outcome::Done(seen(&reply.jobs[0])),
                Ok(Err(error)) => of_error(&error),
                Err(_) => Outcome::Unknown,
            };
            if outcome == Outcome::Unknown {
                tokio::time::sleep(self.pause.max(Duration::from_millis(100))).await;
            }
        }
        let mine = match &outcome {
            Outcome::Done(seen) => Some(Mine { name: name.clone(), id: seen.id.clone() }),
            Outcome::Refused(_) | Outcome::Unknown => None,
        };
        self.submitted.fetch_add(usize::from(mine.is_some()), Ordering::Relaxed);
        self.take(Deed::Submit, name, invoked, outcome);
        mine
    }

    /// Whether it was done.
    async fn change(&self, deed: Deed, mine: &Mine) -> bool {
        let invoked = Moment::now();
        let asked = async {
            match deed {
                Deed::Cancel => self.client.cancel(&mine.id, None).await,
                Deed::Hold => self.client.hold(&mine.id, None).await,
                _ => self.client.release(&mine.id).await,
            }
        };
        let outcome = match tokio::time::timeout(PATIENCE, asked).await {
            Ok(Ok(job)) => Outcome::Done(seen(&job)),
            Ok(Err(error)) => of_error(&error),
            Err(_) => Outcome::Unknown,
        };
        let done = matches!(outcome, Outcome::Done(_));
        self.take(deed, mine.name.clone(), invoked, outcome);
        done
    }

    /// Whether it has ended.
    async fn read(&self, mine: &Mine) -> bool {
        let invoked = Moment::now();
        let url = format!("{}/api/v1/jobs/{}", self.client.address(), mine.id);
        let outcome = match self.reader.get(url).bearer_auth(&self.token).send().await {
            Ok(reply) => read_reply(reply).await,
            Err(_) => Outcome::Unknown,
        };
        let ended = matches!(&outcome, Outcome::Done(seen) if seen.by_leader && seen.state.is_final());
        self.take(Deed::Read, mine.name.clone(), invoked, outcome);
        ended
    }

    fn take(&self, deed: Deed, job: String, invoked: Moment, outcome: Outcome) {
        self.recorder.take(Call { client: self.number, job, deed, invoked, completed: Moment::now(), outcome });
    }
}

fn seen(job: &Job) -> Seen {
    Seen { id: job.id.to_string(), state: job.state, generation: job.generation, by_leader: true }
}

async fn read_reply(reply: reqwest::Response) -> Outcome {
    let by_leader = !reply.headers().contains_key("headway-standby");
    let status = reply.status();
    let Ok(body) = reply.bytes().await else { return Outcome::Unknown };
    if status.is_success() {
        return match serde_json::from_slice::<Job>(&body) {
            Ok(job) => Outcome::Done(Seen { by_leader, ..seen(&job) }),
            Err(_) => Outcome::Unknown,
        };
    }
    match status.as_u16() {
        404 if by_leader => Outcome::Refused("not_found".into()),
        _ => Outcome::Unknown,
    }
}

/// Only what is said to be wrong with a request was not done.
fn of_error(error: &ClientError) -> Outcome {
    match error {
        ClientError::Problem(problem) if (400..500).contains(&problem.status) && problem.status != 429 => {
            Outcome::Refused(problem.code.clone())
        }
        _ => Outcome::Unknown,
    }
}
