//! A node joins, runs, renews its certificate while it works, and is shut out: on the real binaries.
#![allow(clippy::unwrap_used)]

use std::path::Path;
use std::time::{Duration, Instant};

use headway_api::v1::{AvailabilityKind, JobStateKind as State};
use headway_tests::job::EmulatedJob;
use headway_tests::process::binary;
use headway_tests::{Cluster, Expected, until};
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, KeyUsagePurpose};

const PATIENCE: Duration = Duration::from_secs(60);

/// What a command that must fail says.
fn fails(arguments: &[&str]) -> String {
    let output = std::process::Command::new(binary()).args(arguments).output().unwrap();
    assert!(!output.status.success(), "{arguments:?}");
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Files of a certificate and its key that the site's root has signed for Headway.
fn sites_authority(dir: &Path) -> (String, String) {
    let authority = |name: &str| {
        let mut of = CertificateParams::default();
        of.distinguished_name.push(DnType::CommonName, name);
        of.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        of.key_usages = vec![KeyUsagePurpose::KeyCertSign];
        of
    };
    let (root, key) = (KeyPair::generate().unwrap(), KeyPair::generate().unwrap());
    let made = authority("GPU cluster").signed_by(&key, &Issuer::new(authority("Example root"), root)).unwrap();
    let write = |name: &str, text: String| {
        std::fs::write(dir.join(name), text).unwrap();
        dir.join(name).display().to_string()
    };
    (write("site.pem", made.pem()), write("site.key", key.serialize_pem()))
}

async fn trains_on(cluster: &Cluster, job: &str) {
    let seen = cluster.client.job(job).await.unwrap().job.samples_seen;
    until("the job to go on", PATIENCE, || async {
        let job = cluster.client.job(job).await.ok()?.job;
        (job.state == State::Running && job.samples_seen > seen).then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_works_through_a_rotation_to_the_sites_authority_and_is_shut_out_by_a_revocation() {
    let mut cluster = Cluster::start(1, 2).await;
    let yaml = EmulatedJob::named("steady").yaml();
    let id = cluster.client.submit_yaml(&yaml, None).await.unwrap().jobs[0].id.to_string();
    until("the job to run", PATIENCE, || async {
        (cluster.client.job(&id).await.ok()?.job.state == State::Running).then_some(())
    })
    .await;
    trains_on(&cluster, &id).await;

    let (workers, generation) = (cluster.workers_of(&id), cluster.client.job(&id).await.unwrap().job.generation);
    let former = cluster.client.node_authorities().await.unwrap().items[0].fingerprint.clone();
    let file = cluster.dir().join("node-1/identity.json");
    let before = std::fs::read_to_string(&file).unwrap();
    let (certificate, key) = sites_authority(cluster.dir());
    cluster.command(&["admin", "ca", "rotate", "--certificate", &certificate, "--key", &key]);
    let authorities = until("the node to have a certificate of the new authority", PATIENCE, || async {
        let known = cluster.client.node_authorities().await.ok()?.items;
        (known[0].fingerprint != former && known[0].certificates == 1).then_some(known)
    });
    assert_eq!(authorities.await.len(), 2);
    until("the node to keep the certificate that it was given, and its new key", PATIENCE, || async {
        (std::fs::read_to_string(&file).unwrap() != before).then_some(())
    })
    .await;
    until("the session to go on", PATIENCE, || async {
        std::fs::read_to_string(cluster.log("node-1"))
            .ok()?
            .contains("goes on by the renewed certificate")
            .then_some(())
    })
    .await;
    cluster.command(&["admin", "ca", "retire", &former]);
    trains_on(&cluster, &id).await;
    let job = cluster.client.job(&id).await.unwrap().job;
    assert_eq!((job.generation, cluster.workers_of(&id)), (generation, workers), "workers are untouched");
    let states = cluster.command(&["events", "--verb", "node.unreachable"]);
    assert!(!states.contains("node-1"), "no lease has run out: {states}");

    let revoked = Instant::now();
    cluster.command(&["node", "revoke", "node-1", "--reason", "stolen"]);
    until("the session to end", PATIENCE, || async {
        std::fs::read_to_string(cluster.log("server")).ok()?.contains("node-1 was revoked").then_some(())
    })
    .await;
    println!("the session ended {:.2} s after the command was begun", revoked.elapsed().as_secs_f64());
    until("the node to be out of reach", PATIENCE, || async {
        (cluster.client.node("node-1").await.ok()?.availability != AvailabilityKind::Available).then_some(())
    })
    .await;
    until("people to hear of it", PATIENCE, || async {
        cluster.command(&["events", "--verb", "node.refused"]).contains("was revoked").then_some(())
    })
    .await;
    assert!(!cluster.workers_of(&id).is_empty(), "what runs goes on");

    cluster.kill_agent(0);
    cluster.join(0);
    cluster.start_agent(0);
    cluster.wait_for_nodes(1).await;
    cluster
        .stop(&[
            Expected::warning("headway_scheduler::grpc::gateway", "an agent is not who it says"),
            Expected::warning("headway_scheduler::grpc::sessions", "agent refused"),
            Expected::error("headway_agent::session", "this node is not taken"),
            Expected::warning("headway_agent::worker_socket", "a worker's line cannot be read"),
        ])
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_join_token_is_good_once_and_only_for_its_own_cluster() {
    let cluster = Cluster::start(1, 1).await;
    let token = cluster.command(&["node", "token", "create"]);
    let token = token.trim();
    let dir = cluster.dir().join("late").display().to_string();
    let url = cluster.agents_url();
    let joining = |token: &str| {
        ["node", "join", token, "--server", &url, "--data-dir", &dir, "--name", "late"].map(str::to_owned)
    };
    let fails_to_join = |token: &str| fails(&joining(token).iter().map(String::as_str).collect::<Vec<_>>());
    // Somebody else's authority: the token is not told to whoever is there.
    let (secret, _) = token.rsplit_once('_').unwrap();
    let foreign = fails_to_join(&format!("{secret}_{}", "0".repeat(64)));
    assert!(foreign.contains("is not of the authority that the join token names"), "{foreign}");
    // Nor where what it brings could not be kept.
    let nowhere = cluster.dir().join("nowhere/identity.json").display().to_string();
    let unkept = fails(&["node", "join", token, "--server", &url, "--data-dir", &dir, "--identity", &nowhere]);
    assert!(unkept.contains("writing beside"), "{unkept}");
    cluster.command(&joining(token).iter().map(String::as_str).collect::<Vec<_>>());
    let again = fails_to_join(token);
    assert!(again.contains("used up"), "{again}");
    cluster.stop(&[Expected::warning("headway_scheduler::grpc::registrar", "a node is not admitted")]).await;
}
