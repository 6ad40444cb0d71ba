//! Users and access tokens.

use chrono::{DateTime, Utc};
use headway_types::TokenScope;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;

use super::login::RoleSource;
use super::quota::{UserLoad, UserQuota};

/// A token without its secret.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Token {
    pub id: Uuid,
    /// A label; it lends no identity.
    pub name: String,
    /// Whose it is; null of an agent's, which is nobody's.
    pub user: Option<String>,
    /// What it opens: never more than its user's role.
    pub scope: TokenScope,
    pub created_at: DateTime<Utc>,
    pub expires_at: Option<DateTime<Utc>>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TokenList {
    pub items: Vec<Token>,
    #[serde(default)]
    pub next_cursor: Option<String>,
}

/// Asks for a token of one's own, or, of an admin, for somebody else's or an agent's.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct TokenRequest {
    /// A label to know it by.
    pub name: String,
    /// What it opens; absent: what the caller's own token does. `agent` is nobody's.
    #[serde(default)]
    pub scope: Option<TokenScope>,
    /// Whose it is to be; absent: the caller's. A user who is not there is made, with the token's scope as role.
    #[serde(default)]
    pub user: Option<String>,
    /// Life in seconds; absent: 90 days, and for an agent's token until it is revoked.
    #[serde(default)]
    pub ttl_s: Option<f64>,
    /// The token opens something until it is revoked. Not with `ttl_s`.
    #[serde(default)]
    pub never_expires: bool,
}

/// A new token. The secret is shown here and never again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CreatedToken {
    pub token: Token,
    pub secret: String,
}

/// A browser that has logged in with a token. It opens what its token opens, and ends with it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct BrowserSession {
    pub id: Uuid,
    pub user: String,
    /// What was logged in with.
    pub token_id: Uuid,
    pub created_at: DateTime<Utc>,
    /// To a minute.
    pub used_at: DateTime<Utc>,
    /// Unless it is used before.
    pub expires_at: DateTime<Utc>,
    /// However much it is used.
    pub ends_at: DateTime<Utc>,
    /// Whether it is the caller's own, which this request came by.
    pub current: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct BrowserSessionList {
    pub items: Vec<BrowserSession>,
}

/// A person, or a program with an identity of its own, who owns jobs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct User {
    pub name: String,
    /// The most that a token of this user opens.
    pub role: TokenScope,
    pub created_at: DateTime<Utc>,
    /// Tokens that open something.
    pub tokens: u32,
    /// Who gave the role.
    #[serde(default)]
    pub role_from: RoleSource,
    /// Whether the user is somebody at the identity provider.
    #[serde(default)]
    pub linked: bool,
    /// What this user may have at most.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quota: Option<UserQuota>,
    /// What of it is in use; absent where the reader may not know of all jobs and is somebody else.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub used: Option<UserLoad>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct UserList {
    pub items: Vec<User>,
}

/// Body of `PUT /users/{user}`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct UserRequest {
    /// viewer, user, operator or admin.
    pub role: TokenScope,
}
