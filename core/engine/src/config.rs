//! Constants of the engine that an installation may set. What operators change while it runs is in
//! `record::PolicySettings`.

use headway_planner::Downtime;
use headway_types::Seconds;

/// Deadlines, repeats and priors.
#[derive(Clone, Debug, PartialEq)]
pub struct EngineConfig {
    /// How long a silent node is still believed to be there.
    pub lease: Seconds,
    /// Jobs that name no checkpoint directory save below `<checkpoint_root>/<job id>`.
    pub checkpoint_root: String,
    /// From the grant until every node of the gang has prepared.
    pub prepare_deadline: Seconds,
    /// From then until every node of the gang runs.
    pub launch_deadline: Seconds,
    /// While jobs run, reconcile looks at everything at least this often.
    pub reconcile_every: Seconds,
    /// A command whose effect is not seen is sent again after this long.
    pub command_repeat: Seconds,
    /// Wait after the first failure of a job's own; doubles with each further one.
    pub backoff_base: Seconds,
    pub backoff_max: Seconds,
    /// A generation that has run this long owes nothing for failures before it.
    pub steady_after: Seconds,
    /// From the launch to the first step of a job that tells of its steps.
    pub first_step_deadline: Seconds,
    /// A job is hung after this many of its own step times without one, but never sooner than `hang_floor`.
    pub hang_steps: f64,
    pub hang_floor: Seconds,
    /// Downtime of a restart before a job has shown its own.
    pub restart_prior: Seconds,
    /// Learnt models go to the observation writer this often at most.
    pub model_save_every: Seconds,
    /// How long an idempotency key is remembered.
    pub idempotency_kept: Seconds,
}

/// What processes, networks and databases may take however fast a cluster's time passes, in seconds of wall time.
mod wall {
    pub const LEASE: f64 = 10.0;
    pub const START: f64 = 30.0;
    pub const HANG: f64 = 30.0;
    pub const REPEAT: f64 = 0.5;
}

impl EngineConfig {
    /// For a cluster of which `speed` seconds pass per second of wall time. Limits are judged by the cluster's clock, but who is waited for
    /// also takes real time: of an accelerated cluster none of them is shorter than that.
    #[must_use]
    pub fn at_speed(self, speed: f64) -> Self {
        if speed <= 1.0 {
            return self;
        }
        let floor = |limit: Seconds, least: f64| Seconds(limit.0.max(least * speed));
        Self {
            lease: floor(self.lease, wall::LEASE),
            prepare_deadline: floor(self.prepare_deadline, wall::START),
            launch_deadline: floor(self.launch_deadline, wall::START),
            command_repeat: floor(self.command_repeat, wall::REPEAT),
            first_step_deadline: floor(self.first_step_deadline, wall::START),
            hang_floor: floor(self.hang_floor, wall::HANG),
            ..self
        }
    }
}

impl Default for EngineConfig {
    fn default() -> Self {
        Self {
            lease: Seconds(30.0),
            checkpoint_root: "/var/lib/headway/checkpoints".into(),
            prepare_deadline: Seconds(120.0),
            launch_deadline: Seconds(120.0),
            reconcile_every: Seconds(5.0),
            command_repeat: Seconds(2.0),
            backoff_base: Seconds(5.0),
            backoff_max: Seconds(300.0),
            steady_after: Seconds(3_600.0),
            first_step_deadline: Seconds(1_800.0),
            hang_steps: 20.0,
            hang_floor: Seconds(300.0),
            restart_prior: Downtime::RESTART,
            model_save_every: Seconds(30.0),
            idempotency_kept: Seconds(7.0 * 86_400.0),
        }
    }
}
