//! For how long a client reads.

/// For how long somebody reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lifetime {
    /// A list, or one object: a namespace that is not there has nothing.
    Once,
    /// A watch: the namespace may come.
    Follows,
}
