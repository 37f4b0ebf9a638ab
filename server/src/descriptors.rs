//! The limit of open file descriptors.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Raises the soft limit to the hard one, as Go's runtime does: shells give 1024 by default, and every connection of a
/// client or to a member takes one. No failure is fatal: the listener waits where descriptors run out.
pub fn raise_limit() {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    if current == maximum {
        return;
    }
    match setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }) {
        Ok(()) => tracing::debug!(?current, ?maximum, "the limit of open files is raised"),
        Err(error) => tracing::warn!(?current, ?maximum, %error, "the limit of open files cannot be raised"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_soft_limit_reaches_the_hard_one() {
        raise_limit();
        let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
        assert_eq!(current, maximum);
    }
}
