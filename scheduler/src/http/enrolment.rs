//! How nodes become known: join tokens, certificates and their revocation, and the authorities that sign.

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use chrono::{DateTime, Utc};
use headway_api::agent::JoinToken;
use headway_api::v1;
use headway_types::{Seconds, Timestamp};
use serde::Deserialize;
use uuid::Uuid;

use super::HttpState;
use super::auth::Principal;
use super::conversions::time;
use super::extract::{Json, Path, Query};
use super::problem::Problem;
use super::tokens::fresh_secret;
use crate::authority::{Authorities, AuthoritiesError, IdentityKind, SiteError, check_name, wall};
use crate::store::{AuditEntry, Ending, Identity, NewJoinToken, Retirement, TokenHash};

const USUAL_LIFE: Seconds = Seconds(900.0);
const LIVES: std::ops::RangeInclusive<f64> = 10.0..=604_800.0;
const MOST_USES: u32 = 10_000;
/// An authority that ends sooner is told of; and how much sooner it is urgent.
const AUTHORITY_ENDS: Seconds = Seconds(90.0 * 86_400.0);
const AUTHORITY_ENDS_NOW: Seconds = Seconds(14.0 * 86_400.0);
/// A certificate is renewed when a third of its life is left: with so much of it left nobody has renewed it.
const NOT_RENEWED: f64 = 0.25;
/// Certificates that are told of one by one.
const NAMED: u32 = 5;

/// What the server knows of how nodes become known.
#[derive(Clone)]
pub struct Enrolment {
    pub(crate) authorities: Authorities,
    /// Whether agents' tokens are taken as well.
    pub(crate) takes_tokens: bool,
    /// Where agents reach this server.
    pub(crate) at: String,
}

/// Make a token that admits a node: it joins with it (`headway node join`) and is given a certificate. A token is used up by as many nodes as it is for, and lasts
/// minutes.
#[utoipa::path(post, path = "/join-tokens", tag = "nodes", request_body = v1::JoinTokenRequest,
    responses((status = 201, body = v1::CreatedJoinToken), (status = "4XX", body = v1::Problem, content_type = "application/problem+json")))]
pub async fn create_join_token(
    State(state): State<HttpState>,
    caller: Principal,
    Json(body): Json<v1::JoinTokenRequest>,
) -> Result<Response, Problem> {
    let enrolment = state.enrolment()?;
    let (authority, now, _) = enrolment.authorities.terms().map_err(problem)?;
    if let Some(name) = &body.node {
        check_name(name).map_err(|wrong| Problem::invalid(wrong).field("node"))?;
    }
    let uses = body.uses.unwrap_or(1);
    if !(1..=MOST_USES).contains(&uses) {
        return Err(Problem::invalid(format!("a join token admits 1 to {MOST_USES} nodes")).field("uses"));
    }
    let ttl = body.ttl_s.map_or(USUAL_LIFE, Seconds);
    if !LIVES.contains(&ttl.0) {
        return Err(Problem::invalid("ttl_s must be between ten seconds and seven days").field("ttl_s"));
    }
    let secret = fresh_secret("")?;
    let kind = if body.fleet { IdentityKind::Fleet } else { IdentityKind::Node };
    let new = NewJoinToken { kind, name: body.node.as_deref(), uses, expires_at: now + ttl };
    let store = state.cluster.store();
    let id = store.create_join_token(&new, &TokenHash::of(&secret), caller.name(), now, state.deed()).await?;
    tracing::info!(join_token = %id, by = caller.name(), node = body.node, uses, "join token created");
    let created = v1::CreatedJoinToken {
        token: v1::JoinToken {
            id,
            node: body.node.clone(),
            fleet: body.fleet,
            uses_left: uses,
            created_by: caller.name().to_owned(),
            expires_at: time(new.expires_at),
        },
        secret: JoinToken { secret, fingerprint: authority }.text(),
        agents_url: enrolment.at.clone(),
    };
    Ok((StatusCode::CREATED, Json(created)).into_response())
}

/// Join tokens that still admit somebody, without their secrets.
#[utoipa::path(get, path = "/join-tokens", tag = "nodes",
    responses((status = 200, body = v1::JoinTokenList), (status = "4XX", body = v1::Problem, content_type = "application/problem+json")))]
pub async fn list_join_tokens(
    State(state): State<HttpState>,
    _caller: Principal,
) -> Result<Json<v1::JoinTokenList>, Problem> {
    let tokens = state.cluster.store().join_tokens(wall()).await?;
    let told = tokens.into_iter().map(|one| v1::JoinToken {
        id: one.id,
        node: one.name,
        fleet: one.kind == IdentityKind::Fleet,
        uses_left: one.uses_left,
        created_by: one.created_by,
        expires_at: time(one.expires_at),
    });
    Ok(Json(v1::JoinTokenList { items: told.collect() }))
}

/// Revoke a join token: it admits nobody any more. Who has joined with it stays.
#[utoipa::path(delete, path = "/join-tokens/{id}", tag = "nodes", params(("id" = Uuid, Path)),
    responses((status = 204), (status = "4XX", body = v1::Problem, content_type = "application/problem+json")))]
pub async fn revoke_join_token(
    State(state): State<HttpState>,
    caller: Principal,
    Path(id): Path<Uuid>,
) -> Result<StatusCode, Problem> {
    if !state.cluster.store().revoke_join_token(id, state.deed()).await? {
        return Err(Problem::not_found(format!("no join token {id}")));
    }
    tracing::info!(join_token = %id, by = caller.name(), "join token revoked");
    Ok(StatusCode::NO_CONTENT)
}

/// Who has joined, by certificate, those that were revoked among them.
#[utoipa::path(get, path = "/node-certificates", tag = "nodes",
    responses((status = 200, body = v1::NodeCertificateList), (status = "4XX", body = v1::Problem, content_type = "application/problem+json")))]
pub async fn list_node_certificates(
    State(state): State<HttpState>,
    _caller: Principal,
) -> Result<Json<v1::NodeCertificateList>, Problem> {
    let all = state.cluster.store().identities().await?;
    Ok(Json(v1::NodeCertificateList { items: all.iter().map(certificate).collect() }))
}

#[derive(Debug, Default, Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
pub struct RevocationQuery {
    /// Why, for the audit.
    pub reason: Option<String>,
}

/// Revoke the certificate of a node or a fleet, by name or id: its session ends within a second, and the certificate opens nothing any more. What runs on the node goes on
/// until the node is lost or has joined again.
#[utoipa::path(delete, path = "/node-certificates/{node}", tag = "nodes", params(("node" = String, Path), RevocationQuery),
    responses((status = 200, body = v1::NodeCertificate), (status = "4XX", body = v1::Problem, content_type = "application/problem+json")))]
pub async fn revoke_node_certificate(
    State(state): State<HttpState>,
    caller: Principal,
    Path(node): Path<String>,
    Query(RevocationQuery { reason }): Query<RevocationQuery>,
) -> Result<Json<v1::NodeCertificate>, Problem> {
    let all = state.cluster.store().identities().await?;
    // Whoever is called like another's id is not meant by it.
    let by_id = all.iter().find(|one| one.named.id.to_string() == node);
    let by_name = || all.iter().find(|one| one.named.name == node && one.revoked_at.is_none());
    let meant = by_id.or_else(by_name).ok_or_else(|| {
        Problem::not_found(format!("nobody called {node} has a certificate"))
            .hint("headway node certificates lists who has; an agent with a token is shut out by revoking the token (headway token revoke)")
    })?;
    let now = wall();
    let deed = state.deed().map(|deed| AuditEntry { reason, ..deed });
    if state.cluster.store().revoke_identity(meant.named.id, now, deed).await? {
        tracing::info!(node_id = %meant.named.id, name = meant.named.name, by = caller.name(), "a certificate is revoked");
    }
    state.cluster.tokens_changed();
    Ok(Json(certificate(&Identity { revoked_at: meant.revoked_at.or(Some(now)), ..meant.clone() })))
}

/// What signs nodes' certificates, and what else is believed.
#[utoipa::path(get, path = "/node-authorities", tag = "nodes",
    responses((status = 200, body = v1::NodeAuthorityList), (status = "4XX", body = v1::Problem, content_type = "application/problem+json")))]
pub async fn list_node_authorities(
    State(state): State<HttpState>,
    _caller: Principal,
) -> Result<Json<v1::NodeAuthorityList>, Problem> {
    authorities(&state).await.map(Json)
}

/// Replace the authority: a new one signs from now on, and every node that is connected renews its certificate. The former is believed until what it has signed must have
/// been renewed, or until it is retired. Without a body the new one is made here; with one it is the site's, tried before it signs anything.
#[utoipa::path(post, path = "/node-authorities", tag = "nodes", request_body = Option<v1::NodeAuthorityRequest>,
    responses((status = 201, body = v1::NodeAuthorityList), (status = "4XX", body = v1::Problem, content_type = "application/problem+json")))]
pub async fn replace_node_authority(
    State(state): State<HttpState>,
    caller: Principal,
    body: Option<Json<v1::NodeAuthorityRequest>>,
) -> Result<Response, Problem> {
    let site = body.as_ref().map(|Json(site)| (site.certificate.as_str(), site.key.clone()));
    state.enrolment()?.authorities.replace(site, state.deed()).await.map_err(problem)?;
    tracing::info!(by = caller.name(), "another authority signs nodes' certificates");
    state.cluster.renew_certificates();
    Ok((StatusCode::CREATED, Json(authorities(&state).await?)).into_response())
}

/// Retire an authority that another has replaced: nothing that it has signed is believed any more. Nodes that have not renewed since must join again.
#[utoipa::path(delete, path = "/node-authorities/{fingerprint}", tag = "nodes", params(("fingerprint" = String, Path)),
    responses((status = 204), (status = "4XX", body = v1::Problem, content_type = "application/problem+json")))]
pub async fn retire_node_authority(
    State(state): State<HttpState>,
    caller: Principal,
    Path(fingerprint): Path<String>,
) -> Result<StatusCode, Problem> {
    match state.enrolment()?.authorities.retire(&fingerprint, state.deed()).await.map_err(problem)? {
        Retirement::Done => {}
        Retirement::Unknown => return Err(Problem::not_found(format!("no authority {fingerprint}"))),
        Retirement::Signs => {
            return Err(Problem::new(StatusCode::CONFLICT, "authority_signs", "this authority signs")
                .hint("replace it first: headway admin ca rotate"));
        }
    }
    state.cluster.tokens_changed();
    tracing::info!(fingerprint, by = caller.name(), "an authority of nodes is retired");
    Ok(StatusCode::NO_CONTENT)
}

impl HttpState {
    /// The same with how nodes become known.
    #[must_use]
    pub fn enrolling(self, enrolment: Enrolment) -> Self {
        Self { enrolment: Some(enrolment), ..self }
    }

    fn enrolment(&self) -> Result<&Enrolment, Problem> {
        self.enrolment.as_ref().ok_or_else(|| problem(AuthoritiesError::None))
    }

    /// What is to be looked at of certificates, the gravest first.
    pub(super) async fn certificates_to_look_at(&self) -> Result<Vec<v1::AttentionItem>, Problem> {
        let Some(enrolment) = &self.enrolment else { return Ok(Vec::new()) };
        let (now, mut items) = (wall(), Vec::new());
        let authority = enrolment.authorities.all().into_iter().next();
        items.extend(authority.and_then(|(_, _, ends)| authority_ends(ends, now)));
        let ending = self.cluster.store().certificates_ending(now, NOT_RENEWED, NAMED).await?;
        items.extend(ending.map(|ending| certificates_end(&ending, now)));
        if enrolment.takes_tokens {
            items.push(attention(
                ("agent_tokens", "notice"),
                "Agents' tokens are taken: whoever has one may pass for any node that has no certificate".into(),
                "Have nodes join (headway node token create, headway node join), then leave --agent-tokens and --agent-token-file out",
            ));
        }
        Ok(items)
    }
}

fn authority_ends(ends: Timestamp, now: Timestamp) -> Option<v1::AttentionItem> {
    let left = ends.since(now);
    if left >= AUTHORITY_ENDS {
        return None;
    }
    let severity = if left < AUTHORITY_ENDS_NOW { "critical" } else { "warning" };
    let headline =
        format!("What signs nodes' certificates ends in {:.0} days, and every certificate with it", days(left));
    Some(attention(("node_authority_ends", severity), headline, "Replace it: headway admin ca rotate"))
}

fn certificates_end(ending: &Ending, now: Timestamp) -> v1::AttentionItem {
    let Ending { all, first, names } = ending;
    let more = if *all > names.len() { format!(" and {} more", all - names.len()) } else { String::new() };
    let left = first.since(now);
    let ends = if left.0 > 0.0 { format!("end in {:.0} days", days(left)) } else { "have ended".into() };
    let headline = format!("Certificates that nobody renews {ends}: {}{more}", names.join(", "));
    let step = "See whether the nodes are there; one that is gone is deleted (headway node delete), one whose certificate has ended joins again \
                (headway node token create --node NODE)";
    attention(("node_certificates_end", "warning"), headline, step)
}

fn attention((kind, severity): (&str, &str), headline: String, next_step: &str) -> v1::AttentionItem {
    v1::AttentionItem {
        kind: kind.into(),
        severity: severity.into(),
        name: None,
        job_id: None,
        node_id: None,
        plan_id: None,
        since: None,
        gpu_hours: None,
        headline,
        next_step: next_step.into(),
    }
}

fn days(left: Seconds) -> f64 {
    (left.0 / 86_400.0).max(0.0)
}

async fn authorities(state: &HttpState) -> Result<v1::NodeAuthorityList, Problem> {
    let Some(enrolment) = &state.enrolment else {
        return Ok(v1::NodeAuthorityList { agent_tokens: false, items: Vec::new() });
    };
    let identities = state.cluster.store().identities().await?;
    let of = |fingerprint: &str| {
        identities.iter().filter(|one| one.revoked_at.is_none() && one.authority == fingerprint).count() as u32
    };
    let told = |(at, (fingerprint, certificate, ends)): (usize, (String, String, Timestamp))| v1::NodeAuthority {
        signs: at == 0,
        certificates: of(&fingerprint),
        fingerprint,
        certificate,
        expires_at: time(ends),
    };
    Ok(v1::NodeAuthorityList {
        agent_tokens: enrolment.takes_tokens,
        items: enrolment.authorities.all().into_iter().enumerate().map(told).collect(),
    })
}

fn certificate(of: &Identity) -> v1::NodeCertificate {
    let moment = |at: Timestamp| -> DateTime<Utc> { time(at) };
    v1::NodeCertificate {
        id: of.named.id,
        name: of.named.name.clone(),
        fleet: of.named.kind == IdentityKind::Fleet,
        epoch: of.named.epoch,
        authority: of.authority.clone(),
        issued_at: moment(of.issued_at),
        expires_at: moment(of.expires_at),
        revoked_at: of.revoked_at.map(moment),
    }
}

fn problem(error: AuthoritiesError) -> Problem {
    match error {
        AuthoritiesError::None => Problem::new(StatusCode::CONFLICT, "no_authority", error.to_string()),
        AuthoritiesError::Store(error) => error.into(),
        AuthoritiesError::Known => Problem::new(StatusCode::CONFLICT, "authority_known", error.to_string()),
        AuthoritiesError::Site(error) => Problem::invalid(error.to_string()).field(match error {
            SiteError::Encrypted | SiteError::Key(_) => "key",
            _ => "certificate",
        }),
        other => {
            tracing::error!(error = &other as &dyn std::error::Error, "nodes' authority failed");
            Problem::internal()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: Seconds = Seconds(86_400.0);
    const NOW: Timestamp = Timestamp(1_900_000_000_000_000);

    #[test]
    fn what_is_about_to_end_is_told_with_the_names_of_some() {
        let ending = |all| Ending { all, first: NOW + Seconds(DAY.0 * 3.0), names: vec!["a".into(), "b".into()] };
        assert!(certificates_end(&ending(2), NOW).headline.ends_with("end in 3 days: a, b"));
        assert!(certificates_end(&ending(9), NOW).headline.ends_with("end in 3 days: a, b and 7 more"));
        let severity = |days| authority_ends(NOW + Seconds(DAY.0 * days), NOW).map(|one| one.severity);
        assert_eq!(severity(100.0), None);
        assert_eq!(severity(50.0).as_deref(), Some("warning"));
        assert_eq!(severity(5.0).as_deref(), Some("critical"));
    }
}
