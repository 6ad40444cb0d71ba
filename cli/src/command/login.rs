//! `headway login` and `headway logout`: who one is, by the site's identity provider; what is got is a token of limited life, kept for the context.
//!
//! With a provider that has the device flow the server asks it, so that this machine needs no way to it and no secret of the client; else a browser of this machine
//! brings the code to a port that is open for this alone, and the server exchanges it.

use std::fs::{DirBuilder, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use headway_api::client::{Client, ClientError};
use headway_api::login::{Attempt, Beginning};
use headway_api::v1::{CodeLoginRequest, CreatedToken, DeviceLoginRequest, LoginProvider};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::Instant;

use crate::context::{Connection, Context, Contexts, read_token};
use crate::failure::{Failure, Kind};
use crate::output::{Printer, moment};

/// How long a browser may take to come back.
const PATIENCE: Duration = Duration::from_secs(300);
/// Of a browser's request, in bytes.
const HEAD_AT_MOST: usize = 16 * 1024;
/// For a browser to send it.
const HEAD_TIME: Duration = Duration::from_secs(5);

#[derive(Args, Clone, Debug)]
pub struct Login {
    /// Log in with a browser of this machine, also where the provider would take a code that is typed in elsewhere.
    #[arg(long)]
    pub browser: bool,
    /// Print where to go instead of opening it.
    #[arg(long)]
    pub no_open: bool,
}

pub async fn run(connection: &Connection, print: &Printer, login: Login) -> Result<(), Failure> {
    let mut known = Contexts::load()?;
    let (name, url) = place(connection, &known)?;
    let before = known.contexts.get(&name).filter(|before| before.url == url);
    let authority = before.and_then(|before| before.authority.clone());
    let context = Context { url, token_file: token_file(&name)?, authority };
    let client = context.client("")?;
    let provider = client.login_provider().await?;
    if !provider.enabled {
        return Err(Failure::new(Kind::Usage, format!("{} has no identity provider", client.address()))
            .hint("an admin gives you a token: --token-file FILE, or HEADWAY_TOKEN"));
    }
    let made = if provider.device && !login.browser {
        by_device(&client, login.no_open).await?
    } else {
        by_browser(&client, &provider, login.no_open).await?
    };
    keep(&context.token_file, &made.secret)?;
    known.contexts.insert(name.clone(), context);
    known.current = Some(name.clone());
    known.save()?;
    if print.structured() {
        return print.value(&made.token);
    }
    let ends = made.token.expires_at.map_or_else(String::new, |end| format!(" until {}", moment(end)));
    let user = made.token.user.unwrap_or_default();
    say!("{user} with the scope {}{ends}; commands speak to {name} now", made.token.scope)?;
    Ok(())
}

/// Revokes the token that a login got, and forgets it.
pub async fn log_out(connection: &Connection) -> Result<(), Failure> {
    let known = Contexts::load()?;
    let name = connection.context.clone().or_else(|| known.current.clone());
    let context = known.chosen(connection.context.as_deref())?;
    let (Some(name), Some(context)) = (name, context) else {
        return Err(Failure::new(Kind::Usage, "no context is in use").hint("see `headway context list`"));
    };
    if context.token_file != token_file(&name)? {
        return Err(Failure::new(Kind::Usage, format!("the token of {name} did not come of a login"))
            .hint("`headway token revoke` ends any token"));
    }
    if !context.token_file.exists() {
        say!("nobody is logged in to {name}")?;
        return Ok(());
    }
    let client = context.client(&read_token(&context.token_file)?)?;
    let revoked = async {
        let own = client.whoami().await?;
        client.revoke_token(&own.id.to_string()).await
    };
    match revoked.await {
        Ok(()) => {}
        // It is over already.
        Err(ClientError::Problem(problem)) if problem.status == 401 => {}
        Err(error) => {
            let failure = Failure::from(error);
            return Err(failure.hint(format!(
                "the token still opens what it opens, and stays in {}; try again",
                context.token_file.display()
            )));
        }
    }
    std::fs::remove_file(&context.token_file)?;
    say!("logged out of {name}")?;
    Ok(())
}

/// The context to log in to, and its cluster's address.
fn place(connection: &Connection, known: &Contexts) -> Result<(String, String), Failure> {
    let named = connection.context.clone();
    let present = named.as_ref().or(known.current.as_ref()).and_then(|name| Some((name, known.contexts.get(name)?)));
    match (&connection.url, present, named.clone()) {
        // A cluster that is known by its address.
        (Some(url), _, None) => {
            let same = known.contexts.iter().find(|(_, one)| one.url == *url);
            Ok((same.map_or_else(|| called(url), |(name, _)| name.clone()), url.clone()))
        }
        (Some(url), _, Some(name)) => Ok((name, url.clone())),
        (None, Some((name, context)), _) => Ok((name.clone(), context.url.clone())),
        (None, None, Some(name)) => Err(Failure::new(Kind::NotFound, format!("no context is called {name}"))
            .hint("say where the cluster is: --url https://HOST:PORT")),
        (None, None, None) => {
            Err(Failure::new(Kind::Usage, "no cluster to log in to").hint("say where it is: --url https://HOST:PORT"))
        }
    }
}

/// What a cluster is called after its address: the host, as far as it can be a file's name.
fn called(url: &str) -> String {
    let first = url.split(',').next().unwrap_or_default();
    let authority = first.split("://").last().unwrap_or_default().split('/').next().unwrap_or_default();
    let name: String =
        authority.chars().map(|c| if c.is_ascii_alphanumeric() || matches!(c, '.' | '-') { c } else { '-' }).collect();
    name.trim_matches(['.', '-']).to_owned()
}

fn token_file(context: &str) -> Result<PathBuf, Failure> {
    let safe = !context.is_empty() && context.chars().all(|c| c.is_alphanumeric() || matches!(c, '.' | '-' | '_'));
    if !safe || context.starts_with('.') {
        return Err(Failure::new(Kind::Usage, format!("{context} can be no file's name"))
            .hint("name the context with --context: letters, digits, '-', '_' and '.'"));
    }
    Ok(Contexts::directory()?.join("tokens").join(format!("{context}.token")))
}

/// Writes it whole, for its owner alone.
fn keep(file: &Path, secret: &str) -> Result<(), Failure> {
    let dir = file.parent().unwrap_or(Path::new("."));
    DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
    let fresh = file.with_extension(format!("{}.tmp", std::process::id()));
    // What a process of this number left behind may be others' to read.
    if let Err(error) = std::fs::remove_file(&fresh)
        && error.kind() != std::io::ErrorKind::NotFound
    {
        return Err(error.into());
    }
    let mut written = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&fresh)?;
    writeln!(written, "{secret}")?;
    written.sync_all()?;
    std::fs::rename(&fresh, file)?;
    Ok(())
}

async fn by_device(client: &Client, no_open: bool) -> Result<CreatedToken, Failure> {
    let begun = client.begin_device_login().await?;
    let to = begun.verification_uri_complete.as_ref().unwrap_or(&begun.verification_uri);
    aside!("headway: to log in, open {to}");
    aside!("headway: in any browser, and confirm the code {}", begun.user_code);
    if !no_open {
        open(to);
    }
    let deadline = Instant::now() + Duration::from_secs_f64(begun.expires_in_s.clamp(1.0, 3_600.0));
    let mut wait = begun.interval_s;
    let request = DeviceLoginRequest { device_code: begun.device_code, name: this_machine() };
    loop {
        tokio::time::sleep(Duration::from_secs_f64(wait.clamp(1.0, 60.0))).await;
        let reply = client.end_device_login(&request).await?;
        if let Some(made) = reply.made {
            return Ok(made);
        }
        // As it began with, unless it was too fast.
        wait = reply.wait_s.map_or(wait, |told| if told > wait { told } else { wait });
        if Instant::now() > deadline {
            return Err(Failure::new(Kind::WaitTimeout, "nobody confirmed the login in time").hint("begin again"));
        }
    }
}

async fn by_browser(client: &Client, provider: &LoginProvider, no_open: bool) -> Result<CreatedToken, Failure> {
    let missing = || {
        Failure::new(Kind::Unreachable, "the identity provider does not answer the server")
            .hint("try again soon; `headway admin doctor` says more")
    };
    let endpoint = provider.authorization_endpoint.as_deref().ok_or_else(missing)?;
    let client_id = provider.client_id.as_deref().ok_or_else(missing)?;
    let mut secret = [0; 32];
    getrandom::fill(&mut secret).map_err(|error| Failure::new(Kind::Failed, format!("reading entropy: {error}")))?;
    let attempt = Attempt::new(secret);
    let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
    let redirect_uri = format!("http://{}/callback", listener.local_addr()?);
    let beginning = Beginning { endpoint, client_id, scopes: &provider.scopes, redirect_uri: &redirect_uri };
    let url = attempt.url(&beginning).map_err(|error| Failure::new(Kind::Failed, error))?;
    aside!("headway: to log in, open in a browser of this machine");
    aside!("{url}");
    if !no_open {
        open(url.as_str());
    }
    let code = tokio::time::timeout(PATIENCE, returned(&listener, &attempt.state())).await.map_err(|_| {
        Failure::new(Kind::WaitTimeout, "no browser came back with a login in time").hint("begin again")
    })??;
    let request = CodeLoginRequest {
        code,
        code_verifier: attempt.verifier(),
        redirect_uri,
        nonce: attempt.nonce(),
        name: this_machine(),
    };
    Ok(client.end_code_login(&request).await?)
}

/// The code that a browser brings; whatever else knocks is turned away.
async fn returned(listener: &TcpListener, state: &str) -> Result<String, Failure> {
    loop {
        let (mut stream, _) = listener.accept().await?;
        let Ok(Ok(head)) = tokio::time::timeout(HEAD_TIME, head(&mut stream)).await else { continue };
        match brought(&head, state) {
            Some(Ok(code)) => {
                answer(&mut stream, "200 OK", "You are logged in. This window can be closed.").await;
                return Ok(code);
            }
            Some(Err(refusal)) => {
                answer(&mut stream, "403 Forbidden", "You are not logged in. The terminal says why.").await;
                return Err(Failure::new(Kind::Denied, format!("the identity provider refuses: {refusal}")));
            }
            None => answer(&mut stream, "404 Not Found", "There is nothing here.").await,
        }
    }
}

async fn head(stream: &mut TcpStream) -> std::io::Result<String> {
    let mut head = Vec::new();
    let mut piece = [0; 2_048];
    while !head.windows(4).any(|end| end == b"\r\n\r\n") && head.len() < HEAD_AT_MOST {
        match stream.read(&mut piece).await? {
            0 => break,
            read => head.extend_from_slice(&piece[..read]),
        }
    }
    Ok(String::from_utf8_lossy(&head).into_owned())
}

/// What a request brings: a code, a refusal, or nothing that belongs to this login.
fn brought(head: &str, state: &str) -> Option<Result<String, String>> {
    let target = head.strip_prefix("GET ")?.split(' ').next()?;
    let (path, query) = target.split_once('?')?;
    if path != "/callback" {
        return None;
    }
    let pairs: Vec<(String, String)> = headway_api::login::read_query(query);
    let find = |name: &str| pairs.iter().find(|(key, _)| key == name).map(|(_, value)| value.clone());
    if find("state").as_deref() != Some(state) {
        return None;
    }
    if let Some(error) = find("error") {
        let told = format!("{error} {}", find("error_description").unwrap_or_default());
        return Some(Err(told.chars().filter(|c| !c.is_control()).take(200).collect::<String>().trim().to_owned()));
    }
    find("code").map(Ok)
}

async fn answer(stream: &mut TcpStream, status: &str, text: &str) {
    let body = format!("<!doctype html><meta charset=\"utf-8\"><title>Headway</title><p>{text}</p>");
    let reply = format!(
        "HTTP/1.1 {status}\r\nContent-Type: text/html; charset=utf-8\r\nContent-Length: {}\r\nCache-Control: no-store\r\n\
         Content-Security-Policy: default-src 'none'\r\nConnection: close\r\n\r\n{body}",
        body.len()
    );
    // The browser may have gone.
    let _ = stream.write_all(reply.as_bytes()).await;
    let _ = stream.shutdown().await;
}

/// Has the desktop open it, where there is one.
fn open(url: &str) {
    let there = ["DISPLAY", "WAYLAND_DISPLAY"].iter().any(|name| std::env::var_os(name).is_some());
    if there {
        let quiet = std::process::Stdio::null;
        // Without one the address is on the terminal.
        let _ = std::process::Command::new("xdg-open").arg(url).stdin(quiet()).stdout(quiet()).stderr(quiet()).spawn();
    }
}

fn this_machine() -> Option<String> {
    let name = nix::unistd::gethostname().ok()?.into_string().ok()?;
    Some(name.chars().filter(|c| !c.is_control()).take(64).collect())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn only_the_answer_to_this_login_is_taken() {
        let get = |target: &str| brought(&format!("GET {target} HTTP/1.1\r\nHost: x\r\n\r\n"), "s7");
        assert_eq!(get("/callback?code=a%20b&state=s7"), Some(Ok("a b".into())));
        assert_eq!(get("/callback?error=access_denied&state=s7"), Some(Err("access_denied".into())));
        for other in
            ["/callback?code=a&state=other", "/callback?code=a", "/?code=a&state=s7", "/favicon.ico", "/callback"]
        {
            assert_eq!(get(other), None, "{other}");
        }
        assert_eq!(brought("POST /callback?code=a&state=s7 HTTP/1.1\r\n\r\n", "s7"), None);
    }

    #[test]
    fn a_token_is_kept_for_its_owner_alone() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("tokens/lab.token");
        for secret in ["hw_1", "hw_2"] {
            keep(&file, secret).unwrap();
            assert_eq!(read_token(&file).unwrap(), secret);
            assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
        }
        assert_eq!(std::fs::read_dir(dir.path().join("tokens")).unwrap().count(), 1, "nothing is left beside it");
    }

    #[test]
    fn a_cluster_is_called_after_its_host() {
        assert_eq!(called("https://headway.example:7600"), "headway.example-7600");
        assert_eq!(called("https://a.example,https://b.example"), "a.example");
        assert_eq!(called("http://[::1]:7600"), "1--7600");
    }
}
