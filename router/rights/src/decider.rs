//! Decision about the method by which rights in a cluster are decided. A pure function, tested by a table.

use tributary_authorization::{CompiledRule, Doubt, RulesReview, Sample};

/// The group by which OpenShift is known. The scopes of its tokens take rights away that roles give.
pub(super) const OPENSHIFT: &str = "authorization.openshift.io";

/// Method by which the rights of users in a cluster are decided.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum Decider {
    /// Not known yet: users see no objects.
    #[default]
    Undecided,
    /// By the cluster's roles and bindings in the mirror.
    Rbac,
    /// By the cluster's answers to access reviews.
    Review(ReviewCause),
}

/// Reason for which a cluster is asked by access reviews.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ReviewCause {
    /// The configuration demands it.
    #[error("its configuration says so")]
    Configured,
    /// OpenShift: scopes of tokens may remove rights of roles.
    #[error("it serves {OPENSHIFT}: scopes of tokens decide, too")]
    OpenShift,
    /// A server in front of the cluster may remove rights of roles.
    #[error("its address has a path: what stands there may judge requests by itself")]
    BasePath,
    /// The cluster's list of Tributary's own rules differs from its roles and bindings.
    #[error("{0}")]
    Rules(Doubt),
    /// Tributary may read the roles, but no role gives it this right.
    #[error("its roles and bindings do not let us read them, though it does: something else decides")]
    NotByRoles,
    /// The cluster denies a request that roles and bindings allow.
    #[error("it does not allow what its roles and bindings do: {0}")]
    Refuted(String),
    /// The cluster allows a request to a subject without any role.
    #[error("it allows what its roles and bindings do not: {0}")]
    Open(String),
    /// The cluster does not answer access reviews.
    #[error("it answers {resource} with {code}: our account needs the verb create on them")]
    NotLet {
        /// Resource of the question.
        resource: &'static str,
        /// HTTP status of the answer.
        code: u16,
    },
    /// The cluster has decided by roles, and has not confirmed it for a long time.
    #[error("it has not answered reviews for minutes")]
    Unanswered,
}

impl ReviewCause {
    /// Whether the difference may come from a delay of the mirror or of the cluster's own authorizer.
    pub(super) fn may_be_of_delay(&self) -> bool {
        match self {
            Self::Rules(doubt) => *doubt != Doubt::Incomplete,
            Self::NotByRoles | Self::Refuted(_) | Self::Open(_) => true,
            Self::Configured | Self::OpenShift | Self::BasePath | Self::NotLet { .. } | Self::Unanswered => false,
        }
    }
}

/// Facts about a cluster that need no question.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ClusterFacts {
    /// Whether the cluster serves [`OPENSHIFT`].
    pub(super) serves_openshift: bool,
    /// Whether an address of the cluster has a path.
    pub(super) has_base_path: bool,
}

/// Answers of a cluster about Tributary's own account and about samples, beside the mirror's.
#[derive(Debug)]
pub(super) struct Evidence {
    /// Whether the mirror lets our account read roles and bindings.
    pub(super) may_read_roles: bool,
    /// Rules of Tributary's account in the mirror.
    pub(super) mirrored: Vec<CompiledRule>,
    /// Rules that each endpoint lists.
    pub(super) reviews: Vec<RulesReview>,
    /// A sample that the mirror allows and the cluster denies.
    pub(super) refuted: Option<Sample>,
    /// Something that the mirror does not allow and the cluster does.
    pub(super) open: Option<Sample>,
}

impl ClusterFacts {
    /// Reason to ask the cluster without further evidence.
    pub(super) fn cause(self) -> Option<ReviewCause> {
        let openshift = self.serves_openshift.then_some(ReviewCause::OpenShift);
        openshift.or(self.has_base_path.then_some(ReviewCause::BasePath))
    }
}

/// Decides by evidence. RBAC counts only if all facts support it: a second authorizer shows in an incomplete or
/// different list of rules, or in a sample.
pub(super) fn decide(evidence: &Evidence) -> Decider {
    let Evidence { may_read_roles, mirrored, reviews, refuted, open } = evidence;
    let doubt = reviews.iter().find_map(|review| review.confirms_rules(mirrored).err()).map(ReviewCause::Rules);
    let not_by_roles = (!may_read_roles).then_some(ReviewCause::NotByRoles);
    let refuted = || refuted.as_ref().map(|sample| ReviewCause::Refuted(described(sample)));
    let open = || open.as_ref().map(|sample| ReviewCause::Open(described(sample)));
    let unasked = || reviews.is_empty().then_some(ReviewCause::Unanswered);
    match doubt.or(not_by_roles).or_else(refuted).or_else(open).or_else(unasked) {
        Some(cause) => Decider::Review(cause),
        None => Decider::Rbac,
    }
}

/// A sample for people.
fn described(sample: &Sample) -> String {
    let Sample { user, groups, verb, group, resource, subresource, namespace, name } = sample;
    let who = if user.is_empty() { format!("group {:?}", groups.join(",")) } else { format!("user {user:?}") };
    let below = if subresource.is_empty() { String::new() } else { format!("/{subresource}") };
    let of_group = if group.is_empty() { String::new() } else { format!(".{group}") };
    let within = if namespace.is_empty() { String::new() } else { format!(" in {namespace:?}") };
    let named = if name.is_empty() { String::new() } else { format!(" {name:?}") };
    format!("{who} {verb} {resource}{of_group}{below}{named}{within}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(verb: &str) -> CompiledRule {
        serde_json::from_str(&format!(r#"{{"verbs":["{verb}"],"apiGroups":[""],"resources":["pods"]}}"#)).unwrap()
    }

    /// A review with rules of these verbs; `incomplete` and `error` are words of their own.
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
    fn mirrored_roles_decide_only_without_any_doubt() {
        let sample = Sample {
            user: "ann".to_owned(),
            groups: Vec::new(),
            verb: "get".to_owned(),
            group: "apps".to_owned(),
            resource: "deployments".to_owned(),
            subresource: "scale".to_owned(),
            namespace: "shop".to_owned(),
            name: String::new(),
        };
        let refuted = "user \"ann\" get deployments.apps/scale in \"shop\"".to_owned();
        let rules = |doubt| Decider::Review(ReviewCause::Rules(doubt));
        let rows: [(&str, &[&str], bool, bool, Decider); 11] = [
            // RBAC, one endpoint and several.
            ("get list", &["list get"], true, false, Decider::Rbac),
            ("get list", &["list get", "get list"], true, false, Decider::Rbac),
            // A webhook, at one of two endpoints.
            ("get list", &["get list incomplete"], true, false, rules(Doubt::Incomplete)),
            ("get list", &["get list", "get list incomplete"], true, false, rules(Doubt::Incomplete)),
            ("get list", &["get list error"], true, false, rules(Doubt::EvaluationError)),
            // ABAC and AlwaysAllow without RBAC, on a server that may serve RBAC objects all the same.
            ("get list", &["*"], true, false, rules(Doubt::Missing)),
            ("", &["*"], false, false, rules(Doubt::Further)),
            // ABAC without rules for Tributary.
            ("", &[""], false, false, Decider::Review(ReviewCause::NotByRoles)),
            // AlwaysAllow beside RBAC.
            ("get", &["get *"], true, false, rules(Doubt::Further)),
            ("get", &["get"], true, true, Decider::Review(ReviewCause::Refuted(refuted))),
            ("get", &[], true, false, Decider::Review(ReviewCause::Unanswered)),
        ];
        // AlwaysAllow, where roles happen to give our account everything.
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
    fn openshift_and_base_paths_always_need_reviews() {
        let of = |serves_openshift, has_base_path| ClusterFacts { serves_openshift, has_base_path }.cause();
        assert_eq!(of(false, false), None);
        assert_eq!(of(true, true), Some(ReviewCause::OpenShift));
        assert_eq!(of(false, true), Some(ReviewCause::BasePath));
    }
}
