//! `limits`: when a job is stopped, and how it hears of that before.

use headway_types::Seconds;
use headway_types::spec::{LeastUse, Limits, Notice, NoticeSignal, NoticeTo};
use serde_json::{Map, Value, json};

use super::quantity;
use super::section::Section;

/// How long before the end a signal comes that says nothing else.
const NOTICE: Seconds = Seconds(60.0);

/// Reads `limits` of the whole specification.
pub(super) fn read(spec: &Section<'_>) -> Limits {
    let mut limits = Limits::default();
    let Some(value) = spec.get("limits") else { return limits };
    let path = spec.field("limits");
    let known = ["time", "max_restarts", "restartable", "signal", "stall_after", "min_gpu_util"];
    let Some(section) = Section::open(&path, value, &known, &[], spec.findings()) else { return limits };
    limits.time = section.quantity("time", quantity::duration);
    if let Some(restarts) = section.whole("max_restarts", 0) {
        limits.max_restarts = restarts;
    }
    limits.restartable = section.flag("restartable");
    if limits.forbid_restart() {
        if section.has("max_restarts") && limits.max_restarts > 0 {
            section.wrong("max_restarts", "must be 0 or absent, since restartable: false forbids every restart");
        }
        limits.max_restarts = 0;
    }
    limits.signal = section.quantity("signal", notice);
    if let (Some(notice), Some(time)) = (limits.signal, limits.time)
        && notice.before.0 >= time.0
    {
        section.wrong("signal", format!("comes {} s before the time limit, which is {} s", notice.before.0, time.0));
    }
    limits.stall_after = section.quantity("stall_after", at_least_a_minute);
    limits.min_gpu_util = section.quantity("min_gpu_util", least_use);
    limits
}

/// As it is read.
pub(super) fn to_json(limits: &Limits) -> Value {
    let seconds = |time: Seconds| json!(format!("{}s", time.0));
    let entries = [
        ("time", limits.time.map(seconds)),
        ("max_restarts", Some(json!(limits.max_restarts))),
        ("restartable", limits.restartable.map(Value::Bool)),
        ("signal", limits.signal.map(|notice| json!(notice.to_string()))),
        ("stall_after", limits.stall_after.map(seconds)),
        ("min_gpu_util", limits.min_gpu_util.map(|least| json!(least.to_string()))),
    ];
    Value::Object(entries.into_iter().filter_map(|(key, value)| Some((key.to_owned(), value?))).collect::<Map<_, _>>())
}

/// Nodes tell of what jobs do every few seconds.
fn at_least_a_minute(text: &str) -> Result<Seconds, String> {
    let time = quantity::duration(text)?;
    if time.0 < 60.0 { Err(format!("must be a minute at least, not {text}")) } else { Ok(time) }
}

/// Each node's measurements are kept for as long.
const LONGEST_WINDOW: Seconds = Seconds(86_400.0);

/// `10%/1h`.
fn least_use(text: &str) -> Result<LeastUse, String> {
    let wanted = || format!("must be a share of the time and a window, as in 10%/1h, not \"{text}\"");
    let (share, window) = text.split_once('/').ok_or_else(wanted)?;
    let percent: f64 = share.trim().strip_suffix('%').and_then(|share| share.trim().parse().ok()).ok_or_else(wanted)?;
    if !(percent > 0.0 && percent <= 100.0) {
        return Err("must be above 0 % and at most 100 %".into());
    }
    let window = at_least_a_minute(window.trim())?;
    if window.0 > LONGEST_WINDOW.0 {
        return Err("must be over a day at most".into());
    }
    Ok(LeastUse { share: percent / 100.0, window })
}

/// `USR1@120s`, `B:TERM@60s`, `USR1`.
fn notice(text: &str) -> Result<Notice, String> {
    let (to, rest) = match text.strip_prefix("B:") {
        Some(rest) => (NoticeTo::Command, rest),
        None => (NoticeTo::Handlers, text),
    };
    let (name, before) = match rest.split_once('@') {
        Some((name, before)) => (name, quantity::duration(before)?),
        None => (rest, NOTICE),
    };
    let wanted = || {
        let names = "HUP, INT, QUIT, USR1, USR2 and TERM";
        format!(
            "must be a signal and how long before the end it comes, as in USR1@120s, not \"{text}\"; signals are {names}"
        )
    };
    NoticeSignal::read(name).map(|signal| Notice { signal, before, to }).ok_or_else(wanted)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::spec::{read_json, read_yaml, to_json};

    fn with(limits: &str) -> String {
        format!("version: 1\nname: a\nresources: {{gpus: 1}}\nlimits: {limits}\nrun: {{command: x}}\n")
    }

    #[test]
    fn a_signal_is_read_as_it_is_written() {
        for (written, read) in [
            ("USR1@120s", "USR1@120s"),
            ("SIGTERM@2m", "TERM@120s"),
            ("B:USR2@90s", "B:USR2@90s"),
            ("HUP", "HUP@60s"),
            ("10", "USR1@60s"),
        ] {
            let spec = read_yaml(&with(&format!("{{signal: {written}}}"))).unwrap();
            assert_eq!(spec.limits.signal.unwrap().to_string(), read);
            assert_eq!(read_json(&to_json(&spec)).unwrap(), spec);
        }
    }

    #[test]
    fn what_a_job_must_do_is_read_as_it_is_written() {
        let spec = read_yaml(&with("{stall_after: 20m, min_gpu_util: 12.5% / 1h}")).unwrap();
        assert_eq!(spec.limits.stall_after, Some(Seconds(1_200.0)));
        assert_eq!(spec.limits.min_gpu_util, Some(LeastUse { share: 0.125, window: Seconds(3_600.0) }));
        assert_eq!(read_json(&to_json(&spec)).unwrap(), spec);
    }

    #[test]
    fn a_job_that_must_not_run_twice_has_no_restarts() {
        for (written, restartable, max_restarts) in [
            ("{}", None, 20),
            ("{restartable: true}", Some(true), 20),
            ("{restartable: false}", Some(false), 0),
            ("{restartable: false, max_restarts: 0}", Some(false), 0),
        ] {
            let spec = read_yaml(&with(written)).unwrap();
            assert_eq!((spec.limits.restartable, spec.limits.max_restarts), (restartable, max_restarts), "{written}");
            assert_eq!(read_json(&to_json(&spec)).unwrap(), spec);
        }
    }

    #[test]
    fn mistakes_in_limits_are_told() {
        let wrong = [
            "{signal: KILL@10s}",
            "{signal: USR1@soon}",
            "{signal: USR1@2h, time: 1h}",
            "{signals: USR1}",
            "{stall_after: 5s}",
            "{min_gpu_util: 10}",
            "{min_gpu_util: 0%/1h}",
            "{min_gpu_util: 10%/1s}",
            "{min_gpu_util: 10%/25h}",
            "{restartable: sometimes}",
            "{restartable: false, max_restarts: 3}",
        ];
        let told: Vec<String> = wrong.iter().map(|one| read_yaml(&with(one)).unwrap_err().to_string()).collect();
        insta::assert_snapshot!(told.join("\n"));
    }
}
