//! Arrays of which a job is kept, and which of their elements may be in rounds. Follows the rows of jobs, so that a batch looks at no array that it has
//! not touched.

use std::collections::BTreeSet;
use std::sync::Arc;

use headway_types::{ArrayId, JobId};
use imbl::OrdMap;

use super::Facts;
use crate::event::Known;
use crate::record::{Array, Element, Job, JobState, Tally};

/// By id; shared with copies of the engine.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Arrays(OrdMap<ArrayId, Arc<Kept>>);

/// An array with its elements that are kept, each in one of the sets by its index.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Kept {
    pub row: Arc<Array>,
    /// They could be in rounds, were it not for the array.
    pub waiting: BTreeSet<(u32, JobId)>,
    /// In rounds, or with a live generation.
    pub admitted: BTreeSet<(u32, JobId)>,
    /// Held, or waiting for other jobs.
    pub aside: BTreeSet<(u32, JobId)>,
    /// Ended, and still holding GPUs.
    pub over: BTreeSet<(u32, JobId)>,
}

/// What an element is up to, as far as its array goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Lot {
    part: Part,
    begun: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    Waiting,
    Admitted,
    Aside,
    Succeeded,
    Failed,
    Cancelled,
}

impl Lot {
    /// `None` for a job of no array.
    pub fn of(job: &Job) -> Option<Self> {
        let element = job.element.as_ref()?;
        let part = match &job.state {
            JobState::Queued { .. } if job.open_dependencies().next().is_some() => Part::Aside,
            JobState::Queued { .. } if element.waits => Part::Waiting,
            JobState::Held { .. } => Part::Aside,
            JobState::Succeeded { .. } => Part::Succeeded,
            JobState::Failed { .. } => Part::Failed,
            JobState::Cancelled { .. } => Part::Cancelled,
            JobState::Queued { .. }
            | JobState::Starting { .. }
            | JobState::Running { .. }
            | JobState::Stopping { .. } => Part::Admitted,
        };
        Some(Self { part, begun: job.started_at.is_some() || job.state.is_final() })
    }
}

impl Kept {
    fn new(row: Arc<Array>) -> Self {
        let none = BTreeSet::new;
        Self { row, waiting: none(), admitted: none(), aside: none(), over: none() }
    }

    /// All that are kept, by index.
    pub fn elements(&self) -> BTreeSet<(u32, JobId)> {
        [&self.waiting, &self.admitted, &self.aside, &self.over].into_iter().flatten().copied().collect()
    }

    fn is_empty(&self) -> bool {
        self.waiting.is_empty() && self.admitted.is_empty() && self.aside.is_empty() && self.over.is_empty()
    }

    fn set(&mut self, part: Part) -> &mut BTreeSet<(u32, JobId)> {
        match part {
            Part::Waiting => &mut self.waiting,
            Part::Admitted => &mut self.admitted,
            Part::Aside => &mut self.aside,
            Part::Succeeded | Part::Failed | Part::Cancelled => &mut self.over,
        }
    }
}

/// One more or one less of what a lot is counted as.
fn count(tally: &mut Tally, lot: Lot, change: impl Fn(&mut u32)) {
    match lot.part {
        Part::Succeeded => change(&mut tally.succeeded),
        Part::Failed => change(&mut tally.failed),
        Part::Cancelled => change(&mut tally.cancelled),
        Part::Waiting | Part::Admitted | Part::Aside => {}
    }
    if lot.begun {
        change(&mut tally.begun);
    }
}

impl Arrays {
    /// Rows as they are stored, with the elements that are kept.
    pub fn of_all(rows: Vec<Array>, jobs: &OrdMap<JobId, Arc<Job>>) -> Self {
        let mut arrays = Self::default();
        rows.into_iter().for_each(|row| arrays.keep(Arc::new(row)));
        for job in jobs.values() {
            let _unknown_arrays_are_told_when_they_come_in = arrays.enter(job);
        }
        Self(arrays.0.into_iter().filter(|(_, kept)| !kept.is_empty()).collect())
    }

    pub fn get(&self, id: ArrayId) -> Option<&Arc<Kept>> {
        self.0.get(&id)
    }

    pub fn ids(&self) -> impl Iterator<Item = ArrayId> {
        self.0.keys().copied()
    }

    /// Whether the sets say what the rows of jobs do.
    pub fn agree_with(&self, jobs: &OrdMap<JobId, Arc<Job>>) -> bool {
        let rows = self.0.values().map(|kept| Array::clone(&kept.row)).collect();
        Self::of_all(rows, jobs) == *self
    }

    pub(super) fn keep(&mut self, row: Arc<Array>) {
        let id = row.id;
        if !self.0.contains_key(&id) {
            self.0.insert(id, Arc::new(Kept::new(row)));
        }
    }

    /// Takes in an element that is kept from now on; what it was counted as is in the row. Its array, where that is not known.
    pub(super) fn enter(&mut self, job: &Job) -> Option<ArrayId> {
        let (element, lot) = (job.element.as_ref()?, Lot::of(job)?);
        let Some(kept) = self.0.get_mut(&element.array) else { return Some(element.array) };
        Arc::make_mut(kept).set(lot.part).insert((element.index, job.id));
        None
    }

    /// Lets go of an element; of the last one, of its array, which is given back.
    pub(super) fn leave(&mut self, job: &Job) -> Option<Arc<Array>> {
        let (element, lot) = (job.element.as_ref()?, Lot::of(job)?);
        let kept = Arc::make_mut(self.0.get_mut(&element.array)?);
        kept.set(lot.part).remove(&(element.index, job.id));
        kept.is_empty().then(|| self.0.remove(&element.array).map(|kept| Arc::clone(&kept.row)))?
    }

    /// Takes in what an element does now; whether the array's row changes by it.
    pub(super) fn renew(&mut self, id: JobId, element: &Element, before: Lot, after: Lot) -> bool {
        let Some(kept) = self.0.get_mut(&element.array).filter(|_| before != after) else { return false };
        let kept = Arc::make_mut(kept);
        if before.part != after.part {
            kept.set(before.part).remove(&(element.index, id));
            kept.set(after.part).insert((element.index, id));
        }
        let mut tally = kept.row.tally;
        count(&mut tally, before, |number| *number = number.saturating_sub(1));
        count(&mut tally, after, |number| *number += 1);
        let changes = tally != kept.row.tally;
        if changes {
            Arc::make_mut(&mut kept.row).tally = tally;
        }
        changes
    }
}

impl Facts {
    pub fn array(&self, id: ArrayId) -> Option<&Arc<Array>> {
        self.arrays.get(id).map(|kept| &kept.row)
    }

    /// The newest row of an array that the shell has read; likewise as of jobs.
    pub fn newest_array(&self, id: ArrayId, known: &Known) -> Option<Arc<Array>> {
        let told = known.arrays.get(&id)?;
        Some(Arc::clone(self.array(id).or_else(|| self.departed_arrays.get(id)).unwrap_or(told)))
    }

    /// Takes in an array whose elements follow. One that was not kept is stored with the first change of its row.
    pub fn keep_array(&mut self, row: Arc<Array>) {
        self.arrays.keep(row);
    }

    /// Takes in an array that is made with this batch.
    pub fn add_array(&mut self, row: Array) {
        let id = row.id;
        self.arrays.keep(Arc::new(row));
        self.draft.arrays.insert(id);
    }

    /// Changes an array's row; the version rises once per batch.
    pub fn edit_array(&mut self, id: ArrayId, change: impl FnOnce(&mut Array)) {
        let Some(kept) = self.arrays.0.get_mut(&id) else {
            return self.impossible("an array that is not kept was to change", None, None);
        };
        change(Arc::make_mut(&mut Arc::make_mut(kept).row));
        self.draft.arrays.insert(id);
        self.unsettled = true;
    }

    /// The end of a batch: one version per row that was touched.
    pub(crate) fn raise_array_versions(&mut self, touched: &BTreeSet<ArrayId>) {
        for id in touched {
            if let Some(kept) = self.arrays.0.get_mut(id) {
                Arc::make_mut(&mut Arc::make_mut(kept).row).version += 1;
            }
        }
    }

    /// An element does something else than before.
    pub(super) fn renew_element(&mut self, id: JobId, before: Option<Lot>) {
        let Some(job) = self.jobs.get(&id) else { return };
        let (Some(element), Some(before), Some(after)) = (&job.element, before, Lot::of(job)) else { return };
        let array = element.array;
        if self.arrays.renew(id, element, before, after) {
            self.draft.arrays.insert(array);
        }
        self.draft.shown_arrays.insert(array);
    }
}
