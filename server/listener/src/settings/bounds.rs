//! What clients may have at most.

/// The most connections at once, where nothing else is asked for. Each costs tens of KiB, and a file descriptor; a
/// client holds one over HTTP/2 and one more per exec or port-forward. Beyond it connections wait in the kernel's
/// queue.
pub const CONNECTIONS_MAX: usize = 4096;

/// What part of all connections one user may have, and what part those may have together on whom nobody is known yet:
/// one in so many. A quarter, 1,024 of 4,096. A client holds one over HTTP/2, and one more for each exec or
/// port-forward; and it becomes known with its first request, some milliseconds after it connects, so few are strangers
/// at once unless somebody floods.
pub(crate) const CONNECTIONS_PART: usize = 4;

/// What part of all connections those users may have together for whom members alone vouch, their ServiceAccounts: one
/// in so many. A half, 2,048 of 4,096. Somebody who may make ServiceAccounts in one namespace makes as many users as
/// they like, so a bound for each of them is none. The users of one member have as many as they leave to those of other
/// members: a quarter of all where these have none, as much as one configured user. A program of a platform holds one
/// or two, so 2,048 are a thousand programs. Not more: a quarter may be connections on which nobody is known yet, as
/// each is at first, and what remains is for users whom this endpoint's own configuration knows.
pub(crate) const VOUCHED_CONNECTIONS_PART: usize = 2;

/// What part of the connections of all users of one member one of them leaves to the others: one in so many. A quarter,
/// 256 of 1,024: a program that opens connections by mistake keeps no other of its cluster out, and one that runs on
/// hundreds of nodes under one name still has 768.
pub(crate) const LEFT_BY_ACCOUNT_PART: usize = 4;

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
