//! Spans that nobody takes hold nobody up, and are told of.
#![allow(clippy::unwrap_used)]

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use opentelemetry::trace::{Tracer as _, TracerProvider as _};
use opentelemetry_sdk::error::{OTelSdkError, OTelSdkResult};
use opentelemetry_sdk::trace::{SdkTracerProvider, SpanData, SpanExporter};
use tokio_util::sync::CancellationToken;

use super::queue::{self, FLUSH_TIME, Waiting};

/// More than wait at once.
const MANY: usize = 10_000;

#[derive(Clone, Copy, Debug, PartialEq)]
enum Temper {
    Takes,
    Refuses,
    Hangs,
}

/// What stands for the collector, with the number of spans it has taken.
#[derive(Clone, Debug)]
struct Counting(Temper, Arc<Mutex<usize>>);

impl Counting {
    fn new(temper: Temper) -> Self {
        Self(temper, Arc::default())
    }

    fn taken(&self) -> usize {
        *self.1.lock().unwrap()
    }
}

impl SpanExporter for Counting {
    async fn export(&self, batch: Vec<SpanData>) -> OTelSdkResult {
        match self.0 {
            Temper::Takes => {
                *self.1.lock().unwrap() += batch.len();
                Ok(())
            }
            Temper::Refuses => Err(OTelSdkError::InternalFailure("no".into())),
            Temper::Hangs => std::future::pending().await,
        }
    }
}

/// Makes many spans, and returns what is left to send and how long making them took.
fn many() -> (SdkTracerProvider, Waiting, Duration) {
    let (queue, waiting) = queue::bounded();
    let provider = SdkTracerProvider::builder().with_span_processor(queue).build();
    let (tracer, began) = (provider.tracer("test"), Instant::now());
    (0..MANY).for_each(|_| drop(tracer.start("one")));
    (provider, waiting, began.elapsed())
}

#[tokio::test]
async fn what_finds_no_place_is_lost_and_counted() {
    let (_provider, waiting, _) = many();
    let (kept, lost) = waiting.counts();
    assert_eq!((kept + lost, lost > 0), (MANY, true));
    let (collector, stop) = (Counting::new(Temper::Takes), CancellationToken::new());
    stop.cancel();
    waiting.send_to(collector.clone(), stop).await;
    assert_eq!(collector.taken(), kept, "what waits at the end is sent");
}

#[tokio::test]
async fn a_collector_that_hangs_or_refuses_holds_nobody_up() {
    for temper in [Temper::Hangs, Temper::Refuses] {
        let (_provider, waiting, took) = many();
        assert!(took < Duration::from_secs(5), "{took:?} for spans that nobody takes");
        let (stop, began) = (CancellationToken::new(), Instant::now());
        stop.cancel();
        waiting.send_to(Counting::new(temper), stop).await;
        assert!(began.elapsed() < 2 * FLUSH_TIME, "{temper:?}: the end waited {:?}", began.elapsed());
    }
}
