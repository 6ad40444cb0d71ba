//! What opens agents' sessions, and for how long: a session stands no longer than the certificate, or the token, that opened it.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::{Arc, Mutex as StdMutex, PoisonError};
use std::time::{Duration, Instant};

use headway_types::{NodeId, NodeInventory, Timestamp, TokenScope};
use tokio::sync::{Mutex, watch};
use tonic::{Request, Status};
use uuid::Uuid;

use super::lookups::Lookups;
use super::{Admission, Peer};
use crate::audit::Refusals;
use crate::authority::{IdentityKind, Shown, speaks_for, wall};
use crate::clock::Clock;
use crate::driver::Arrival;
use crate::metrics;
use crate::store::{AuditEntry, Claims, Identity, Store, StoreError, Token, TokenHash, answered};
use crate::wrong_tokens::WrongTokens;

/// After a store that did not answer, which says nothing about tokens.
const ASK_AGAIN: Duration = Duration::from_secs(1);
/// How long it is known which tokens are right, while wrong ones come.
const READ_AGAIN: Duration = Duration::from_secs(1);
const REVOKED: &str =
    "the agent's token was revoked or has expired; give it another (`headway token create --scope agent`)";
/// The same of the same node is in the audit once in so long.
const TELL_AGAIN: Duration = Duration::from_secs(3_600);
/// Of so many nodes and reasons; more are events and counted alone.
const TOLD_AT_MOST: usize = 4_096;
/// What an agent does, as the audit calls it.
const OPEN_SESSION: &str = "open_agent_session";
/// Changes of credentials that come together are looked up together: each concerns all open sessions.
const TOGETHER: Duration = Duration::from_millis(200);
/// A wait for an end that is further away is begun anew.
const LONGEST_WAIT: Duration = Duration::from_secs(86_400);

/// Looks up certificates and tokens; cheap to clone.
#[derive(Clone)]
pub(super) struct Credentials {
    store: Store,
    clock: Clock,
    admission: Admission,
    /// The epochs of all identities after a change; none of one that was revoked.
    identities: Arc<Mutex<Option<Epochs>>>,
    /// The newest look-up after a change: most agents share one token.
    newest: Arc<Mutex<Option<LookUp>>>,
    identified: Lookups<Uuid, Option<Identity>>,
    claimed: Lookups<(Uuid, String), Claims>,
    tokens: Lookups<TokenHash, Option<Token>>,
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

/// What is valid after so many changes.
struct Epochs {
    changes: u64,
    of: Arc<BTreeMap<Uuid, Option<u64>>>,
}

/// What a session was opened with.
pub(super) enum Admitted {
    Certificate(Arc<Shown>),
    Token { hash: TokenHash, token: Token },
}

impl Admitted {
    /// The token, where one was brought.
    pub(super) fn token(&self) -> Option<Uuid> {
        match self {
            Self::Certificate(_) => None,
            Self::Token { token, .. } => Some(token.id),
        }
    }
}

/// What a token opened after so many changes.
struct LookUp {
    changes: u64,
    of: TokenHash,
    token: Option<Token>,
}

impl Credentials {
    pub(super) fn new(store: Store, clock: Clock, admission: Admission) -> Self {
        Self {
            refusals: Refusals::start(store.clone()),
            store,
            clock,
            admission,
            identities: Arc::default(),
            newest: Arc::default(),
            identified: Lookups::default(),
            claimed: Lookups::default(),
            tokens: Lookups::default(),
            wrong_tokens: WrongTokens::default(),
            right: Arc::default(),
            told: Arc::default(),
        }
    }

    pub(super) fn refusals(&self) -> &Refusals {
        &self.refusals
    }

    pub(super) fn wrong_tokens(&self) -> &WrongTokens {
        &self.wrong_tokens
    }

    /// Looks at nothing but the connection and the head of the request.
    pub(super) async fn admit<T>(&self, request: &Request<T>) -> Result<Admitted, Status> {
        let peer = request.extensions().get::<Peer>();
        if let Some((peer, shown)) = peer.and_then(|peer| Some((peer, peer.shown.as_ref()?))) {
            self.stands_now(shown).await?;
            peer.visitor.is_known();
            return Ok(Admitted::Certificate(Arc::clone(shown)));
        }
        if !self.admission.tokens() {
            metrics::agent_wrong_token("refused");
            return Err(Status::permission_denied(
                "this scheduler knows nodes by their certificates alone: make a join token (`headway node token create`) and have the node \
                 join with it (`headway node join`)",
            ));
        }
        let (hash, token) = self.admit_by_token(request, peer).await?;
        Ok(Admitted::Token { hash, token })
    }

    /// Whether the certificate opens anything now.
    pub(super) async fn stands_now(&self, shown: &Shown) -> Result<(), Status> {
        let known = answered(self.identity_of(shown.named.id)).await.map_err(not_looked_up)?;
        let valid = known.map(|one| one.revoked_at.is_none().then_some(one.named.epoch));
        self.judge(shown, valid).map_err(Status::permission_denied)
    }

    /// The same by what was valid after a change, which is read once for all sessions.
    async fn stands(&self, shown: &Shown, change: u64) -> Result<Result<(), String>, StoreError> {
        let mut newest = self.identities.lock().await;
        let of = match &*newest {
            Some(Epochs { changes, of }) if *changes == change => Arc::clone(of),
            _ => {
                let of = Arc::new(answered(self.store.epochs()).await?);
                *newest = Some(Epochs { changes: change, of: Arc::clone(&of) });
                of
            }
        };
        drop(newest);
        Ok(self.judge(shown, of.get(&shown.named.id).copied()))
    }

    /// `valid`: the epoch of the identity; `Some(None)`: it was revoked; `None`: nothing is known of it, as after a restore.
    fn judge(&self, shown: &Shown, valid: Option<Option<u64>>) -> Result<(), String> {
        let name = &shown.named.name;
        let fleet = if shown.named.kind == IdentityKind::Fleet { " --fleet" } else { "" };
        let again = format!(
            "make a token for it (`headway node token create --node {name}{fleet}`) and have it join again (`headway node join`)"
        );
        if shown.expires_at <= wall() {
            return Err(format!("the certificate of {name} has expired: {again}"));
        }
        if !self.admission.believes(shown) {
            return Err(format!("who signed the certificate of {name} was retired: {again}"));
        }
        match valid {
            Some(None) => Err(format!("the certificate of {name} was revoked: {again}")),
            Some(Some(epoch)) if epoch > shown.named.epoch => Err(format!("{name} has joined again since: {again}")),
            Some(Some(_)) | None => Ok(()),
        }
    }

    /// Whether whoever was let in may register under this id and name, and whether the node is known; else why not.
    pub(super) async fn may_register(
        &self,
        admitted: &Admitted,
        inventory: &NodeInventory,
    ) -> Result<Result<Arrival, String>, StoreError> {
        let (id, name) = (inventory.node.0, inventory.name.as_str());
        let arrival_of = |claims: &Claims| if claims.registered.is_some() { Arrival::Return } else { Arrival::New };
        let Admitted::Certificate(shown) = admitted else {
            let claims = answered(self.claims_of(id, name)).await?;
            return Ok(not_by_token(&claims, id, name).map(|()| arrival_of(&claims)));
        };
        let named = &shown.named;
        if !speaks_for(named, name) || (named.kind == IdentityKind::Node && named.id != id) {
            return Ok(Err(format!(
                "it says that it is node {name} ({id}), and its certificate is of the {} {} ({})",
                named.kind, named.name, named.id
            )));
        }
        let claims = answered(self.claims_of(id, name)).await?;
        let arrival = arrival_of(&claims);
        let others = match named.kind {
            IdentityKind::Node => claims.name_holder.filter(|holder| *holder != id).is_some(),
            // What the fleet emulates is no node that has joined, and none that is known by another name.
            IdentityKind::Fleet => {
                claims.certified.is_some()
                    || claims.name_holder.is_some()
                    || claims.registered.is_some_and(|known| known != name)
            }
        };
        if others {
            return Ok(Err(format!("node {name} ({id}) is another's than the {} {}'s", named.kind, named.name)));
        }
        let forgotten = claims.certified.is_none_or(|(_, known)| known < named.epoch);
        if named.kind == IdentityKind::Node && forgotten {
            // The database is older than the certificate.
            answered(self.store.note_certificate(named, None, wall(), shown.expires_at)).await?;
        }
        Ok(Ok(arrival))
    }

    async fn admit_by_token<T>(&self, request: &Request<T>, peer: Option<&Peer>) -> Result<(TokenHash, Token), Status> {
        let refused = || Status::unauthenticated("a bearer token of scope agent is needed");
        let header = request.metadata().get("authorization").ok_or_else(refused)?;
        let secret = header.to_str().ok().and_then(|value| value.strip_prefix("Bearer ")).ok_or_else(refused)?;
        let hash = TokenHash::of(secret);
        let address = peer.map(|peer| peer.visitor.address());
        if let Some(wait) = self.wrong_tokens.wait(address, Instant::now())
            && !self.is_right(&hash).await?
        {
            metrics::agent_wrong_token("throttled");
            let wait = wait.as_secs().max(1);
            let told = format!("too many wrong tokens came from this address: no other is looked at for {wait} s");
            return Err(Status::resource_exhausted(told));
        }
        let token = answered(self.token_of(hash.clone())).await.map_err(not_looked_up)?;
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
        if let Some(peer) = peer {
            peer.visitor.is_known();
        }
        Ok((hash, token))
    }

    async fn identity_of(&self, id: Uuid) -> Result<Option<Identity>, StoreError> {
        let query = |ids: Vec<Uuid>| {
            let store = self.store.clone();
            async move { store.identities_of(&ids).await }
        };
        self.identified.look_up(id, query).await
    }

    async fn claims_of(&self, id: Uuid, name: &str) -> Result<Claims, StoreError> {
        let query = |nodes: Vec<(Uuid, String)>| {
            let store = self.store.clone();
            async move { store.claims(&nodes).await }
        };
        self.claimed.look_up((id, name.to_owned()), query).await
    }

    /// Most agents that wait have brought the same token, which is looked up once for all of them.
    async fn token_of(&self, hash: TokenHash) -> Result<Option<Token>, StoreError> {
        let query = |hashes: Vec<TokenHash>| {
            let (store, now) = (self.store.clone(), self.clock.now());
            async move {
                let mut found: BTreeMap<TokenHash, Option<Token>> = BTreeMap::new();
                let mut tokens = Vec::new();
                for hash in hashes {
                    if !found.contains_key(&hash) {
                        let token = store.find_token(&hash, now).await?;
                        found.insert(hash.clone(), token);
                    }
                    tokens.push(found.get(&hash).cloned().flatten());
                }
                Ok(tokens)
            }
        };
        self.tokens.look_up(hash, query).await
    }

    /// A session was refused for what its agent says: the audit keeps it, of a node that goes on trying once an hour.
    pub(super) fn note_refused(&self, node: NodeId, token: Option<Uuid>, address: Option<IpAddr>, reason: &str) {
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
            token_id: token,
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
        let tokens = answered(self.store.tokens_of_nodes(self.clock.now())).await.map_err(not_looked_up)?;
        let is_right = tokens.contains(hash);
        *right = Some(Right { read_at: Instant::now(), tokens });
        Ok(is_right)
    }

    /// Returns why once what the session was opened with opens none any more. `changes`: from before it was looked up.
    pub(super) async fn over(&self, admitted: Admitted, changes: watch::Receiver<u64>) -> String {
        match admitted {
            Admitted::Certificate(shown) => self.certificate_over(&shown, changes).await,
            Admitted::Token { hash, token } => {
                self.token_over(hash, token, changes).await;
                REVOKED.to_owned()
            }
        }
    }

    async fn certificate_over(&self, shown: &Shown, mut changes: watch::Receiver<u64>) -> String {
        loop {
            let left = Duration::try_from_secs_f64(shown.expires_at.since(wall()).0.max(0.0)).unwrap_or(LONGEST_WAIT);
            tokio::select! {
                // Whoever counts lives as long as there are sessions.
                _ = changes.changed() => {}
                () = tokio::time::sleep(left.min(LONGEST_WAIT)) => {}
            }
            tokio::time::sleep(TOGETHER).await;
            let change = *changes.borrow_and_update();
            match self.stands(shown, change).await {
                Ok(Ok(())) => {}
                Ok(Err(why)) => return why,
                Err(error) => {
                    tracing::warn!(error = &error as &dyn std::error::Error, "certificate lookup failed");
                    tokio::time::sleep(ASK_AGAIN).await;
                    changes.mark_changed();
                }
            }
        }
    }

    async fn token_over(&self, hash: TokenHash, token: Token, mut changes: watch::Receiver<u64>) {
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
            tokio::time::sleep(TOGETHER).await;
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
        let token = answered(self.store.find_token(hash, self.clock.now())).await?;
        *newest = Some(LookUp { changes: change, of: hash.clone(), token: token.clone() });
        Ok(token)
    }

    async fn until(&self, end: Option<Timestamp>) {
        match end {
            Some(end) => tokio::time::sleep(self.clock.until(end).min(LONGEST_WAIT)).await,
            None => std::future::pending().await,
        }
    }
}

pub(super) fn not_looked_up(error: StoreError) -> Status {
    tracing::error!(error = &error as &dyn std::error::Error, "credential lookup failed");
    Status::unavailable("the scheduler cannot check credentials now")
}

/// A token is everybody's who has it: it speaks for no node that has a certificate, or had one.
fn not_by_token(claims: &Claims, id: Uuid, name: &str) -> Result<(), String> {
    let of = claims
        .certified
        .as_ref()
        .map(|(name, _)| name.as_str())
        .or_else(|| claims.name_holder.is_some().then_some(name));
    match of {
        None => Ok(()),
        Some(of) => Err(format!(
            "it says that it is node {name} ({id}) and brings a token, but {of} is known by its certificate: start the agent with it, or make \
             a token for the node (`headway node token create --node {name}`) and have it join again"
        )),
    }
}

fn speaks_for_nodes(scope: TokenScope) -> bool {
    match scope {
        TokenScope::Agent | TokenScope::Admin => true,
        TokenScope::Viewer | TokenScope::User | TokenScope::Operator => false,
    }
}
