//! Prologs and epilogs: a shell line of the job's, as its user, on this node, around an attempt. What it prints goes to the output of the
//! node's first rank, between two lines that say whose it is. However it ends, nothing of it is left afterwards.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use headway_node::{Process, Share};
use headway_types::{Fault, GroupOutcome, LaunchOrder};
use tokio::time::{sleep_until, timeout_at};
use tokio_util::sync::CancellationToken;

use crate::cause;
use crate::environment::{self, Member};
use crate::files::read_end;
use crate::process;
use crate::site::Site;
use crate::user::{UnixUser, give};

/// What of its output a failure shows, in bytes and in lines.
const LAST_OUTPUT: u64 = 8 * 1024;
/// Characters of each such line.
const LONGEST_LINE: usize = 200;
const LAST_LINES: usize = 5;
/// The mark of a hook follows that of its generation where ranks have their number.
const HOOK: &str = "hook/";
/// Enters the working directory, then runs the line.
const SHELL: &str = r#"umask 022; cd -- "$1" || exit 126; exec /bin/sh -c "$2""#;

/// Which of the two, and what it is told.
#[derive(Clone, Copy, Debug)]
enum Hook<'a> {
    Prolog,
    Epilog(&'a GroupOutcome),
}

impl Hook<'_> {
    fn name(self) -> &'static str {
        match self {
            Self::Prolog => "prolog",
            Self::Epilog(_) => "epilog",
        }
    }
}

/// How a hook ended.
enum End {
    Code(i32),
    Signal(i32),
    TimedOut,
    /// The group was stopped meanwhile.
    Withdrawn,
}

/// When a hook is over at the latest. Its time includes that of what it needs before its line can begin: the scheduler waits no longer.
#[derive(Clone, Copy)]
struct Until<'a> {
    late: tokio::time::Instant,
    withdrawn: &'a CancellationToken,
}

impl<'a> Until<'a> {
    fn of(order: &LaunchOrder, withdrawn: &'a CancellationToken) -> Self {
        Self { late: tokio::time::Instant::now() + Duration::from_secs_f64(order.run.hooks.timeout.0), withdrawn }
    }
}

/// Runs the prolog, if there is one. It is the job's own text, so that its failure is the job's, and no word against the node; what cannot be
/// run was named by mistake.
pub(crate) async fn prolog(
    order: &LaunchOrder,
    site: &Site,
    user: Option<&UnixUser>,
    withdrawn: &CancellationToken,
) -> Result<(), Fault> {
    let Some(line) = &order.run.hooks.prolog else { return Ok(()) };
    let (end, log, from) = run(order, site, user, line, Hook::Prolog, Until::of(order, withdrawn)).await?;
    let name = &site.inventory.now().name;
    let how = match end {
        End::Code(0) => return Ok(()),
        End::Withdrawn => return Err(Fault::of_infrastructure("the group was stopped during its prolog")),
        End::Code(code) => format!("exited with code {code}"),
        End::Signal(signal) => format!("was killed by signal {signal}"),
        End::TimedOut => format!("was ended after {}", order.run.hooks.timeout.words()),
    };
    let said = last_lines(&log, from);
    let message = format!("the prolog on node {name} {how}{said}");
    if let Some(full) = cause::full_disk(site, order).await {
        return Err(Fault { message: format!("{message}: {}", full.message), ..full });
    }
    let not_run = matches!(end, End::Code(126 | 127));
    Err(if not_run { Fault::of_mistake(message) } else { Fault::of_job(message) })
}

/// Runs the epilog; how it ends changes nothing any more.
pub(crate) async fn epilog(order: &LaunchOrder, site: &Site, outcome: &GroupOutcome) {
    let Some(line) = &order.run.hooks.epilog else { return };
    let never = CancellationToken::new();
    let until = Until::of(order, &never);
    let found = timeout_at(until.late, site.user_of_started(&order.owner)).await;
    let timeout = order.run.hooks.timeout.words();
    let late = || Fault::of_node(format!("looking up user {} took over {timeout}", order.owner));
    let ran = match found.unwrap_or_else(|_| Err(late())) {
        Ok(user) => run(order, site, user.as_ref(), line, Hook::Epilog(outcome), until).await,
        Err(fault) => Err(fault),
    };
    if let Err(fault) = ran {
        tracing::warn!(job_id = %order.job, generation = %order.generation, why = fault.message, "an epilog did not run");
        let rank = Share::of(order, site.inventory.now().node).map_or(0, |share| share.first_rank);
        // The ranks have left it there, as the job's user's.
        let log = OpenOptions::new().append(true).open(site.files.log(order.job, order.generation, rank));
        if let Ok(mut log) = log {
            say(&mut log, &format!("epilog did not run: {}", fault.message));
        }
    }
}

/// Also where its output begins, in which file.
async fn run(
    order: &LaunchOrder,
    site: &Site,
    user: Option<&UnixUser>,
    line: &str,
    hook: Hook<'_>,
    until: Until<'_>,
) -> Result<(End, PathBuf, u64), Fault> {
    let (job, generation) = (order.job, order.generation);
    let node = site.inventory.now().node;
    let mark = format!("{}{HOOK}", environment::mark(node, job, generation));
    // Of an earlier agent there may be something left.
    process::sweep(mark.clone(), None).await;
    if until.withdrawn.is_cancelled() {
        return Err(Fault::of_infrastructure(format!("the group was stopped before its {}", hook.name())));
    }
    let rank = Share::of(order, node).map_or(0, |share| share.first_rank);
    let failed = |error: io::Error| Fault::of_node(format!("starting the {}: {error}", hook.name()));
    site.files.make_group(job, generation, user).map_err(failed)?;
    let mut member = member(order, site, user, line, mark.clone())?;
    if let Hook::Epilog(outcome) = hook {
        member.variables.extend(told(outcome));
    }
    let path = site.files.log(job, generation, rank);
    let mut log = open(&path, user).map_err(failed)?;
    let from = log.metadata().map_or(0, |of| of.len());
    say(&mut log, &format!("{} on node {}: {line}", hook.name(), site.inventory.now().name));
    let began = Instant::now();
    let end = wait(order, site, user, &member, &log, &mark, until).await.map_err(failed)?;
    let how = match end {
        End::Code(code) => format!("exited with code {code}"),
        End::Signal(signal) => format!("was killed by signal {signal}"),
        End::TimedOut => "took too long and was ended".to_owned(),
        End::Withdrawn => "was ended, since the job was stopped".to_owned(),
    };
    say(&mut log, &format!("{} {how} after {:.1} s", hook.name(), began.elapsed().as_secs_f64()));
    Ok((end, path, from))
}

/// Starts it and waits for its end, for that of all it has started, or for its time to be over.
async fn wait(
    order: &LaunchOrder,
    site: &Site,
    user: Option<&UnixUser>,
    member: &Member,
    log: &File,
    mark: &str,
    until: Until<'_>,
) -> io::Result<End> {
    let (job, generation, rank) = (order.job, order.generation, member.rank);
    let confined = tokio::time::timeout_at(until.late, site.confine(order)).await;
    confined.map_err(|_| io::Error::other("its cgroup took too long"))??;
    let mut child = site
        .shell(order, member, user, SHELL)?
        .arg(site.directory(order))
        .args(&member.argv[2..])
        .stdout(log.try_clone()?)
        .stderr(log.try_clone()?)
        .spawn()?;
    let leader = child.id().and_then(|pid| Some(Process { rank, pid, started: process::started(pid)? }));
    let end = tokio::select! {
        status = child.wait() => {
            use std::os::unix::process::ExitStatusExt;
            let status = status?;
            status.code().map(End::Code).or(status.signal().map(End::Signal)).unwrap_or(End::Code(1))
        }
        () = sleep_until(until.late) => End::TimedOut,
        () = until.withdrawn.cancelled() => End::Withdrawn,
    };
    process::sweep(mark.to_owned(), leader).await;
    if let Some(cgroups) = &site.cgroups {
        cgroups.end_rank(job, generation, rank).await;
    }
    Ok(end)
}

/// What a rank would find, for another line.
fn member(
    order: &LaunchOrder,
    site: &Site,
    user: Option<&UnixUser>,
    line: &str,
    mark: String,
) -> Result<Member, Fault> {
    let run =
        headway_types::spec::Run { command: headway_types::spec::Command::Shell(line.to_owned()), ..order.run.clone() };
    let order = LaunchOrder { run, ..order.clone() };
    let mut members = site.members(&order, 0, "", user)?;
    let Some(mut member) = (!members.is_empty()).then(|| members.swap_remove(0)) else {
        return Err(Fault::of_infrastructure("no rank runs on this node"));
    };
    member.stand_aside(mark);
    Ok(member)
}

/// `HEADWAY_OUTCOME` and, where there is one, `HEADWAY_EXIT_CODE`.
fn told(outcome: &GroupOutcome) -> Vec<(String, String)> {
    let (word, code) = match outcome {
        GroupOutcome::Succeeded => ("succeeded", Some(0)),
        GroupOutcome::Stopped => ("stopped", None),
        GroupOutcome::Failed { exit_code, .. } => ("failed", *exit_code),
        GroupOutcome::NotStarted { .. } => ("not_started", None),
    };
    let code = code.map(|code| ("HEADWAY_EXIT_CODE".to_owned(), code.to_string()));
    std::iter::once(("HEADWAY_OUTCOME".to_owned(), word.to_owned())).chain(code).collect()
}

fn open(path: &std::path::Path, user: Option<&UnixUser>) -> io::Result<File> {
    let log = OpenOptions::new().create(true).append(true).mode(0o600).open(path)?;
    give(path, user)?;
    Ok(log)
}

/// The job's own output tells it apart by this.
fn say(log: &mut File, what: &str) {
    let _full_disk = writeln!(log, "--- headway: {what} ---");
}

/// ": cannot reach the store", of what was written from there on.
fn last_lines(path: &std::path::Path, from: u64) -> String {
    let length = std::fs::metadata(path).map_or(0, |of| of.len());
    let text = read_end(path, LAST_OUTPUT.min(length.saturating_sub(from))).unwrap_or_default();
    let is_said = |line: &&str| !line.starts_with("--- headway: ") && !line.trim().is_empty();
    let said = text.lines().filter(is_said).collect::<Vec<_>>().join("\n");
    let last = headway_api::log_text::last_lines(&said, LAST_LINES, LONGEST_LINE);
    if last.is_empty() { String::new() } else { format!(": {}", last.join("; ")) }
}
