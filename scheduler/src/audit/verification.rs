//! Whether the audit is what was sealed, page by page, so that neither memory nor a request depends on how long it is.

use headway_types::Timestamp;

use super::chain::{Anchor, Broken, Fault, Link, Walk};
use crate::store::{AuditStart, Store, StoreError};

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
        let start = self.audit_start().await?;
        let mut walk = self.walk_from(after, start).await?;
        let begins_after = walk.id;
        if let Some(start) = start.filter(|start| after <= start.position)
            && !self.is_audit_pruning_recorded(start).await?
        {
            let detail = "lines up to here are gone, and no line tells that they were pruned";
            let broken = Some(Broken::new(start.anchor.id, Fault::Missing, detail));
            return Ok(Verified { rows: 0, last: None, broken, next: None });
        }
        let mut found = Verified { rows: 0, last: None, broken: None, next: None };
        'pieces: loop {
            let links = self.audit_links(walk.position, PIECE).await?;
            for link in &links {
                if let Err(broken) = walk.step(link) {
                    // What was pruned meanwhile is no fault: the walk goes on behind it.
                    let start = self.audit_start().await?.filter(|start| start.position > walk.position);
                    let Some(start) = start else {
                        found.broken = Some(broken);
                        return Ok(found);
                    };
                    walk = Walk::after(start);
                    continue 'pieces;
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

    /// What precedes the link after a position. `start`: where the chain begins, if lines were pruned.
    async fn walk_from(&self, after: u64, start: Option<AuditStart>) -> Result<Walk, StoreError> {
        if let Some(start) = start.filter(|start| after <= start.position) {
            return Ok(Walk::after(start));
        }
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
        let start = self.audit_start().await?;
        Ok(match self.seal_of(anchor.id).await? {
            Some(seal) if seal.hash == anchor.hash => None,
            None if start.is_some_and(|start| start.anchor == anchor) => None,
            None if start.is_some_and(|start| anchor.id < start.anchor.id) => Some(Broken::new(
                anchor.id,
                Fault::Unknown,
                "no such row is kept, and rows with higher ids were pruned (--audit-days): an anchor has no date, so whether \
                 the anchored row was pruned too, or there ever was one, cannot be told. Verify an export of it, or a \
                 younger anchor; if the anchor is younger than a year, the beginning of the chain was cut off",
            )),
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

    /// Removes the oldest lines of before this moment, so many at most, once they are a year old; returns how many.
    /// Lines that are not as they were sealed stay for people to see.
    pub async fn prune_audit(&self, before: Timestamp, most: u32, now: Timestamp) -> Result<u64, StoreError> {
        let start = self.audit_start().await?;
        let mut walk = start.map_or(Walk::START, Walk::after);
        let links = self.audit_links(walk.position, most).await?;
        // Up to the first that is younger, whatever the times behind it.
        let is_old = |link: &&Link| link.line.as_ref().is_none_or(|line| line.entry.done_at < before);
        let mut up_to = None;
        for link in links.iter().take_while(is_old) {
            if let Err(broken) = walk.step(link) {
                tracing::error!(
                    id = broken.id,
                    detail = broken.detail,
                    "the audit is not as it was sealed and is not pruned: headway audit verify"
                );
                return Ok(0);
            }
            up_to = Some(link.seal.position);
        }
        match up_to {
            Some(up_to) => self.remove_audit_lines(up_to, now).await,
            None => Ok(0),
        }
    }

    /// Returns the position after which all rows of this moment or later stand.
    pub async fn audit_since(&self, since: Option<Timestamp>) -> Result<u64, StoreError> {
        match since {
            Some(since) => self.audit_position_before(since).await,
            None => Ok(0),
        }
    }
}
