//! Tests of discovery, health checks, and the headers of responses.

use serde_json::Value;
use tributary_apimachinery::{Mount, body};
use tributary_router::{RequestContext, RequestReading, User};
use tributary_simulator::{Rejection, RequestKind};

use crate::harness::{CONFIG_MAPS, Fixture, cluster, until};

const AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";

#[tokio::test]
async fn aggregated_discovery_documents_have_etags() {
    let fixture = Fixture::start(["a", "b"]).await;
    let client = fixture.client();
    for (path, accept) in
        [("/api", AGGREGATED), ("/apis", AGGREGATED), ("/apis", "application/json"), ("/api/v1", "*/*")]
    {
        let whole = client.send("GET", path, &[("accept", accept)], "").await;
        assert!(
            whole.headers["content-type"].to_str().unwrap().starts_with(accept.trim_end_matches("*/*")),
            "{whole:?}"
        );
        // As in kube-apiserver, only the aggregated documents have an ETag and are cacheable.
        if accept == AGGREGATED {
            let tag = whole.headers["etag"].to_str().unwrap().to_owned();
            let same = client.send("GET", path, &[("accept", accept), ("if-none-match", &tag)], "").await;
            assert_eq!((same.code, same.body.len(), same.headers["etag"].to_str().unwrap()), (304, 0, &*tag));
        } else {
            assert!(whole.headers.get("etag").is_none() && whole.headers["cache-control"] == "no-cache, private");
        }
        // As in kube-apiserver, the handler of `/apis` accepts any method, and all other discovery documents accept
        // only GET.
        let head = client.send("HEAD", path, &[("accept", accept)], "").await;
        assert_eq!((head.code, head.body.len()), (if path == "/apis" { 200 } else { 405 }, 0), "{path}");
    }
    let legacy = fixture.get("/api/v1").await.ok();
    let resources = legacy["resources"].as_array().unwrap();
    let pods = resources.iter().find(|resource| resource["name"] == "pods").unwrap();
    assert_eq!((pods["kind"].as_str(), pods["namespaced"].as_bool()), (Some("Pod"), Some(true)));
    assert!(resources.iter().any(|resource| resource["name"] == "pods/log"));
    assert_eq!(fixture.get("/apis/apps").await.ok()["preferredVersion"]["groupVersion"], "apps/v1");
    assert_eq!(fixture.get("/version").await.ok()["minor"], "36");
}

/// Without the discovery of every cluster, the set of served resources is unknown, because the missing cluster may
/// serve any resource.
#[tokio::test]
async fn served_resources_are_known_after_every_cluster_has_answered() {
    let fixture = Fixture::start(["a", "b"]).await;
    until(async || fixture.router.served_resources().is_some()).await;
    let served = fixture.router.served_resources().unwrap();
    let has = |text: &str| served.has(&text.parse().unwrap());
    assert!(has("pods") && has("deployments.apps") && has("apps/v1/deployments") && has("*"));
    assert!(!has("deployments") && !has("apps/v2/deployments") && !has("podss"));
    let names = served.iter().find(|(resource, _)| *resource.resource == *"pods").map(|(_, names)| names.collect());
    let names: Vec<_> = names.unwrap();
    assert!(names.contains(&"Pod"), "{names:?}");
    // Cluster `b` is configured again while it is unreachable, so the set of served resources is unknown.
    fixture.member("b").control().stop_listening().await;
    fixture.set_clusters(&["a"]).await;
    until(async || fixture.router.served_resources().is_some()).await;
    fixture.set_clusters(&["a", "b"]).await;
    assert!(fixture.router.served_resources().is_none());
    fixture.out_of_reach("b").await;
    assert!(fixture.router.served_resources().is_none());
    fixture.set_clusters(&[""; 0]).await;
    assert!(fixture.router.served_resources().is_none());
}

/// The router gets the hashes of storage versions from the members. The document must not wait for them, because it is
/// useful without hashes.
#[tokio::test]
async fn legacy_discovery_does_not_wait_for_members() {
    let fixture = Fixture::start(["a", "b"]).await;
    for member in &fixture.members {
        let kinds = vec![RequestKind::Discovery];
        member.control().reject(Some(Rejection { kinds, ..Rejection::all(503) }));
    }
    let document = fixture.get("/api/v1").await.ok();
    let resources = document["resources"].as_array().unwrap();
    assert!(resources.iter().any(|resource| resource["name"] == "pods"), "{document}");
    assert!(resources.iter().all(|resource| resource.get("storageVersionHash").is_none()), "{document}");
}

#[tokio::test]
async fn unknown_path_rereads_discovery_once_before_its_404() {
    let fixture = Fixture::start(["a", "b"]).await;
    let asked = |fixture: &Fixture| {
        fixture
            .members
            .iter()
            .map(|member| member.control().requests(tributary_simulator::RequestKind::Discovery))
            .sum::<u64>()
    };
    let before = asked(&fixture);
    for path in ["/apis/example.io/v1/things", "/apis/example.io/v1", "/apis/example.io", "/nothing"] {
        fixture.get(path).await.no_route();
    }
    let after = asked(&fixture);
    assert_eq!(after - before, 4, "each member is asked for its two documents, once");
    fixture.write("POST", "/api", &Value::Null).await.refused(405);
}

#[tokio::test]
async fn verbose_health_check_has_a_line_for_each_cluster() {
    let fixture = Fixture::start(["a", "b"]).await;
    for path in ["/healthz", "/livez", "/readyz", "/readyz/ping", "/readyz/cluster/a"] {
        let answer = fixture.get(path).await;
        assert_eq!((answer.code, &*answer.body), (200, b"ok".as_slice()), "{path}");
    }
    fixture.member("b").control().stop_listening().await;
    fixture.get("/apis/example.io").await.no_route();
    until(|| async { fixture.get("/readyz/cluster/b").await.code == 500 }).await;
    assert_eq!(fixture.get("/readyz").await.code, 200, "the others are served");
    let text = String::from_utf8(fixture.get("/readyz?verbose").await.body.to_vec()).unwrap();
    assert!(text.contains("[+]cluster/a ok\n") && text.contains("[-]cluster/b failed: "), "{text}");
    fixture.router.drain();
    assert_eq!(fixture.get("/readyz").await.code, 500);
    assert_eq!(fixture.get("/livez").await.code, 200);
}

#[tokio::test]
async fn head_request_has_no_body_and_is_refused_for_resources() {
    let fixture = Fixture::start(["a"]).await;
    fixture.put("a", "x", "");
    let client = fixture.client();
    let maps = CONFIG_MAPS.to_owned();
    for (path, code) in
        [("/healthz".to_owned(), 200), ("/readyz".to_owned(), 200), (maps, 405), (format!("{CONFIG_MAPS}/x"), 405)]
    {
        let head = client.send("HEAD", &path, &[], "").await;
        assert_eq!((head.code, head.body.len()), (code, 0), "{path}");
    }
}

#[tokio::test]
async fn root_path_lists_the_served_paths() {
    let fixture = Fixture::start(["a", "b"]).await;
    let root = fixture.get("/").await.ok();
    let paths: Vec<_> = root["paths"].as_array().unwrap().iter().filter_map(Value::as_str).collect();
    for path in ["/api", "/api/v1", "/apis", "/apis/apps", "/apis/apps/v1", "/openapi/v3", "/version"] {
        assert!(paths.contains(&path), "{path}: {paths:?}");
        fixture.get(path).await.ok();
    }
}

#[tokio::test]
async fn tables_and_metadata_objects_contain_the_cluster() {
    let fixture = Fixture::start(["a", "b"]).await;
    fixture.put("a", "x", "");
    fixture.put("b", "y", "");
    let client = fixture.client();
    let table = "application/json;as=Table;v=v1;g=meta.k8s.io";
    let path = format!("{CONFIG_MAPS}?fieldSelector=metadata.name!=kube-root-ca.crt");
    let list = client.send("GET", &path, &[("accept", table)], "").await.ok();
    let columns: Vec<_> =
        list["columnDefinitions"].as_array().unwrap().iter().map(|column| column["name"].clone()).collect();
    assert_eq!(columns[..2], ["Name", "Cluster"]);
    assert_eq!(list["rows"][1]["cells"].as_array().unwrap()[..2], ["y", "b"]);
    let metadata = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io";
    let list = client.send("GET", &path, &[("accept", metadata)], "").await.ok();
    assert_eq!((list["kind"].as_str(), list["items"][0].get("data")), (Some("PartialObjectMetadataList"), None));
    assert_eq!(cluster(&list["items"][1]), "b");
    let yaml = client.send("GET", &format!("{CONFIG_MAPS}/x"), &[("accept", "application/yaml")], "").await;
    assert_eq!(yaml.headers["content-type"], "application/yaml");
    assert!(String::from_utf8_lossy(&yaml.body).contains("tributary.dev/cluster: a"));
    // A response to a write has the requested form, like a response to a read.
    let headers = [("accept", table), ("content-type", "application/merge-patch+json")];
    let patched = client.send("PATCH", &format!("{CONFIG_MAPS}/y"), &headers, r#"{"data":{"v":"2"}}"#).await.ok();
    assert_eq!(patched["rows"][0]["cells"].as_array().unwrap()[..2], ["y", "b"]);
}

/// The caller has parsed the path, for example for an audit log. The router must use this result, so that both agree.
#[tokio::test]
async fn request_with_a_parsed_path_is_not_parsed_again() {
    let router = crate::harness::router(crate::harness::allow());
    let request = http::Request::get("/no/such/path").body(body::empty()).unwrap();
    let mut context = RequestContext::for_user(&User::named("test", "ann"), &request);
    context.arrival.reading = RequestReading::parse(&Mount::Merged, "GET", "/livez", None);
    assert_eq!(router.handle(request, &context).await.response.status(), 200);
}
