//! The ledger on disk: a file whose first line is the whole ledger and whose others are what has changed since, one
//! line for each event. What an event costs does not grow with what the node has lived through.
//!
//! A line is a JSON array of a checksum and a record, and is on disk before the ledger counts as stored. A crash in the
//! middle of a write leaves a last line that is torn; nothing has followed from it, so it is left out. Any other line
//! that cannot be read is an error: an agent that has lost part of its memory must not go on as if it had not.

use std::fs::{self, OpenOptions};
use std::io::{ErrorKind, Write};
use std::path::PathBuf;

use headway_node::{Ledger, LedgerChange};
use serde::{Deserialize, Serialize};

use crate::AgentError;
use crate::files::{Files, is_full, write_durably};

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
    /// Bytes of the whole ledger and of the changes behind it; `None` where the file does not end with a good line, or
    /// has none yet: it is written anew next time.
    written: Option<(u64, u64)>,
}

impl Journal {
    /// Reads what is there; a node without a file begins with `fresh`.
    pub(crate) fn open(files: Files, fresh: Ledger) -> Result<Self, AgentError> {
        let path = files.ledger();
        let (stored, written) = match fs::read(&path) {
            Ok(text) if text.starts_with(b"{") => {
                // The agents before this one kept the ledger as one document and wrote it anew each time.
                let whole = serde_json::from_slice(&text);
                (whole.map_err(|source| AgentError::Ledger { path: path.clone(), source })?, None)
            }
            Ok(text) => {
                read(&text).map_err(|(line, source)| AgentError::LedgerLine { path: path.clone(), line, source })?
            }
            Err(error) if error.kind() == ErrorKind::NotFound => (fresh, None),
            Err(source) => return Err(AgentError::io(format!("reading {}", path.display()))(source)),
        };
        Ok(Self { files, path, stored, written })
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

    fn replace(&mut self, ledger: &Ledger) -> Result<(), StoreLedgerError> {
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

/// A ledger with how much of its file is the whole and how much changes; `None` where the file ends with a broken line.
type Journalled = (Ledger, Option<(u64, u64)>);

/// The ledger a file leads to, or the number of the line that cannot be read.
fn read(text: &[u8]) -> Result<Journalled, (usize, Option<serde_json::Error>)> {
    let mut ledger: Option<Ledger> = None;
    let (mut whole, mut changes) = (0, 0);
    let mut lines = text.split_inclusive(|byte| *byte == b'\n').zip(1..).peekable();
    while let Some((line, number)) = lines.next() {
        let record = intact(line).map(serde_json::from_slice).transpose().map_err(|error| (number, Some(error)))?;
        match (record, &mut ledger) {
            (Some(Record::Whole(first)), None) => (ledger, whole) = (Some(first), line.len() as u64),
            (Some(Record::Change(change)), Some(ledger)) => {
                ledger.apply(change);
                changes += line.len() as u64;
            }
            (None, Some(ledger)) if lines.peek().is_none() => {
                tracing::warn!(line = number, "left out the last line of the ledger, which was never finished");
                return Ok((ledger.clone(), None));
            }
            _ => return Err((number, None)),
        }
    }
    ledger.map(|ledger| (ledger, Some((whole, changes)))).ok_or((1, None))
}

#[cfg(test)]
mod tests;
