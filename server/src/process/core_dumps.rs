//! Prevents core dumps, which would contain credentials and the Secrets of all clusters.

use rustix::process::{DumpableBehavior, Resource, Rlimit, set_dumpable_behavior, setrlimit};

/// Forbids core dumps of this process and of its plugins. Also forbids access by other processes of the same user to
/// this process's memory (`ptrace`, `/proc/PID/mem`). A failure is logged.
pub fn forbid() {
    let limit = setrlimit(Resource::Core, Rlimit { current: Some(0), maximum: Some(0) });
    // The size limit of core dumps alone is not enough, because the kernel ignores the limit if it pipes core dumps to
    // a program.
    let forbidden = limit.and_then(|()| set_dumpable_behavior(DumpableBehavior::NotDumpable));
    if let Err(error) = forbidden {
        tracing::warn!(%error,
            "core dumps cannot be disabled; the memory of this process, with its secrets, may be written to disk if \
             the process crashes");
    }
}

#[cfg(test)]
mod tests {
    use rustix::process::{dumpable_behavior, getrlimit};

    use super::*;

    #[test]
    fn core_dumps_are_disabled() {
        forbid();
        assert_eq!(getrlimit(Resource::Core), Rlimit { current: Some(0), maximum: Some(0) });
        assert_eq!(dumpable_behavior(), Ok(DumpableBehavior::NotDumpable));
    }
}
