//! What goes wrong and how often: faults that strike now and then, and chances taken at each opportunity.

use std::collections::BTreeMap;

use headway_types::Seconds;

/// How much goes wrong, over the whole cluster. Nothing goes wrong after `until`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Faults {
    pub until: Seconds,
    /// Mean time between faults of a kind; kinds not named never strike.
    pub every: BTreeMap<FaultKind, Seconds>,
    /// Share of opportunities at which a chance comes true; chances not named never do.
    pub share: BTreeMap<Chance, f64>,
}

/// A fault that strikes at a moment drawn from the seed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum FaultKind {
    /// The scheduler is killed at once, between decision and commit, or between commit and send.
    SchedulerCrash,
    /// SIGSTOP for up to several leases.
    SchedulerPause,
    /// SIGSTOP, and another scheduler takes the lead meanwhile.
    Takeover,
    /// The clock of the scheduler's host jumps ahead, and may be set back later.
    ClockJump,
    ClockFreeze,
    AgentCrash,
    AgentPause,
    NodeReboot,
    /// The agent's disk is empty when it comes back; orphans are killed before it registers.
    DiskLoss,
    /// As `DiskLoss`, and the node gets another id.
    Reinstall,
    /// A session breaks and loses its tail.
    Disconnect,
    /// Nothing passes for minutes, though workers go on.
    Partition,
    /// Commands arrive, reports do not.
    ReportsBlocked,
    /// Reports arrive, commands do not.
    CommandsBlocked,
    WorkerDeath,
    WorkerPause,
    /// Processes live, but no step comes.
    WorkerHang,
    Straggler,
    /// A GPU breaks under whoever uses it, and heals later.
    GpuBreak,
    /// A passing trouble of the host.
    NodeTrouble,
    /// Every preparation fails on a node for a while.
    BadNode,
    /// A checkpoint of an old generation is offered late.
    StaleCheckpoint,
    /// A group is reported running that has ended.
    FalseReport,
    Drain,
    Cordon,
    Hold,
    Cancel,
    /// An operator writes off an unreachable node whose processes may still run.
    MarkLost,
    /// An operator deletes a node that is out of contact, lost or not.
    DeleteNode,
    Rebalance,
    PolicyChange,
    SaveNow,
}

/// What may happen at each opportunity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Chance {
    /// The store says no; nothing is written.
    CommitFails,
    /// The store has written, but the scheduler is told that it failed.
    CommitUnknown,
    /// An answer never reaches its asker, who asks again.
    AnswerLost,
    /// Lost within a session that lives on. No stream does that; the promises hold all the same.
    ReportLost,
    CommandLost,
    ReportRepeated,
    CommandRepeated,
    /// What a broken session had swallowed arrives after all, long after.
    LateDelivery,
    PrepareFails,
    /// The checks take longer than the engine waits.
    PrepareHangs,
    SpawnFails,
    SaveFails,
    /// A checkpoint is offered and committed, and proves bad when it is loaded.
    CheckpointCorrupt,
}

impl FaultKind {
    pub const ALL: [FaultKind; 32] = {
        use FaultKind as F;
        [
            F::SchedulerCrash,
            F::SchedulerPause,
            F::Takeover,
            F::ClockJump,
            F::ClockFreeze,
            F::AgentCrash,
            F::AgentPause,
            F::NodeReboot,
            F::DiskLoss,
            F::Reinstall,
            F::Disconnect,
            F::Partition,
            F::ReportsBlocked,
            F::CommandsBlocked,
            F::WorkerDeath,
            F::WorkerPause,
            F::WorkerHang,
            F::Straggler,
            F::GpuBreak,
            F::NodeTrouble,
            F::BadNode,
            F::StaleCheckpoint,
            F::FalseReport,
            F::Drain,
            F::Cordon,
            F::Hold,
            F::Cancel,
            F::MarkLost,
            F::DeleteNode,
            F::Rebalance,
            F::PolicyChange,
            F::SaveNow,
        ]
    };

    /// Mean time between two of them where nothing else is said: far more often than in life.
    #[must_use]
    pub fn usual(self) -> Seconds {
        use FaultKind as F;
        Seconds(match self {
            F::Disconnect => 60.0,
            F::SchedulerCrash | F::AgentCrash | F::FalseReport | F::StaleCheckpoint => 200.0,
            F::SchedulerPause | F::AgentPause | F::WorkerPause | F::WorkerDeath | F::Partition => 300.0,
            F::ReportsBlocked | F::CommandsBlocked | F::MarkLost | F::DeleteNode | F::Rebalance | F::SaveNow => 300.0,
            F::Takeover | F::ClockJump | F::ClockFreeze | F::NodeReboot | F::DiskLoss => 500.0,
            F::Straggler | F::GpuBreak | F::NodeTrouble | F::BadNode | F::Drain | F::Cordon | F::Hold => 500.0,
            F::Reinstall | F::WorkerHang | F::PolicyChange => 900.0,
            F::Cancel => 2_000.0,
        })
    }
}

impl Chance {
    pub const ALL: [Chance; 13] = {
        use Chance as C;
        [
            C::CommitFails,
            C::CommitUnknown,
            C::AnswerLost,
            C::ReportLost,
            C::CommandLost,
            C::ReportRepeated,
            C::CommandRepeated,
            C::LateDelivery,
            C::PrepareFails,
            C::PrepareHangs,
            C::SpawnFails,
            C::SaveFails,
            C::CheckpointCorrupt,
        ]
    };

    #[must_use]
    pub fn usual(self) -> f64 {
        use Chance as C;
        match self {
            C::CommitFails | C::CommitUnknown => 0.01,
            C::AnswerLost => 0.3,
            C::ReportLost | C::CommandLost | C::ReportRepeated | C::CommandRepeated => 0.05,
            C::LateDelivery => 0.3,
            C::PrepareFails | C::SpawnFails => 0.05,
            C::PrepareHangs => 0.02,
            C::SaveFails => 0.2,
            C::CheckpointCorrupt => 0.01,
        }
    }
}

/// A preset by name.
pub type Preset = (&'static str, fn() -> Faults);

impl Faults {
    /// Every preset; a lifetime's seed chooses one.
    pub const PRESETS: [Preset; 14] = [
        ("calm", Faults::calm),
        ("crashes", Faults::crashes),
        ("commits", Faults::commits),
        ("pauses", Faults::pauses),
        ("two_leaders", Faults::two_leaders),
        ("network", Faults::network),
        ("hostile_network", Faults::hostile_network),
        ("disks", Faults::disks),
        ("checkpoints", Faults::checkpoints),
        ("hardware", Faults::hardware),
        ("launches", Faults::launches),
        ("operators", Faults::operators),
        ("clocks", Faults::clocks),
        ("storm", Faults::storm),
    ];

    /// Nothing goes wrong.
    #[must_use]
    pub fn calm() -> Self {
        Self::default()
    }

    /// These faults and chances, as often as usual, for half an hour.
    #[must_use]
    pub fn of(kinds: &[FaultKind], chances: &[Chance]) -> Self {
        Self {
            until: Seconds(1_800.0),
            every: kinds.iter().map(|kind| (*kind, kind.usual())).collect(),
            share: chances.iter().map(|chance| (*chance, chance.usual())).collect(),
        }
    }

    /// One kind alone, more often than usual.
    #[must_use]
    pub fn only(kind: FaultKind) -> Self {
        let mut faults = Self::of(&[kind], &[]);
        faults.every.insert(kind, Seconds(kind.usual().0 / 4.0));
        faults
    }

    /// One chance alone, more often than usual.
    #[must_use]
    pub fn only_chance(chance: Chance) -> Self {
        let mut faults = Self::of(&[FaultKind::Disconnect], &[chance]);
        faults.share.insert(chance, (chance.usual() * 3.0).min(0.5));
        faults
    }

    /// Scheduler, agents, nodes and workers die at any moment.
    #[must_use]
    pub fn crashes() -> Self {
        use FaultKind as F;
        Self::of(&[F::SchedulerCrash, F::AgentCrash, F::NodeReboot, F::WorkerDeath], &[Chance::AnswerLost])
    }

    /// The store refuses, or writes and says that it did not.
    #[must_use]
    pub fn commits() -> Self {
        use FaultKind as F;
        let mut faults = Self::of(&[F::WorkerDeath, F::Disconnect, F::Cancel], &[Chance::AnswerLost]);
        faults.share.extend([(Chance::CommitFails, 0.05), (Chance::CommitUnknown, 0.05)]);
        faults
    }

    /// SIGSTOP and SIGCONT of anything.
    #[must_use]
    pub fn pauses() -> Self {
        use FaultKind as F;
        Self::of(&[F::SchedulerPause, F::AgentPause, F::WorkerPause, F::WorkerDeath, F::Disconnect], &[])
    }

    /// A leader is paused, another takes over, the first wakes up.
    #[must_use]
    pub fn two_leaders() -> Self {
        use FaultKind as F;
        let chances = [Chance::LateDelivery, Chance::AnswerLost];
        let mut faults = Self::of(&[F::Takeover, F::Disconnect, F::WorkerDeath, F::Cancel], &chances);
        faults.every.insert(F::Takeover, Seconds(150.0));
        faults
    }

    /// Streams break, nodes are out of reach in one or both directions.
    #[must_use]
    pub fn network() -> Self {
        use FaultKind as F;
        Self::of(&[F::Disconnect, F::Partition, F::ReportsBlocked, F::CommandsBlocked], &[Chance::AnswerLost])
    }

    /// As `network`, and single messages are lost, repeated, and late beyond the end of their session.
    #[must_use]
    pub fn hostile_network() -> Self {
        use Chance as C;
        let mut faults = Self::network();
        let hostile = [C::ReportLost, C::CommandLost, C::ReportRepeated, C::CommandRepeated, C::LateDelivery];
        faults.share.extend(hostile.map(|chance| (chance, chance.usual())));
        faults
    }

    /// Agents come back without their ledger, or as another node.
    #[must_use]
    pub fn disks() -> Self {
        use FaultKind as F;
        let kinds = [F::DiskLoss, F::Reinstall, F::AgentCrash, F::Disconnect, F::WorkerDeath];
        let mut faults = Self::of(&kinds, &[Chance::LateDelivery]);
        faults.every.extend([(F::DiskLoss, Seconds(200.0)), (F::Reinstall, Seconds(400.0))]);
        faults
    }

    /// Saves fail, checkpoints rot, old generations offer theirs.
    #[must_use]
    pub fn checkpoints() -> Self {
        use FaultKind as F;
        let kinds = [F::StaleCheckpoint, F::SaveNow, F::Partition, F::WorkerDeath, F::AgentCrash];
        Self::of(&kinds, &[Chance::SaveFails, Chance::CheckpointCorrupt])
    }

    /// GPUs break and heal, workers hang and straggle, hosts are in trouble.
    #[must_use]
    pub fn hardware() -> Self {
        use FaultKind as F;
        Self::of(&[F::GpuBreak, F::NodeTrouble, F::WorkerHang, F::Straggler, F::NodeReboot, F::WorkerDeath], &[])
    }

    /// Gangs that start on some of their nodes only, or on none.
    #[must_use]
    pub fn launches() -> Self {
        use Chance as C;
        let mut faults = Self::of(&[FaultKind::BadNode, FaultKind::AgentCrash, FaultKind::WorkerDeath], &[]);
        faults.share.extend([(C::PrepareFails, 0.15), (C::PrepareHangs, 0.05), (C::SpawnFails, 0.15)]);
        faults
    }

    /// People who change their minds, some of them mistaken.
    #[must_use]
    pub fn operators() -> Self {
        use FaultKind as F;
        let people = [F::Drain, F::Cordon, F::Hold, F::Cancel, F::MarkLost, F::DeleteNode, F::Rebalance];
        let mut faults = Self::of(&people, &[Chance::AnswerLost]);
        faults.every.extend([F::PolicyChange, F::SaveNow].map(|kind| (kind, kind.usual())));
        faults.every.extend([F::Partition, F::FalseReport, F::SchedulerCrash].map(|kind| (kind, kind.usual())));
        faults
    }

    /// The clock of the scheduler's host jumps and stands.
    #[must_use]
    pub fn clocks() -> Self {
        use FaultKind as F;
        Self::of(&[F::ClockJump, F::ClockFreeze, F::SchedulerCrash, F::Disconnect, F::WorkerDeath], &[])
    }

    /// Everything at once.
    #[must_use]
    pub fn storm() -> Self {
        let mut faults = Self::of(&FaultKind::ALL, &Chance::ALL);
        // All kinds together at their usual rates would leave no time to train.
        faults.every.values_mut().for_each(|every| every.0 *= 2.0);
        faults.share.values_mut().for_each(|share| *share /= 2.0);
        faults
    }

    /// A preset by its name, or one fault or chance alone by its own.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        let preset = Self::PRESETS.iter().find(|(known, _)| *known == name).map(|(_, preset)| preset());
        let kind = || FaultKind::ALL.into_iter().find(|kind| format!("{kind:?}") == name).map(Self::only);
        let chance = || Chance::ALL.into_iter().find(|one| format!("{one:?}") == name).map(Self::only_chance);
        preset.or_else(kind).or_else(chance)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_fault_and_chance_is_in_some_preset_besides_the_storm() {
        let presets = || Faults::PRESETS.iter().filter(|(name, _)| *name != "storm").map(|(_, preset)| preset());
        for kind in FaultKind::ALL {
            assert!(presets().any(|faults| faults.every.contains_key(&kind)), "{kind:?}");
        }
        for chance in Chance::ALL {
            assert!(presets().any(|faults| faults.share.contains_key(&chance)), "{chance:?}");
        }
    }
}
