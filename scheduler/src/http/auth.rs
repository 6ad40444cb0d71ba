//! Who is calling and what they may do: bearer tokens, and cookies of browsers that logged in with one, looked up by the SHA-256 of their secret.
//!
//! The secret itself is neither stored, compared nor logged. Only digests are looked up, so the time a look-up takes
//! tells nothing about a secret. An agent's token opens no REST route. What a caller may do is said in `access`.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use axum::extract::FromRequestParts;
use axum::http::{HeaderMap, Method, header, request::Parts};
use headway_engine::event::Actor;
use headway_types::spec::Priority;
use headway_types::{Timestamp, TokenScope};
use tokio::sync::watch;
use uuid::Uuid;

use super::HttpState;
use super::access::Act;
use super::cookies::{self, Cookies};
use super::problem::Problem;
use crate::metrics;
use crate::store::{BrowserSession, StoreError, Token, TokenHash};

/// A token that was revoked elsewhere works for at most this long.
const REMEMBER: Duration = Duration::from_secs(5);
/// A token that opened something this short a time ago is looked up again whatever else comes from its address.
const KNOWN: Duration = Duration::from_secs(600);
const REMEMBER_AT_MOST: usize = 1_024;
/// A session that is not used ends after this long.
pub const IDLE: Duration = Duration::from_secs(24 * 3_600);
/// Use is noted no more often.
const NOTE_USE: Duration = Duration::from_secs(60);

/// The caller of a request.
#[derive(Clone, Debug)]
pub struct Principal {
    /// Who owns what the caller makes.
    user: String,
    pub token: Token,
    /// Where the caller is a browser that logged in with the token.
    pub session: Option<BrowserSession>,
}

impl Principal {
    /// An agent's token belongs to nobody and opens no route for people.
    fn of(Opened { token, session }: Opened) -> Result<Self, Unidentified> {
        match token.user.clone() {
            Some(user) => Ok(Self { user, token, session }),
            None => {
                let problem = Problem::forbidden("an agent's token opens no route for people");
                Err(Unidentified { problem: Box::new(problem), token: Some(token.id) })
            }
        }
    }

    /// How the audit log names the caller.
    pub fn actor(&self) -> Actor {
        Actor::User(self.user.clone())
    }

    pub fn name(&self) -> &str {
        &self.user
    }

    pub fn scope(&self) -> TokenScope {
        self.token.scope
    }

    /// The most a job may have by the caller's word: what comes before everybody's "high" is not for each to say.
    pub fn highest_priority(&self) -> Priority {
        if self.may(Act::RaisePriority).is_ok() { Priority(100) } else { Priority::HIGH }
    }
}

/// Why a credential is no person's.
#[derive(Debug)]
pub struct Unidentified {
    pub problem: Box<Problem>,
    /// What it opens, though nothing here.
    pub token: Option<Uuid>,
}

impl From<Problem> for Unidentified {
    fn from(problem: Problem) -> Self {
        Self { problem: Box::new(problem), token: None }
    }
}

impl HttpState {
    /// Whose credential this is.
    pub async fn authenticate(&self, brought: &Credential, address: Option<IpAddr>) -> Result<Principal, Unidentified> {
        Principal::of(self.tokens.find(brought, address, self).await?)
    }

    /// Tokens were revoked, or open something else: streams and agents' sessions that they opened end.
    pub fn tokens_changed(&self) {
        self.tokens.clear();
        self.cluster.tokens_changed();
    }
}

/// Whom `access` has let through.
impl FromRequestParts<HttpState> for Principal {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &HttpState) -> Result<Self, Problem> {
        parts.extensions.get::<Principal>().cloned().ok_or_else(|| {
            tracing::error!(path = %parts.uri.path(), "a route that nobody guards asks who calls");
            Problem::internal()
        })
    }
}

/// What was seen a moment ago, so that a page full of requests is one look-up.
#[derive(Clone, Default)]
pub struct TokenCache {
    recent: Arc<Mutex<Recent>>,
    cleared: Arc<watch::Sender<()>>,
}

/// When each was looked up, and what was found; nothing once any token was revoked.
type Recent = BTreeMap<Credential, (Instant, Option<Opened>)>;

/// What a credential opens.
#[derive(Clone, Debug)]
struct Opened {
    token: Token,
    session: Option<BrowserSession>,
}

impl Opened {
    fn ends_at(&self) -> Option<Timestamp> {
        self.session.as_ref().map(|session| session.expires_at).or(self.token.expires_at)
    }
}

impl TokenCache {
    async fn find(&self, brought: &Credential, address: Option<IpAddr>, state: &HttpState) -> Result<Opened, Problem> {
        let now = state.cluster.now();
        if let Some(opened) = self.recall(brought)
            && opened.ends_at().is_none_or(|end| end > now)
        {
            return Ok(opened);
        }
        if !self.knows(brought) {
            state.wrong_tokens.wait(address, Instant::now()).map_or(Ok(()), |wait| Err(throttled(wait)))?;
        }
        match brought.look_up(state, now).await? {
            Some(opened) => {
                self.remember(brought.clone(), opened.clone());
                Ok(opened)
            }
            None => {
                self.entries().remove(brought);
                metrics::wrong_token("refused");
                if state.wrong_tokens.count(address, brought.hash().bytes(), Instant::now()) {
                    state.refusals.note_guesses(address, now, "authenticate");
                }
                Err(brought.refused())
            }
        }
    }

    /// Has everything looked up again, so that a revoked token stops working at once in this process.
    pub fn clear(&self) {
        self.entries().values_mut().for_each(|(_, opened)| *opened = None);
        self.cleared.send_replace(());
    }

    /// Changes whenever everything is looked up again.
    pub fn cleared(&self) -> watch::Receiver<()> {
        self.cleared.subscribe()
    }

    fn recall(&self, brought: &Credential) -> Option<Opened> {
        self.entries().get(brought).filter(|(seen, _)| seen.elapsed() < REMEMBER)?.1.clone()
    }

    /// Whether it opened something not long ago.
    fn knows(&self, brought: &Credential) -> bool {
        self.entries().get(brought).is_some_and(|(seen, _)| seen.elapsed() < KNOWN)
    }

    fn remember(&self, brought: Credential, opened: Opened) {
        let mut entries = self.entries();
        for age in [KNOWN, REMEMBER] {
            if entries.len() >= REMEMBER_AT_MOST {
                entries.retain(|_, (seen, _)| seen.elapsed() < age);
            }
        }
        if entries.len() < REMEMBER_AT_MOST || entries.contains_key(&brought) {
            entries.insert(brought, (Instant::now(), Some(opened)));
        }
    }

    fn entries(&self) -> std::sync::MutexGuard<'_, Recent> {
        // The map is valid between any two of its operations, so a panic elsewhere does not spoil it.
        self.recent.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What a request brings to say who sends it, as far as this process keeps it: a digest.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Credential {
    Token(TokenHash),
    Cookie(TokenHash),
}

impl Credential {
    /// A token goes before a cookie, which browsers send by themselves.
    pub fn of(method: &Method, headers: &HeaderMap, cookies: &Cookies) -> Result<Self, Problem> {
        if let (false, Some(secret)) = (headers.contains_key(header::AUTHORIZATION), cookies.secret(headers)) {
            cookies::made_by_page(method, headers)?;
            return Ok(Self::Cookie(TokenHash::of(secret)));
        }
        bearer(headers)
    }

    async fn look_up(&self, state: &HttpState, now: Timestamp) -> Result<Option<Opened>, StoreError> {
        let (store, clock) = (state.cluster.store(), state.cluster.clock());
        match self {
            Self::Token(hash) => Ok(store.find_token(hash, now).await?.map(|token| Opened { token, session: None })),
            Self::Cookie(hash) => {
                let Some((session, token)) = store.find_session(hash, now).await? else { return Ok(None) };
                if now.since(session.used_at) > clock.during(NOTE_USE) {
                    store.use_session(session.id, now, now + clock.during(IDLE)).await?;
                }
                Ok(Some(Opened { token, session: Some(session) }))
            }
        }
    }

    fn hash(&self) -> &TokenHash {
        let (Self::Token(hash) | Self::Cookie(hash)) = self;
        hash
    }

    fn refused(&self) -> Problem {
        match self {
            Self::Token(_) => Problem::unauthorized("the token is unknown, revoked or expired")
                .hint("`headway up` prints one; whoever has one makes more with `headway token create`"),
            Self::Cookie(_) => over(),
        }
    }
}

pub fn over() -> Problem {
    Problem::unauthorized("the session is over").hint("log in again")
}

pub fn throttled(wait: Duration) -> Problem {
    metrics::wrong_token("throttled");
    Problem::too_many("too_many_wrong_tokens", "too many wrong tokens came from this address", wait)
        .hint("wait, and send a token that is right; tokens that have been in use go on working")
}

fn bearer(headers: &HeaderMap) -> Result<Credential, Problem> {
    let missing = || {
        Problem::unauthorized("this needs a bearer token")
            .hint("send `Authorization: Bearer <token>`; `headway up` prints one, `headway token create` makes more")
    };
    let value = headers.get(header::AUTHORIZATION).ok_or_else(missing)?;
    let text = value.to_str().map_err(|_| missing())?;
    let (scheme, secret) = text.split_once(' ').ok_or_else(missing)?;
    let secret = secret.trim();
    if !scheme.eq_ignore_ascii_case("bearer") || secret.is_empty() {
        return Err(missing());
    }
    Ok(Credential::Token(TokenHash::of(secret)))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use axum::http::HeaderValue;
    use headway_types::Timestamp;

    use super::*;

    fn principal(scope: TokenScope) -> Principal {
        let token = Token {
            id: uuid::Uuid::nil(),
            name: "ci".into(),
            user: Some("ada".into()),
            scope,
            created_at: Timestamp(0),
            expires_at: None,
            identity: None,
        };
        Principal::of(Opened { token, session: None }).unwrap()
    }

    fn authorization(value: &'static str) -> HeaderMap {
        HeaderMap::from_iter([(header::AUTHORIZATION, HeaderValue::from_static(value))])
    }

    #[test]
    fn an_agent_token_opens_no_route_for_people() {
        let token = Token { user: None, scope: TokenScope::Agent, ..principal(TokenScope::User).token };
        assert!(Principal::of(Opened { token, session: None }).is_err());
    }

    #[test]
    fn only_a_bearer_scheme_with_a_secret_counts() {
        assert!(bearer(&authorization("Bearer abc")).is_ok());
        assert!(bearer(&authorization("bearer abc")).is_ok());
        for wrong in ["Basic abc", "Bearer", "Bearer  ", "abc"] {
            assert!(bearer(&authorization(wrong)).is_err(), "{wrong}");
        }
        assert!(bearer(&HeaderMap::new()).is_err());
    }

    #[tokio::test]
    async fn a_cleared_cache_knows_nobody_and_says_so() {
        let cache = TokenCache::default();
        let mut cleared = cache.cleared();
        let (brought, token) = (Credential::Token(TokenHash::of("abc")), principal(TokenScope::User).token);
        cache.remember(brought.clone(), Opened { token, session: None });
        assert!(cache.recall(&brought).is_some());
        assert!(cache.recall(&Credential::Cookie(TokenHash::of("abc"))).is_none(), "a token is no cookie");
        cache.clear();
        assert!(cache.recall(&brought).is_none());
        assert!(cache.knows(&brought), "it is looked up again whatever else comes from its address");
        assert!(cleared.has_changed().unwrap());
        cleared.changed().await.unwrap();
    }
}
