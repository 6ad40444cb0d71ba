//! `headway up` and its own tokens: it starts whatever has become of them.
#![allow(clippy::unwrap_used)]

use std::fs;
use std::path::Path;

use headway_api::client::{Client, ClientError};
use headway_api::v1::{self, AvailabilityKind};
use headway_tests::cluster::{free_port, open_to_postgres};
use headway_tests::process::Process;
use headway_tests::{soon, until};

/// One `up` with one agent on this directory, once its node is there; the client has the token that then lies in the file.
async fn up(data: &Path, ports: [u16; 2]) -> (Process, Client) {
    let [people, agents] = ports.map(|port| format!("127.0.0.1:{port}"));
    let directory = data.display().to_string();
    let arguments = ["up", "--data-dir", &directory, "--listen", &people, "--agent-listen", &agents, "--nodes", "1"];
    let log = data.with_extension("log");
    let mut process = Process::start(&arguments.map(String::from), &log).unwrap();
    let client = until("a node of the cluster", soon(), || {
        let ended = process.ended();
        let said = fs::read_to_string(&log).unwrap_or_default();
        assert!(ended.is_none(), "headway up ended: {said}");
        let secret = fs::read_to_string(data.join("secrets/admin.token")).unwrap_or_default();
        let client = Client::new(&format!("http://{people}"), &secret);
        async move {
            let client = client.ok()?;
            let nodes = client.nodes().await.ok()?;
            nodes
                .iter()
                .any(|node| node.name == "node-1" && node.availability == AvailabilityKind::Available)
                .then_some(client)
        }
    });
    let client = client.await;
    (process, client)
}

#[tokio::test(flavor = "multi_thread")]
async fn up_starts_again_after_its_tokens_were_revoked() {
    rustls::crypto::ring::default_provider().install_default().ok();
    let scratch = tempfile::Builder::new().prefix("hw").tempdir_in("/tmp").unwrap();
    open_to_postgres(scratch.path());
    let (data, ports) = (scratch.path().join("data"), [free_port(), free_port()]);
    let (process, client) = up(&data, ports).await;
    let spare =
        client.create_token(&v1::TokenRequest { name: "spare".into(), ..v1::TokenRequest::default() }).await.unwrap();
    let spare = Client::new(&format!("http://127.0.0.1:{}", ports[0]), &spare.secret).unwrap();
    for token in client.tokens(None).await.unwrap().iter().filter(|token| token.name != "spare") {
        spare.revoke_token(&token.id.to_string()).await.unwrap();
    }
    process.stop();
    let revoked = fs::read_to_string(data.join("secrets/admin.token")).unwrap();

    let (process, client) = up(&data, ports).await;
    assert_eq!(client.whoami().await.unwrap().user.as_deref(), Some("admin"));
    let former = Client::new(&format!("http://127.0.0.1:{}", ports[0]), &revoked).unwrap().whoami().await;
    assert!(matches!(former, Err(ClientError::Problem(problem)) if problem.status == 401), "revoked is revoked");
    process.stop();
}
