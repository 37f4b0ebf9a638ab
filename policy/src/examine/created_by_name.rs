//! Warnings about denials of `create` that clients can evade by `patch` and `update`.
//!
//! A server-side apply (`patch`) and a PUT (`update`) create an object that does not exist. kube-apiserver then checks
//! the right to `create` (apiserver `pkg/endpoints/handlers/patch.go` and `update.go`). Policies run before Tributary
//! knows whether the object exists, so a denial of `create` alone does not prevent its creation.

use tributary_apimachinery::Verb;

use super::Findings;
use crate::entries::FieldEntries;
use crate::explanation::RuleField;
use crate::place::RulePosition;
use crate::policy::Mode;
use crate::rule::{Matcher, Rule};
use crate::shadowed::Denials;

/// Resources whose objects kube-apiserver never stores. Only POST creates such objects.
const NEVER_STORED: [&str; 7] = [
    "bindings",
    "localsubjectaccessreviews",
    "selfsubjectaccessreviews",
    "selfsubjectreviews",
    "selfsubjectrulesreviews",
    "subjectaccessreviews",
    "tokenreviews",
];

/// Warns of a rule that denies `create`, unless other rules deny `patch` and `update` of the same objects.
pub(super) fn examine(rule: &Rule, (position, mode): (RulePosition, Mode), denials: &Denials, findings: &mut Findings) {
    let matcher = Matcher::new(rule);
    let accepts = |verb: &str| matcher.verbs.verdict(std::iter::once(verb)).accepts();
    if !accepts(Verb::Create.as_str()) || !matches_stored_resource(&matcher) {
        return;
    }
    let is_denied = |verb: &str| {
        let (verbs, non_resource_urls) = (vec![verb.to_owned()], Vec::new());
        accepts(verb) || denials.cover(&Rule { verbs, non_resource_urls, ..rule.clone() }, mode)
    };
    let makes = [
        (Verb::Patch, "a server-side apply (Helm 4, kubectl apply --server-side) is a patch"),
        (Verb::Update, "a PUT is an update"),
    ];
    for (verb, what) in makes.into_iter().filter(|(verb, _)| !is_denied(verb.as_str())) {
        findings.warning(
            format!("{position}.{}", RuleField::Verbs.as_str()),
            format!(
                "denies \"create\" but not {:?}: {what}, even if it creates the object, and is allowed; deny {0:?} as \
                 well, which also denies changes, or remove the user's right to create in the cluster",
                verb.as_str()
            ),
        );
    }
}

/// Returns whether a rule matches objects, and not only subresources, of a resource that kube-apiserver stores.
fn matches_stored_resource(matcher: &Matcher) -> bool {
    let is_stored = |resource: &str| !NEVER_STORED.contains(&resource);
    matcher.matches_resources()
        && match &matcher.resources {
            FieldEntries::Any(_) | FieldEntries::AllBut(_) => true,
            FieldEntries::Only(entries) => entries.iter().any(|entry| {
                entry.pattern.subresource.is_empty() && entry.pattern.resource.as_deref().is_none_or(is_stored)
            }),
        }
}
