//! What a server needs of the machine that it runs on, and what it does without.
#![allow(clippy::unwrap_used)]

use std::process::{Command, Stdio};
use std::time::Duration;

use headway_tests::cluster::{free_port, open_to_postgres};
use headway_tests::process::binary;
use headway_tests::until;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

#[tokio::test(flavor = "multi_thread")]
async fn a_server_starts_on_a_machine_without_certificate_authorities() {
    let dir = tempfile::Builder::new().prefix("hw").tempdir_in("/tmp").unwrap();
    open_to_postgres(dir.path());
    let (none, log) = (dir.path().join("none.pem"), dir.path().join("log"));
    std::fs::write(&none, "").unwrap();
    let output = std::fs::File::create(&log).unwrap();
    let (people, agents) = (free_port(), free_port());
    let mut server = Command::new(binary())
        .args(["server", "--listen", &format!("127.0.0.1:{people}"), "--agent-listen", &format!("127.0.0.1:{agents}")])
        .arg("--data-dir")
        .arg(dir.path().join("data"))
        .env_remove("DATABASE_URL")
        .env("SSL_CERT_FILE", &none)
        .env("SSL_CERT_DIR", dir.path().join("none"))
        .stdin(Stdio::null())
        .stdout(output.try_clone().unwrap())
        .stderr(output)
        .spawn()
        .unwrap();
    rustls::crypto::ring::default_provider().install_default().ok();
    let client = reqwest::Client::builder().no_proxy().build().unwrap();
    let url = format!("http://127.0.0.1:{people}/readyz");
    until("the server to be ready", Duration::from_secs(60), || {
        let ended = server.try_wait().unwrap();
        let (request, log) = (client.get(&url).send(), log.clone());
        async move {
            assert!(ended.is_none(), "{}", std::fs::read_to_string(&log).unwrap());
            request.await.ok().filter(|answer| answer.status().is_success()).map(|_| ())
        }
    })
    .await;
    kill(Pid::from_raw(server.id().cast_signed()), Signal::SIGTERM).unwrap();
    assert!(server.wait().unwrap().success());
}
