//! Table `projects`.

use headway_engine::record::Project;
use sqlx::PgConnection;
use sqlx::types::Json;

use super::column::{document, integer, small, text, time};

/// Writes whole rows.
pub(super) async fn upsert(connection: &mut PgConnection, projects: &[&Project]) -> Result<(), sqlx::Error> {
    if projects.is_empty() {
        return Ok(());
    }
    let rules = || projects.iter().map(|project| &project.rules);
    let names: Vec<_> = projects.iter().map(|project| text(&project.name)).collect();
    let parents: Vec<_> = rules().map(|rules| rules.parent.as_deref().map(text)).collect();
    let quotas: Vec<_> = rules().map(|rules| rules.quota.map(|quota| small(quota.0))).collect();
    let borrows: Vec<_> = rules().map(|rules| small(rules.borrow.0)).collect();
    let floors: Vec<_> = rules().map(|rules| small(rules.floor.0)).collect();
    let weights: Vec<_> = rules().map(|rules| rules.weight).collect();
    let per_user: Vec<_> = rules().map(|rules| rules.max_per_user.map(|most| small(most.0))).collect();
    let used: Vec<_> = projects.iter().map(|project| project.used.0).collect();
    let used_at: Vec<_> = projects.iter().map(|project| time(project.used_at)).collect();
    let versions: Vec<_> = projects.iter().map(|project| integer(project.version)).collect();
    let bodies: Vec<_> = projects.iter().map(document).collect();
    sqlx::query!(
        "INSERT INTO projects (name, parent, quota_gpus, borrow_gpus, floor_gpus, weight, max_per_user_gpus,
            used_gpu_seconds, used_at, version, body)
        SELECT name, parent, quota_gpus, borrow_gpus, floor_gpus, weight, max_per_user_gpus,
            used_gpu_seconds, used_at, version, body::jsonb
        FROM UNNEST($1::text[], $2::text[], $3::integer[], $4::integer[], $5::integer[], $6::double precision[],
            $7::integer[], $8::double precision[], $9::timestamptz[], $10::bigint[], $11::text[])
            AS new (name, parent, quota_gpus, borrow_gpus, floor_gpus, weight, max_per_user_gpus,
            used_gpu_seconds, used_at, version, body)
        ON CONFLICT (name) DO UPDATE SET
            parent = excluded.parent, quota_gpus = excluded.quota_gpus, borrow_gpus = excluded.borrow_gpus,
            floor_gpus = excluded.floor_gpus, weight = excluded.weight,
            max_per_user_gpus = excluded.max_per_user_gpus, used_gpu_seconds = excluded.used_gpu_seconds,
            used_at = excluded.used_at, version = excluded.version, body = excluded.body",
        &names,
        &parents as &[Option<String>],
        &quotas as &[Option<i32>],
        &borrows,
        &floors,
        &weights,
        &per_user as &[Option<i32>],
        &used,
        &used_at,
        &versions,
        &bodies,
    )
    .execute(connection)
    .await?;
    Ok(())
}

pub(super) async fn delete(connection: &mut PgConnection, names: &[&str]) -> Result<(), sqlx::Error> {
    if names.is_empty() {
        return Ok(());
    }
    let names: Vec<_> = names.iter().map(|name| text(name)).collect();
    sqlx::query!("DELETE FROM projects WHERE name = ANY($1)", &names).execute(connection).await?;
    Ok(())
}

pub(super) async fn all(connection: &mut PgConnection) -> Result<Vec<Project>, sqlx::Error> {
    let rows = sqlx::query!(r#"SELECT body AS "body: Json<Project>" FROM projects ORDER BY name"#)
        .fetch_all(connection)
        .await?;
    Ok(rows.into_iter().map(|row| row.body.0).collect())
}
