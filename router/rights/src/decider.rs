//! Choice of the method by which rights in a cluster are decided: the mirrored roles and bindings, or access reviews.
//! This module does no I/O.

use tributary_apimachinery::UserInfo;
use tributary_authorization::{CompiledRule, ReviewMismatch, RulesReview, Sample};

/// API group that only OpenShift serves. The scopes of an OpenShift token remove rights that roles grant.
pub(super) const OPENSHIFT: &str = "authorization.openshift.io";

/// Method by which the rights of users in a cluster are decided.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum Decider {
    /// Unknown until the first detection. Users see no objects of the cluster.
    #[default]
    Undecided,
    /// Tributary decides by its mirror of the cluster's roles and bindings.
    Rbac,
    /// The cluster decides: Tributary sends it access reviews. The value is the reason.
    Review(ReviewCause),
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ReviewCause {
    /// The configuration of the cluster requires access reviews.
    #[error("the configuration sets authorization: Review")]
    Configured,
    /// The cluster is an OpenShift cluster: the scopes of a token may remove rights that roles grant.
    #[error("the cluster serves {OPENSHIFT}: scopes of tokens also limit rights")]
    OpenShift,
    /// The cluster's address has a path: a proxy in front of the cluster may deny requests that roles allow.
    #[error("the address of the cluster has a path: a proxy at this path may deny requests")]
    BasePath,
    /// The cluster's SelfSubjectRulesReview for Tributary's account differs from the mirrored roles and bindings.
    #[error("{0}")]
    Rules(ReviewMismatch),
    /// Tributary can read the roles, although no role grants its account this right.
    #[error(
        "Tributary may read the roles and bindings of the cluster, although no role allows it: a different authorizer \
         decides"
    )]
    NotByRoles,
    /// The cluster denies a request that the mirrored roles and bindings allow.
    #[error("the cluster denies a request that its roles and bindings allow: {0}")]
    Refuted(String),
    /// The cluster allows a request to a subject without any role.
    #[error("the cluster allows a request that its roles and bindings do not allow: {0}")]
    Open(String),
    /// The cluster rejects Tributary's access reviews.
    #[error("the cluster answers {resource} with {code}: Tributary's account needs the verb create on them")]
    ReviewsForbidden { resource: &'static str, code: u16 },
    /// The cluster's roles decided until now, but the cluster has answered no review for minutes.
    #[error("the cluster has not answered access reviews for minutes")]
    Unanswered,
}

impl ReviewCause {
    /// Returns whether a delay can explain the difference between the mirror and the cluster: the mirror or the
    /// cluster's authorizer may not have seen the latest roles and bindings yet.
    pub(super) fn may_be_of_delay(&self) -> bool {
        match self {
            Self::Rules(mismatch) => *mismatch != ReviewMismatch::Incomplete,
            Self::NotByRoles | Self::Refuted(_) | Self::Open(_) => true,
            Self::Configured | Self::OpenShift | Self::BasePath | Self::ReviewsForbidden { .. } | Self::Unanswered => {
                false
            }
        }
    }
}

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ClusterFacts {
    pub(super) serves_openshift: bool,
    pub(super) has_base_path: bool,
}

/// Review results of a cluster about Tributary's own account and about sample requests, with the results by the mirror
/// for comparison.
#[derive(Debug)]
pub(super) struct Evidence {
    /// Whether the mirrored roles allow Tributary's account to list roles and bindings.
    pub(super) may_read_roles: bool,
    pub(super) mirrored: Vec<CompiledRule>,
    pub(super) reviews: Vec<RulesReview>,
    /// A sample request that the mirror allows and the cluster denies.
    pub(super) refuted: Option<Sample>,
    /// A sample request that the mirror denies and the cluster allows.
    pub(super) open: Option<Sample>,
}

impl ClusterFacts {
    /// Returns a reason to use access reviews that follows from the properties of the cluster alone.
    pub(super) fn cause(self) -> Option<ReviewCause> {
        let openshift = self.serves_openshift.then_some(ReviewCause::OpenShift);
        openshift.or(self.has_base_path.then_some(ReviewCause::BasePath))
    }
}

/// Chooses the method. Tributary decides by roles only if no evidence speaks against them. A second authorizer of the
/// cluster shows in a list of rules that is incomplete or differs from the mirror, or in a sample request with a
/// different result.
pub(super) fn decide(evidence: &Evidence) -> Decider {
    let Evidence { may_read_roles, mirrored, reviews, refuted, open } = evidence;
    let mismatch = reviews.iter().find_map(|review| review.confirms_rules(mirrored).err()).map(ReviewCause::Rules);
    let not_by_roles = (!may_read_roles).then_some(ReviewCause::NotByRoles);
    let refuted = || refuted.as_ref().map(|sample| ReviewCause::Refuted(described(sample)));
    let open = || open.as_ref().map(|sample| ReviewCause::Open(described(sample)));
    let unasked = || reviews.is_empty().then_some(ReviewCause::Unanswered);
    match mismatch.or(not_by_roles).or_else(refuted).or_else(open).or_else(unasked) {
        Some(cause) => Decider::Review(cause),
        None => Decider::Rbac,
    }
}

fn described(sample: &Sample) -> String {
    let Sample { user: UserInfo { username, groups, .. }, verb, group, resource, subresource, namespace, name } =
        sample;
    let subject =
        if username.is_empty() { format!("group {:?}", groups.join(",")) } else { format!("user {username:?}") };
    let below = if subresource.is_empty() { String::new() } else { format!("/{subresource}") };
    let of_group = if group.is_empty() { String::new() } else { format!(".{group}") };
    let within = if namespace.is_empty() { String::new() } else { format!(" in {namespace:?}") };
    let named = if name.is_empty() { String::new() } else { format!(" {name:?}") };
    format!("{subject} {verb} {resource}{of_group}{below}{named}{within}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(verb: &str) -> CompiledRule {
        serde_json::from_str(&format!(r#"{{"verbs":["{verb}"],"apiGroups":[""],"resources":["pods"]}}"#)).unwrap()
    }

    /// A review result with one rule for each verb. The words `incomplete` and `error` set the fields of the same
    /// names.
    fn review(words: &str) -> RulesReview {
        let verbs = words.split(' ').filter(|word| !["", "incomplete", "error"].contains(word));
        let rules: Vec<_> =
            verbs.map(|verb| serde_json::json!({"verbs": [verb], "apiGroups": [""], "resources": ["pods"]})).collect();
        let error = if words.contains("error") { "no role" } else { "" };
        let status = serde_json::json!({"incomplete": words.contains("incomplete"), "evaluationError": error,
            "resourceRules": rules});
        RulesReview::parse(serde_json::json!({"status": status}).to_string().as_bytes()).unwrap()
    }

    #[test]
    fn decider_chooses_rbac_only_without_contrary_evidence() {
        let sample = Sample {
            user: UserInfo::with_groups("ann", &[]),
            verb: "get".to_owned(),
            group: "apps".to_owned(),
            resource: "deployments".to_owned(),
            subresource: "scale".to_owned(),
            namespace: "shop".to_owned(),
            name: String::new(),
        };
        let refuted = "user \"ann\" get deployments.apps/scale in \"shop\"".to_owned();
        let rules = |mismatch| Decider::Review(ReviewCause::Rules(mismatch));
        let rows: [(&str, &[&str], bool, bool, Decider); 11] = [
            // Only RBAC. In the second row, a second endpoint lists the verbs in a different order.
            ("get list", &["list get"], true, false, Decider::Rbac),
            ("get list", &["list get", "get list"], true, false, Decider::Rbac),
            // A webhook authorizer at one of two endpoints.
            ("get list", &["get list incomplete"], true, false, rules(ReviewMismatch::Incomplete)),
            ("get list", &["get list", "get list incomplete"], true, false, rules(ReviewMismatch::Incomplete)),
            ("get list", &["get list error"], true, false, rules(ReviewMismatch::EvaluationError)),
            // The ABAC or AlwaysAllow authorizer without RBAC. Such a server may still serve RBAC objects.
            ("get list", &["*"], true, false, rules(ReviewMismatch::Missing)),
            ("", &["*"], false, false, rules(ReviewMismatch::Additional)),
            // The ABAC authorizer without rules for Tributary's account.
            ("", &[""], false, false, Decider::Review(ReviewCause::NotByRoles)),
            // The AlwaysAllow authorizer in addition to RBAC.
            ("get", &["get *"], true, false, rules(ReviewMismatch::Additional)),
            ("get", &["get"], true, true, Decider::Review(ReviewCause::Refuted(refuted))),
            ("get", &[], true, false, Decider::Review(ReviewCause::Unanswered)),
        ];
        // The AlwaysAllow authorizer, and roles that grant Tributary's account all rights.
        let open = Evidence {
            may_read_roles: true,
            mirrored: vec![rule("*")],
            reviews: vec![review("*")],
            refuted: None,
            open: Some(sample.clone()),
        };
        assert!(matches!(decide(&open), Decider::Review(ReviewCause::Open(_))));
        assert_eq!(decide(&Evidence { open: None, ..open }), Decider::Rbac);
        for (mirrored, reviews, may_read_roles, is_refuted, expected) in rows {
            let evidence = Evidence {
                may_read_roles,
                mirrored: mirrored.split(' ').filter(|verb| !verb.is_empty()).map(rule).collect(),
                reviews: reviews.iter().map(|words| review(words)).collect(),
                refuted: is_refuted.then(|| sample.clone()),
                open: None,
            };
            assert_eq!(decide(&evidence), expected, "{mirrored} {reviews:?}");
        }
    }

    #[test]
    fn openshift_and_base_paths_always_need_access_reviews() {
        let of = |serves_openshift, has_base_path| ClusterFacts { serves_openshift, has_base_path }.cause();
        assert_eq!(of(false, false), None);
        assert_eq!(of(true, true), Some(ReviewCause::OpenShift));
        assert_eq!(of(false, true), Some(ReviewCause::BasePath));
    }
}
