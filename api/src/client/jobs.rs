//! Requests about jobs.

use bytes::Bytes;
use chrono::{DateTime, Utc};
use futures::{Stream, TryStreamExt};
use reqwest::header::CONTENT_TYPE;
use reqwest::{Method, RequestBuilder};
use serde::Serialize;

use super::{Client, ClientError, REQUEST_TIME, header};
use crate::v1::{
    AllocationList, AllocationRecord, CancelRequest, Checkpoint, CheckpointList, Curve, Delivery, DeliveryList,
    DeliveryTest, EventList, EventRecord, Explanation, GpuTime, Job, JobDetail, JobList, JobPatch, PastJobList,
    ReasonRequest, ResizeRequest, Series, SeriesPoint, Submitted, Validation,
};

const JOBS_PER_PAGE: u32 = 500;

/// Which jobs to list. Empty and absent fields do not restrict.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct JobFilter {
    /// Names of states, or `live` and `ended` for groups of them.
    pub states: Vec<String>,
    pub project: Option<String>,
    /// Owner.
    pub user: Option<String>,
    /// The whole name.
    pub name: Option<String>,
    /// The beginning or the end of the id.
    pub id: Option<String>,
    /// Part of the name.
    pub name_contains: Option<String>,
    /// Only elements of the array with this id.
    pub array: Option<String>,
    /// One row per array.
    pub collapsed: bool,
    /// `name=value`, or `name` with any value.
    pub labels: Vec<String>,
    /// What to sort by; a `-` before it turns it round.
    pub sort: Option<String>,
    /// Also count what the filter admits.
    pub totals: bool,
    /// The `next_cursor` of the page before.
    pub cursor: Option<String>,
    pub limit: Option<u32>,
}

impl JobFilter {
    fn query(&self) -> Vec<(&'static str, String)> {
        [
            ("state", (!self.states.is_empty()).then(|| self.states.join(","))),
            ("project", self.project.clone()),
            ("user", self.user.clone()),
            ("name", self.name.clone()),
            ("id", self.id.clone()),
            ("q", self.name_contains.clone()),
            ("label", (!self.labels.is_empty()).then(|| self.labels.join(","))),
            ("array", self.array.clone()),
            ("arrays", self.collapsed.then(|| "collapsed".into())),
            ("sort", self.sort.clone()),
            ("totals", self.totals.then(|| "true".into())),
            ("cursor", self.cursor.clone()),
            ("limit", self.limit.map(|limit| limit.to_string())),
        ]
        .into_iter()
        .filter_map(|(name, value)| Some((name, value?)))
        .collect()
    }
}

/// Which piece of a rank's output to read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LogRequest {
    /// Global rank.
    pub rank: u32,
    /// Of which generation; absent: the newest.
    pub generation: Option<u64>,
    /// First byte; absent: the beginning.
    pub offset: Option<u64>,
    /// Only the last lines.
    pub tail: Option<u32>,
}

/// Which lines of which ranks to read; see the parameters of the route.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct LogLines {
    /// "0,3", "0-7", "all".
    pub rank: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub generation: Option<u64>,
    /// "10m", or RFC 3339.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tail: Option<u32>,
    pub timestamps: bool,
    pub follow: bool,
}

/// A piece of a rank's output.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogPage {
    /// As they were written.
    pub bytes: Vec<u8>,
    /// Where to read on.
    pub next_offset: u64,
    /// Nothing more is there now.
    pub at_end: bool,
    /// The generation that wrote it.
    pub generation: u64,
}

impl LogPage {
    /// Returns the position of its first byte.
    #[must_use]
    pub fn offset(&self) -> u64 {
        self.next_offset.saturating_sub(self.bytes.len() as u64)
    }
}

impl Client {
    /// Submits a specification in YAML. The same key and text submit once, however often they are sent.
    pub async fn submit_yaml(&self, text: &str, idempotency_key: Option<&str>) -> Result<Submitted, ClientError> {
        self.submit_yaml_for(text, idempotency_key, false).await
    }

    /// The same; `nodes_to_come`: also what the cluster as it is can never run.
    pub async fn submit_yaml_for(
        &self,
        text: &str,
        idempotency_key: Option<&str>,
        nodes_to_come: bool,
    ) -> Result<Submitted, ClientError> {
        let request = self.request(Method::POST, &["jobs"]).header(CONTENT_TYPE, "application/yaml");
        let request = if nodes_to_come { request.query(&[("wait_for_nodes", true)]) } else { request };
        self.submit(request.body(text.to_owned()), idempotency_key).await
    }

    /// Submits one specification, or `{"jobs": […]}`, in JSON.
    pub async fn submit_json(
        &self,
        body: &serde_json::Value,
        idempotency_key: Option<&str>,
    ) -> Result<Submitted, ClientError> {
        self.submit_json_for(body, idempotency_key, false).await
    }

    /// The same; `nodes_to_come`: also what the cluster as it is can never run.
    pub async fn submit_json_for(
        &self,
        body: &serde_json::Value,
        idempotency_key: Option<&str>,
        nodes_to_come: bool,
    ) -> Result<Submitted, ClientError> {
        let request = self.request(Method::POST, &["jobs"]).json(body);
        let request = if nodes_to_come { request.query(&[("wait_for_nodes", true)]) } else { request };
        self.submit(request, idempotency_key).await
    }

    async fn submit(&self, request: RequestBuilder, key: Option<&str>) -> Result<Submitted, ClientError> {
        let request = match key {
            Some(key) => request.header("Idempotency-Key", key),
            None => request,
        };
        self.read(request).await
    }

    /// Asks whether and how the present nodes could run one specification, or `{"jobs": […]}`; stores nothing.
    pub async fn validate(&self, body: &serde_json::Value) -> Result<Validation, ClientError> {
        self.read(self.request(Method::POST, &["jobs", "validate"]).json(body)).await
    }

    /// One page of jobs, newest first.
    pub async fn jobs(&self, filter: &JobFilter) -> Result<JobList, ClientError> {
        self.read(self.request(Method::GET, &["jobs"]).query(&filter.query())).await
    }

    /// The same of jobs that had not ended at a moment, as they were; states are those of that moment.
    pub async fn jobs_at(&self, filter: &JobFilter, at: DateTime<Utc>) -> Result<PastJobList, ClientError> {
        self.read(self.request(Method::GET, &["jobs"]).query(&filter.query()).query(&[("at", at)])).await
    }

    /// Every job there is, page by page, newest first.
    pub async fn all_jobs(&self) -> Result<Vec<Job>, ClientError> {
        let mut filter = JobFilter { limit: Some(JOBS_PER_PAGE), ..JobFilter::default() };
        let mut jobs = Vec::new();
        loop {
            let page = self.jobs(&filter).await?;
            jobs.extend(page.items);
            if page.next_cursor.is_none() {
                return Ok(jobs);
            }
            filter.cursor = page.next_cursor;
        }
    }

    pub async fn job(&self, id: &str) -> Result<JobDetail, ClientError> {
        self.get(&["jobs", id]).await
    }

    pub async fn cancel(&self, id: &str, reason: Option<&str>) -> Result<Job, ClientError> {
        self.cancel_as(id, &CancelRequest { reason: reason.map(str::to_owned), grace_s: None }).await
    }

    /// The same, with a grace time of its own perhaps.
    pub async fn cancel_as(&self, id: &str, body: &CancelRequest) -> Result<Job, ClientError> {
        self.post(&["jobs", id, "cancel"], body).await
    }

    pub async fn hold(&self, id: &str, reason: Option<&str>) -> Result<Job, ClientError> {
        self.post(&["jobs", id, "hold"], &ReasonRequest { reason: reason.map(str::to_owned) }).await
    }

    pub async fn release(&self, id: &str) -> Result<Job, ClientError> {
        self.read(self.request(Method::POST, &["jobs", id, "release"])).await
    }

    /// Puts a job back into the queue.
    pub async fn requeue(&self, id: &str, reason: Option<&str>) -> Result<Job, ClientError> {
        self.post(&["jobs", id, "requeue"], &ReasonRequest { reason: reason.map(str::to_owned) }).await
    }

    /// Has a running job save now and go on.
    pub async fn checkpoint(&self, id: &str) -> Result<Job, ClientError> {
        self.read(self.request(Method::POST, &["jobs", id, "checkpoint"])).await
    }

    /// Changes what the patch names.
    pub async fn update(&self, id: &str, patch: &JobPatch) -> Result<Job, ClientError> {
        self.read(self.request(Method::PATCH, &["jobs", id]).json(patch)).await
    }

    /// Has a job run on other numbers of GPUs, whatever its cooldown.
    pub async fn resize(&self, id: &str, sizes: &ResizeRequest) -> Result<Job, ClientError> {
        self.post(&["jobs", id, "resize"], sizes).await
    }

    /// Keeps a job on the GPUs it has.
    pub async fn pin(&self, id: &str, reason: Option<&str>) -> Result<Job, ClientError> {
        self.post(&["jobs", id, "pin"], &ReasonRequest { reason: reason.map(str::to_owned) }).await
    }

    pub async fn unpin(&self, id: &str) -> Result<Job, ClientError> {
        self.read(self.request(Method::POST, &["jobs", id, "unpin"])).await
    }

    /// Why a job waits, or has the size it has.
    pub async fn explain(&self, id: &str) -> Result<Explanation, ClientError> {
        self.get(&["jobs", id, "explain"]).await
    }

    pub async fn curve(&self, id: &str) -> Result<Curve, ClientError> {
        self.get(&["jobs", id, "curve"]).await
    }

    /// What a job holds and held, oldest first.
    pub async fn allocations(&self, id: &str) -> Result<Vec<AllocationRecord>, ClientError> {
        Ok(self.get::<AllocationList>(&["jobs", id, "allocations"]).await?.items)
    }

    /// What its GPU-time went into.
    pub async fn gpu_time(&self, id: &str) -> Result<GpuTime, ClientError> {
        self.get(&["jobs", id, "goodput"]).await
    }

    /// What its webhooks were told, newest first.
    pub async fn deliveries(&self, id: &str) -> Result<Vec<Delivery>, ClientError> {
        Ok(self.get::<DeliveryList>(&["jobs", id, "deliveries"]).await?.items)
    }

    /// Calls its webhooks now, each once, to see whether they answer.
    pub async fn test_delivery(&self, id: &str) -> Result<DeliveryTest, ClientError> {
        self.read(self.request(Method::POST, &["jobs", id, "deliveries"])).await
    }

    /// Committed checkpoints, newest first.
    pub async fn checkpoints(&self, id: &str) -> Result<Vec<Checkpoint>, ClientError> {
        Ok(self.get::<CheckpointList>(&["jobs", id, "checkpoints"]).await?.items)
    }

    /// Measurements over a job's whole life, oldest first.
    pub async fn series(&self, id: &str) -> Result<Vec<SeriesPoint>, ClientError> {
        Ok(self.get::<Series>(&["jobs", id, "series"]).await?.points)
    }

    /// The newest events of a job, newest first.
    pub async fn job_events(&self, id: &str, limit: u32) -> Result<Vec<EventRecord>, ClientError> {
        let request = self.request(Method::GET, &["jobs", id, "events"]).query(&[("limit", limit)]);
        Ok(self.read::<EventList>(request).await?.items)
    }

    /// Lines of ranks as they come, until there are no more, or, of a follower, the job is over.
    pub async fn log_lines(
        &self,
        id: &str,
        wanted: &LogLines,
    ) -> Result<impl Stream<Item = Result<Bytes, ClientError>> + Send + use<>, ClientError> {
        let response = self.send(self.request(Method::GET, &["jobs", id, "logs"]).query(wanted)).await?;
        let url = response.url().to_string();
        Ok(response.bytes_stream().map_err(move |source| ClientError::Unreachable { url: url.clone(), source }))
    }

    /// A piece of one rank's output.
    pub async fn logs(&self, id: &str, wanted: &LogRequest) -> Result<LogPage, ClientError> {
        let query: Vec<(&str, u64)> = [
            ("rank", Some(u64::from(wanted.rank))),
            ("generation", wanted.generation),
            ("offset", wanted.offset),
            ("tail", wanted.tail.map(u64::from)),
        ]
        .into_iter()
        .filter_map(|(name, value)| Some((name, value?)))
        .collect();
        let request = self.request(Method::GET, &["jobs", id, "logs"]).query(&query);
        let response = self.send(request.timeout(REQUEST_TIME)).await?;
        let url = response.url().to_string();
        let number = |name: &str| -> Result<u64, ClientError> {
            let value = header(response.headers(), name).and_then(|value| value.parse().ok());
            value.ok_or_else(|| ClientError::BadReply { url: url.clone(), message: format!("no {name} header") })
        };
        let (next_offset, generation) = (number("x-next-offset")?, number("x-generation")?);
        let at_end = header(response.headers(), "x-log-end") == Some("true");
        let bytes = response.bytes().await.map_err(|source| ClientError::Unreachable { url, source })?;
        Ok(LogPage { bytes: bytes.into(), next_offset, at_end, generation })
    }
}
