//! Spans: what this process does and how long it takes, sent to a collector over OTLP (HTTP with protobuf). Nothing is made unless an
//! operator names one (`--otlp-endpoint`).
//!
//! All spans have one target, which log filters shut out, so that where nobody exports them not even their fields are looked at. Their fields
//! are kinds, ids, counts and routes as they are written in the table of routes, never a token, a query, a path or a body. Whoever makes one
//! waits for nothing: what the collector does not take in time is lost, counted and told (`queue`).

mod made;
mod queue;
mod settings;
#[cfg(test)]
mod tests;
mod trace;

use std::env;

use opentelemetry::trace::TracerProvider as _;
use opentelemetry_otlp::{ExporterBuildError, Protocol, SpanExporter, WithExportConfig as _, WithHttpConfig as _};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::{SdkTracerProvider, SpanExporter as _};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tracing::Subscriber;
use tracing::level_filters::LevelFilter;
use tracing_subscriber::Layer;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::registry::LookupSpan;

pub use made::{
    Caller, agent_asked, agent_report, agent_session, answered, commit, committed, request, round, round_ended,
};
pub use settings::{Collector, SettingsError};
pub use trace::{Cause, cause};

/// Of every span here; log filters leave it out.
pub const TARGET: &str = "otlp";
/// Where the spans say they come from, unless `OTEL_SERVICE_NAME` does.
const SERVICE: &str = "headway-server";

/// Why spans cannot be exported.
#[derive(Debug, thiserror::Error)]
pub enum SpansError {
    #[error(transparent)]
    Settings(#[from] SettingsError),
    #[error("making ready to call the collector of spans")]
    Client(#[source] reqwest::Error),
    #[error("making the exporter of spans")]
    Exporter(#[source] ExporterBuildError),
}

/// Spans on their way out. Dropping it ends nothing: `finish` does.
#[derive(Debug)]
pub struct Exporting {
    task: JoinHandle<()>,
    stop: CancellationToken,
}

impl Exporting {
    /// Sends what is left, for `queue::FLUSH_TIME` at most.
    pub async fn finish(self) {
        self.stop.cancel();
        if self.task.await.is_err() {
            tracing::error!("the exporter of spans died");
        }
    }
}

/// The layer that makes spans, and what sends them to `collector`. Which are sampled is said by `OTEL_TRACES_SAMPLER`, what else their
/// source is by `OTEL_RESOURCE_ATTRIBUTES`, what opens the collector by `OTEL_EXPORTER_OTLP_HEADERS`. Needs a tokio runtime.
pub fn exporting<S>(collector: &Collector, version: &'static str) -> Result<(impl Layer<S>, Exporting), SpansError>
where
    S: Subscriber + for<'span> LookupSpan<'span>,
{
    settings::check(|name| env::var(name).ok())?;
    let client = reqwest::Client::builder()
        .connect_timeout(queue::EXPORT_TIME)
        .timeout(queue::EXPORT_TIME)
        .redirect(reqwest::redirect::Policy::none())
        .build()
        .map_err(SpansError::Client)?;
    let mut exporter = SpanExporter::builder()
        .with_http()
        .with_protocol(Protocol::HttpBinary)
        .with_endpoint(collector.traces())
        .with_timeout(queue::EXPORT_TIME)
        .with_http_client(client)
        .build()
        .map_err(SpansError::Exporter)?;
    let resource = resource(version);
    exporter.set_resource(&resource);
    let (queue, waiting) = queue::bounded();
    let provider = SdkTracerProvider::builder().with_span_processor(queue).with_resource(resource).build();
    let stop = CancellationToken::new();
    let task = tokio::spawn(waiting.send_to(exporter, stop.clone()));
    let layer = tracing_opentelemetry::layer()
        .with_tracer(provider.tracer("headway"))
        .with_location(false)
        .with_threads(false)
        .with_target(false)
        .with_tracked_inactivity(false)
        .with_filter(Targets::new().with_target(TARGET, LevelFilter::INFO));
    Ok((layer, Exporting { task, stop }))
}

fn resource(version: &'static str) -> Resource {
    let known = Resource::builder().with_attribute(opentelemetry::KeyValue::new("service.version", version));
    match env::var_os("OTEL_SERVICE_NAME") {
        Some(_) => known.build(),
        None => known.with_service_name(SERVICE).build(),
    }
}
