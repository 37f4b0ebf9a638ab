//! The part of a request's filter that limits a walk to a range of keys, or to a range of an index.

/// The namespace, name and indexed field value of the selected objects. A scope shortens walks; the caller must still
/// filter the objects.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Scope<'a> {
    /// The namespace; `None` for all namespaces, and for cluster-scoped objects.
    pub namespace: Option<&'a str>,
    /// The name; `None` for all names.
    pub name: Option<&'a str>,
    /// The index of an indexed field in the decoder's list, and the required value.
    pub field: Option<(usize, &'a str)>,
}
