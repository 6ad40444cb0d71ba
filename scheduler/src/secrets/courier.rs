//! Takes the values of secrets to the nodes that launch a job. They go with the launch alone, after the commit that granted it, and are looked up
//! each time: nothing here keeps one.

use std::collections::BTreeMap;

use headway_api::agent::Secrets;
use headway_engine::record::Job;
use headway_engine::view::View;
use headway_types::{AgentCommand, JobId, NodeId, ProjectRole, Term, TokenScope};

use crate::clock::Clock;
use crate::grpc::Sessions;
use crate::store::{Purse, Store, StoreError, answered};

/// Sends commands; those that need secrets a little later than the others, which a node cannot tell from a slow network.
#[derive(Clone)]
pub struct Courier {
    store: Store,
    sessions: Sessions,
    clock: Clock,
}

impl Courier {
    #[must_use]
    pub fn new(store: Store, sessions: Sessions, clock: Clock) -> Self {
        Self { store, sessions, clock }
    }

    /// Sends what a term has decided.
    pub fn send(&self, term: Term, view: &View, commands: Vec<(NodeId, AgentCommand)>) {
        let mut launches: BTreeMap<JobId, Vec<(NodeId, AgentCommand)>> = BTreeMap::new();
        for (node, command) in commands {
            match &command {
                AgentCommand::Launch { job, .. } if needs_secrets(view, *job) => {
                    launches.entry(*job).or_default().push((node, command));
                }
                _ => self.sessions.command(term, node, command, Secrets::new()),
            }
        }
        for (job, commands) in launches {
            let Some(job) = view.jobs.get(&job).map(|live| live.job.clone()) else { continue };
            let member = view.role_in(&job.spec.project, &job.owner) >= Some(ProjectRole::User);
            let courier = self.clone();
            tokio::spawn(async move { courier.launch(term, &job, member, commands).await });
        }
    }

    /// A secret that is not there any more is left out, and the node says so; where the store does not answer nothing is sent, and the engine asks again.
    async fn launch(&self, term: Term, job: &Job, member: bool, commands: Vec<(NodeId, AgentCommand)>) {
        match answered(self.of_job(job, member)).await {
            Ok(secrets) => {
                for (node, command) in commands {
                    self.sessions.command(term, node, command, secrets.clone());
                }
            }
            Err(error) => {
                tracing::warn!(job_id = %job.id, error = &error as &dyn std::error::Error, "a job's secrets cannot be read, so it is not launched yet");
            }
        }
    }

    /// By variable.
    async fn of_job(&self, job: &Job, member: bool) -> Result<Secrets, StoreError> {
        let named = &job.spec.role().run.secrets;
        let project = may_use(&self.store, &job.owner, member).await?.then_some(job.spec.project.as_str());
        let names: Vec<String> = named.values().cloned().collect();
        let values = self.store.use_secrets(Purse { user: &job.owner, project }, &names, self.clock.now()).await?;
        let set = |(variable, name): (&String, &String)| Some((variable.clone(), values.get(name)?.clone()));
        Ok(named.iter().filter_map(set).collect())
    }
}

/// Whether jobs of this owner may use the secrets of their project: of its members, and of admins, who could make themselves members.
pub async fn may_use(store: &Store, owner: &str, member: bool) -> Result<bool, StoreError> {
    Ok(member || store.role_of(owner).await? == Some(TokenScope::Admin))
}

fn needs_secrets(view: &View, job: JobId) -> bool {
    view.jobs.get(&job).is_some_and(|live| !live.job.spec.role().run.secrets.is_empty())
}
