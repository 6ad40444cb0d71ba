//! The ledger on disk: a file whose first line is the whole ledger and whose others are what has changed since, one
//! line for each event. What an event costs does not grow with what the node has lived through.
//!
//! A line is a JSON array of a checksum and a record, and is on disk before the ledger counts as stored. A crash in the
//! middle of a write leaves a last line that is torn; nothing has followed from it, so it is left out. Any other line
//! that cannot be read is damage, which is told loudly and survived (`journal/damage.rs`): the file before the present one is kept as
//! an older generation.

mod damage;

use std::fs::{self, OpenOptions};
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};

use headway_node::{Ledger, LedgerChange};
use serde::{Deserialize, Serialize};

use crate::AgentError;
use crate::files::{Files, is_full, write_durably};
use crate::recovery::recover_successes;
pub(crate) use damage::condition;
use damage::{Damage, Found};

/// Changes may take up this much, or as much as the whole ledger, before the file is written anew.
const LEAST_CHANGES: u64 = 256 << 10;

/// Why the ledger was not stored.
#[derive(Debug, thiserror::Error)]
pub(crate) enum StoreLedgerError {
    /// The one stored before stands; there may be room later.
    #[error("the disk is full")]
    Full,
    #[error(transparent)]
    Fatal(AgentError),
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Record {
    Whole(Ledger),
    Change(LedgerChange),
}

/// The file, and what it says.
#[derive(Debug)]
pub(crate) struct Journal {
    files: Files,
    path: PathBuf,
    stored: Ledger,
    /// Bytes of the whole ledger and of the changes behind it; `None` where this agent has written none yet, or may not have finished a
    /// line: it is written anew next time.
    written: Option<(u64, u64)>,
}

impl Journal {
    /// Reads what is there; a node without a file begins with `fresh`. Where the file is damaged, the newest ledger that can be read takes
    /// its place on disk at once.
    pub(crate) fn open(files: Files, fresh: Ledger) -> Result<Self, AgentError> {
        let path = files.ledger();
        let found = look(&path)?;
        let (damaged, lost) = (matches!(found, Found::Damaged(..)), !matches!(found, Found::Good(_)));
        let mut stored = match found {
            Found::Good(ledger) => ledger,
            Found::Damaged(before, damage) => damage::recover(&files, (before, &damage), fresh)?,
            Found::Nothing => fresh,
        };
        let has_recovered = lost && recover_successes(&files, &mut stored) > 0;
        // Each agent begins a new file, so that the one before it is whole should this one be damaged.
        let mut journal = Self { files, path, stored, written: None };
        if damaged || has_recovered {
            journal.write_anew(&journal.stored.clone()).map_err(|error| match error {
                StoreLedgerError::Fatal(error) => error,
                StoreLedgerError::Full => AgentError::io("storing the ledger")(ErrorKind::StorageFull.into()),
            })?;
        }
        Ok(journal)
    }

    /// The ledger as it was last stored.
    pub(crate) fn ledger(&self) -> &Ledger {
        &self.stored
    }

    /// Returns only once the ledger is on disk, or there is no room for it even without the reserve.
    pub(crate) fn store(&mut self, ledger: Ledger) -> Result<(), StoreLedgerError> {
        if !self.append(&ledger)? {
            // Whatever became of a line that was begun, a file that is written anew does not hold it.
            self.written = None;
            self.replace(&ledger)?;
        }
        self.stored = ledger;
        Ok(())
    }

    /// Adds what has changed; false where the file has to be written anew.
    fn append(&mut self, ledger: &Ledger) -> Result<bool, StoreLedgerError> {
        let Some((whole, changes)) = self.written.filter(|(whole, changes)| *changes <= LEAST_CHANGES.max(*whole))
        else {
            return Ok(false);
        };
        let line = self.line(&Record::Change(ledger.change_since(&self.stored)))?;
        let write = || {
            let mut file = OpenOptions::new().append(true).open(&self.path)?;
            file.write_all(&line)?;
            file.sync_data()
        };
        match write() {
            Ok(()) => self.written = Some((whole, changes + line.len() as u64)),
            Err(error) => {
                tracing::warn!(%error, "cannot add to the ledger; writing it anew");
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Keeps the file as the older generation and begins another.
    fn replace(&mut self, ledger: &Ledger) -> Result<(), StoreLedgerError> {
        let former = self.files.former_ledger();
        let _none_yet = fs::remove_file(&former);
        match fs::hard_link(&self.path, &former) {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                tracing::warn!(%error, "cannot keep an older generation of the ledger");
            }
            _ => {}
        }
        self.write_anew(ledger)
    }

    fn write_anew(&mut self, ledger: &Ledger) -> Result<(), StoreLedgerError> {
        let line = self.line(&Record::Whole(ledger.clone()))?;
        let stored = match write_durably(&self.path, &line) {
            Err(error) if is_full(&error) => {
                tracing::warn!("the disk is full; giving up the reserve for the ledger");
                self.files.give_up_reserve();
                write_durably(&self.path, &line)
            }
            stored => stored,
        };
        stored.map_err(|error| match is_full(&error) {
            true => StoreLedgerError::Full,
            false => StoreLedgerError::Fatal(AgentError::io("storing the ledger")(error)),
        })?;
        self.written = Some((line.len() as u64, 0));
        Ok(())
    }

    fn line(&self, record: &Record) -> Result<Vec<u8>, StoreLedgerError> {
        let unwritable = |source| StoreLedgerError::Fatal(AgentError::Ledger { path: self.path.clone(), source });
        line(record).map_err(unwritable)
    }
}

/// `["<CRC-32 of the record in hex>",<record>]`
fn line(record: &Record) -> serde_json::Result<Vec<u8>> {
    let record = serde_json::to_string(record)?;
    Ok(format!("[\"{:08x}\",{record}]\n", crc32fast::hash(record.as_bytes())).into_bytes())
}

/// The record of a line as it was written; `None` of one that was not finished, or that has changed since.
fn intact(line: &[u8]) -> Option<&[u8]> {
    let (sum, record) = line.strip_prefix(b"[\"")?.split_at_checked(8)?;
    let record = record.strip_prefix(b"\",")?.strip_suffix(b"]\n")?;
    let sum = u32::from_str_radix(std::str::from_utf8(sum).ok()?, 16).ok()?;
    (sum == crc32fast::hash(record)).then_some(record)
}

/// What the file holds; an error only where that cannot be told.
fn look(path: &Path) -> Result<Found, AgentError> {
    match fs::read(path) {
        // The agents before this one kept the ledger as one document and wrote it anew each time.
        Ok(text) if text.starts_with(b"{") => Ok(match serde_json::from_slice(&text) {
            Ok(ledger) => Found::Good(ledger),
            Err(source) => Found::Damaged(None, Damage { line: 1, source: Some(source) }),
        }),
        Ok(text) => Ok(read(&text)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(Found::Nothing),
        Err(source) => Err(AgentError::io(format!("reading {}", path.display()))(source)),
    }
}

/// The ledger that a file of lines leads to.
fn read(text: &[u8]) -> Found {
    let mut ledger: Option<Ledger> = None;
    let mut lines = text.split_inclusive(|byte| *byte == b'\n').zip(1..).peekable();
    while let Some((line, number)) = lines.next() {
        let record = match intact(line).map(serde_json::from_slice).transpose() {
            Ok(record) => record,
            Err(source) => return Found::Damaged(ledger, Damage { line: number, source: Some(source) }),
        };
        match (record, &mut ledger) {
            (Some(Record::Whole(first)), None) => ledger = Some(first),
            (Some(Record::Change(change)), Some(ledger)) => ledger.apply(change),
            (None, Some(_)) if lines.peek().is_none() => {
                tracing::warn!(line = number, "left out the last line of the ledger, which was never finished");
            }
            _ => return Found::Damaged(ledger, Damage { line: number, source: None }),
        }
    }
    match ledger {
        Some(ledger) => Found::Good(ledger),
        None => Found::Damaged(None, Damage { line: 1, source: None }),
    }
}

#[cfg(test)]
mod tests;
