//! The paths without a resource that every kube-apiserver answers itself. What one cluster has at others is not known:
//! it may be more than a kube-apiserver.

/// Their first segments.
///
/// Sources: `pkg/server/routes` in kubernetes/apiserver, and what `pkg/routes` in Kubernetes adds.
const FIRST_SEGMENTS: [&str; 15] = [
    ".well-known",
    "api",
    "apis",
    "configz",
    "debug",
    "flagz",
    "healthz",
    "livez",
    "logs",
    "metrics",
    "openapi",
    "openid",
    "readyz",
    "statusz",
    "version",
];

/// Whether a path that is no resource's is one of them.
pub fn is_answered_by_kube_apiserver(path: &str) -> bool {
    path.trim_start_matches('/').split('/').next().is_some_and(|first| FIRST_SEGMENTS.contains(&first))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_begins_as_one_of_them_may_be_another() {
        for (path, expected) in [
            ("/api", true),
            ("/apis/", true),
            ("/apis/example.com/v1", true),
            ("/openapi/v3/apis/apps/v1", true),
            ("/healthz/etcd", true),
            ("/version", true),
            ("/apiary", false),
            ("/v1/subscribe", false),
            ("/k8s/clusters/c-x/api", false),
            ("/", false),
        ] {
            assert_eq!(is_answered_by_kube_apiserver(path), expected, "{path}");
        }
    }
}
