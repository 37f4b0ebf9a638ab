//! Tests of discovery, OpenAPI, version, health and authentication.

use serde_json::json;

use crate::client::Fixture;

const AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";

#[tokio::test]
async fn aggregated_and_legacy_discovery_have_the_same_resources() {
    let fixture = Fixture::small().await;
    let core = fixture.get_as("/api", AGGREGATED).await;
    assert_eq!(core.headers["content-type"], AGGREGATED);
    let core_names: Vec<_> = core.json()["items"][0]["versions"][0]["resources"]
        .as_array()
        .unwrap()
        .iter()
        .map(|r| r["resource"].as_str().unwrap().to_owned())
        .collect();
    let legacy = fixture.get("/api/v1").await.json();
    let legacy_names: Vec<_> = legacy["resources"]
        .as_array()
        .unwrap()
        .iter()
        .map(|r| r["name"].as_str().unwrap().to_owned())
        .filter(|name| !name.contains('/'))
        .collect();
    assert_eq!(core_names, legacy_names);
    let groups = fixture.get_as("/apis", AGGREGATED).await.json();
    assert_eq!(groups["items"][0]["metadata"]["name"], "apps");
    assert_eq!(fixture.get("/apis").await.json()["groups"][0]["name"], "apps");
    assert_eq!(fixture.get("/apis/apps").await.json()["preferredVersion"]["groupVersion"], "apps/v1");
    assert_eq!(fixture.get("/apis/apps/v1").await.json()["resources"][1]["name"], "deployments/scale");
    assert_eq!(fixture.get("/apis/none").await.code, 404);
}

#[tokio::test]
async fn discovery_and_openapi_documents_have_etags() {
    let fixture = Fixture::small().await;
    for path in ["/api", "/apis", "/openapi/v2", "/openapi/v3", "/openapi/v3/api/v1", "/openapi/v3/apis/apps/v1"] {
        let first = fixture.get(path).await;
        assert_eq!(first.code, 200, "{path}");
        let mut request = fixture.request("GET", path, "", "");
        request.headers_mut().insert("if-none-match", first.headers["etag"].clone());
        assert_eq!(fixture.answer(request).await.code, 304, "{path}");
    }
}

#[tokio::test]
async fn outdated_openapi_hash_redirects_to_the_present_document() {
    let fixture = Fixture::small().await;
    let moved = fixture.get("/openapi/v3/apis/apps/v1?hash=OLD").await;
    assert_eq!(moved.code, 301);
    assert_eq!(fixture.get(moved.headers["location"].to_str().unwrap()).await.code, 200);
}

#[tokio::test]
async fn openapi_declares_server_side_validation() {
    let fixture = Fixture::small().await;
    let document = fixture.get("/openapi/v3/api/v1").await.json();
    let patch = &document["paths"]["/api/v1/namespaces/{namespace}/pods/{name}"]["patch"];
    assert_eq!(patch["x-kubernetes-group-version-kind"]["kind"], "Pod");
    assert!(patch["parameters"].as_array().unwrap().iter().any(|parameter| parameter["name"] == "fieldValidation"));
    let protobuf = fixture.get_as("/openapi/v2", "application/com.github.proto-openapi.spec.v2@v1.0+protobuf").await;
    assert_eq!(&protobuf.body[..5], b"\x0a\x032.0");
}

#[tokio::test]
async fn version_health_and_access_reviews_return_200() {
    let fixture = Fixture::small().await;
    assert_eq!(fixture.get("/version").await.json()["gitVersion"], "v1.36.3");
    for path in ["/healthz", "/livez", "/readyz?verbose"] {
        assert_eq!(fixture.get(path).await.body, "ok");
    }
    let review = json!({"kind": "SelfSubjectAccessReview", "apiVersion": "authorization.k8s.io/v1", "spec": {}});
    let path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
    assert_eq!(fixture.write("POST", path, "application/json", &review).await.json()["status"]["allowed"], true);
}

#[tokio::test]
async fn unknown_token_returns_401_and_unknown_path_404() {
    let fixture = Fixture::small().await;
    let mut request = fixture.request("GET", "/api/v1/pods", "", "");
    request.headers_mut().insert("authorization", "Bearer wrong".parse().unwrap());
    let refused = fixture.answer(request).await;
    assert_eq!((refused.code, refused.json()["reason"].clone()), (401, json!("Unauthorized")));
    for path in ["/apis/none/v1/things", "/api/v1//pods", "/nothing", "/api/v1/namespaces/default/pods/p/none"] {
        assert_eq!(fixture.get(path).await.code, 404, "{path}");
    }
    assert_eq!(fixture.write("POST", "/version", "application/json", &json!({})).await.code, 405);
}
