//! How a command fails: a message for people and the exit code that scripts rely on.

use std::fmt;
use std::process::ExitCode;

use headway_api::client::ClientError;

use crate::output::harmless;

/// What went wrong, by what a script can do about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Failed = 1,
    Usage = 2,
    NotFound = 3,
    Denied = 4,
    Conflict = 5,
    Unreachable = 6,
    /// Nobody reads the output any more: no failure of the command.
    Unread = 0,
    WaitTimeout = 124,
    /// By Ctrl-C, where something is put in order before the end; elsewhere the signal itself ends the process.
    Interrupted = 130,
}

/// The end of a command that did not succeed.
#[derive(Debug)]
pub struct Failure {
    pub kind: Kind,
    pub message: String,
    pub hint: Option<String>,
}

impl Failure {
    pub fn new(kind: Kind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), hint: None }
    }

    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    pub fn exit_code(&self) -> ExitCode {
        ExitCode::from(self.kind as u8)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "headway: {}", harmless(&self.message))?;
        if let Some(hint) = &self.hint {
            write!(f, "\n  hint: {}", harmless(hint))?;
        }
        Ok(())
    }
}

impl From<anyhow::Error> for Failure {
    fn from(error: anyhow::Error) -> Self {
        Self::new(Kind::Failed, format!("{error:#}"))
    }
}

impl From<std::io::Error> for Failure {
    fn from(error: std::io::Error) -> Self {
        let unread = error.kind() == std::io::ErrorKind::BrokenPipe;
        Self::new(if unread { Kind::Unread } else { Kind::Failed }, error.to_string())
    }
}

impl From<ClientError> for Failure {
    fn from(error: ClientError) -> Self {
        match error {
            ClientError::Problem(problem) => {
                let kind = match problem.status {
                    401 | 403 => Kind::Denied,
                    404 | 410 => Kind::NotFound,
                    409 | 412 => Kind::Conflict,
                    400 | 422 => Kind::Usage,
                    503 => Kind::Unreachable,
                    _ => Kind::Failed,
                };
                let message = match &problem.field {
                    Some(field) if !problem.detail.contains(field) => format!("{field}: {}", problem.detail),
                    _ => problem.detail.clone(),
                };
                Self { kind, message, hint: problem.hint }
            }
            ClientError::Setup { .. } => Self::new(Kind::Usage, error.to_string())
                .hint("a URL is whole, as in http://127.0.0.1:7600 or https://headway.example:7600"),
            other => {
                let mut message = other.to_string();
                let mut source = std::error::Error::source(&other);
                while let Some(cause) = source {
                    message.push_str(&format!(": {cause}"));
                    source = cause.source();
                }
                // What rustls says of a reply that is no TLS.
                let hint = match message.contains("InvalidContentType") {
                    true => "it speaks no TLS: is it http:// instead of https://?",
                    false => "is the scheduler running? start one with `headway up`, or set HEADWAY_URL",
                };
                Self::new(Kind::Unreachable, message).hint(hint)
            }
        }
    }
}
