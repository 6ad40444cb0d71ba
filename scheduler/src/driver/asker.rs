//! Who waits for the reply to a request. The first reply to a request with a key is written as it will be shown before its changes
//! are committed, and committed with them: whoever repeats the request gets the same, whatever has become of its subject.

use std::collections::BTreeMap;

use headway_engine::event::IdempotencyKey;
use headway_engine::record::Origin;
use headway_engine::{Change, Outcome, Reply, Request, RequestId, View};
use tokio::sync::oneshot;

use crate::shown::{Show, Shown};
use crate::spans::{self, Cause};

#[derive(Debug)]
pub struct Asker {
    reply: oneshot::Sender<(Reply, Option<Shown>)>,
    show: Option<Show>,
    origin: Option<Origin>,
    key: Option<IdempotencyKey>,
    shown: Option<Shown>,
    cause: Option<Cause>,
}

impl Asker {
    /// `origin`: where the request came from, for the audit.
    pub fn new(reply: oneshot::Sender<(Reply, Option<Shown>)>, show: Option<Show>, origin: Option<Origin>) -> Self {
        Self { reply, show, origin, key: None, shown: None, cause: spans::cause() }
    }

    pub(super) fn heed_key(&mut self, body: &Request) {
        self.key = match body {
            Request::Once { key, .. } | Request::Submit { idempotency: Some(key), .. } => Some(key.clone()),
            _ => None,
        };
    }

    pub(super) fn hear(self, reply: Reply) {
        // The asker may have given up meanwhile.
        let _ = self.reply.send((reply, self.shown));
    }
}

/// The spans of the requests that a batch replies to.
pub(super) fn causes(outcome: &Outcome, pending: &BTreeMap<RequestId, Asker>) -> Vec<Cause> {
    let askers = outcome.replies.iter().filter_map(|(request, _)| pending.get(request));
    askers.filter_map(|asker| asker.cause.clone()).collect()
}

/// Says of what a batch did where it was asked for.
pub(super) fn tell_origins(outcome: &mut Outcome, pending: &BTreeMap<RequestId, Asker>) {
    for change in &mut outcome.changes {
        if let Change::Deed(deed) = change {
            deed.origin = pending.get(&deed.request).and_then(|asker| asker.origin.clone());
        }
    }
}

/// Shows what a batch replies to requests with a key of their own, as `view` will show it once the batch is committed.
pub(super) fn keep_first_replies(outcome: &mut Outcome, view: &View, pending: &mut BTreeMap<RequestId, Asker>) {
    let mut kept = BTreeMap::new();
    for (request, reply) in &outcome.replies {
        let Some(asker) = pending.get_mut(request) else { continue };
        let (Some(show), Some(key)) = (&asker.show, &asker.key) else { continue };
        asker.shown = show.of(reply, view);
        kept.extend(asker.shown.as_ref().and_then(Shown::kept).map(|text| (key.clone(), text)));
    }
    for change in &mut outcome.changes {
        if let Change::Idempotency(record) = change {
            record.reply = kept.remove(&record.key);
        }
    }
}
