//! The chain of the audit: what a row is sealed with, and whether rows follow one another as they were sealed.
//!
//! Pure. The encoding is fixed by its version: whoever changes it makes another, and verifies the older as before.

use std::fmt::{self, Write as _};
use std::str::FromStr;

use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use crate::store::{AuditLine, AuditStart};

/// The first line of what is hashed.
const VERSION: &str = "headway-audit-1";

/// A SHA-256.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Hash(pub [u8; 32]);

impl Hash {
    /// What the first row of a chain follows.
    pub const NOTHING: Self = Self([0; 32]);
}

impl fmt::Display for Hash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex::encode(self.0))
    }
}

impl fmt::Debug for Hash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for Hash {
    type Err = NoAnchor;

    fn from_str(text: &str) -> Result<Self, NoAnchor> {
        let mut hash = [0; 32];
        hex::decode_to_slice(text, &mut hash).map_err(|_| NoAnchor)?;
        Ok(Self(hash))
    }
}

/// A row and its hash, kept elsewhere: whatever was sealed up to it can be held to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Anchor {
    pub id: i64,
    pub hash: Hash,
}

/// Why a text is no anchor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("an anchor is the id of a row and its hash, as `headway audit head` prints them: 4711:9f86d0…")]
pub struct NoAnchor;

impl fmt::Display for Anchor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.id, self.hash)
    }
}

impl FromStr for Anchor {
    type Err = NoAnchor;

    fn from_str(text: &str) -> Result<Self, NoAnchor> {
        let (id, hash) = text.trim().split_once(':').ok_or(NoAnchor)?;
        Ok(Self { id: id.parse().map_err(|_| NoAnchor)?, hash: hash.parse()? })
    }
}

/// Where a row stands in the chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seal {
    /// From 1, without gaps.
    pub position: u64,
    /// Of the row before.
    pub previous: Hash,
    pub hash: Hash,
}

impl Seal {
    /// Of a row that follows `previous`.
    pub fn of(line: &AuditLine, position: u64, previous: Hash) -> Self {
        Self { position, previous, hash: hash(line, position, previous) }
    }
}

/// A link of the chain, as it is stored.
#[derive(Clone, Debug, PartialEq)]
pub struct Link {
    /// Of the row.
    pub id: i64,
    pub seal: Seal,
    /// `None`: it is gone.
    pub line: Option<AuditLine>,
}

/// What is wrong with a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub enum Fault {
    /// It is not what was sealed.
    Changed,
    /// It, or rows before it, are gone.
    Missing,
    /// It does not follow the row that it was sealed after.
    OutOfOrder,
    /// It was never sealed, and does not wait for it either.
    Unsealed,
    /// Lines of its age were pruned: nobody can tell whether it was one of them.
    Unknown,
}

/// The first row that is not as it was sealed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Broken {
    pub id: i64,
    pub fault: Fault,
    /// For people.
    pub detail: String,
}

impl Broken {
    pub fn new(id: i64, fault: Fault, detail: impl Into<String>) -> Self {
        Self { id, fault, detail: detail.into() }
    }
}

/// Walks along a chain, link by link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Walk {
    /// Of the last link.
    pub position: u64,
    pub hash: Hash,
    /// The highest of those that were met.
    pub id: i64,
}

impl Walk {
    /// From the first row there has been.
    pub const START: Self = Self { position: 0, hash: Hash::NOTHING, id: 0 };

    /// From the first row that is left where older ones were pruned.
    pub fn after(start: AuditStart) -> Self {
        Self { position: start.position, hash: start.anchor.hash, id: 0 }
    }

    /// Takes the word of a link for what was before it.
    pub fn before(link: &Link) -> Self {
        Self { position: link.seal.position.saturating_sub(1), hash: link.seal.previous, id: 0 }
    }

    /// On to the next link, if it is sound.
    pub fn step(&mut self, link: &Link) -> Result<(), Broken> {
        let broken = |fault, detail: String| Err(Broken::new(link.id, fault, detail));
        let Seal { position, previous, hash: sealed } = link.seal;
        if position != self.position + 1 {
            let gone = position.saturating_sub(self.position + 1);
            return match gone {
                0 => {
                    broken(Fault::OutOfOrder, format!("it stands at {position} in the chain, after {}", self.position))
                }
                1 => broken(Fault::Missing, "the row that was sealed before it is gone".into()),
                _ => broken(Fault::Missing, format!("{gone} rows that were sealed before it are gone")),
            };
        }
        let Some(line) = &link.line else {
            return broken(Fault::Missing, "it was sealed and is gone".into());
        };
        if previous != self.hash {
            let detail = format!(
                "it was sealed after a row with the hash {previous}, and the one before it has {}: rows were changed and sealed anew, or stand in another order",
                self.hash
            );
            return broken(Fault::OutOfOrder, detail);
        }
        if hash(line, position, previous) != sealed {
            return broken(Fault::Changed, "it is not what was sealed".into());
        }
        *self = Self { position, hash: sealed, id: self.id.max(link.id) };
        Ok(())
    }
}

fn hash(line: &AuditLine, position: u64, previous: Hash) -> Hash {
    Hash(Sha256::digest(encoded(line, position, previous)).into())
}

/// What is hashed: the version, and below it one object with its keys in the order of their bytes and nothing between its tokens. An empty text
/// is told as none, so that a table of texts holds all of it.
fn encoded(line: &AuditLine, position: u64, previous: Hash) -> String {
    let entry = &line.entry;
    let some = |text: &Option<String>| text.clone().filter(|text| !text.is_empty());
    let object = json!({
        "action": entry.action,
        "actor": entry.actor,
        "address": some(&entry.address),
        "after": entry.after,
        "at_microseconds": entry.done_at.0,
        "before": entry.before,
        "code": some(&entry.code),
        "id": line.id,
        "position": position,
        "previous": previous.to_string(),
        "reason": some(&entry.reason),
        "request_id": some(&entry.request_id),
        "result": <&str>::from(entry.result),
        "subjects": entry.subjects,
        "token_id": entry.token_id,
    });
    let mut text = format!("{VERSION}\n");
    write(&object, &mut text);
    text
}

/// As JSON, whatever order the keys of an object are kept in here.
fn write(value: &Value, into: &mut String) {
    let list = |into: &mut String, items: &mut dyn Iterator<Item = (Option<&str>, &Value)>| {
        for (index, (key, item)) in items.enumerate() {
            if index > 0 {
                into.push(',');
            }
            if let Some(key) = key {
                let _ = write!(into, "{}:", Value::from(key));
            }
            write(item, into);
        }
    };
    match value {
        Value::Array(items) => {
            into.push('[');
            list(into, &mut items.iter().map(|item| (None, item)));
            into.push(']');
        }
        Value::Object(fields) => {
            let mut fields: Vec<(Option<&str>, &Value)> =
                fields.iter().map(|(key, item)| (Some(&**key), item)).collect();
            fields.sort_by_key(|(key, _)| *key);
            into.push('{');
            list(into, &mut fields.into_iter());
            into.push('}');
        }
        // A text cannot fail to be written to.
        plain => drop(write!(into, "{plain}")),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use headway_types::Timestamp;

    use super::*;
    use crate::store::{AuditEntry, AuditResult};

    fn line(id: i64) -> AuditLine {
        let entry = AuditEntry {
            done_at: Timestamp(1_790_000_000_123_456),
            actor: "user:ada".into(),
            token_id: None,
            address: Some("10.0.0.7".into()),
            action: "update_job".into(),
            subjects: vec!["job:1".into()],
            reason: Some("ein \"Grund\"\nü".into()),
            before: Some(json!({"spec.priority": 50, "b": {"z": 1.5, "a": null}})),
            after: Some(json!({"spec.priority": 70})),
            request_id: None,
            result: AuditResult::Done,
            code: None,
        };
        AuditLine { id, entry }
    }

    fn chain(rows: u64) -> Vec<Link> {
        let mut previous = Hash::NOTHING;
        let link = |position: u64| {
            let line = line(position as i64 * 10);
            let seal = Seal::of(&line, position, previous);
            previous = seal.hash;
            Link { id: line.id, seal, line: Some(line) }
        };
        (1..=rows).map(link).collect()
    }

    fn walk(links: &[Link]) -> Result<Walk, (i64, Fault)> {
        let mut walk = Walk::START;
        links.iter().try_for_each(|link| walk.step(link)).map_err(|broken| (broken.id, broken.fault))?;
        Ok(walk)
    }

    /// Chains that are kept for years are verified by it: this text and this hash never change.
    #[test]
    fn the_encoding_stays_what_it_is() {
        let text = encoded(&line(7), 3, Hash([0xab; 32]));
        let previous = "ab".repeat(32);
        let expected = concat!(
            "headway-audit-1\n",
            r#"{"action":"update_job","actor":"user:ada","address":"10.0.0.7","after":{"spec.priority":70},"#,
            r#""at_microseconds":1790000000123456,"before":{"b":{"a":null,"z":1.5},"spec.priority":50},"code":null,"id":7,"#,
            r#""position":3,"previous":"PREVIOUS","reason":"ein \"Grund\"\nü","request_id":null,"result":"done","#,
            r#""subjects":["job:1"],"token_id":null}"#
        );
        assert_eq!(text, expected.replace("PREVIOUS", &previous));
        let hash = hash(&line(7), 3, Hash([0xab; 32])).to_string();
        assert_eq!(hash, "9d3164dcfe78696798319552acd8db8ea1d52dd71e77dda2857b3e7a61abe564");
        let empty = AuditLine { entry: AuditEntry { code: Some(String::new()), ..line(7).entry }, ..line(7) };
        assert_eq!(encoded(&empty, 3, Hash([0xab; 32])), text);
    }

    #[test]
    fn a_sound_chain_is_walked_to_its_end() {
        let links = chain(4);
        let end = walk(&links).unwrap();
        assert_eq!((end.position, end.hash, end.id), (4, links[3].seal.hash, 40));
        let mut rest = Walk::before(&links[2]);
        assert!(links[2..].iter().all(|link| rest.step(link).is_ok()));
    }

    #[test]
    fn the_first_row_that_is_not_as_it_was_sealed_is_named() {
        let mut changed = chain(4);
        changed[1].line.as_mut().unwrap().entry.actor = "user:eve".into();
        assert_eq!(walk(&changed), Err((20, Fault::Changed)));

        let mut gone = chain(4);
        gone[2].line = None;
        assert_eq!(walk(&gone), Err((30, Fault::Missing)));
        let mut cut = chain(4);
        cut.drain(1..3);
        assert_eq!(walk(&cut), Err((40, Fault::Missing)));

        // The row is changed and its own seal made anew: the next one still tells.
        let mut resealed = chain(4);
        let first = resealed[0].seal.hash;
        let row = resealed[1].line.as_mut().unwrap();
        row.entry.actor = "user:eve".into();
        resealed[1].seal = Seal::of(row, 2, first);
        assert_eq!(walk(&resealed), Err((30, Fault::OutOfOrder)));

        let mut swapped = chain(4);
        (swapped[1].seal.position, swapped[2].seal.position) = (3, 2);
        swapped.swap(1, 2);
        assert_eq!(walk(&swapped), Err((30, Fault::OutOfOrder)));
        let mut repeated = chain(2);
        repeated.push(repeated[1].clone());
        assert_eq!(walk(&repeated), Err((20, Fault::OutOfOrder)));
    }

    #[test]
    fn an_anchor_is_read_as_it_is_printed() {
        let anchor = Anchor { id: 4711, hash: Hash([7; 32]) };
        assert_eq!(anchor.to_string().parse(), Ok(anchor));
        for wrong in ["", "4711", "4711:", "x:00", "4711:0707"] {
            assert_eq!(wrong.parse::<Anchor>(), Err(NoAnchor), "{wrong}");
        }
    }
}
