//! Postgres: the only state. One file per table, one method per use case; rows become types at this border.
//!
//! Nothing here decides, and nothing here reads a clock: times come from the engine or the caller.

// Interface for readers (HTTP): all methods are `async` on `Store` and return `Result<_, StoreError>`.

use headway_engine::record::{Allocation, Checkpoint, EventRecord, Job, PlanRecord};
use headway_types::{Configuration, Generation, JobId, NodeId, PlanId, Seconds, Timestamp, Tokens, TokensPerSecond};
use uuid::Uuid;

/// The store; cheap to clone.
#[derive(Clone)]
pub struct Store {
    pool: sqlx::PgPool,
}

/// Why the store did not do what was asked.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// Another server holds a newer term: this one must not act any more.
    #[error("term {term} is over")]
    Fenced { term: headway_types::Term },
    /// Postgres said no, or whether it was done is unknown.
    #[error("{action}")]
    Database { action: &'static str, #[source] source: sqlx::Error },
    /// A stored record does not read as what it should be.
    #[error("reading a stored {what}")]
    Corrupt { what: &'static str, #[source] source: serde_json::Error },
}

/// One page, newest first unless said otherwise; `next` continues it.
#[derive(Clone, Debug, PartialEq)]
pub struct Page<T, C> {
    pub items: Vec<T>,
    pub next: Option<C>,
}

/// Coarse job states, as the listing filters them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum StateName { Queued, Held, Starting, Running, Stopping, Succeeded, Failed, Cancelled }

#[derive(Clone, Debug, Default, PartialEq)]
pub struct JobFilter {
    /// Empty: any.
    pub states: Vec<StateName>,
    pub project: Option<String>,
    pub owner: Option<String>,
    pub name_contains: Option<String>,
    pub limit: u32,
    /// The last job of the page before.
    pub cursor: Option<JobId>,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct EventFilter {
    /// Oldest first, from here on (exclusive).
    pub after: Option<u64>,
    /// Newest first, before this (exclusive); used when `after` is absent.
    pub before: Option<u64>,
    pub job: Option<JobId>,
    pub node: Option<NodeId>,
    pub limit: u32,
}

/// Measurements of one job over one interval, from rank 0's reports: sums and last values.
#[derive(Clone, Debug, PartialEq)]
pub struct SeriesPoint {
    pub at: Timestamp,
    pub generation: Generation,
    pub gpus: u32,
    pub configuration: Configuration,
    /// Last step covered, and how many steps.
    pub step: u64,
    pub steps: u64,
    pub tokens: Tokens,
    /// Tokens × statistical efficiency (equal to `tokens` while that is unknown).
    pub reference_tokens: Tokens,
    /// Training time covered.
    pub duration: Seconds,
    /// GNS φ in tokens.
    pub noise_scale: Option<f64>,
    pub loss: Option<f64>,
}

impl SeriesPoint {
    pub fn throughput(&self) -> TokensPerSecond { todo!() }
    pub fn goodput(&self) -> TokensPerSecond { todo!() }
    pub fn efficiency(&self) -> f64 { todo!() }
    pub fn step_time(&self) -> Seconds { todo!() }
}

/// What a token may do; each scope includes those before it, except `Agent`, which stands alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope { Agent, Viewer, User, Admin }

/// A bearer token, without its secret: only the SHA-256 of it is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Token {
    pub id: Uuid,
    pub name: String,
    pub scope: Scope,
    pub created_at: Timestamp,
    pub expires_at: Option<Timestamp>,
}

/// SHA-256 of a token's secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenHash([u8; 32]);
impl TokenHash { pub fn of(secret: &str) -> Self { todo!() } }

impl Store {
    pub async fn list_jobs(&self, filter: &JobFilter) -> Result<Page<Job, JobId>, StoreError> { todo!() }
    pub async fn job(&self, job: JobId) -> Result<Option<Job>, StoreError> { todo!() }
    pub async fn events(&self, filter: &EventFilter) -> Result<Page<EventRecord, u64>, StoreError> { todo!() }
    /// Oldest first.
    pub async fn allocations(&self, job: JobId) -> Result<Vec<Allocation>, StoreError> { todo!() }
    /// Newest first.
    pub async fn checkpoints(&self, job: JobId) -> Result<Vec<Checkpoint>, StoreError> { todo!() }
    /// Oldest first, thinned to at most `max_points` by merging neighbours of one generation.
    pub async fn series(&self, job: JobId, from: Option<Timestamp>, to: Option<Timestamp>, max_points: u32) -> Result<Vec<SeriesPoint>, StoreError> { todo!() }
    pub async fn plans(&self, before: Option<PlanId>, limit: u32) -> Result<Page<PlanRecord, PlanId>, StoreError> { todo!() }
    pub async fn plan(&self, plan: PlanId) -> Result<Option<PlanRecord>, StoreError> { todo!() }
    pub async fn create_token(&self, name: &str, scope: Scope, hash: &TokenHash, now: Timestamp, expires_at: Option<Timestamp>) -> Result<Token, StoreError> { todo!() }
    /// The token with this hash, unless it has expired or was revoked.
    pub async fn find_token(&self, hash: &TokenHash, now: Timestamp) -> Result<Option<Token>, StoreError> { todo!() }
    pub async fn tokens(&self) -> Result<Vec<Token>, StoreError> { todo!() }
    /// Whether there was one to revoke.
    pub async fn revoke_token(&self, token: Uuid, now: Timestamp) -> Result<bool, StoreError> { todo!() }
}
