//! Converts the dispatch policies of configuration objects into the router's settings. Without I/O.

use tributary_crds::{ConfigurationObjects, Dispatch, DispatchPolicy};
use tributary_policy::Policy;
use tributary_router::{DispatchSettings, EntryPointPolicies};

use crate::named_clusters::{NamedCluster, named_clusters};

/// Converts the dispatch policies of validated configuration objects into the router's settings.
pub fn dispatch_settings(objects: &ConfigurationObjects) -> DispatchSettings {
    convert(objects, &named_clusters(objects))
}

/// Converts the policies of `objects`, apart from their clusters, and of these clusters.
pub(super) fn convert(objects: &ConfigurationObjects, clusters: &[NamedCluster<'_>]) -> DispatchSettings {
    // Validation allows at most one MergedEndpoint, so the first is the only one.
    let endpoint = objects.merged_endpoints.first();
    let global = endpoint.map(|endpoint| endpoint.spec.global_dispatch_policies.iter().map(Policy::from).collect());
    let merged = endpoint.map(|endpoint| policies(&endpoint.spec.dispatch_policies, Dispatch::Policies));
    let entry = |(name, cluster): &NamedCluster<'_>| {
        (name.clone(), policies(&cluster.spec.dispatch_policies, cluster.spec.dispatch))
    };
    let clusters = clusters.iter().map(entry).collect();
    DispatchSettings { global: global.unwrap_or_default(), merged: merged.unwrap_or_default(), clusters }
}

fn policies(written: &[DispatchPolicy], dispatch: Dispatch) -> EntryPointPolicies {
    let policies = written.iter().map(Policy::from).collect();
    EntryPointPolicies { policies, denies_all: dispatch == Dispatch::DenyAll }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use tributary_apimachinery::ClusterName;
    use tributary_policy::{Action, Mode};

    use super::*;

    #[test]
    fn dispatch_settings_are_read_per_cluster_and_for_the_merged_view() {
        let text = "
apiVersion: tributary.dev/v1alpha1
kind: UpstreamCluster
metadata: {name: eu}
spec: {dispatch: DenyAll, dispatchPolicies: [{mode: Audit, rules: [{verbs: ['*'], nonResourceURLs: ['*']}]}]}
---
apiVersion: tributary.dev/v1alpha1
kind: UpstreamCluster
metadata: {name: us}
spec: {}
---
apiVersion: tributary.dev/v1alpha1
kind: MergedEndpoint
metadata: {name: all}
spec:
  globalDispatchPolicies: [{deny: {message: 'nowhere'}, rules: [{verbs: ['*'], nonResourceURLs: ['*']}]}]
  dispatchPolicies: [{deny: {message: 'no'}, rules: [{verbs: ['*'], nonResourceURLs: ['*']}]}]
";
        let settings = dispatch_settings(&tributary_crds::parse(text, Path::new("test.yaml")).unwrap());
        let [eu, us] = ["eu", "us"].map(|name| &settings.clusters[&ClusterName::new(name).unwrap()]);
        assert!(eu.denies_all && eu.policies.len() == 1 && eu.policies[0].mode == Mode::Audit);
        assert_eq!(us, &EntryPointPolicies::default());
        assert_eq!(settings.merged.policies[0].outcome.action, Action::Deny { message: "no".to_owned() });
        assert_eq!(settings.global[0].outcome.action, Action::Deny { message: "nowhere".to_owned() });
        assert!(!settings.merged.denies_all);
        assert_eq!(dispatch_settings(&ConfigurationObjects::default()), DispatchSettings::default());
    }
}
