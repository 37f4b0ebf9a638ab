//! What objects may say and this release does not do.

use tributary_crds::{ConfigurationObjects, DispatchPolicy, Logging, Severity, ValidationProblem};

/// What governs the requests for one object.
struct Governance<'a> {
    object: String,
    policies: &'a [DispatchPolicy],
    logging: &'a Logging,
}

/// What this release does not carry out. Whatever would let through what was to be refused or limited is an error:
/// nobody is to believe that it holds.
pub fn not_carried_out(objects: &ConfigurationObjects) -> Vec<ValidationProblem> {
    let clusters = objects.clusters.iter().map(|cluster| Governance {
        object: format!("UpstreamCluster {:?}", cluster.metadata.name.as_deref().unwrap_or_default()),
        policies: &cluster.spec.dispatch_policies,
        logging: &cluster.spec.logging,
    });
    let merged = objects.merged_endpoints.iter().map(|endpoint| Governance {
        object: format!("MergedEndpoint {:?}", endpoint.metadata.name.as_deref().unwrap_or_default()),
        policies: &endpoint.spec.dispatch_policies,
        logging: &endpoint.spec.logging,
    });
    clusters.chain(merged).flat_map(of_object).collect()
}

fn of_object(governance: Governance<'_>) -> impl Iterator<Item = ValidationProblem> {
    let Governance { object, policies, logging } = governance;
    let fields = std::iter::once((Severity::Warning, "spec.logging".to_owned(), !logging.is_empty()));
    let of_policies = policies.iter().enumerate().flat_map(|(number, policy)| {
        let field = |name: &str| format!("spec.dispatchPolicies[{number}].{name}");
        [
            (Severity::Warning, field("logMode"), policy.log_mode.is_some()),
            (Severity::Warning, field("auditLevel"), policy.audit_level.is_some()),
        ]
    });
    fields.chain(of_policies).filter(|(.., is_given)| *is_given).map(move |(severity, field, _)| ValidationProblem {
        severity,
        object: object.clone(),
        field,
        message: match severity {
            Severity::Error => "is not carried out by this release, and requests would pass as if it were not there; \
                                remove it"
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
        let policy =
            |more: &str| format!("dispatchPolicies: [{{rules: [{{verbs: ['*'], nonResourceURLs: ['*']}}]{more}}}]");
        let schemas = "flowControl: {flowControlSchemas: [{name: a, exempt: {}}]}";
        for kind in ["UpstreamCluster", "MergedEndpoint"] {
            assert_eq!(found(kind, ""), []);
            assert_eq!(found(kind, &policy("")), []);
            let logged = policy(", logMode: Enabled");
            assert_eq!(found(kind, &logged), of(Severity::Warning, "spec.dispatchPolicies[0].logMode"));
            let audited = policy(", auditLevel: Request");
            assert_eq!(found(kind, &audited), of(Severity::Warning, "spec.dispatchPolicies[0].auditLevel"));
            assert_eq!(found(kind, schemas), []);
            assert_eq!(found(kind, "logging: {mode: Enabled}"), of(Severity::Warning, "spec.logging"));
        }
        assert_eq!(found("UpstreamCluster", "dispatch: DenyAll"), []);
        let subset = policy(", endpoints: ['https://a:6443']");
        assert_eq!(found("UpstreamCluster", &subset), []);
        assert_eq!(found("UpstreamCluster", "endpointProbe: {}"), []);
    }
}
