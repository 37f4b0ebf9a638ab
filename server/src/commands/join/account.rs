//! Tributary's account in a cluster: the only source of the objects of `join` and of the manifests in `deploy/members`.
//! Without I/O.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tributary_apimachinery::built_in::built_in;
use tributary_authorization::RbacKind;

use super::resources::{IMPERSONATED_VERB_PREFIX, KnownResources, READS};
use crate::cli::{Profile, TokenLifetime};

/// The label of all objects that `join` creates.
pub(super) const MANAGED_BY: (&str, &str) = ("app.kubernetes.io/managed-by", "tributary");
/// The API group of users, uids and extras in RBAC rules for impersonation.
const AUTHENTICATION: &str = "authentication.k8s.io";
const SECRETS: &str = "secrets";
/// The annotation of the ClusterRole with the account's purpose.
const RECORD: &str = "tributary.dev/join";
/// The subresources of Kubernetes' own resources for which `get` is not a read.
const CONNECT_SUBRESOURCES: [&str; 4] = ["attach", "exec", "portforward", "proxy"];
/// The subresources of all other resources for which `get` is a read, as in custom resources (apiextensions-apiserver
/// `pkg/apiserver/customresource_handler.go`). Unknown subresources may be consoles.
const READ_SUBRESOURCES: [&str; 2] = ["scale", "status"];
/// API groups in which a metric's name takes the position of the resource and the subresource in a path
/// (kubernetes-sigs/custom-metrics-apiserver).
const METRICS: [&str; 2] = ["custom.metrics.k8s.io", "external.metrics.k8s.io"];
/// The paths that all users may `get`: the patterns of apiserver's role `system:discovery`.
const OPEN_PATHS: [&str; 11] = [
    "/api",
    "/api/*",
    "/apis",
    "/apis/*",
    "/healthz",
    "/livez",
    "/openapi",
    "/openapi/*",
    "/readyz",
    "/version",
    "/version/",
];

/// The impersonation rights of an account.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Impersonation {
    /// Impersonation is allowed only for the requests that the profile allows: constrained impersonation (KEP-5284),
    /// enabled in Kubernetes 1.36 and later.
    Constrained,
    /// Impersonation is allowed for all requests. The account then has the rights of every user.
    Any,
}

/// Tributary's account in a cluster: a ServiceAccount with its role and binding.
#[derive(Clone, Debug)]
pub struct Account {
    /// The name of the ServiceAccount, its ClusterRole and its ClusterRoleBinding.
    pub name: String,
    /// The namespace of the ServiceAccount.
    pub namespace: String,
    /// The purpose of the account, which determines its rights.
    pub purpose: Purpose,
}

/// The purpose of an account. The cluster stores the purpose, so that a later `join` needs no flags.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Purpose {
    /// The requests that users may make through the account.
    pub profile: Profile,
    /// The impersonation rights of the account.
    pub impersonation: Impersonation,
    /// True if the account may impersonate uids.
    pub uid: bool,
    /// The extras that the account may impersonate.
    pub extra: Vec<String>,
    /// True if the account may create TokenReviews.
    pub tokens: bool,
    /// The lifetime of the account's token. A permanent token is stored in a Secret.
    pub token_lifetime: TokenLifetime,
}

impl Purpose {
    /// Reads the stored purpose from an account's ClusterRole; returns `None` without one.
    pub(super) fn recorded(role: &Value) -> Option<Self> {
        serde_json::from_str(role["metadata"]["annotations"][RECORD].as_str()?).ok()
    }

    /// Serializes the account's purpose for the annotation of its ClusterRole.
    fn record(&self) -> String {
        json!(self).to_string()
    }

    /// Returns the flag and the value of each setting in the purpose.
    pub(super) fn choices(&self) -> [(&'static str, String); 6] {
        let impersonation = match self.impersonation {
            Impersonation::Constrained => "constrained",
            Impersonation::Any => "any",
        };
        [
            ("profile", self.profile.as_str().to_owned()),
            ("impersonation", impersonation.to_owned()),
            ("impersonate-uid", self.uid.to_string()),
            ("impersonate-extra", self.extra.join(",")),
            ("tokens", self.tokens.to_string()),
            ("token-lifetime", self.token_lifetime.to_string()),
        ]
    }
}

impl Account {
    /// Returns all objects of the account, in the order of their creation.
    pub fn objects(&self, known: &KnownResources) -> Vec<Value> {
        let Self { name, namespace, .. } = self;
        let mut objects = vec![
            json!({"apiVersion": "v1", "kind": "Namespace", "metadata": self.metadata(namespace, None)}),
            json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": self.metadata(name, Some(namespace))}),
        ];
        if self.purpose.token_lifetime == TokenLifetime::Permanent {
            let mut metadata = self.metadata(name, Some(namespace));
            metadata["annotations"] = json!({"kubernetes.io/service-account.name": name});
            let kind = "kubernetes.io/service-account-token";
            objects.push(json!({"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "type": kind}));
        }
        let (version, group) = (format!("{}/v1", RbacKind::GROUP), RbacKind::GROUP);
        let mut metadata = self.metadata(name, None);
        metadata["annotations"] = json!({RECORD: self.purpose.record()});
        objects.push(
            json!({"apiVersion": version, "kind": "ClusterRole", "metadata": metadata, "rules": self.rules(known)}),
        );
        objects.push(
            json!({"apiVersion": version, "kind": "ClusterRoleBinding", "metadata": self.metadata(name, None),
            "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": name},
            "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": namespace}]}),
        );
        objects
    }

    fn metadata(&self, name: &str, namespace: Option<&str>) -> Value {
        let mut metadata = json!({"name": name, "labels": {MANAGED_BY.0: MANAGED_BY.1}});
        if let Some(namespace) = namespace {
            metadata["namespace"] = namespace.into();
        }
        metadata
    }

    /// Returns the number of cached resources and the number of their API groups.
    pub fn count_kinds(&self, known: &KnownResources) -> (usize, usize) {
        let held: Vec<_> =
            known.iter().filter(|(group, resource, verbs)| self.is_cached(group, resource, verbs)).collect();
        (held.len(), held.iter().map(|(group, ..)| group).collect::<BTreeSet<_>>().len())
    }

    fn is_cached(&self, group: &str, resource: &str, verbs: &BTreeSet<String>) -> bool {
        let is_secret = (group, resource) == ("", SECRETS);
        let is_followed = verbs.contains("list") && verbs.contains("watch") && !resource.contains('/');
        is_followed && (!is_secret || self.purpose.profile == Profile::ReadWithSecrets)
    }

    /// Returns the rules of the account's ClusterRole.
    pub fn rules(&self, known: &KnownResources) -> Vec<Value> {
        let mut rules = RuleSet::default();
        for (group, resource, verbs) in known.iter() {
            if self.is_cached(group, resource, verbs) {
                rules.allow(group, resource, ["list", "watch"]);
            }
            if self.purpose.impersonation == Impersonation::Constrained {
                let passed = verbs.iter().filter(|verb| self.allows_request(group, resource, verb));
                rules.allow(group, resource, passed.map(|verb| format!("{IMPERSONATED_VERB_PREFIX}{verb}")));
            }
        }
        // Tributary computes from roles and bindings which cached objects a user may read.
        for resource in ["clusterrolebindings", "clusterroles", "rolebindings", "roles"] {
            rules.allow(RbacKind::GROUP, resource, ["list", "watch"]);
        }
        rules.allow("authorization.k8s.io", "subjectaccessreviews", ["create"]);
        self.impersonate(&mut rules);
        let mut rules = rules.written();
        // The uid of this namespace identifies the cluster.
        rules.push(
            json!({"apiGroups": [""], "resources": ["namespaces"], "resourceNames": ["kube-system"], "verbs": ["get"]}),
        );
        if self.purpose.impersonation == Impersonation::Constrained {
            rules.push(json!({"nonResourceURLs": OPEN_PATHS, "verbs": [format!("{IMPERSONATED_VERB_PREFIX}get")]}));
        }
        if self.purpose.tokens {
            rules.push(json!({"nonResourceURLs": ["/openid/v1/jwks"], "verbs": ["get"]}));
        }
        rules
    }

    /// Returns whether the account's profile lets users make a request. The users' own rights must allow the request,
    /// too.
    fn allows_request(&self, group: &str, resource: &str, verb: &str) -> bool {
        let is_read = READS.contains(&verb) && is_reading(group, resource);
        match self.purpose.profile {
            Profile::Read => is_read && (group, resource) != ("", SECRETS),
            Profile::ReadWithSecrets => is_read,
            Profile::Write => true,
        }
    }

    fn impersonate(&self, rules: &mut RuleSet) {
        let Purpose { impersonation, uid, extra, tokens, .. } = &self.purpose;
        let (group, verb) = match impersonation {
            Impersonation::Constrained => (AUTHENTICATION, "impersonate:user-info"),
            Impersonation::Any => ("", "impersonate"),
        };
        ["users", "groups"].iter().for_each(|resource| rules.allow(group, resource, [verb]));
        let extras = extra.iter().map(|key| format!("userextras/{key}"));
        extras.chain(uid.then(|| "uids".to_owned())).for_each(|it| rules.allow(AUTHENTICATION, &it, [verb]));
        if *impersonation == Impersonation::Constrained {
            // With every profile, users may create reviews of their own rights.
            let create = || [format!("{IMPERSONATED_VERB_PREFIX}create")];
            rules.allow(AUTHENTICATION, "selfsubjectreviews", create());
            rules.allow("authorization.k8s.io", "selfsubjectaccessreviews", create());
            rules.allow("authorization.k8s.io", "selfsubjectrulesreviews", create());
        }
        if *tokens {
            rules.allow(AUTHENTICATION, "tokenreviews", ["create"]);
            // A user that is a ServiceAccount of the cluster is impersonated with its own name, uid and extras.
            rules.allow("", "serviceaccounts", ["impersonate"]);
            let own = ["credential-id", "node-name", "node-uid", "pod-name", "pod-uid"];
            own.iter().for_each(|key| {
                rules.allow(AUTHENTICATION, &format!("userextras/authentication.kubernetes.io/{key}"), ["impersonate"]);
            });
            rules.allow(AUTHENTICATION, "uids", ["impersonate"]);
        }
    }
}

/// Returns whether `get`, `list` and `watch` of `resource`, or of `resource/subresource`, only read.
fn is_reading(group: &str, resource: &str) -> bool {
    match resource.split_once('/') {
        None => true,
        Some((above, below)) if built_in(group, above).is_some() => !CONNECT_SUBRESOURCES.contains(&below),
        Some((_, below)) => READ_SUBRESOURCES.contains(&below) || METRICS.contains(&group),
    }
}

/// Verbs by group and resource. Resources of one group share a rule if their verbs are equal.
#[derive(Default)]
struct RuleSet(BTreeMap<String, BTreeMap<String, BTreeSet<String>>>);

impl RuleSet {
    fn allow(&mut self, group: &str, resource: &str, verbs: impl IntoIterator<Item = impl Into<String>>) {
        let own = self.0.entry(group.to_owned()).or_default().entry(resource.to_owned()).or_default();
        own.extend(verbs.into_iter().map(Into::into));
    }

    fn written(self) -> Vec<Value> {
        let rules = self.0.into_iter().flat_map(|(group, resources)| {
            let mut by_verbs: BTreeMap<BTreeSet<String>, Vec<String>> = BTreeMap::new();
            for (resource, verbs) in resources.into_iter().filter(|(_, verbs)| !verbs.is_empty()) {
                by_verbs.entry(verbs).or_default().push(resource);
            }
            let rule = move |(verbs, resources)| json!({"apiGroups": [group], "resources": resources, "verbs": verbs});
            by_verbs.into_iter().map(rule).collect::<Vec<_>>()
        });
        rules.collect()
    }
}

#[cfg(test)]
mod tests {
    use tributary_apimachinery::ClusterName;
    use tributary_apimachinery::UserInfo;
    use tributary_authorization::{Attributes, Fleet, RbacObject, ResourceAttributes};

    use super::*;

    fn account(profile: Profile, impersonation: Impersonation) -> Account {
        let name = || "tributary".to_owned();
        let extra = vec!["example.com/team".to_owned()];
        let (uid, tokens, token_lifetime) = (false, false, TokenLifetime::Permanent);
        let purpose = Purpose { profile, impersonation, uid, extra, tokens, token_lifetime };
        Account { name: name(), namespace: name(), purpose }
    }

    #[test]
    fn account_purpose_is_read_back_from_its_role() {
        let minutes = TokenLifetime::Ends(std::time::Duration::from_secs(600));
        for (profile, impersonation, token_lifetime) in [
            (Profile::Read, Impersonation::Constrained, TokenLifetime::Permanent),
            (Profile::ReadWithSecrets, Impersonation::Any, minutes),
            (Profile::Write, Impersonation::Constrained, minutes),
        ] {
            let mut made = account(profile, impersonation);
            made.purpose = Purpose { token_lifetime, uid: true, ..made.purpose };
            let objects = made.objects(&KnownResources::usual());
            let role = objects.iter().find(|object| object["kind"] == "ClusterRole").unwrap();
            assert_eq!(Purpose::recorded(role), Some(made.purpose));
        }
        assert_eq!(Purpose::recorded(&json!({"metadata": {"annotations": {RECORD: "{}"}}})), None);
        assert_eq!(Purpose::recorded(&Value::Null), None);
    }

    /// A `get` of a custom subresource may open a console, as in KubeVirt.
    #[test]
    fn get_of_an_unknown_custom_subresource_is_not_a_read() {
        for (group, resource, expected) in [
            ("", "pods", true),
            ("", "pods/log", true),
            ("", "pods/exec", false),
            ("", "nodes/proxy", false),
            ("certificates.k8s.io", "certificatesigningrequests/approval", true),
            ("subresources.kubevirt.io", "virtualmachineinstances", true),
            ("subresources.kubevirt.io", "virtualmachineinstances/console", false),
            ("subresources.kubevirt.io", "virtualmachineinstances/vnc", false),
            ("shop.example", "carts/status", true),
            ("shop.example", "carts/scale", true),
            ("custom.metrics.k8s.io", "pods/http_requests", true),
        ] {
            assert_eq!(is_reading(group, resource), expected, "{group} {resource}");
        }
    }

    /// Returns RBAC's decision about a request of the account.
    fn allows(account: &Account, verb: &str, [group, resource, name]: [&str; 3]) -> bool {
        let (here, mut fleet) = (ClusterName::new("here").unwrap(), Fleet::default());
        for object in account.objects(&KnownResources::usual()) {
            let kind = match object["kind"].as_str().unwrap() {
                "ClusterRole" => RbacKind::ClusterRole,
                "ClusterRoleBinding" => RbacKind::ClusterRoleBinding,
                _ => continue,
            };
            fleet.upsert(&here, RbacObject::parse(kind, object.to_string().as_bytes()).unwrap());
        }
        let (resource, subresource) = resource.split_once('/').unwrap_or((resource, ""));
        let (version, namespace) = ("v1", "shop");
        let asked = ResourceAttributes { verb, group, version, resource, subresource, namespace, name };
        let user = &UserInfo::with_groups("system:serviceaccount:tributary:tributary", &[]);
        fleet.allows(&here, user, &Attributes::Resource(asked))
    }

    #[test]
    fn account_profile_determines_the_granted_verbs() {
        use Impersonation::{Any, Constrained};
        use Profile::{Read, ReadWithSecrets, Write};
        let on = |verb: &str| format!("impersonate-on:user-info:{verb}");
        let rows: [(&str, [&str; 3], [bool; 4]); 20] = [
            ("list", ["", "pods", ""], [true, true, true, true]),
            ("watch", ["apps", "deployments", ""], [true, true, true, true]),
            ("get", ["", "pods", "x"], [false, false, false, false]),
            ("list", ["", "secrets", ""], [false, true, false, false]),
            ("create", ["", "pods", ""], [false, false, false, false]),
            ("list", ["rbac.authorization.k8s.io", "roles", ""], [true, true, true, true]),
            ("create", ["authorization.k8s.io", "subjectaccessreviews", ""], [true, true, true, true]),
            ("get", ["", "namespaces", "kube-system"], [true, true, true, true]),
            ("get", ["", "namespaces", "shop"], [false, false, false, false]),
            ("impersonate", ["", "users", "ann"], [false, false, false, true]),
            ("impersonate:user-info", ["authentication.k8s.io", "groups", "dev"], [true, true, true, false]),
            (&on("get"), ["", "pods/log", "x"], [true, true, true, false]),
            (&on("get"), ["", "pods/exec", "x"], [false, false, true, false]),
            (&on("list"), ["", "secrets", ""], [false, true, true, false]),
            (&on("get"), ["", "nodes/proxy", "n"], [false, false, true, false]),
            (&on("create"), ["", "pods/binding", "x"], [false, false, true, false]),
            (
                &on("update"),
                ["certificates.k8s.io", "certificatesigningrequests/approval", "x"],
                [false, false, true, false],
            ),
            (&on("create"), ["", "pods", ""], [false, false, true, false]),
            (&on("deletecollection"), ["", "configmaps", ""], [false, false, true, false]),
            (&on("create"), ["authorization.k8s.io", "selfsubjectaccessreviews", ""], [true, true, true, false]),
        ];
        let accounts = [(Read, Constrained), (ReadWithSecrets, Constrained), (Write, Constrained), (Write, Any)];
        for (verb, what, expected) in rows {
            let found = accounts.map(|(profile, impersonation)| allows(&account(profile, impersonation), verb, what));
            assert_eq!(found, expected, "{verb} {what:?}");
        }
    }

    #[test]
    fn account_rules_contain_no_wildcards() {
        for (profile, impersonation) in
            Profile::ALL.into_iter().zip([Impersonation::Constrained, Impersonation::Any, Impersonation::Constrained])
        {
            let tokens = impersonation == Impersonation::Any;
            let mut account = account(profile, impersonation);
            account.purpose = Purpose { uid: true, tokens, ..account.purpose };
            for rule in account.rules(&KnownResources::usual()) {
                for field in ["verbs", "apiGroups", "resources"] {
                    let words = rule[field].as_array().into_iter().flatten();
                    assert!(words.clone().all(|word| !word.as_str().unwrap().contains('*')), "{rule}");
                }
            }
        }
    }
}
