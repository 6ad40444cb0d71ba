//! The veil: what is told of the whole cluster (plans, nodes, explanations, the stream) names jobs that a reader may not even know of. Here they lose their names and ids,
//! wherever these stand: in fields, in lists, and inside sentences. Pure: what is hidden is asked of the caller.
//!
//! A row that is about a hidden job alone is left out, so that nobody counts them; where leaving it out would tell something untrue (who holds a GPU, who took one),
//! it stays without what tells one hidden job from another. A job and its specification that are shown at all are the reader's to read, and stay as they are.

use std::borrow::Cow;

use serde_json::{Map, Value};
use uuid::Uuid;

/// Stands for the name of a hidden job.
pub const ANOTHER: &str = "a job of another project";

/// Which members of an object say what job it is about.
const IDS: [&str; 3] = ["job_id", "job", "id"];
/// What else would tell it.
const NAMES: [&str; 5] = ["job_name", "name", "owner", "user", "project"];
/// Rows that stay although they are about a hidden job: who holds GPUs, who took some.
const HOLDERS: [&str; 5] = ["gpus", "held", "by", "displaced_by", AFTER];
/// What its owner has written.
const OWN: [&str; 2] = ["spec", "labels"];
/// What of it names other jobs.
const AFTER: &str = "after";
/// A shorter name tells nobody apart, and stands in too many sentences as something else.
const SHORTEST_NAME: usize = 3;

/// What must not be told.
pub trait Hidden {
    fn hides_id(&self, id: &Uuid) -> bool;
    /// Whether a word is the name of a hidden job.
    fn hides_name(&self, word: &str) -> bool;
}

/// The ids that stand in a JSON text, jobs' and others'.
pub fn ids(text: &str) -> impl Iterator<Item = Uuid> {
    words(text, true).flat_map(|(_, word)| ids_of(word)).map(|(_, id)| id)
}

/// Whether anything in a JSON text may have to be veiled; if not, it is as it should be.
pub fn concerns(text: &str, hidden: &impl Hidden) -> bool {
    words(text, true)
        .any(|(_, word)| ids_of(word).any(|(_, id)| hidden.hides_id(&id)) || hidden_name(word, hidden).is_some())
}

/// What is left of a reply.
pub fn drawn(mut value: Value, hidden: &impl Hidden) -> Value {
    draw("", &mut value, hidden);
    value
}

fn draw(key: &str, value: &mut Value, hidden: &impl Hidden) {
    match value {
        Value::String(text) => {
            if let Cow::Owned(veiled) = sentence(text, hidden) {
                *text = veiled;
            }
        }
        Value::Array(items) => {
            let holders = HOLDERS.contains(&key);
            items.retain(|item| holders && item.is_object() || !is_about_hidden(item, hidden));
            items.iter_mut().for_each(|item| draw(key, item, hidden));
            if holders {
                merge(items);
            }
        }
        Value::Object(members) => {
            if about_hidden(members, hidden) {
                neutralise(members);
            }
            members.retain(|key, _| !key.parse().is_ok_and(|id| hidden.hides_id(&id)));
            for (key, value) in members.iter_mut() {
                match value {
                    _ if !OWN.contains(&key.as_str()) => draw(key, value, hidden),
                    // Whom its owner waits for is not the reader's to know.
                    Value::Object(own) => own.get_mut(AFTER).into_iter().for_each(|after| draw(AFTER, after, hidden)),
                    _ => {}
                }
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

fn is_about_hidden(item: &Value, hidden: &impl Hidden) -> bool {
    match item {
        Value::String(text) => text.parse().is_ok_and(|id| hidden.hides_id(&id)),
        Value::Object(members) => about_hidden(members, hidden),
        _ => false,
    }
}

fn about_hidden(members: &Map<String, Value>, hidden: &impl Hidden) -> bool {
    let id = |key: &&str| members.get(*key)?.as_str()?.parse::<Uuid>().ok();
    IDS.iter().filter_map(id).any(|id| hidden.hides_id(&id))
}

/// Of all hidden jobs the same is told.
fn neutralise(members: &mut Map<String, Value>) {
    for (key, value) in members.iter_mut() {
        if IDS.contains(&key.as_str()) && value.is_string() {
            *value = Uuid::nil().to_string().into();
        } else if NAMES.contains(&key.as_str()) && value.is_string() {
            *value = ANOTHER.into();
        } else if key == "generation" {
            *value = 0.into();
        }
    }
}

/// Of rows that differ only in what they hold one is left.
fn merge(items: &mut Vec<Value>) {
    let nil = Value::from(Uuid::nil().to_string());
    let neutral = |item: &Value| IDS.iter().any(|key| item.get(*key) == Some(&nil)) && item.get("uuid").is_none();
    let mut at = 0;
    while at < items.len() {
        if !neutral(&items[at]) {
            at += 1;
            continue;
        }
        let same = |other: &Value| neutral(other) && other.get("phase") == items[at].get("phase");
        let Some(twin) = (at + 1..items.len()).find(|other| same(&items[*other])) else {
            at += 1;
            continue;
        };
        let twin = items.remove(twin);
        if let (Some(Value::Array(held)), Some(Value::Array(more))) =
            (items[at].get_mut("gpu_uuids"), twin.get("gpu_uuids"))
        {
            held.extend(more.iter().cloned());
        }
        if let (Some(gpus), Some(more)) =
            (items[at].get("gpus").and_then(Value::as_u64), twin.get("gpus").and_then(Value::as_u64))
        {
            items[at]["gpus"] = (gpus + more).into();
        }
    }
}

/// A text without the names and ids of hidden jobs. A single word is a name or a state, which its field tells; ids have a form of their own.
pub fn sentence<'a>(text: &'a str, hidden: &impl Hidden) -> Cow<'a, str> {
    if let Ok(id) = text.parse::<Uuid>() {
        return if hidden.hides_id(&id) { Uuid::nil().to_string().into() } else { text.into() };
    }
    let is_sentence = text.contains(' ');
    let mut cuts: Vec<(usize, usize)> = Vec::new();
    for (at, word) in words(text, false) {
        match hidden_name(word, hidden).filter(|_| is_sentence) {
            Some(name) => cuts.push((at, at + name.len() + index_length(&text[at + name.len()..]))),
            None => {
                let of_hidden = ids_of(word).filter(|(_, id)| hidden.hides_id(id));
                cuts.extend(of_hidden.map(|(begin, _)| (at + begin, at + begin + ID_BYTES)));
            }
        }
    }
    if cuts.is_empty() {
        return text.into();
    }
    let (mut veiled, mut from) = (String::with_capacity(text.len()), 0);
    for (begin, end) in cuts {
        // "job <name>" is one job, not a job of a job.
        let before = &text[from..begin];
        veiled.push_str(before.strip_suffix("job ").unwrap_or(before));
        veiled.push_str(ANOTHER);
        from = end;
    }
    veiled.push_str(&text[from..]);
    veiled.into()
}

/// Bytes of the index that stands behind the name of an element: "[7]"; of the indices of an array: "[0-99]%8".
fn index_length(behind: &str) -> usize {
    let Some((indices, _)) = behind.strip_prefix('[').and_then(|rest| rest.split_once(']')) else { return 0 };
    let of_indices = |byte: u8| byte.is_ascii_digit() || matches!(byte, b'-' | b',' | b':');
    if indices.bytes().all(of_indices) { indices.len() + 2 } else { 0 }
}

/// The word, without what ends a sentence, where it is the name of a hidden job.
fn hidden_name<'a>(word: &'a str, hidden: &impl Hidden) -> Option<&'a str> {
    let bare = word.trim_end_matches('.');
    let tells = |name: &&str| name.len() >= SHORTEST_NAME && name.parse::<f64>().is_err();
    [word, bare].into_iter().filter(tells).find(|name| hidden.hides_name(name))
}

/// Runs of what names are made of, with where they begin. Where a backslash escapes what follows (in JSON) that is no part of a word.
fn words(text: &str, escaped: bool) -> impl Iterator<Item = (usize, &str)> {
    let bytes = text.as_bytes();
    let mut at = 0;
    std::iter::from_fn(move || {
        while at < bytes.len() && !is_of_name(bytes[at]) {
            at += match bytes[at] {
                b'\\' if escaped && bytes.get(at + 1) == Some(&b'u') => 6,
                b'\\' if escaped => 2,
                _ => 1,
            };
        }
        let begin = at.min(bytes.len());
        let end =
            bytes[begin..].iter().position(|byte| !is_of_name(*byte)).map_or(bytes.len(), |length| begin + length);
        at = end;
        // Names are ASCII, so a run of their bytes begins and ends between characters.
        (begin < end).then(|| (begin, &text[begin..end]))
    })
}

fn is_of_name(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.')
}

const ID_BYTES: usize = 36;

/// The ids that a word holds, with where they begin.
fn ids_of(word: &str) -> impl Iterator<Item = (usize, Uuid)> {
    let starts = 0..(word.len() + 1).saturating_sub(ID_BYTES);
    let dashed = |at: &usize| [8, 13, 18, 23].iter().all(|dash| word.as_bytes()[at + dash] == b'-');
    starts.filter(dashed).filter_map(|at| Some((at, Uuid::try_parse(&word[at..at + ID_BYTES]).ok()?)))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    const SECRET: Uuid = Uuid::from_u128(0x0192_0000_0000_7000_8000_0000_0000_0001);
    const OTHER: Uuid = Uuid::from_u128(0x0192_0000_0000_7000_8000_0000_0000_0002);
    const OPEN: Uuid = Uuid::from_u128(0x0192_0000_0000_7000_8000_0000_0000_0003);

    struct Two;

    impl Hidden for Two {
        fn hides_id(&self, id: &Uuid) -> bool {
            [SECRET, OTHER].contains(id)
        }

        fn hides_name(&self, word: &str) -> bool {
            ["secret", "v1.5-secret", "8"].contains(&word)
        }
    }

    #[test]
    fn names_and_ids_leave_sentences() {
        let veiled = |text: &str| sentence(text, &Two).into_owned();
        assert_eq!(veiled("taking 8 from secret, 2 from llama"), format!("taking 8 from {ANOTHER}, 2 from llama"));
        assert_eq!(veiled("they go to v1.5-secret."), format!("they go to {ANOTHER}."));
        assert_eq!(veiled("the floor of job secret"), format!("the floor of {ANOTHER}"));
        assert_eq!(veiled(&format!("made room for {SECRET}")), format!("made room for {ANOTHER}"));
        assert_eq!(veiled(&format!("job:{OTHER}")), format!("job:{ANOTHER}"));
        assert_eq!(veiled(&SECRET.to_string()), Uuid::nil().to_string());
        for kept in ["secrets are kept", "no-secret here", "running", "secret", &OPEN.to_string()] {
            assert_eq!(veiled(kept), kept);
        }
    }

    #[test]
    fn rows_of_hidden_jobs_are_gone_and_holders_stay_without_a_face() {
        let reply = json!({
            "moves": [{"job_id": SECRET, "job_name": "secret", "gpus": 2}, {"job_id": OPEN, "job_name": "llama", "reason": "since secret ends"}],
            "gpus": [{"uuid": "GPU-1", "job_id": SECRET, "job_name": "secret", "generation": 7}, {"uuid": "GPU-2", "job_id": null}],
            "held": [{"job_id": SECRET, "generation": 7, "phase": "a", "gpu_uuids": [1]}, {"job_id": OTHER, "generation": 9, "phase": "a", "gpu_uuids": [2]}],
            "scope": {"jobs": [SECRET, OPEN]},
            "unmoved": {"job_id": SECRET, "job_name": "secret", "detail": "secret would stop"},
            "priorities": {SECRET.to_string(): 1},
            "spec": {"run": {"command": ["cp", "secret files"]}},
        });
        let expected = json!({
            "moves": [{"job_id": OPEN, "job_name": "llama", "reason": format!("since {ANOTHER} ends")}],
            "gpus": [{"uuid": "GPU-1", "job_id": Uuid::nil(), "job_name": ANOTHER, "generation": 0}, {"uuid": "GPU-2", "job_id": null}],
            "held": [{"job_id": Uuid::nil(), "generation": 0, "phase": "a", "gpu_uuids": [1, 2]}],
            "scope": {"jobs": [OPEN]},
            "unmoved": {"job_id": Uuid::nil(), "job_name": ANOTHER, "detail": format!("{ANOTHER} would stop")},
            "priorities": {},
            "spec": {"run": {"command": ["cp", "secret files"]}},
        });
        assert_eq!(drawn(reply, &Two), expected);
    }

    #[test]
    fn a_word_behind_an_escape_is_found() {
        let text = json!({"detail": "first\nsecret"}).to_string();
        assert!(concerns(&text, &Two), "{text}");
        assert!(!concerns(&json!({"detail": "first\nsecrets 8"}).to_string(), &Two));
    }

    proptest! {
        #[test]
        fn nothing_hidden_is_left_in_any_sentence(parts in proptest::collection::vec("(secret|v1\\.5-secret|[a-zé→ ,.(]{0,6})", 0..12), with_id in any::<bool>()) {
            let mut text = parts.join(" ");
            if with_id {
                text.push_str(&format!(" {SECRET}."));
            }
            let veiled = sentence(&text, &Two).into_owned();
            prop_assert!(!concerns(&veiled, &Two) || !text.contains(' '), "{veiled}");
            prop_assert!(concerns(&text, &Two) || veiled == text);
        }
    }
}
