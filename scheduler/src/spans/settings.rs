//! What operators say of the export of spans: the collector's address, and OpenTelemetry's own variables, of which the wrong ones are
//! refused at the start. (The SDK passes over them in silence.)

use std::str::FromStr;

use reqwest::Url;

const SAMPLER: &str = "OTEL_TRACES_SAMPLER";
const SAMPLER_ARGUMENT: &str = "OTEL_TRACES_SAMPLER_ARG";
const PROTOCOLS: [&str; 2] = ["OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL"];
const SAMPLERS: [&str; 6] = [
    "always_on",
    "always_off",
    "traceidratio",
    "parentbased_always_on",
    "parentbased_always_off",
    "parentbased_traceidratio",
];

/// Where a collector takes OTLP over HTTP: http://127.0.0.1:4318. It holds no credentials.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Collector(Url);

/// Why a setting is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SettingsError {
    #[error("a collector is named by its URL, as http://127.0.0.1:4318")]
    NoUrl,
    #[error("the URL of a collector holds no credentials: give them as OTEL_EXPORTER_OTLP_HEADERS")]
    Credentials,
    #[error("{variable} is {value}, but spans travel as http/protobuf alone, which collectors take on port 4318")]
    Protocol { variable: &'static str, value: String },
    #[error("OTEL_TRACES_SAMPLER is {0}, but must be one of {known}", known = SAMPLERS.join(", "))]
    Sampler(String),
    #[error("OTEL_TRACES_SAMPLER_ARG must be a share from 0 to 1, which {0} needs")]
    Share(String),
}

impl FromStr for Collector {
    type Err = SettingsError;

    fn from_str(text: &str) -> Result<Self, SettingsError> {
        let url = Url::parse(text).map_err(|_| SettingsError::NoUrl)?;
        if !["http", "https"].contains(&url.scheme()) || url.query().is_some() || url.fragment().is_some() {
            return Err(SettingsError::NoUrl);
        }
        if !url.username().is_empty() || url.password().is_some() {
            return Err(SettingsError::Credentials);
        }
        Ok(Self(url))
    }
}

impl Collector {
    /// Where it takes spans.
    pub(super) fn traces(&self) -> String {
        format!("{}/v1/traces", self.0.as_str().trim_end_matches('/'))
    }
}

/// Refuses what the SDK would not heed.
pub(super) fn check(variable: impl Fn(&str) -> Option<String>) -> Result<(), SettingsError> {
    let set = |name: &str| variable(name).filter(|value| !value.is_empty());
    for variable in PROTOCOLS {
        if let Some(value) = set(variable).filter(|value| value != "http/protobuf") {
            return Err(SettingsError::Protocol { variable, value });
        }
    }
    let Some(sampler) = set(SAMPLER) else { return Ok(()) };
    if !SAMPLERS.contains(&sampler.as_str()) {
        return Err(SettingsError::Sampler(sampler));
    }
    let share = set(SAMPLER_ARGUMENT).and_then(|text| text.parse::<f64>().ok());
    if sampler.ends_with("traceidratio") && !share.is_some_and(|share| (0.0..=1.0).contains(&share)) {
        return Err(SettingsError::Share(sampler));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn collector(text: &str) -> Result<String, SettingsError> {
        text.parse().map(|one: Collector| one.traces())
    }

    fn checked(set: &[(&str, &str)]) -> Result<(), SettingsError> {
        check(|name| set.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned()))
    }

    #[test]
    fn a_collector_is_an_address_without_secrets() {
        assert_eq!(collector("http://127.0.0.1:4318").unwrap(), "http://127.0.0.1:4318/v1/traces");
        assert_eq!(collector("https://otel.example/in/").unwrap(), "https://otel.example/in/v1/traces");
        for wrong in ["", "otel.example:4318", "grpc://otel.example", "http://otel.example?key=hush"] {
            assert_eq!(collector(wrong), Err(SettingsError::NoUrl), "{wrong}");
        }
        let refused = collector("https://ada:hush@otel.example").unwrap_err();
        assert!(!refused.to_string().contains("hush"), "{refused}");
    }

    #[test]
    fn what_would_not_be_heeded_is_refused() {
        assert_eq!(checked(&[]), Ok(()));
        assert_eq!(checked(&[(SAMPLER, "")]), Ok(()));
        assert_eq!(checked(&[(SAMPLER, "parentbased_traceidratio"), (SAMPLER_ARGUMENT, "0.1")]), Ok(()));
        assert_eq!(checked(&[(SAMPLER, "sometimes")]), Err(SettingsError::Sampler("sometimes".into())));
        for share in ["", "2", "-1", "NaN", "half"] {
            let set = [(SAMPLER, "traceidratio"), (SAMPLER_ARGUMENT, share)];
            assert_eq!(checked(&set), Err(SettingsError::Share("traceidratio".into())), "{share}");
        }
        assert_eq!(checked(&[(PROTOCOLS[1], "http/protobuf")]), Ok(()));
        assert!(matches!(checked(&[(PROTOCOLS[1], "grpc")]), Err(SettingsError::Protocol { .. })));
    }
}
