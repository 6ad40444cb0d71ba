//! A dependency of a job on another, and what has been judged of it. The judgement is kept with the job that waits, so that it
//! outlives the row of the other.

use headway_types::spec::Condition;
use headway_types::{ArrayId, JobId, Timestamp};
use serde::{Deserialize, Serialize};

use crate::dependencies::{called, waits};

/// Another job that is to have come so far before this one may start.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Dependency {
    #[serde(flatten)]
    pub of: Awaited,
    /// As it was called, and whose it was: what its name may be told by.
    pub name: String,
    pub project: String,
    pub owner: String,
    pub on: Condition,
    pub standing: DependencyStanding,
}

/// What may come before a job: another one, or all elements of an array.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Awaited {
    Job(JobId),
    Array(ArrayId),
}

/// What has been judged of a dependency. What is not open any more stays as it is, whatever becomes of the other job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "standing")]
pub enum DependencyStanding {
    Open,
    Met {
        at: Timestamp,
    },
    /// It can never be met: the job that waited was cancelled.
    Never {
        at: Timestamp,
    },
}

impl DependencyStanding {
    #[must_use]
    pub fn is_open(self) -> bool {
        self == Self::Open
    }
}

impl Dependency {
    /// "waits for prep to succeed", for those who may read a job of this project.
    #[must_use]
    pub fn in_words(&self, project: &str) -> String {
        waits(self.on, &self.called_in(project))
    }

    pub(crate) fn called_in(&self, project: &str) -> String {
        called(self.of, &self.name, &self.project, project)
    }
}
