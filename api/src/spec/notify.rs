//! Section `notify`: who is told what becomes of the job.

use std::collections::BTreeSet;

use headway_types::spec::{MOST_WEBHOOKS, NoticeKind, Notify};
use reqwest::Url;
use serde_json::Value;
use strum::VariantArray;

use super::secrets::is_secret_name;
use super::section::{Section, kind, one_or_many};

const EXAMPLE: &str = "as in notify: {webhook: https://hooks.example/x, on: [failed, finished]}";
const HIDDEN: &str = "null stands in place of the address of somebody else's webhook: write one of your own";
const LONGEST_ADDRESS: usize = 2_048;

/// One mapping, or a list of them.
pub(super) fn read(job: &Section<'_>) -> Option<Vec<Notify>> {
    let Some(value) = job.get("notify") else { return Some(Vec::new()) };
    let (all, path) = (one_or_many(value), job.field("notify"));
    if all.len() > MOST_WEBHOOKS {
        job.wrong("notify", format!("a job has {MOST_WEBHOOKS} webhooks at most, not {}", all.len()));
        return None;
    }
    let one = |(index, one)| {
        let path = if value.is_array() { format!("{path}[{index}]") } else { path.clone() };
        let section = Section::open(&path, one, &["webhook", "on", "secret"], &[], job.findings())?;
        let (webhook, on, secret) = (webhook(&section), on(&section), secret(&section));
        Some(Notify { webhook: webhook?, on: on?, secret: secret? })
    };
    // All are read even where one is wrong.
    let read: Vec<Option<Notify>> = all.iter().enumerate().map(one).collect();
    read.into_iter().collect()
}

fn webhook(section: &Section<'_>) -> Option<String> {
    section.require("webhook", if section.is_null("webhook") { HIDDEN } else { EXAMPLE })?;
    let text = section.text("webhook")?;
    let wrong = match Url::parse(&text) {
        _ if text.len() > LONGEST_ADDRESS => "is too long: 2048 characters at most",
        Err(_) => "is no address",
        Ok(url) if !matches!(url.scheme(), "http" | "https") => "must begin with https:// or http://",
        Ok(url) if !url.username().is_empty() || url.password().is_some() => {
            "must hold no user and no password: notices are signed with a secret"
        }
        Ok(url) if url.host().is_none() => "names no host",
        Ok(url) => return Some(url.to_string()),
    };
    section.wrong_hint("webhook", wrong, EXAMPLE);
    None
}

/// One word or a list; without it, what most people wait for.
fn on(section: &Section<'_>) -> Option<BTreeSet<NoticeKind>> {
    let Some(value) = section.get("on") else { return Some([NoticeKind::Failed, NoticeKind::Finished].into()) };
    let words = NoticeKind::VARIANTS.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
    let one = |value: &Value| {
        let found = value.as_str().and_then(|word| word.parse().ok());
        if found.is_none() {
            let got = value.as_str().map_or_else(|| kind(value).to_owned(), |word| format!("\"{word}\""));
            section.wrong("on", format!("must be some of {words}, not {got}"));
        }
        found
    };
    let read: Vec<Option<NoticeKind>> = one_or_many(value).iter().map(one).collect();
    let read: BTreeSet<NoticeKind> = read.into_iter().collect::<Option<_>>()?;
    if read.is_empty() {
        section.wrong_hint("on", "names nothing to tell", EXAMPLE);
        return None;
    }
    Some(read)
}

/// The outer `None`: what is there is wrong.
fn secret(section: &Section<'_>) -> Option<Option<String>> {
    if !section.has("secret") {
        return Some(None);
    }
    let name = section.text("secret")?;
    if is_secret_name(&name) {
        return Some(Some(name));
    }
    section.wrong_hint("secret", "is no name of a secret", "headway secret set NAME, then secret: NAME");
    None
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use headway_types::JobSpec;

    use super::*;
    use crate::spec::{SpecError, read_json, read_yaml, to_json};

    fn job(notify: &str) -> Result<JobSpec, SpecError> {
        read_yaml(&format!(
            "{{version: 1, name: a, resources: {{gpus: 1}}, notify: {notify}, run: {{command: train}}}}"
        ))
    }

    #[test]
    fn webhooks_are_read_as_they_are_written_out() {
        let one = job("{webhook: 'https://hooks.example/x'}").unwrap();
        assert_eq!(one.notify[0].on, [NoticeKind::Failed, NoticeKind::Finished].into());
        let several = "[{webhook: 'https://hooks.example/x', on: started, secret: key}, {webhook: 'http://10.0.0.1:81/', on: [stalled]}]";
        let several = job(several).unwrap();
        assert_eq!(several.notify.len(), 2);
        for spec in [one, several] {
            assert_eq!(read_json(&to_json(&spec)).unwrap(), spec);
        }
    }

    #[test]
    fn an_address_is_not_printed() {
        let spec = job("{webhook: 'https://hooks.example/T0/s3cret'}").unwrap();
        assert!(!format!("{spec:?}").contains("s3cret"));
    }

    #[test]
    fn a_mistake_is_told_with_its_place() {
        for (notify, place) in [
            ("{on: failed}", "notify.webhook"),
            ("{webhook: null}", "notify.webhook"),
            ("{webhook: 'ftp://a/b'}", "notify.webhook"),
            ("{webhook: 'https://ada:key@a/b'}", "notify.webhook"),
            ("{webhook: hooks}", "notify.webhook"),
            ("{webhook: 'https://a/b', on: [ended]}", "notify.on"),
            ("{webhook: 'https://a/b', on: []}", "notify.on"),
            ("[{webhook: 'https://a/b', secret: 'a b'}]", "notify[0].secret"),
            ("[{webhook: 'https://a/b', colour: red}]", "notify[0].colour"),
        ] {
            assert_eq!(job(notify).unwrap_err().field, place, "{notify}");
        }
        let many = ["{webhook: 'https://a/b'}"; 6].join(", ");
        assert_eq!(job(&format!("[{many}]")).unwrap_err().field, "notify");
    }
}
