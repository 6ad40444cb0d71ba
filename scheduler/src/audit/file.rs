//! The audit as a file: sealed rows in the order of the chain, as JSON lines or as CSV, and whether such a file is what was sealed. No server is asked.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::Path;

use chrono::{DateTime, Utc};
use headway_api::v1;
use headway_types::Timestamp;

use super::chain::{Anchor, Broken, Fault, Hash, Link, Seal, Walk};
use crate::store::{AuditEntry, AuditLine, AuditResult};

/// How rows are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, strum::EnumString)]
#[strum(serialize_all = "snake_case")]
pub enum Form {
    /// A JSON object a line.
    #[default]
    Jsonl,
    Csv,
}

/// The first line of a file in CSV. What is a document or a list is JSON in its cell; what is absent is empty.
const COLUMNS: [&str; 17] = [
    "position",
    "id",
    "at",
    "actor",
    "token_id",
    "address",
    "action",
    "subjects",
    "reason",
    "before",
    "after",
    "request_id",
    "result",
    "code",
    "previous_hash",
    "hash",
    "version",
];
/// Of the encoding that hashes are over.
const VERSION: &str = "1";

/// Why a file could not be read.
#[derive(Debug, thiserror::Error)]
pub enum AuditFileError {
    #[error("reading {path}")]
    Read {
        path: String,
        #[source]
        source: std::io::Error,
    },
    #[error("line {line} is no row of an exported audit: {message}")]
    NoRow { line: u64, message: String },
    #[error("the file holds no rows")]
    Empty,
}

/// What was found in a file.
#[derive(Clone, Debug, PartialEq)]
pub struct FileVerified {
    /// Rows that are as they were sealed.
    pub rows: u64,
    /// The file begins with the first row there has been. Else what was before is taken on trust.
    pub from_the_first: bool,
    /// The last row that is as it was sealed.
    pub last: Option<Anchor>,
    pub broken: Option<Broken>,
}

impl Form {
    pub fn media(self) -> &'static str {
        match self {
            Self::Jsonl => "application/x-ndjson",
            Self::Csv => "text/csv; charset=utf-8",
        }
    }

    /// What comes before the rows.
    pub fn head(self) -> Vec<u8> {
        match self {
            Self::Jsonl => Vec::new(),
            Self::Csv => record(COLUMNS.map(str::to_owned).as_slice()),
        }
    }

    /// Those that are gone are left out: whoever verifies finds the gap.
    pub fn rows(self, links: &[Link]) -> Vec<u8> {
        let rows = links.iter().filter_map(sealed_line);
        match self {
            Self::Jsonl => {
                rows.flat_map(|row| [serde_json::to_vec(&row).unwrap_or_default(), b"\n".to_vec()].concat()).collect()
            }
            Self::Csv => rows.flat_map(|row| record(&cells(&row))).collect(),
        }
    }
}

/// On the wire and in files.
pub fn sealed_line(link: &Link) -> Option<v1::SealedAuditLine> {
    let Seal { position, previous, hash } = link.seal;
    let line = v1::AuditLine::from(link.line.as_ref()?);
    Some(v1::SealedAuditLine { line, position, previous_hash: previous.to_string(), hash: hash.to_string() })
}

impl From<&AuditLine> for v1::AuditLine {
    fn from(of: &AuditLine) -> Self {
        let entry = of.entry.clone();
        Self {
            id: of.id,
            at: DateTime::from_timestamp_micros(entry.done_at.0).unwrap_or_default(),
            actor: entry.actor,
            token_id: entry.token_id,
            address: entry.address,
            action: entry.action,
            subjects: entry.subjects,
            reason: entry.reason,
            before: entry.before,
            after: entry.after,
            request_id: entry.request_id,
            result: <&str>::from(entry.result).into(),
            code: entry.code,
        }
    }
}

fn link(of: v1::SealedAuditLine) -> Result<Link, String> {
    let v1::SealedAuditLine { line, position, previous_hash, hash } = of;
    let read = |text: String| text.parse::<Hash>().map_err(|_| format!("{text:?} is no SHA-256"));
    let entry = AuditEntry {
        done_at: Timestamp(line.at.timestamp_micros()),
        actor: line.actor,
        token_id: line.token_id,
        address: line.address,
        action: line.action,
        subjects: line.subjects,
        reason: line.reason,
        before: line.before,
        after: line.after,
        request_id: line.request_id,
        result: line.result.parse::<AuditResult>().map_err(|_| format!("{:?} is no result", line.result))?,
        code: line.code,
    };
    let seal = Seal { position, previous: read(previous_hash)?, hash: read(hash)? };
    Ok(Link { id: line.id, seal, line: Some(AuditLine { id: line.id, entry }) })
}

fn cells(row: &v1::SealedAuditLine) -> Vec<String> {
    let line = &row.line;
    let json = |value: &Option<serde_json::Value>| value.as_ref().map(ToString::to_string).unwrap_or_default();
    let some = |text: &Option<String>| text.clone().unwrap_or_default();
    vec![
        row.position.to_string(),
        line.id.to_string(),
        line.at.to_rfc3339_opts(chrono::SecondsFormat::Micros, true),
        line.actor.clone(),
        line.token_id.map(|id| id.to_string()).unwrap_or_default(),
        some(&line.address),
        line.action.clone(),
        serde_json::Value::from(line.subjects.clone()).to_string(),
        some(&line.reason),
        json(&line.before),
        json(&line.after),
        some(&line.request_id),
        line.result.clone(),
        some(&line.code),
        row.previous_hash.clone(),
        row.hash.clone(),
        VERSION.into(),
    ]
}

fn record(cells: &[String]) -> Vec<u8> {
    let mut writer = csv::Writer::from_writer(Vec::new());
    // Nothing that is written into memory fails.
    let written = writer.write_record(cells).is_ok();
    writer.into_inner().ok().filter(|_| written).unwrap_or_default()
}

fn of_cells(row: &csv::StringRecord) -> Result<v1::SealedAuditLine, String> {
    let mut cells = row.iter().map(str::to_owned);
    let mut cell = |name: &str| cells.next().ok_or_else(|| format!("it has no {name}"));
    let some = |text: String| Some(text).filter(|text| !text.is_empty());
    let wrong = |name: &'static str| move |error: &dyn std::fmt::Display| format!("{name}: {error}");
    let json = |name, text: String| match some(text) {
        None => Ok(None),
        Some(text) => serde_json::from_str(&text).map(Some).map_err(|error| wrong(name)(&error)),
    };
    let position = cell("position")?.parse().map_err(|error| wrong("position")(&error))?;
    let line = v1::AuditLine {
        id: cell("id")?.parse().map_err(|error| wrong("id")(&error))?,
        at: cell("at")?.parse::<DateTime<Utc>>().map_err(|error| wrong("at")(&error))?,
        actor: cell("actor")?,
        token_id: some(cell("token_id")?)
            .map(|id| id.parse())
            .transpose()
            .map_err(|error| wrong("token_id")(&error))?,
        address: some(cell("address")?),
        action: cell("action")?,
        subjects: serde_json::from_str(&cell("subjects")?).map_err(|error| wrong("subjects")(&error))?,
        reason: some(cell("reason")?),
        before: json("before", cell("before")?)?,
        after: json("after", cell("after")?)?,
        request_id: some(cell("request_id")?),
        result: cell("result")?,
        code: some(cell("code")?),
    };
    let (previous_hash, hash) = (cell("previous_hash")?, cell("hash")?);
    match cell("version")?.as_str() {
        VERSION => Ok(v1::SealedAuditLine { line, position, previous_hash, hash }),
        other => Err(format!("version {other} is of a newer release")),
    }
}

/// Whether a file is what was sealed, and holds the anchor where one is given. Reads row by row, in either form.
pub fn verify_file(path: &Path, anchor: Option<Anchor>) -> Result<FileVerified, AuditFileError> {
    let failed = |source| AuditFileError::Read { path: path.display().to_string(), source };
    let mut file = BufReader::new(File::open(path).map_err(failed)?);
    let is_csv = file.fill_buf().map_err(failed)?.starts_with(COLUMNS[0].as_bytes());
    let no_row = |index: usize, message| AuditFileError::NoRow { line: index as u64 + 1, message };
    if is_csv {
        let rows = csv::Reader::from_reader(file).into_records().enumerate().map(|(index, row)| {
            let row = row.map_err(|error| no_row(index + 1, error.to_string()))?;
            of_cells(&row).and_then(link).map_err(|message| no_row(index + 1, message))
        });
        return verify(rows, anchor);
    }
    let rows = file.lines().enumerate().map(|(index, line)| {
        let row = serde_json::from_str(&line.map_err(failed)?).map_err(|error| no_row(index, error.to_string()))?;
        link(row).map_err(|message| no_row(index, message))
    });
    verify(rows, anchor)
}

fn verify(
    links: impl Iterator<Item = Result<Link, AuditFileError>>,
    anchor: Option<Anchor>,
) -> Result<FileVerified, AuditFileError> {
    let mut walk: Option<Walk> = None;
    let mut found = FileVerified { rows: 0, from_the_first: false, last: None, broken: None };
    let mut anchored = anchor.is_none();
    for link in links {
        let link = link?;
        found.from_the_first |= walk.is_none() && link.seal.position == 1;
        let walk = walk.get_or_insert_with(|| match link.seal.position {
            0 | 1 => Walk::START,
            _ => Walk::before(&link),
        });
        if let Err(broken) = walk.step(&link) {
            found.broken = Some(broken);
            return Ok(found);
        }
        (found.rows, found.last) = (found.rows + 1, Some(Anchor { id: link.id, hash: walk.hash }));
        if let Some(anchor) = anchor.filter(|anchor| anchor.id == link.id) {
            if anchor.hash != walk.hash {
                let detail = format!("its hash is {}, not that of the anchor: the chain was made anew", walk.hash);
                found.broken = Some(Broken::new(link.id, Fault::Changed, detail));
                return Ok(found);
            }
            anchored = true;
        }
    }
    if walk.is_none() {
        return Err(AuditFileError::Empty);
    }
    if let Some(anchor) = anchor.filter(|_| !anchored) {
        found.broken = Some(Broken::new(anchor.id, Fault::Missing, "the anchored row is not in the file"));
    }
    Ok(found)
}
