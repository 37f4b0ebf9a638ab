//! The part of a request's selection that the order of keys, or an index, can decide.

/// Bounds on the positions of the selected objects, from the order of keys and an index. They save walks; the caller
/// must still filter the result.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Scope<'a> {
    /// The namespace; `None` for all, and for cluster-scoped objects.
    pub namespace: Option<&'a str>,
    /// The name; `None` for all names.
    pub name: Option<&'a str>,
    /// An indexed field by its index in the decoder's list, and the required value.
    pub field: Option<(usize, &'a str)>,
}
