//! Parses RBAC objects (roles and bindings) in the form in which clusters store them.

use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;

use serde::Deserialize;
use tributary_apimachinery::SERVICE_ACCOUNT_USERNAME_PREFIX;
use tributary_apimachinery::json::null_is_default;

use crate::rule::{CompiledRule, rules};

/// The four kinds of `rbac.authorization.k8s.io/v1`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RbacKind {
    /// A Role, which grants permissions within one namespace.
    Role,
    /// A RoleBinding, which binds subjects to a Role or a ClusterRole within one namespace.
    RoleBinding,
    /// A ClusterRole, which grants permissions in the scope of its bindings. The rules of an aggregated ClusterRole are
    /// the rules that the cluster's controller has stored in the object.
    ClusterRole,
    /// A ClusterRoleBinding, which binds subjects to a ClusterRole in the whole cluster.
    ClusterRoleBinding,
}

impl RbacKind {
    /// The API group of the four RBAC kinds.
    pub const GROUP: &str = "rbac.authorization.k8s.io";

    /// The four RBAC kinds.
    pub const ALL: [Self; 4] = [Self::Role, Self::RoleBinding, Self::ClusterRole, Self::ClusterRoleBinding];

    /// The name of the kind, for example `RoleBinding`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Role => "Role",
            Self::RoleBinding => "RoleBinding",
            Self::ClusterRole => "ClusterRole",
            Self::ClusterRoleBinding => "ClusterRoleBinding",
        }
    }

    /// The plural resource name in paths, for example `rolebindings`.
    pub fn resource(self) -> &'static str {
        match self {
            Self::Role => "roles",
            Self::RoleBinding => "rolebindings",
            Self::ClusterRole => "clusterroles",
            Self::ClusterRoleBinding => "clusterrolebindings",
        }
    }

    /// Returns whether the kind is namespaced.
    pub fn is_namespaced(self) -> bool {
        matches!(self, Self::Role | Self::RoleBinding)
    }
}

impl fmt::Display for RbacKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The namespace (empty for cluster-scoped kinds) and the name of a role or a binding.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct NamespacedName {
    pub(crate) namespace: Arc<str>,
    pub(crate) name: Arc<str>,
}

impl NamespacedName {
    pub(crate) fn new(namespace: &str, name: &str) -> Self {
        Self { namespace: namespace.into(), name: name.into() }
    }

    pub(crate) fn is_namespaced(&self) -> bool {
        !self.namespace.is_empty()
    }
}

/// A subject of a binding. A cluster decides the number of subjects, so a subject is stored as only one string.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Subject {
    User(Arc<str>),
    Group(Arc<str>),
    ServiceAccount {
        user: Arc<str>,
        /// The length of the ServiceAccount's namespace within `user`, in bytes.
        namespace: u32,
    },
}

impl Subject {
    /// Returns the subject for a ServiceAccount; `None` if the namespace has 4 GiB or more.
    fn service_account(namespace: &str, name: &str) -> Option<Self> {
        let user = format!("{SERVICE_ACCOUNT_USERNAME_PREFIX}{namespace}:{name}").into();
        Some(Self::ServiceAccount { user, namespace: u32::try_from(namespace.len()).ok()? })
    }
}

impl fmt::Display for Subject {
    /// Formats the subject as kube-apiserver does: for a ServiceAccount the name precedes the namespace.
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

/// A RoleBinding, or a ClusterRoleBinding if the namespace in `key` is empty.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Binding {
    pub(crate) key: NamespacedName,
    /// The namespace and name of the role; `None` if the roleRef has an invalid kind. A binding without a role grants
    /// nothing.
    pub(crate) role: Option<NamespacedName>,
    pub(crate) subjects: Box<[Subject]>,
}

/// A role or a binding.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RbacObject(pub(crate) Content);

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Content {
    Role(NamespacedName, Vec<CompiledRule>),
    Binding(Binding),
}

/// A change of a role or a binding in a cluster.
#[derive(Clone, Debug)]
pub enum RbacChange {
    /// The object was added or updated. It replaces the object of the same kind, namespace and name.
    Put(RbacObject),
    /// The object was deleted, or its text cannot be parsed. In both cases the object grants nothing.
    Deleted {
        /// The kind of the object.
        kind: RbacKind,
        /// The namespace of the object; empty for cluster-scoped kinds.
        namespace: String,
        /// The name of the object.
        name: String,
    },
}

/// The reason why a text is not a valid role or binding. Invalid objects of a cluster are skipped and counted.
#[derive(Debug, thiserror::Error)]
pub enum InvalidRbacObject {
    /// The text is not JSON, or a field has another type than in `rbac.authorization.k8s.io/v1`.
    #[error("not a {kind}")]
    Fields {
        /// The expected kind.
        kind: RbacKind,
        /// The error of the JSON decoder.
        source: serde_json::Error,
    },
    /// The object's kind or apiVersion differs from the expected kind.
    #[error("the object has another kind or apiVersion than a {kind}")]
    Kind {
        /// The expected kind.
        kind: RbacKind,
    },
    /// The name is missing, a cluster-scoped object has a namespace, or a namespaced object has none.
    #[error("the {kind} has no name, or its namespace does not fit its kind")]
    Place {
        /// The expected kind.
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

/// A roleRef or a subject in a binding's JSON. Its `apiGroup` is ignored, because kube-apiserver checks it only when
/// the object is written, not when it authorizes.
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
    /// Parses an object of a known kind. The `kind` field may be missing, as in the items of a list.
    ///
    /// As in kube-apiserver, unknown fields, subjects of unknown kinds, and ServiceAccounts without a namespace in a
    /// ClusterRoleBinding are ignored. A binding to a role of an unknown kind is valid and grants nothing.
    ///
    /// # Errors
    /// [`InvalidRbacObject`] if a kube-apiserver would not have stored the object.
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
        let key = NamespacedName::new(namespace, name);
        Ok(Self(match kind {
            RbacKind::Role | RbacKind::ClusterRole => Content::Role(key, wire.rules),
            RbacKind::RoleBinding | RbacKind::ClusterRoleBinding => {
                let role = role_of(&wire.role_ref, namespace);
                Content::Binding(Binding { subjects: subjects_of(wire.subjects, namespace), role, key })
            }
        }))
    }

    /// The kind of the object.
    pub fn kind(&self) -> RbacKind {
        match (&self.0, self.key().is_namespaced()) {
            (Content::Role(..), false) => RbacKind::ClusterRole,
            (Content::Role(..), true) => RbacKind::Role,
            (Content::Binding(_), false) => RbacKind::ClusterRoleBinding,
            (Content::Binding(_), true) => RbacKind::RoleBinding,
        }
    }

    pub(crate) fn key(&self) -> &NamespacedName {
        match &self.0 {
            Content::Role(key, _) => key,
            Content::Binding(binding) => &binding.key,
        }
    }
}

/// Returns the namespace and name of the role that a roleRef names; `None` if the roleRef has an invalid kind, such as
/// a Role in a ClusterRoleBinding.
fn role_of(reference: &WireName, namespace: &str) -> Option<NamespacedName> {
    match reference.kind.as_str() {
        "ClusterRole" => Some(NamespacedName::new("", &reference.name)),
        "Role" if !namespace.is_empty() => Some(NamespacedName::new(namespace, &reference.name)),
        _ => None,
    }
}

/// Returns the subjects of known kinds without duplicates, in the order of the binding.
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
    fn rbac_parser_rejects_objects_that_kube_apiserver_rejects() {
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
    fn rbac_parser_ignores_fields_that_grant_nothing() {
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
            (RbacKind::ClusterRole, Content::Role(NamespacedName::new("", "a"), Vec::new()))
        );
    }

    #[test]
    fn service_account_subject_defaults_to_the_bindings_namespace() {
        let text = br#"{"metadata":{"name":"a","namespace":"n"},"roleRef":{"kind":"Role","name":"r"},"subjects":[
            {"kind":"ServiceAccount","name":"s"},{"kind":"ServiceAccount","name":"s","namespace":"m"}]}"#;
        let RbacObject(Content::Binding(binding)) = RbacObject::parse(RbacKind::RoleBinding, text).unwrap() else {
            panic!("no binding")
        };
        let account = |namespace: &str| Subject::service_account(namespace, "s").unwrap();
        assert_eq!(*binding.subjects, [account("n"), account("m")]);
        assert_eq!(binding.role, Some(NamespacedName::new("n", "r")));
        assert_eq!(account("m").to_string(), r#"ServiceAccount "s/m""#);
    }
}
