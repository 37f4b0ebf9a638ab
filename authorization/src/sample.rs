//! Chooses requests that roles and bindings allow. The caller then asks the cluster to confirm that it allows these
//! requests.

use tributary_apimachinery::{ClusterName, UserInfo};

use crate::attributes::{Attributes, ResourceAttributes};
use crate::fleet::Fleet;
use crate::object::{Binding, Subject};
use crate::rule::CompiledRule;

/// A request that the roles and bindings of a cluster allow to a subject.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sample {
    /// The user to whom the request is allowed. If the subject is a group, the name is empty.
    pub user: UserInfo,
    /// The verb, for example `get` or `list`.
    pub verb: String,
    /// The API group; empty for the core group.
    pub group: String,
    /// The resource, in the plural.
    pub resource: String,
    /// The subresource; empty for the object itself.
    pub subresource: String,
    /// The namespace; empty for all namespaces.
    pub namespace: String,
    /// The name; empty for all names.
    pub name: String,
}

impl Sample {
    /// Returns the attributes of the allowed request.
    pub fn attributes(&self) -> ResourceAttributes<'_> {
        ResourceAttributes {
            verb: &self.verb,
            group: &self.group,
            version: "",
            resource: &self.resource,
            subresource: &self.subresource,
            namespace: &self.namespace,
            name: &self.name,
        }
    }

    fn from_binding(binding: &Binding, subject: &Subject, rule: &CompiledRule, round: usize) -> Option<Self> {
        let user = match subject {
            Subject::User(name) | Subject::ServiceAccount { user: name, .. } => UserInfo::with_groups(name, &[]),
            Subject::Group(name) => UserInfo::with_groups("", &[name.to_string()]),
        };
        let resource = one_of(rule.resources(), "pods", round)?;
        let (resource, subresource) = resource.split_once('/').unwrap_or((&resource, ""));
        Some(Self {
            user,
            verb: one_of(rule.verbs(), "get", round)?,
            group: one_of(rule.api_groups(), "", round)?,
            resource: if resource == "*" { "pods" } else { resource }.to_owned(),
            subresource: subresource.to_owned(),
            namespace: binding.key.namespace.to_string(),
            name: one_of(rule.resource_names(), "", round).unwrap_or_default(),
        })
    }
}

/// Returns the string with the index `round`, modulo the number of strings. Returns `of_all` if that string is the
/// wildcard.
fn one_of<'a>(mut words: impl ExactSizeIterator<Item = &'a str>, of_all: &str, round: usize) -> Option<String> {
    let word = words.nth(round % words.len().max(1))?;
    Some(if word == "*" { of_all.to_owned() } else { word.to_owned() })
}

impl Fleet {
    /// Returns at most `count` requests that the roles and bindings of a cluster allow, each from a different binding.
    /// Equal values of `round` give equal samples; successive values give different samples. Iterates over all bindings
    /// of the cluster.
    pub fn samples(&self, cluster: &ClusterName, count: usize, round: usize) -> Vec<Sample> {
        let grants: Vec<_> = self.grants(cluster).collect();
        let begin = round.wrapping_mul(count) % grants.len().max(1);
        let (later, first) = grants.split_at(begin);
        let samples = first.iter().chain(later).filter_map(|grant| {
            let rules = grant.rules.as_ref()?;
            let rule = rules.get(round % rules.len().max(1))?;
            let subjects = &grant.binding.subjects;
            let sample =
                Sample::from_binding(&grant.binding, subjects.get(round % subjects.len().max(1))?, rule, round)?;
            // A wildcard that is replaced by a concrete word may give a request that the rules deny. Such a sample is
            // dropped.
            self.allows(cluster, &sample.user, &Attributes::Resource(sample.attributes())).then_some(sample)
        });
        samples.take(count).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::object::{RbacKind, RbacObject};

    #[test]
    fn sampled_requests_are_allowed_by_rbac_and_cover_all_bindings() {
        let (mut fleet, eu) = (Fleet::default(), ClusterName::new("eu").unwrap());
        assert_eq!(fleet.samples(&eu, 20, 0), []);
        let mut put = |kind, text: &str| fleet.upsert(&eu, RbacObject::parse(kind, text.as_bytes()).unwrap());
        for (name, rule) in [
            ("all", r#"{"verbs":["*"],"apiGroups":["*"],"resources":["*"]}"#),
            ("some", r#"{"verbs":["get","list"],"apiGroups":["","apps"],"resources":["pods/log","*/scale"]}"#),
            ("named", r#"{"verbs":["get"],"apiGroups":[""],"resources":["secrets"],"resourceNames":["a","b"]}"#),
            ("path", r#"{"verbs":["get"],"nonResourceURLs":["/metrics"]}"#),
        ] {
            put(RbacKind::ClusterRole, &format!(r#"{{"metadata":{{"name":"{name}"}},"rules":[{rule}]}}"#));
        }
        for (number, role) in ["all", "some", "named", "path", "gone"].into_iter().cycle().take(25).enumerate() {
            let subjects = r#"[{"kind":"User","name":"ann"},{"kind":"Group","name":"dev"},
                {"kind":"ServiceAccount","namespace":"n","name":"s"}]"#;
            put(
                RbacKind::RoleBinding,
                &format!(
                    r#"{{"metadata":{{"namespace":"n","name":"b{number}"}},"subjects":{subjects},
                        "roleRef":{{"kind":"ClusterRole","name":"{role}"}}}}"#
                ),
            );
        }
        let mut seen = std::collections::HashSet::new();
        for round in 0..20 {
            let samples = fleet.samples(&eu, 4, round);
            assert_eq!(samples, fleet.samples(&eu, 4, round));
            assert_eq!(samples.len(), 4);
            for sample in samples {
                let request = Attributes::Resource(sample.attributes());
                assert!(fleet.allows(&eu, &sample.user, &request), "{sample:?}");
                seen.insert(format!("{sample:?}"));
            }
        }
        for part in ["ann", "dev", "system:serviceaccount:n:s", "secrets", "\"log\"", "\"b\"", "scale"] {
            assert!(seen.iter().any(|own| own.contains(part)), "{part}: {seen:?}");
        }
    }
}
