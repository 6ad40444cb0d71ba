//! How far the truth lies from what a scheduler would expect. Spreads are deviations of the logarithm of a factor around 1.

use headway_types::Sequences;

/// What a job's micro-batch does to its steps that no term of the prior knows: kernels that have too little work, or memory that thrashes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Cliff {
    /// Micro-batches of fewer sequences take
    pub below: Sequences,
    /// so many times as long.
    pub times: f64,
}

/// What a world is like.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Nature {
    /// Of a model shape on a GPU type, over the terms that follow micro-batches: what one layout teaches holds for another.
    pub micro: f64,
    /// The same over the terms paid once per step.
    pub step: f64,
    /// Of each job on a GPU type, over its whole step: what jobs of the same shape do not teach each other.
    pub job: f64,
    /// Of each layout of each job on a GPU type: what no other layout teaches.
    pub layout: f64,
    pub cliff: Option<Cliff>,
    /// Of a job's critical batch over its noise scale, which the scheduler takes to be its κ.
    pub kappa: f64,
    /// Of the noise scale that gradients show over the true one.
    pub noise: f64,
    /// What a gang of several nodes takes longer to talk between them, as a share, while gangs like it hold all other nodes.
    pub contention: f64,
    /// Times the ordinary time to start.
    pub starts: f64,
    /// Of the phases of a start.
    pub start_spread: f64,
    /// Times the ordinary rate of failed saves.
    pub failures: f64,
    /// Share of a restart (save, start and load) that a change of layout in the running processes takes. `None`: scripts restart for it.
    pub live_layouts: Option<f64>,
}

impl Nature {
    /// About what published runs differ from the prior (docs/goodput.md); all else as the scheduler believes.
    pub const GENTLE: Nature = Nature {
        micro: 0.15,
        step: 0.3,
        job: 0.0,
        layout: 0.0,
        cliff: None,
        kappa: 0.0,
        noise: 0.0,
        contention: 0.0,
        starts: 1.0,
        start_spread: 0.15,
        failures: 1.0,
        live_layouts: None,
    };

    /// What evidence is gathered in: every job and every layout of it has its own factor, efficiency follows another critical batch than the gradients
    /// show, and starts take about a minute. COPUS states 231 to 809 s for a restart from a checkpoint (arXiv 2604.26687, table 2), our own
    /// warm starts of a small model 3 to 45 s (docs/measurements/reconfiguration.md). The rest is our choice.
    pub const HARSH: Nature = Nature {
        job: 0.1,
        layout: 0.08,
        kappa: 0.4,
        noise: 0.3,
        contention: 0.5,
        starts: 3.0,
        start_spread: 0.4,
        ..Nature::GENTLE
    };
}

impl Default for Nature {
    fn default() -> Self {
        Self::GENTLE
    }
}
