//! Logging in through the site's identity provider, and who is whom there.

use headway_types::TokenScope;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::access::CreatedToken;

/// Whether, and through whom, people log in.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct LoginProvider {
    /// Whether the server has an identity provider; the rest is absent where it has none, and the endpoints until it has answered once.
    pub enabled: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub issuer: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client_id: Option<String>,
    #[serde(default)]
    pub scopes: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub authorization_endpoint: Option<String>,
    /// Whether the provider takes logins that begin on a machine without a browser (RFC 8628).
    #[serde(default)]
    pub device: bool,
    /// Whether the provider answered when it was last asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reachable: Option<bool>,
}

/// A login that waits for somebody to confirm it in a browser.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct DeviceLogin {
    /// For `POST /auth/oidc/device/token`; whoever has it gets the token.
    pub device_code: String,
    /// For the person, to type in.
    pub user_code: String,
    pub verification_uri: String,
    /// With the code in it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verification_uri_complete: Option<String>,
    pub expires_in_s: f64,
    /// How long to wait between two questions.
    pub interval_s: f64,
}

/// Asks whether a device login was confirmed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct DeviceLoginRequest {
    pub device_code: String,
    /// A label for the token, such as the machine's name.
    #[serde(default)]
    pub name: Option<String>,
}

/// The token, once the login was confirmed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct DeviceLoginReply {
    /// Null while it is waited for.
    pub made: Option<CreatedToken>,
    /// How long to wait before asking again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wait_s: Option<f64>,
}

/// Exchanges the code that a browser brought back to this machine (RFC 8252).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CodeLoginRequest {
    pub code: String,
    pub code_verifier: String,
    /// `http://127.0.0.1:PORT/callback` or `http://[::1]:PORT/callback`, as the login was begun with.
    pub redirect_uri: String,
    pub nonce: String,
    /// A label for the token, such as the machine's name.
    #[serde(default)]
    pub name: Option<String>,
}

/// Who gave a role.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum RoleSource {
    /// An admin; no login changes it.
    #[default]
    Hand,
    /// Groups of the identity provider; each login sets it anew.
    Groups,
}

/// Says who a user is at the identity provider.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct IdentityRequest {
    /// As the provider calls the person (`sub`).
    pub subject: String,
    /// Absent: the server's.
    #[serde(default)]
    pub issuer: Option<String>,
    /// Whether each login sets the role anew.
    #[serde(default)]
    pub role_from: RoleSource,
}

/// Who a user is at the identity provider.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Identity {
    pub user: String,
    pub issuer: String,
    pub subject: String,
    pub role: TokenScope,
    pub role_from: RoleSource,
}
