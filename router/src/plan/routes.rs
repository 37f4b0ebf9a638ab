//! Media types that kube-apiserver's routes of built-in kinds demand before any handler runs, in the request's body and
//! in the answer.
//!
//! Source: go-restful `jsr311.go` (`detectRoute`): path, method, `Content-Type`, `Accept`, in this order.
//! [`plan`](crate::plan) checks path and method.

use http::{HeaderMap, header};
use percent_encoding::percent_decode_str;
use tributary_answers::negotiate::{Preferences, ResponseKind, is_routed};
use tributary_answers::refusal::RouteRefusal;
use tributary_apimachinery::{Door, GroupVersionResource, RequestInfo, Verb};

use crate::plan::{OwnerRequest, ResourcePlan};

const PATCHES: [&str; 4] = [
    "application/json-patch+json",
    "application/merge-patch+json",
    "application/strategic-merge-patch+json",
    "application/apply-patch+yaml",
];

/// Checks that the client's door accepts the request. Karmada's path for all clusters serves lists and named objects.
/// No door accepts `services/NAME/proxy-service`: a kube-apiserver has no such subresource, and Open Cluster
/// Management's user-server, which a member can be, forwards the request to the service without asking the cluster.
///
/// # Errors
/// 403 for `proxy-service`. 405 at Karmada's path for a different verb without a name.
pub(crate) fn check_door(door: Door, info: &RequestInfo) -> Result<(), RouteRefusal> {
    if is_proxy_service(info) {
        return Err(RouteRefusal::ProxyService);
    }
    let is_of_all = door == Door::KarmadaClusters && info.cluster.is_none();
    let is_unnamed = || info.resource().is_some_and(|request| request.name.is_none());
    match is_of_all && is_unnamed() && info.verb != Verb::List {
        true => Err(RouteRefusal::UnnamedAtKarmada(info.verb)),
        false => Ok(()),
    }
}

/// Returns whether a user-server would forward the request to a service. It looks only at the position of the segment:
/// `/x/v1/namespaces/NAMESPACE/services/SERVICE/proxy-service/…` (open-cluster-management-io/cluster-proxy
/// `pkg/utils/utils.go`, `GetProxyType`). An object can have the name `proxy-service`.
fn is_proxy_service(info: &RequestInfo) -> bool {
    const SEGMENT: &str = "proxy-service";
    let request = info.resource();
    if request.is_some_and(|request| request.subresource.as_deref() == Some(SEGMENT)) {
        return true;
    }
    let mut segments = info.path.split('/').skip(7);
    let is_there = segments.next().is_some_and(|text| percent_decode_str(text).eq(SEGMENT.bytes()));
    is_there && segments.next().is_some() && request.is_none_or(|request| request.name.as_deref() != Some(SEGMENT))
}

/// Checks that a route for the resource accepts the media types of a request.
///
/// # Errors
/// 415 for a patch of an unknown media type; 406 if the client accepts no media type that the route can produce.
pub(crate) fn check_media_types(
    verb: Verb,
    resource: &GroupVersionResource,
    plan: ResourcePlan,
    headers: &HeaderMap,
    preferences: &Preferences,
) -> Result<(), RouteRefusal> {
    let answer = match plan {
        // Bodies that are no Kubernetes objects have other media types, which the member checks.
        ResourcePlan::Owner(OwnerRequest::Streamed) => return Ok(()),
        ResourcePlan::List | ResourcePlan::ListLive => ResponseKind::List,
        ResourcePlan::Watch => ResponseKind::Watch,
        ResourcePlan::SelfReview => ResponseKind::Review,
        _ => ResponseKind::Object,
    };
    if verb == Verb::Patch && is_routed(resource) && !is_patch(headers) {
        return Err(RouteRefusal::PatchFormat);
    }
    Ok(preferences.fits_route(answer, resource)?)
}

fn is_patch(headers: &HeaderMap) -> bool {
    let content_type = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    PATCHES.contains(&content_type.split(';').next().unwrap_or_default().trim())
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderValue;

    #[test]
    fn routes_check_content_type_before_accept() {
        let nodes = GroupVersionResource::new("", "v1", "nodes");
        let gadgets = GroupVersionResource::new("example.test", "v1", "gadgets");
        let object = ResourcePlan::Owner(OwnerRequest::Object);
        let opaque = ResourcePlan::Owner(OwnerRequest::Streamed);
        let merge = "application/merge-patch+json; charset=utf-8";
        let cases = [
            (Verb::Patch, &nodes, object, "application/json", "text/html", Some("PatchFormat")),
            (Verb::Patch, &nodes, object, "", "", Some("PatchFormat")),
            (Verb::Patch, &nodes, object, merge, "text/html", Some("NotAcceptable")),
            (Verb::Patch, &nodes, object, merge, "*/*", None),
            (Verb::Patch, &nodes, opaque, "application/json", "text/html", None),
            (Verb::Patch, &gadgets, object, "application/json", "text/html", None),
            (Verb::Update, &nodes, object, "text/plain", "", None),
            (Verb::List, &nodes, ResourcePlan::List, "", "text/html", Some("NotAcceptable")),
        ];
        for (verb, resource, plan, content_type, accept, expected) in cases {
            let mut headers = HeaderMap::new();
            for (name, value) in [(header::CONTENT_TYPE, content_type), (header::ACCEPT, accept)] {
                if !value.is_empty() {
                    headers.insert(name, HeaderValue::from_str(value).unwrap());
                }
            }
            let got =
                check_media_types(verb, resource, plan, &headers, &Preferences::from_headers(&headers, None)).err();
            let got = got.map(|refusal| match refusal {
                RouteRefusal::Method | RouteRefusal::UnnamedAtKarmada(_) | RouteRefusal::ProxyService => "Method",
                RouteRefusal::PatchFormat => "PatchFormat",
                RouteRefusal::NotAcceptable(_) => "NotAcceptable",
            });
            assert_eq!(got, expected, "{verb} {resource} {content_type} {accept}");
        }
    }
}
