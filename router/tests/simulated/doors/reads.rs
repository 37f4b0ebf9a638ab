//! Tests of reads: each door gives the answers of the first one.

use bytes::Bytes;
use http::HeaderMap;
use serde_json::Value;

use super::table::{DoorForm, DoorRow, MEMBERS, MERGED_VIEWS};
use crate::harness::{Answer, CONFIG_MAPS, Fixture};

const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json";
const PARTIAL_LIST: &str = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io,application/json";
const PARTIAL: &str = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io,application/json";
const DISCOVERY: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";

/// Requests for objects: method, path and accepted media type.
const OBJECTS: &[(&str, &str, &str)] = &[
    ("GET", "/api/v1/namespaces/default/configmaps", "application/json"),
    ("GET", "/api/v1/namespaces/default/configmaps", TABLE),
    ("GET", "/api/v1/namespaces/default/configmaps", PARTIAL_LIST),
    ("GET", "/api/v1/configmaps?labelSelector=app%3Dweb", "application/json"),
    ("GET", "/api/v1/configmaps?fieldSelector=metadata.name%3Done", "*/*"),
    ("GET", "/api/v1/namespaces/default/configmaps?resourceVersion=0", "application/json"),
    ("GET", "/api/v1/namespaces/nowhere/configmaps", "application/json"),
    ("GET", "/api/v1/namespaces/default/configmaps/one", "application/json"),
    ("GET", "/api/v1/namespaces/default/configmaps/one", TABLE),
    ("GET", "/api/v1/namespaces/default/configmaps/one", PARTIAL),
    ("GET", "/api/v1/namespaces/default/configmaps/none", "application/json"),
    ("GET", "/api/v1/namespaces/default/configmaps/one", "text/html"),
    ("GET", "/api/v1/nodes", TABLE),
    ("GET", "/apis/apps/v1/deployments", "application/json"),
    ("GET", "/api/v1/configmaps?limit=x", "application/json"),
    ("GET", "/api/v1/configmaps?labelSelector=a%20b%20c", "application/json"),
    ("GET", "/api/v1/configmaps?continue=garbage", "application/json"),
    ("GET", "/api/v1/configmaps?resourceVersion=garbage!", "application/json"),
    ("GET", "/api/v1/configmaps?resourceVersionMatch=Exact", "application/json"),
    ("GET", "/api/v1/namespaces/default/configmaps/%2e%2e", "application/json"),
    ("PUT", "/api/v1/namespaces/default/configmaps", "application/json"),
];

/// Requests for documents, which Karmada's control plane answers at Karmada's doors of all members.
const DOCUMENTS: &[(&str, &str, &str)] = &[
    ("GET", "/", "application/json"),
    ("GET", "/api", "application/json"),
    ("GET", "/apis", "application/json"),
    ("GET", "/apis", DISCOVERY),
    ("GET", "/api", DISCOVERY),
    ("GET", "/api/v1", "application/json"),
    ("GET", "/apis/apps/v1", "application/json"),
    ("GET", "/openapi/v3", "application/json"),
    ("GET", "/openapi/v3/api/v1", "application/json"),
    ("GET", "/version", "application/json"),
    ("GET", "/unknown", "application/json"),
    ("GET", "//api/v1/pods", "application/json"),
    ("GET", "/api/v1/../v1/pods", "application/json"),
    ("GET", "/api/v1/pods;x", "application/json"),
    ("POST", "/version", "application/json"),
    ("DELETE", "/apis", "application/json"),
];

async fn start() -> Fixture {
    let fixture = Fixture::start(["a", "b"]).await;
    let mut labelled = crate::harness::config_map("labelled", "1");
    labelled["metadata"]["labels"] = serde_json::json!({"app": "web"});
    fixture.member("a").apply(labelled).unwrap();
    fixture.put_and_see("a", "one", "1").await;
    fixture.put_and_see("b", "two", "1").await;
    fixture
}

async fn send(row: &DoorRow, fixture: &Fixture, (method, path, accept): (&str, &str, &str)) -> Answer {
    row.client(fixture).send(method, path, &[("accept", accept)], "").await
}

/// Returns the headers of an answer without those that differ between two equal requests.
fn lasting_headers(answer: &Answer) -> HeaderMap {
    let mut headers = answer.headers.clone();
    for name in ["date", "audit-id"] {
        headers.remove(name);
    }
    headers
}

fn exact(answer: &Answer) -> (u16, HeaderMap, Bytes) {
    (answer.code, lasting_headers(answer), answer.body.clone())
}

#[tokio::test]
async fn every_door_of_a_member_gives_the_same_bytes() {
    let fixture = start().await;
    for request in OBJECTS.iter().chain(DOCUMENTS) {
        let expected = exact(&send(&MEMBERS[0], &fixture, *request).await);
        for row in &MEMBERS[1..] {
            assert_eq!(exact(&send(row, &fixture, *request).await), expected, "{row:?} {request:?}");
        }
    }
}

#[tokio::test]
async fn every_door_of_the_merged_view_gives_the_same_answers() {
    let fixture = start().await;
    for (requests, is_document) in [(OBJECTS, false), (DOCUMENTS, true)] {
        for request in requests {
            let expected = send(&MERGED_VIEWS[0], &fixture, *request).await;
            for row in MERGED_VIEWS[1..].iter().filter(|row| !is_document || row.form == DoorForm::Equal) {
                let answer = send(row, &fixture, *request).await;
                let code = expected.code;
                assert_eq!(answer.code, code, "{row:?} {request:?}: {answer:?}");
                if row.form == DoorForm::Equal {
                    assert_eq!(exact(&answer), exact(&expected), "{row:?} {request:?}");
                } else if code == 200 {
                    assert_eq!(row.without_additions(answer.json()), expected.json(), "{row:?} {request:?}");
                }
            }
        }
    }
}

/// Returns the pages of a list of ConfigMaps with one object each.
async fn pages(row: &DoorRow, fixture: &Fixture) -> Vec<Value> {
    let (client, mut token) = (row.client(fixture), String::new());
    let mut pages = Vec::new();
    loop {
        let page = client.get(&format!("{CONFIG_MAPS}?limit=1&continue={token}")).await.ok();
        token = page["metadata"]["continue"].as_str().unwrap_or_default().to_owned();
        pages.push(row.without_additions(page));
        if token.is_empty() {
            return pages;
        }
    }
}

#[tokio::test]
async fn every_door_gives_the_same_pages() {
    let fixture = start().await;
    for (rows, count) in [(MERGED_VIEWS, 3), (MEMBERS, 2)] {
        let expected = pages(&rows[0], &fixture).await;
        assert!(expected.len() >= count, "{expected:?}");
        for row in &rows[1..] {
            assert_eq!(pages(row, &fixture).await, expected, "{row:?}");
        }
    }
}
