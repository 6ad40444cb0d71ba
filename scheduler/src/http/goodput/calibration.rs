//! How predictions turned out: expected goodput beside what came, and predicted starts beside those that came. What is counted is settled in pure functions below;
//! the rows are the store's, and expectations that jobs run under now are the snapshot's.

use std::collections::BTreeMap;

use axum::extract::State;
use chrono::{DateTime, Utc};
use headway_api::v1;
use headway_engine::record::ModelFamily;
use headway_engine::view::View;
use headway_types::quantile::quantile;
use headway_types::{Seconds, Timestamp};
use serde::Deserialize;

use crate::http::auth::Principal;
use crate::http::conversions::time;
use crate::http::extract::{Json, Query};
use crate::http::problem::Problem;
use crate::http::{HttpState, window};
use crate::store::{Awaited, Met};

/// Thirty days.
const USUAL: Seconds = Seconds(30.0 * 86_400.0);
/// What is measured over less time says more of reporting than of speed.
const LEAST_MEASURED: Seconds = Seconds(60.0);
/// Of each kind so many are read, the newest.
const ROWS_AT_MOST: u32 = 200_000;
const UNKNOWN: &str = "unknown";

#[derive(Debug, Default, Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
pub struct CalibrationQuery {
    /// Thirty days before `to` if absent, and no longer than the history is kept.
    from: Option<DateTime<Utc>>,
    /// Now if absent, or later.
    to: Option<DateTime<Utc>>,
}

/// How predictions turned out, in all, by GPU type and by model family: how often what came fell between the first and the last decile of what was said (80 % of it
/// should), and how far it was off. Counted over all jobs; no job is named.
#[utoipa::path(get, path = "/goodput/calibration", tag = "cluster", params(CalibrationQuery),
    responses((status = 200, body = v1::Calibration), (status = "4XX", body = v1::Problem, content_type = "application/problem+json")))]
pub async fn calibration(
    State(state): State<HttpState>,
    _caller: Principal,
    Query(query): Query<CalibrationQuery>,
) -> Result<Json<v1::Calibration>, Problem> {
    let (now, kept) = (state.cluster.now(), state.cluster.retention().history);
    let (from, to) = window::span(query.from, query.to, now, Seconds(USUAL.0.min(kept.0)), kept)?;
    let store = state.cluster.store();
    let mut expectations = store.met_expectations(from, to, ROWS_AT_MOST).await?;
    let starts = store.awaited_starts(from, to, ROWS_AT_MOST).await?;
    let left_out = expectations.len().max(starts.len()) >= ROWS_AT_MOST as usize;
    if to >= now {
        expectations.extend(standing(&state.cluster.view()));
    }
    let told = tokio::task::spawn_blocking(move || v1::Calibration {
        from: time(from),
        to: time(to),
        goodput: goodput(&expectations),
        starts: starts_of(&starts, now),
        left_out,
    });
    told.await.map(Json).map_err(|error| {
        tracing::error!(error = &error as &dyn std::error::Error, "counting how predictions turned out broke down");
        Problem::internal()
    })
}

/// Expectations that are not over, as far as they have come: without them those that lasted would be missing.
fn standing(view: &View) -> impl Iterator<Item = Met> {
    view.jobs.values().filter_map(|live| {
        let held = live.allocation.as_ref()?;
        let expectation = held.expectation.as_ref()?;
        let (realised, measured_for) = expectation.realised(live.live.progress, live.live.reported_at?)?;
        Some(Met {
            gpu_type: held.gpu_type.as_ref().map_or_else(|| UNKNOWN.into(), |of| of.0.clone()),
            model_family: ModelFamily::of(&live.job.spec).to_string(),
            predicted: expectation.goodput,
            band: expectation.band,
            realised,
            measured_for,
        })
    })
}

/// Which rows are counted together: all, those of a GPU type, those of a model family.
type Group = (Option<String>, Option<String>);

fn groups(gpu_type: &str, family: &str) -> [Group; 3] {
    [(None, None), (Some(gpu_type.to_owned()), None), (None, Some(family.to_owned()))]
}

#[derive(Default)]
struct Errors {
    /// Realised over predicted, less one; or seconds late.
    off: Vec<f64>,
    with_band: u64,
    in_band: u64,
    too_short: u64,
    late: u64,
    open: u64,
}

impl Errors {
    fn coverage(&self) -> Option<f64> {
        (self.with_band > 0).then(|| self.in_band as f64 / self.with_band as f64)
    }

    /// Medians of how far it was off, either way and in which direction.
    fn medians(&self) -> (Option<f64>, Option<f64>) {
        let median = |mut values: Vec<f64>| {
            values.sort_by(f64::total_cmp);
            quantile(&values, 0.5)
        };
        (median(self.off.iter().map(|off| off.abs()).collect()), median(self.off.clone()))
    }
}

fn goodput(expectations: &[Met]) -> Vec<v1::GoodputCalibration> {
    let mut by: BTreeMap<Group, Errors> = BTreeMap::new();
    for one in expectations.iter().filter(|one| one.predicted.0 > 0.0) {
        for group in groups(&one.gpu_type, &one.model_family) {
            let errors = by.entry(group).or_default();
            if one.measured_for < LEAST_MEASURED {
                errors.too_short += 1;
                continue;
            }
            errors.off.push(one.realised.0 / one.predicted.0 - 1.0);
            if let Some((low, high)) = one.band {
                errors.with_band += 1;
                errors.in_band += u64::from(low.0 <= one.realised.0 && one.realised.0 <= high.0);
            }
        }
    }
    let told = by.into_iter().map(|((gpu_type, model_family), errors)| {
        let (error, bias) = errors.medians();
        v1::GoodputCalibration {
            gpu_type,
            model_family,
            predictions: errors.off.len() as u64,
            with_band: errors.with_band,
            coverage: errors.coverage(),
            median_error_pct: error.map(|share| share * 100.0),
            median_bias_pct: bias.map(|share| share * 100.0),
            too_short: errors.too_short,
        }
    });
    told.collect()
}

/// A job that still waits after its last decile is a miss already, and so is one that ended without a start after it: both
/// count with the error that they have at least. A job that waits before its last decile tells nothing yet; one that left the
/// queue before it never will.
fn starts_of(starts: &[Awaited], now: Timestamp) -> Vec<v1::StartCalibration> {
    let mut by: BTreeMap<Group, Errors> = BTreeMap::new();
    for one in starts {
        let gpu_type = one.started.as_ref().and_then(|(_, gpu_type)| gpu_type.as_deref());
        for group in groups(gpu_type.unwrap_or(UNKNOWN), &one.model_family) {
            let errors = by.entry(group).or_default();
            match &one.started {
                Some((at, _)) => {
                    errors.with_band += 1;
                    errors.in_band += u64::from(one.p10 <= *at && one.p90.is_none_or(|p90| *at <= p90));
                    errors.off.extend(one.p50.map(|p50| seconds_after(*at, p50)));
                }
                None => {
                    let without_a_start_until = if one.waits { Some(now) } else { one.ended_at };
                    match without_a_start_until {
                        Some(until) if one.p90.is_some_and(|p90| p90 < until) => {
                            errors.with_band += 1;
                            errors.late += 1;
                            errors.off.extend(one.p50.map(|p50| seconds_after(until, p50)));
                        }
                        Some(_) if one.waits => errors.open += 1,
                        _ => {}
                    }
                }
            }
        }
    }
    let told = by.into_iter().map(|((gpu_type, model_family), errors)| {
        let (error, bias) = errors.medians();
        v1::StartCalibration {
            gpu_type,
            model_family,
            predictions: errors.with_band,
            coverage: errors.coverage(),
            median_error_seconds: error,
            median_bias_seconds: bias,
            late: errors.late,
            open: errors.open,
        }
    });
    told.collect()
}

fn seconds_after(at: Timestamp, said: Timestamp) -> f64 {
    (at.0 - said.0) as f64 / 1e6
}

#[cfg(test)]
mod tests {
    use headway_types::TokensPerSecond;
    use proptest::prelude::*;

    use super::*;

    fn met(predicted: f64, realised: f64, band: Option<(f64, f64)>) -> Met {
        Met {
            gpu_type: "H100-80G".into(),
            model_family: "1b_to_10b".into(),
            predicted: TokensPerSecond(predicted),
            band: band.map(|(low, high)| (TokensPerSecond(low), TokensPerSecond(high))),
            realised: TokensPerSecond(realised),
            measured_for: Seconds(600.0),
        }
    }

    fn at(seconds: i64) -> Timestamp {
        Timestamp(seconds * 1_000_000)
    }

    fn awaited(start: Option<i64>, waits: bool) -> Awaited {
        Awaited {
            made_at: at(0),
            model_family: "opaque".into(),
            p10: at(100),
            p50: Some(at(200)),
            p90: Some(at(400)),
            started: start.map(|seconds| (at(seconds), Some("A100-40G".into()))),
            waits,
            ended_at: None,
        }
    }

    #[test]
    fn expectations_are_counted_in_all_by_type_and_by_family() {
        let short = Met { measured_for: Seconds(5.0), gpu_type: "A100-40G".into(), ..met(100.0, 1.0, None) };
        let rows = goodput(&[
            met(100.0, 90.0, Some((80.0, 120.0))),
            met(100.0, 130.0, Some((80.0, 120.0))),
            met(100.0, 105.0, None),
            short,
        ]);
        let told: Vec<_> = rows.iter().map(|row| (row.gpu_type.as_deref(), row.model_family.as_deref())).collect();
        let groups = [(None, None), (None, Some("1b_to_10b")), (Some("A100-40G"), None), (Some("H100-80G"), None)];
        assert_eq!(told, groups);
        let all = &rows[0];
        assert_eq!((all.predictions, all.with_band, all.too_short, all.coverage), (3, 2, 1, Some(0.5)));
        let rounded = |value: Option<f64>| value.map(f64::round);
        assert_eq!((rounded(all.median_error_pct), rounded(all.median_bias_pct)), (Some(10.0), Some(5.0)));
        assert_eq!((rows[2].predictions, rows[2].coverage, rows[2].median_error_pct), (0, None, None));
    }

    #[test]
    fn who_waits_beyond_the_band_is_a_miss_and_who_left_the_queue_says_nothing() {
        let all = [awaited(Some(300), false), awaited(Some(50), false), awaited(None, true), awaited(None, false)];
        let rows = starts_of(&all, at(1_000));
        let row = &rows[0];
        assert_eq!((row.predictions, row.late, row.open), (3, 1, 0));
        assert_eq!(row.coverage.map(|share| (share * 3.0).round()), Some(1.0), "too early is outside as well");
        // 100 s late, 150 s early, and 800 s late at least.
        assert_eq!((row.median_error_seconds, row.median_bias_seconds), (Some(150.0), Some(100.0)));
        let cancelled = |seconds| Awaited { ended_at: Some(at(seconds)), ..awaited(None, false) };
        let rows = starts_of(&[cancelled(399), cancelled(500)], at(1_000));
        assert_eq!((rows[0].predictions, rows[0].late, rows[0].coverage), (1, 1, Some(0.0)), "it had waited beyond it");
        assert_eq!(rows[0].median_bias_seconds, Some(300.0));
        let rows = starts_of(&all[2..3], at(300));
        assert_eq!((rows[0].predictions, rows[0].open, rows[0].coverage), (0, 1, None));
    }

    proptest! {
        #[test]
        fn coverage_is_a_share_and_rows_add_up(realised in prop::collection::vec(1.0..300.0_f64, 0..40)) {
            let rows = goodput(&realised.iter().map(|one| met(100.0, *one, Some((50.0, 200.0)))).collect::<Vec<_>>());
            for row in &rows {
                prop_assert_eq!(row.predictions, realised.len() as u64);
                prop_assert!(row.coverage.is_some_and(|share| (0.0..=1.0).contains(&share)));
                prop_assert!(row.median_error_pct.unwrap_or(0.0) >= row.median_bias_pct.unwrap_or(0.0).abs() - 1e-9);
            }
            prop_assert_eq!(rows.len(), if realised.is_empty() { 0 } else { 3 });
        }
    }
}
