//! How sure what a job is expected to do is: the band around it, what of it nobody has confirmed, and whether it is likely to fit at all. For people;
//! rounds go by the model itself.

use headway_goodput::band::Band;
use headway_types::{Configuration, JobId, Placement, Reason, ReasonCode, Seconds};

use crate::record::class_of;
use crate::view::View;

/// Relative errors below this are those of any measurement.
const SURE: f64 = 0.05;
const GIB: f64 = (1_u64 << 30) as f64;

impl View {
    /// Of a job that has GPUs, or is given some by the adopted plan or a proposal; nothing of one that is sure, or that no model describes.
    #[must_use]
    pub fn unsure(&self, job: JobId) -> Vec<Reason> {
        self.doubts(job).unwrap_or_default()
    }

    fn doubts(&self, job: JobId) -> Option<Vec<Reason>> {
        let live = self.jobs.get(&job)?;
        let model = live.model.as_ref()?;
        let (placement, configuration) = self.place_of(job)?;
        let class = class_of(placement, |node| self.nodes.get(&node).map(|shown| &*shown.node))?;
        let told = |code, detail| Reason { code, binding: false, detail };
        // What trains has found room.
        let untried = live.live.reported_at.is_none();
        let unlikely = model.unlikely_to_fit(&class, &configuration).filter(|_| untried).map(|(needed, usable)| {
            let (needed, usable) = (needed / GIB, usable / GIB);
            let detail = format!(
                "it may run out of memory: {configuration} needs {needed:.1} GiB per GPU by the estimate, which may be off by so much, and may use {usable:.1}; nothing that fits better was possible"
            );
            told(ReasonCode::UnlikelyToFit, detail)
        });
        let (gpus, nodes) = (placement.gpus(), placement.nodes());
        let step = model.step_time(&class, gpus, nodes, &configuration).ok();
        let unconfirmed = step.filter(|step| step.relative_error >= SURE).map(|step| {
            let Band { p10, p90 } = Band::around(step.time.0, step.relative_error);
            let within = format!(
                "a step is expected to take {} and in four of five such cases takes {} to {}",
                in_seconds(step.time),
                in_seconds(Seconds(p10)),
                in_seconds(Seconds(p90)),
            );
            let cautions: Vec<String> =
                model.cautions(&class, &configuration).iter().map(ToString::to_string).collect();
            let why = if cautions.is_empty() { String::new() } else { format!(": {}", cautions.join("; ")) };
            told(ReasonCode::Unconfirmed, format!("{within}{why}"))
        });
        Some(unlikely.into_iter().chain(unconfirmed).collect())
    }

    /// Where a job is, or would be.
    fn place_of(&self, job: JobId) -> Option<(&Placement, Configuration)> {
        if let Some(held) = self.jobs.get(&job)?.allocation.as_ref() {
            return Some((&held.placement, held.configuration?));
        }
        let mut plans = self.target.iter().chain(self.proposals.values());
        let assigned = plans.find_map(|record| record.plan.assignments.get(&job))?;
        Some((&assigned.placement, assigned.configuration?))
    }
}

/// With three digits that count.
fn in_seconds(time: Seconds) -> String {
    match time.0 {
        short if short < 0.1 => format!("{short:.3} s"),
        short if short < 1.0 => format!("{short:.2} s"),
        long if long < 100.0 => format!("{long:.1} s"),
        long => format!("{long:.0} s"),
    }
}
