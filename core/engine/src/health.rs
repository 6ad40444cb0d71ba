//! What to think of a node after what happened on it: a score that incidents lower and time heals, quarantine when it
//! falls too low, and probation before full trust. Pure: rows and times in, a changed row out.
//!
//! Quarantine never stops what runs. Suspicion from failures of one job alone is an experiment: should the job fail
//! elsewhere too, it was the job's fault and the node is cleared.

use headway_types::{JobId, Seconds, Timestamp};

use crate::record::{NodeHealth, Standing};

/// Below this score a node is quarantined.
const TRUSTED: f64 = 0.5;
/// Half of what is held against a node is forgotten after this long.
const HALF_LIFE: Seconds = Seconds(7_200.0);
/// The first quarantine; each further one is twice as long.
const QUARANTINE: Seconds = Seconds(600.0);
const LONGEST_QUARANTINE: Seconds = Seconds(86_400.0);
const PROBATION: Seconds = Seconds(3_600.0);

/// Something that speaks against a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Incident {
    /// A group could not be prepared or launched here, or not in time.
    NotStarted(JobId),
    /// A group failed here, and not by its own fault.
    GroupFailed(JobId),
    /// A group the ledger should know is gone without a trace.
    Vanished,
    /// Ranks of this node keep the others of their job waiting.
    Straggled(JobId),
    GpuBroke,
    Rebooted,
    /// The lease ran out.
    Silent,
}

impl Incident {
    /// Taken off the score.
    fn weight(self) -> f64 {
        match self {
            Incident::NotStarted(_) | Incident::GroupFailed(_) => 0.35,
            Incident::GpuBroke | Incident::Straggled(_) => 0.3,
            Incident::Rebooted | Incident::Vanished => 0.25,
            Incident::Silent => 0.15,
        }
    }

    fn accuser(self) -> Option<JobId> {
        match self {
            Incident::NotStarted(job) | Incident::GroupFailed(job) | Incident::Straggled(job) => Some(job),
            _ => None,
        }
    }
}

impl NodeHealth {
    /// Score at a moment: what is held against the node fades.
    #[must_use]
    pub fn score_at(&self, now: Timestamp) -> f64 {
        let halvings = now.since(self.scored_at).0 / HALF_LIFE.0;
        1.0 - (1.0 - self.score) * libm::exp2(-halvings)
    }

    /// Whether new work may be trusted to it.
    #[must_use]
    pub fn is_trusted(&self) -> bool {
        !matches!(self.standing, Standing::Quarantined { .. })
    }

    /// Counts an incident; true if it leads to quarantine. `spare`: whether other nodes could take the work; without
    /// them an accusation by a job alone never withholds a node.
    pub(crate) fn count(&mut self, now: Timestamp, incident: Incident, reason: &str, spare: bool) -> bool {
        self.score = (self.score_at(now) - incident.weight()).max(0.0);
        self.scored_at = now;
        let former = match self.standing {
            Standing::Good => 0,
            Standing::Probation { times, .. } => times,
            Standing::Quarantined { ref mut accuser, .. } => {
                // What no job says stands, whatever becomes of the job's word.
                *accuser = accuser.filter(|_| incident.accuser().is_some());
                return false;
            }
        };
        let distrusted = self.score < TRUSTED || former > 0;
        // Without others to do its work only proof, a GPU that broke, withholds a node.
        if !distrusted || (incident != Incident::GpuBroke && !spare) {
            return false;
        }
        let times = former + 1;
        let length = (QUARANTINE.0 * libm::exp2(f64::from(times.min(20) - 1))).min(LONGEST_QUARANTINE.0);
        self.standing = Standing::Quarantined {
            since: now,
            until: now + Seconds(length),
            reason: reason.into(),
            times,
            accuser: incident.accuser(),
        };
        true
    }

    /// What time alone changes: quarantine becomes probation, probation trust. True if it did.
    pub(crate) fn pass(&mut self, now: Timestamp) -> bool {
        match self.standing {
            Standing::Quarantined { until, times, .. } if until <= now => {
                self.standing = Standing::Probation { since: now, until: now + PROBATION, times };
            }
            Standing::Probation { until, .. } if until <= now => self.standing = Standing::Good,
            _ => return false,
        }
        true
    }

    /// When time alone will change its standing.
    pub(crate) fn due(&self) -> Option<Timestamp> {
        match self.standing {
            Standing::Good => None,
            Standing::Quarantined { until, .. } | Standing::Probation { until, .. } => Some(until),
        }
    }

    /// The job that spoke against this node has failed elsewhere too. True if that ends a quarantine.
    pub(crate) fn clear_of(&mut self, now: Timestamp, job: JobId) -> bool {
        self.score = (self.score_at(now) + Incident::NotStarted(job).weight()).min(1.0);
        self.scored_at = now;
        let Standing::Quarantined { accuser: Some(by), times, .. } = self.standing else { return false };
        if by != job {
            return false;
        }
        // Earlier quarantines had other causes.
        self.standing = match times {
            0 | 1 => Standing::Good,
            _ => Standing::Probation { since: now, until: now + PROBATION, times: times - 1 },
        };
        true
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use headway_types::IdSource;
    use proptest::prelude::*;

    use super::*;

    const NOW: Timestamp = Timestamp(1_700_000_000_000_000);

    fn job(seed: u64) -> JobId {
        IdSource::seeded(seed).job(NOW)
    }

    #[test]
    fn a_second_failed_start_quarantines_and_time_leads_back_over_probation() {
        let mut health = NodeHealth::default();
        assert!(!health.count(NOW, Incident::NotStarted(job(1)), "no disk", true));
        assert!(health.count(NOW, Incident::NotStarted(job(2)), "no disk", true));
        assert!(!health.is_trusted());
        assert!(!health.pass(NOW + Seconds(599.0)));
        let later = health.due().unwrap();
        assert!(health.pass(later) && health.is_trusted());
        assert!(health.count(later, Incident::Silent, "silent", true), "on probation one incident is enough");
        assert_eq!(health.due(), Some(later + QUARANTINE * 2.0));
    }

    #[test]
    fn the_last_node_is_not_withheld_on_a_jobs_word() {
        let mut health = NodeHealth::default();
        for _ in 0..5 {
            assert!(!health.count(NOW, Incident::GroupFailed(job(1)), "exit 1", false));
        }
        assert!(health.count(NOW, Incident::GpuBroke, "XID 79", false), "a broken GPU needs no witness");
    }

    #[test]
    fn a_job_that_fails_elsewhere_too_clears_the_node() {
        let mut health = NodeHealth::default();
        health.count(NOW, Incident::NotStarted(job(1)), "no such user", true);
        health.count(NOW, Incident::NotStarted(job(1)), "no such user", true);
        assert!(!health.is_trusted());
        assert!(!health.clear_of(NOW, job(2)));
        assert!(health.clear_of(NOW, job(1)) && health.is_trusted());
    }

    proptest! {
        #[test]
        fn a_score_stays_between_nothing_and_full_trust(gaps in prop::collection::vec(0.0..10_000.0_f64, 1..40)) {
            let (mut health, mut now) = (NodeHealth::default(), NOW);
            for gap in gaps {
                now = now + Seconds(gap);
                let before = health.score_at(now);
                health.count(now, Incident::Straggled(job(1)), "slow", true);
                health.pass(now);
                prop_assert!(health.score <= before && (0.0..=1.0).contains(&health.score));
            }
        }
    }
}
