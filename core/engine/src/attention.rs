//! What a person should look at, the most pressing first: planning that does not go on, nodes that cannot be used, jobs that cannot be planned with, fail
//! again and again, wait too long or run otherwise than expected. It is read off what readers see in one pass and decides nothing: a job is due by the bound
//! that the newest round settled, and what a verdict says of a job is the planner's word.

mod clock;
mod jobs;
mod nodes;
mod planning;
mod takeover;
mod terms;

use std::cmp::Reverse;
use std::collections::BTreeMap;

use headway_types::{GpuCount, GpuSeconds, JobId, NodeId, PlanId, Seconds, Timestamp};

use crate::record::Job;
use crate::view::View;

/// What is the matter, the gravest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, strum::IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub enum Kind {
    /// Nodes follow a newer term and obey nothing.
    NodesAhead,
    /// A backup was restored, and its nodes have not all come back.
    NodesReturning,
    /// The machine's clock is not believed, and the cluster's goes on without it.
    ClockDoubted,
    /// Rounds took too long or broke down.
    RoundsGivenUp,
    /// A round has been under way for longer than the policy lets pass between two.
    RoundLate,
    NodeLost,
    NodeUnreachable,
    PlanningPaused,
    PlanWaitsApproval,
    NodeQuarantined,
    /// Rounds could not be planned with it.
    NodeLeftOut,
    /// It has too little of something to take new work.
    NodeAiling,
    GpusBroken,
    /// What a server's TLS is to go by from now on cannot be used: it goes on with what it had.
    CertificateRefused,
    /// A server's certificate ends soon, or has ended.
    CertificateExpires,
    /// What was added to the audit is not sealed.
    AuditUnsealed,
    /// Rounds gave no plan with the job and do without it.
    JobSetAside,
    /// What is known of the job contradicts itself.
    JobLeftOut,
    JobHangs,
    JobFails,
    /// It can never run on this cluster.
    JobNever,
    /// It has waited for so long that it is due.
    JobStarves,
    /// Its goodput is far from what was predicted when it was placed.
    JobMispredicted,
    /// Another server led a short while ago.
    TookOver,
}

/// How pressing it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, strum::IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub enum Severity {
    /// Nobody is served as long as it lasts, or hardware is gone.
    Critical,
    /// GPUs or jobs stand still until somebody acts.
    Warning,
    Notice,
}

impl Kind {
    #[must_use]
    pub fn severity(self) -> Severity {
        match self {
            Self::NodesAhead | Self::NodesReturning | Self::ClockDoubted => Severity::Critical,
            Self::RoundsGivenUp | Self::RoundLate | Self::NodeLost | Self::NodeUnreachable => Severity::Critical,
            Self::PlanningPaused | Self::PlanWaitsApproval | Self::NodeQuarantined | Self::NodeLeftOut => {
                Severity::Warning
            }
            Self::NodeAiling | Self::GpusBroken | Self::JobSetAside | Self::JobLeftOut => Severity::Warning,
            Self::CertificateRefused | Self::CertificateExpires | Self::AuditUnsealed => Severity::Warning,
            Self::JobHangs | Self::JobFails => Severity::Warning,
            Self::JobNever | Self::JobStarves | Self::JobMispredicted | Self::TookOver => Severity::Notice,
        }
    }
}

/// What it is about.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Subject {
    Planning,
    Plan(PlanId),
    Node { id: NodeId, name: String },
    Job { id: JobId, name: String },
}

/// One thing to look at.
#[derive(Clone, Debug, PartialEq)]
pub struct Item {
    pub kind: Kind,
    pub subject: Subject,
    pub since: Option<Timestamp>,
    /// GPU-time that stood still, was lost or was waited for on its account so far; `None`: nobody can tell.
    pub at_stake: Option<GpuSeconds>,
    /// One sentence for people.
    pub headline: String,
    /// What they can do about it.
    pub next_step: String,
}

/// What there is to look at.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Attention {
    pub items: Vec<Item>,
    /// How much there is of each kind, told or not.
    pub by_kind: BTreeMap<Kind, u32>,
}

/// Something found, before it is put in words: of a long list only what is told costs words.
struct Finding<'v> {
    kind: Kind,
    subject: Subject,
    since: Option<Timestamp>,
    at_stake: Option<GpuSeconds>,
    /// Headline and next step.
    told: Box<dyn FnOnce() -> (String, String) + 'v>,
}

impl View {
    /// What to look at: by severity, then what has most at stake, then what has lasted longest. At most so many are told; jobs that the
    /// reader may not read are left out.
    #[must_use]
    pub fn attention(&self, most: usize, may_read: impl Fn(&Job) -> bool) -> Attention {
        self.attention_beside(Vec::new(), most, may_read)
    }

    /// The same, with what is the matter beside the cluster.
    #[must_use]
    pub fn attention_beside(&self, others: Vec<Item>, most: usize, may_read: impl Fn(&Job) -> bool) -> Attention {
        let mut found = planning::findings(self);
        found.extend(others.into_iter().map(Finding::from));
        found.extend(terms::findings(self));
        found.extend(terms::returning(self));
        found.extend(clock::findings(self));
        found.extend(takeover::findings(self));
        found.extend(nodes::findings(self));
        found.extend(jobs::findings(self, may_read));
        let mut by_kind = BTreeMap::new();
        found.iter().for_each(|one| *by_kind.entry(one.kind).or_default() += 1);
        found.sort_by(|a, b| a.rank().cmp(&b.rank()).then_with(|| a.subject.cmp(&b.subject)));
        let items = found.into_iter().take(most).map(Finding::in_words).collect();
        Attention { items, by_kind }
    }
}

impl From<Item> for Finding<'_> {
    fn from(item: Item) -> Self {
        let Item { kind, subject, since, at_stake, headline, next_step } = item;
        Self { kind, subject, since, at_stake, told: Box::new(|| (headline, next_step)) }
    }
}

impl Finding<'_> {
    fn rank(&self) -> impl Ord {
        let at_stake = self.at_stake.map_or(0, |gpu_seconds| gpu_seconds.0 as i64);
        (self.kind.severity(), Reverse(at_stake), self.kind, self.since.unwrap_or(Timestamp(i64::MAX)))
    }

    fn in_words(self) -> Item {
        let Self { kind, subject, since, at_stake, told } = self;
        let (headline, next_step) = told();
        Item { kind, subject, since, at_stake, headline, next_step }
    }
}

/// What so many GPUs come to from then to now.
fn standing(view: &View, gpus: GpuCount, since: Timestamp) -> GpuSeconds {
    gpus * elapsed(view, since)
}

fn elapsed(view: &View, since: Timestamp) -> Seconds {
    Seconds(view.at.since(since).0.max(0.0))
}

/// "for 12 min".
fn lasting(view: &View, since: Timestamp) -> String {
    format!("for {}", elapsed(view, since).words())
}
