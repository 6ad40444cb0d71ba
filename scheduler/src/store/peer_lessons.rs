//! Table `peer_lessons`: what measured jobs teach jobs of the same shape, as one document.

use headway_goodput::Lessons;
use headway_types::Timestamp;
use sqlx::PgConnection;

use super::column::{document, time};
use super::{Store, StoreError};

impl Store {
    /// Replaces the lessons.
    pub async fn save_lessons(&self, at: Timestamp, lessons: &Lessons) -> Result<(), StoreError> {
        sqlx::query!(
            "INSERT INTO peer_lessons (updated_at, body) VALUES ($1, $2::text::jsonb)
            ON CONFLICT (only_row) DO UPDATE SET updated_at = excluded.updated_at, body = excluded.body",
            time(at),
            document(lessons),
        )
        .execute(&self.pool)
        .await
        .map_err(StoreError::during("saving the lessons of peers"))?;
        Ok(())
    }
}

/// Reads the lessons; none where none were saved.
pub(super) async fn read(connection: &mut PgConnection) -> Result<Lessons, sqlx::Error> {
    let row = sqlx::query!(r#"SELECT body::text AS "body!" FROM peer_lessons"#).fetch_optional(connection).await?;
    let Some(row) = row else { return Ok(Lessons::default()) };
    // They are observations: what cannot be read is learnt anew, and never keeps the scheduler from starting.
    Ok(serde_json::from_str(&row.body).unwrap_or_else(|error| {
        tracing::warn!(%error, "the lessons of peers cannot be read and are learnt anew");
        Lessons::default()
    }))
}
