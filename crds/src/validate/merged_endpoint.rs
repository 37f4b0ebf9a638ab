//! Validation of the MergedEndpoint.

use tributary_policy::PolicyScope;

use super::Problems;
use super::governance::{self, Governance};
use crate::{MERGED_ENDPOINT, MergedEndpoint};

pub(super) fn validate(endpoint: &MergedEndpoint, problems: &mut Problems<'_>) {
    let name = endpoint.metadata.name.as_deref().unwrap_or_default();
    if name != MERGED_ENDPOINT {
        let message = format!("{name:?} is not allowed; the only MergedEndpoint is named {MERGED_ENDPOINT:?}");
        problems.error("metadata.name", message);
    }
    let spec = &endpoint.spec;
    let governance = Governance {
        policies: &[
            (PolicyScope::Global, &spec.global_dispatch_policies),
            (PolicyScope::MergedView, &spec.dispatch_policies),
        ],
        flow_control: &spec.flow_control,
        endpoints: None,
    };
    governance::validate(&governance, problems);
}
