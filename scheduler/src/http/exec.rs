//! Commands beside a rank of a running job, as its user. Its node starts them and is asked for what they write for as long as somebody reads.

use std::time::Duration;

use axum::Extension;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use futures::Stream;
use headway_api::agent::{ExecPiece, ExecRequest, ExecStart};
use headway_api::v1;
use headway_types::{JobId, JobStateKind, NodeId, Seconds};
use serde_json::json;
use uuid::Uuid;

use super::access::Live;
use super::auth::Principal;
use super::extract::{Json, Path};
use super::problem::Problem;
use super::{HttpState, lookup, parameters};
use crate::cluster::{Cluster, LogError};
use crate::shares::{Full, Place};
use crate::store::AuditEntry;

/// Commands at once, and of them of one user.
pub const AT_ONCE: usize = 64;
pub const OF_ONE_USER: usize = 8;
const WORDS: usize = 256;
const BYTES: usize = 64 * 1024;
const USUAL_TIME: u32 = 60;
const LONGEST_TIME: u32 = 3_600;
/// Of a command, in the audit.
const SHOWN: usize = 1_000;

/// Run a command beside a rank of a running job: on its node, as its user, in its directory, with its variables (no secrets) and within its limits. The reply is written while
/// the command runs, a JSON object a line: `started`, then `stdout` and `stderr` in base64, then `ended`. A command whose reply nobody reads any more is
/// ended within 15 seconds, and so is one whose job is moved or ends. The audit has the command.
#[utoipa::path(post, path = "/jobs/{id}/exec", tag = "jobs", params(("id" = Uuid, Path)),
    request_body = v1::ExecCommand,
    responses((status = 200, body = v1::ExecLine, content_type = "application/x-ndjson"),
        (status = "4XX", body = v1::Problem, content_type = "application/problem+json")))]
pub async fn exec(
    State(state): State<HttpState>,
    caller: Principal,
    Path(id): Path<Uuid>,
    Json(asked): Json<v1::ExecCommand>,
) -> Result<Response, Problem> {
    let timeout = check(&asked)?;
    let v1::ExecCommand { command, rank, .. } = asked;
    let job = lookup::record(&state.cluster, JobId(id)).await?;
    let view = state.cluster.view();
    let running = view.jobs.get(&job.id).filter(|live| live.job.state.kind() == JobStateKind::Running);
    let Some(attempt) = running.and_then(|live| live.allocation.clone()) else {
        return Err(Problem::new(
            StatusCode::CONFLICT,
            "not_running",
            format!("job {} is {}", job.spec.name, job.state),
        )
        .hint("commands run beside a job that runs; `headway logs --previous` shows what an earlier attempt wrote"));
    };
    let generation = attempt.generation;
    let node = attempt.placement.ranks().nth(rank as usize).map(|(node, _)| node);
    let node = node.ok_or(LogError::NoSuchRank { generation, rank })?;
    let name = view.nodes.get(&node).map_or_else(|| node.to_string(), |node| node.node.inventory.name.clone());
    let started =
        line(&v1::ExecLine::Started(v1::ExecStarted { job_id: id, generation: generation.0, rank, node: name }));
    if parameters::is_dry_run() {
        return Ok(reply(Body::from(started)));
    }
    let place = state.execs.enter(caller.name()).map_err(no_place)?;
    // Before the command: nothing runs that the audit does not know of.
    if let Some(deed) = state.deed() {
        let shown: String = command.join(" ").chars().take(SHOWN).collect();
        let (before, after) = (Some(json!({})), Some(json!({"command": shown, "rank": rank})));
        state.cluster.store().add_to_audit(&[AuditEntry { before, after, ..deed }]).await?;
    }
    let start = ExecStart { job: job.id, generation, rank, command, timeout };
    let session = Session { cluster: state.cluster.clone(), node, exec: Uuid::now_v7(), _place: place };
    let first = match session.ask(Some(start)).await {
        Ok(first) => first,
        Err(error) => return Err(state.cluster.log_error(error).await.into()),
    };
    if let Some(refusal) = first.error {
        return Err(LogError::Refused(refusal).into());
    }
    Ok(reply(Body::from_stream(session.lines(started, first))))
}

fn no_place(full: Full) -> Problem {
    let problem = match full {
        Full::OfOne(most) => {
            let detail = format!("{most} commands of yours run beside jobs already");
            Problem::too_many("too_many_commands", detail, Duration::from_secs(5))
        }
        Full::InAll(most) => Problem::unavailable(format!("{most} commands run beside jobs already")),
    };
    problem.hint("wait until some have ended")
}

fn check(asked: &v1::ExecCommand) -> Result<Seconds, Problem> {
    let wrong = |detail: String| Err(Problem::invalid(detail).field("command"));
    let bytes: usize = asked.command.iter().map(String::len).sum();
    match asked.command.first() {
        None => return wrong("the command is empty".into()),
        Some(program) if program.is_empty() => return wrong("the command's first word is empty".into()),
        Some(_) if asked.command.len() > WORDS || bytes > BYTES => {
            return wrong(format!("a command has {WORDS} words and {} KiB at most", BYTES / 1024));
        }
        Some(_) if asked.command.iter().any(|word| word.contains('\0')) => {
            return wrong("a command holds no NUL character".into());
        }
        Some(_) => {}
    }
    match asked.timeout_s.unwrap_or(USUAL_TIME) {
        seconds @ 1..=LONGEST_TIME => Ok(Seconds(f64::from(seconds))),
        _ => {
            Err(Problem::invalid(format!("timeout_s must be between 1 and {LONGEST_TIME} seconds")).field("timeout_s"))
        }
    }
}

fn reply(body: Body) -> Response {
    let media = [(header::CONTENT_TYPE, HeaderValue::from_static("application/x-ndjson"))];
    (Extension(Live), media, body).into_response()
}

/// A command that runs on a node.
struct Session {
    cluster: Cluster,
    node: NodeId,
    exec: Uuid,
    _place: Place,
}

impl Session {
    async fn ask(&self, start: Option<ExecStart>) -> Result<ExecPiece, crate::grpc::SessionError> {
        self.cluster.exec(self.node, ExecRequest { request_id: 0, exec: self.exec, start }).await
    }

    /// Each piece is asked for once the one before was taken, so that nobody need keep what is not read.
    fn lines(self, started: Bytes, first: ExecPiece) -> impl Stream<Item = Result<Bytes, std::convert::Infallible>> {
        async_stream::stream! {
            yield Ok(started);
            let mut piece = first;
            loop {
                if !piece.stdout.is_empty() {
                    yield Ok(line(&v1::ExecLine::Stdout(piece.stdout)));
                }
                if !piece.stderr.is_empty() {
                    yield Ok(line(&v1::ExecLine::Stderr(piece.stderr)));
                }
                if let Some(ended) = piece.ended {
                    let (exit_code, signal, timed_out) = (ended.exit_code, ended.signal, ended.timed_out);
                    yield Ok(line(&v1::ExecLine::Ended(v1::ExecEnded { exit_code, signal, timed_out })));
                    break;
                }
                let broken = match self.ask(None).await {
                    Ok(next) => match next.error {
                        None => {
                            piece = next;
                            continue;
                        }
                        Some(error) => error,
                    },
                    Err(error) => error.to_string(),
                };
                yield Ok(line(&v1::ExecLine::Broken(v1::ExecBroken { detail: broken })));
                break;
            }
        }
    }
}

fn line(of: &v1::ExecLine) -> Bytes {
    let mut text = serde_json::to_vec(of).expect("a line is plain JSON");
    text.push(b'\n');
    text.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whose_own_places_are_taken_is_told_so_and_whoever_finds_none_is_told_that() {
        let own = no_place(Full::OfOne(OF_ONE_USER));
        assert_eq!((own.status(), own.code()), (StatusCode::TOO_MANY_REQUESTS, "too_many_commands"));
        assert_eq!(own.detailed(), "8 commands of yours run beside jobs already");
        assert_eq!(no_place(Full::InAll(AT_ONCE)).status(), StatusCode::SERVICE_UNAVAILABLE);
    }
}
