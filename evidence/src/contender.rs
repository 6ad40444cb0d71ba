//! Who decides over a workload, and how much jobs let be decided: a policy, and what of each job's elasticity is offered to it.

use std::collections::BTreeMap;

use headway_planner::Policy;
use headway_types::report::Flexibility;
use headway_types::spec::{BatchRange, GpuRange, LayoutLimits};
use headway_types::{JobSpec, Objective, Seconds, example};
use serde_json::Value;

use crate::cluster::Cluster;
use crate::workload::{Job, Kind};

/// What of a job may be chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Offered {
    /// Size, layout and batch.
    Elastic,
    /// Nothing but the layout: the rigid twin, at the size and batch it asks for.
    AsRequested,
    /// All but the batch.
    BatchFixed,
    /// Sizes from the request upwards.
    NoShrinking,
    /// Data parallelism and batch within the tensor and pipeline degrees it would have on its request.
    LayoutFixed,
    /// Layout and batch on the size it asks for.
    SizeFixed,
}

/// One side of a comparison.
#[derive(Clone, Debug, PartialEq)]
pub struct Contender {
    /// As written, with the name that is shown in place of a shorter one.
    pub name: String,
    pub offered: Offered,
    pub policy: Policy,
}

/// Why a text names no contender.
#[derive(Debug, thiserror::Error)]
pub enum ContenderError {
    #[error("no contender is called \"{name}\"; there are {}", KNOWN.map(|(known, ..)| known).join(", "))]
    Unknown { name: String },
    #[error("\"{0}\" is not KEY=VALUE")]
    Form(String),
    #[error("a policy has no \"{key}\"; it has {known}")]
    NoKey { key: String, known: String },
    #[error("\"{text}\" is no policy")]
    Value {
        text: String,
        #[source]
        source: serde_json::Error,
    },
}

const KNOWN: [(&str, Offered, Objective); 14] = [
    ("goodput", Offered::Elastic, Objective::Goodput),
    ("fifo_backfill", Offered::AsRequested, Objective::FifoBackfill),
    ("fifo_backfill_maximum", Offered::Elastic, Objective::FifoBackfill),
    ("sia", Offered::Elastic, Objective::Sia),
    ("sia_simulated", Offered::Elastic, Objective::SiaSimulated),
    ("pollux", Offered::Elastic, Objective::Pollux),
    ("pollux_layouts", Offered::Elastic, Objective::PolluxLayouts),
    ("least_attained", Offered::Elastic, Objective::LeastAttained),
    ("shortest_remaining", Offered::Elastic, Objective::ShortestRemaining),
    ("static", Offered::AsRequested, Objective::Static),
    ("batch_fixed", Offered::BatchFixed, Objective::Goodput),
    ("no_shrinking", Offered::NoShrinking, Objective::Goodput),
    ("layout_fixed", Offered::LayoutFixed, Objective::Goodput),
    ("size_fixed", Offered::SizeFixed, Objective::Goodput),
];

/// Shorter names, which earlier releases wrote, and the names that are shown.
const ALIASES: [(&str, &str); 2] = [("fifo", "fifo_backfill"), ("fifo_maximum", "fifo_backfill_maximum")];

/// Returns the name that is shown of a contender, with the settings behind it unchanged.
pub fn shown_name(text: &str) -> String {
    let (name, settings) = text.split_at(text.find(':').unwrap_or(text.len()));
    let shown = ALIASES.into_iter().find(|(alias, _)| *alias == name).map_or(name, |(_, shown)| shown);
    format!("{shown}{settings}")
}

impl Contender {
    /// Names of all contenders, the policies before the ablations.
    pub fn names() -> impl Iterator<Item = &'static str> {
        KNOWN.into_iter().map(|(name, ..)| name)
    }

    /// `NAME`, or `NAME:KEY=VALUE:…` with fields of the policy set; `common` is set before.
    pub fn read(text: &str, common: &[String]) -> Result<Self, ContenderError> {
        let text = &shown_name(text);
        let mut parts = text.split(':');
        let name = parts.next().unwrap_or_default();
        let known = KNOWN.into_iter().find(|(known, ..)| *known == name);
        let (_, offered, objective) = known.ok_or_else(|| ContenderError::Unknown { name: name.to_owned() })?;
        let mut policy = Policy { objective, ..Policy::default() };
        for setting in common.iter().map(String::as_str).chain(parts) {
            policy = with(&policy, setting)?;
        }
        Ok(Self { name: text.to_owned(), offered, policy })
    }

    /// A job's specification as this contender sees it.
    #[must_use]
    pub fn spec(&self, job: &Job, cluster: &Cluster) -> JobSpec {
        let rigid = matches!(self.offered, Offered::AsRequested | Offered::SizeFixed);
        let sizes = match (&job.kind, self.offered) {
            (Kind::Opaque, _) => vec![job.requested],
            _ if rigid => vec![job.requested],
            (_, Offered::NoShrinking) => job.sizes.iter().copied().filter(|size| *size >= job.requested).collect(),
            _ => job.sizes.clone(),
        };
        let (min, max) = (sizes.first().copied(), sizes.last().copied());
        let range = GpuRange {
            min: min.unwrap_or(job.requested),
            max: max.unwrap_or(job.requested),
            sizes,
            types: Vec::new(),
            mixed: false,
        };
        let training = match &job.kind {
            Kind::Opaque => None,
            Kind::Training(recipe) => {
                let mut told = recipe.told();
                if matches!(self.offered, Offered::AsRequested | Offered::BatchFixed) {
                    told.batch = BatchRange { min: recipe.reference_batch, max: recipe.reference_batch };
                }
                let class = cluster.groups().first().map(crate::cluster::Group::class);
                if self.offered == Offered::LayoutFixed
                    && let Some((at, _)) = class.and_then(|class| recipe.at(&class, job.requested))
                {
                    let LayoutLimits { max_micro_batch, mut execution, .. } = told.layouts;
                    execution.sharding = vec![at.layout.execution.sharding];
                    execution.recompute = vec![at.layout.execution.recompute];
                    told.layouts = LayoutLimits {
                        tp: vec![at.layout.tp],
                        pp: vec![at.layout.pp],
                        max_micro_batch,
                        execution,
                        sizes: BTreeMap::new(),
                    };
                }
                told.reconfigure.batch = Flexibility::Live;
                Some(told)
            }
        };
        let mut spec = example::spec(&job.name, range, training);
        spec.roles[0].run.env = emulated(&job.kind, job.duration);
        spec.limits.max_restarts = 1_000;
        spec
    }
}

/// What tells the workers of an emulated fleet the same truth.
fn emulated(kind: &Kind, duration: Seconds) -> BTreeMap<String, String> {
    let (name, value) = match kind {
        Kind::Opaque => ("HEADWAY_EMULATED_SECONDS", duration.0.to_string()),
        Kind::Training(recipe) => {
            let noise = recipe.noise;
            ("HEADWAY_EMULATED_NOISE", format!("{},{},{}", noise.start, noise.growth, noise.half))
        }
    };
    BTreeMap::from([(name.to_owned(), value)])
}

fn with(policy: &Policy, setting: &str) -> Result<Policy, ContenderError> {
    let (key, text) = setting.split_once('=').ok_or_else(|| ContenderError::Form(setting.to_owned()))?;
    let value: Value = serde_json::from_str(text).unwrap_or_else(|_| Value::String(text.to_owned()));
    let wrong = |source| ContenderError::Value { text: setting.to_owned(), source };
    let Value::Object(mut fields) = serde_json::to_value(policy).map_err(wrong)? else {
        return Err(ContenderError::Form(setting.to_owned()));
    };
    if !fields.contains_key(key) {
        let known = fields.keys().cloned().collect::<Vec<_>>().join(", ");
        return Err(ContenderError::NoKey { key: key.to_owned(), known });
    }
    fields.insert(key.to_owned(), value);
    serde_json::from_value(Value::Object(fields)).map_err(wrong)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use headway_types::GpuCount;

    use super::*;
    use crate::workload::{Named, Plenty};

    #[test]
    fn a_contender_is_a_name_with_settings() {
        let read = |text: &str| Contender::read(text, &["min_gain=0.05".into()]);
        let contender = read("goodput:patience=null:horizon=7200").unwrap();
        let Policy { min_gain, patience, horizon, .. } = contender.policy;
        assert_eq!((min_gain, patience, horizon), (0.05, None, Seconds(7_200.0)));
        assert!(matches!(read("goodput:patients=1"), Err(ContenderError::NoKey { .. })));
        assert!(matches!(read("goodput:power=much"), Err(ContenderError::Value { .. })));
        assert!(matches!(read("luck"), Err(ContenderError::Unknown { .. })));
        for name in Contender::names() {
            assert!(read(name).is_ok(), "{name}");
        }
    }

    #[test]
    fn a_short_name_is_shown_as_the_policy_calls_it() {
        let named = |text: &str| Contender::read(text, &[]).unwrap().name;
        assert_eq!(named("fifo"), "fifo_backfill");
        assert_eq!(named("fifo:min_gain=0.05"), "fifo_backfill:min_gain=0.05");
        assert_eq!(named("fifo_maximum"), "fifo_backfill_maximum");
        assert_eq!(named("fifo_backfill"), Objective::FifoBackfill.to_string());
    }

    #[test]
    fn a_rigid_twin_has_the_size_and_the_batch_it_asks_for() {
        let cluster: Cluster = "H100x8=8".parse().unwrap();
        let workload = Named::Day.draw(1, &cluster, &Plenty::default());
        let job = workload.jobs.iter().find(|job| job.sizes.len() > 2).unwrap();
        let spec = |name: &str| Contender::read(name, &[]).unwrap().spec(job, &cluster);
        let range = |name: &str| (spec(name).role().gpus.min, spec(name).role().gpus.max);
        let batches = |name: &str| {
            let batch = spec(name).training().unwrap().batch;
            batch.max.0 - batch.min.0
        };
        assert_eq!(range("fifo_backfill"), (job.requested, job.requested));
        assert_eq!(range("goodput"), (job.sizes[0], *job.sizes.last().unwrap()));
        assert_eq!(range("no_shrinking").0, job.requested);
        assert_eq!((batches("fifo_backfill"), batches("batch_fixed")), (0, 0));
        assert!(batches("size_fixed") > 0 && range("size_fixed").1 == job.requested);
        assert_eq!(spec("layout_fixed").training().unwrap().layouts.tp.len(), 1);
        assert!(range("goodput").1 > GpuCount(0));
    }
}
