//! Ours: weighted concave speed-up with the cost of moves (docs/goodput.md). Candidates are made with this worth.

use super::Approach;

pub(super) struct Goodput;

impl Approach for Goodput {}
