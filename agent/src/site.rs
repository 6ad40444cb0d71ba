//! What this node adds to every order: its files, its offer, its users, its interpreters. Shared by the checks before a
//! launch and by the launch itself, so that both see the same command.

use std::collections::BTreeMap;
use std::path::PathBuf;

use headway_node::Share;
use headway_types::{Fault, LaunchOrder};

use crate::config::AgentConfig;
use crate::environment::{self, Host, Member};
use crate::files::Files;
use crate::inventory::Inventory;
use crate::user::{UnixUser, Users};

pub(crate) struct Site {
    pub(crate) files: Files,
    pub(crate) inventory: Inventory,
    pub(crate) users: Users,
    python: String,
    headway: PathBuf,
    inherited: BTreeMap<String, String>,
}

impl Site {
    pub(crate) fn new(config: &AgentConfig, files: Files, inventory: Inventory, users: Users) -> Self {
        let inherited = ["PATH", "HOME", "LANG"]
            .into_iter()
            .filter_map(|name| Some((name.to_owned(), std::env::var(name).ok()?)))
            .collect();
        let (python, headway) = (config.python.clone(), config.headway_binary.clone());
        Self { files, inventory, users, python, headway, inherited }
    }

    /// Every process of the order on this node.
    pub(crate) fn members(
        &self,
        order: &LaunchOrder,
        port: u16,
        secret: &str,
        user: Option<&UnixUser>,
    ) -> Result<Vec<Member>, Fault> {
        let inventory = self.inventory.now();
        let Some(share) = Share::of(order, inventory.node) else {
            return Err(Fault::of_infrastructure("the placement does not name this node"));
        };
        let mut inherited = self.inherited.clone();
        inherited.extend(user.map(UnixUser::variables).unwrap_or_default());
        let host = Host {
            inventory: &inventory,
            socket: &self.files.socket(),
            python: &self.python,
            headway: &self.headway,
            inherited: &inherited,
        };
        environment::members(order, &share, port, secret, &host).map_err(Fault::of_job)
    }
}
