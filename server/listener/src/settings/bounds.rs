//! What clients may have at most.

/// The most connections at once, where nothing else is asked for. Each costs tens of KiB, and a file descriptor; a
/// client holds one over HTTP/2 and one more per exec or port-forward. Beyond it connections wait in the kernel's
/// queue.
pub const CONNECTIONS_MAX: usize = 4096;

/// The part of all connections that may be without an authenticated request: one in so many. A quarter, 1,024 of 4,096.
/// A client becomes known with its first request, some milliseconds after it connects, so few connections are without
/// one unless somebody floods.
pub(crate) const CONNECTIONS_PART: usize = 4;

/// The default of `--max-unread-bytes`: the unread bytes of answers to all clients together. 256 MiB: 15 connections
/// that read nothing at all have `HELD_BYTES_MAX` each of it, further ones share the rest. Clients that read have a few
/// frames each.
pub const UNREAD_BYTES_MAX: usize = 256 << 20;

/// The unread bytes of answers to one connection. 16 MiB: 256 frames of long answers, or 16 large objects; a client
/// that reads has a few under way.
pub(crate) const HELD_BYTES_MAX: usize = 16 << 20;

/// The most headers of a request: one `Impersonate-Group` per group; hyper's own 100 of HTTP/1.1 is too few. HTTP/2 has
/// no bound of its own, and says a header that was sent before in one byte, while each takes 100 here.
pub(crate) const HEADERS_MAX: usize = 1000;

/// What clients may have at most.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// Connections at once.
    pub connections: usize,
    /// Bytes that were answered and are not taken.
    pub unread_bytes: usize,
}

impl Default for Bounds {
    fn default() -> Self {
        Self { connections: CONNECTIONS_MAX, unread_bytes: UNREAD_BYTES_MAX }
    }
}
