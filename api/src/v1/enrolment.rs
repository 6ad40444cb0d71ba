//! How nodes become known: join tokens, certificates, and the authorities that sign them.

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;

use crate::secret;

/// Asks for a token that admits nodes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct JoinTokenRequest {
    /// Whom alone it admits; also one that is known already, which then has a new certificate and the former opens nothing.
    #[serde(default)]
    pub node: Option<String>,
    /// For a fleet of emulated nodes (`headway agent --emulate`) instead of a node.
    #[serde(default)]
    pub fleet: bool,
    /// How many it admits, 1 to 10000; absent: one.
    #[serde(default)]
    pub uses: Option<u32>,
    /// Life in seconds, 10 to 604800; absent: 900.
    #[serde(default)]
    pub ttl_s: Option<f64>,
}

/// A token that admits nodes, without its secret.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct JoinToken {
    pub id: Uuid,
    /// Whom alone it admits.
    pub node: Option<String>,
    pub fleet: bool,
    pub uses_left: u32,
    pub created_by: String,
    pub expires_at: DateTime<Utc>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct JoinTokenList {
    pub items: Vec<JoinToken>,
}

/// A new token, shown here and never again. It holds the fingerprint of the authority, by which the node knows the scheduler.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CreatedJoinToken {
    pub token: JoinToken,
    pub secret: String,
    /// Where nodes reach this server.
    pub agents_url: String,
}

/// Who a node is, by certificate.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct NodeCertificate {
    /// The node's id; of a fleet one of its own.
    pub id: Uuid,
    pub name: String,
    /// It speaks for all nodes whose names begin with its own and a hyphen.
    pub fleet: bool,
    /// How often it has joined.
    pub epoch: u64,
    /// The fingerprint of what signed it; empty: signed before this database was restored.
    pub authority: String,
    pub issued_at: DateTime<Utc>,
    pub expires_at: DateTime<Utc>,
    pub revoked_at: Option<DateTime<Utc>>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct NodeCertificateList {
    pub items: Vec<NodeCertificate>,
}

/// An authority that the site's own has made for Headway alone: whoever has another certificate of it that names a node passes for that node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NodeAuthorityRequest {
    /// One certificate in PEM, without those above it: it may sign others, and it ends no sooner than in a day.
    pub certificate: String,
    /// Its key: PKCS #8 in PEM, without a pass phrase; ECDSA, Ed25519 or RSA. It is stored sealed, and no reply has it.
    #[schema(value_type = String, format = Password, write_only)]
    pub key: secret::Secret,
}

/// What signs nodes' certificates.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct NodeAuthority {
    /// SHA-256 of the certificate.
    pub fingerprint: String,
    /// PEM.
    pub certificate: String,
    /// Whether it signs; the others are believed until what they have signed is renewed.
    pub signs: bool,
    /// Nodes and fleets whose newest certificate is of it.
    pub certificates: u32,
    pub expires_at: DateTime<Utc>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct NodeAuthorityList {
    /// Whether agents' tokens are taken as well.
    pub agent_tokens: bool,
    /// The one that signs first.
    pub items: Vec<NodeAuthority>,
}
