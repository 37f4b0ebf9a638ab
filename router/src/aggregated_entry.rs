//! Answers of the aggregated entry itself. The answers do not depend on clusters: while an APIService of the hub is
//! unavailable, the hub cannot finish the deletion of any namespace.
//!
//! | path | answer |
//! |---|---|
//! | `/apis`, `/apis/<group>`, `/apis/<group>/<version>` | discovery of Tributary's own group, and of open doors |
//! | `/openapi/v2`, `/openapi/v3`, `/openapi/v3/apis/<group>/<version>` | OpenAPI of these groups |
//! | `…/views`, `…/views/all` | the merged views |
//! | `…/clusters`, `…/clusters/<name>`, health checks | the answer of the merged view |
//! | the resources of cluster-gateway, if its door is open | the members that cluster-gateway knows |
//! | resources of Karmada's groups, if Karmada's door is open | the answer of Karmada's old server |
//! | any other path | 404 |

mod views;

use std::sync::Arc;

use http::request::Parts;
use http::{Method, Response, Uri, header};
use tributary_answers::negotiate::Preferences;
use tributary_answers::refusal::Refusal;
use tributary_apimachinery::{
    Door, ForeignDoors, ForeignSystem, GroupVersionResource, Mount, RequestInfo, ResourceRequest, Status,
};
use tributary_fleet::aggregated_group::{CLUSTERS, GROUP, VERSION, VIEWS, aggregated_discovery, legacy_discovery};
use tributary_fleet::discovery::{DiscoveryPath, documents};
use tributary_fleet::openapi::{self, OpenApiRequest};
use tributary_sharing::body::{self, Body};

use crate::plan::is_of_karmada;
use crate::{RequestArrival, cluster_gateway, health, response};

/// Answers a request for a path of the aggregated entry itself. Returns `None` if
/// [`Router::handle`](crate::Router::handle) has to answer the request.
pub fn answer_at_entry(head: &Parts, arrival: &RequestArrival) -> Option<Response<Body>> {
    let answered = match arrival.reading.info() {
        Ok(info) if health::is_check(info) || is_about_clusters(info) => return None,
        Ok(info) if cluster_gateway::is_served(info, &open_doors(&arrival.mount)) => return None,
        Ok(info) if is_relayed(info) && open_doors(&arrival.mount).is_open(ForeignSystem::Karmada) => return None,
        Ok(info) => answer_own_path(head, info, &open_doors(&arrival.mount)),
        Err(status) => Err(EntryRefusal::Written(status.clone())),
    };
    let mut answer = answered.unwrap_or_else(|refusal| {
        let status = match refusal {
            EntryRefusal::Written(status) => status,
            EntryRefusal::ForDoor(refusal) => refusal.status_at(Door::Aggregated),
        };
        response::status(&status, Preferences::from_headers(&head.headers, head.uri.query()).error_form())
    });
    if head.method == Method::HEAD {
        *answer.body_mut() = body::empty();
    }
    Some(answer)
}

/// Returns whether Karmada's old server answers a request. Tributary never sends a path below `…/proxy` to the old
/// server: the old server decodes percent-escapes in object names, so the request could reach a member without the
/// checks of the door.
fn is_relayed(info: &RequestInfo) -> bool {
    is_of_karmada(info) && info.resource().is_some_and(|request| request.subresource.as_deref() != Some("proxy"))
}

/// Returns whether the aggregated entry answers a request without the clusters: with a document of the entry itself, or
/// with a health check without lines for clusters. `mount` is the API at the path `/`.
pub fn has_constant_answer(mount: Mount, method: &Method, uri: &Uri) -> bool {
    let arrival = RequestArrival::new(mount, method, uri);
    let Ok(info) = arrival.reading.info() else { return false };
    let shows_clusters = match health::is_check(info) {
        true => health::requests_clusters(&info.path, uri.query()),
        false => {
            is_about_clusters(info)
                || cluster_gateway::is_served(info, &open_doors(&arrival.mount))
                || is_of_karmada(info)
        }
    };
    arrival.is_entry_path && !shows_clusters
}

/// The reason why the entry does not answer with a document.
enum EntryRefusal {
    /// A refusal whose message names commands and paths that work at the door.
    ForDoor(Refusal),
    /// The Status of an unreadable path, of an unknown view, or of a verb that a view does not support.
    Written(Status),
}

impl<T: Into<Refusal>> From<T> for EntryRefusal {
    fn from(refusal: T) -> Self {
        Self::ForDoor(refusal.into())
    }
}

/// Returns whether a request is for `clusters`. The merged view serves the same objects.
fn is_about_clusters(info: &RequestInfo) -> bool {
    own_resource(info).is_some_and(|request| &*request.resource.resource == CLUSTERS)
}

/// Returns the request for a resource of Tributary's own group; `None` for subresources and namespaced paths.
fn own_resource(info: &RequestInfo) -> Option<&ResourceRequest> {
    let request = info.resource()?;
    let GroupVersionResource { group, version, .. } = &request.resource;
    let is_own = &**group == GROUP && &**version == VERSION;
    (is_own && request.namespace.is_none() && request.subresource.is_none()).then_some(request)
}

/// Returns the doors of foreign systems that are open at the aggregated entry; no doors for other entry points.
fn open_doors(mount: &Mount) -> Arc<ForeignDoors> {
    match mount {
        Mount::Aggregated(doors) => Arc::clone(doors),
        Mount::Merged | Mount::Cluster(_) | Mount::OpenClusterManagement(_) => Arc::default(),
    }
}

fn answer_own_path(head: &Parts, info: &RequestInfo, doors: &ForeignDoors) -> Result<Response<Body>, EntryRefusal> {
    if let Some(request) = own_resource(info).filter(|request| &*request.resource.resource == VIEWS) {
        return views::answer(head, info.verb, request);
    }
    let is_read = matches!(head.method, Method::GET | Method::HEAD);
    if info.path.starts_with("/openapi/") {
        let (query, headers, door) = (head.uri.query(), &head.headers, Door::Aggregated);
        let answer = openapi::answer_at_entry(OpenApiRequest { path: &info.path, query, headers, door }, doors)?;
        return if is_read { Ok(answer) } else { Err(Refusal::method().into()) };
    }
    let path = DiscoveryPath::parse(&info.path).ok_or(Refusal::NoRoute)?;
    let legacy = legacy_discovery(doors, &path).ok_or(Refusal::NoRoute)?;
    if !is_read {
        return Err(Refusal::method().into());
    }
    let wish = documents::negotiate(read_accept_header(head), &path)?;
    let document = if wish.aggregated { aggregated_discovery(doors) } else { legacy };
    Ok(response::discovery::answer_document(&head.headers, document.clone(), wish))
}

fn read_accept_header(head: &Parts) -> &str {
    head.headers.get(header::ACCEPT).and_then(|accept| accept.to_str().ok()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use http::Request;
    use http_body_util::BodyExt;
    use serde_json::Value;
    use tributary_apimachinery::MountTarget;

    use super::*;

    const V2: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
    const BASE: &str = "/apis/aggregation.tributary.dev/v1alpha1";

    fn ask(method: &str, path: &str, headers: &[(&str, &str)]) -> Option<Response<Body>> {
        let mut request = Request::builder().method(method).uri(path);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let (head, ()) = request.body(()).unwrap().into_parts();
        answer_at_entry(&head, &RequestArrival::new(Mount::aggregated(), &head.method, &head.uri))
    }

    async fn get(path: &str, headers: &[(&str, &str)]) -> (u16, Value) {
        let answer = ask("GET", path, headers).unwrap();
        let (head, body) = answer.into_parts();
        let text = body.collect().await.unwrap().to_bytes();
        (head.status.as_u16(), serde_json::from_slice(&text).unwrap_or_default())
    }

    #[test]
    fn mounts_are_below_the_api_group_of_the_entry() {
        for (resource, target) in
            [("views/all", MountTarget::Merged), ("clusters/eu", MountTarget::Cluster("eu".parse().unwrap()))]
        {
            let path = format!("/apis/{GROUP}/{VERSION}/{resource}/proxy/api");
            assert_eq!(Mount::aggregated().resolve(&path).unwrap().target, target);
        }
    }

    #[tokio::test]
    async fn entry_serves_discovery_in_both_forms() {
        for (path, accept, kind) in [
            ("/apis", V2, "APIGroupDiscoveryList"),
            ("/apis", "application/json", "APIGroupList"),
            ("/apis", "", "APIGroupList"),
            ("/apis/aggregation.tributary.dev", "", "APIGroup"),
            (BASE, "", "APIResourceList"),
            (BASE, "application/json", "APIResourceList"),
        ] {
            let (code, document) = get(path, &[("accept", accept)]).await;
            assert_eq!((code, &document["kind"]), (200, &kind.into()), "{path} {accept}");
        }
    }

    #[tokio::test]
    async fn entry_answers_304_if_the_etag_is_unchanged() {
        for (path, accept) in [
            ("/apis", V2),
            ("/openapi/v2", "application/json"),
            ("/openapi/v3", "application/json"),
            ("/openapi/v3/apis/aggregation.tributary.dev/v1alpha1", "application/json"),
        ] {
            let first = ask("GET", path, &[("accept", accept)]).unwrap();
            assert_eq!(first.status(), 200, "{path}");
            let tag = first.headers()[header::ETAG].to_str().unwrap().to_owned();
            let second = ask("GET", path, &[("accept", accept), ("if-none-match", &tag)]).unwrap();
            assert_eq!((second.status().as_u16(), second.headers()[header::ETAG].to_str().unwrap()), (304, &*tag));
            let other = ask("GET", path, &[("accept", accept), ("if-none-match", "\"0\"")]).unwrap();
            assert_eq!(other.status(), 200, "{path}");
        }
    }

    #[tokio::test]
    async fn stale_openapi_hash_gets_the_current_document() {
        const DOCUMENT: &str = "/openapi/v3/apis/aggregation.tributary.dev/v1alpha1";
        let (_, index) = get("/openapi/v3", &[]).await;
        let url = index["paths"]["apis/aggregation.tributary.dev/v1alpha1"]["serverRelativeURL"].as_str().unwrap();
        assert!(url.starts_with(&format!("{DOCUMENT}?hash=")), "{url}");
        let (current, stale) =
            (ask("GET", url, &[]).unwrap(), ask("GET", &format!("{DOCUMENT}?hash=00"), &[]).unwrap());
        assert_eq!((current.status().as_u16(), stale.status().as_u16()), (200, 200));
        assert!(current.headers()[header::CACHE_CONTROL].to_str().unwrap().contains("immutable"));
        let kept = stale.headers().get(header::CACHE_CONTROL).and_then(|value| value.to_str().ok()).unwrap_or_default();
        assert!(!kept.contains("immutable"), "the document may change tomorrow: {kept}");
        let bodies = [current, stale].map(|answer| answer.into_body().collect());
        let [current, stale] = futures::future::join_all(bodies).await.try_into().unwrap();
        assert_eq!(current.unwrap().to_bytes(), stale.unwrap().to_bytes());
    }

    #[tokio::test]
    async fn entry_serves_the_view_of_all_clusters() {
        let (code, list) = get(&format!("{BASE}/views"), &[]).await;
        assert_eq!(
            (code, &list["kind"], &list["items"][0]["metadata"]["name"]),
            (200, &"ViewList".into(), &"all".into())
        );
        let (code, view) = get(&format!("{BASE}/views/all"), &[]).await;
        assert_eq!(
            (code, &view["kind"], &view["status"]["path"]),
            (200, &"View".into(), &format!("{BASE}/views/all/proxy").into())
        );
        assert_eq!(get(&format!("{BASE}/views/eu"), &[]).await.0, 404);
        assert_eq!(get(&format!("{BASE}/views/eu/proxy"), &[]).await.0, 404);
        assert_eq!(get(&format!("{BASE}/views?watch=1"), &[]).await.0, 405);
        assert_eq!(get(&format!("{BASE}/views"), &[("accept", "text/html")]).await.0, 406);
        for method in ["POST", "PUT", "PATCH", "DELETE", "OPTIONS"] {
            for path in [&*format!("{BASE}/views"), &format!("{BASE}/views/all"), "/apis", BASE, "/openapi/v2"] {
                assert_eq!(ask(method, path, &[]).unwrap().status(), 405, "{method} {path}");
            }
        }
    }

    #[tokio::test]
    async fn views_are_selected_and_printed_as_a_table() {
        const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json";
        for path in ["views", "views/all"] {
            let (code, table) = get(&format!("{BASE}/{path}"), &[("accept", TABLE)]).await;
            assert_eq!((code, &table["kind"]), (200, &"Table".into()));
            let columns: Vec<_> =
                table["columnDefinitions"].as_array().unwrap().iter().map(|one| &one["name"]).collect();
            assert_eq!(columns, ["Name", "Path"]);
            assert_eq!(table["rows"][0]["cells"], serde_json::json!(["all", format!("{BASE}/views/all/proxy")]));
        }
        for (selector, count) in [
            ("fieldSelector=metadata.name%3Dall", 1),
            ("fieldSelector=metadata.name%3Deu", 0),
            ("labelSelector=a%3Db", 0),
            ("labelSelector=a%21%3Db", 1),
        ] {
            let (code, list) = get(&format!("{BASE}/views?{selector}"), &[]).await;
            assert_eq!((code, list["items"].as_array().unwrap().len()), (200, count), "{selector}");
        }
        assert_eq!(get(&format!("{BASE}/views?fieldSelector=spec.x%3D1"), &[]).await.0, 400);
    }

    #[test]
    fn entry_passes_health_checks_and_clusters_to_the_merged_view() {
        for path in ["/healthz", "/livez", "/readyz", "/readyz?verbose"] {
            assert!(ask("GET", path, &[]).is_none(), "{path}");
        }
        for path in ["/clusters", "/clusters/eu", "/clusters?watch=1"] {
            assert!(ask("GET", &format!("{BASE}{path}"), &[]).is_none(), "{path}");
        }
    }

    #[test]
    fn constant_answers_depend_on_no_cluster() {
        let is_constant = |path: &str| has_constant_answer(Mount::aggregated(), &Method::GET, &path.parse().unwrap());
        for path in [
            "/apis",
            BASE,
            "/apis/aggregation.tributary.dev/v1alpha1?timeout=32s",
            "/openapi/v2",
            "/openapi/v3/apis/aggregation.tributary.dev/v1alpha1?hash=00",
            "/apis/aggregation.tributary.dev/v1alpha1/views/all",
            "/unknown",
            "/livez",
            "/readyz?timeout=1s",
        ] {
            assert!(is_constant(path), "{path}");
        }
        for path in [
            "/readyz?verbose",
            "/readyz/cluster/eu",
            "/apis/aggregation.tributary.dev/v1alpha1/clusters",
            "/apis/aggregation.tributary.dev/v1alpha1/clusters/eu",
            "/apis/aggregation.tributary.dev/v1alpha1/clusters/eu/proxy/apis",
            "/apis/aggregation.tributary.dev/v1alpha1/clusters/eu/proxy/readyz",
            "/apis/aggregation.tributary.dev/v1alpha1/views/all/proxy",
            "/apis/aggregation.tributary.dev/v1alpha1/views/other/proxy/apis",
        ] {
            assert!(!is_constant(path), "{path}");
        }
    }

    /// The old server decodes percent-escapes, so that such a path could reach a member without the checks of the door.
    #[test]
    fn escaped_path_of_a_door_does_not_reach_karmadas_old_server() {
        let mut doors = ForeignDoors::default();
        doors.open(ForeignSystem::Karmada, [].into());
        let mount = Mount::Aggregated(Arc::new(doors));
        let answer = |path: &str| {
            let (head, ()) = Request::get(path).body(()).unwrap().into_parts();
            let arrival = RequestArrival::new(mount.clone(), &head.method, &head.uri);
            answer_at_entry(&head, &arrival).map(|answer| answer.status().as_u16())
        };
        const KARMADA: &str = "/apis/cluster.karmada.io/v1alpha1";
        assert_eq!(answer(&format!("{KARMADA}/clusters/eu")), None);
        assert_eq!(answer(&format!("{KARMADA}/clusters/eu/status")), None);
        for path in ["cluster%73/eu/proxy/api/v1/secrets", "clusters/eu/pro%78y/api", "cluster%73/*/proxy/metrics"] {
            assert_eq!(answer(&format!("{KARMADA}/{path}")), Some(404), "{path}");
        }
        let search = "/apis/search.karmada.io/v1alpha1/proxyin%67/karmada/proxy/api/v1/pods";
        assert_eq!(answer(search), Some(404));
    }

    #[test]
    fn entry_refuses_other_paths() {
        for path in [
            "/",
            "/api",
            "/api/v1/pods",
            "/apis/apps/v1/deployments",
            "/apis/apps",
            "/version",
            "/metrics",
            "/tributary/status",
            "/clusters/eu/api",
            "/openapi/v3/api/v1",
            "/openapi/v3/apis/apps/v1",
            "/apis/aggregation.tributary.dev/v1",
            "/apis/aggregation%2Etributary.dev",
            "/apis/aggregation.tributary.dev/v1alpha1/namespaces/n/clusters",
            "/apis/aggregation.tributary.dev/v1alpha1/clusters/eu/status",
            "/apis/aggregation.tributary.dev/v1alpha1/clusters/eu%2Fproxy/api",
            "/apis/aggregation%2Etributary.dev/v1alpha1/clusters/eu/proxy/api",
            "/apis/aggregation.tributary.dev/v1alpha1/nodes",
            "/apis/aggregation.tributary.dev/v1alpha1//views",
            "/apis/aggregation.tributary.dev/v1alpha1/../views",
        ] {
            assert_eq!(ask("GET", path, &[]).unwrap().status(), 404, "{path}");
        }
        assert_eq!(ask("GET", "/apis/%zz", &[]).unwrap().status(), 400);
    }
}
