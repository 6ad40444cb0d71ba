//! Ends of jobs by real binaries. What had exited 0 before its stop was asked for has succeeded, and does not run again;
//! neither does what ended well on a node that lost its ledger. What a stop met first may be stopped or may have ended:
//! both are right.
#![allow(clippy::unwrap_used)]

use std::path::PathBuf;
use std::time::Instant;

use headway_api::client::ClientError;
use headway_api::v1::{Job, JobStateKind as State};
use headway_tests::{Cluster, soon, until};
use nix::sys::signal::Signal;

const REPETITIONS: u32 = 20;

/// A job whose command ends on a sign of the test.
struct Brief {
    directory: PathBuf,
    number: u32,
    id: String,
}

impl Brief {
    /// Starts a job that exits 0 some milliseconds after the sign, and leaves processes behind for the agent to end.
    async fn start(cluster: &Cluster, number: u32, milliseconds: u32, leftovers: u32) -> Self {
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
        let brief = Self { directory: cluster.dir().to_owned(), number, id };
        until("the job to run", soon(), || async {
            (brief.job(cluster).await.state == State::Running && brief.times_begun() == 1).then_some(())
        })
        .await;
        brief
    }

    fn give_sign(&self) {
        std::fs::write(self.directory.join(format!("sign-{}", self.number)), "").unwrap();
    }

    async fn job(&self, cluster: &Cluster) -> Job {
        cluster.client.job(&self.id).await.unwrap().job
    }

    fn times_begun(&self) -> usize {
        let begun = std::fs::read_to_string(self.directory.join(format!("begun-{}", self.number)));
        begun.unwrap_or_default().lines().count()
    }

    /// Whether its first start has exited 0, by the status that is written beside its output.
    fn has_exited_0(&self) -> bool {
        let status = self.directory.join(format!("node-1/jobs/{}/g1/rank-0.exit", self.id));
        std::fs::read_to_string(status).is_ok_and(|status| status.trim() == "0")
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
    async fn order_stop(&self, cluster: &Cluster) -> Result<(), ClientError> {
        let client = &cluster.client;
        match self.number % 3 {
            0 => client.hold(&self.id, None).await.map(drop),
            1 => client.requeue(&self.id, None).await.map(drop),
            _ => client.cancel(&self.id, None).await.map(drop),
        }
    }

    /// Waits until nothing of it is under way. A job that is put back runs to its end.
    async fn settle(&self, cluster: &Cluster) -> Job {
        until("the job to settle", soon(), || async {
            let job = cluster.client.job(&self.id).await.ok()?.job;
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
        // What is there before the order is there first, however busy the machine and coarse its clocks.
        let had_exited = brief.has_exited_0();
        let _ended_before = brief.order_stop(&cluster).await;
        let job = brief.settle(&cluster).await;
        if had_exited {
            assert_eq!((job.state, job.generation), (State::Succeeded, 1), "job {number} had exited 0: {job:?}");
            succeeded.push(brief);
        } else if job.state == State::Held {
            cluster.client.cancel(&brief.id, None).await.unwrap();
        }
    }
    assert!(succeeded.len() >= REPETITIONS as usize / 2);
    for brief in succeeded {
        let job = brief.job(&cluster).await;
        assert_eq!((job.state, job.generation, brief.times_begun()), (State::Succeeded, 1, 1), "job {}", brief.number);
    }
    cluster.stop(&[]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_that_ends_while_its_stop_is_in_flight_has_succeeded_and_does_not_run_again() {
    let mut cluster = Cluster::start(1, 2).await;
    for number in 0..3 {
        let brief = Brief::start(&cluster, number, 0, 0).await;
        // The agent reads nothing: its job ends before it finds the stop, whose sender is gone by then.
        cluster.signal_agent(0, Signal::SIGSTOP);
        brief.order_stop(&cluster).await.unwrap();
        until("the stop to be ordered", soon(), || async {
            (cluster.client.job(&brief.id).await.ok()?.job.state == State::Stopping).then_some(())
        })
        .await;
        cluster.kill_server();
        brief.give_sign();
        brief.wait_for_exit().await;
        cluster.signal_agent(0, Signal::SIGCONT);
        cluster.start_server().await;
        let job = brief.settle(&cluster).await;
        assert_eq!((job.state, job.generation, brief.times_begun()), (State::Succeeded, 1, 1), "job {number}: {job:?}");
    }
    cluster.stop(&[]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_that_exited_0_on_a_node_that_lost_its_ledger_has_succeeded() {
    let mut cluster = Cluster::start(1, 1).await;
    let brief = Brief::start(&cluster, 0, 0, 0).await;
    cluster.kill_agent(0);
    brief.give_sign();
    brief.wait_for_exit().await;
    std::fs::remove_file(cluster.dir().join("node-1/ledger.json")).unwrap();
    cluster.start_agent(0);
    let job = brief.settle(&cluster).await;
    assert_eq!((job.state, job.generation, brief.times_begun()), (State::Succeeded, 1, 1), "{job:?}");
    let events = cluster.command(&["events"]);
    assert!(!events.contains("has no trace of it"), "no node is blamed: {events}");
    cluster.stop(&[]).await;
}
