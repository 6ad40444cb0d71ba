//! The queue: what waits, in the planner's order, and why. All of it is the newest round's and forecast's word as it is kept: nothing is planned or predicted
//! for it, and what looks at the whole queue is made once a second for all who ask, off the reactor.

mod counts;
mod line;
mod query;

use axum::extract::State;
use headway_api::v1;
use headway_planner::Room;
use headway_types::GpuType;

use self::counts::Counts;
use self::line::Line;
pub use self::line::Memory;
use self::query::Wanted;
pub use self::query::{JOBS_AT_MOST, QueueQuery};
use super::access::Seen;
use super::auth::Principal;
use super::conversions::time;
use super::extract::{Json, Query};
use super::problem::Problem;
use super::{HttpState, conversions, cursor};

/// Jobs that wait, in the order in which they are expected to start, with why they wait; what all of them come to; and what is free.
#[utoipa::path(get, path = "/queue", tag = "cluster", params(QueueQuery),
    responses((status = 200, body = v1::Queue), (status = "4XX", body = v1::Problem, content_type = "application/problem+json")))]
pub async fn queue(
    State(state): State<HttpState>,
    caller: Principal,
    Query(query): Query<QueueQuery>,
) -> Result<Json<v1::Queue>, Problem> {
    let view = state.cluster.view();
    let wanted = Wanted::of(query, &view)?;
    let line = state.queue.line(&view, &state.asking).await?;
    let page = move || page(&line, &wanted, |project, owner| caller.sees(&view, project, owner));
    let page = tokio::task::spawn_blocking(page).await.map_err(|error| {
        tracing::error!(error = &error as &dyn std::error::Error, "reading the queue broke down");
        Problem::internal()
    })?;
    // The digest of the question is known to the request alone, not to the thread that reads the queue.
    Ok(Json(v1::Queue { next_cursor: page.next_cursor.map(cursor::bind), ..page }))
}

/// Looks at every row once: what is admitted is counted, as is what would be with one condition less, and the page is what follows the cursor.
fn page(line: &Line, wanted: &Wanted, sees: impl Fn(&str, &str) -> Seen) -> v1::Queue {
    let mut counts = Counts::default();
    let (mut items, mut next, mut last) = (Vec::new(), None, None);
    for row in &line.rows {
        let seen = sees(&row.job.spec.project, &row.job.owner);
        let Some(holds) = wanted.holds(row).filter(|_| seen != Seen::Nothing) else { continue };
        counts.add(row, holds, &line.types);
        if !holds.all() {
            continue;
        }
        if wanted.after.is_some_and(|after| row.rank <= after) {
            continue;
        }
        if items.len() < wanted.limit {
            items.push(match seen {
                Seen::Whole => row.shown(),
                Seen::Outline | Seen::Nothing => conversions::queued_outline(row.shown()),
            });
            last = Some(row.rank);
        } else {
            next = next.or(last);
        }
    }
    v1::Queue {
        at: time(line.at),
        items,
        next_cursor: next.map(|rank| rank.to_string()),
        totals: counts.totals,
        choices: counts.choices,
        room: line.room.as_ref().map(|(_, rooms)| rooms.iter().map(room).collect()),
    }
}

fn room((of, room): (&GpuType, &Room)) -> v1::GpuRoom {
    v1::GpuRoom {
        gpu_type: of.0.clone(),
        gpus_free: room.free.0,
        largest: room.largest.0,
        gpus_reserved: room.reserved.0,
        reservations: room.reserved_by.iter().cloned().collect(),
    }
}
