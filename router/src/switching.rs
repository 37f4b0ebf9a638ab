//! Decision whether a request may switch its connection to a different protocol.
//!
//! A request with `Upgrade` gets its own connection to the cluster. kube-apiserver ignores `Upgrade` on paths that
//! never switch protocols, so Tributary removes the header there. Otherwise any request with the header would cost the
//! cluster a TLS handshake. For unknown paths and resources of a cluster, Tributary does not remove the header.

use http::HeaderMap;
use http::header::UPGRADE;
use tributary_apimachinery::request_info::kube_apiserver_paths::is_answered_by_kube_apiserver;
use tributary_apimachinery::{RequestInfo, Verb};
use tributary_proxy::headers::upgrade_protocol;

/// Returns whether a request asks to switch protocols, by the same rules as the code that forwards requests. Removes
/// `Upgrade` from a request whose path cannot switch protocols.
pub(crate) fn asks_to_switch(headers: &mut HeaderMap, info: &RequestInfo) -> bool {
    if !matches!(upgrade_protocol(headers), Ok(Some(_))) {
        return false;
    }
    let may_switch = may_be_switched(info);
    if !may_switch {
        headers.remove(UPGRADE);
    }
    may_switch
}

/// Returns whether a cluster may switch protocols for a request. Watches and logs can be read over WebSocket (apiserver
/// `pkg/endpoints/handlers/watch.go`, `responsewriters/writers.go`), and exec, attach and port-forward need a switch.
/// The protocols of aggregated servers are unknown. kube-apiserver never switches on its own non-resource paths. Other
/// paths of a named cluster are unknown, because a cluster may be more than a kube-apiserver. Rancher opens
/// `/v1/subscribe`, and has its own clusters below `/k8s/clusters/`; kcp has them below `/clusters/`. The merged view
/// has no such paths.
fn may_be_switched(info: &RequestInfo) -> bool {
    match info.resource() {
        Some(request) => info.verb == Verb::Watch || request.is_streamed() || !request.resource.is_built_in(),
        None => info.cluster.is_some() && !is_answered_by_kube_apiserver(&info.path),
    }
}

#[cfg(test)]
mod tests {
    use tributary_apimachinery::{ClusterName, Mount};

    use super::*;

    fn allowed_protocols(upgrade: &'static str, info: &RequestInfo) -> (bool, bool) {
        let mut headers = HeaderMap::new();
        headers.insert("connection", "keep-alive, Upgrade".parse().unwrap());
        headers.insert(UPGRADE, upgrade.parse().unwrap());
        let may_switch = asks_to_switch(&mut headers, info);
        (may_switch, headers.contains_key(UPGRADE))
    }

    #[test]
    fn upgrade_header_is_removed_on_paths_that_cannot_switch() {
        for (method, path, query, may_switch) in [
            ("GET", "/version", None, false),
            ("GET", "/openapi/v3/api/v1", None, false),
            ("GET", "/apis/subresources.kubevirt.io/v1", None, false),
            ("GET", "/api/v1/namespaces/n/pods", None, false),
            ("GET", "/api/v1/namespaces/n/pods/p", None, false),
            ("GET", "/api/v1/namespaces/n/pods/p", Some("watch=1"), false),
            ("GET", "/api/v1/namespaces/n/pods/p/status", None, false),
            ("POST", "/api/v1/namespaces/n/pods", None, false),
            ("POST", "/api/v1/namespaces/n/pods/p/eviction", None, false),
            ("GET", "/apis/apps/v1/deployments", Some("watch=0"), false),
            ("GET", "/apis/apps/v1/deployments", Some("watch=1"), true),
            ("GET", "/api/v1/watch/pods", None, true),
            ("GET", "/api/v1/namespaces/n/pods/p/log", Some("follow=1"), true),
            ("GET", "/api/v1/namespaces/n/pods/p/exec", None, true),
            ("POST", "/api/v1/namespaces/n/pods/p/attach", None, true),
            ("POST", "/api/v1/namespaces/n/pods/p/portforward", None, true),
            ("GET", "/api/v1/namespaces/n/services/s:80/proxy/ws", None, true),
            ("GET", "/api/v1/nodes/n/proxy/exec/n/p/c", None, true),
            ("GET", "/apis/subresources.kubevirt.io/v1/namespaces/n/virtualmachineinstances/v/console", None, true),
            ("GET", "/apis/subresources.kubevirt.io/v1/namespaces/n/virtualmachineinstances/v/vnc", None, true),
            ("GET", "/apis/proxies.clusternet.io/v1alpha1/sockets/c", None, true),
        ] {
            for mount in ["", "/clusters/eu", "/k8s/clusters/eu"] {
                let info = RequestInfo::parse(method, &format!("{mount}{path}"), query).unwrap();
                for upgrade in ["websocket", "SPDY/3.1"] {
                    assert_eq!(
                        allowed_protocols(upgrade, &info),
                        (may_switch, may_switch),
                        "{method} {mount}{path} {upgrade}"
                    );
                }
                // Tributary refuses an unknown protocol when it forwards the request.
                assert_eq!(allowed_protocols("h2c", &info), (false, true), "{method} {mount}{path}");
            }
        }
    }

    #[test]
    fn unknown_paths_of_one_cluster_may_switch_protocols() {
        for (path, may_switch) in [
            ("/v1/subscribe", true),
            ("/v3/subscribe", true),
            ("/k8s/clusters/c-x/api/v1/namespaces/n/pods/p/exec", true),
            ("/clusters/root:ws/api/v1/namespaces/n/pods/p/exec", true),
            ("/apiary/ws", true),
            ("/api", false),
            ("/api/v1", false),
            ("/apis/apps/v1", false),
            ("/openapi/v2", false),
            ("/version", false),
            ("/healthz/etcd", false),
            ("/livez", false),
            ("/readyz/ping", false),
            ("/metrics/slis", false),
        ] {
            let below = RequestInfo::parse("GET", &format!("/clusters/eu{path}"), None).unwrap();
            assert_eq!(allowed_protocols("websocket", &below), (may_switch, may_switch), "below /clusters/eu: {path}");
            let eu = Mount::Cluster(ClusterName::new("eu").unwrap());
            let at_host = RequestInfo::parse_at(&eu, "GET", path, None).unwrap();
            assert_eq!(
                allowed_protocols("websocket", &at_host),
                (may_switch, may_switch),
                "at a host of the cluster's: {path}"
            );
        }
        for path in ["/v1/subscribe", "/k8s/c-x/api/v1/namespaces/n/pods/p/exec", "/version"] {
            let merged = RequestInfo::parse("GET", path, None).unwrap();
            assert_eq!(allowed_protocols("websocket", &merged), (false, false), "in the merged view: {path}");
        }
    }
}
