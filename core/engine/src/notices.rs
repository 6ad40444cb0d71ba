//! Which events webhooks hear of, and in which words. Pure: an event and its job in, notices out.

use headway_types::GpuCount;
use headway_types::spec::NoticeKind;

use crate::record::{EventRecord, Job, Notice, NoticeId};

/// Characters of a sentence, at most.
const LONGEST: usize = 1_000;

/// What the job's webhooks are told of an event; nothing where none of them asked for it.
pub(crate) fn of_event(job: &Job, event: &EventRecord) -> Vec<Notice> {
    if job.spec.notify.is_empty() {
        return Vec::new();
    }
    let Some((kind, text)) = told(job, event) else { return Vec::new() };
    let text: String = text.chars().take(LONGEST).collect();
    // Whoever asks for ends alone hears of failures too.
    let as_asked = |on: &std::collections::BTreeSet<NoticeKind>| match kind {
        kind if on.contains(&kind) => Some(kind),
        NoticeKind::Failed if on.contains(&NoticeKind::Finished) => Some(NoticeKind::Finished),
        _ => None,
    };
    let webhooks = job.spec.notify.iter().zip(0..);
    let notice = |(to, webhook): (&headway_types::spec::Notify, u32)| {
        Some(Notice {
            id: NoticeId { event: event.seq, webhook },
            at: event.at,
            kind: as_asked(&to.on)?,
            verb: event.verb.clone(),
            job: job.id,
            name: job.spec.name.clone(),
            project: job.spec.project.clone(),
            owner: job.owner.clone(),
            text: text.clone(),
            webhook: to.webhook.clone(),
            secret: to.secret.clone(),
        })
    };
    webhooks.filter_map(notice).collect()
}

/// Sentences of events may name other jobs, of which those that read a webhook need not know: only what a job's own processes have said goes out as it is.
fn told(job: &Job, event: &EventRecord) -> Option<(NoticeKind, String)> {
    let name = &job.spec.name;
    let count = || event.detail.get("gpus")?.parse().ok().map(GpuCount);
    let gpus = || count().map_or_else(|| "its GPUs".to_owned(), GpuCount::words);
    Some(match event.verb.as_str() {
        "job.started" => (NoticeKind::Started, format!("{name} runs on {}", gpus())),
        "job.moved" => (NoticeKind::Resized, format!("{name} goes on with {}", gpus())),
        "job.succeeded" => (NoticeKind::Finished, format!("{name} succeeded")),
        "job.cancelled" => (NoticeKind::Finished, format!("{name} was cancelled")),
        "job.failed" => (NoticeKind::Failed, event.message.clone()),
        "job.hung" => (NoticeKind::Stalled, event.message.clone()),
        "job.requeued" => (NoticeKind::Requeued, format!("{name} was put back into the queue")),
        "job.preempted" => (NoticeKind::Requeued, format!("{name} gives up its GPUs and waits for its next turn")),
        "job.gang_broken" if job.failures <= job.spec.limits.max_restarts => {
            (NoticeKind::Requeued, format!("{name} broke and waits for its next start"))
        }
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::collections::BTreeMap;

    use headway_types::spec::Notify;
    use headway_types::{IdSource, Timestamp, example};

    use super::*;
    use crate::event::Actor;

    const NOW: Timestamp = Timestamp(1_000_000);

    fn job(notify: &[&[NoticeKind]]) -> Job {
        let notify = notify.iter().map(|on| Notify {
            webhook: "https://hooks.example/s3cret".into(),
            on: on.iter().copied().collect(),
            secret: None,
        });
        let spec =
            headway_types::JobSpec { notify: notify.collect(), ..example::spec("llama", example::gpus(1, 1), None) };
        Job::new(IdSource::seeded(1).job(NOW), spec, "ada".into(), NOW)
    }

    fn event(verb: &str, message: &str) -> EventRecord {
        EventRecord {
            seq: 7,
            at: NOW,
            actor: Actor::Scheduler,
            verb: verb.into(),
            job: None,
            node: None,
            plan: None,
            message: message.into(),
            detail: BTreeMap::from([("gpus".into(), "8".into())]),
        }
    }

    #[test]
    fn each_webhook_hears_of_what_it_asked_for() {
        use NoticeKind as K;
        let job = job(&[&[K::Failed, K::Finished], &[K::Finished], &[K::Resized, K::Started]]);
        let kinds = |verb| {
            of_event(&job, &event(verb, "llama failed: no data"))
                .iter()
                .map(|one| (one.id.webhook, one.kind))
                .collect::<Vec<_>>()
        };
        assert_eq!(kinds("job.failed"), [(0, K::Failed), (1, K::Finished)]);
        assert_eq!(kinds("job.cancelled"), [(0, K::Finished), (1, K::Finished)]);
        assert_eq!(kinds("job.moved"), [(2, K::Resized)]);
        assert_eq!(kinds("job.submitted"), []);
    }

    #[test]
    fn no_other_job_is_named_and_no_address_printed() {
        let job = job(&[&[NoticeKind::Resized, NoticeKind::Requeued]]);
        for verb in ["job.moved", "job.preempted", "job.cancelled"] {
            let told = of_event(&job, &event(verb, "llama makes room for secret-model"));
            assert!(told.iter().all(|one| !one.text.contains("secret-model")), "{told:?}");
            assert!(!format!("{told:?}").contains("s3cret"));
        }
    }
}
