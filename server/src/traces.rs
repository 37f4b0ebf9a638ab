//! Traces of requests, sent to an OpenTelemetry collector by OTLP over gRPC.
//!
//! ```text
//! Front::call ─▶ Tracer::begin ─▶ Traced ─▶ Traced::finish ─▶ queue ─▶ a task ─▶ collector
//!                (sampled?)       (the router notes stages)
//! ```
//!
//! Without `--tracing-config-file` there is no [`Tracer`], and a request that is not sampled costs a look at a header.
//! Spans are never waited for: what the queue has no room for is dropped, and counted.

mod configuration;
mod export;
mod parent;
mod request;
mod tracer;

pub use configuration::{TracingConfiguration, TracingConfigurationError};
pub use tracer::Tracer;

pub(crate) use request::Traced;
