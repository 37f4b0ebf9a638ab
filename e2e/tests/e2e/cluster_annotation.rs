//! Tests the annotation `tributary.dev/cluster`. Tributary lets no client store it in a member, in whatever form the
//! client writes it. If a member has such an annotation that was stored without Tributary, it must not mislead clients.
//! A bare kube-apiserver must accept each form, to show that the form is valid.

use crate::context::{Case, TestContext, cases, eventually};
use anyhow::{Context, ensure};
use serde_json::{Value, json};
use std::{sync::Arc, time::Duration};
use tributary_apimachinery::wire::put_field;
use tributary_e2e::{HttpClient, HttpResponse, TestCluster};

const SOON: Duration = Duration::from_secs(60);
const ANNOTATION: &str = "tributary.dev/cluster";

pub(crate) fn cases() -> Vec<Case> {
    cases!["cluster_annotation";
        cluster_annotation_is_never_stored_in_any_form, false_cluster_annotation_stored_at_a_member_is_replaced_by_the_true_cluster,
    ]
}

/// Media types of request bodies. A patch changes an existing object, and other bodies create an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum How {
    Json,
    Yaml,
    Protobuf,
    Apply,
    Patch(&'static str),
}

/// Media type and request body that sets the annotation. The body has placeholders `NAME` and `CLUSTER`.
type Written = (How, &'static str);

const MERGE: How = How::Patch("merge-patch+json");
const STRATEGIC: How = How::Patch("strategic-merge-patch+json");
const JSON_PATCH: How = How::Patch("json-patch+json");

/// Request bodies that set the annotation. A patch changes the existing object `NAME`, which already has an annotation.
const WAYS: [Written; 21] = [
    (How::Json, r#"{"metadata":{"name":"NAME","annotations":{"tributary.dev/cluster":"CLUSTER"}}}"#),
    (How::Json, r#"{"met\u0061data":{"name":"NAME","annotations":{"\u0074ributary.dev\/cluster":"CLUSTER"}}}"#),
    (
        How::Json,
        r#"{"metadata":{"name":"NAME","annotations":{"tributary.dev/cluster":"x"},"annotations":{"tributary.dev/cluster":"CLUSTER"}}}"#,
    ),
    (How::Yaml, "metadata:\n  name: NAME\n  annotations:\n    tributary.dev/cluster: CLUSTER\n"),
    (How::Yaml, "metadata: {name: NAME, annotations: {'tributary.dev/cluster': \"CLUSTER\"}}\n"),
    (How::Yaml, "metadata: {name: NAME, annotations: {\"\\U00000074ributary.dev/cluster\": CLUSTER}}\n"),
    (How::Yaml, "metadata: {name: NAME, annotations: {\"\\x74ributary\\u002edev/cluster\": CLUSTER}}\n"),
    (How::Yaml, "metadata:\n  name: NAME\n  annotations:\n    ? \"tributary.d\\\n      ev/cluster\"\n    : CLUSTER\n"),
    (How::Yaml, "metadata:\n  name: NAME\n  annotations:\n    ? tributary.dev/cluster\n    : CLUSTER\n"),
    (How::Yaml, "metadata: {name: NAME, annotations: {!!binary dHJpYnV0YXJ5LmRldi9jbHVzdGVy: CLUSTER}}\n"),
    (
        How::Yaml,
        "metadata:\n  name: NAME\n  labels: {l: &key tributary.dev}\n  annotations: &map\n    tributary.dev/cluster: CLUSTER\n",
    ),
    (
        How::Yaml,
        "data: &map {tributary.dev/cluster: CLUSTER}\nmetadata:\n  name: NAME\n  annotations:\n    <<: *map\ndata: {}\n",
    ),
    (How::Apply, r#"{"metadata":{"name":"NAME","annotations":{"\u0074ributary.dev/cluster":"CLUSTER"}}}"#),
    (How::Apply, "metadata: {name: NAME, annotations: {\"\\x74ributary.dev/cluster\": CLUSTER}}\n"),
    (
        How::Apply,
        "%TAG ! tag:yaml.org,2002:\n---\nmetadata: {name: NAME, annotations: {!binary dHJpYnV0YXJ5LmRldi9jbHVzdGVy: CLUSTER}}\n",
    ),
    (MERGE, r#"{"metadata":{"annotations":{"\u0074ributary.dev/cluster":"CLUSTER"}}}"#),
    (STRATEGIC, r#"{"metadata":{"annotations":{"tributary.dev\/cluster":"CLUSTER"}}}"#),
    (JSON_PATCH, r#"[{"op":"add","path":"/metadata/annotations/tributary.dev~1cluster","value":"CLUSTER"}]"#),
    (JSON_PATCH, r#"[{"op":"add","p\u0061th":"/metadata/annotations/\u0074ributary.dev~1cluster","value":"CLUSTER"}]"#),
    (JSON_PATCH, r#"[{"op":"replace","path":"/metadata/annotations","value":{"tributary.dev\/cluster":"CLUSTER"}}]"#),
    (How::Protobuf, ""),
];

/// Encodes a ConfigMap in protobuf, with name, labels and annotation.
fn protobuf(name: &str, entry: &[u8], entry_number: u64) -> Vec<u8> {
    let message = |fields: &[(u64, &[u8])]| {
        let mut out = Vec::new();
        fields.iter().for_each(|(number, contents)| put_field(&mut out, *number, contents));
        out
    };
    let metadata = message(&[(1, name.as_bytes()), (entry_number, entry)]);
    let type_meta = message(&[(1, b"v1"), (2, b"ConfigMap")]);
    [b"k8s\0".to_vec(), message(&[(1, &type_meta), (2, &message(&[(1, &metadata)]))])].concat()
}

/// Encodes the annotation with this value as a map entry.
fn entry(value: &str) -> Vec<u8> {
    let mut out = Vec::new();
    put_field(&mut out, 1, ANNOTATION.as_bytes());
    put_field(&mut out, 2, value.as_bytes());
    out
}

/// Sends a request body to the collection's path, or to the object's path for a patch.
async fn send(
    http: &HttpClient,
    maps: &str,
    (how, body): Written,
    name: &str,
    cluster: &str,
) -> anyhow::Result<HttpResponse> {
    let text = body.replace("NAME", name).replace("CLUSTER", cluster);
    let one = format!("{maps}/{name}");
    let kind = "\"apiVersion\":\"v1\",\"kind\":\"ConfigMap\",";
    let in_json = text.replacen('{', &format!("{{{kind}"), 1);
    // In YAML, the document follows its directives, so the fields are inserted after the `---` line.
    let (directives, document) = text.split_once("---\n").unwrap_or(("", &text));
    let begin = if directives.is_empty() { String::new() } else { format!("{directives}---\n") };
    let in_yaml = format!("{begin}apiVersion: v1\nkind: ConfigMap\n{document}");
    let request = match how {
        How::Json => http.request(http::Method::POST, maps).body("application/json", in_json),
        How::Yaml => http.request(http::Method::POST, maps).body("application/yaml", in_yaml),
        How::Protobuf => http
            .request(http::Method::POST, maps)
            .body("application/vnd.kubernetes.protobuf", protobuf(name, &entry(cluster), 12)),
        How::Apply => http
            .request(http::Method::PATCH, &format!("{one}?fieldManager=t&force=true"))
            .body("application/apply-patch+yaml", if text.starts_with('{') { in_json } else { in_yaml }),
        How::Patch(kind) => http.request(http::Method::PATCH, &one).body(&format!("application/{kind}"), text),
    };
    request.send().await
}

async fn stored(member: &TestCluster, maps: &str, name: &str) -> anyhow::Result<Option<Value>> {
    let answer = member.http().get(&format!("{maps}/{name}")).send().await?;
    if answer.status == 404 {
        return Ok(None);
    }
    Ok(Some(answer.expect(200)?.json()?["metadata"]["annotations"][ANNOTATION].take()))
}

/// Creates an object for a later patch. The object has a label with the annotation's name, which Tributary allows.
async fn make(member: &TestCluster, maps: &str, name: &str) -> anyhow::Result<()> {
    let object = json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": name, "annotations": {"a": "b"}, "labels": {ANNOTATION: "member2"}},
    });
    member.http().post(maps, &object).send().await?.expect(201)?;
    Ok(())
}

async fn cluster_annotation_is_never_stored_in_any_form(context: TestContext) -> anyhow::Result<()> {
    let members = context.fixture.pair().await?.clone();
    let http = context.fixture.over_two().await?.http().await?;
    let namespace = context.namespace("taken-back", &members).await?;
    let maps = format!("/api/v1/namespaces/{namespace}/configmaps");
    let own = format!("/clusters/member1{maps}");
    for (index, way) in WAYS.into_iter().enumerate() {
        let is_patch = matches!(way.0, How::Patch(_));
        let named = |what: &str| format!("{what}-{index}");
        for what in ["bare", "own", "merged", "other"] {
            if is_patch {
                make(&members[0], &maps, &named(what)).await?;
            }
        }
        let bare = send(members[0].http(), &maps, way, &named("bare"), "member2").await?;
        ensure!(bare.status.is_success(), "{way:?}: {}", bare.text());
        let bait = stored(&members[0], &maps, &named("bare")).await?;
        ensure!(bait == Some(json!("member2")), "{way:?} is not our annotation for a kube-apiserver: {bait:?}");

        let other = send(&http, &own, way, &named("other"), "member2").await?;
        ensure!(other.status == 409, "{way:?}: {} {}", other.status, other.text());
        for (root, what) in [(&own, "own"), (&maps, "merged")] {
            if is_patch && what == "merged" {
                eventually(SOON, async || {
                    http.get(&format!("{maps}/{}", named(what))).send().await?.expect(200)?;
                    Ok(())
                })
                .await?;
            }
            let answer = send(&http, root, way, &named(what), "member1").await?;
            ensure!(answer.status.is_success(), "{way:?} {root}: {}", answer.text());
        }
        for (what, expected) in [("own", Some(Value::Null)), ("merged", Some(Value::Null)), ("other", None)] {
            let found = stored(&members[0], &maps, &named(what)).await?;
            let expected = if is_patch { Some(Value::Null) } else { expected };
            ensure!(found == expected, "{way:?} {what}: {found:?}");
            ensure!(stored(&members[1], &maps, &named(what)).await?.is_none(), "{way:?} {what} is in member2");
        }
    }
    what_is_not_written_as_a_text(&http, &members[0], &maps).await
}

/// Sends bodies that do not contain the annotation's name in plain text: a JSON patch that copies the label, protobuf
/// that only Go decodes, and CBOR.
async fn what_is_not_written_as_a_text(http: &HttpClient, member: &TestCluster, maps: &str) -> anyhow::Result<()> {
    let own = format!("/clusters/member1{maps}");
    make(member, maps, "copied").await?;
    let copy = (JSON_PATCH, r#"[{"op":"copy","from":"/metadata/labels","path":"/metadata/annotations"}]"#);
    send(http, &own, copy, "copied", "").await?.expect(200)?;
    ensure!(stored(member, maps, "copied").await? == Some(Value::Null), "it was copied");
    send(member.http(), maps, copy, "copied", "").await?.expect(200)?;
    ensure!(stored(member, maps, "copied").await? == Some(json!("member2")), "it cannot be copied at all");

    // kube-apiserver's protobuf decoder (in Go) cuts a field number to 32 bits and ignores the wire type of the key.
    // Tributary must decode the annotation in the same way.
    let of_another_type = [&[1 << 3 | 5, 21][..], ANNOTATION.as_bytes(), &[2 << 3 | 2, 101], &[b'x'; 101]].concat();
    for (name, entry, number, expected) in [
        ("cut-number", entry("member2"), (1 << 32) + 12, json!("member2")),
        ("another-type", of_another_type, 12, json!("x".repeat(101))),
    ] {
        let body = || protobuf(name, &entry, number);
        let post = |http: &HttpClient, path: &str| {
            http.request(http::Method::POST, path).body("application/vnd.kubernetes.protobuf", body())
        };
        for root in [&own, &maps.to_owned()] {
            post(http, root).send().await?.expect(400)?;
        }
        post(member.http(), maps).send().await?.expect(201)?;
        let found = stored(member, maps, name).await?;
        ensure!(found == Some(expected), "{name} is not our annotation for a kube-apiserver: {found:?}");
    }
    let cbor = http.request(http::Method::POST, &own).body("application/cbor", &b"\xd9\xd9\xf7\xa0"[..]);
    cbor.send().await?.expect(415)?;
    Ok(())
}

/// Some objects have an annotation with the name of a wrong cluster, stored without Tributary. The merged view must
/// show their true cluster, and a write of an object from the merged view must reach the true cluster.
async fn false_cluster_annotation_stored_at_a_member_is_replaced_by_the_true_cluster(
    context: TestContext,
) -> anyhow::Result<()> {
    let members: [Arc<TestCluster>; 2] = context.fixture.pair().await?.clone();
    let tributary = context.fixture.over_two().await?;
    let (http, kubectl) = (tributary.http().await?, tributary.kubectl(context.fixture.tools().await?)?);
    let namespace = context.namespace("bait", &members).await?;
    let maps = format!("/api/v1/namespaces/{namespace}/configmaps");
    for name in ["replaced", "applied", "deleted"] {
        let bait = json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": name, "annotations": {ANNOTATION: "member2"}}, "data": {"step": "1"},
        });
        members[0].http().post(&maps, &bait).send().await?.expect(201)?;
    }
    let of = |cluster: &str| format!("{maps}?labelSelector=tributary.dev%2Fcluster%3D{cluster}");
    eventually(SOON, async || {
        let list = http.get(&of("member1")).send().await?.expect(200)?.json()?;
        let items = list["items"].as_array().context("no items")?;
        let baits: Vec<_> = items.iter().filter(|item| item["data"]["step"] == "1").collect();
        let are_true = baits.iter().all(|item| item["metadata"]["annotations"][ANNOTATION] == "member1");
        ensure!(baits.len() == 3 && are_true, "{list}");
        Ok(())
    })
    .await?;
    let elsewhere = http.get(&of("member2")).send().await?.expect(200)?.text();
    ensure!(!elsewhere.contains("\"step\""), "{elsewhere}");
    let words = ["-n", namespace.as_str()];
    let table = kubectl.ok(&[&words[..], &["get", "configmap", "replaced"]].concat()).await?;
    ensure!(table.contains("member1") && !table.contains("member2"), "{table}");

    // An object from the merged view is written back to its cluster.
    for (name, command) in
        [("replaced", &["replace", "-f"][..]), ("applied", &["apply", "--server-side", "--force-conflicts", "-f"])]
    {
        let shown = kubectl.ok(&[&words[..], &["get", "configmap", name, "-o", "yaml"]].concat()).await?;
        ensure!(shown.contains("tributary.dev/cluster: member1") && !shown.contains("cluster: member2"), "{shown}");
        let changed: String = shown.replace("step: \"1\"", "step: \"2\"");
        let changed = changed.lines().filter(|line| name != "applied" || !line.contains("resourceVersion:"));
        let file = kubectl.file(&format!("{name}.yaml"), &changed.collect::<Vec<_>>().join("\n"))?;
        kubectl.ok(&[command, &[&*file]].concat()).await?;
        let now = members[0].http().get(&format!("{maps}/{name}")).send().await?.expect(200)?.json()?;
        ensure!(now["data"]["step"] == "2", "{now}");
        ensure!(stored(&members[1], &maps, name).await?.is_none(), "{name} was made in member2");
    }
    ensure!(stored(&members[0], &maps, "replaced").await? == Some(Value::Null), "the bait stays after a replacement");
    // The path of the cluster (`/clusters/member1`) shows the stored annotation, and refuses a write that names a
    // different cluster.
    let raw = http.get(&format!("/clusters/member1{maps}/deleted")).send().await?.expect(200)?.json()?;
    ensure!(raw["metadata"]["annotations"][ANNOTATION] == "member2", "{raw}");
    http.put(&format!("/clusters/member1{maps}/deleted"), &raw).send().await?.expect(409)?;
    kubectl.ok(&[&words[..], &["delete", "configmap", "deleted"]].concat()).await?;
    ensure!(stored(&members[0], &maps, "deleted").await?.is_none(), "it is still there");
    Ok(())
}
