//! Table `reservations`: those that are not over.

use headway_engine::record::Reservation;
use headway_types::ReservationId;
use sqlx::PgConnection;
use sqlx::types::Json;

use super::column::{document, text, time};

/// Writes whole rows.
pub(super) async fn upsert(connection: &mut PgConnection, reservations: &[&Reservation]) -> Result<(), sqlx::Error> {
    if reservations.is_empty() {
        return Ok(());
    }
    let ids: Vec<_> = reservations.iter().map(|one| one.id.0).collect();
    let names: Vec<_> = reservations.iter().map(|one| text(&one.name)).collect();
    let reasons: Vec<_> = reservations.iter().map(|one| one.reason.as_deref().map(text)).collect();
    let starts: Vec<_> = reservations.iter().map(|one| time(one.from)).collect();
    let ends: Vec<_> = reservations.iter().map(|one| time(one.until)).collect();
    let bodies: Vec<_> = reservations.iter().map(document).collect();
    sqlx::query!(
        "INSERT INTO reservations (reservation_id, name, starts_at, ends_at, body, reason)
        SELECT reservation_id, name, starts_at, ends_at, body::jsonb, reason
        FROM UNNEST($1::uuid[], $2::text[], $3::timestamptz[], $4::timestamptz[], $5::text[], $6::text[])
            AS new (reservation_id, name, starts_at, ends_at, body, reason)
        ON CONFLICT (reservation_id) DO UPDATE SET
            name = excluded.name, starts_at = excluded.starts_at, ends_at = excluded.ends_at, body = excluded.body,
            reason = excluded.reason",
        &ids,
        &names,
        &starts,
        &ends,
        &bodies,
        &reasons as &[Option<String>],
    )
    .execute(connection)
    .await?;
    Ok(())
}

pub(super) async fn delete(connection: &mut PgConnection, ids: &[ReservationId]) -> Result<(), sqlx::Error> {
    if ids.is_empty() {
        return Ok(());
    }
    let ids: Vec<_> = ids.iter().map(|id| id.0).collect();
    sqlx::query!("DELETE FROM reservations WHERE reservation_id = ANY($1)", &ids).execute(connection).await?;
    Ok(())
}

pub(super) async fn all(connection: &mut PgConnection) -> Result<Vec<Reservation>, sqlx::Error> {
    let rows =
        sqlx::query!(r#"SELECT reason, body AS "body: Json<Reservation>" FROM reservations ORDER BY reservation_id"#)
            .fetch_all(connection)
            .await?;
    // A release without reasons drops the one in the body when it writes the row.
    Ok(rows.into_iter().map(|row| Reservation { reason: row.reason, ..row.body.0 }).collect())
}
