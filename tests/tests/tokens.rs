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
    let spare = v1::TokenRequest { name: "spare".into(), never_expires: true, ..v1::TokenRequest::default() };
    let spare = client.create_token(&spare).await.unwrap();
    let spare = Client::new(&format!("http://127.0.0.1:{}", ports[0]), &spare.secret).unwrap();
    for token in client.tokens(None).await.unwrap().iter().filter(|token| token.name != "spare") {
        spare.revoke_token(&token.id.to_string()).await.unwrap();
    }
    process.stop().await;
    let revoked = fs::read_to_string(data.join("secrets/admin.token")).unwrap();

    let (process, client) = up(&data, ports).await;
    assert_eq!(client.whoami().await.unwrap().user.as_deref(), Some("admin"));
    let former = Client::new(&format!("http://127.0.0.1:{}", ports[0]), &revoked).unwrap().whoami().await;
    assert!(matches!(former, Err(ClientError::Problem(problem)) if problem.status == 401), "revoked is revoked");
    process.stop().await;
}

/// Runs the binary against the cluster, with this token; what it printed and whether it went well.
fn headway(port: u16, token: &str, arguments: &[&str]) -> (bool, String, String) {
    let output = std::process::Command::new(headway_tests::process::binary())
        .args(arguments)
        .env("HEADWAY_URL", format!("http://127.0.0.1:{port}"))
        .env("HEADWAY_TOKEN", token)
        .output()
        .unwrap();
    let [out, err] = [output.stdout, output.stderr].map(|bytes| String::from_utf8(bytes).unwrap());
    (output.status.success(), out, err)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_is_made_used_revoked_and_then_refused() {
    rustls::crypto::ring::default_provider().install_default().ok();
    let scratch = tempfile::Builder::new().prefix("hw").tempdir_in("/tmp").unwrap();
    open_to_postgres(scratch.path());
    let (data, ports) = (scratch.path().join("data"), [free_port(), free_port()]);
    let (process, _client) = up(&data, ports).await;
    let admin = fs::read_to_string(data.join("secrets/admin.token")).unwrap();
    let as_admin = |arguments: &[&str]| headway(ports[0], admin.trim(), arguments);

    let (made, _, said) = as_admin(&["token", "create", "first", "--user", "adda", "--scope", "user"]);
    assert!(!made && said.contains("there is no user adda") && said.contains("give --yes"), "{said}");
    let (made, secret, said) =
        as_admin(&["token", "create", "first", "--user", "ada", "--scope", "user", "--ttl", "1h", "--yes"]);
    assert!(made, "{said}");
    let secret = secret.trim();
    assert!(secret.starts_with("hw_") && !said.contains(secret), "the secret is on standard output alone: {said}");
    let as_ada = |arguments: &[&str]| headway(ports[0], secret, arguments);
    let (known, whoami, _) = as_ada(&["whoami"]);
    assert!(known && whoami.starts_with("ada with the scope user"), "{whoami}");
    let (_, users, _) = as_ada(&["user", "list"]);
    assert!(users.contains("ada") && users.contains("admin"), "{users}");
    let (refused, _, said) = as_ada(&["node", "cordon", "node-1"]);
    assert!(!refused && said.contains("operator"), "{said}");

    assert!(as_admin(&["project", "create", "nlp"]).0);
    assert!(as_admin(&["project", "member", "add", "nlp", "ada", "--role", "viewer"]).0);
    let (_, members, _) = as_ada(&["project", "member", "list", "nlp"]);
    assert!(members.contains("ada") && members.contains("viewer"), "{members}");
    assert!(as_admin(&["project", "member", "remove", "nlp", "ada"]).0);

    let (done, said, _) = as_admin(&["token", "revoke", "first"]);
    assert!(done && said.contains("of ada is revoked"), "{said}");
    let (opens, _, said) = as_ada(&["whoami"]);
    assert!(!opens && said.contains("unknown, revoked or expired") && said.contains("headway token create"), "{said}");
    let (_, audit, _) = as_admin(&["audit", "list", "--subject", "user:ada"]);
    assert!(audit.contains("revoke_token") && audit.contains("create_token") && audit.contains("127.0.0.1"), "{audit}");
    let log = fs::read_to_string(data.with_extension("log")).unwrap();
    assert!(!log.contains(secret), "no log has the secret");
    process.stop().await;
}
