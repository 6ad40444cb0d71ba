//! What a request would be answered, were it made now. Everything that decides it is asked as it is for the request itself,
//! on a copy of the engine that is dropped with whatever the request has done to it: nothing of it is stored, told or sent.

use crate::engine::Engine;
use crate::event::{Actor, Request};
use crate::outcome::Reply;

impl Engine {
    pub(super) fn dry_run(&mut self, actor: &Actor, body: Request) -> Reply {
        // The keys of a week are many, and no reply depends on them.
        let keys = std::mem::take(&mut self.facts.keys);
        let mut copy = self.clone();
        self.facts.keys = keys;
        let reply = copy.answer(actor, body);
        Reply::DryRun(Box::new(copy.facts.refreshed(reply)))
    }
}
