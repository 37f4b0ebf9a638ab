//! Roles and bindings, as a cluster stores them.

use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;

use serde::Deserialize;
use tributary_apimachinery::SERVICE_ACCOUNT_USERNAME_PREFIX;
use tributary_apimachinery::json::null_is_default;

use crate::rule::{CompiledRule, rules};

/// The kinds of `rbac.authorization.k8s.io/v1`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RbacKind {
    /// Rules within one namespace.
    Role,
    /// Gives a role within one namespace.
    RoleBinding,
    /// Rules for wherever they are bound. Those of an aggregated one are what the cluster's controller has stored.
    ClusterRole,
    /// Gives a ClusterRole everywhere.
    ClusterRoleBinding,
}

impl RbacKind {
    /// The API group of all of them.
    pub const GROUP: &str = "rbac.authorization.k8s.io";

    /// All of them.
    pub const ALL: [Self; 4] = [Self::Role, Self::RoleBinding, Self::ClusterRole, Self::ClusterRoleBinding];

    /// The kind's name.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Role => "Role",
            Self::RoleBinding => "RoleBinding",
            Self::ClusterRole => "ClusterRole",
            Self::ClusterRoleBinding => "ClusterRoleBinding",
        }
    }

    /// The resource, as in a path.
    pub fn resource(self) -> &'static str {
        match self {
            Self::Role => "roles",
            Self::RoleBinding => "rolebindings",
            Self::ClusterRole => "clusterroles",
            Self::ClusterRoleBinding => "clusterrolebindings",
        }
    }

    /// Whether its objects live in namespaces.
    pub fn is_namespaced(self) -> bool {
        matches!(self, Self::Role | Self::RoleBinding)
    }
}

impl fmt::Display for RbacKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Where a role or a binding is: its namespace, empty for the kinds that have none, and its name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct ObjectPlace {
    pub(crate) namespace: Arc<str>,
    pub(crate) name: Arc<str>,
}

impl ObjectPlace {
    pub(crate) fn new(namespace: &str, name: &str) -> Self {
        Self { namespace: namespace.into(), name: name.into() }
    }

    /// Whether it is one of a kind whose objects live in namespaces.
    pub(crate) fn is_namespaced(&self) -> bool {
        !self.namespace.is_empty()
    }
}

/// Whom a binding names. A cluster says how many there are, so each takes one text and no more.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Subject {
    User(Arc<str>),
    Group(Arc<str>),
    ServiceAccount {
        user: Arc<str>,
        /// The bytes of its namespace.
        namespace: u32,
    },
}

impl Subject {
    /// A ServiceAccount; `None` where its namespace is as long as none can be.
    fn service_account(namespace: &str, name: &str) -> Option<Self> {
        let user = format!("{SERVICE_ACCOUNT_USERNAME_PREFIX}{namespace}:{name}").into();
        Some(Self::ServiceAccount { user, namespace: u32::try_from(namespace.len()).ok()? })
    }
}

impl fmt::Display for Subject {
    /// As kube-apiserver describes it: of a ServiceAccount the name comes before the namespace.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::User(name) => write!(f, "User {name:?}"),
            Self::Group(name) => write!(f, "Group {name:?}"),
            Self::ServiceAccount { user, namespace } => {
                let own = user.get(SERVICE_ACCOUNT_USERNAME_PREFIX.len()..).unwrap_or_default();
                let (namespace, rest) = own.split_at_checked(*namespace as usize).unwrap_or_default();
                write!(f, "ServiceAccount \"{}/{namespace}\"", rest.strip_prefix(':').unwrap_or_default())
            }
        }
    }
}

/// A binding: to whom which role is given. A place with a namespace is a RoleBinding's.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Binding {
    pub(crate) place: ObjectPlace,
    /// The place of its role; `None` for a kind of role that there is not, which grants nothing.
    pub(crate) role: Option<ObjectPlace>,
    pub(crate) subjects: Box<[Subject]>,
}

/// A role or a binding.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RbacObject(pub(crate) Content);

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Content {
    Role(ObjectPlace, Vec<CompiledRule>),
    Binding(Binding),
}

/// One change of a cluster's roles and bindings.
#[derive(Clone, Debug)]
pub enum RbacChange {
    /// It is there, as it is now, in place of one of its kind, namespace and name.
    Put(RbacObject),
    /// It is not there, or cannot be read: then it allows nothing.
    Gone {
        /// Its kind.
        kind: RbacKind,
        /// Its namespace; empty for the kinds that have none.
        namespace: String,
        /// Its name.
        name: String,
    },
}

/// Why a text is no role or binding. Whoever mirrors a cluster skips and counts it.
#[derive(Debug, thiserror::Error)]
pub enum InvalidRbacObject {
    /// No JSON, or a field has another type than in `rbac.authorization.k8s.io/v1`.
    #[error("not a {kind}")]
    Fields {
        /// What was expected.
        kind: RbacKind,
        /// The decoder's error.
        source: serde_json::Error,
    },
    /// The object says that it is of another kind, or of another API.
    #[error("a {kind} was expected, and not another kind or apiVersion")]
    Kind {
        /// What was expected.
        kind: RbacKind,
    },
    /// No name, or a namespace where none can be, or none where one must be.
    #[error("a {kind} has a name, and a namespace only if its kind has one")]
    Place {
        /// What was expected.
        kind: RbacKind,
    },
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct WireObject {
    #[serde(deserialize_with = "null_is_default")]
    api_version: String,
    #[serde(deserialize_with = "null_is_default")]
    kind: String,
    #[serde(deserialize_with = "null_is_default")]
    metadata: WireMetadata,
    #[serde(deserialize_with = "rules")]
    rules: Vec<CompiledRule>,
    #[serde(deserialize_with = "null_is_default")]
    role_ref: WireName,
    #[serde(deserialize_with = "null_is_default")]
    subjects: Vec<WireName>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct WireMetadata {
    #[serde(deserialize_with = "null_is_default")]
    namespace: String,
    #[serde(deserialize_with = "null_is_default")]
    name: String,
}

/// A roleRef or a subject. Neither's `apiGroup` counts: kube-apiserver checks it when the object is written, and not
/// when it decides.
#[derive(Default, Deserialize)]
#[serde(default)]
struct WireName {
    #[serde(deserialize_with = "null_is_default")]
    kind: String,
    #[serde(deserialize_with = "null_is_default")]
    namespace: String,
    #[serde(deserialize_with = "null_is_default")]
    name: String,
}

impl RbacObject {
    /// Reads an object of a known kind; items of a list do not say their kind themselves.
    ///
    /// What kube-apiserver ignores when it decides is ignored: unknown fields, subjects of kinds that there are not,
    /// ServiceAccounts without a namespace in a ClusterRoleBinding. A role of an unknown kind is read, and grants
    /// nothing.
    ///
    /// # Errors
    /// [`InvalidRbacObject`], for what no kube-apiserver would have stored.
    pub fn parse(kind: RbacKind, text: &[u8]) -> Result<Self, InvalidRbacObject> {
        let wire: WireObject =
            serde_json::from_slice(text).map_err(|source| InvalidRbacObject::Fields { kind, source })?;
        let other = |own: &str, expected: &str| !own.is_empty() && own != expected;
        if other(&wire.kind, kind.as_str()) || other(&wire.api_version, "rbac.authorization.k8s.io/v1") {
            return Err(InvalidRbacObject::Kind { kind });
        }
        let WireMetadata { namespace, name } = &wire.metadata;
        if name.is_empty() || namespace.is_empty() == kind.is_namespaced() {
            return Err(InvalidRbacObject::Place { kind });
        }
        let place = ObjectPlace::new(namespace, name);
        Ok(Self(match kind {
            RbacKind::Role | RbacKind::ClusterRole => Content::Role(place, wire.rules),
            RbacKind::RoleBinding | RbacKind::ClusterRoleBinding => {
                let role = role_of(&wire.role_ref, namespace);
                Content::Binding(Binding { subjects: subjects_of(wire.subjects, namespace), role, place })
            }
        }))
    }

    /// The object's kind.
    pub fn kind(&self) -> RbacKind {
        match (&self.0, self.place().is_namespaced()) {
            (Content::Role(..), false) => RbacKind::ClusterRole,
            (Content::Role(..), true) => RbacKind::Role,
            (Content::Binding(_), false) => RbacKind::ClusterRoleBinding,
            (Content::Binding(_), true) => RbacKind::RoleBinding,
        }
    }

    /// Where it is.
    pub(crate) fn place(&self) -> &ObjectPlace {
        match &self.0 {
            Content::Role(place, _) => place,
            Content::Binding(binding) => &binding.place,
        }
    }
}

/// Where a binding's role is. A ClusterRoleBinding of a Role names one in no namespace: there is none.
fn role_of(reference: &WireName, namespace: &str) -> Option<ObjectPlace> {
    match reference.kind.as_str() {
        "ClusterRole" => Some(ObjectPlace::new("", &reference.name)),
        "Role" if !namespace.is_empty() => Some(ObjectPlace::new(namespace, &reference.name)),
        _ => None,
    }
}

/// The subjects that can be somebody, each once, in the order of the binding.
fn subjects_of(subjects: Vec<WireName>, binding_namespace: &str) -> Box<[Subject]> {
    let mut seen = HashSet::new();
    let subject = |subject: WireName| match subject.kind.as_str() {
        "User" => Some(Subject::User(subject.name.into())),
        "Group" => Some(Subject::Group(subject.name.into())),
        "ServiceAccount" => {
            let own = if subject.namespace.is_empty() { binding_namespace } else { &subject.namespace };
            (!own.is_empty()).then(|| Subject::service_account(own, &subject.name)).flatten()
        }
        _ => None,
    };
    subjects.into_iter().filter_map(subject).filter(|subject| seen.insert(subject.clone())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_kube_apiserver_would_not_have_stored_is_refused() {
        let refused: [(RbacKind, &[u8]); 14] = [
            (RbacKind::Role, b""),
            (RbacKind::Role, b"null"),
            (RbacKind::Role, b"[]"),
            (RbacKind::Role, b"\xff{}"),
            (RbacKind::Role, b"{}"),
            (RbacKind::Role, br#"{"metadata":{"name":"a"}}"#),
            (RbacKind::ClusterRole, br#"{"metadata":{"name":"a","namespace":"n"}}"#),
            (RbacKind::ClusterRole, br#"{"metadata":{"name":""}}"#),
            (RbacKind::ClusterRole, br#"{"kind":"Role","metadata":{"name":"a"}}"#),
            (RbacKind::ClusterRole, br#"{"apiVersion":"v1","metadata":{"name":"a"}}"#),
            (RbacKind::ClusterRole, br#"{"metadata":{"name":"a"},"rules":{}}"#),
            (RbacKind::ClusterRole, br#"{"metadata":{"name":"a"},"rules":[{"verbs":"get"}]}"#),
            (RbacKind::ClusterRole, br#"{"metadata":{"name":"a"},"rules":[{"verbs":[1]}]}"#),
            (RbacKind::ClusterRoleBinding, br#"{"metadata":{"name":"a"},"subjects":[{"kind":"User","name":{}}]}"#),
        ];
        for (kind, text) in refused {
            let read = RbacObject::parse(kind, text);
            assert!(read.is_err(), "{kind} {:?}: {read:?}", String::from_utf8_lossy(text));
        }
        let deep = format!(r#"{{"metadata":{{"name":"a"}},"x":{}}}"#, "[".repeat(100_000));
        assert!(RbacObject::parse(RbacKind::ClusterRole, deep.as_bytes()).is_err());
    }

    #[test]
    fn what_counts_for_nothing_is_left_out() {
        let text = br#"{"metadata":{"name":"a","labels":null},"roleRef":null,"unknown":[{}],"subjects":[
            {"kind":"Robot","name":"r"},{"kind":"ServiceAccount","name":"s"},{"kind":"user","name":"u"},
            {"kind":"User","name":"u","apiGroup":"example.io"},{"kind":"User","name":"u"}]}"#;
        let RbacObject(Content::Binding(binding)) = RbacObject::parse(RbacKind::ClusterRoleBinding, text).unwrap()
        else {
            panic!("no binding")
        };
        assert_eq!((binding.subjects, binding.role), ([Subject::User("u".into())].into(), None));
        let nothing = br#"{"metadata":{"name":"a"},"rules":null,"aggregationRule":{"clusterRoleSelectors":[{}]}}"#;
        let read = RbacObject::parse(RbacKind::ClusterRole, nothing).unwrap();
        assert_eq!(
            (read.kind(), read.0),
            (RbacKind::ClusterRole, Content::Role(ObjectPlace::new("", "a"), Vec::new()))
        );
    }

    #[test]
    fn a_service_account_is_of_the_bindings_namespace_unless_it_says() {
        let text = br#"{"metadata":{"name":"a","namespace":"n"},"roleRef":{"kind":"Role","name":"r"},"subjects":[
            {"kind":"ServiceAccount","name":"s"},{"kind":"ServiceAccount","name":"s","namespace":"m"}]}"#;
        let RbacObject(Content::Binding(binding)) = RbacObject::parse(RbacKind::RoleBinding, text).unwrap() else {
            panic!("no binding")
        };
        let account = |namespace: &str| Subject::service_account(namespace, "s").unwrap();
        assert_eq!(*binding.subjects, [account("n"), account("m")]);
        assert_eq!(binding.role, Some(ObjectPlace::new("n", "r")));
        assert_eq!(account("m").to_string(), r#"ServiceAccount "s/m""#);
    }
}
