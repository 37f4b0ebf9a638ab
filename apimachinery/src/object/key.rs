//! An object's key within one resource of one cluster.

use std::fmt;

/// An object's key within one resource of one cluster: `namespace/name`, or `name` where the resource
/// is cluster-scoped.
///
/// Keys order as etcd's do: by the bytes of the joined text, which is the order of a kube-apiserver's lists.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectKey(Box<str>);

impl ObjectKey {
    /// Joins a namespace (empty for cluster-scoped objects) and a name.
    pub fn new(namespace: &str, name: &str) -> Self {
        if namespace.is_empty() { Self(name.into()) } else { Self(format!("{namespace}/{name}").into()) }
    }

    /// The joined text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The namespace; empty for cluster-scoped objects.
    pub fn namespace(&self) -> &str {
        self.0.split_once('/').map_or("", |(namespace, _)| namespace)
    }

    /// The name.
    pub fn name(&self) -> &str {
        self.0.split_once('/').map_or(&self.0, |(_, name)| name)
    }
}

impl fmt::Display for ObjectKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for ObjectKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

impl std::borrow::Borrow<str> for ObjectKey {
    fn borrow(&self) -> &str {
        &self.0
    }
}
