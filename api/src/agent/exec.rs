//! Commands beside a rank, and what they write, piece by piece.

use headway_types::{Generation, JobId, Seconds};
use uuid::Uuid;

use super::from_wire::{Read, parse, positive, present};
use super::{WireError, wire};

/// Starts a command, or asks for what one has written since.
#[derive(Clone, Debug, PartialEq)]
pub struct ExecRequest {
    pub request_id: u64,
    /// Of the command, as whoever starts it names it.
    pub exec: Uuid,
    /// `None`: it runs already.
    pub start: Option<ExecStart>,
}

/// What to start, and beside whom.
#[derive(Clone, Debug, PartialEq)]
pub struct ExecStart {
    pub job: JobId,
    pub generation: Generation,
    /// Global.
    pub rank: u32,
    /// Never empty.
    pub command: Vec<String>,
    /// In wall time.
    pub timeout: Seconds,
}

/// What a command has written since the last piece.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExecPiece {
    pub request_id: u64,
    pub stdout: Vec<u8>,
    pub stderr: Vec<u8>,
    /// Nothing more will come.
    pub ended: Option<ExecEnded>,
    /// It was not started, or is not known any more.
    pub error: Option<String>,
}

/// How a command ended. Without code and signal nobody knows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ExecEnded {
    pub exit_code: Option<i32>,
    pub signal: Option<i32>,
    /// Its time was over.
    pub timed_out: bool,
}

impl From<&ExecRequest> for wire::ExecRequest {
    fn from(request: &ExecRequest) -> Self {
        let start = request.start.as_ref().map(|start| wire::ExecStart {
            job_id: start.job.to_string(),
            generation: start.generation.0,
            rank: start.rank,
            command: start.command.clone(),
            timeout_seconds: start.timeout.0,
        });
        Self { request_id: request.request_id, exec_id: request.exec.to_string(), start }
    }
}

impl TryFrom<wire::ExecRequest> for ExecRequest {
    type Error = WireError;

    fn try_from(request: wire::ExecRequest) -> Read<Self> {
        let start = request.start.map(|start| {
            Ok(ExecStart {
                job: parse("job_id", &start.job_id)?,
                generation: Generation(start.generation),
                rank: start.rank,
                command: present("command", Some(start.command).filter(|command| !command.is_empty()))?,
                timeout: Seconds(positive("timeout_seconds", start.timeout_seconds)?),
            })
        });
        Ok(Self {
            request_id: request.request_id,
            exec: parse("exec_id", &request.exec_id)?,
            start: start.transpose()?,
        })
    }
}

impl From<&ExecPiece> for wire::ExecPiece {
    fn from(piece: &ExecPiece) -> Self {
        let ended = piece.ended.map(|ended| wire::ExecEnded {
            exit_code: ended.exit_code,
            signal: ended.signal,
            timed_out: ended.timed_out,
        });
        Self {
            request_id: piece.request_id,
            stdout: piece.stdout.clone(),
            stderr: piece.stderr.clone(),
            ended,
            error: piece.error.clone(),
        }
    }
}

impl From<wire::ExecPiece> for ExecPiece {
    fn from(piece: wire::ExecPiece) -> Self {
        let wire::ExecPiece { request_id, stdout, stderr, ended, error } = piece;
        let ended =
            ended.map(|wire::ExecEnded { exit_code, signal, timed_out }| ExecEnded { exit_code, signal, timed_out });
        Self { request_id, stdout, stderr, ended, error }
    }
}
