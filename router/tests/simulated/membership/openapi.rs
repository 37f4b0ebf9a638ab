//! Tests of OpenAPI documents and the version: the requests to members, and the cached responses.

use tributary_simulator::RequestKind;

use crate::harness::{Fixture, at_once, until};

const V2_PROTOBUF: &str = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf";

fn requests(fixture: &Fixture, path: &str) -> usize {
    let log = fixture.members.iter().flat_map(|member| member.control().request_log());
    log.filter(|line| line.strip_prefix("GET ").is_some_and(|asked| asked.starts_with(path))).count()
}

#[tokio::test]
async fn openapi_documents_are_fetched_only_on_request() {
    let fixture = Fixture::start(["a", "b"]).await;
    assert_eq!(requests(&fixture, "/openapi"), 0);
}

#[tokio::test]
async fn openapi_document_shared_by_all_members_is_fetched_once() {
    let fixture = Fixture::start(["a", "b", "c"]).await;
    let index = fixture.get("/openapi/v3").await;
    let url = index.ok()["paths"]["apis/apps/v1"]["serverRelativeURL"].as_str().unwrap().to_owned();
    let (path, hash) = url.split_once("?hash=").unwrap();
    let mut bodies = Vec::new();
    for _ in 0..3 {
        let document = fixture.get(&url).await;
        assert_eq!((document.code, document.headers["etag"].to_str().unwrap()), (200, &*format!("\"{hash}\"")));
        assert_eq!(document.headers["cache-control"], "public, immutable");
        assert!(document.headers["expires"].to_str().unwrap().ends_with("GMT"));
        bodies.push(document.body);
    }
    assert_eq!(requests(&fixture, path), 1, "one member is asked, once");
    assert!(bodies.iter().all(|body| body == &bodies[0]));
    // A request with an old hash is redirected to the current hash. A client that has the current document gets 304.
    let moved = fixture.get(&format!("{path}?hash=OLD")).await;
    assert_eq!((moved.code, moved.headers["location"].to_str().unwrap()), (301, &*url));
    let tag = format!("\"{hash}\"");
    let same = fixture.client().send("GET", &url, &[("if-none-match", &tag)], "").await;
    assert_eq!((same.code, same.body.len()), (304, 0));
    let plain = fixture.get(path).await;
    assert_eq!((plain.code, plain.headers["cache-control"].to_str().unwrap()), (200, "no-cache, private"));
    fixture.client().send("GET", path, &[("accept", "text/html")], "").await.refused(406);
    for unknown in ["/openapi/v1", "/openapi"] {
        fixture.get(unknown).await.no_route();
    }
    // As in kube-openapi, the 404 has no body, whatever media type the client accepts.
    for accept in ["application/json", "text/html"] {
        for unknown in ["/openapi/v3/apis/nobody.io/v1", "/openapi/v3/"] {
            let answer = fixture.client().send("GET", unknown, &[("accept", accept)], "").await;
            assert_eq!((answer.code, answer.body.len()), (404, 0), "{unknown} {accept}");
            assert!(!answer.headers.contains_key("content-type"));
        }
    }
}

#[tokio::test]
async fn openapi_v2_document_is_fetched_once_and_compared_by_etag() {
    let fixture = Fixture::start(["a", "b", "c"]).await;
    let json = fixture.get("/openapi/v2").await;
    assert_eq!((json.code, json.headers["content-type"].to_str().unwrap()), (200, "application/json"));
    let with_protobuf = [("accept", V2_PROTOBUF)];
    let protobuf = fixture.client().send("GET", "/openapi/v2", &with_protobuf, "").await;
    assert_eq!(
        (protobuf.code, protobuf.headers["content-type"].to_str().unwrap()),
        (200, "application/com.github.proto-openapi.spec.v2.v1.0+protobuf")
    );
    assert!(protobuf.body.starts_with(b"\x0a\x032.0"));
    let tag = protobuf.headers["etag"].to_str().unwrap().to_owned();
    let same =
        fixture.client().send("GET", "/openapi/v2", &[("accept", V2_PROTOBUF), ("if-none-match", &tag)], "").await;
    assert_eq!((same.code, same.body.len()), (304, 0));
}

#[tokio::test]
async fn malformed_openapi_document_is_omitted_from_the_merged_document() {
    let fixture = Fixture::start(["a", "b", "c"]).await;
    let document = |url: String| {
        let client = fixture.client();
        async move { client.send("GET", &url, &[], "").await.ok() }
    };
    let url =
        |index: serde_json::Value| index["paths"]["apis/apps/v1"]["serverRelativeURL"].as_str().unwrap().to_owned();
    let whole = document(url(fixture.get("/openapi/v3").await.ok())).await;
    fixture.member("b").control().break_openapi(true);
    tokio::time::sleep(std::time::Duration::from_millis(2100)).await;
    let named = url(fixture.get("/openapi/v3").await.ok());
    let left = document(named.clone()).await;
    assert_eq!(left, whole, "what the others describe");
    assert_eq!(fixture.get(&named).await.headers["cache-control"], "public, immutable");
    for member in ["a", "c"] {
        fixture.member(member).control().break_openapi(true);
    }
    tokio::time::sleep(std::time::Duration::from_millis(2100)).await;
    // All members serve the same broken document, so the router has no better one and forwards it.
    assert_eq!(fixture.get("/openapi/v3/apis/apps/v1").await.code, 200);
    fixture.member("c").control().break_openapi(false);
    tokio::time::sleep(std::time::Duration::from_millis(2100)).await;
    assert_eq!(document("/openapi/v3/apis/apps/v1".to_owned()).await, whole);
}

/// The router caches documents by hash, for all users. If a member forges the hash of another member's document, its
/// own document gets a separate cache entry, which is removed with the member.
#[tokio::test]
async fn forged_openapi_hash_does_not_replace_another_members_document() {
    const DEPLOYMENT: &str = "simulated.v1.Deployment";
    // If several members serve an API version, the router prefers the first member by name, which is the forger here.
    let fixture = Fixture::start(["a", "b", "c"]).await;
    fixture.member("a").control().forge_openapi(true);
    let schemas = async |fixture: &Fixture| {
        let index = fixture.get("/openapi/v3").await.ok();
        let url = index["paths"]["apis/apps/v1"]["serverRelativeURL"].as_str().unwrap().to_owned();
        let document = fixture.get(&url).await;
        let document = match document.code {
            301 => fixture.get(document.headers["location"].to_str().unwrap()).await.ok(),
            _ => document.ok(),
        };
        document["components"]["schemas"].as_object().unwrap().keys().cloned().collect::<Vec<_>>()
    };
    let has = |schemas: &[String], name: &str| schemas.iter().any(|own| own == name);
    // The first request detects the forged document.
    let seen = schemas(&fixture).await;
    assert!(has(&seen, DEPLOYMENT) && !has(&seen, "forged"), "{seen:?}");
    for _ in 0..2 {
        let seen = schemas(&fixture).await;
        assert!(has(&seen, DEPLOYMENT) && has(&seen, "forged"), "{seen:?}");
    }
    assert_eq!(requests(&fixture, "/openapi/v3/apis/apps/v1"), 3, "each document is read once, and a's once more");
    fixture.set_clusters(&["b", "c"]).await;
    let seen = schemas(&fixture).await;
    assert!(has(&seen, DEPLOYMENT) && !has(&seen, "forged"), "{seen:?}");
}

#[tokio::test]
async fn old_openapi_hash_is_redirected_at_a_clusters_path() {
    let fixture = Fixture::start(["a"]).await;
    let index = fixture.get("/clusters/a/openapi/v3").await.ok();
    let url = index["paths"]["apis/apps/v1"]["serverRelativeURL"].as_str().unwrap();
    let present = fixture.get(&format!("/clusters/a{url}")).await;
    assert_eq!((present.code, present.ok()["openapi"].as_str()), (200, Some("3.0.0")));
    let moved = fixture.get("/clusters/a/openapi/v3/apis/apps/v1?hash=OLD").await;
    assert_eq!((moved.code, moved.headers["location"].to_str().unwrap()), (301, &*format!("/clusters/a{url}")));
    assert_eq!(moved.headers["cache-control"], "no-cache, private");
    assert_eq!(fixture.get("/clusters/a/openapi/v3/apis/nobody.io/v1?hash=OLD").await.code, 404);
}

#[tokio::test]
async fn silent_member_does_not_block_version_and_openapi() {
    let fixture = Fixture::start(["a", "b"]).await;
    fixture.get("/openapi/v3").await.ok();
    fixture.member("a").control().half_open(true);
    // The router has read the version before, so it answers from memory and does not wait for the silent member.
    assert_eq!(at_once(fixture.get("/version")).await.ok()["gitVersion"], "v1.36.3");
    tokio::time::sleep(std::time::Duration::from_secs(2)).await;
    let begun = tokio::time::Instant::now();
    let index = fixture.get("/openapi/v3").await.ok();
    assert!(index["paths"]["api/v1"].is_object());
    // The router must not wait for the whole timeout of a member's response, which is more than a minute.
    assert!(begun.elapsed().as_secs() < 30, "{:?}", begun.elapsed());
    fixture.member("a").control().half_open(false);
    fixture.member("a").control().stop_listening().await;
    fixture.member("b").control().stop_listening().await;
    fixture.get("/apis/example.io").await.no_route();
    until(|| async { fixture.get("/readyz/cluster/b").await.code == 500 }).await;
    assert!(fixture.get("/openapi/v2").await.refused(503).contains("no cluster"));
    fixture.get("/version").await.ok();
}

#[tokio::test]
async fn openapi_documents_of_an_unreachable_cluster_remain() {
    let fixture = Fixture::start(["a", "b"]).await;
    let protobuf = [("accept", V2_PROTOBUF)];
    // Broken OpenAPI of `b` makes its document differ from that of `a`, so the router fetches both documents.
    fixture.member("b").control().break_openapi(true);
    let index = fixture.get("/openapi/v3").await;
    let url = index.ok()["paths"]["apis/apps/v1"]["serverRelativeURL"].as_str().unwrap().to_owned();
    let document = fixture.get(&url).await;
    let whole = fixture.client().send("GET", "/openapi/v2", &protobuf, "").await;
    assert_eq!((document.code, whole.code), (200, 200));
    fixture.member("b").control().break_openapi(false);
    for member in ["a", "b"] {
        fixture.member(member).control().stop_listening().await;
        fixture.get("/apis/example.io").await.no_route();
        fixture.out_of_reach(member).await;
    }
    let kept = fixture.get("/openapi/v3").await.ok();
    let paths: Vec<_> = kept["paths"].as_object().unwrap().keys().collect();
    assert_eq!(paths, ["apis/aggregation.tributary.dev/v1alpha1", "apis/apps/v1"], "what nobody has read is not known");
    assert_eq!(kept["paths"]["apis/apps/v1"]["serverRelativeURL"], *url);
    assert_eq!(fixture.get(&url).await.body, document.body);
    assert_eq!(fixture.client().send("GET", "/openapi/v2", &protobuf, "").await.body, whole.body);
    // Only the protobuf document is in the cache, and the router does not convert it to JSON.
    assert!(fixture.get("/openapi/v2").await.refused(503).contains("no cluster"));
    // The router can compress the cached document, although no client has requested this form before.
    let form = [("accept-encoding", "gzip")];
    assert_eq!(fixture.client().send("GET", &url, &form, "").await.code, 200);
}

#[tokio::test]
async fn access_review_is_answered_by_the_reachable_clusters() {
    let fixture = Fixture::start(["a", "b"]).await;
    let review = |kind: &str| serde_json::json!({"apiVersion": "authorization.k8s.io/v1", "kind": kind, "spec": {}});
    let path = |resource: &str| format!("/apis/authorization.k8s.io/v1/{resource}");
    let access = fixture.write("POST", &path("selfsubjectaccessreviews"), &review("SelfSubjectAccessReview")).await;
    assert_eq!(access.ok()["status"]["allowed"], true);
    fixture.member("b").control().stop_listening().await;
    let access = fixture.write("POST", &path("selfsubjectaccessreviews"), &review("SelfSubjectAccessReview")).await;
    let status = &access.ok()["status"];
    assert_eq!(status["allowed"], true);
    assert!(status["evaluationError"].as_str().unwrap().contains("b ("), "{status}");
    assert_eq!(access.warnings().len(), 1);
    let rules = fixture.write("POST", &path("selfsubjectrulesreviews"), &review("SelfSubjectRulesReview")).await.ok();
    assert_eq!(rules["status"]["incomplete"], true);
    assert!(rules["status"]["evaluationError"].as_str().unwrap().contains("b ("), "{rules}");
    assert!(fixture.members[0].control().requests(RequestKind::Write) >= 3);
}
