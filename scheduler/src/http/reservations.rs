//! Reservations: nodes that an admin sets aside.

use std::collections::BTreeSet;

use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use headway_api::v1;
use headway_engine::event::{Ends, Request, ReservationRequest};
use headway_engine::outcome::Reply;
use headway_engine::record::Reservation;
use headway_types::{JobId, NodeId, ReservationId, Seconds};
use uuid::Uuid;

use super::auth::{AdminPrincipal, Principal};
use super::extract::{Json, Path};
use super::problem::Problem;
use super::{HttpState, conversions, lookup, mismatched};

/// Reservations that are not over.
#[utoipa::path(get, path = "/reservations", tag = "reservations", responses((status = 200, body = v1::ReservationList)))]
pub async fn list_reservations(State(state): State<HttpState>, _caller: Principal) -> Json<v1::ReservationList> {
    let view = state.cluster.view();
    let items = view.reservations.values().map(|one| conversions::reservation(one, &view));
    Json(v1::ReservationList { items: items.collect() })
}

/// Set nodes aside. The name stands for the reservation: sending the same again gives the one there is.
#[utoipa::path(post, path = "/reservations", tag = "reservations", request_body = v1::ReservationRequest,
    responses((status = 201, body = v1::Reservation, headers(("Location" = String))),
        (status = "4XX", body = v1::Problem, content_type = "application/problem+json")))]
pub async fn create_reservation(
    State(state): State<HttpState>,
    AdminPrincipal(caller): AdminPrincipal,
    Json(body): Json<v1::ReservationRequest>,
) -> Result<Response, Problem> {
    let ends = match (body.until, body.duration_seconds) {
        (Some(at), None) => Ends::At(conversions::timestamp(at)),
        (None, Some(time)) if (1.0..=1e9).contains(&time) => Ends::After(Seconds(time)),
        (None, Some(_)) => return Err(Problem::invalid("a duration is 1 s to 1e9 s").field("duration_seconds")),
        _ => return Err(Problem::invalid("give either until or duration_seconds").field("until")),
    };
    let nodes: Result<BTreeSet<NodeId>, Problem> = body
        .nodes
        .iter()
        .map(|name| lookup::node(&state.cluster, name).map_err(|problem| problem.field("nodes")))
        .collect();
    let reservation = ReservationRequest {
        name: body.name,
        nodes: nodes?,
        from: body.from.map(conversions::timestamp),
        ends,
        projects: body.projects.into_iter().collect(),
        users: body.users.into_iter().collect(),
        jobs: body.jobs.into_iter().map(JobId).collect(),
    };
    let made = act(&state, &caller, Request::Reserve { reservation }).await?;
    let location = format!("/api/v1/reservations/{}", made.id);
    Ok((StatusCode::CREATED, [(header::LOCATION, location)], Json(shown(&state, &made))).into_response())
}

/// End a reservation, or take it back before it begins.
#[utoipa::path(delete, path = "/reservations/{id}", tag = "reservations", params(("id" = Uuid, Path)),
    responses((status = 200, body = v1::Reservation), (status = "4XX", body = v1::Problem, content_type = "application/problem+json")))]
pub async fn cancel_reservation(
    State(state): State<HttpState>,
    AdminPrincipal(caller): AdminPrincipal,
    Path(id): Path<Uuid>,
) -> Result<Json<v1::Reservation>, Problem> {
    let gone = act(&state, &caller, Request::CancelReservation { reservation: ReservationId(id) }).await?;
    Ok(Json(v1::Reservation { active: false, ..shown(&state, &gone) }))
}

fn shown(state: &HttpState, one: &Reservation) -> v1::Reservation {
    conversions::reservation(one, &state.cluster.view())
}

async fn act(state: &HttpState, caller: &Principal, request: Request) -> Result<std::sync::Arc<Reservation>, Problem> {
    match state.ask(caller.actor(), request).await? {
        Reply::Reservation(one) => Ok(one),
        other => Err(mismatched(&other)),
    }
}
