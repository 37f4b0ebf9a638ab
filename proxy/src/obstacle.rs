//! The kinds of failure by which a member is lost.

/// An obstacle between us and a member's answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Obstacle {
    /// The network, or a member that is silent.
    Network,
    /// The server's certificate is not trusted.
    Trust,
    /// The member rejects our credentials.
    Rejection,
    /// No credentials can be had: a plugin is missing, or a file cannot be read.
    Credentials,
    /// The address speaks another protocol: plain HTTP, for example, where TLS is spoken here.
    Protocol,
}
