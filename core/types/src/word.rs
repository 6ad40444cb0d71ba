//! Enums whose values are words: one spelling each in JSON, in columns, in specifications and before people.

/// Gives enums without data what every word has: an order, the spelling (`Display`, `FromStr`, `Into<&'static str>`, serde) and
/// the list of all (`VARIANTS`). A variant that is not spelled like its name says so to serde and to strum.
macro_rules! words {
    ($($(#[$meta:meta])* pub enum $name:ident { $($variants:tt)* })+) => {$(
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize)]
        #[derive(strum::Display, strum::EnumString, strum::IntoStaticStr, strum::VariantArray)]
        #[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
        #[serde(rename_all = "snake_case")]
        #[strum(serialize_all = "snake_case")]
        pub enum $name { $($variants)* }
    )+};
}

pub(crate) use words;

#[cfg(test)]
mod tests {
    use core::fmt::Debug;
    use core::str::FromStr;

    use serde::Serialize;
    use strum::VariantArray;

    use crate::spec::{
        Condition, LrScaling, NoiseKind, NoticeKind, NoticeSignal, NoticeTo, Precision, PrintingRank, RunPer,
        TargetCount, Topology,
    };
    use crate::*;

    fn spelled_once<T>()
    where
        T: VariantArray + Serialize + ToString + FromStr<Err: Debug> + PartialEq + Debug,
    {
        for value in T::VARIANTS {
            assert_eq!(serde_json::json!(value), value.to_string());
            assert_eq!(value, &value.to_string().parse::<T>().expect("its own spelling"));
        }
    }

    #[test]
    fn a_word_is_spelled_alike_in_json_and_in_text() {
        spelled_once::<JobStateKind>();
        spelled_once::<PlanStateKind>();
        spelled_once::<NodePolicyKind>();
        spelled_once::<AvailabilityKind>();
        spelled_once::<StandingKind>();
        spelled_once::<TokenScope>();
        spelled_once::<ProjectRole>();
        spelled_once::<Objective>();
        spelled_once::<Solver>();
        spelled_once::<PolicyMode>();
        spelled_once::<ReasonCode>();
        spelled_once::<Tier>();
        spelled_once::<Blame>();
        spelled_once::<Schedule>();
        spelled_once::<Sharding>();
        spelled_once::<Recompute>();
        spelled_once::<Offload>();
        spelled_once::<Precision>();
        spelled_once::<LrScaling>();
        spelled_once::<NoiseKind>();
        spelled_once::<TargetCount>();
        spelled_once::<Topology>();
        spelled_once::<RunPer>();
        spelled_once::<PrintingRank>();
        spelled_once::<Condition>();
        spelled_once::<NoticeKind>();
        spelled_once::<NoticeSignal>();
        spelled_once::<NoticeTo>();
        spelled_once::<report::Flexibility>();
    }

    #[test]
    fn a_short_name_is_read_as_the_one_that_is_shown() {
        assert_eq!("fifo".parse(), Ok(Objective::FifoBackfill));
        assert_eq!(serde_json::from_str::<Objective>("\"fifo\"").ok(), Some(Objective::FifoBackfill));
        assert_eq!(
            (Objective::FifoBackfill.to_string(), <&str>::from(Objective::FifoBackfill)),
            ("fifo_backfill".into(), "fifo_backfill")
        );
    }

    #[test]
    fn what_is_no_word_is_refused() {
        assert!("runing".parse::<JobStateKind>().is_err());
        assert_eq!("1f1b".parse(), Ok(Schedule::OneForwardOneBackward));
    }
}
