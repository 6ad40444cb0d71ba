//! Spans that wait for the collector: so many and no more. Whoever ends a span is never held up, by a collector that is slow, hangs or is not
//! there at all; what finds no place, or is not taken in time, is lost: counted (`headway_trace_spans_total`), and told once a minute.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use opentelemetry::Context;
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::trace::{Span, SpanData, SpanExporter, SpanProcessor};
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;

use crate::metrics::{self, SpanOutcome};

/// A kilobyte each, more or less.
const QUEUE: usize = 4_096;
const BATCH: usize = 512;
/// How long a span may wait for others to travel with.
const GATHERING: Duration = Duration::from_secs(1);
/// What one call of the collector may take.
pub(super) const EXPORT_TIME: Duration = Duration::from_secs(5);
/// What all calls after the end of the server may take together.
pub(super) const FLUSH_TIME: Duration = Duration::from_secs(3);
const TELL_EVERY: Duration = Duration::from_secs(60);

/// The end that spans go in.
#[derive(Debug)]
pub(super) struct Queue {
    spans: mpsc::Sender<SpanData>,
    losses: Arc<Losses>,
}

/// The end that they leave by.
#[derive(Debug)]
pub(super) struct Waiting {
    spans: mpsc::Receiver<SpanData>,
    losses: Arc<Losses>,
}

/// Spans lost and not told of yet.
#[derive(Debug, Default)]
struct Losses(AtomicU64);

impl Losses {
    fn add(&self, count: usize) {
        metrics::spans(SpanOutcome::Lost, count as u64);
        self.0.fetch_add(count as u64, Ordering::Relaxed);
    }
}

pub(super) fn bounded() -> (Queue, Waiting) {
    let (sender, receiver) = mpsc::channel(QUEUE);
    let losses = Arc::<Losses>::default();
    (Queue { spans: sender, losses: Arc::clone(&losses) }, Waiting { spans: receiver, losses })
}

impl SpanProcessor for Queue {
    fn on_start(&self, _: &mut Span, _: &Context) {}

    fn on_end(&self, span: SpanData) {
        if span.span_context.is_sampled() && self.spans.try_send(span).is_err() {
            self.losses.add(1);
        }
    }

    fn force_flush(&self) -> OTelSdkResult {
        Ok(())
    }

    /// The other end is told to stop by its own means.
    fn shutdown_with_timeout(&self, _: Duration) -> OTelSdkResult {
        Ok(())
    }
}

impl Waiting {
    /// How many wait, and how many were lost that nobody was told of.
    #[cfg(test)]
    pub fn counts(&self) -> (usize, usize) {
        (self.spans.len(), self.losses.0.load(Ordering::Relaxed) as usize)
    }

    /// Sends until told to stop, and then what is left, as far as `FLUSH_TIME` reaches.
    pub async fn send_to(mut self, exporter: impl SpanExporter, stop: CancellationToken) {
        let late = async {
            stop.cancelled().await;
            tokio::time::sleep(FLUSH_TIME).await;
        };
        tokio::pin!(late);
        let mut told: Option<Instant> = None;
        let mut why = "they came faster than they were taken".to_owned();
        loop {
            let batch = self.gather(&stop).await;
            let count = batch.len();
            if count == 0 {
                break;
            }
            let failed = tokio::select! {
                sent = timeout(EXPORT_TIME, exporter.export(batch)) => match sent {
                    Ok(Ok(())) => None,
                    Ok(Err(error)) => Some(error.to_string()),
                    Err(_) => Some("the collector did not answer in time".to_owned()),
                },
                () = &mut late => {
                    self.losses.add(count + self.spans.len());
                    break;
                }
            };
            match failed {
                None => metrics::spans(SpanOutcome::Exported, count as u64),
                Some(error) => {
                    self.losses.add(count);
                    why = error;
                }
            }
            if told.is_none_or(|told| told.elapsed() >= TELL_EVERY) && self.tell(&why) {
                told = Some(Instant::now());
            }
        }
        self.tell(&why);
    }

    /// The next spans to send, at least one; none when nothing is left after the stop.
    async fn gather(&mut self, stop: &CancellationToken) -> Vec<SpanData> {
        let mut batch = Vec::new();
        tokio::select! {
            biased;
            () = stop.cancelled() => {
                self.spans.close();
                self.fill(&mut batch).await;
            }
            _ = self.spans.recv_many(&mut batch, BATCH) => {
                tokio::select! {
                    () = stop.cancelled() => {}
                    // What was taken stays taken.
                    _ = timeout(GATHERING, self.fill(&mut batch)) => {}
                }
            }
        }
        batch
    }

    async fn fill(&mut self, batch: &mut Vec<SpanData>) {
        while batch.len() < BATCH && self.spans.recv_many(batch, BATCH - batch.len()).await > 0 {}
    }

    fn tell(&self, why: &str) -> bool {
        let spans = self.losses.0.swap(0, Ordering::Relaxed);
        if spans > 0 {
            tracing::warn!(spans, why, "spans are lost that the collector did not take");
        }
        spans > 0
    }
}
