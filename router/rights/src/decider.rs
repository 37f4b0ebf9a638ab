//! By what it is decided what users may read of a cluster: a pure decision, so that a table can test it.

use tributary_authorization::{CompiledRule, Doubt, RulesReview, Sample};

/// The group by which OpenShift is known. The scopes of its tokens take rights away that roles give.
pub(super) const OPENSHIFT: &str = "authorization.openshift.io";

/// By what it is decided what users may read of a cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum Decider {
    /// That is not known yet: users are shown nothing.
    #[default]
    Undecided,
    /// By its roles and bindings, as the mirror has them.
    Rbac,
    /// By what it says when it is asked.
    Review(ReviewCause),
}

/// Why a cluster is asked.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ReviewCause {
    /// Somebody knows better.
    #[error("its configuration says so")]
    Configured,
    /// It may take away what roles give.
    #[error("it serves {OPENSHIFT}: scopes of tokens decide, too")]
    OpenShift,
    /// Whatever stands there may take away what roles give.
    #[error("its address has a path: what stands there may judge requests by itself")]
    BasePath,
    /// Its own list of our rights is not what roles and bindings give us.
    #[error("{0}")]
    Rules(Doubt),
    /// We read them, and nothing in them says that we may.
    #[error("its roles and bindings do not let us read them, though it does: something else decides")]
    NotByRoles,
    /// What roles and bindings allow is not allowed.
    #[error("it does not allow what its roles and bindings do: {0}")]
    Refuted(String),
    /// Somebody to whom nothing is given may do something.
    #[error("it allows what its roles and bindings do not: {0}")]
    Open(String),
    /// It does not answer such questions.
    #[error("it answers {resource} with {code}: our account needs the verb create on them")]
    NotLet {
        /// What was asked for.
        resource: &'static str,
        /// The HTTP status.
        code: u16,
    },
    /// It follows its roles, and has not said for long whether they decide.
    #[error("it has not answered reviews for minutes")]
    Unanswered,
}

impl ReviewCause {
    /// Whether it may only be that the mirror, or the server's own authorizer, is behind.
    pub(super) fn may_be_of_delay(&self) -> bool {
        match self {
            Self::Rules(doubt) => *doubt != Doubt::Incomplete,
            Self::NotByRoles | Self::Refuted(_) | Self::Open(_) => true,
            Self::Configured | Self::OpenShift | Self::BasePath | Self::NotLet { .. } | Self::Unanswered => false,
        }
    }
}

/// What is known of a cluster without asking it.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ClusterFacts {
    /// Whether it serves [`OPENSHIFT`].
    pub(super) serves_openshift: bool,
    /// Whether an address of it has a path.
    pub(super) has_base_path: bool,
}

/// What a cluster says of our own account, and of samples, beside what the mirror says.
#[derive(Debug)]
pub(super) struct Evidence {
    /// Whether the mirror lets our account read roles and bindings.
    pub(super) may_read_roles: bool,
    /// What the mirror gives our account.
    pub(super) mirrored: Vec<CompiledRule>,
    /// What each endpoint lists.
    pub(super) reviews: Vec<RulesReview>,
    /// A sample of what the mirror allows that the cluster does not.
    pub(super) refuted: Option<Sample>,
    /// Something that the mirror does not allow and the cluster does.
    pub(super) open: Option<Sample>,
}

impl ClusterFacts {
    /// Why it is asked whatever it says.
    pub(super) fn cause(self) -> Option<ReviewCause> {
        let openshift = self.serves_openshift.then_some(ReviewCause::OpenShift);
        openshift.or(self.has_base_path.then_some(ReviewCause::BasePath))
    }
}

/// Decides by evidence. RBAC is believed only where everything speaks for it: where another authorizer takes part it
/// shows in a review that is incomplete or lists other rules, or in a sample.
pub(super) fn decide(evidence: &Evidence) -> Decider {
    let Evidence { may_read_roles, mirrored, reviews, refuted, open } = evidence;
    let doubt = reviews.iter().find_map(|review| review.bears_out(mirrored).err()).map(ReviewCause::Rules);
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

    /// A review that lists rules of these verbs; `incomplete` and `error` as words of their own.
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
    fn roles_are_believed_only_where_everything_speaks_for_them() {
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
            // ABAC and AlwaysAllow without RBAC, whose objects may be served all the same.
            ("get list", &["*"], true, false, rules(Doubt::Missing)),
            ("", &["*"], false, false, rules(Doubt::Further)),
            // ABAC that lists nothing of ours.
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
    fn some_places_are_asked_whatever_they_say() {
        let of = |serves_openshift, has_base_path| ClusterFacts { serves_openshift, has_base_path }.cause();
        assert_eq!(of(false, false), None);
        assert_eq!(of(true, true), Some(ReviewCause::OpenShift));
        assert_eq!(of(false, true), Some(ReviewCause::BasePath));
    }
}
