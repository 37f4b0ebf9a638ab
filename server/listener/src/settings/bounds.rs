//! The limits for clients.

/// The default limit of connections. Each connection costs tens of KiB and a file descriptor. A client holds one over
/// HTTP/2 and one more for each exec or port-forward. Further connections wait in the kernel's queue.
pub const CONNECTIONS_MAX: usize = 4096;

/// The divisor for the connections without an authenticated request: a quarter of all, 1,024 of 4,096. A client
/// authenticates with its first request, some milliseconds after it connects, so few connections are unauthenticated
/// unless a client floods.
pub(crate) const CONNECTIONS_PART: usize = 4;

/// The default of `--max-unread-bytes`: the unread bytes of answers to all clients together. 256 MiB: 15 connections
/// that read nothing have `HELD_BYTES_MAX` each, and further ones share the rest. Clients that read have a few frames
/// each.
pub const UNREAD_BYTES_MAX: usize = 256 << 20;

/// The limit of the unread bytes of one connection. 16 MiB: 1,024 frames of 16 KiB, or 16 large objects. A client that
/// reads has a few frames.
pub(crate) const HELD_BYTES_MAX: usize = 16 << 20;

/// The most headers of a request: one `Impersonate-Group` per group; hyper's own 100 of HTTP/1.1 is too few. HTTP/2 has
/// no limit of its own. It encodes a repeated header in one byte, while each header takes 100 bytes of memory here.
pub(crate) const HEADERS_MAX: usize = 1000;

/// The limits for clients.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// The most connections at once.
    pub connections: usize,
    /// The most unread bytes of answers.
    pub unread_bytes: usize,
}

impl Default for Bounds {
    fn default() -> Self {
        Self { connections: CONNECTIONS_MAX, unread_bytes: UNREAD_BYTES_MAX }
    }
}
