//! The reasons of RBAC decisions, in the format of kube-apiserver (the text after `RBAC:`).

use std::fmt;

use tributary_apimachinery::MASTERS_GROUP;
use tributary_apimachinery::status::go_quote;

use crate::object::{Binding, RbacKind, Subject};

/// The reason why RBAC allows a user's request.
#[derive(Clone, Copy, Debug)]
pub enum AllowedBy<'a> {
    /// The user is in the group `system:masters`. This group may do everything, without any roles or bindings.
    Masters,
    /// A RoleBinding or ClusterRoleBinding grants the request.
    Binding(UserBinding<'a>),
}

/// A binding, and its subject that matches a user. `Display` formats the text of kube-apiserver's `RBAC: allowed by …`.
#[derive(Clone, Copy, Debug)]
pub struct UserBinding<'a> {
    pub(crate) binding: &'a Binding,
    pub(crate) subject: &'a Subject,
}

impl<'a> UserBinding<'a> {
    /// The namespace of a RoleBinding; empty for a ClusterRoleBinding.
    pub fn namespace(&self) -> &'a str {
        &self.binding.key.namespace
    }

    /// The name of the RoleBinding or ClusterRoleBinding.
    pub fn name(&self) -> &'a str {
        &self.binding.key.name
    }

    /// The error message of kube-apiserver for a binding whose role does not exist.
    pub fn role_not_found(&self) -> String {
        role_not_found(self.binding)
    }
}

/// Returns the message of kube-apiserver for a binding to a role that does not exist (`NewNotFound` with the resource
/// of the lister).
pub(crate) fn role_not_found(binding: &Binding) -> String {
    let Some(role) = &binding.role else { return "unsupported role reference kind".to_owned() };
    let resource = if role.namespace.is_empty() { "clusterrole" } else { "role" };
    format!("{resource}.{} {} not found", RbacKind::GROUP, go_quote(&role.name))
}

impl fmt::Display for AllowedBy<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Masters => write!(f, "Group {MASTERS_GROUP:?}"),
            Self::Binding(binding) => binding.fmt(f),
        }
    }
}

impl fmt::Display for UserBinding<'_> {
    /// Formats the binding as kube-apiserver does: for a RoleBinding the name precedes the namespace.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Binding { key, role, .. } = self.binding;
        match &*key.namespace {
            "" => write!(f, "ClusterRoleBinding {:?}", &*key.name)?,
            namespace => write!(f, "RoleBinding \"{}/{namespace}\"", key.name)?,
        }
        if let Some(role) = role {
            let kind = if role.namespace.is_empty() { "ClusterRole" } else { "Role" };
            write!(f, " of {kind} {:?}", &*role.name)?;
        }
        write!(f, " to {}", self.subject)
    }
}
