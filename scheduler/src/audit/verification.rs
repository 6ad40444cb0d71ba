//! Whether the audit is what was sealed, page by page, so that neither memory nor a request depends on how long it is.

use headway_types::Timestamp;

use super::chain::{Anchor, Broken, Fault, Walk};
use crate::store::{Store, StoreError};

/// Links that are read at once.
const PIECE: u32 = 500;

/// What was found on a page.
#[derive(Clone, Debug, PartialEq)]
pub struct Verified {
    /// Rows that are as they were sealed.
    pub rows: u64,
    /// The last of them.
    pub last: Option<Anchor>,
    /// The first that is not.
    pub broken: Option<Broken>,
    /// Position after which the next page begins; `None`: this was the last.
    pub next: Option<u64>,
}

impl Store {
    /// Verifies the links after a position, at least so many where there are as many.
    pub async fn verify_audit(&self, after: u64, most: u32) -> Result<Verified, StoreError> {
        let mut walk = self.walk_from(after).await?;
        let begins_after = walk.id;
        let mut found = Verified { rows: 0, last: None, broken: None, next: None };
        loop {
            let links = self.audit_links(walk.position, PIECE).await?;
            for link in &links {
                if let Err(broken) = walk.step(link) {
                    found.broken = Some(broken);
                    return Ok(found);
                }
                found.rows += 1;
                found.last = Some(Anchor { id: link.id, hash: walk.hash });
            }
            let ends = links.len() < PIECE as usize;
            if ends || found.rows >= u64::from(most) {
                found.next = (!ends).then_some(walk.position);
                found.broken = self.beside(begins_after, found.next.map(|_| walk.id)).await?;
                return Ok(found);
            }
        }
    }

    /// What precedes the link after a position.
    async fn walk_from(&self, after: u64) -> Result<Walk, StoreError> {
        let Some(before) = after.checked_sub(1) else { return Ok(Walk::START) };
        let link = self.audit_links(before, 1).await?.into_iter().find(|link| link.seal.position == after);
        Ok(link.map_or(Walk { position: after, ..Walk::START }, |link| Walk {
            position: after,
            hash: link.seal.hash,
            id: link.id,
        }))
    }

    /// Rows beside the chain, among those after `after` up to `until`, or to the newest.
    async fn beside(&self, after: i64, until: Option<i64>) -> Result<Option<Broken>, StoreError> {
        if let Some(id) = self.stray_audit_row(after, until).await? {
            return Ok(Some(Broken::new(
                id,
                Fault::Unsealed,
                "it was added beside the chain, or kept from being sealed",
            )));
        }
        if until.is_some() {
            return Ok(None);
        }
        let lost = self.lost_audit_row().await?;
        Ok(lost.map(|id| Broken::new(id, Fault::Missing, "it waited to be sealed and is gone")))
    }

    /// Whether the chain holds an anchor.
    pub async fn verify_anchor(&self, anchor: Anchor) -> Result<Option<Broken>, StoreError> {
        Ok(match self.seal_of(anchor.id).await? {
            Some(seal) if seal.hash == anchor.hash => None,
            Some(seal) => Some(Broken::new(
                anchor.id,
                Fault::Changed,
                format!(
                    "its hash is {}, not that of the anchor: the chain was made anew, or the database was restored from a backup of before it",
                    seal.hash
                ),
            )),
            None => Some(Broken::new(
                anchor.id,
                Fault::Missing,
                "the anchored row is not in the chain: its end was cut off, or the database was restored from a backup of before it",
            )),
        })
    }

    /// The position after which rows are of this moment or later.
    pub async fn audit_since(&self, since: Option<Timestamp>) -> Result<u64, StoreError> {
        match since {
            Some(since) => self.audit_links_before(since).await,
            None => Ok(0),
        }
    }
}
