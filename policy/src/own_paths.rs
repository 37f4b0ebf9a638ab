//! Paths at the merged view's root that pass no policies: the endpoint answers them itself, whatever policies say. A
//! cluster's own paths of these names are the cluster's, and pass its policies.

/// What the paths begin with that ask how the process does.
const HEALTH_CHECKS: [&str; 3] = ["healthz", "livez", "readyz"];

/// The other paths at which the process tells of itself.
pub const OWN_PATHS: [&str; 3] = ["/metrics", "/tributary/status", "/tributary/policy-test"];

/// Whether a path of the merged view asks how the process does.
pub fn is_health_check(path: &str) -> bool {
    let first = path.trim_start_matches('/').split('/').next();
    first.is_some_and(|first| HEALTH_CHECKS.contains(&first))
}

/// Whether a path of the merged view passes no policies.
pub fn passes_no_policies(path: &str) -> bool {
    is_health_check(path) || OWN_PATHS.contains(&path)
}

/// Whether every path of the merged view that begins so passes no policies.
pub(crate) fn all_below_pass_no_policies(beginning: &str) -> bool {
    is_health_check(beginning) && beginning.trim_start_matches('/').contains('/')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_endpoint_tells_of_itself_passes_no_policies() {
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
            assert_eq!(passes_no_policies(path), expected, "{path}");
        }
    }

    #[test]
    fn what_begins_as_a_path_of_its_own_may_be_another() {
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
            assert_eq!(all_below_pass_no_policies(beginning), expected, "{beginning}");
        }
    }
}
