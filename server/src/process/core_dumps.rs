//! Keeps what this process holds out of core dumps: the Secrets of all clusters, and the credentials for them.

use rustix::process::{DumpableBehavior, Resource, Rlimit, set_dumpable_behavior, setrlimit};

/// Forbids core dumps of this process, and of the plugins that it starts; nor may another process of the same user look
/// into its memory (`ptrace`, `/proc/PID/mem`), which root still may. No failure is fatal, but it is said.
pub fn forbid() {
    let limit = setrlimit(Resource::Core, Rlimit { current: Some(0), maximum: Some(0) });
    // The limit alone is not enough: a core pattern with a pipe is not bound by it.
    let forbidden = limit.and_then(|()| set_dumpable_behavior(DumpableBehavior::NotDumpable));
    if let Err(error) = forbidden {
        tracing::warn!(%error, "core dumps cannot be forbidden; what this process holds may be written to disk if it crashes");
    }
}

#[cfg(test)]
mod tests {
    use rustix::process::{dumpable_behavior, getrlimit};

    use super::*;

    #[test]
    fn nothing_is_dumped() {
        forbid();
        assert_eq!(getrlimit(Resource::Core), Rlimit { current: Some(0), maximum: Some(0) });
        assert_eq!(dumpable_behavior(), Ok(DumpableBehavior::NotDumpable));
    }
}
