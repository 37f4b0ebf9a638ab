//! The limits of client connections.

/// The default limit of connections. Each connection costs tens of KiB and a file descriptor. A client opens one
/// connection over HTTP/2, and one more for each exec or port-forward. Further connections wait in the kernel's queue.
pub const CONNECTIONS_MAX: usize = 4096;

/// The divisor for the limit of unauthenticated connections. They may use a quarter of all connection slots: 1,024 of
/// 4,096. A client authenticates with its first request, some milliseconds after it connects. Therefore only a flood
/// produces many unauthenticated connections.
pub(crate) const UNAUTHENTICATED_DIVISOR: usize = 4;

/// The default of `--max-unread-bytes`: the unread bytes of answers to all clients together. With 256 MiB, 15
/// connections whose clients read nothing may have `CONNECTION_UNREAD_BYTES_MAX` each. All other connections share the
/// remaining bytes. An active reader has a few unread frames.
pub const UNREAD_BYTES_MAX: usize = 256 << 20;

/// The limit of unread bytes of one connection. 16 MiB are 1,024 frames of 16 KiB, or 16 large objects. An active
/// reader has a few unread frames.
pub(crate) const CONNECTION_UNREAD_BYTES_MAX: usize = 16 << 20;

/// The most headers of a request. An impersonating client sends one `Impersonate-Group` for each group, and hyper's
/// limit of 100 for HTTP/1.1 is too small. HTTP/2 itself has no limit: it encodes a repeated header in one byte, but
/// each header needs 100 bytes of memory.
pub(crate) const HEADERS_MAX: usize = 1000;

/// The limits of client connections.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// The most concurrent connections.
    pub connections: usize,
    /// The most unread bytes of answers to all clients together.
    pub unread_bytes: usize,
}

impl Default for Bounds {
    fn default() -> Self {
        Self { connections: CONNECTIONS_MAX, unread_bytes: UNREAD_BYTES_MAX }
    }
}
