//! Quantities. Arithmetic exists only where it means something: tokens divided by seconds are tokens per
//! second, and a GPU count never adds to a node count.

use core::fmt;
use core::iter::Sum;
use core::ops::{Add, AddAssign, Div, Mul, Sub};

use serde::{Deserialize, Serialize};

macro_rules! count {
    ($(#[$doc:meta])* $name:ident, $repr:ty) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub $repr);

        impl Add for $name {
            type Output = Self;
            fn add(self, rhs: Self) -> Self { Self(self.0 + rhs.0) }
        }

        impl AddAssign for $name {
            fn add_assign(&mut self, rhs: Self) { self.0 += rhs.0; }
        }

        impl Sum for $name {
            fn sum<I: Iterator<Item = Self>>(iter: I) -> Self { iter.fold(Self(0), Add::add) }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result { self.0.fmt(f) }
        }

        impl $name {
            /// `self − rhs`, or zero where that would be negative.
            #[must_use]
            pub fn saturating_sub(self, rhs: Self) -> Self { Self(self.0.saturating_sub(rhs.0)) }
        }
    };
}

macro_rules! quantity {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, PartialOrd, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub f64);

        impl Add for $name {
            type Output = Self;
            fn add(self, rhs: Self) -> Self { Self(self.0 + rhs.0) }
        }

        impl AddAssign for $name {
            fn add_assign(&mut self, rhs: Self) { self.0 += rhs.0; }
        }

        impl Sub for $name {
            type Output = Self;
            fn sub(self, rhs: Self) -> Self { Self(self.0 - rhs.0) }
        }

        impl Mul<f64> for $name {
            type Output = Self;
            fn mul(self, rhs: f64) -> Self { Self(self.0 * rhs) }
        }

        impl Sum for $name {
            fn sum<I: Iterator<Item = Self>>(iter: I) -> Self { iter.fold(Self(0.0), Add::add) }
        }
    };
}

count!(
    /// A whole number of GPUs. Never a node count, never a fraction.
    GpuCount, u32
);
count!(
    /// A whole number of nodes.
    NodeCount, u32
);
count!(
    /// Training sequences (samples): the unit of micro-batch, global batch and of the one progress clock.
    Sequences, u64
);
count!(
    /// Memory or traffic.
    Bytes, u64
);

quantity!(
    /// A duration.
    Seconds
);
quantity!(
    /// GPUs held for a time: the one currency of cost and gain.
    GpuSeconds
);
quantity!(
    /// Tokens; fractional where they are reference tokens (raw tokens × statistical efficiency).
    Tokens
);
quantity!(
    /// Throughput (raw tokens) or goodput (reference tokens) per second.
    TokensPerSecond
);
quantity!(
    /// Floating-point operations.
    Flops
);
quantity!(
    /// A rate of floating-point operations.
    FlopPerSecond
);

impl GpuCount {
    /// "1 GPU", "8 GPUs".
    #[must_use]
    pub fn words(self) -> String {
        if self.0 == 1 { "1 GPU".into() } else { format!("{} GPUs", self.0) }
    }
}

impl NodeCount {
    /// "1 node", "4 nodes".
    #[must_use]
    pub fn words(self) -> String {
        if self.0 == 1 { "1 node".into() } else { format!("{} nodes", self.0) }
    }
}

impl Seconds {
    /// "45 s", "12 min", "3.4 h", "2.0 days".
    #[must_use]
    pub fn words(self) -> String {
        match self.0 {
            seconds if seconds < 120.0 => format!("{seconds:.0} s"),
            seconds if seconds < 7_200.0 => format!("{:.0} min", seconds / 60.0),
            seconds if seconds < 172_800.0 => format!("{:.1} h", seconds / 3_600.0),
            seconds => format!("{:.1} days", seconds / 86_400.0),
        }
    }
}

impl Sequences {
    /// How many tokens these sequences hold at `sequence_length` tokens each.
    #[must_use]
    pub fn tokens(self, sequence_length: u32) -> Tokens {
        Tokens(self.0 as f64 * f64::from(sequence_length))
    }
}

impl Mul<Seconds> for GpuCount {
    type Output = GpuSeconds;
    fn mul(self, rhs: Seconds) -> GpuSeconds {
        GpuSeconds(f64::from(self.0) * rhs.0)
    }
}

impl Div<Seconds> for Tokens {
    type Output = TokensPerSecond;
    fn div(self, rhs: Seconds) -> TokensPerSecond {
        TokensPerSecond(self.0 / rhs.0)
    }
}

impl Div<TokensPerSecond> for Tokens {
    type Output = Seconds;
    fn div(self, rhs: TokensPerSecond) -> Seconds {
        Seconds(self.0 / rhs.0)
    }
}

impl Mul<Seconds> for TokensPerSecond {
    type Output = Tokens;
    fn mul(self, rhs: Seconds) -> Tokens {
        Tokens(self.0 * rhs.0)
    }
}

impl Div<FlopPerSecond> for Flops {
    type Output = Seconds;
    fn div(self, rhs: FlopPerSecond) -> Seconds {
        Seconds(self.0 / rhs.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_over_seconds_is_a_rate() {
        assert_eq!(Tokens(600.0) / Seconds(2.0), TokensPerSecond(300.0));
        assert_eq!(Tokens(600.0) / TokensPerSecond(300.0), Seconds(2.0));
        assert_eq!(TokensPerSecond(300.0) * Seconds(2.0), Tokens(600.0));
    }

    #[test]
    fn sequences_become_tokens() {
        assert_eq!(Sequences(16).tokens(64), Tokens(1024.0));
    }
}
