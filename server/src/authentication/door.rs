//! The right that a user needs in the hub for a request at the aggregated entry.

use http::HeaderName;
use http::request::Parts;
use tributary_apimachinery::{MERGED_VIEW, RequestInfo, Status, Verb};
use tributary_hub::{DoorAttributes, DoorResource};
use tributary_router::RequestArrival;

/// The reason for a 403 to impersonation at the entry's own resources.
pub(super) const IMPERSONATION_AT_ENTRY: &str = "the aggregated API impersonates no user for its own resources; send the request through the hub's kube-apiserver, \
     which does, or without Impersonate headers";

/// The reason for a 403 to impersonation behind a name with `authorize: Inner`.
const IMPERSONATION_INSIDE: &str = "the source of the cluster has authorize: Inner, so the hub decides about the rights of the sender alone; send the \
     request as the user, without Impersonate headers";

/// Returns whether a request for the entry's own resources asks for impersonation. Such a request is refused: the hub
/// would check the rights of the sender, not the rights of the impersonated user.
pub(super) fn impersonates_at_entry(head: &Parts, arrival: &RequestArrival) -> bool {
    arrival.is_entry_path && head.headers.keys().any(is_impersonation)
}

fn is_impersonation(name: &HeaderName) -> bool {
    name.as_str().starts_with("impersonate-")
}

/// Returns the attributes for the access review at the hub. Returns `None` if no review is needed: for an invalid path,
/// which gets an error, and for documents that every authenticated user may read (role `system:discovery`).
pub(super) fn attributes(head: &Parts, arrival: &RequestArrival) -> Option<DoorAttributes> {
    // The right is for the name in the path, as received, whichever member has the name. Without the right, a user does
    // not learn whether the name exists.
    if let (Some(resource), Some(name)) = (DoorResource::of_door(arrival.door), &arrival.foreign_name) {
        return Some(DoorAttributes::of_proxy(resource, name, &head.method));
    }
    let info = arrival.reading.info().ok()?;
    if arrival.is_entry_path {
        return own_resource(info);
    }
    Some(match &info.cluster {
        Some(cluster) => DoorAttributes::of_proxy(DoorResource::Clusters, cluster.as_str(), &head.method),
        None => DoorAttributes::of_proxy(DoorResource::Views, MERGED_VIEW, &head.method),
    })
}

/// Returns the attributes of the request inside a door, if the source of the name in the path demands that the hub also
/// allows this request. Returns `None` for an invalid path, which gets an error.
///
/// # Errors
/// 403 for a request that impersonates a user: the hub would check the rights of the sender.
pub(super) fn inner_attributes(head: &Parts, arrival: &RequestArrival) -> Result<Option<DoorAttributes>, Status> {
    let Some(info) = arrival.reading.info().ok().filter(|_| arrival.authorizes_inner) else { return Ok(None) };
    match head.headers.keys().any(is_impersonation) {
        true => Err(Status::forbidden(None, "", IMPERSONATION_INSIDE)),
        false => Ok(Some(DoorAttributes::of_inner(info))),
    }
}

fn own_resource(info: &RequestInfo) -> Option<DoorAttributes> {
    let request = info.resource()?;
    let resource = DoorResource::find(&request.resource)?;
    let name = request.authorization_name();
    if resource == DoorResource::ClusterGateways && request.subresource.as_deref() == Some("health") {
        let verb = match info.verb {
            Verb::Get => "get",
            Verb::Update => "update",
            _ => return None,
        };
        return Some(DoorAttributes::of_health(verb, name));
    }
    let verb = match info.verb {
        Verb::Get => "get",
        Verb::List => "list",
        Verb::Watch => "watch",
        // No review is needed, because the entry answers this method with 405.
        _ => return None,
    };
    Some(DoorAttributes::of_resource(resource, verb, name))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use http::{Method, Request};
    use tributary_apimachinery::{ForeignDoors, ForeignSystem, Mount};

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

    #[test]
    fn right_at_a_foreign_door_is_for_the_name_in_the_path() {
        const GATEWAYS: &str = "/apis/cluster.core.oam.dev/v1alpha1/clustergateways";
        let mut doors = ForeignDoors::default();
        for system in ForeignSystem::ALL {
            doors.open(system, [("eu".to_owned(), "eu".parse().unwrap())].into());
        }
        let mount = Mount::Aggregated(Arc::new(doors));
        let [gateways, clusters] = [DoorResource::ClusterGateways, DoorResource::VirtualClusters];
        let proxy = |resource, name: &str| Some(DoorAttributes::of_proxy(resource, name, &Method::GET));
        for (method, path, expected) in [
            ("GET", format!("{GATEWAYS}/eu/proxy/api/v1/pods"), proxy(gateways, "eu")),
            ("GET", format!("{GATEWAYS}/unknown/proxy/api/v1/pods"), proxy(gateways, "unknown")),
            ("GET", format!("{GATEWAYS}/e%75/proxy/api"), proxy(gateways, "e%75")),
            ("GET", format!("{GATEWAYS}/EU/proxy/api"), proxy(gateways, "EU")),
            ("GET", format!("{GATEWAYS}/eu/proxy/%zz"), proxy(gateways, "eu")),
            ("GET", format!("{GATEWAYS}/eu/health"), Some(DoorAttributes::of_health("get", "eu"))),
            ("PUT", format!("{GATEWAYS}/eu/health"), Some(DoorAttributes::of_health("update", "eu"))),
            ("DELETE", format!("{GATEWAYS}/eu/health"), None),
            ("GET", GATEWAYS.to_owned(), Some(DoorAttributes::of_resource(gateways, "list", ""))),
            (
                "GET",
                "/apis/cluster.core.oam.dev/v1alpha1/virtualclusters/eu".to_owned(),
                Some(DoorAttributes::of_resource(clusters, "get", "eu")),
            ),
            (
                "GET",
                "/apis/cluster.karmada.io/v1alpha1/clusters/*/proxy/api".to_owned(),
                proxy(DoorResource::KarmadaClusters, "*"),
            ),
            (
                "GET",
                "/apis/search.karmada.io/v1alpha1/proxying/karmada/proxy/api".to_owned(),
                proxy(DoorResource::KarmadaProxying, "karmada"),
            ),
        ] {
            let (head, ()) = Request::builder().method(method).uri(&path).body(()).unwrap().into_parts();
            let arrival = RequestArrival::new(mount.clone(), &head.method, &head.uri);
            assert_eq!(attributes(&head, &arrival), expected, "{method} {path}");
        }
    }

    #[test]
    fn inner_request_is_authorized_only_below_a_name_whose_source_demands_it() {
        const GATEWAYS: &str = "/apis/cluster.core.oam.dev/v1alpha1/clustergateways";
        let mut doors = ForeignDoors::default();
        let names = ["eu", "us"].map(|name| (name.to_owned(), name.parse().unwrap()));
        doors.open(ForeignSystem::ClusterGateway, names.into());
        doors.authorize_inner(ForeignSystem::ClusterGateway, "eu".to_owned());
        let mount = Mount::Aggregated(Arc::new(doors));
        let inner = |path: &str, header: Option<&str>| {
            let mut request = Request::builder().uri(format!("{GATEWAYS}{path}"));
            if let Some(header) = header {
                request = request.header(header, "root");
            }
            let (head, ()) = request.body(()).unwrap().into_parts();
            inner_attributes(&head, &RequestArrival::new(mount.clone(), &head.method, &head.uri))
        };
        let pods = RequestInfo::parse("GET", "/api/v1/pods", None).unwrap();
        assert_eq!(inner("/eu/proxy/api/v1/pods", None), Ok(Some(DoorAttributes::of_inner(&pods))));
        let root = RequestInfo::parse("GET", "/", None).unwrap();
        assert_eq!(inner("/eu/proxy", None), Ok(Some(DoorAttributes::of_inner(&root))));
        for path in ["/us/proxy/api/v1/pods", "/eu", "/eu/health", "/unknown/proxy/api", "/eu/proxy/api%zz"] {
            assert_eq!(inner(path, None), Ok(None), "{path}");
        }
        assert_eq!(inner("/eu/proxy/api/v1/pods", Some("impersonate-user")).unwrap_err().code, 403);
        assert_eq!(inner("/us/proxy/api/v1/pods", Some("impersonate-user")), Ok(None));
    }
}
