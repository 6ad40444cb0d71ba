//! Requests about nodes, plans, the policy, and the cluster as a whole.

use chrono::{DateTime, Utc};
use reqwest::Method;
use serde::Serialize;
use serde_json::{Map, Value};

use super::{Client, ClientError, REQUEST_TIME};
use crate::v1::{
    ApproveRequest, Baseline, DeletedNode, DrainRequest, EventChain, EventList, EventRecord, Goodput, Leadership, Node,
    NodeGpus, NodeHealth, NodeList, NodePatch, Overview, PastNodeList, PastOverview, Plan, PlanDiff, PlanHistory,
    PlanList, Policy, Queue, Readmission, ReasonRequest, RebalanceRequest, Simulation, SimulationRequest, Space,
    StoredRound, Usage, Version,
};

/// Which waiting jobs to list. Absent fields do not restrict.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct QueueFilter {
    pub project: Option<String>,
    /// Owner.
    pub user: Option<String>,
    /// The first reason why it waits.
    pub code: Option<String>,
    /// A GPU type that it accepts.
    #[serde(rename = "type")]
    pub gpu_type: Option<String>,
    /// Part of the name, in any case.
    pub q: Option<String>,
    /// The id of one job.
    pub job: Option<String>,
    /// The `next_cursor` of the page before.
    pub cursor: Option<String>,
    pub limit: Option<u32>,
}

/// Which events are wanted; what is absent is any.
#[derive(Clone, Debug, Default, Serialize)]
pub struct EventQuery {
    pub job: Option<String>,
    pub node: Option<String>,
    pub plan: Option<String>,
    pub project: Option<String>,
    /// Comma-separated.
    pub verb: Option<String>,
    pub actor: Option<String>,
    pub since: Option<DateTime<Utc>>,
    pub until: Option<DateTime<Utc>>,
    pub limit: Option<u32>,
    pub cursor: Option<String>,
}

/// Which plans are wanted, the newest first; what is absent does not restrict.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct PlanQuery {
    /// The plan that was being carried out at this moment, and those that waited for approval.
    pub at: Option<DateTime<Utc>>,
    /// The `next_cursor` of the page before.
    pub cursor: Option<String>,
    pub limit: Option<u32>,
}

impl Client {
    pub async fn nodes(&self) -> Result<Vec<Node>, ClientError> {
        self.nodes_labelled(&[]).await
    }

    /// Nodes that have all of these labels: `name=value`, or `name` with any value.
    pub async fn nodes_labelled(&self, labels: &[String]) -> Result<Vec<Node>, ClientError> {
        let query: Vec<_> = (!labels.is_empty()).then(|| ("label", labels.join(","))).into_iter().collect();
        Ok(self.read::<NodeList>(self.request(Method::GET, &["nodes"]).query(&query)).await?.items)
    }

    /// Sets labels of a node, and takes those away that are `None`.
    pub async fn update_node(&self, node: &str, patch: &NodePatch) -> Result<Node, ClientError> {
        self.read(self.request(Method::PATCH, &["nodes", node]).json(patch)).await
    }

    /// Nodes as they were at a moment.
    pub async fn nodes_at(&self, at: DateTime<Utc>) -> Result<PastNodeList, ClientError> {
        self.read(self.request(Method::GET, &["nodes"]).query(&[("at", at)])).await
    }

    /// A node by id or name.
    pub async fn node(&self, node: &str) -> Result<Node, ClientError> {
        self.get(&["nodes", node]).await
    }

    /// The GPUs of a node, by its id or name, with what has befallen them.
    pub async fn node_gpus(&self, node: &str) -> Result<NodeGpus, ClientError> {
        self.get(&["nodes", node, "gpus"]).await
    }

    /// Whether a node is in reach and trusted with work, and how that came about.
    pub async fn node_health(&self, node: &str) -> Result<NodeHealth, ClientError> {
        self.get(&["nodes", node, "health"]).await
    }

    /// Running jobs leave (by the deadline at the latest), nothing new starts.
    pub async fn drain(&self, node: &str, request: &DrainRequest) -> Result<Node, ClientError> {
        self.post(&["nodes", node, "drain"], request).await
    }

    /// Nothing new starts; what runs stays.
    pub async fn cordon(&self, node: &str, reason: Option<&str>) -> Result<Node, ClientError> {
        self.act_on_node(node, "cordon", reason).await
    }

    /// Takes a node back into service, after a drain as after a cordon.
    pub async fn uncordon(&self, node: &str) -> Result<Node, ClientError> {
        self.read(self.request(Method::POST, &["nodes", node, "uncordon"])).await
    }

    /// Vouches that nothing runs on an unreachable node any more.
    pub async fn lost(&self, node: &str, reason: Option<&str>) -> Result<Node, ClientError> {
        self.act_on_node(node, "lost", reason).await
    }

    /// Which server leads, and which stand by.
    pub async fn leadership(&self) -> Result<Leadership, ClientError> {
        self.get(&["leader"]).await
    }

    /// What each table of the database takes.
    pub async fn space(&self) -> Result<Space, ClientError> {
        self.get(&["space"]).await
    }

    /// Has nodes that followed a newer term follow this scheduler again.
    pub async fn readmit(&self, reason: Option<&str>) -> Result<Readmission, ClientError> {
        self.post(&["readmission"], &ReasonRequest { reason: reason.map(str::to_owned) }).await
    }

    /// Forgets a node that is gone for good.
    pub async fn delete_node(&self, node: &str, reason: Option<&str>) -> Result<DeletedNode, ClientError> {
        let query: Vec<_> = reason.map(|reason| ("reason", reason)).into_iter().collect();
        self.read(self.request(Method::DELETE, &["nodes", node]).query(&query)).await
    }

    async fn act_on_node(&self, node: &str, action: &str, reason: Option<&str>) -> Result<Node, ClientError> {
        self.post(&["nodes", node, action], &ReasonRequest { reason: reason.map(str::to_owned) }).await
    }

    /// What GPU-time went into, by these dimensions (comma-separated); absent: as the scheduler does.
    pub async fn usage(
        &self,
        group_by: Option<&str>,
        from: Option<DateTime<Utc>>,
        to: Option<DateTime<Utc>>,
    ) -> Result<Usage, ClientError> {
        let by: Vec<_> = group_by.map(|by| ("group_by", by)).into_iter().collect();
        let span: Vec<_> =
            [("from", from), ("to", to)].into_iter().filter_map(|(name, at)| Some((name, at?))).collect();
        self.read(self.request(Method::GET, &["usage"]).query(&by).query(&span)).await
    }

    /// The plan being carried out.
    pub async fn current_plan(&self) -> Result<Plan, ClientError> {
        self.get(&["plans", "current"]).await
    }

    pub async fn plan(&self, id: &str) -> Result<Plan, ClientError> {
        self.get(&["plans", id]).await
    }

    /// What a plan was made from, while it is kept.
    pub async fn plan_input(&self, id: &str) -> Result<StoredRound, ClientError> {
        self.get(&["plans", id, "input"]).await
    }

    /// One page of plans, newest first.
    pub async fn plans(&self, query: &PlanQuery) -> Result<PlanList, ClientError> {
        self.read(self.request(Method::GET, &["plans"]).query(query)).await
    }

    /// Runs a round now; its plan is a proposal that moves nothing before it is approved.
    pub async fn rebalance(&self, request: &RebalanceRequest) -> Result<Plan, ClientError> {
        self.post(&["plans", "rebalance"], request).await
    }

    /// What would come of something that is not so; changes nothing.
    pub async fn simulate(&self, request: &SimulationRequest) -> Result<Simulation, ClientError> {
        self.post(&["plans", "simulate"], request).await
    }

    /// Proposes to give the jobs that a plan moved what they had before it.
    pub async fn rollback(&self, plan: &str, reason: Option<&str>) -> Result<Plan, ClientError> {
        self.post(&["plans", plan, "rollback"], &reason_of(reason)).await
    }

    /// No rounds until they are resumed.
    pub async fn pause_plans(&self, reason: Option<&str>) -> Result<Policy, ClientError> {
        self.post(&["plans", "pause"], &reason_of(reason)).await
    }

    pub async fn resume_plans(&self, reason: Option<&str>) -> Result<Policy, ClientError> {
        self.post(&["plans", "resume"], &reason_of(reason)).await
    }

    /// One page of plans that were carried out, newest first, with what came of them.
    pub async fn plan_history(&self, cursor: Option<&str>, limit: Option<u32>) -> Result<PlanHistory, ClientError> {
        let query = PlanQuery { cursor: cursor.map(str::to_owned), limit, ..PlanQuery::default() };
        self.read(self.request(Method::GET, &["plans", "history"]).query(&query)).await
    }

    /// What a plan gives otherwise than another, or than the one it was made from.
    pub async fn plan_diff(&self, plan: &str, against: Option<&str>) -> Result<PlanDiff, ClientError> {
        self.read(self.request(Method::GET, &["plans", plan, "diff"]).query(&[("against", against)])).await
    }

    /// Makes a proposal the target; with a hash, only the plan that has it.
    pub async fn approve(&self, plan: &str, hash: Option<&str>) -> Result<Plan, ClientError> {
        self.post(&["plans", plan, "approve"], &ApproveRequest { hash: hash.map(str::to_owned), reason: None }).await
    }

    /// Drops a proposal.
    pub async fn reject(&self, plan: &str, reason: Option<&str>) -> Result<Plan, ClientError> {
        self.post(&["plans", plan, "reject"], &reason_of(reason)).await
    }

    pub async fn policy(&self) -> Result<Policy, ClientError> {
        self.get(&["policy"]).await
    }

    /// Changes what is named of the policy; `null` takes a limit away.
    pub async fn change_policy(&self, settings: &Map<String, Value>) -> Result<Policy, ClientError> {
        self.read(self.request(Method::PATCH, &["policy"]).json(settings)).await
    }

    /// One page of what waits, and what all of it comes to.
    pub async fn queue(&self, filter: &QueueFilter) -> Result<Queue, ClientError> {
        self.read(self.request(Method::GET, &["queue"]).query(filter)).await
    }

    pub async fn overview(&self) -> Result<Overview, ClientError> {
        self.get(&["overview"]).await
    }

    /// The cluster as it was at a moment.
    pub async fn overview_at(&self, at: DateTime<Utc>) -> Result<PastOverview, ClientError> {
        self.read(self.request(Method::GET, &["overview"]).query(&[("at", at)])).await
    }

    /// Goodput of the cluster now.
    pub async fn goodput(&self) -> Result<Goodput, ClientError> {
        self.get(&["goodput"]).await
    }

    /// What these jobs would do on a static share each; jobs without a model are left out.
    pub async fn baseline(&self, jobs: &[String]) -> Result<Vec<Baseline>, ClientError> {
        let request = self.request(Method::GET, &["goodput"]).query(&[("jobs", jobs.join(","))]);
        Ok(self.read::<Goodput>(request).await?.items)
    }

    /// The newest events, newest first.
    pub async fn events(&self, limit: u32) -> Result<Vec<EventRecord>, ClientError> {
        Ok(self.search_events(&EventQuery { limit: Some(limit), ..EventQuery::default() }).await?.items)
    }

    /// A page of the events that are wanted, newest first; it may hold fewer than its limit although there are more.
    pub async fn search_events(&self, query: &EventQuery) -> Result<EventList, ClientError> {
        self.read(self.request(Method::GET, &["events"]).query(query)).await
    }

    /// What led to an event and what came of it.
    pub async fn event_chain(&self, seq: u64) -> Result<EventChain, ClientError> {
        self.get(&["events", &seq.to_string(), "chain"]).await
    }

    pub async fn version(&self) -> Result<Version, ClientError> {
        self.read(self.http.get(self.url(&["version"]))).await
    }

    /// What `/readyz` says: that it is ready, perhaps with what is the matter all the same.
    pub async fn readiness(&self) -> Result<String, ClientError> {
        self.text(&["readyz"]).await
    }

    /// The scheduler's metrics, in Prometheus' text format.
    pub async fn metrics(&self) -> Result<String, ClientError> {
        self.text(&["metrics"]).await
    }

    /// The clock of the scheduler's machine, to the second, where it says.
    pub async fn clock(&self) -> Result<Option<DateTime<Utc>>, ClientError> {
        let response = self.send(self.http.get(self.url(&["healthz"])).timeout(REQUEST_TIME)).await?;
        let date = response.headers().get(reqwest::header::DATE).and_then(|date| date.to_str().ok());
        Ok(date.and_then(|date| DateTime::parse_from_rfc2822(date).ok()).map(|date| date.to_utc()))
    }

    async fn text(&self, segments: &[&str]) -> Result<String, ClientError> {
        let response = self.send(self.http.get(self.url(segments)).timeout(REQUEST_TIME)).await?;
        let url = response.url().to_string();
        response.text().await.map_err(|source| ClientError::Unreachable { url, source })
    }

    /// Whether the scheduler leads and answers requests.
    pub async fn ready(&self) -> Result<bool, ClientError> {
        match self.send(self.http.get(self.url(&["readyz"])).timeout(REQUEST_TIME)).await {
            Ok(_) => Ok(true),
            Err(ClientError::Problem(problem)) if problem.status == 503 => Ok(false),
            Err(error) => Err(error),
        }
    }
}

fn reason_of(reason: Option<&str>) -> ReasonRequest {
    ReasonRequest { reason: reason.map(str::to_owned) }
}
