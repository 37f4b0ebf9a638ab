//! Why a host is answered nothing.

/// Why a request is answered nothing of what it asks for, by its host alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HostRefusal {
    /// It names several hosts: 400.
    Contradicting,
    /// Its connection was opened for another host: 421.
    Misdirected,
    /// Nobody has that host: 503.
    Unknown,
}
