//! Classes of failures that put a member out of reach.

/// A class of failures. `tributary status` has a word for each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Obstacle {
    /// No connection, or no answer on it.
    Network,
    /// The server's certificate is not trusted.
    Trust,
    /// The member rejects our credentials.
    Rejection,
    /// A credential plugin is missing or fails, or a file cannot be read.
    Credentials,
    /// The address speaks another protocol, such as plain HTTP for a URL with `https://`.
    Protocol,
}
