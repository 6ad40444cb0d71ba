//! Reservations: nodes that an admin sets aside.

use std::collections::BTreeSet;

use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::Response;
use headway_api::v1;
use headway_engine::Refusal;
use headway_engine::event::{Ends, Request, ReservationRequest};
use headway_engine::outcome::Reply;
use headway_engine::view::View;
use headway_types::{JobId, NodeId, ReservationId, Seconds};
use uuid::Uuid;

use super::auth::Principal;
use super::extract::{Json, Path};
use super::problem::Problem;
use super::{HttpState, conversions, lookup};
use crate::shown::Shown;

/// Reservations that are not over. Those that have not begun say what they take from others.
#[utoipa::path(get, path = "/reservations", tag = "reservations", responses((status = 200, body = v1::ReservationList)))]
pub async fn list_reservations(State(state): State<HttpState>, _caller: Principal) -> Json<v1::ReservationList> {
    let view = state.cluster.view();
    let ahead = view.reservations.values().filter(|one| one.from > view.at).map(AsRef::as_ref);
    let costs = view.reservation_costs(ahead);
    let all = view.reservations.values();
    let items = all.map(|one| conversions::reservation_with_cost(one, costs.get(&one.id), &view));
    Json(v1::ReservationList { items: items.collect() })
}

/// One reservation, as long as it is not over. If it has not begun, it says what it takes from others.
#[utoipa::path(get, path = "/reservations/{id}", tag = "reservations", params(("id" = Uuid, Path)),
    responses((status = 200, body = v1::Reservation), (status = 404, body = v1::Problem, content_type = "application/problem+json")))]
pub async fn get_reservation(
    State(state): State<HttpState>,
    _caller: Principal,
    Path(id): Path<Uuid>,
) -> Result<Json<v1::Reservation>, Problem> {
    let (view, id) = (state.cluster.view(), ReservationId(id));
    let one = view.reservations.get(&id).ok_or_else(|| {
        Problem::from(Refusal::NoSuchReservation(id))
            .hint("one that is over is in the event log alone; GET /api/v1/reservations has the others")
    })?;
    let cost = (one.from > view.at).then(|| view.reservation_cost(one));
    Ok(Json(conversions::reservation_with_cost(one, cost.as_ref(), &view)))
}

/// Set nodes aside, for some jobs or (`maintenance`) for nobody. The name stands for the reservation: sending the same again gives the one there is.
#[utoipa::path(post, path = "/reservations", tag = "reservations", request_body = v1::ReservationRequest,
    responses((status = 201, body = v1::Reservation, headers(("Location" = String))),
        (status = "4XX", body = v1::Problem, content_type = "application/problem+json")))]
pub async fn create_reservation(
    State(state): State<HttpState>,
    caller: Principal,
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
        reason: body.reason.filter(|reason| !reason.trim().is_empty()),
        nodes: nodes?,
        from: body.from.map(conversions::timestamp),
        ends,
        maintenance: body.maintenance,
        projects: body.projects.into_iter().collect(),
        users: body.users.into_iter().collect(),
        jobs: body.jobs.into_iter().map(JobId).collect(),
    };
    state.answer(&caller, Request::Reserve { reservation }, shown).await
}

/// End a reservation, or take it back before it begins.
#[utoipa::path(delete, path = "/reservations/{id}", tag = "reservations", params(("id" = Uuid, Path)),
    responses((status = 200, body = v1::Reservation), (status = "4XX", body = v1::Problem, content_type = "application/problem+json")))]
pub async fn cancel_reservation(
    State(state): State<HttpState>,
    caller: Principal,
    Path(id): Path<Uuid>,
) -> Result<Response, Problem> {
    state.answer(&caller, Request::CancelReservation { reservation: ReservationId(id) }, shown_gone).await
}

fn shown(reply: &Reply, view: &View) -> Option<Shown> {
    let Reply::Reservation(made) = reply else { return None };
    let location = format!("/api/v1/reservations/{}", made.id);
    let body = conversions::reservation_with_cost(made, Some(&view.reservation_cost(made)), view);
    Some(Shown::new(StatusCode::CREATED, &body).with(header::LOCATION, location))
}

fn shown_gone(reply: &Reply, view: &View) -> Option<Shown> {
    let Reply::Reservation(gone) = reply else { return None };
    let body = v1::Reservation { active: false, ..conversions::reservation(gone, view) };
    Some(Shown::new(StatusCode::OK, &body))
}
