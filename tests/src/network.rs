//! All wires of a cluster: one between any two processes that speak to each other. Servers speak to each other by the database alone.

use std::net::{Ipv4Addr, SocketAddr};

use crate::databases::Databases;
use crate::link::{End, Link};

pub struct Network {
    /// From people to each server.
    pub people: Vec<Link>,
    /// From each node to each server.
    pub agents: Vec<Vec<Link>>,
    /// From each server to the database.
    pub database: Vec<Link>,
    pub databases: Databases,
}

/// Where a wire lies, for those who read what was done to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wire {
    People { server: usize },
    Agent { node: usize, server: usize },
    Database { server: usize },
    Replication,
}

impl Network {
    pub async fn between(databases: Databases, people: &[u16], agents: &[u16], nodes: usize) -> Self {
        let here = |port: &u16| End::Tcp(SocketAddr::from((Ipv4Addr::LOCALHOST, *port)));
        let mut network = Self { people: Vec::new(), agents: Vec::new(), database: Vec::new(), databases };
        for port in people {
            network.people.push(Link::to(here(port)).await);
            network.database.push(Link::to(network.databases.end()).await);
        }
        for _ in 0..nodes {
            let mut of_node = Vec::new();
            for port in agents {
                of_node.push(Link::to(here(port)).await);
            }
            network.agents.push(of_node);
        }
        network
    }

    pub fn people_urls(&self) -> Vec<String> {
        self.people.iter().map(Link::url).collect()
    }

    pub fn database_url(&self, server: usize) -> String {
        format!("postgres://headway@{}/headway", self.database[server].address())
    }

    pub fn wires(&self) -> Vec<Wire> {
        let mut wires = vec![Wire::Replication];
        for server in 0..self.people.len() {
            wires.extend([Wire::People { server }, Wire::Database { server }]);
            wires.extend((0..self.agents.len()).map(|node| Wire::Agent { node, server }));
        }
        wires
    }

    pub fn link(&self, wire: Wire) -> &Link {
        match wire {
            Wire::People { server } => &self.people[server],
            Wire::Agent { node, server } => &self.agents[node][server],
            Wire::Database { server } => &self.database[server],
            Wire::Replication => &self.databases.replication,
        }
    }

    /// The replica becomes the primary, and all wires lead there.
    pub async fn fail_over(&mut self) {
        self.databases.promote().await;
        for link in &self.database {
            link.lead_to(self.databases.end());
        }
    }
}
