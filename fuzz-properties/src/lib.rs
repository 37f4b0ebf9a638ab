//! The fuzzed properties of data from clients, members and the hub, as bodies of the fuzz targets.
//!
//! Each function takes arbitrary bytes and panics if a property fails. A property is a round trip, the agreement with a
//! slow and simple reference, or the independence from the positions at which the input is split. `fuzz/fuzz_targets`
//! calls the functions under libFuzzer. The tests of this crate call them with the corpus in `fuzz/corpus` and with
//! random changes of the corpus, without a special compiler.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a property that does not hold is a panic, which a fuzzer waits for"
)]

mod audit;
mod authentication;
mod bodies;
mod cluster_sources;
mod dispatch;
mod hub;
mod members;
mod protobuf;
mod requests;
mod versions;

pub use audit::audit_policy;
pub use authentication::{authentication_configuration, certificate, token};
pub use bodies::{json_body, json_patch, yaml_body};
pub use cluster_sources::{cluster_source, identity_rules};
pub use dispatch::dispatch_policies;
pub use hub::{dial_address, hub_object};
pub use members::{frames, list};
pub use protobuf::protobuf_body;
pub use requests::{accept, options, path, selectors};
pub use versions::{continue_token, version};

/// The name of a fuzz target and of its corpus, and the function that checks its property.
pub type FuzzTarget = (&'static str, fn(&[u8]));

/// All fuzz targets.
pub const TARGETS: [FuzzTarget; 21] = [
    ("path", path),
    ("options", options),
    ("selectors", selectors),
    ("version", version),
    ("continue_token", continue_token),
    ("frames", frames),
    ("list", list),
    ("json_body", json_body),
    ("yaml_body", yaml_body),
    ("protobuf_body", protobuf_body),
    ("json_patch", json_patch),
    ("accept", accept),
    ("audit_policy", audit_policy),
    ("dispatch_policies", dispatch_policies),
    ("authentication_configuration", authentication_configuration),
    ("certificate", certificate),
    ("token", token),
    ("hub_object", hub_object),
    ("dial_address", dial_address),
    ("cluster_source", cluster_source),
    ("identity_rules", identity_rules),
];

/// Splits off the first byte, with which a target chooses a variant.
fn choice(data: &[u8]) -> (u8, &[u8]) {
    data.split_first().map_or((0, data), |(first, rest)| (*first, rest))
}
