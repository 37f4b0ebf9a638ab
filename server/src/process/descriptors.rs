//! The limit of open file descriptors.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Raises the soft limit of file descriptors to the hard limit, as Go's runtime does. Shells set 1024 by default, and
/// every connection to a client or a member needs a descriptor. A failure is not fatal, because the listener waits when
/// descriptors run out.
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

/// Returns the limit of client connections: the requested number, but at most half of the file descriptors. The other
/// half is for connections to clusters.
pub fn limit_connections(asked: usize) -> usize {
    let Rlimit { current, .. } = getrlimit(Resource::Nofile);
    let half = current.and_then(|limit| usize::try_from(limit / 2).ok()).unwrap_or(usize::MAX).max(1);
    if half < asked {
        tracing::warn!(
            asked,
            given = half,
            "there are too few file descriptors for so many connections; raise `ulimit -n`"
        );
    }
    asked.min(half)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn client_connections_get_at_most_half_of_the_descriptors() {
        assert_eq!((limit_connections(1), limit_connections(2)), (1, 2));
        let limit = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
        assert!(limit_connections(usize::MAX) as u64 <= limit / 2 || limit == u64::MAX);
    }

    #[test]
    fn soft_descriptor_limit_is_raised_to_the_hard_limit() {
        raise_limit();
        let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
        assert_eq!(current, maximum);
    }
}
