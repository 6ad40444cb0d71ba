//! What this process tells of itself: lines of the log to standard error, and spans to a collector where one is named.

use std::io::IsTerminal as _;

use clap::Args;
use headway_scheduler::spans::{self, Collector, Exporting};
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{EnvFilter, Layer, Registry, fmt};

use crate::VERSION;
use crate::failure::{Failure, Kind};

/// How lines of the log are written.
#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum LogFormat {
    /// For people, in colour on a terminal.
    Text,
    /// An object per line.
    Json,
}

/// Where spans go.
#[derive(Args, Clone, Debug)]
pub struct SpansTo {
    /// Send spans of what the scheduler does to this collector over OTLP (HTTP with protobuf), as http://127.0.0.1:4318; OTEL_TRACES_SAMPLER says
    /// which, OTEL_EXPORTER_OTLP_HEADERS what opens the collector [default: none are made].
    #[arg(long, value_name = "URL", env = "OTEL_EXPORTER_OTLP_ENDPOINT", hide_env_values = true)]
    pub otlp_endpoint: Option<String>,
}

impl SpansTo {
    /// `None` where none is named: an empty variable names none.
    pub fn collector(&self) -> Result<Option<Collector>, Failure> {
        let named = self.otlp_endpoint.as_deref().filter(|text| !text.is_empty());
        let parsed = named.map(str::parse).transpose();
        parsed.map_err(|error| Failure::new(Kind::Usage, format!("--otlp-endpoint: {error}")))
    }
}

/// Starts the log, and the export of spans where there is a collector. Needs the runtime.
pub fn start(format: LogFormat, collector: Option<&Collector>) -> Result<Option<Exporting>, Failure> {
    let filter = EnvFilter::try_from_env("HEADWAY_LOG").unwrap_or_else(|_| EnvFilter::new("warn,headway=info"));
    // Spans are no context of lines, which have their own.
    let none = format!("{}=off", spans::TARGET).parse().expect("a target and a level");
    let lines = lines(format).with_filter(filter.add_directive(none));
    let exported = collector.map(|collector| spans::exporting(collector, VERSION)).transpose();
    let (layer, exporting) = exported.map_err(|error| Failure::new(Kind::Usage, error.to_string()))?.unzip();
    tracing_subscriber::registry().with(lines).with(layer).init();
    Ok(exporting)
}

fn lines(format: LogFormat) -> Box<dyn Layer<Registry> + Send + Sync> {
    let lines = fmt::layer().with_writer(std::io::stderr);
    if format == LogFormat::Json {
        lines.json().boxed()
    } else {
        lines.with_ansi(std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none()).boxed()
    }
}
