//! What the rows of a queue come to: with all conditions of a filter, and with one of them lifted, for whoever chooses its value. One look at each row.

use std::collections::BTreeMap;

use headway_api::v1::{QueueChoices, QueueShare, QueueTotals};
use headway_types::GpuType;

use super::line::Row;
use super::query::UNPLANNED;

/// Which of the conditions that one chooses values of hold for a row; all others do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Holds {
    pub code: bool,
    pub project: bool,
    pub gpu_type: bool,
}

impl Holds {
    pub fn all(self) -> bool {
        self.code && self.project && self.gpu_type
    }
}

#[derive(Debug, Default)]
pub struct Counts {
    pub totals: QueueTotals,
    pub choices: QueueChoices,
}

impl Counts {
    /// `types`: those that nodes have.
    pub fn add(&mut self, row: &Row, holds: Holds, types: &[GpuType]) {
        let one = QueueShare { jobs: 1, gpus: u64::from(row.job.least().0) };
        let code = row.waiting.code.as_deref().unwrap_or(UNPLANNED);
        let project = row.job.spec.project.as_str();
        // Who waits for other jobs waits for no GPUs yet.
        let wants = !row.job.is_blocked();
        let accepted = || types.iter().filter(|of| wants && row.job.spec.role().gpus.accepts(of));
        let Holds { code: of_code, project: of_project, gpu_type: of_type } = holds;
        if holds.all() {
            self.totals.jobs += 1;
            self.totals.gpus += if wants { one.gpus } else { 0 };
            add(&mut self.totals.by_code, code, one);
            add(&mut self.totals.by_project, project, one);
            accepted().for_each(|of| add(&mut self.totals.by_gpu_type, &of.0, one));
        }
        if of_project && of_type {
            add(&mut self.choices.by_code, code, one);
        }
        if of_code && of_type {
            add(&mut self.choices.by_project, project, one);
        }
        if of_code && of_project {
            accepted().for_each(|of| add(&mut self.choices.by_gpu_type, &of.0, one));
        }
    }
}

fn add(shares: &mut BTreeMap<String, QueueShare>, of: &str, one: QueueShare) {
    if !shares.contains_key(of) {
        shares.insert(of.to_owned(), QueueShare::default());
    }
    if let Some(share) = shares.get_mut(of) {
        share.jobs += one.jobs;
        share.gpus += one.gpus;
    }
}
