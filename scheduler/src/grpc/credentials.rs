//! What opens agents' sessions, and for how long: a session stands no longer than the token that opened it.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::{Arc, Mutex as StdMutex, PoisonError};
use std::time::{Duration, Instant};

use headway_types::{NodeId, TokenScope};
use tokio::sync::{Mutex, watch};
use tonic::{Request, Status};
use uuid::Uuid;

use crate::audit::Refusals;
use crate::clock::Clock;
use crate::metrics;
use crate::server::Visitor;
use crate::store::{AuditEntry, Store, StoreError, Token, TokenHash};
use crate::wrong_tokens::WrongTokens;

/// After a store that did not answer, which says nothing about tokens.
const ASK_AGAIN: Duration = Duration::from_secs(1);
/// How long it is known which tokens are right, while wrong ones come.
const READ_AGAIN: Duration = Duration::from_secs(1);
/// The same of the same node is in the audit once in so long.
const TELL_AGAIN: Duration = Duration::from_secs(3_600);
/// Of so many nodes and reasons; more are events and counted alone.
const TOLD_AT_MOST: usize = 4_096;
/// What an agent does, as the audit calls it.
const OPEN_SESSION: &str = "open_agent_session";
/// A wait for an end that is further away is begun anew.
const LONGEST_WAIT: Duration = Duration::from_secs(86_400);

/// Looks up tokens; cheap to clone.
#[derive(Clone)]
pub(super) struct Credentials {
    store: Store,
    clock: Clock,
    /// The newest look-up after a change: most agents share one token.
    newest: Arc<Mutex<Option<LookUp>>>,
    wrong_tokens: WrongTokens,
    right: Arc<Mutex<Option<Right>>>,
    refusals: Refusals,
    /// What the audit was told of late of nodes that are refused again and again.
    told: Arc<StdMutex<BTreeMap<(NodeId, String), Instant>>>,
}

/// Tokens that speak for nodes, as they were read.
struct Right {
    read_at: Instant,
    tokens: BTreeSet<TokenHash>,
}

/// What a token opened after so many changes.
struct LookUp {
    changes: u64,
    of: TokenHash,
    token: Option<Token>,
}

impl Credentials {
    pub(super) fn new(store: Store, clock: Clock) -> Self {
        let (refusals, wrong_tokens) = (Refusals::start(store.clone()), WrongTokens::default());
        Self { store, clock, newest: Arc::default(), wrong_tokens, right: Arc::default(), refusals, told: Arc::default() }
    }

    /// Looks at nothing but the head of the request.
    pub(super) async fn admit<T>(&self, request: &Request<T>) -> Result<(TokenHash, Token), Status> {
        let refused = || Status::unauthenticated("a bearer token of scope agent is needed");
        let header = request.metadata().get("authorization").ok_or_else(refused)?;
        let secret = header.to_str().ok().and_then(|value| value.strip_prefix("Bearer ")).ok_or_else(refused)?;
        let hash = TokenHash::of(secret);
        let visitor = request.extensions().get::<Visitor>();
        let address = visitor.map(Visitor::address);
        if let Some(wait) = self.wrong_tokens.wait(address, Instant::now())
            && !self.is_right(&hash).await?
        {
            metrics::agent_wrong_token("throttled");
            let wait = wait.as_secs().max(1);
            let told = format!("too many wrong tokens came from this address: no other is looked at for {wait} s");
            return Err(Status::resource_exhausted(told));
        }
        let token = self.store.find_token(&hash, self.clock.now()).await.map_err(not_looked_up)?;
        let Some(token) = token else {
            metrics::agent_wrong_token("refused");
            if self.wrong_tokens.count(address, hash.bytes(), Instant::now()) {
                self.refusals.note_guesses(address, self.clock.now(), OPEN_SESSION);
            }
            return Err(refused());
        };
        if !speaks_for_nodes(token.scope) {
            let actor = token.user.as_ref().map_or_else(|| "agent".to_owned(), |user| format!("user:{user}"));
            let refused = AuditEntry::without_a_person(self.clock.now(), actor, OPEN_SESSION);
            let (token_id, address) = (Some(token.id), address.map(|address| address.to_string()));
            self.refusals.note(AuditEntry { token_id, address, code: Some("forbidden".into()), ..refused });
            return Err(Status::permission_denied("this token does not speak for nodes"));
        }
        if let Some(visitor) = visitor {
            visitor.is_known();
        }
        Ok((hash, token))
    }

    /// A session was refused for what its agent says: the audit keeps it, of a node that goes on trying once an hour.
    pub(super) fn note_refused(&self, node: NodeId, token: Uuid, address: Option<IpAddr>, reason: &str) {
        let now = Instant::now();
        {
            // The map is valid between any two of its operations, so a panic elsewhere does not spoil it.
            let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
            told.retain(|_, at| now.saturating_duration_since(*at) < TELL_AGAIN);
            if told.len() >= TOLD_AT_MOST || told.insert((node, reason.to_owned()), now).is_some() {
                return;
            }
        }
        let refused = AuditEntry::without_a_person(self.clock.now(), format!("node:{node}"), OPEN_SESSION);
        self.refusals.note(AuditEntry {
            token_id: Some(token),
            address: address.map(|address| address.to_string()),
            subjects: vec![format!("node:{node}")],
            reason: Some(reason.to_owned()),
            code: Some("agent_refused".into()),
            ..refused
        });
    }

    /// Whether the token speaks for nodes, by a list of all that do, which is read once a second at most: whoever guesses from the address of
    /// a node keeps no node out, and has no token of his looked up.
    async fn is_right(&self, hash: &TokenHash) -> Result<bool, Status> {
        let mut right = self.right.lock().await;
        if let Some(Right { read_at, tokens }) = &*right
            && read_at.elapsed() < READ_AGAIN
        {
            return Ok(tokens.contains(hash));
        }
        let tokens = self.store.tokens_of_nodes(self.clock.now()).await.map_err(not_looked_up)?;
        let is_right = tokens.contains(hash);
        *right = Some(Right { read_at: Instant::now(), tokens });
        Ok(is_right)
    }

    /// Returns once the token opens no session any more. `changes`: from before it was looked up.
    pub(super) async fn over(&self, hash: TokenHash, token: Token, mut changes: watch::Receiver<u64>) {
        let mut ends_at = token.expires_at;
        loop {
            tokio::select! {
                // Whoever counts lives as long as there are sessions.
                _ = changes.changed() => {}
                () = self.until(ends_at) => {}
            }
            if ends_at.is_some_and(|end| end <= self.clock.now()) {
                return;
            }
            let change = *changes.borrow_and_update();
            match self.look_again(&hash, change).await {
                Ok(Some(token)) if speaks_for_nodes(token.scope) => ends_at = token.expires_at,
                Ok(_) => return,
                Err(error) => {
                    tracing::warn!(error = &error as &dyn std::error::Error, "token lookup failed");
                    tokio::time::sleep(ASK_AGAIN).await;
                    changes.mark_changed();
                }
            }
        }
    }

    async fn look_again(&self, hash: &TokenHash, change: u64) -> Result<Option<Token>, StoreError> {
        let mut newest = self.newest.lock().await;
        if let Some(LookUp { changes: at, of, token }) = &*newest
            && (*at, of) == (change, hash)
        {
            return Ok(token.clone());
        }
        let token = self.store.find_token(hash, self.clock.now()).await?;
        *newest = Some(LookUp { changes: change, of: hash.clone(), token: token.clone() });
        Ok(token)
    }

    async fn until(&self, end: Option<headway_types::Timestamp>) {
        match end {
            Some(end) => tokio::time::sleep(self.clock.until(end).min(LONGEST_WAIT)).await,
            None => std::future::pending().await,
        }
    }
}

fn not_looked_up(error: StoreError) -> Status {
    tracing::error!(error = &error as &dyn std::error::Error, "token lookup failed");
    Status::unavailable("the scheduler cannot check tokens now")
}

fn speaks_for_nodes(scope: TokenScope) -> bool {
    match scope {
        TokenScope::Agent | TokenScope::Admin => true,
        TokenScope::Viewer | TokenScope::User | TokenScope::Operator => false,
    }
}
