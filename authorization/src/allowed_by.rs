//! By what RBAC allows a request, and what keeps it from allowing one: the words after kube-apiserver's `RBAC:`.

use std::fmt;

use tributary_apimachinery::MASTERS_GROUP;
use tributary_apimachinery::status::go_quote;

use crate::object::{Binding, RbacKind, Subject};

/// By what a request is allowed.
#[derive(Clone, Copy, Debug)]
pub enum AllowedBy<'a> {
    /// A group that is allowed everything, whatever the roles say.
    Masters,
    /// A binding, and the first of its subjects that the user is.
    Binding(UserBinding<'a>),
}

/// A binding of a user. Shown in the words of kube-apiserver's `RBAC: allowed by …`.
#[derive(Clone, Copy, Debug)]
pub struct UserBinding<'a> {
    pub(crate) binding: &'a Binding,
    pub(crate) subject: &'a Subject,
}

impl<'a> UserBinding<'a> {
    /// The namespace of a RoleBinding; empty for a ClusterRoleBinding.
    pub fn namespace(&self) -> &'a str {
        &self.binding.place.namespace
    }

    /// The binding's name.
    pub fn name(&self) -> &'a str {
        &self.binding.place.name
    }

    /// That the role which it gives is not there, as kube-apiserver says it.
    pub fn role_not_found(&self) -> String {
        role_not_found(self.binding)
    }
}

/// That the role which a binding gives is not there, as kube-apiserver says it (`NewNotFound` of the lister's
/// resource).
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
    /// As kube-apiserver describes it: of a RoleBinding the name comes before the namespace.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Binding { place, role, .. } = self.binding;
        match &*place.namespace {
            "" => write!(f, "ClusterRoleBinding {:?}", &*place.name)?,
            namespace => write!(f, "RoleBinding \"{}/{namespace}\"", place.name)?,
        }
        if let Some(role) = role {
            let kind = if role.namespace.is_empty() { "ClusterRole" } else { "Role" };
            write!(f, " of {kind} {:?}", &*role.name)?;
        }
        write!(f, " to {}", self.subject)
    }
}
