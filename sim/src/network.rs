//! Sessions between agents and schedulers: what is on its way, in order, and what of it is lost, late or repeated.
//! Each end learns of a break in its own time.

use headway_engine::event::{Event, SessionId};
use headway_node::NodeEvent;
use headway_types::{AgentCommand, NodeId, NodeReport, Seconds, Serial, Term, Timestamp};
use rand::RngExt;

use crate::faults::Chance;
use crate::item::Item;
use crate::world::World;

/// One stream of an agent to a scheduler.
#[derive(Clone, Debug)]
pub(crate) struct Link {
    pub node: usize,
    /// The id the agent gave when it dialled.
    pub id: NodeId,
    pub server: u64,
    pub session: SessionId,
    pub term: Term,
    /// Whether the agent has taken the scheduler's welcome: nothing but the registration is sent before.
    pub welcomed: bool,
    /// Whether each end still takes the session for open.
    pub agent_end: bool,
    pub server_end: bool,
    /// A stream keeps its order: nothing arrives before these.
    up_at: Timestamp,
    down_at: Timestamp,
    /// When the agent last heard a sign of life.
    pinged_at: Timestamp,
}

/// A silent scheduler is given up after this long (the agent's keep-alive).
const PATIENCE: Seconds = Seconds(15.0);
/// Step reports an agent keeps while it has no session.
const RING: usize = 64;

impl World<'_> {
    /// The agent's regular moment: dial, say that all is well, or give a silent scheduler up.
    pub fn pulse(&mut self, node: usize) {
        let next = match self.nodes[node].link {
            Some(_) => Seconds(self.scenario.config.lease.0 / 5.0),
            None => Seconds(self.rng.random_range(0.3..2.0)),
        };
        self.clock.after(next, Item::Pulse(node));
        if !self.nodes[node].up {
            return;
        }
        let Some(id) = self.nodes[node].link else { return self.dial(node) };
        let Some(link) = self.links.get(&id) else { return };
        let server = self.servers.get(&link.server);
        let clear = !self.nodes[node].is_blocked(self.clock.now);
        let answers = server.is_some_and(|server| server.paused_until.is_none_or(|until| until <= self.clock.now));
        if clear && (server.is_none() || !link.server_end) {
            return self.close_agent_end(node);
        }
        let silent = self.clock.now.since(link.pinged_at).0;
        if clear && answers {
            if let Some(link) = self.links.get_mut(&id) {
                link.pinged_at = self.clock.now;
            }
        } else if silent > PATIENCE.0 {
            return self.close_agent_end(node);
        }
        self.send_report(node, NodeReport::Heartbeat);
    }

    /// Opens a session with a scheduler that leads, or believes so.
    fn dial(&mut self, node: usize) {
        if self.nodes[node].is_blocked(self.clock.now) {
            return;
        }
        let now = self.clock.now;
        let leading: Vec<u64> = self
            .servers
            .iter()
            .filter(|(_, server)| server.paused_until.is_none_or(|until| until <= now))
            .map(|(id, _)| *id)
            .collect();
        if leading.is_empty() {
            return;
        }
        let server = leading[self.rng.random_range(0..leading.len())];
        let id = self.nodes[node].inventory.node;
        let Some(serving) = self.servers.get_mut(&server) else { return };
        serving.sessions += 1;
        let (session, term) = (SessionId(serving.sessions), serving.engine.term());
        self.last_link += 1;
        let link = self.last_link;
        let older = serving.links.insert(id, link);
        let entry = Link {
            node,
            id,
            server,
            session,
            term,
            welcomed: false,
            agent_end: true,
            server_end: true,
            up_at: now,
            down_at: now,
            pinged_at: now,
        };
        self.links.insert(link, entry);
        if let Some(older) = older {
            self.close_server_end(older);
        }
        self.nodes[node].link = Some(link);
        let (inventory, groups) = (self.nodes[node].inventory.clone(), self.nodes[node].ledger.statuses());
        self.send_up(link, NodeReport::Registered { inventory: Box::new(inventory), groups });
        let at = self.moment(0.002, 0.1);
        if let Some(entry) = self.links.get_mut(&link) {
            entry.down_at = at;
        }
        self.clock.at(at, Item::Welcome { link });
    }

    /// The agent reads the welcome: everything a lost session may have swallowed is reported again.
    pub fn welcome(&mut self, id: u64) -> Result<(), String> {
        let Some(link) = self.links.get_mut(&id).filter(|link| link.agent_end) else { return Ok(()) };
        let (node, term) = (link.node, link.term);
        if term < self.nodes[node].ledger.term() {
            self.close_agent_end(node);
            return Ok(());
        }
        link.welcomed = true;
        self.tell_ledger(node, NodeEvent::SessionOpened { term })?;
        for report in std::mem::take(&mut self.nodes[node].ring) {
            self.send_report(node, report);
        }
        Ok(())
    }

    /// Over the node's session; step reports wait for one, the rest is repeated by the ledger when there is one.
    pub fn send_report(&mut self, node: usize, report: NodeReport) {
        match self.nodes[node].link.filter(|id| self.links.get(id).is_some_and(|link| link.welcomed)) {
            Some(link) => {
                if self.chance(Chance::ReportLost) {
                    return;
                }
                if self.chance(Chance::ReportRepeated) {
                    self.send_up(link, report.clone());
                }
                self.send_up(link, report);
            }
            None if matches!(report, NodeReport::Steps { .. }) => {
                let ring = &mut self.nodes[node].ring;
                if ring.len() == RING {
                    ring.pop_front();
                }
                ring.push_back(report);
            }
            None => {}
        }
    }

    fn send_up(&mut self, id: u64, report: NodeReport) {
        let at = self.moment(0.001, 0.05);
        let Some(link) = self.links.get_mut(&id) else { return };
        link.up_at = link.up_at.max(at);
        let at = link.up_at;
        self.clock.at(at, Item::Up { link: id, report, late: false });
    }

    pub fn send_command(&mut self, server: u64, node: NodeId, command: AgentCommand) {
        let Some(serving) = self.servers.get_mut(&server) else { return };
        let Some(id) = serving.links.get(&node).copied() else { return };
        serving.commands += 1;
        let serial = Serial(serving.commands);
        if self.chance(Chance::CommandLost) {
            return;
        }
        let twice = self.chance(Chance::CommandRepeated);
        let at = self.moment(0.001, 0.05);
        let Some(link) = self.links.get_mut(&id) else { return };
        link.down_at = link.down_at.max(at);
        let at = link.down_at;
        self.clock.at(at, Item::Down { link: id, serial, command: command.clone(), late: false });
        if twice {
            self.clock.at(at + Seconds(3.0), Item::Down { link: id, serial, command, late: false });
        }
    }

    /// A report arrives, waits for the network, or is lost with its session.
    pub fn deliver_up(&mut self, id: u64, report: NodeReport, late: bool) {
        let Some(link) = self.links.get(&id).cloned() else { return };
        let blocked = self.nodes[link.node].reports_blocked_until;
        if !late && blocked > self.clock.now && link.agent_end {
            return self.clock.at(blocked, Item::Up { link: id, report, late });
        }
        if late || (link.server_end && link.agent_end) {
            self.take_in(link.server, Event::Agent { node: link.id, session: link.session, report });
        } else if self.chance(Chance::LateDelivery) {
            let at = self.much_later();
            self.clock.at(at, Item::Up { link: id, report, late: true });
        }
    }

    pub fn deliver_down(&mut self, id: u64, serial: Serial, command: AgentCommand, late: bool) -> Result<(), String> {
        let Some(link) = self.links.get(&id).cloned() else { return Ok(()) };
        let blocked = self.nodes[link.node].commands_blocked_until;
        if !late && blocked > self.clock.now && link.agent_end {
            self.clock.at(blocked, Item::Down { link: id, serial, command, late });
            return Ok(());
        }
        let same_node = self.nodes[link.node].inventory.node == link.id;
        if same_node && (late || link.agent_end) {
            return self.tell_ledger(link.node, NodeEvent::Command { term: link.term, serial: Some(serial), command });
        }
        if self.chance(Chance::LateDelivery) {
            let at = self.much_later();
            self.clock.at(at, Item::Down { link: id, serial, command, late: true });
        }
        Ok(())
    }

    fn much_later(&mut self) -> Timestamp {
        let leases = self.rng.random_range(0.1..4.0);
        self.clock.now + Seconds(self.scenario.config.lease.0 * leases)
    }

    /// The agent takes its session for broken; the scheduler learns of it when the network lets it.
    pub fn close_agent_end(&mut self, node: usize) {
        let Some(id) = self.nodes[node].link.take() else { return };
        let heard = self.moment(0.01, 3.0).max(self.nodes[node].reports_blocked_until);
        let Some(link) = self.links.get_mut(&id) else { return };
        link.agent_end = false;
        if link.server_end {
            self.clock.at(heard, Item::LinkLost { link: id });
        }
    }

    /// The scheduler ends a session; the agent learns of it at its next pulse.
    pub fn close_server_end(&mut self, id: u64) {
        let Some(link) = self.links.get_mut(&id).filter(|link| link.server_end) else { return };
        link.server_end = false;
        let link = link.clone();
        if let Some(server) = self.servers.get_mut(&link.server)
            && server.links.get(&link.id) == Some(&id)
        {
            server.links.remove(&link.id);
        }
        self.take_in(link.server, Event::AgentDisconnected { node: link.id, session: link.session });
    }
}
