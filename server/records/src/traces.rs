//! Traces of requests, sent to an OpenTelemetry collector by OTLP over gRPC.
//!
//! ```text
//! Front::call ─▶ Tracer::begin ─▶ TracedRequest::set_user ─▶ TracedRequest::finish ─▶ queue ─▶ a task ─▶ collector
//!                                 (decides about sampling)   (adds the router's stages)
//! ```
//!
//! Without `--tracing-config-file` there is no [`Tracer`]. A request that is not sampled costs a lookup of one header.
//! A request never waits for its spans: spans beyond the queue's capacity are dropped and counted.

mod configuration;
mod export;
mod parent;
mod request;
mod trace_choice;
mod tracer;

pub use configuration::{TracingConfiguration, TracingConfigurationError};
pub use tracer::Tracer;

pub use request::TracedRequest;
pub use trace_choice::remove_untrusted_trace_headers;
