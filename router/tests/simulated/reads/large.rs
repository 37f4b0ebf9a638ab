//! Tests of lists that are streamed, compressed, and requested by many clients at the same time.

use std::collections::BTreeSet;
use std::io::Read as _;
use std::sync::Arc;

use http_body::Body as _;
use http_body_util::BodyExt as _;
use serde_json::Value;
use tributary_apimachinery::wire::fields;
use tributary_simulator::SimulatorConfig;

use crate::harness::{Fixture, allow, cluster, config, name};

/// Starts two members with 60 pods of usual size each. The router streams the list of all pods, because it is large.
async fn fixture() -> Fixture {
    let pods = |name| SimulatorConfig { pods: 60, namespaces: 3, ..config(name) };
    Fixture::with(["a", "b"].map(pods), allow()).await
}

#[tokio::test]
async fn large_list_is_complete_with_and_without_gzip() {
    let fixture = fixture().await;
    let plain = fixture.get("/api/v1/pods").await;
    assert!(plain.body.len() > 256 << 10, "{}", plain.body.len());
    let list = plain.ok();
    let listed: BTreeSet<_> = list["items"].as_array().unwrap().iter().map(|pod| (cluster(pod), name(pod))).collect();
    let held =
        |member: &str| fixture.member(member).list("pods").iter().map(|pod| (member.to_owned(), name(pod))).collect();
    let expected: BTreeSet<_> = ["a", "b"].into_iter().flat_map(|member| -> Vec<_> { held(member) }).collect();
    assert_eq!(listed, expected);
    let packed = fixture.client().send("GET", "/api/v1/pods", &[("accept-encoding", "gzip")], "").await;
    assert_eq!(packed.headers["content-encoding"], "gzip");
    let mut text = Vec::new();
    flate2::read::GzDecoder::new(&packed.body[..]).read_to_end(&mut text).unwrap();
    assert_eq!(serde_json::from_slice::<Value>(&text).unwrap()["items"], list["items"]);
    // The list of one namespace is a part of the list of all namespaces.
    let namespace = list["items"][0]["metadata"]["namespace"].as_str().unwrap();
    let part = fixture.get(&format!("/api/v1/namespaces/{namespace}/pods")).await.ok();
    let all = list["items"].as_array().unwrap().iter();
    let expected: Vec<_> = all.filter(|pod| pod["metadata"]["namespace"] == namespace).cloned().collect();
    assert_eq!(part["items"].as_array().unwrap(), &expected);
}

/// The last frame of the list must end the HTTP/2 stream, so that no empty frame follows.
#[tokio::test]
async fn last_frame_of_a_large_list_ends_the_stream() {
    let fixture = fixture().await;
    for encoding in ["identity", "gzip"] {
        let answer = fixture.client().call("GET", "/api/v1/pods", &[("accept-encoding", encoding)], "").await;
        let mut body = answer.into_body();
        let (mut frames, mut bytes) = (0, 0);
        while !body.is_end_stream() {
            let frame = body.frame().await.expect("it ends with a frame").unwrap();
            (frames, bytes) = (frames + 1, bytes + frame.data_ref().unwrap().len());
        }
        assert!(frames > 1, "{frames} frames, {encoding}");
        assert!(body.frame().await.is_none());
        let whole = fixture.client().send("GET", "/api/v1/pods", &[("accept-encoding", encoding)], "").await;
        assert_eq!(bytes, whole.body.len(), "{encoding}");
    }
}

/// A list in protobuf begins with its length. So the router first computes the length, frame by frame, and then sends
/// the list.
#[tokio::test]
async fn large_metadata_list_is_complete_in_protobuf() {
    let fixture = fixture().await;
    let list = fixture.get("/api/v1/pods").await.ok();
    let accept = "application/vnd.kubernetes.protobuf;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1";
    let answer = fixture.client().send("GET", "/api/v1/pods", &[("accept", accept)], "").await;
    assert_eq!(
        (answer.code, answer.headers["content-type"].as_bytes()),
        (200, &b"application/vnd.kubernetes.protobuf"[..])
    );
    let contents = |message: &[u8], number: u64| -> Vec<Vec<u8>> {
        let found = fields(message).map(Result::unwrap).filter(|field| field.number == number);
        found.filter_map(|field| field.contents.map(<[u8]>::to_vec)).collect()
    };
    let message = contents(answer.body.strip_prefix(b"k8s\0").unwrap(), 2).remove(0);
    let names: Vec<_> = contents(&message, 2).iter().map(|item| contents(&contents(item, 1)[0], 1).remove(0)).collect();
    let expected: Vec<_> = list["items"].as_array().unwrap().iter().map(|pod| name(pod).into_bytes()).collect();
    assert!(expected.len() == 120 && names == expected, "{names:?}");
}

/// A tree of a YAML list would need ten times the memory of the text. With 100,000 objects, the process would run out
/// of memory. So the encoder writes row by row.
#[tokio::test]
async fn large_yaml_table_is_written_row_by_row() {
    let fixture = fixture().await;
    for include in ["Metadata", "Object", "None"] {
        let path = format!("/api/v1/pods?includeObject={include}");
        let table = |form| format!("application/{form};as=Table;g=meta.k8s.io;v=v1");
        let expected = fixture.client().send("GET", &path, &[("accept", &table("json"))], "").await.ok();
        let mut answer = fixture.client().call("GET", &path, &[("accept", &table("yaml"))], "").await;
        assert_eq!(
            (answer.status().as_u16(), answer.headers()["content-type"].as_bytes()),
            (200, b"application/yaml".as_slice())
        );
        let (mut text, mut longest) = (Vec::new(), 0);
        while let Some(frame) = answer.body_mut().frame().await {
            let frame = frame.unwrap().into_data().unwrap();
            longest = longest.max(frame.len());
            text.extend_from_slice(&frame);
        }
        assert!(longest <= 256 << 10, "{include}: a frame of {longest} of {} bytes", text.len());
        let written: Value = serde_saphyr::from_slice(&text).unwrap();
        assert_eq!(written["rows"].as_array().unwrap().len(), 120);
        assert_eq!(written, expected, "{include}");
    }
    let accept = "application/yaml;as=Table;g=meta.k8s.io;v=v1";
    let path = "/api/v1/pods?fieldSelector=metadata.name=nothing";
    let empty = fixture.client().send("GET", path, &[("accept", accept)], "").await;
    let text = String::from_utf8_lossy(&empty.body);
    assert!(
        text.starts_with("apiVersion: meta.k8s.io/v1\ncolumnDefinitions:\n") && text.ends_with("\nrows: []\n"),
        "{text}"
    );
}

#[tokio::test]
async fn concurrent_first_lists_start_one_cacher() {
    let fixture = Arc::new(fixture().await);
    let asked: Vec<_> = (0..30)
        .map(|_| {
            let client = fixture.client();
            tokio::spawn(async move { client.send("GET", "/api/v1/services?limit=1", &[], "").await.code })
        })
        .collect();
    for answer in asked {
        assert_eq!(answer.await.unwrap(), 200);
    }
    for member in &fixture.members {
        let control = member.control();
        let reads = control.request_log().iter().filter(|line| line.contains("/api/v1/services")).count();
        assert!(reads <= 2, "{reads} lists and watches of {}", member.name());
    }
}

#[tokio::test]
async fn requests_are_counted_in_the_metrics() {
    let fixture = fixture().await;
    fixture.get("/api/v1/pods?limit=1").await.ok();
    fixture.get("/api/v1/namespaces/default/pods/nothing").await.refused(404);
    let watch = fixture.watch("/api/v1/pods?watch=1").await;
    let text = fixture.router.metrics().expose();
    for (metric, part) in [
        ("apiserver_request_total", "verb=\"LIST\""),
        ("apiserver_request_total", "code=\"404\""),
        ("apiserver_longrunning_requests", "resource=\"pods\""),
        ("tributary_cacher_synced", "cluster=\"a\""),
    ] {
        let line = text.lines().find(|line| line.starts_with(metric) && line.contains(part));
        assert!(line.is_some_and(|line| !line.ends_with(" 0")), "{metric} {part}: {line:?}\n{text}");
    }
    let mut described: Vec<_> = text.lines().filter(|line| line.starts_with("# HELP")).collect();
    let names = described.len();
    described.sort_by_key(|line| line.split(' ').nth(2));
    described.dedup_by_key(|line| line.split(' ').nth(2).map(str::to_owned));
    assert_eq!(described.len(), names, "a name is described twice, which no reader takes\n{text}");
    // The metric must not include the watch after its end.
    drop(watch);
    let text = fixture.router.metrics().expose();
    let watches = text.lines().find(|line| line.starts_with("apiserver_longrunning_requests{"));
    assert!(watches.is_some_and(|line| line.ends_with(" 0")), "{watches:?}");
}
