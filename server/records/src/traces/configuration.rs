//! The file of `--tracing-config-file`: kube-apiserver's TracingConfiguration.

use std::path::{Path, PathBuf};

use serde::Deserialize;

/// kube-apiserver's default address of an OTLP/gRPC collector.
const DEFAULT_ENDPOINT: &str = "localhost:4317";

/// The unit of sampling rates: requests per million.
const MILLION: u32 = 1_000_000;

/// The settings of tracing: the sampling rate and the collector.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TracingConfiguration {
    /// The collector's URL, `http://HOST:PORT`. Spans are sent over gRPC without TLS, as in kube-apiserver.
    pub endpoint: String,
    /// The sampling rate in requests per million. The rate applies to requests without a client's trace, and to users
    /// who may not choose their trace. For requests of all other users, the client's `traceparent` header decides.
    pub sampling_rate_per_million: u32,
}

/// An error that prevents the use of a TracingConfiguration file.
#[derive(Debug, thiserror::Error)]
pub enum TracingConfigurationError {
    /// The TracingConfiguration file cannot be read.
    #[error("the tracing configuration {} cannot be read", .path.display())]
    File {
        /// Path of the TracingConfiguration file.
        path: PathBuf,
        /// The error of the operating system.
        #[source]
        source: std::io::Error,
    },
    /// The content of the TracingConfiguration file is invalid.
    #[error("the tracing configuration {}: {problem}", .path.display())]
    Invalid {
        /// Path of the TracingConfiguration file.
        path: PathBuf,
        /// The problem in the TracingConfiguration file, as text.
        problem: String,
    },
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Written {
    api_version: String,
    kind: String,
    endpoint: Option<String>,
    sampling_rate_per_million: Option<i64>,
}

impl TracingConfiguration {
    /// Reads and parses a TracingConfiguration file.
    ///
    /// # Errors
    /// [`TracingConfigurationError`].
    pub fn read(path: &Path) -> Result<Self, TracingConfigurationError> {
        let text = std::fs::read_to_string(path)
            .map_err(|source| TracingConfigurationError::File { path: path.to_owned(), source })?;
        Self::parse(&text).map_err(|problem| TracingConfigurationError::Invalid { path: path.to_owned(), problem })
    }

    /// Parses YAML or JSON. The error is a message for users.
    fn parse(text: &str) -> Result<Self, String> {
        let written: Written = serde_saphyr::from_str(text).map_err(|error| error.to_string())?;
        let group = written.api_version.strip_prefix("apiserver.config.k8s.io/");
        if !matches!(group, Some("v1" | "v1beta1" | "v1alpha1")) || written.kind != "TracingConfiguration" {
            return Err(
                "apiVersion and kind must be apiserver.config.k8s.io/v1 and TracingConfiguration; v1beta1 and \
                        v1alpha1 are read as well"
                    .to_owned(),
            );
        }
        let rate = written.sampling_rate_per_million.unwrap_or_default();
        let rate = u32::try_from(rate).ok().filter(|rate| *rate <= MILLION);
        let sampling_rate_per_million = rate.ok_or("samplingRatePerMillion must be from 0 to 1000000")?;
        let endpoint = written.endpoint.unwrap_or_else(|| DEFAULT_ENDPOINT.to_owned());
        Ok(Self { endpoint: address(&endpoint)?, sampling_rate_per_million })
    }
}

/// Converts kube-apiserver's syntax of an endpoint, `HOST:PORT` or `dns:HOST:PORT`, into a URL.
fn address(endpoint: &str) -> Result<String, String> {
    let host =
        ["dns:///", "dns:", "http://"].iter().find_map(|scheme| endpoint.strip_prefix(scheme)).unwrap_or(endpoint);
    let url = format!("http://{host}");
    let authority = url.parse::<http::Uri>().ok().and_then(|url| url.into_parts().authority);
    match authority {
        Some(authority) if authority.as_str() == host && authority.port().is_some() => Ok(url),
        _ => Err(format!(
            "endpoint: {endpoint:?} is not HOST:PORT of a collector that accepts OTLP over gRPC without TLS"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(more: &str) -> Result<(String, u32), String> {
        let text = format!("apiVersion: apiserver.config.k8s.io/v1\nkind: TracingConfiguration\n{more}");
        let TracingConfiguration { endpoint, sampling_rate_per_million } = TracingConfiguration::parse(&text)?;
        Ok((endpoint, sampling_rate_per_million))
    }

    #[test]
    fn tracing_configuration_is_parsed_as_in_kube_apiserver() {
        let of = |endpoint: &str, rate| Ok((endpoint.to_owned(), rate));
        assert_eq!(parse(""), of("http://localhost:4317", 0));
        assert_eq!(parse("samplingRatePerMillion: 1000000"), of("http://localhost:4317", 1_000_000));
        assert_eq!(parse("endpoint: 'otel.example:4317'"), of("http://otel.example:4317", 0));
        assert_eq!(parse("endpoint: 'dns:otel:4317'"), of("http://otel:4317", 0));
        assert_eq!(parse("endpoint: '[::1]:4317'"), of("http://[::1]:4317", 0));
        for (more, part) in [
            ("samplingRatePerMillion: -1", "samplingRatePerMillion must be"),
            ("samplingRatePerMillion: 1000001", "samplingRatePerMillion must be"),
            ("endpoint: 'https://otel:4317'", "is not HOST:PORT"),
            ("endpoint: otel", "is not HOST:PORT"),
            ("endpoint: 'otel:4317/v1/traces'", "is not HOST:PORT"),
            ("samplingRate: 1", "samplingRate"),
        ] {
            let problem = parse(more).unwrap_err();
            assert!(problem.contains(part), "{more}: {problem}");
        }
        let other = TracingConfiguration::parse("apiVersion: v1\nkind: TracingConfiguration\n");
        assert!(other.unwrap_err().contains("apiVersion and kind"));
    }
}
