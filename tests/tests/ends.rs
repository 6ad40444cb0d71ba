//! Ends of jobs by real binaries. What had exited 0 before its stop was asked for has succeeded, and does not run again;
//! neither does what ended well on a node that lost its ledger. What a stop met first may be stopped or may have ended:
//! both are right.
#![allow(clippy::unwrap_used)]

use std::path::PathBuf;
use std::time::{Duration, Instant, SystemTime};

use headway_api::v1::{Job, JobStateKind as State};
use headway_tests::{Cluster, soon, until};

const REPETITIONS: u32 = 20;
/// File systems note times a few milliseconds early.
const FILE_TIME: Duration = Duration::from_millis(10);

/// A job whose command ends on a sign of the test.
struct Brief<'a> {
    cluster: &'a Cluster,
    number: u32,
    id: String,
}

impl<'a> Brief<'a> {
    /// Starts a job that exits 0 some milliseconds after the sign, and leaves processes behind for the agent to end.
    async fn start(cluster: &'a Cluster, number: u32, milliseconds: u32, leftovers: u32) -> Self {
        let path = |name: &str| cluster.dir().join(format!("{name}-{number}")).display().to_string();
        let leave = "setsid sleep 600 &\n".repeat(leftovers as usize);
        let script = format!(
            "echo begun >>{}\n{leave}until [ -e {} ]; do sleep 0.002; done\nsleep 0.{milliseconds:03}\nexit 0\n",
            path("begun"),
            path("sign")
        );
        std::fs::write(path("script"), script).unwrap();
        let run = format!("{{command: [sh, {}]}}", path("script"));
        let yaml = format!("version: 1\nname: brief-{number}\nresources: {{gpus: 1}}\nrun: {run}\n");
        let id = cluster.client.submit_yaml(&yaml, None).await.unwrap().jobs[0].id.to_string();
        let brief = Self { cluster, number, id };
        until("the job to run", soon(), || async {
            (brief.job().await.state == State::Running && brief.times_begun() == 1).then_some(())
        })
        .await;
        brief
    }

    fn give_sign(&self) {
        std::fs::write(self.cluster.dir().join(format!("sign-{}", self.number)), "").unwrap();
    }

    async fn job(&self) -> Job {
        self.cluster.client.job(&self.id).await.unwrap().job
    }

    fn times_begun(&self) -> usize {
        let begun = std::fs::read_to_string(self.cluster.dir().join(format!("begun-{}", self.number)));
        begun.unwrap_or_default().lines().count()
    }

    /// Where the exit status of its first start is written.
    fn exit_status(&self) -> PathBuf {
        self.cluster.dir().join(format!("node-1/jobs/{}/g1/rank-0.exit", self.id))
    }

    fn has_exited_0(&self) -> bool {
        std::fs::read_to_string(self.exit_status()).is_ok_and(|status| status.trim() == "0")
    }

    /// Waits for the exit status without a pause, so that the stop comes within milliseconds of it.
    async fn wait_for_exit(&self) {
        let deadline = Instant::now() + soon();
        while !self.has_exited_0() {
            assert!(Instant::now() < deadline, "job {} does not exit", self.number);
            tokio::task::yield_now().await;
        }
    }

    /// Orders one of the stops that people order. One that comes after the end is refused.
    async fn order_stop(&self) {
        let client = &self.cluster.client;
        let _ended_before = match self.number % 3 {
            0 => client.hold(&self.id, None).await,
            1 => client.requeue(&self.id, None).await,
            _ => client.cancel(&self.id, None).await,
        };
    }

    /// Waits until nothing of it is under way. A job that is put back runs to its end.
    async fn settle(&self) -> Job {
        until("the job to settle", soon(), || async {
            let job = self.job().await;
            (job.state.is_final() || job.state == State::Held).then_some(job)
        })
        .await
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stop_around_the_end_undoes_no_success() {
    let cluster = Cluster::start(1, 2).await;
    cluster.command(&["policy", "set", "round_pause_seconds=0.2"]);
    let mut succeeded = Vec::new();
    for number in 0..REPETITIONS {
        let ends_before_the_stop = number % 2 == 0;
        let (milliseconds, leftovers) = if ends_before_the_stop { (0, number / 4) } else { (2 * number, 0) };
        let brief = Brief::start(&cluster, number, milliseconds, leftovers).await;
        brief.give_sign();
        if ends_before_the_stop {
            brief.wait_for_exit().await;
        }
        let ordered_at = SystemTime::now();
        brief.order_stop().await;
        let job = brief.settle().await;
        let exited_at = std::fs::metadata(brief.exit_status()).and_then(|status| status.modified()).unwrap();
        let had_exited = brief.has_exited_0() && exited_at + FILE_TIME < ordered_at;
        if ends_before_the_stop || had_exited {
            assert_eq!((job.state, job.generation), (State::Succeeded, 1), "job {number} had exited 0: {job:?}");
            succeeded.push(brief);
        } else if job.state == State::Held {
            cluster.client.cancel(&brief.id, None).await.unwrap();
        }
    }
    assert!(succeeded.len() >= REPETITIONS as usize / 2);
    for brief in succeeded {
        let job = brief.job().await;
        assert_eq!((job.state, job.generation, brief.times_begun()), (State::Succeeded, 1, 1), "job {}", brief.number);
    }
    cluster.stop(&[]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_that_exited_0_on_a_node_that_lost_its_ledger_has_succeeded() {
    let mut cluster = Cluster::start(1, 1).await;
    let brief = Brief::start(&cluster, 0, 0, 0).await;
    let (id, exit_status) = (brief.id.clone(), brief.exit_status());
    let sign = cluster.dir().join("sign-0");
    cluster.kill_agent(0);
    std::fs::write(sign, "").unwrap();
    let exited = || std::fs::read_to_string(&exit_status).is_ok_and(|status| status.trim() == "0");
    until("the job to exit", soon(), || async { exited().then_some(()) }).await;
    std::fs::remove_file(cluster.dir().join("node-1/ledger.json")).unwrap();
    cluster.start_agent(0);
    let brief = Brief { cluster: &cluster, number: 0, id };
    let job = brief.settle().await;
    assert_eq!((job.state, job.generation, brief.times_begun()), (State::Succeeded, 1, 1), "{job:?}");
    let events = cluster.command(&["events"]);
    assert!(!events.contains("has no trace of it"), "no node is blamed: {events}");
    cluster.stop(&[]).await;
}
