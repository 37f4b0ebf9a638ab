//! The refusals of a request because of its host.

/// The reason for refusing a request because of its host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HostRefusal {
    /// 400: the request names several hosts.
    Contradicting,
    /// 421: the connection was opened for another host.
    Misdirected,
    /// 503: the host is not configured.
    Unknown,
}
