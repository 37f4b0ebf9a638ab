//! Paths of the merged view that Tributary answers itself, without policies. Below `/clusters/NAME`, paths of the same
//! form belong to the cluster, and the cluster's policies apply.

/// First segments of health-check paths.
const HEALTH_CHECKS: [&str; 3] = ["healthz", "livez", "readyz"];

/// Paths that Tributary answers itself, in addition to health checks.
pub const OWN_PATHS: [&str; 3] = ["/metrics", "/tributary/status", "/tributary/policy-test"];

/// Returns whether a path of the merged view is a health check.
pub fn is_health_check(path: &str) -> bool {
    let first = path.trim_start_matches('/').split('/').next();
    first.is_some_and(|first| HEALTH_CHECKS.contains(&first))
}

/// Returns whether Tributary answers this path of the merged view itself, without policies.
pub fn is_exempt_from_policies(path: &str) -> bool {
    is_health_check(path) || OWN_PATHS.contains(&path)
}

/// Returns whether Tributary answers itself, without policies, every path of the merged view that begins with this
/// prefix.
pub(crate) fn is_exempt_prefix(beginning: &str) -> bool {
    is_health_check(beginning) && beginning.trim_start_matches('/').contains('/')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn policies_do_not_apply_to_paths_that_tributary_answers_itself() {
        for (path, expected) in [
            ("/healthz", true),
            ("/readyz/cluster/eu", true),
            ("/livez/", true),
            ("/metrics", true),
            ("/tributary/status", true),
            ("/tributary/policy-test", true),
            ("/healthzz", false),
            ("/metrics/slis", false),
            ("/tributary", false),
            ("/version", false),
            ("/", false),
        ] {
            assert_eq!(is_exempt_from_policies(path), expected, "{path}");
        }
    }

    #[test]
    fn path_prefix_of_a_policy_matches_paths_besides_those_tributary_answers() {
        for (beginning, expected) in [
            ("/healthz/", true),
            ("/readyz/cluster/e", true),
            ("//livez/", true),
            ("/healthz", false),
            ("/metrics", false),
            ("/metrics/", false),
            ("/tributary/status", false),
            ("/", false),
            ("//", false),
        ] {
            assert_eq!(is_exempt_prefix(beginning), expected, "{beginning}");
        }
    }
}
