//! The non-resource paths that each kube-apiserver answers itself. Any other path may be answered by a different
//! server, because a cluster's address may be that of a gateway in front of the kube-apiserver.

/// The first segments of the paths that a kube-apiserver answers itself.
///
/// Sources: `pkg/server/routes` in kubernetes/apiserver, and the additions of `pkg/routes` in Kubernetes.
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

/// Returns whether each kube-apiserver answers a non-resource path itself.
pub fn is_answered_by_kube_apiserver(path: &str) -> bool {
    path.trim_start_matches('/').split('/').next().is_some_and(|first| FIRST_SEGMENTS.contains(&first))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_path_segment_identifies_paths_answered_by_kube_apiserver() {
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
