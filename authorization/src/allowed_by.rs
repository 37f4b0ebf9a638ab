//! By what RBAC allows a request: the words after kube-apiserver's `RBAC: allowed by`.

use std::fmt;

use crate::object::{Binding, Subject};

/// By what a request is allowed.
#[derive(Clone, Copy, Debug)]
pub enum AllowedBy<'a> {
    /// A group that is allowed everything, whatever the roles say.
    Masters,
    /// A binding, and the first of its subjects that the user is.
    Binding(AllowingBinding<'a>),
}

/// A binding of a user. Shown in the words of kube-apiserver's `RBAC: allowed by …`.
#[derive(Clone, Copy, Debug)]
pub struct AllowingBinding<'a> {
    pub(crate) binding: &'a Binding,
    pub(crate) subject: &'a Subject,
}

impl<'a> AllowingBinding<'a> {
    /// The namespace of a RoleBinding; empty for a ClusterRoleBinding.
    pub fn namespace(&self) -> &'a str {
        &self.binding.place.namespace
    }

    /// The binding's name.
    pub fn name(&self) -> &'a str {
        &self.binding.place.name
    }
}

impl fmt::Display for AllowedBy<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Masters => f.write_str("Group \"system:masters\""),
            Self::Binding(binding) => binding.fmt(f),
        }
    }
}

impl fmt::Display for AllowingBinding<'_> {
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
