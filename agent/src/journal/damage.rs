//! A ledger that cannot be read: it is kept beside the new one for a person to look at, and the agent goes on with the newest that can.
//!
//! What an older ledger does not know of is ended before the node offers its GPUs (`orphans.rs`), and the scheduler takes a ledger
//! without a group for proof that it is gone: nothing runs twice, and what was ended resumes from its last checkpoint.
//! What had succeeded is known by its exit statuses (`recovery.rs`).

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use headway_node::Ledger;
use headway_types::{Condition, ConditionKind};

use crate::AgentError;
use crate::files::Files;

/// What the names of damaged ledgers begin with.
const DAMAGED: &str = "ledger.damaged-";

/// What a file of the journal holds.
pub(super) enum Found {
    Nothing,
    Good(Ledger),
    /// With the ledger that the lines before the damage lead to.
    Damaged(Option<Ledger>, Damage),
}

/// What is wrong with a file.
#[derive(Debug)]
pub(super) struct Damage {
    /// From 1; the whole file, where it is of an agent that wrote no lines.
    pub line: usize,
    /// What is wrong with it, where it is as it was written.
    pub source: Option<serde_json::Error>,
}

/// The newest ledger that can be read where the one at `path` cannot; the damaged files are put aside.
pub(super) fn recover(
    files: &Files,
    (before, damage): (Option<Ledger>, &Damage),
    fresh: Ledger,
) -> Result<Ledger, AgentError> {
    let path = files.ledger();
    let kept = put_aside(&path)?;
    let (ledger, from) = match before {
        Some(ledger) => (ledger, "the lines before the damage"),
        None => match super::look(&files.former_ledger())? {
            Found::Good(ledger) => (ledger, "the generation before it"),
            Found::Damaged(before, _) => {
                put_aside(&files.former_ledger())?;
                before
                    .map_or((fresh, "an empty one"), |ledger| (ledger, "what can be read of the generation before it"))
            }
            Found::Nothing => (fresh, "an empty one"),
        },
    };
    tracing::error!(
        ledger = %path.display(), line = damage.line, error = ?damage.source, kept = %kept.display(), went_on_with = from,
        "the ledger is damaged; workers that the older one does not know will be ended and resume from their last checkpoints"
    );
    Ok(ledger)
}

/// Gives a damaged file a second name, under which it stays once another has taken its place. It is done again without harm.
fn put_aside(path: &Path) -> Result<PathBuf, AgentError> {
    let failed = || AgentError::io(format!("keeping the damaged {}", path.display()));
    let written = fs::metadata(path).and_then(|metadata| metadata.modified()).map_err(failed())?;
    let written = written.duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos();
    let kept = path.with_file_name(format!("{DAMAGED}{written}"));
    match fs::hard_link(path, &kept) {
        Err(error) if error.kind() != ErrorKind::AlreadyExists => Err(failed()(error)),
        _ => Ok(kept),
    }
}

/// Damaged ledgers that nobody has removed yet, in words that stay the same from one look to the next.
pub(crate) fn condition(files: &Files) -> Option<Condition> {
    let names = fs::read_dir(files.root()).into_iter().flatten().flatten().map(|entry| entry.path());
    let damaged = |path: &PathBuf| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(DAMAGED));
    let newest = names.filter(damaged).max_by_key(|path| {
        fs::metadata(path).and_then(|metadata| metadata.modified()).unwrap_or(SystemTime::UNIX_EPOCH)
    })?;
    let message = format!(
        "its ledger was damaged and it went on with an older one, ending what that did not know; look at {} and the agent's log, then \
         remove the file",
        newest.display()
    );
    Some(Condition { kind: ConditionKind::LedgerDamaged, message })
}
