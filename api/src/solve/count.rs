//! Whole numbers of a document. JSON knows one kind of number, and many languages write 8 as 8.0: both are a count.

use std::fmt;
use std::marker::PhantomData;

use serde::de::{self, Visitor};
use serde::{Deserialize, Deserializer};

/// Above this a double no longer holds every whole number.
const EXACT: f64 = 9_007_199_254_740_992.0;

/// The whole number that a double is.
pub(super) fn whole(number: f64) -> Option<u64> {
    (number.fract() == 0.0 && (0.0..=EXACT).contains(&number)).then_some(number as u64)
}

/// A count, however it is written.
struct Count<T>(T);

impl<'de, T: TryFrom<u64>> Deserialize<'de> for Count<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Reader<T>(PhantomData<T>);
        impl<T: TryFrom<u64>> Visitor<'_> for Reader<T> {
            type Value = Count<T>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a whole number")
            }
            fn visit_u64<E: de::Error>(self, number: u64) -> Result<Count<T>, E> {
                let wrong = || E::invalid_value(de::Unexpected::Unsigned(number), &self);
                T::try_from(number).map(Count).map_err(|_| wrong())
            }
            fn visit_i64<E: de::Error>(self, number: i64) -> Result<Count<T>, E> {
                Err(E::invalid_value(de::Unexpected::Signed(number), &self))
            }
            fn visit_f64<E: de::Error>(self, number: f64) -> Result<Count<T>, E> {
                let fits = whole(number).and_then(|number| T::try_from(number).ok());
                fits.map(Count).ok_or_else(|| E::invalid_type(de::Unexpected::Float(number), &self))
            }
        }
        deserializer.deserialize_any(Reader(PhantomData))
    }
}

pub(super) fn one<'de, T: TryFrom<u64>, D: Deserializer<'de>>(deserializer: D) -> Result<T, D::Error> {
    Count::deserialize(deserializer).map(|count| count.0)
}

pub(super) fn maybe<'de, T: TryFrom<u64>, D: Deserializer<'de>>(deserializer: D) -> Result<Option<T>, D::Error> {
    Option::<Count<T>>::deserialize(deserializer).map(|count| count.map(|count| count.0))
}

pub(super) fn many<'de, T: TryFrom<u64>, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<T>, D::Error> {
    Vec::<Count<T>>::deserialize(deserializer).map(|counts| counts.into_iter().map(|count| count.0).collect())
}
