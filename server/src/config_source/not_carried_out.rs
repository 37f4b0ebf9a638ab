//! What objects may say and this release does not do.

use tributary_crds::{ConfigurationObjects, DispatchPolicy, FlowControl, Logging, Severity, ValidationProblem};

/// What governs the requests for one object.
struct Governance<'a> {
    object: String,
    denies_all: bool,
    policies: &'a [DispatchPolicy],
    flow_control: &'a FlowControl,
    logging: &'a Logging,
    has_probe: bool,
}

/// What this release does not carry out. Whatever would let through what was to be refused or limited is an error:
/// nobody is to believe that it holds.
pub fn not_carried_out(objects: &ConfigurationObjects) -> Vec<ValidationProblem> {
    let clusters = objects.clusters.iter().map(|cluster| Governance {
        object: format!("UpstreamCluster {:?}", cluster.metadata.name.as_deref().unwrap_or_default()),
        denies_all: !cluster.spec.dispatch.is_by_policies(),
        policies: &cluster.spec.dispatch_policies,
        flow_control: &cluster.spec.flow_control,
        logging: &cluster.spec.logging,
        has_probe: cluster.spec.endpoint_probe.is_some(),
    });
    let merged = objects.merged_endpoints.iter().map(|endpoint| Governance {
        object: format!("MergedEndpoint {:?}", endpoint.metadata.name.as_deref().unwrap_or_default()),
        denies_all: false,
        policies: &endpoint.spec.dispatch_policies,
        flow_control: &endpoint.spec.flow_control,
        logging: &endpoint.spec.logging,
        has_probe: false,
    });
    clusters.chain(merged).flat_map(of_object).collect()
}

fn of_object(governance: Governance<'_>) -> impl Iterator<Item = ValidationProblem> {
    let Governance { object, denies_all, policies, flow_control, logging, has_probe } = governance;
    let fields = [
        (Severity::Error, "spec.dispatch", denies_all),
        (Severity::Error, "spec.dispatchPolicies", !policies.is_empty()),
        (Severity::Error, "spec.flowControl", !flow_control.is_empty()),
        (Severity::Warning, "spec.logging", !logging.is_empty()),
        (Severity::Warning, "spec.endpointProbe", has_probe),
    ];
    fields.into_iter().filter(|(.., is_given)| *is_given).map(move |(severity, field, _)| ValidationProblem {
        severity,
        object: object.clone(),
        field: field.to_owned(),
        message: match severity {
            Severity::Error => "is not carried out by this release, and requests would pass as if it were not there; \
                                remove it, and try it with `tributary policy test`"
                .to_owned(),
            Severity::Warning => "is not carried out by this release; it changes nothing yet".to_owned(),
        },
    })
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn what_would_not_hold_is_an_error_and_what_does_no_harm_a_warning() {
        let found = |kind: &str, spec: &str| {
            let text = format!(
                "apiVersion: tributary.dev/v1alpha1\nkind: {kind}\nmetadata: {{name: all}}\nspec: {{{spec}}}\n"
            );
            let objects = tributary_crds::parse(&text, Path::new("test.yaml")).unwrap();
            not_carried_out(&objects).into_iter().map(|problem| (problem.severity, problem.field)).collect::<Vec<_>>()
        };
        let of = |severity, field: &str| vec![(severity, field.to_owned())];
        let rules = "dispatchPolicies: [{rules: [{verbs: ['*'], nonResourceURLs: ['*']}]}]";
        let schemas = "flowControl: {flowControlSchemas: [{name: a, exempt: {}}]}";
        for kind in ["UpstreamCluster", "MergedEndpoint"] {
            assert_eq!(found(kind, ""), []);
            assert_eq!(found(kind, rules), of(Severity::Error, "spec.dispatchPolicies"));
            assert_eq!(found(kind, schemas), of(Severity::Error, "spec.flowControl"));
            assert_eq!(found(kind, "logging: {mode: Enabled}"), of(Severity::Warning, "spec.logging"));
        }
        assert_eq!(found("UpstreamCluster", "dispatch: DenyAll"), of(Severity::Error, "spec.dispatch"));
        assert_eq!(found("UpstreamCluster", "endpointProbe: {}"), of(Severity::Warning, "spec.endpointProbe"));
    }
}
