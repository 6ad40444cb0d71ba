//! What to think of a node after what happened on it: a score that incidents lower and time heals, quarantine when it
//! falls too low, and probation before full trust. Pure: rows and times in, a changed row out.
//!
//! Quarantine never stops what runs. What jobs say of a node may be what their text says: the word of one owner counts once, and quarantines
//! nothing by itself, neither at first nor on probation. It takes a second owner, or what no text can cause. Should a job that spoke against a
//! node fail elsewhere too, it was the job's fault and its word is taken back.

use headway_types::{JobId, Seconds, Timestamp};

use crate::record::{Accusation, NodeHealth, Standing};

/// Below this score a node is quarantined.
const TRUSTED: f64 = 0.5;
/// Half of what is held against a node is forgotten after this long.
const HALF_LIFE: Seconds = Seconds(7_200.0);
/// The first quarantine; each further one is twice as long.
const QUARANTINE: Seconds = Seconds(600.0);
const LONGEST_QUARANTINE: Seconds = Seconds(86_400.0);
const PROBATION: Seconds = Seconds(3_600.0);
/// For so long further words of an owner add nothing: two half-lives, after which what is left of the first and a second do not come to
/// quarantine, nor would one more word each time: 0.35 / (1 - 1/4) < 1 - `TRUSTED`.
const SAID: Seconds = Seconds(2.0 * HALF_LIFE.0);

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

/// What came of an incident.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Counted {
    Noted,
    /// The owner of the job that says so has said it before: nothing changes.
    SaidBefore,
    /// It leads to quarantine.
    Quarantined,
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

    /// The job on whose word it counts, where it does.
    pub(crate) fn accuser(self) -> Option<JobId> {
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

    /// The job of this owner that speaks against it, while its word lasts.
    pub(crate) fn accuser(&self, owner: &str, now: Timestamp) -> Option<JobId> {
        self.accusers.get(owner).filter(|said| now.since(said.at).0 < SAID.0).map(|said| said.job)
    }

    /// Counts an incident. `owner`: of the job that says so, if one does. `spare`: whether other nodes could take the work; without
    /// them an accusation by a job alone never withholds a node.
    pub(crate) fn count(
        &mut self,
        now: Timestamp,
        incident: Incident,
        owner: &str,
        reason: &str,
        spare: bool,
    ) -> Counted {
        if let Some(job) = incident.accuser() {
            self.accusers.retain(|_, said| now.since(said.at).0 < SAID.0);
            if self.accusers.contains_key(owner) {
                return Counted::SaidBefore;
            }
            self.accusers.insert(owner.to_owned(), Accusation { job, at: now, weight: incident.weight() });
        }
        self.score = (self.score_at(now) - incident.weight()).max(0.0);
        self.scored_at = now;
        let former = match self.standing {
            Standing::Good => 0,
            Standing::Probation { times, .. } => times,
            Standing::Quarantined { ref mut accuser, .. } => {
                // What no job says stands, whatever becomes of the job's word.
                *accuser = accuser.filter(|_| incident.accuser().is_some());
                return Counted::Noted;
            }
        };
        let distrusted = self.score < TRUSTED || (former > 0 && incident.accuser().is_none());
        // Without others to do its work only proof, a GPU that broke, withholds a node.
        if !distrusted || (incident != Incident::GpuBroke && !spare) {
            return Counted::Noted;
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
        Counted::Quarantined
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

    /// The job that spoke against this node has failed elsewhere too: its word is taken back. True if that ends a quarantine.
    pub(crate) fn clear_of(&mut self, now: Timestamp, job: JobId, owner: &str) -> bool {
        if let Some(said) = self.accusers.get(owner).filter(|said| said.job == job) {
            // No more than is left of it.
            let left = said.weight * libm::exp2(-now.since(said.at).0 / HALF_LIFE.0);
            self.score = (self.score_at(now) + left).min(1.0);
            self.scored_at = now;
            self.accusers.remove(owner);
        }
        let Standing::Quarantined { accuser: Some(by), times, .. } = self.standing else { return false };
        if by != job && self.score_at(now) < TRUSTED {
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

    /// One owner after the other says that its job, of this number, could not start.
    fn accuse(health: &mut NodeHealth, now: Timestamp, owners: &[(&str, u64)]) -> Vec<Counted> {
        owners
            .iter()
            .map(|(owner, by)| health.count(now, Incident::NotStarted(job(*by)), owner, "no disk", true))
            .collect()
    }

    #[test]
    fn the_word_of_a_second_owner_quarantines_and_time_leads_back_over_probation() {
        let mut health = NodeHealth::default();
        assert_eq!(accuse(&mut health, NOW, &[("ada", 1), ("bob", 2)]), [Counted::Noted, Counted::Quarantined]);
        assert!(!health.is_trusted());
        assert!(!health.pass(NOW + Seconds(599.0)));
        let later = health.due().unwrap();
        assert!(health.pass(later) && health.is_trusted());
        let silent = health.count(later, Incident::Silent, "", "silent", true);
        assert_eq!(silent, Counted::Quarantined, "on probation one incident is enough");
        assert_eq!(health.due(), Some(later + QUARANTINE * 2.0));
    }

    #[test]
    fn the_last_node_is_not_withheld_on_the_word_of_jobs() {
        let mut health = NodeHealth::default();
        for owner in ["ada", "bob", "cyd"] {
            assert_eq!(health.count(NOW, Incident::GroupFailed(job(1)), owner, "exit 1", false), Counted::Noted);
        }
        let broke = health.count(NOW, Incident::GpuBroke, "", "XID 79", false);
        assert_eq!(broke, Counted::Quarantined, "a broken GPU needs no witness");
    }

    #[test]
    fn a_job_that_fails_elsewhere_too_takes_its_word_back() {
        for by in [1, 2] {
            let mut health = NodeHealth::default();
            accuse(&mut health, NOW, &[("ada", 1), ("bob", 2)]);
            assert!(!health.is_trusted());
            assert!(!health.clear_of(NOW, job(3), "ada"));
            assert!(health.clear_of(NOW, job(by), ["ada", "bob"][by as usize - 1]) && health.is_trusted());
        }
        let mut health = NodeHealth::default();
        health.clear_of(NOW, job(1), "ada");
        accuse(&mut health, NOW, &[("ada", 1), ("ada", 2)]);
        health.clear_of(NOW, job(2), "ada");
        assert_eq!(health.score, 1.0 - 0.35, "what did not count is not given back");
    }

    #[test]
    fn a_broken_gpu_and_the_group_that_failed_by_it_are_enough() {
        let mut health = NodeHealth::default();
        assert_eq!(health.count(NOW, Incident::GpuBroke, "", "XID 79", true), Counted::Noted);
        assert_eq!(accuse(&mut health, NOW, &[("ada", 1)]), [Counted::Quarantined]);
    }

    proptest! {
        #[test]
        fn one_owner_quarantines_nothing_however_many_jobs_say_whatever_whenever(
            words in prop::collection::vec((0.0..20_000.0_f64, 0..3_u8, 1..9_u64), 1..80),
            former in 0..6_u32,
        ) {
            let mut health = NodeHealth::default();
            if former > 0 {
                health.standing = Standing::Probation { since: NOW, until: NOW + PROBATION, times: former };
            }
            let mut now = NOW;
            for (gap, kind, by) in words {
                now = now + Seconds(gap);
                health.pass(now);
                let incident = [Incident::NotStarted, Incident::GroupFailed, Incident::Straggled][usize::from(kind)](job(by));
                prop_assert!(health.count(now, incident, "eve", "her text says so", true) != Counted::Quarantined);
                prop_assert!(health.is_trusted() && health.score_at(now) >= TRUSTED);
            }
        }

        #[test]
        fn a_score_stays_between_nothing_and_full_trust(gaps in prop::collection::vec(0.0..10_000.0_f64, 1..40)) {
            let (mut health, mut now) = (NodeHealth::default(), NOW);
            for gap in gaps {
                now = now + Seconds(gap);
                let before = health.score_at(now);
                health.count(now, Incident::Straggled(job(1)), "ada", "slow", true);
                health.pass(now);
                prop_assert!(health.score_at(now) <= before && (0.0..=1.0).contains(&health.score));
            }
        }
    }
}
