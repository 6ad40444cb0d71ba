//! Numbers as people say them, the same everywhere in plans.

use headway_types::{GpuCount, Seconds};

/// "8 GPUs", "1 GPU".
pub(crate) fn gpus(count: GpuCount) -> String {
    if count.0 == 1 { "1 GPU".into() } else { format!("{count} GPUs") }
}

/// "12 %"; one decimal below 10.
pub(crate) fn percent(share: f64) -> String {
    let percent = share * 100.0;
    if percent.abs() < 9.95 { format!("{percent:.1} %") } else { format!("{percent:.0} %") }
}

/// What has grown by more than this has grown from next to nothing, and no number says by how much.
const MOST_TOLD: f64 = 1e3;

/// A change as a share of what was; `None` where that was next to nothing.
pub(crate) fn relative(before: f64, after: f64) -> Option<f64> {
    let change = (after - before) / before.abs();
    (change.abs() <= MOST_TOLD).then_some(change)
}

/// "+2.1 %", "−3.1 %"; what more than doubles is told as a factor: "× 12".
pub(crate) fn change(share: f64) -> String {
    if share > 1.0 {
        let factor = 1.0 + share;
        return if factor < 9.95 { format!("× {factor:.1}") } else { format!("× {factor:.0}") };
    }
    let sign = if share < 0.0 { "−" } else { "+" };
    format!("{sign}{}", percent(share.abs()))
}

/// "a", "a and b", "a, b and c", "a, b, c and 4 more".
pub(crate) fn list<T: AsRef<str>>(names: &[T]) -> String {
    const NAMED: usize = 3;
    let named: Vec<&str> = names.iter().take(NAMED).map(AsRef::as_ref).collect();
    match (named.split_last(), names.len().saturating_sub(NAMED)) {
        (None, _) => String::new(),
        (Some((last, [])), _) => (*last).into(),
        (Some((last, rest)), 0) => format!("{} and {last}", rest.join(", ")),
        (Some(_), more) => format!("{} and {more} more", named.join(", ")),
    }
}

/// "850", "21k", "3.2M".
pub(crate) fn tokens(count: f64) -> String {
    match count {
        count if count >= 1e9 => format!("{:.1}B", count / 1e9),
        count if count >= 1e6 => format!("{:.1}M", count / 1e6),
        count if count >= 1e3 => format!("{:.0}k", count / 1e3),
        count => format!("{count:.0}"),
    }
}

/// "48 s", "12 min", "3.5 h", "2.1 days".
pub(crate) fn span(time: Seconds) -> String {
    time.words()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_read_as_people_say_them() {
        assert_eq!((gpus(GpuCount(1)), gpus(GpuCount(8))), ("1 GPU".into(), "8 GPUs".into()));
        assert_eq!((percent(0.031), percent(0.38)), ("3.1 %".into(), "38 %".into()));
        assert_eq!((span(Seconds(48.0)), span(Seconds(12_600.0))), ("48 s".into(), "3.5 h".into()));
    }

    #[test]
    fn from_next_to_nothing_no_share_is_told() {
        assert_eq!((relative(2.0, 3.0), relative(-2.0, -1.0)), (Some(0.5), Some(0.5)));
        assert_eq!((relative(0.0, 0.0), relative(0.0, 3.0), relative(1e-9, 3.0)), (None, None, None));
    }

    #[test]
    fn a_change_has_its_sign() {
        assert_eq!((change(-0.031), change(0.12)), ("−3.1 %".into(), "+12 %".into()));
        assert_eq!((change(1.5), change(440.0)), ("× 2.5".into(), "× 441".into()));
    }

    #[test]
    fn a_long_list_names_three() {
        assert_eq!(list(&["a"]), "a");
        assert_eq!(list(&["a", "b"]), "a and b");
        assert_eq!(list(&["a", "b", "c", "d", "e"]), "a, b, c and 2 more");
        assert_eq!(list::<&str>(&[]), "");
    }
}
