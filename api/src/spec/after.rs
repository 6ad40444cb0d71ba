//! Section `after`: jobs that come before this one.

use headway_types::spec::{After, Condition, MOST_DEPENDENCIES};

use super::job_name;
use super::section::{Section, one_or_many};

/// One mapping, or a list of them.
pub(super) fn read(job: &Section<'_>) -> Option<Vec<After>> {
    let Some(value) = job.get("after") else { return Some(Vec::new()) };
    let (all, path) = (one_or_many(value), job.field("after"));
    if all.len() > MOST_DEPENDENCIES {
        job.wrong("after", format!("a job waits for {MOST_DEPENDENCIES} others at most, not {}", all.len()));
        return None;
    }
    let one = |(index, one)| {
        let path = if value.is_array() { format!("{path}[{index}]") } else { path.clone() };
        let section = Section::open(&path, one, &["job", "on"], &[], job.findings())?;
        section.require("job", "a name or an id, as in after: [{job: prep, on: success}]")?;
        let (job, on) = (job_name(&section, "job"), section.word_or("on", Condition::Success));
        Some(After { job: job?, on: on? })
    };
    // All are read even where one is wrong.
    let read: Vec<Option<After>> = all.iter().enumerate().map(one).collect();
    read.into_iter().collect()
}
