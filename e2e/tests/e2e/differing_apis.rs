//! Members with different APIs: a CRD in only one member, different versions of a CRD, different kinds with the same
//! name, and aggregated servers. The tests check discovery, OpenAPI and kubectl's output.

use crate::context::{Case, TestContext, cases, eventually};
use crate::fixture::Differing;
use anyhow::{Context, ensure};
use serde_json::{Value, json};
use std::{collections::BTreeSet, sync::Arc, time::Duration};
use tributary_apimachinery::wire;
use tributary_e2e::{HttpClient, HttpResponse, Kubectl};

const SOON: Duration = Duration::from_secs(60);
const V2_PROTOBUF: &str = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf";
const V3_PROTOBUF: &str = "application/com.github.proto-openapi.spec.v3@v1.0+protobuf";

pub(crate) fn cases() -> Vec<Case> {
    cases!["differing_apis";
        kubectl_explain_works_for_kinds_of_one_cluster, object_is_validated_by_the_schema_of_the_only_cluster_with_its_kind,
        server_side_apply_works_for_a_kind_of_one_cluster, openapi_served_equally_by_all_members_is_forwarded_unchanged,
        openapi_of_members_with_different_crds_is_merged, preferred_version_is_one_that_all_members_serve,
        cluster_whose_kind_has_another_scope_is_omitted_with_a_warning, printer_columns_change_when_the_crd_changes,
        kubectl_top_shows_metrics_of_all_members, component_statuses_of_all_members_are_listed,
    ]
}

/// Makes a CRD. `resource` is `PLURAL.GROUP`, and each version has the properties of its `spec`.
fn definition(resource: &str, kind: &str, scope: &str, versions: &[(&str, Value)]) -> Value {
    let (plural, group) = resource.split_once('.').unwrap_or((resource, "example.test"));
    let versions: Vec<Value> = versions
        .iter()
        .enumerate()
        .map(|(at, (name, properties))| {
            json!({
                "name": name, "served": true, "storage": at == 0,
                "schema": {"openAPIV3Schema": {"type": "object", "properties": {
                    "spec": {"type": "object", "properties": properties},
                }}},
                "additionalPrinterColumns": [{"name": "Size", "type": "integer", "jsonPath": ".spec.size"}],
            })
        })
        .collect();
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.{group}")},
        "spec": {
            "group": group, "scope": scope, "versions": versions,
            "names": {"plural": plural, "singular": kind.to_lowercase(), "kind": kind, "listKind": format!("{kind}List")},
        },
    })
}

/// Returns the CRDs of each member.
pub(crate) fn definitions() -> [Vec<Value>; 2] {
    let size = json!({"size": {"type": "integer", "description": "How large it is."}});
    let both = json!({"size": {"type": "integer"}, "colour": {"type": "string"}});
    let north = vec![
        definition("gadgets", "Gadget", "Namespaced", &[("v1beta1", size.clone())]),
        definition("things.clash.test", "Thing", "Namespaced", &[("v1", size.clone())]),
        definition("poles", "Pole", "Namespaced", &[("v1beta1", size.clone())]),
    ];
    let south = vec![
        definition("widgets", "Widget", "Namespaced", &[("v1", both.clone())]),
        definition("gadgets", "Gadget", "Namespaced", &[("v1", size.clone()), ("v1beta1", both)]),
        definition("things.clash.test", "Thing", "Cluster", &[("v1", size)]),
    ];
    [north, south]
}

struct Setup {
    differing: Arc<Differing>,
    kubectl: Kubectl,
    http: HttpClient,
    namespace: String,
}

impl Setup {
    async fn new(context: &TestContext) -> anyhow::Result<Self> {
        let differing = context.fixture.differing().await?;
        let kubectl = differing.tributary.kubectl(context.fixture.tools().await?)?;
        let http = differing.tributary.http().await?;
        let namespace = context.namespace("differing", &differing.members).await?;
        Ok(Self { differing, kubectl, http, namespace })
    }

    async fn kubectl(&self, arguments: &[&str]) -> anyhow::Result<String> {
        self.kubectl.ok(&[&["-n", &self.namespace], arguments].concat()).await
    }

    fn path(&self, version: &str, resource: &str) -> String {
        format!("/apis/example.test/{version}/namespaces/{}/{resource}", self.namespace)
    }

    async fn put(&self, member: usize, path: &str, object: &Value) -> anyhow::Result<()> {
        self.differing.members[member].http().post(path, object).send().await?.expect(201)?;
        Ok(())
    }

    async fn get(&self, path: &str, accept: &str) -> anyhow::Result<HttpResponse> {
        self.http.get(path).accept(accept).send().await?.expect(200)
    }
}

fn object(version: &str, kind: &str, name: &str) -> Value {
    json!({"apiVersion": format!("example.test/{version}"), "kind": kind, "metadata": {"name": name}, "spec": {"size": 7}})
}

fn warnings(answer: &HttpResponse) -> Vec<&str> {
    answer.headers.get_all("warning").iter().filter_map(|value| value.to_str().ok()).collect()
}

async fn kubectl_explain_works_for_kinds_of_one_cluster(context: TestContext) -> anyhow::Result<()> {
    let setup = Setup::new(&context).await?;
    eventually(SOON, async || {
        let text = setup.kubectl(&["explain", "gadgets.spec.size"]).await?;
        ensure!(text.contains("FIELD: size <integer>") && text.contains("VERSION:    v1beta1"), "{text}");
        // Only the first cluster has the CRD of `widgets`, and only the second has the CRD of `poles`. kubectl must
        // explain both kinds.
        let text = setup.kubectl(&["explain", "widgets", "--recursive"]).await?;
        ensure!(text.contains("KIND:       Widget") && text.contains("colour"), "{text}");
        let text = setup.kubectl(&["explain", "poles.spec"]).await?;
        ensure!(text.contains("How large it is."), "{text}");
        // The OpenAPI v2 document contains all kinds, so this document must contain both custom and built-in kinds.
        let text = setup.kubectl(&["explain", "widgets.spec", "--output=plaintext-openapiv2"]).await?;
        ensure!(text.contains("colour"), "{text}");
        let text = setup.kubectl(&["explain", "pods.spec.containers.image"]).await?;
        ensure!(text.contains("FIELD: image <string>"), "{text}");
        Ok(())
    })
    .await
}

async fn object_is_validated_by_the_schema_of_the_only_cluster_with_its_kind(
    context: TestContext,
) -> anyhow::Result<()> {
    let setup = Setup::new(&context).await?;
    let mut wrong = object("v1", "Widget", "one");
    wrong["spec"]["weight"] = json!(3);
    let file = setup.kubectl.file("wrong.json", &wrong.to_string())?;
    let refused = setup.kubectl.run(&["-n", &setup.namespace, "create", "--validate=strict", "-f", &file]).await?;
    let refused = refused.failure()?;
    ensure!(refused.contains("unknown field \"spec.weight\""), "{refused}");
    let warned = setup.kubectl.run(&["-n", &setup.namespace, "create", "--validate=warn", "-f", &file]).await?;
    ensure!(warned.stderr.contains("unknown field \"spec.weight\""), "{warned:?}");
    warned.success()?;
    let file = setup.kubectl.file("right.json", &object("v1", "Widget", "two").to_string())?;
    setup.kubectl(&["create", "--validate=strict", "-f", &file]).await?;
    let shown = setup.kubectl(&["get", "widgets", "-o", "name"]).await?;
    ensure!(shown == "widget.example.test/one\nwidget.example.test/two\n", "{shown}");
    Ok(())
}

async fn server_side_apply_works_for_a_kind_of_one_cluster(context: TestContext) -> anyhow::Result<()> {
    let setup = Setup::new(&context).await?;
    let file = setup.kubectl.file("widget.json", &object("v1", "Widget", "one").to_string())?;
    for expected in ["serverside-applied", "serverside-applied"] {
        let text = setup.kubectl(&["apply", "--server-side", "-f", &file]).await?;
        ensure!(text.contains(expected), "{text}");
    }
    // The patch makes another field manager the owner of the field, so the next apply has a conflict.
    setup.kubectl(&["patch", "widget", "one", "--type=merge", "-p", r#"{"spec":{"size":8}}"#]).await?;
    let conflict = setup.kubectl.run(&["-n", &setup.namespace, "apply", "--server-side", "-f", &file]).await?;
    let conflict = conflict.failure()?;
    ensure!(conflict.contains(".spec.size"), "{conflict}");
    setup.kubectl(&["apply", "--server-side", "--force-conflicts", "-f", &file]).await?;
    let size = setup.kubectl(&["get", "widget", "one", "-o", "jsonpath={.spec.size}"]).await?;
    ensure!(size == "7", "{size}");
    // To merge lists, a client-side apply reads the schema of built-in kinds in protobuf.
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "m"}, "data": {"a": "1"}});
    let file = setup.kubectl.file("map.json", &map.to_string())?;
    setup.kubectl(&["apply", "-f", &file]).await?;
    let unchanged = setup.kubectl(&["apply", "-f", &file]).await?;
    ensure!(unchanged.contains("unchanged"), "{unchanged}");
    Ok(())
}

/// Returns the hash of each document of the OpenAPI v3 index.
async fn hashes(http: &HttpClient) -> anyhow::Result<std::collections::BTreeMap<String, String>> {
    let index = http.get("/openapi/v3").send().await?.expect(200)?.json()?;
    let paths = index["paths"].as_object().context("no paths")?;
    let url = |entry: &Value| entry["serverRelativeURL"].as_str().unwrap_or_default().to_owned();
    Ok(paths.iter().map(|(path, entry)| (path.clone(), url(entry))).collect())
}

async fn openapi_served_equally_by_all_members_is_forwarded_unchanged(context: TestContext) -> anyhow::Result<()> {
    let setup = Setup::new(&context).await?;
    let [north, south] = [0, 1].map(|at| setup.differing.members[at].http().clone());
    let (ours, theirs) = (hashes(&setup.http).await?, hashes(&north).await?);
    let url = &ours["apis/apps/v1"];
    ensure!(*url == theirs["apis/apps/v1"] && *url == hashes(&south).await?["apis/apps/v1"], "{url}");
    for accept in ["application/json", V3_PROTOBUF] {
        let (own, member) = (setup.get(url, accept).await?, north.get(url).accept(accept).send().await?.expect(200)?);
        ensure!(own.body == member.body, "{accept}: {} bytes instead of {}", own.body.len(), member.body.len());
        for header in ["content-type", "etag", "cache-control"] {
            ensure!(own.header(header) == member.header(header), "{header}: {:?}", own.header(header));
        }
    }
    let moved = setup.http.get("/openapi/v3/apis/apps/v1?hash=OLD").send().await?.expect(301)?;
    ensure!(moved.header("location") == url, "{:?}", moved.headers);
    setup.http.get("/openapi/v3/apis/apps/v1").accept("text/html").send().await?.expect(406)?;
    Ok(())
}

/// Returns the keys of a map in OpenAPI v2, as encoded in protobuf by the library gnostic.
fn names(document: &[u8], path: &[u64]) -> anyhow::Result<BTreeSet<String>> {
    let fields = wire::fields(document).collect::<Result<Vec<_>, _>>().context("not protobuf")?;
    let [number, rest @ ..] = path else {
        let name = fields.iter().find(|field| field.number == 1).and_then(|field| field.contents);
        return Ok(name.map(|name| String::from_utf8_lossy(name).into_owned()).into_iter().collect());
    };
    let inner = fields.iter().filter(|field| field.number == *number).filter_map(|field| field.contents);
    inner.map(|inner| names(inner, rest)).try_fold(BTreeSet::new(), |mut all, more| {
        all.extend(more?);
        Ok(all)
    })
}

fn keys(value: &Value) -> BTreeSet<String> {
    value.as_object().into_iter().flat_map(|object| object.keys().cloned()).collect()
}

async fn openapi_of_members_with_different_crds_is_merged(context: TestContext) -> anyhow::Result<()> {
    let setup = Setup::new(&context).await?;
    // A member publishes the OpenAPI document shortly after the CRD is established.
    eventually(SOON, async || {
        let ours = hashes(&setup.http).await?;
        let theirs =
            [hashes(setup.differing.members[0].http()).await?, hashes(setup.differing.members[1].http()).await?];
        let own = "apis/aggregation.tributary.dev/v1alpha1".to_owned();
        let union: BTreeSet<&String> = theirs.iter().flat_map(|index| index.keys()).chain([&own]).collect();
        ensure!(ours.keys().collect::<BTreeSet<_>>() == union, "{:?}", ours.keys());
        let of_south = theirs[1].get("apis/example.test/v1").context("not yet told by the member")?;
        ensure!(ours.get("apis/example.test/v1") == Some(of_south), "the one document that there is: {of_south}");
        let url = ours.get("apis/example.test/v1beta1").context("not yet told")?;
        let document = setup.get(url, "application/json").await?;
        ensure!(format!("\"{}\"", url.split_once("hash=").context("no hash")?.1) == document.header("etag"), "{url}");
        let document = document.json()?;
        let schemas = keys(&document["components"]["schemas"]);
        ensure!(
            schemas.contains("test.example.v1beta1.Gadget") && schemas.contains("test.example.v1beta1.Pole"),
            "{schemas:?}"
        );
        let protobuf = setup.get(url, V3_PROTOBUF).await?.body;
        ensure!(names(&protobuf, &[5, 1, 1])? == schemas, "schemas differ");
        ensure!(names(&protobuf, &[4, 1])? == keys(&document["paths"]), "paths differ");

        let json = setup.get("/openapi/v2", "application/json").await?;
        let protobuf = setup.get("/openapi/v2", V2_PROTOBUF).await?;
        ensure!(json.header("etag") == protobuf.header("etag"), "one document, one tag");
        let (json, tag) = (json.json()?, protobuf.header("etag").to_owned());
        let definitions = keys(&json["definitions"]);
        for kind in ["v1.Widget", "v1.Gadget", "v1beta1.Gadget", "v1beta1.Pole"] {
            ensure!(
                definitions.contains(&format!("test.example.{kind}")),
                "no {kind} in {} definitions",
                definitions.len()
            );
        }
        ensure!(names(&protobuf.body, &[9, 1])? == definitions, "definitions differ");
        ensure!(names(&protobuf.body, &[8, 2])? == keys(&json["paths"]), "paths differ");
        setup.http.get("/openapi/v2").header("if-none-match", &tag).send().await?.expect(304)?;
        Ok(())
    })
    .await
}

async fn preferred_version_is_one_that_all_members_serve(context: TestContext) -> anyhow::Result<()> {
    let setup = Setup::new(&context).await?;
    let group = setup.http.get("/apis/example.test").send().await?.expect(200)?.json()?;
    ensure!(group["preferredVersion"]["version"] == "v1beta1", "what both serve: {group}");
    setup.put(0, &setup.path("v1beta1", "gadgets"), &object("v1beta1", "Gadget", "one")).await?;
    setup.put(1, &setup.path("v1", "gadgets"), &object("v1", "Gadget", "two")).await?;
    eventually(SOON, async || {
        let shown = setup.kubectl(&["get", "gadgets", "-o", "name"]).await?;
        ensure!(shown == "gadget.example.test/one\ngadget.example.test/two\n", "{shown}");
        Ok(())
    })
    .await?;
    let newer = setup.http.get(&setup.path("v1", "gadgets")).send().await?.expect(200)?;
    let told = warnings(&newer);
    ensure!(told.len() == 1 && told[0].contains("cluster north") && told[0].contains("only in v1beta1"), "{told:?}");
    ensure!(newer.json()?["items"].as_array().context("no items")?.len() == 1, "{}", newer.text());
    Ok(())
}

async fn cluster_whose_kind_has_another_scope_is_omitted_with_a_warning(context: TestContext) -> anyhow::Result<()> {
    let setup = Setup::new(&context).await?;
    let thing = |name: &str| {
        let mut thing = object("v1", "Thing", name);
        thing["apiVersion"] = json!("clash.test/v1");
        thing
    };
    let things = format!("/apis/clash.test/v1/namespaces/{}/things", setup.namespace);
    setup.put(0, &things, &thing("one")).await?;
    let name = format!("two-{}", setup.namespace);
    setup.put(1, "/apis/clash.test/v1/things", &thing(&name)).await?;
    eventually(SOON, async || {
        let list = setup.http.get("/apis/clash.test/v1/things").send().await?.expect(200)?;
        let told = warnings(&list);
        ensure!(told.len() == 1 && told[0].contains("cluster south") && told[0].contains("cluster-scoped"), "{told:?}");
        ensure!(!list.text().contains(&name), "{}", list.text());
        let shown = setup.kubectl(&["get", "things", "-o", "name"]).await?;
        ensure!(shown == "thing.clash.test/one\n", "{shown}");
        Ok(())
    })
    .await?;
    let own = setup.kubectl.ok(&["--context", "south", "get", "things", "-o", "name"]).await?;
    ensure!(own.contains(&name), "{own}");
    let log = setup.differing.tributary.log();
    let said = log.lines().filter(|line| line.contains("things.v1.clash.test: north as Thing")).count();
    ensure!(said == 1, "said {said} times");
    Ok(())
}

async fn printer_columns_change_when_the_crd_changes(context: TestContext) -> anyhow::Result<()> {
    let setup = Setup::new(&context).await?;
    setup.put(0, &setup.path("v1beta1", "poles"), &object("v1beta1", "Pole", "one")).await?;
    let header = async || {
        let table = setup.kubectl(&["get", "poles"]).await?;
        let header: Vec<String> =
            table.lines().next().unwrap_or_default().split_whitespace().map(str::to_owned).collect();
        anyhow::Ok(header)
    };
    ensure!(header().await? == ["NAME", "CLUSTER", "SIZE"], "{:?}", header().await?);
    let watch = setup.path("v1beta1", "poles?watch=1&allowWatchBookmarks=true");
    let mut watching = setup.http.watch(&watch).await?;
    // Tributary applies a CRD change at once if it forwards the change itself. A change that goes directly to the
    // member takes effect later.
    let column = r#"{"name":"Tall","type":"integer","jsonPath":".spec.size"}"#;
    let patch = format!(r#"[{{"op":"add","path":"/spec/versions/0/additionalPrinterColumns/1","value":{column}}}]"#);
    setup.kubectl(&["patch", "crd", "poles.example.test", "--type=json", "-p", &patch]).await?;
    eventually(SOON, async || {
        let now = header().await?;
        ensure!(now == ["NAME", "CLUSTER", "SIZE", "TALL"], "{now:?}");
        Ok(())
    })
    .await?;
    // When the columns change, watches with the old columns end, as at a kube-apiserver.
    tokio::time::timeout(SOON, async {
        while watching.next(SOON).await?.is_some() {}
        anyhow::Ok(())
    })
    .await
    .context("the watch goes on")??;
    let patch = r#"[{"op":"remove","path":"/spec/versions/0/additionalPrinterColumns/1"}]"#;
    setup.kubectl.ok(&["--context", "north", "patch", "crd", "poles.example.test", "--type=json", "-p", patch]).await?;
    eventually(SOON, async || {
        let now = header().await?;
        ensure!(now == ["NAME", "CLUSTER", "SIZE"], "{now:?}");
        Ok(())
    })
    .await
}

async fn kubectl_top_shows_metrics_of_all_members(context: TestContext) -> anyhow::Result<()> {
    let setup = Setup::new(&context).await?;
    let namespace = setup.namespace.as_str();
    for (metrics, cluster) in setup.differing.metrics.iter().zip(["north", "south"]) {
        metrics.set_node(&format!("{cluster}-node-0"), "500m", "1Gi");
        metrics.set_pod(namespace, &format!("web-{cluster}"), "250m", "64Mi");
    }
    let cells = |table: &str, first: &str| -> Vec<String> {
        let line = table.lines().find(|line| line.split_whitespace().any(|cell| cell == first));
        line.unwrap_or_default().split_whitespace().map(str::to_owned).collect()
    };
    eventually(SOON, async || {
        let pods = setup.kubectl.ok(&["top", "pods", "-A"]).await?;
        for name in ["web-north", "web-south"] {
            ensure!(cells(&pods, name) == [namespace, name, "250m", "64Mi"], "{pods}");
        }
        Ok(())
    })
    .await?;
    let nodes = setup.kubectl.ok(&["top", "nodes"]).await?;
    for name in ["north-node-0", "south-node-0"] {
        ensure!(cells(&nodes, name) == [name, "500m", "25%", "1024Mi", "25%"], "{nodes}");
    }
    let one = setup.kubectl(&["top", "pod", "web-south"]).await?;
    ensure!(cells(&one, "web-south") == ["web-south", "250m", "64Mi"], "{one}");
    let selected = setup.kubectl(&["top", "pods", "-l", "app=web-north", "--no-headers"]).await?;
    ensure!(selected.lines().count() == 1 && selected.contains("web-north"), "{selected}");
    // The Table has the columns of the members' metrics servers, and the column CLUSTER.
    let table = setup.kubectl(&["get", "pods.metrics.k8s.io"]).await?;
    ensure!(cells(&table, "NAME") == ["NAME", "CLUSTER", "CPU", "MEMORY", "WINDOW"], "{table}");
    ensure!(cells(&table, "web-south") == ["web-south", "south", "250m", "64Mi", "10s"], "{table}");
    let path = format!("/apis/metrics.k8s.io/v1beta1/namespaces/{namespace}/pods");
    let refused = setup.http.get(&format!("{path}?watch=1")).send().await?.expect(405)?;
    ensure!(refused.text().contains("list it instead"), "{}", refused.text());

    // The metrics server of one cluster stops. The list must have the objects of the other cluster, and a Warning with
    // the name of the cluster without metrics.
    setup.differing.metrics[1].stop();
    eventually(SOON, async || {
        let list = setup.http.get(&path).send().await?.expect(200)?;
        let told = warnings(&list);
        ensure!(told.iter().any(|text| text.contains("cluster south")), "{told:?}");
        ensure!(list.json()?["items"].as_array().is_some_and(|items| items.len() == 1), "{}", list.text());
        Ok(())
    })
    .await?;
    let missing = setup.http.get(&format!("{path}/web-south")).send().await?;
    ensure!(missing.status == 503, "not 404, which would mean that it is gone: {}", missing.text());
    Ok(())
}

async fn component_statuses_of_all_members_are_listed(context: TestContext) -> anyhow::Result<()> {
    let setup = Setup::new(&context).await?;
    let output = setup.kubectl.run(&["get", "componentstatuses"]).await?;
    ensure!(output.stderr.matches("v1 ComponentStatus is deprecated").count() == 1, "{}", output.stderr);
    let table = output.success()?;
    let header: Vec<&str> = table.lines().next().unwrap_or_default().split_whitespace().collect();
    ensure!(header == ["NAME", "CLUSTER", "STATUS", "MESSAGE", "ERROR"], "{table}");
    ensure!(table.contains("north") && table.contains("south") && table.contains("etcd-0"), "{table}");
    Ok(())
}
