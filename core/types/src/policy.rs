//! What an operator decides for the whole cluster, in words: how rounds decide, and what plans may do by themselves.

use crate::word::words;

words! {
    /// What the planner maximises.
    #[derive(Default)]
    pub enum Objective {
        /// Weighted work, those first whose end lets most others go on, with the cost of moves (Headway's own).
        #[default]
        Goodput,
        /// Sia (SOSP'23): row-normalised goodput to the power p, restart factor, λ for jobs left out.
        Sia,
        /// Sia as the simulator of its paper runs it: a change costs nothing.
        SiaSimulated,
        /// Pollux (OSDI'21): data parallelism only, one power mean of speed-ups.
        Pollux,
        /// Pollux that splits models too: it tunes layouts like everybody else.
        PolluxLayouts,
        /// Least attained service first, each at its largest size that fits.
        LeastAttained,
        /// In the order of submission at the requested size, with backfill. `fifo` is read as this name too.
        #[serde(alias = "fifo")]
        #[strum(serialize = "fifo_backfill", serialize = "fifo")]
        FifoBackfill,
        /// Shortest remaining time first.
        ShortestRemaining,
        /// Everyone at the size and batch it asked for, in the order of submission, never moved.
        Static,
    }

    /// Who solves the program of a round that optimises; those that serve in order have none.
    #[derive(Default)]
    pub enum Solver {
        /// Headway's own: fast, with a bound that is proven in integers.
        #[default]
        Headway,
        /// An exact backend (microlp, or HiGHS where it is built in), for rounds of moderate size.
        Milp,
    }

    /// What plans may do by themselves.
    pub enum PolicyMode {
        /// Plans that verify are adopted.
        Auto,
        /// Plans that move GPUs of running jobs wait for approval; starts on free GPUs do not.
        Advisory,
        /// No rounds.
        Paused,
    }
}
