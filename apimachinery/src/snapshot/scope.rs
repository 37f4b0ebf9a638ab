//! Which part of a request's selection the order of keys, or an index, can decide.

/// Where the objects that a request wants can lie, as far as the order of keys and an index tell. Saves walks, decides
/// nothing: what is found is still to be filtered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Scope<'a> {
    /// The namespace; `None` for all, and for cluster-scoped objects.
    pub namespace: Option<&'a str>,
    /// The name; `None` for all.
    pub name: Option<&'a str>,
    /// An indexed field by its place in the decoder's list, and the value that it has to have.
    pub field: Option<(usize, &'a str)>,
}
