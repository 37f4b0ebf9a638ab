//! What this machine has no more of for another connection. It is no fault of the member's, and says nothing of it:
//! whoever uses it up is not to have everybody cut off.

use std::error::Error;
use std::io::{self, ErrorKind};

/// What is used up here, and what to do about it; both go into a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Exhaustion {
    pub(crate) what: &'static str,
    pub(crate) remedy: &'static str,
}

const PORTS: Exhaustion = Exhaustion {
    what: "this machine has no free local port for it",
    remedy: "have fewer connections opened to one address, or widen net.ipv4.ip_local_port_range",
};

const FILES_OF_PROCESS: Exhaustion = Exhaustion {
    what: "this process has as many files open as it may",
    remedy: "raise its limit of open files (ulimit -n, LimitNOFILE)",
};

const FILES_OF_MACHINE: Exhaustion =
    Exhaustion { what: "this machine has as many files open as it may", remedy: "raise fs.file-max" };

const MEMORY: Exhaustion = Exhaustion {
    what: "this machine has no memory for it",
    remedy: "give it more memory, or have fewer connections opened",
};

impl Exhaustion {
    /// What an error, or one of its causes, says that is used up here.
    pub(crate) fn of(error: &(dyn Error + 'static)) -> Option<Self> {
        let mut cause = Some(error);
        while let Some(error) = cause {
            let found = error.downcast_ref::<io::Error>().and_then(Self::of_io);
            if found.is_some() {
                return found;
            }
            cause = error.source();
        }
        None
    }

    /// EADDRNOTAVAIL, EMFILE, ENFILE, ENOBUFS and ENOMEM: what `socket` and `connect` say of the machine that asks.
    fn of_io(error: &io::Error) -> Option<Self> {
        match error.kind() {
            ErrorKind::AddrNotAvailable => Some(PORTS),
            ErrorKind::OutOfMemory => Some(MEMORY),
            // The others have no kind.
            _ => match error.raw_os_error()? {
                libc::EMFILE => Some(FILES_OF_PROCESS),
                libc::ENFILE => Some(FILES_OF_MACHINE),
                libc::ENOBUFS => Some(MEMORY),
                _ => None,
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As a connector wraps what the system says.
    #[derive(Debug, thiserror::Error)]
    #[error("tcp connect error")]
    struct Wrapped(#[source] io::Error);

    #[test]
    fn what_the_system_says_of_this_machine_is_told_from_what_it_says_of_the_other() {
        let of = |error: io::Error| {
            let bare = Exhaustion::of(&error);
            assert_eq!(Exhaustion::of(&Wrapped(error)), bare);
            bare
        };
        for (errno, expected) in [
            (libc::EADDRNOTAVAIL, Some(PORTS)),
            (libc::EMFILE, Some(FILES_OF_PROCESS)),
            (libc::ENFILE, Some(FILES_OF_MACHINE)),
            (libc::ENOBUFS, Some(MEMORY)),
            (libc::ENOMEM, Some(MEMORY)),
            (libc::ECONNREFUSED, None),
            (libc::ECONNRESET, None),
            (libc::EHOSTUNREACH, None),
            (libc::ENETUNREACH, None),
            (libc::ETIMEDOUT, None),
        ] {
            assert_eq!(of(io::Error::from_raw_os_error(errno)), expected, "{errno}");
        }
        assert_eq!(of(ErrorKind::AddrNotAvailable.into()), Some(PORTS));
        assert_eq!(of(io::Error::other("no such host")), None);
    }
}
