//! The hook for keys that lie elsewhere: a program that prints what a key file would hold, as `vault` or `aws kms decrypt` do. It is started once, with the
//! server, by its words and without a shell. What it prints is in no log and no error, neither what it complains of: nobody knows what that holds.

use std::process::Stdio;
use std::time::Duration;

use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::process::Command;

use super::keyring::{Keyring, KeyringError, LONGEST_TEXT, Malformed, keys};

/// How long a program may take: what it asks may be far away.
const PATIENCE: Duration = Duration::from_secs(30);

impl Keyring {
    /// Takes the keys that a program prints: its path or name, and its arguments.
    pub async fn printed_by(words: &[String]) -> Result<Self, KeyringError> {
        printed_within(words, PATIENCE).await
    }
}

async fn printed_within(words: &[String], patience: Duration) -> Result<Keyring, KeyringError> {
    let [program, arguments @ ..] = words else { return Err(KeyringError::NoCommand) };
    let failed = |source| KeyringError::Run { program: program.clone(), source };
    let mut child = Command::new(program)
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        // What it starts ends with it.
        .process_group(0)
        .kill_on_drop(true)
        .spawn()
        .map_err(failed)?;
    let (group, output) = (child.id(), child.stdout.take());
    let ended = tokio::time::timeout(patience, async {
        let text = read(output).await?;
        Ok((child.wait().await?, text))
    });
    let (status, text) = match ended.await {
        Ok(ended) => ended.map_err(failed)?,
        Err(_) => {
            if let Some(group) = group.and_then(|id| i32::try_from(id).ok()) {
                let _ended_meanwhile = killpg(Pid::from_raw(group), Signal::SIGKILL);
            }
            return Err(KeyringError::Late { program: program.clone(), seconds: patience.as_secs_f64() });
        }
    };
    if !status.success() {
        return Err(KeyringError::Failed { program: program.clone(), status });
    }
    let keys =
        keys(&text).map_err(|Malformed { line }| KeyringError::MalformedOutput { program: program.clone(), line })?;
    Keyring::of(&keys).ok_or_else(|| KeyringError::NothingPrinted { program: program.clone() })
}

/// What is no text holds no key.
async fn read(output: Option<impl AsyncRead + Unpin>) -> std::io::Result<String> {
    let mut bytes = Vec::new();
    if let Some(output) = output {
        output.take(LONGEST_TEXT).read_to_end(&mut bytes).await?;
    }
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use base64::Engine as _;
    use base64::engine::general_purpose::STANDARD;

    use super::*;

    fn words(words: &[&str]) -> Vec<String> {
        words.iter().map(|word| (*word).to_owned()).collect()
    }

    fn shell(script: &str) -> Vec<String> {
        words(&["/bin/sh", "-c", script])
    }

    #[tokio::test]
    async fn a_program_prints_keys_as_a_file_holds_them_and_its_words_pass_through_no_shell() {
        let (new, old) = ([2; 32], [1; 32]);
        // As `aws kms decrypt` prints what it has decrypted, and as a file has it.
        let text = format!("# newest\n{}\n{}\n", STANDARD.encode(new), hex::encode(old));
        let keyring = Keyring::printed_by(&words(&["printf", "%s", &text])).await.unwrap();
        assert_eq!(keyring.first(), Keyring::of(&[new]).unwrap().first());
        assert!(keyring.has(Keyring::of(&[old]).unwrap().first()));
        let literal = Keyring::printed_by(&words(&["echo", "$(openssl rand -hex 32)"])).await.unwrap_err();
        assert!(matches!(literal, KeyringError::MalformedOutput { line: 1, .. }), "{literal}");
    }

    #[tokio::test]
    async fn what_goes_wrong_is_told_with_nothing_of_what_the_program_said() {
        let said = "hunter22-of-the-vault";
        for (words, expected) in [
            (words(&["/no/such/program"]), "running the secrets' key command /no/such/program"),
            (shell(&format!("echo {said}; echo {said} >&2; exit 3")), "ended with exit status: 3"),
            (shell(&format!("echo {said}")), "line 1 of what the secrets' key command /bin/sh printed is no key"),
            (shell("echo '# nothing yet'"), "printed no key"),
            (Vec::new(), "names no program"),
        ] {
            let error = Keyring::printed_by(&words).await.unwrap_err();
            let told = format!("{error} {error:?}");
            assert!(told.contains(expected) && !told.contains(said), "{told}");
        }
    }

    #[tokio::test]
    async fn a_program_that_does_not_end_is_ended_with_what_it_started() {
        let began = std::time::Instant::now();
        let error = printed_within(&shell("sleep 600 & sleep 600"), Duration::from_millis(200)).await.unwrap_err();
        assert!(matches!(error, KeyringError::Late { .. }) && began.elapsed() < Duration::from_secs(60), "{error}");
    }
}
