//! Classes of failures that make a member unreachable.

/// Class of a failure that makes a member unreachable. `tributary status` prints one word for each class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailureClass {
    /// No connection, or no response on the connection.
    Network,
    /// The server's certificate is not trusted.
    Trust,
    /// The member rejects Tributary's credentials.
    Rejection,
    /// A credential plugin is missing or fails, or a file is unreadable.
    Credentials,
    /// The server speaks another protocol, for example plain HTTP at an `https://` URL.
    Protocol,
    /// The configuration leads to an address that the process refuses.
    Address,
}
