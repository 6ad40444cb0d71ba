//! Quantities as sbatch(1) writes them.

use std::collections::BTreeSet;

/// More names in a host list than any cluster has.
const HOSTS: usize = 100_000;

pub fn count(text: &str) -> Option<u32> {
    let (digits, factor) = match text.strip_suffix(['k', 'K']) {
        Some(digits) => (digits, 1024),
        None => (text, 1),
    };
    digits.parse::<u32>().ok()?.checked_mul(factor)
}

/// `[TYPE:]NUMBER`.
pub fn gpus(text: &str) -> Option<(Option<String>, u32)> {
    let (gpu_type, digits) = match text.rsplit_once(':') {
        Some((gpu_type, digits)) => (Some(gpu_type), digits),
        // `--gres=gpu:a100` is one of that type.
        None if text.starts_with(|c: char| c.is_ascii_alphabetic()) => (Some(text), "1"),
        None => (None, text),
    };
    let count = digits.parse::<u32>().ok().filter(|count| *count > 0)?;
    // Slurm's sites write types in small letters.
    Some((gpu_type.map(str::to_uppercase), count))
}

/// Seconds of `minutes`, `minutes:seconds`, `hours:minutes:seconds`, `days-hours[:minutes[:seconds]]`.
pub fn time(text: &str) -> Option<u64> {
    if matches!(text, "INFINITE" | "UNLIMITED" | "infinite" | "unlimited") {
        return Some(0);
    }
    let (days, rest) = match text.split_once('-') {
        Some((days, rest)) => (days.parse::<u64>().ok()?, rest),
        None => (0, text),
    };
    let parts = rest.split(':').map(|part| part.parse::<u64>().ok()).collect::<Option<Vec<_>>>()?;
    let (hours, minutes, seconds) = match (text.contains('-'), parts.as_slice()) {
        (true, [hours]) => (*hours, 0, 0),
        (true, [hours, minutes]) => (*hours, *minutes, 0),
        (false, [minutes]) => (0, *minutes, 0),
        (false, [minutes, seconds]) => (0, *minutes, *seconds),
        (_, [hours, minutes, seconds]) => (*hours, *minutes, *seconds),
        _ => return None,
    };
    let of = |count: u64, unit: u64| count.checked_mul(unit);
    of(days, 86_400)?.checked_add(of(hours, 3_600)?)?.checked_add(of(minutes, 60)?)?.checked_add(seconds)
}

/// Mebibytes, which are meant where no unit stands.
pub fn mebibytes(text: &str) -> Option<u64> {
    let text = text.trim_end_matches(['B', 'b']);
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let number: u64 = digits.parse().ok()?;
    match text[digits.len()..].to_ascii_uppercase().as_str() {
        "K" => Some(number.div_ceil(1024)),
        "" | "M" => Some(number),
        "G" => number.checked_mul(1024),
        "T" => number.checked_mul(1024 * 1024),
        _ => None,
    }
}

/// Names of `a,node[01-03,7]`.
pub fn host_list(text: &str) -> Option<BTreeSet<String>> {
    let mut hosts = BTreeSet::new();
    let mut rest = text;
    while !rest.is_empty() {
        let end = rest.find([',', '[']).unwrap_or(rest.len());
        let prefix = &rest[..end];
        if rest[end..].starts_with('[') {
            let close = rest[end..].find(']')? + end;
            for part in rest[end + 1..close].split(',') {
                let (from, to) = part.split_once('-').unwrap_or((part, part));
                let (first, last) = (from.parse::<usize>().ok()?, to.parse::<usize>().ok()?);
                if last.checked_sub(first)? + hosts.len() > HOSTS {
                    return None;
                }
                hosts.extend((first..=last).map(|number| format!("{prefix}{number:0width$}", width = from.len())));
            }
            rest = &rest[close + 1..];
            // What follows a bracket is another name: a suffix is more than is read here.
            rest = if rest.is_empty() { rest } else { rest.strip_prefix(',')? };
        } else {
            if !prefix.is_empty() {
                hosts.insert(prefix.to_owned());
            }
            rest = rest[end..].strip_prefix(',').unwrap_or_default();
        }
    }
    (!hosts.is_empty()).then_some(hosts)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_slurms() {
        for (text, seconds) in [
            ("90", 5_400),
            ("90:30", 5_430),
            ("1:30:00", 5_400),
            ("2-12", 216_000),
            ("2-12:30", 217_800),
            ("1-00:00:01", 86_401),
            ("UNLIMITED", 0),
        ] {
            assert_eq!(time(text), Some(seconds), "{text}");
        }
        for wrong in ["", "48h", "1:2:3:4", "-1", "1-", "99999999999999999999", "213503982334602-0"] {
            assert_eq!(time(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn memory_gpus_and_hosts_are_slurms() {
        assert_eq!(["64G", "4096", "1T", "512M", "1K"].map(mebibytes), [65_536, 4_096, 1_048_576, 512, 1].map(Some));
        assert_eq!(["G", "64X", "-1"].map(mebibytes), [None, None, None]);
        assert_eq!(gpus("a100:4"), Some((Some("A100".into()), 4)));
        assert_eq!(gpus("8"), Some((None, 8)));
        assert_eq!(["", "a100:", "0", "a:b:c"].map(gpus), [None, None, None, None]);
        let hosts = |text: &str| host_list(text).map(|hosts| hosts.into_iter().collect::<Vec<_>>().join(" "));
        assert_eq!(hosts("a,gpu[08-10,3],b").as_deref(), Some("a b gpu08 gpu09 gpu10 gpu3"));
        assert_eq!(["", "a[", "a[x]", "a[1-999999999]", "a[1]b"].map(hosts), [None, None, None, None, None]);
    }
}
