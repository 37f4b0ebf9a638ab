//! By which binding a right comes.

use std::fmt;

use crate::object::{Binding, Subject};

/// Why a request is allowed.
#[derive(Clone, Copy, Debug)]
pub enum Ground<'a> {
    /// A group that is allowed everything, whatever the roles say.
    Masters,
    /// A binding, and the first of its subjects that the user is.
    Binding(BindingGround<'a>),
}

/// A binding of a user. Shown in the words of kube-apiserver's `RBAC: allowed by …`.
#[derive(Clone, Copy, Debug)]
pub struct BindingGround<'a> {
    pub(crate) binding: &'a Binding,
    pub(crate) subject: &'a Subject,
}

impl<'a> BindingGround<'a> {
    /// The namespace of a RoleBinding; empty for a ClusterRoleBinding.
    pub fn namespace(&self) -> &'a str {
        &self.binding.place.namespace
    }

    /// The binding's name.
    pub fn name(&self) -> &'a str {
        &self.binding.place.name
    }
}

impl fmt::Display for Ground<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Masters => f.write_str("Group \"system:masters\""),
            Self::Binding(ground) => ground.fmt(f),
        }
    }
}

impl fmt::Display for BindingGround<'_> {
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
