//! Logging in through the site's identity provider (OpenID Connect): what an installation says of it (`settings`), asking it (`provider`), what of its answers
//! is believed (`verify`), and what a person's groups give here (`mapping`). It opens nothing itself: `http/oidc.rs` makes the session or the token.
//!
//! Nothing that a caller says chooses whom the server asks: the issuer is the installation's word, all endpoints are the issuer's.

mod mapping;
mod provider;
mod settings;
mod signatures;
mod verify;

pub(crate) use mapping::{Grants, Step, step};
pub(crate) use provider::{Answered, Provider, ProviderError, Spoken};
pub use settings::{OidcError, OidcSettings};
pub(crate) use verify::Claims;

/// Asks the provider once, as `headway admin config validate` does; what it said of itself, in words.
///
/// # Errors
/// Where it does not answer, or not as an identity provider.
pub async fn probe(settings: OidcSettings) -> Result<String, OidcError> {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let provider = Provider::new(settings, "http://localhost").map_err(OidcError::Client)?;
    let metadata = provider.refresh().await.map_err(|error| OidcError::Provider(error.to_string()))?;
    let device = if metadata.device_authorization_endpoint.is_some() { "" } else { "no " };
    Ok(format!("{} answers, with its keys; {device}device flow", metadata.issuer))
}
