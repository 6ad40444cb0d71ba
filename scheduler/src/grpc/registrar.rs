//! The `NodeRegistrar` service: gives nodes their certificates. Whoever leads admits nodes, and ends what their earlier certificates have opened;
//! any server renews.

#[cfg(test)]
mod fuzz;

use std::sync::Arc;
use std::time::Instant;

use headway_api::agent::{JoinToken, wire};
use tonic::{Request, Response, Status};
use uuid::Uuid;
use wire::node_registrar_server::{NodeRegistrar, NodeRegistrarServer};

use super::Peer;
use super::credentials::Credentials;
use super::gateway::not_leading;
use super::sessions::Sessions;
use super::turns::RegistrarTurns;
use crate::audit::Refusals;
use crate::authority::{Authorities, AuthoritiesError, IdentityKind, Issued, Named, Shown, SigningRequest, check_name};
use crate::clock::Clock;
use crate::driver::Standing;
use crate::metrics;
use crate::store::{AuditEntry, AuditResult, JoinRefusal, Store, StoreError, TokenHash, answered};

/// Whoever has no certificate yet is a stranger.
const MAX_MESSAGE: usize = 32 * 1024;

/// What the service needs of the process.
#[derive(Clone)]
pub struct Registrar {
    pub(super) store: Store,
    pub(super) clock: Clock,
    pub(super) sessions: Sessions,
    pub(super) credentials: Credentials,
    pub(super) turns: RegistrarTurns,
    pub(super) authorities: Authorities,
    pub(super) refusals: Refusals,
    pub(super) standing: Standing,
}

impl Registrar {
    /// The service to mount on a server.
    #[must_use]
    pub fn into_service(self) -> NodeRegistrarServer<Self> {
        NodeRegistrarServer::new(self).max_decoding_message_size(MAX_MESSAGE).max_encoding_message_size(4 * MAX_MESSAGE)
    }

    fn deed(&self, action: &str, named: &Named, peer: Option<&Peer>, result: AuditResult) -> AuditEntry {
        AuditEntry {
            done_at: self.clock.now(),
            actor: format!("{}:{}", named.kind, named.name),
            token_id: None,
            address: peer.map(|peer| peer.visitor.address().to_string()),
            action: action.to_owned(),
            subjects: vec![format!("{}:{}", named.kind, named.id)],
            reason: None,
            before: None,
            after: None,
            request_id: None,
            result,
            code: None,
        }
    }

    async fn admit(&self, asks: &Named, token: &JoinToken, peer: Option<&Peer>) -> Result<Named, Status> {
        let address = peer.map(|peer| peer.visitor.address());
        if let Some(wait) = self.credentials.wrong_tokens().wait(address, Instant::now()) {
            metrics::agent_wrong_token("throttled");
            let told = format!("too many wrong tokens came from this address: wait {} s", wait.as_secs().max(1));
            return Err(Status::resource_exhausted(told));
        }
        let (authority, now, until) = self.authorities.terms().map_err(|error| failed(&error))?;
        let hash = TokenHash::of(&token.secret);
        let deed = self.deed("join_node", asks, peer, AuditResult::Done);
        let _turn = self.turns.joins.take().await?;
        match answered(self.store.join(&hash, asks, (&authority, now, until), deed)).await {
            Ok(Ok(named)) => Ok(named),
            Ok(Err(refusal)) => {
                // Whoever has no token cannot fill the audit, or the log.
                if refusal == JoinRefusal::NoToken {
                    metrics::agent_wrong_token("refused");
                    if self.credentials.wrong_tokens().count(address, hash.bytes(), Instant::now()) {
                        self.refusals.note_guesses(address, self.clock.now(), "join_node");
                    }
                    return Err(Status::permission_denied(refusal.to_string()));
                }
                tracing::warn!(node_id = %asks.id, name = asks.name, %refusal, "a node is not admitted");
                let entry = self.deed("join_node", asks, peer, AuditResult::Refused);
                self.refusals.note(AuditEntry { reason: Some(refusal.to_string()), ..entry });
                Err(Status::permission_denied(refusal.to_string()))
            }
            Err(error) => Err(not_stored(&error)),
        }
    }

    fn issue(&self, request: &SigningRequest, named: &Named) -> Result<Issued, Status> {
        self.authorities.issue(request, named).map_err(|error| failed(&error))
    }

    async fn renew(&self, shown: &Arc<Shown>, request: &SigningRequest) -> Result<Issued, Status> {
        let _turn = self.turns.renewals.take().await?;
        self.credentials.stands_now(shown).await?;
        let issued = self.issue(request, &shown.named)?;
        let (authority, at) = (Some(issued.authority.as_str()), issued.issued_at);
        self.store
            .note_certificate(&shown.named, authority, at, issued.expires_at)
            .await
            .map_err(|error| not_stored(&error))?;
        Ok(issued)
    }
}

#[tonic::async_trait]
impl NodeRegistrar for Registrar {
    async fn join(&self, request: Request<wire::JoinRequest>) -> Result<Response<wire::IssuedCertificate>, Status> {
        if let Some(refusal) = not_leading(&self.standing) {
            return Err(refusal);
        }
        let peer = request.extensions().get::<Peer>().cloned();
        // All of it, before the token is used up.
        let (token, asks, signing) = understood(request.into_inner()).map_err(Status::invalid_argument)?;
        let named = self.admit(&asks, &token, peer.as_ref()).await?;
        let issued = self.issue(&signing, &named)?;
        // What an earlier certificate of it opened ends.
        self.sessions.tokens_changed();
        tracing::info!(node_id = %named.id, name = named.name, kind = %named.kind, epoch = named.epoch, "a node has joined");
        Ok(Response::new(told(issued)))
    }

    async fn renew(&self, request: Request<wire::RenewRequest>) -> Result<Response<wire::IssuedCertificate>, Status> {
        let shown = request.extensions().get::<Peer>().and_then(|peer| peer.shown.clone());
        let shown = shown.ok_or_else(|| Status::unauthenticated("the certificate that is to be renewed is needed"))?;
        let signing = SigningRequest::read(&request.into_inner().signing_request);
        let signing = signing.map_err(|wrong| Status::invalid_argument(wrong.to_string()))?;
        let issued = Registrar::renew(self, &shown, &signing).await?;
        tracing::info!(node_id = %shown.named.id, name = shown.named.name, "a certificate is renewed");
        Ok(Response::new(told(issued)))
    }
}

/// What a stranger asks who wants to join, or what is wrong with it.
fn understood(asked: wire::JoinRequest) -> Result<(JoinToken, Named, SigningRequest), String> {
    let token: JoinToken = asked.token.parse().map_err(|wrong| format!("{wrong}"))?;
    let id: Uuid = asked.identity_id.parse().map_err(|_| "identity_id is no UUID")?;
    check_name(&asked.name)?;
    let signing = SigningRequest::read(&asked.signing_request).map_err(|wrong| wrong.to_string())?;
    let kind = if asked.fleet { IdentityKind::Fleet } else { IdentityKind::Node };
    Ok((token, Named { kind, id, name: asked.name, epoch: 0 }, signing))
}

fn told(issued: Issued) -> wire::IssuedCertificate {
    wire::IssuedCertificate {
        certificate: issued.certificate,
        authorities: issued.authorities,
        server_name: issued.server_name,
        renew_after_seconds: issued.renew_after.0,
        expires_after_seconds: issued.expires_at.since(issued.issued_at).0,
    }
}

fn failed(error: &AuthoritiesError) -> Status {
    tracing::error!(error = error as &dyn std::error::Error, "no certificate is signed");
    Status::failed_precondition(error.to_string())
}

fn not_stored(error: &StoreError) -> Status {
    tracing::error!(error = error as &dyn std::error::Error, "no certificate is given");
    Status::unavailable("the scheduler cannot give certificates now")
}
