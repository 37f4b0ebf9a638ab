//! The right that a user needs in the hub for a request at the aggregated entry.

use http::request::Parts;
use tributary_apimachinery::{MERGED_VIEW, RequestInfo, Verb};
use tributary_hub::{DoorAttributes, DoorResource};
use tributary_router::RequestArrival;

/// The reason for a 403 to impersonation at the entry's own resources.
pub(super) const IMPERSONATION_AT_ENTRY: &str = "the aggregated API impersonates no user for its own resources; send the request through the hub's kube-apiserver, \
     which does, or without Impersonate headers";

/// Returns whether a request for the entry's own resources asks for impersonation. Such a request is refused: the hub
/// would check the rights of the sender, not the rights of the impersonated user.
pub(super) fn impersonates_at_entry(head: &Parts, arrival: &RequestArrival) -> bool {
    arrival.is_entry_path && head.headers.keys().any(|name| name.as_str().starts_with("impersonate-"))
}

/// Returns the attributes for the access review at the hub. Returns `None` if no review is needed: for an invalid path,
/// which gets an error, and for documents that every authenticated user may read (role `system:discovery`).
pub(super) fn attributes(head: &Parts, arrival: &RequestArrival) -> Option<DoorAttributes> {
    let info = arrival.reading.info().ok()?;
    if arrival.is_entry_path {
        return own_resource(info);
    }
    Some(match &info.cluster {
        Some(cluster) => DoorAttributes::of_proxy(DoorResource::Clusters, cluster.as_str(), &head.method),
        None => DoorAttributes::of_proxy(DoorResource::Views, MERGED_VIEW, &head.method),
    })
}

fn own_resource(info: &RequestInfo) -> Option<DoorAttributes> {
    let request = info.resource()?;
    let resource = DoorResource::find(&request.resource)?;
    let verb = match info.verb {
        Verb::Get => "get",
        Verb::List => "list",
        Verb::Watch => "watch",
        // No review is needed, because the entry answers this method with 405.
        _ => return None,
    };
    Some(DoorAttributes::of_resource(resource, verb, request.authorization_name()))
}

#[cfg(test)]
mod tests {
    use http::{Method, Request};
    use tributary_apimachinery::Mount;

    use super::*;

    #[test]
    fn path_and_method_decide_the_right_in_the_hub() {
        const BASE: &str = "/apis/aggregation.tributary.dev/v1alpha1";
        let [views, clusters] = [DoorResource::Views, DoorResource::Clusters];
        for (method, path, expected) in [
            ("GET", "/views", Some(DoorAttributes::of_resource(views, "list", ""))),
            ("GET", "/views/all", Some(DoorAttributes::of_resource(views, "get", "all"))),
            ("GET", "/clusters?watch=1", Some(DoorAttributes::of_resource(clusters, "watch", ""))),
            ("GET", "/clusters/eu", Some(DoorAttributes::of_resource(clusters, "get", "eu"))),
            ("GET", "/clusters/eu/proxy/api/v1/pods", Some(DoorAttributes::of_proxy(clusters, "eu", &Method::GET))),
            ("POST", "/clusters/eu/proxy/api/v1/pods", Some(DoorAttributes::of_proxy(clusters, "eu", &Method::POST))),
            ("GET", "/views/all/proxy/api/v1/pods", Some(DoorAttributes::of_proxy(views, "all", &Method::GET))),
            ("GET", "/views/all/proxy/metrics", Some(DoorAttributes::of_proxy(views, "all", &Method::GET))),
            ("DELETE", "/views/all/proxy", Some(DoorAttributes::of_proxy(views, "all", &Method::DELETE))),
            ("GET", "", None),
            ("DELETE", "/clusters/eu", None),
            ("GET", "/views/other/proxy/api", None),
            ("GET", "/pods", None),
        ] {
            let request = Request::builder().method(method).uri(format!("{BASE}{path}")).body(()).unwrap();
            let (head, ()) = request.into_parts();
            let arrival = RequestArrival::new(Mount::aggregated(), &head.method, &head.uri);
            assert_eq!(attributes(&head, &arrival), expected, "{method} {path}");
        }
    }
}
