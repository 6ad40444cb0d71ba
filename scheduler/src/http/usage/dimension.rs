//! What rows of usage are told apart by, and how they are written as a table.

use headway_api::v1;
use strum::VariantArray;

use crate::http::problem::Problem;

#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, strum::EnumString, strum::IntoStaticStr, strum::VariantArray,
)]
#[strum(serialize_all = "snake_case")]
pub enum Dimension {
    User,
    Project,
    GpuType,
    Cause,
    DisplacedBy,
}

pub fn dimensions(text: Option<&str>) -> Result<Vec<Dimension>, Problem> {
    let mut dimensions: Vec<Dimension> = Vec::new();
    for name in text.unwrap_or("user,cause").split(',').map(str::trim).filter(|name| !name.is_empty()) {
        let known = name.parse().map_err(|_| {
            let known: Vec<&str> = Dimension::VARIANTS.iter().map(|one| <&str>::from(*one)).collect();
            let unknown = Problem::bad_request(format!("usage is not told by \"{name}\"")).field("group_by");
            unknown.hint(format!("it is told by {}", known.join(", ")))
        })?;
        dimensions.push(known);
    }
    dimensions.sort_unstable();
    dimensions.dedup();
    Ok(dimensions)
}

/// As CSV; of steps each row has its beginning before it.
pub fn csv(usage: &v1::Usage, by: &[Dimension]) -> Result<String, Problem> {
    let broken = |error: String| {
        tracing::error!(error, "writing usage as CSV failed");
        Problem::internal()
    };
    let mut writer = csv::Writer::from_writer(Vec::new());
    let at = usage.steps.as_ref().map(|_| "at");
    let names = at.into_iter().chain(usage.group_by.iter().map(String::as_str)).chain(["gpu_hours", "jobs"]);
    writer.write_record(names).map_err(|error| broken(error.to_string()))?;
    let rows: Vec<(Option<String>, &v1::UsageRow)> = match &usage.steps {
        None => usage.items.iter().map(|row| (None, row)).collect(),
        Some(steps) => {
            let at = |step: &v1::UsageStep| Some(step.at.to_rfc3339_opts(chrono::SecondsFormat::AutoSi, true));
            steps.iter().flat_map(|step| step.items.iter().map(move |row| (at(step), row))).collect()
        }
    };
    for (at, row) in rows {
        let value = |dimension: &Dimension| match dimension {
            Dimension::User => row.user.clone(),
            Dimension::Project => row.project.clone(),
            Dimension::GpuType => row.gpu_type.clone(),
            Dimension::Cause => row.cause.clone(),
            Dimension::DisplacedBy => row.displaced_by.clone(),
        };
        let values = by.iter().map(|one| value(one).unwrap_or_default());
        let numbers = [format!("{:.6}", row.gpu_hours), row.jobs.to_string()];
        writer.write_record(at.into_iter().chain(values).chain(numbers)).map_err(|error| broken(error.to_string()))?;
    }
    let bytes = writer.into_inner().map_err(|error| broken(error.to_string()))?;
    String::from_utf8(bytes).map_err(|error| broken(error.to_string()))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use chrono::DateTime;

    use super::*;

    fn usage(stepped: bool) -> v1::Usage {
        let row = |cause: &str, gpu_hours| v1::UsageRow {
            user: None,
            project: Some("nlp".into()),
            gpu_type: None,
            cause: Some(cause.into()),
            displaced_by: None,
            gpu_hours,
            jobs: 1,
        };
        let items = vec![row("starting", 1.0 / 3.0), row("useful", 0.0625)];
        let step = v1::UsageStep { at: DateTime::UNIX_EPOCH, items: items.clone(), healthy_gpu_hours: None };
        v1::Usage {
            from: DateTime::UNIX_EPOCH,
            to: DateTime::UNIX_EPOCH,
            group_by: vec!["project".into(), "cause".into()],
            items,
            total_gpu_hours: 0.4,
            step_seconds: stepped.then_some(60.0),
            steps: stepped.then(|| vec![step]),
        }
    }

    #[test]
    fn csv_has_the_columns_that_were_asked_for() {
        let by = dimensions(Some("project,cause")).unwrap();
        let text = csv(&usage(false), &by).unwrap();
        assert_eq!(text, "project,cause,gpu_hours,jobs\nnlp,starting,0.333333,1\nnlp,useful,0.062500,1\n");
        let text = csv(&usage(true), &by).unwrap();
        assert!(text.starts_with("at,project,cause,gpu_hours,jobs\n1970-01-01T00:00:00Z,nlp,starting,"), "{text}");
    }

    #[test]
    fn what_usage_is_not_told_by_is_refused() {
        assert!(dimensions(Some("user,colour")).is_err());
        assert_eq!(dimensions(None).unwrap(), [Dimension::User, Dimension::Cause]);
    }
}
