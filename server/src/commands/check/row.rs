//! Describes a user's rights on one resource of one cluster. Without I/O.

use std::collections::BTreeMap;

use tributary_apimachinery::text::printable;
use tributary_apimachinery::{ClusterAuthorization, ClusterName, UserInfo};
use tributary_authorization::{Attributes, Fleet, ResourceAttributes, UserBinding, Visible};

use crate::cli::GroupResource;

/// The most namespaces and object names that are listed with their bindings. The report contains only the number of
/// further entries.
pub(super) const LISTED_NAMESPACES_MAX: usize = 10;

/// A cluster's answer to access reviews about `list` requests of a user.
#[derive(Clone, Debug, Default)]
pub(super) struct ClusterAnswer {
    /// True if the user may list all namespaces.
    pub(super) all: bool,
    /// For each namespace: true if the user may list all objects in the namespace.
    pub(super) within: BTreeMap<String, bool>,
    /// The number of namespaces in which roles grant rights, but for which no access review was sent.
    pub(super) unreviewed: usize,
    /// True if the endpoint's account may cache the resource, or list it with impersonation.
    pub(super) is_reached: bool,
}

/// A resource of a cluster, and the user whose rights are described.
#[derive(Clone, Copy)]
pub(super) struct CheckRow<'a> {
    pub(super) fleet: &'a Fleet,
    pub(super) cluster: &'a ClusterName,
    /// The method by which Tributary decides about users' rights on the cluster's cached objects.
    pub(super) authorization: ClusterAuthorization,
    pub(super) user: &'a UserInfo,
    pub(super) of: &'a GroupResource,
    /// True if the resource is namespaced; `None` if the cluster does not serve it.
    pub(super) namespaced: Option<bool>,
}

impl CheckRow<'_> {
    /// Returns the namespaces in which the user may list all objects, according to roles and bindings.
    pub(super) fn proposed(&self) -> Vec<String> {
        match (self.visible(), self.namespaced) {
            (Visible::Part(part), Some(true)) => part.namespaces.iter().map(ToString::to_string).collect(),
            _ => Vec::new(),
        }
    }

    fn visible(&self) -> Visible {
        self.fleet.rights(self.cluster, self.user, "list", &self.of.group, &self.of.resource)
    }

    /// Returns the bindings that allow the user to list this namespace or object.
    fn by(&self, namespace: &str, name: &str) -> String {
        let GroupResource { group, resource } = self.of;
        let asked =
            ResourceAttributes { verb: "list", group, resource, namespace, name, ..ResourceAttributes::default() };
        let allowed_by = self.fleet.allowed_by(self.cluster, self.user, &Attributes::Resource(asked));
        allowed_by.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
    }

    /// Returns the lines of the report, one for each namespace or object name.
    pub(super) fn lines(&self, answer: &ClusterAnswer) -> String {
        let mut places = match (self.namespaced, self.authorization) {
            (None, _) => vec!["not served".to_owned()],
            (Some(_), ClusterAuthorization::Review | ClusterAuthorization::Live) => self.lines_by_reviews(answer),
            (Some(_), ClusterAuthorization::Auto | ClusterAuthorization::Rbac) => self.places(),
        };
        let more = places.len().saturating_sub(LISTED_NAMESPACES_MAX);
        if more > 1 {
            places.truncate(LISTED_NAMESPACES_MAX);
            places.push(format!("and {more} more namespaces or names"));
        }
        places.extend(self.contradiction(answer).map(str::to_owned));
        let sees = !places.is_empty() && self.namespaced.is_some();
        if sees && self.authorization == ClusterAuthorization::Live {
            places.push(format!("only under /clusters/{}: lists of all clusters omit these objects", self.cluster));
        }
        if sees && !answer.is_reached {
            places.push(format!(
                "but not through Tributary: the profile of Tributary's account lacks this right (tributary join \
                 CONTEXT --name {} --profile {})",
                self.cluster,
                if self.of.group.is_empty() && self.of.resource == "secrets" { "read-with-secrets" } else { "read" }
            ));
        }
        if places.is_empty() {
            places.push("nothing".to_owned());
        }
        let label = self.of.to_string();
        let lines = places.iter().enumerate().map(|(at, place)| {
            let label = if at == 0 { label.as_str() } else { "" };
            format!("  {label:<28} {}\n", printable(place))
        });
        lines.collect()
    }

    /// Returns a note if the cluster's answer contradicts its roles and bindings. Always returns `None` if the
    /// configured method does not use roles and bindings.
    fn contradiction(&self, answer: &ClusterAnswer) -> Option<&'static str> {
        let is_whole = self.namespaced.is_some() && self.visible() == Visible::Whole;
        match (self.authorization, answer.all, is_whole) {
            (ClusterAuthorization::Review | ClusterAuthorization::Live, ..) => None,
            (ClusterAuthorization::Rbac, true, false) => Some(
                "all, according to the cluster's answer: not by its roles, which alone decide by the configuration",
            ),
            (ClusterAuthorization::Auto, true, false) => {
                Some("all, according to the cluster's answer: not by its roles")
            }
            (_, false, true) => Some("the cluster's answer differs: a different authorizer than its roles decides"),
            _ => None,
        }
    }

    /// Returns the lines of the report that follow from the cluster's answer.
    fn lines_by_reviews(&self, answer: &ClusterAnswer) -> Vec<String> {
        if answer.all {
            return vec!["all, according to the cluster's answer".to_owned()];
        }
        let within = answer.within.iter().filter(|(_, allowed)| **allowed);
        let within = within.map(|(namespace, _)| format!("in {namespace}, according to the cluster's answer"));
        let unreviewed = (answer.unreviewed > 0)
            .then(|| format!("and perhaps in {} more namespaces, which were not checked", answer.unreviewed));
        within.chain(unreviewed).collect()
    }

    /// Returns the lines of the report that follow from roles and bindings. Each line names the bindings. RoleBindings
    /// grant no rights on cluster-scoped resources.
    fn places(&self) -> Vec<String> {
        let Visible::Part(part) = self.visible() else { return vec![format!("all, by {}", self.by("", ""))] };
        let named = part.names.iter().map(|name| format!("the one named {name}, by {}", self.by("", name)));
        if self.namespaced != Some(true) {
            return named.collect();
        }
        let within = part.namespaces.iter().map(|namespace| format!("in {namespace}, by {}", self.by(namespace, "")));
        let both =
            part.names_within.iter().flat_map(|(namespace, names)| names.iter().map(move |name| (namespace, name)));
        let both = both
            .map(|(namespace, name)| format!("the one named {name} in {namespace}, by {}", self.by(namespace, name)));
        within.chain(named).chain(both).collect()
    }
}

/// Returns the lines of the report about bindings of a user to missing roles.
pub(super) fn without_role(fleet: &Fleet, cluster: &ClusterName, user: &UserInfo) -> String {
    let bindings = fleet.without_role(cluster, user);
    let line = |binding: &UserBinding<'_>| format!("{binding} gives nothing: {}", binding.role_not_found());
    let mut lines: Vec<_> = bindings.iter().take(LISTED_NAMESPACES_MAX).map(line).collect();
    let more = bindings.len() - lines.len();
    if more > 0 {
        lines.push(format!("and {more} more bindings give nothing"));
    }
    lines.iter().map(|line| format!("  {}\n", printable(line))).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};
    use tributary_authorization::{RbacKind, RbacObject};

    use super::*;

    const RBAC: &str = "rbac.authorization.k8s.io";

    fn eu() -> ClusterName {
        ClusterName::new("eu").unwrap()
    }

    /// The user ann has a role in twelve namespaces, and the group dev has roles in the whole cluster.
    fn fleet() -> Fleet {
        let mut fleet = Fleet::default();
        let mut put = |kind: RbacKind, object: Value| {
            fleet.upsert(&eu(), RbacObject::parse(kind, object.to_string().as_bytes()).unwrap());
        };
        let rules = json!([{"verbs": ["list"], "apiGroups": [""], "resources": ["pods"]},
            {"verbs": ["list"], "apiGroups": [""], "resources": ["nodes"], "resourceNames": ["n1"]}]);
        put(RbacKind::ClusterRole, json!({"metadata": {"name": "reader"}, "rules": rules}));
        let nodes = json!([{"verbs": ["list"], "apiGroups": [""], "resources": ["nodes"]}]);
        put(RbacKind::ClusterRole, json!({"metadata": {"name": "nodes"}, "rules": nodes}));
        let role = |name: &str| json!({"kind": "ClusterRole", "name": name, "apiGroup": RBAC});
        let ann = json!([{"kind": "User", "name": "ann", "apiGroup": RBAC}]);
        for namespace in 0..12 {
            let metadata = json!({"name": "own", "namespace": format!("n{namespace:02}")});
            put(RbacKind::RoleBinding, json!({"metadata": metadata, "roleRef": role("reader"), "subjects": ann}));
        }
        let metadata = json!({"name": "nodes", "namespace": "n00"});
        put(RbacKind::RoleBinding, json!({"metadata": metadata, "roleRef": role("nodes"), "subjects": ann}));
        let dev = json!([{"kind": "Group", "name": "dev", "apiGroup": RBAC}]);
        let everywhere = json!({"metadata": {"name": "dev"}, "roleRef": role("reader"), "subjects": dev});
        put(RbacKind::ClusterRoleBinding, everywhere);
        fleet
    }

    /// Returns the report's lines for `who`: a user, or `USER/GROUP`. `answer` is the cluster's answer to the access
    /// reviews.
    fn lines(who: &str, resource: &str, authorization: ClusterAuthorization, answer: &ClusterAnswer) -> String {
        let (name, group) = who.split_once('/').unwrap_or((who, ""));
        let groups: Vec<_> = Some(group.to_owned()).filter(|group| !group.is_empty()).into_iter().collect();
        let (fleet, cluster, of) = (fleet(), eu(), resource.parse().unwrap());
        let namespaced = match resource {
            "nodes" => Some(false),
            "carts.shop.example" => None,
            _ => Some(true),
        };
        let user = &UserInfo::with_groups(name, &groups);
        CheckRow { fleet: &fleet, cluster: &cluster, authorization, user, of: &of, namespaced }.lines(answer)
    }

    fn answer(all: bool) -> ClusterAnswer {
        ClusterAnswer { all, is_reached: true, ..ClusterAnswer::default() }
    }

    #[test]
    fn rights_report_names_the_binding_for_each_namespace() {
        use ClusterAuthorization::Auto;
        let pods = lines("ann", "pods", Auto, &answer(false));
        let first = "in n00, by RoleBinding \"own/n00\" of ClusterRole \"reader\" to User \"ann\"";
        assert!(pods.contains(first), "{pods}");
        assert!(
            pods.lines().count() == LISTED_NAMESPACES_MAX + 1 && pods.contains("and 2 more namespaces or names"),
            "{pods}"
        );
        for (who, resource, all, expected) in [
            ("bob/dev", "pods", true, "pods                         all, by ClusterRoleBinding \"dev\""),
            ("bob/dev", "nodes", false, "the one named n1, by ClusterRoleBinding"),
            ("eve", "deployments.apps", false, "deployments.apps             nothing"),
            ("eve", "pods", true, "according to the cluster's answer: not by its roles"),
            ("bob/dev", "pods", false, "the cluster's answer differs"),
            ("eve", "carts.shop.example", false, "carts.shop.example           not served"),
        ] {
            let told = lines(who, resource, Auto, &answer(all));
            assert!(told.contains(expected), "{told}");
        }
    }

    #[test]
    fn binding_to_a_missing_role_is_reported() {
        let mut fleet = fleet();
        let subjects = json!([{"kind": "User", "name": "eve", "apiGroup": RBAC}]);
        for (kind, namespace, role) in
            [(RbacKind::ClusterRoleBinding, None, "ClusterRole"), (RbacKind::RoleBinding, Some("n00"), "Role")]
        {
            let reference = json!({"kind": role, "name": "no-such", "apiGroup": RBAC});
            let metadata = json!({"name": "a", "namespace": namespace});
            let object = json!({"metadata": metadata, "roleRef": reference, "subjects": subjects});
            fleet.upsert(&eu(), RbacObject::parse(kind, object.to_string().as_bytes()).unwrap());
        }
        let told = |name| without_role(&fleet, &eu(), &UserInfo::with_groups(name, &[]));
        let expected = [
            r#"ClusterRoleBinding "a" of ClusterRole "no-such" to User "eve" gives nothing: clusterrole.rbac.authorization.k8s.io "no-such" not found"#,
            r#"RoleBinding "a/n00" of Role "no-such" to User "eve" gives nothing: role.rbac.authorization.k8s.io "no-such" not found"#,
        ];
        assert_eq!(told("eve"), expected.map(|line| format!("  {line}\n")).concat());
        assert_eq!(told("ann"), "");
    }

    #[test]
    fn role_binding_grants_no_cluster_scoped_resources() {
        let told = lines("ann", "nodes", ClusterAuthorization::Auto, &answer(false));
        assert_eq!(told, "  nodes                        nothing\n");
    }

    #[test]
    fn rights_report_states_the_authorization_mode_of_the_cluster() {
        use ClusterAuthorization::{Live, Rbac, Review};
        let within = [("n00".to_owned(), true), ("n01".to_owned(), false)].into();
        let some = ClusterAnswer { within, unreviewed: 3, ..answer(false) };
        for (authorization, answer, expected, not) in [
            (Review, &some, "in n00, according to the cluster's answer", "n01"),
            (Review, &some, "and perhaps in 3 more namespaces", "n01"),
            (Review, &answer(true), "all, according to the cluster's answer", "RoleBinding"),
            (Review, &answer(false), "nothing", "n00"),
            (Live, &answer(true), "only under /clusters/eu: lists of all clusters omit these objects", "RoleBinding"),
            (Live, &answer(false), "nothing", "/clusters/eu"),
            (Rbac, &answer(true), "which alone decide by the configuration", "otherwise"),
        ] {
            let told = lines("ann", "pods", authorization, answer);
            assert!(told.contains(expected) && !told.contains(not), "{authorization:?}: {told}");
        }
    }

    #[test]
    fn rights_report_names_resources_beyond_the_account_profile() {
        let unreached = ClusterAnswer { is_reached: false, ..answer(true) };
        let told = lines("bob/dev", "pods", ClusterAuthorization::Auto, &unreached);
        assert!(told.contains("but not through Tributary") && told.contains("--name eu --profile read)"), "{told}");
        let nothing = lines("eve", "deployments.apps", ClusterAuthorization::Auto, &ClusterAnswer::default());
        assert!(!nothing.contains("endpoint"), "{nothing}");
    }
}
