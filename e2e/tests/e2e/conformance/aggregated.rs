//! Aggregated API servers behind a member. The cases test the discovery behavior of kube-apiserver on which Tributary
//! relies.

use super::{
    Conformance, conformance,
    target::{SOON, Target},
};
use crate::context::eventually;
use anyhow::{Context, ensure};
use serde_json::{Value, json};
use std::time::Duration;
use tributary_e2e::AggregatedServer;

const AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const API_SERVICES: &str = "/apis/apiregistration.k8s.io/v1/apiservices";
const VERSION: &str = "v1beta1";

/// Longest time until a kube-apiserver notices that an aggregated server is down.
const SEEN: Duration = Duration::from_secs(180);

pub(super) fn cases() -> Vec<Conformance> {
    conformance!["aggregated";
        discovery_adds_a_parent_without_verbs_to_a_subresource_without_parent, path_of_an_aggregated_server_is_served_although_discovery_omits_it,
        metadata_watch_of_crds_sends_an_event_for_a_new_crd,
        metadata_watch_of_api_services_sends_an_event_for_a_new_api_service, discovery_lists_the_version_of_a_stopped_aggregated_server_as_stale,
        discovery_lists_the_resource_of_an_established_crd_within_a_second,
    ]
}

/// Aggregated server with a separate API group, which only the first member serves.
struct Aggregated {
    server: AggregatedServer,
    target: Target,
    group: String,
}

impl Aggregated {
    async fn start(target: Target, resources: &Value) -> anyhow::Result<Self> {
        let group = format!("{}.example.com", target.namespace);
        let server = AggregatedServer::start().await?;
        server.set_resources(&format!("{group}/{VERSION}"), resources);
        server.register(&target.members[0], &group, VERSION).await?;
        Ok(Self { server, target, group })
    }

    fn path(&self, rest: &str) -> String {
        format!("/apis/{}/{VERSION}/namespaces/{}/{rest}", self.group, self.target.namespace)
    }

    /// Serves an empty list at a path, and waits until the target returns this list.
    async fn shows(&self, rest: &str) -> anyhow::Result<()> {
        let (path, api_version) = (self.path(rest), format!("{}/{VERSION}", self.group));
        let list = json!({"kind": "MetricValueList", "apiVersion": api_version, "metadata": {}, "items": []});
        self.server.set(&path, list);
        eventually(SOON, async || {
            let list = self.target.read(&path).await?;
            ensure!(list["kind"] == "MetricValueList" && list["items"] == json!([]), "{list}");
            Ok(())
        })
        .await
    }

    /// Waits until the member's discovery lists the resources of the API version. The aggregator reads the resources
    /// some time after the aggregated server is available.
    async fn described_with_resources(&self) -> anyhow::Result<Value> {
        eventually(SOON, async || {
            let version = self.described().await?;
            ensure!(version["resources"][0].is_object(), "{version}");
            Ok(())
        })
        .await?;
        self.described().await
    }

    async fn described(&self) -> anyhow::Result<Value> {
        let http = self.target.members[0].http();
        let document = http.get("/apis").accept(AGGREGATED).send().await?.expect(200)?.json()?;
        let mut groups = document["items"].as_array().into_iter().flatten();
        let group = groups.find(|group| group["metadata"]["name"] == *self.group).context("no such group")?;
        Ok(group["versions"][0].clone())
    }

    /// Removes the registration of the aggregated server, because other cases share the members.
    async fn remove(&self) -> anyhow::Result<()> {
        let path = format!("/apis/apiregistration.k8s.io/v1/apiservices/{VERSION}.{}", self.group);
        self.target.members[0].http().delete(&path).send().await?.expect(200).map(drop)
    }
}

/// The aggregated server lists a subresource without its parent. The aggregator adds a parent with `"verbs": null`.
async fn discovery_adds_a_parent_without_verbs_to_a_subresource_without_parent(target: Target) -> anyhow::Result<()> {
    let resources = json!([{"name": "pods/http_requests", "singularName": "", "namespaced": true,
        "kind": "MetricValueList", "verbs": ["get"]}]);
    let aggregated = Aggregated::start(target, &resources).await?;
    let shown = aggregated.shows("pods/*/http_requests").await;
    let described = aggregated.described_with_resources().await;
    aggregated.remove().await?;
    shown?;
    let parent = &described?["resources"][0];
    ensure!(parent["resource"] == "pods" && parent["verbs"].is_null(), "{parent}");
    ensure!(parent["subresources"][0]["verbs"] == json!(["get"]), "{parent}");
    // Requests for built-in kinds of the same cluster must still succeed.
    let maps = aggregated.target.http.get(&aggregated.target.maps("")).send().await?.expect(200)?;
    ensure!(maps.header("warning").is_empty(), "{:?}", maps.headers);
    Ok(())
}

async fn path_of_an_aggregated_server_is_served_although_discovery_omits_it(target: Target) -> anyhow::Result<()> {
    let aggregated = Aggregated::start(target, &json!([])).await?;
    let shown = aggregated.shows("s0-queue").await;
    let described = aggregated.described().await;
    aggregated.remove().await?;
    shown?;
    let resources = &described?["resources"];
    ensure!(resources.is_null() || *resources == json!([]), "{resources}");
    Ok(())
}

/// Checks that a list and a watch of a collection's metadata work, and that the watch shows a new object.
async fn check_metadata_watch(target: &Target, collection: &str, object: Value) -> anyhow::Result<()> {
    let accept = |kind: &str| format!("application/json;as={kind};g=meta.k8s.io;v=v1,application/json");
    let list = target.http.get(&format!("{collection}?limit=1")).accept(&accept("PartialObjectMetadataList"));
    let list = list.send().await?.expect(200)?.json()?;
    ensure!(list["kind"] == "PartialObjectMetadataList", "{list}");
    let version = list["metadata"]["resourceVersion"].as_str().context("no version")?;
    let watch = format!("{collection}?watch=1&resourceVersion={version}&timeoutSeconds=60");
    let mut events = target.http.get(&watch).accept(&accept("PartialObjectMetadata")).stream().await?.events()?;
    let member = target.members[0].http();
    member.post(collection, &object).send().await?.expect(201)?;
    let name = &object["metadata"]["name"];
    let told = async {
        loop {
            let event = events.next(SOON).await?.context("the watch ended")?;
            if event["object"]["metadata"]["name"] == *name {
                return anyhow::Ok(event);
            }
        }
    };
    let told = tokio::time::timeout(SOON, told).await;
    member.delete(&format!("{collection}/{}", name.as_str().context("no name")?)).send().await?.expect(200)?;
    let event = told.context("no event")??;
    ensure!(event["type"] == "ADDED" && event["object"]["kind"] == "PartialObjectMetadata", "{event}");
    ensure!(event["object"].get("spec").is_none(), "{event}");
    Ok(())
}

/// Makes a CustomResourceDefinition in an API group that only this target uses.
fn definition(target: &Target) -> Value {
    let group = format!("{}.example.com", target.namespace);
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("signs.{group}")},
        "spec": {
            "group": group, "scope": "Namespaced", "names": {"plural": "signs", "kind": "Sign"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {"type": "object"}}}],
        },
    })
}

/// A metadata watch of CustomResourceDefinitions reports new definitions. Tributary finds new kinds with this watch.
async fn metadata_watch_of_crds_sends_an_event_for_a_new_crd(target: Target) -> anyhow::Result<()> {
    check_metadata_watch(&target, DEFINITIONS, definition(&target)).await
}

/// A metadata watch of APIServices reports new APIServices. Tributary finds aggregated servers with this watch.
async fn metadata_watch_of_api_services_sends_an_event_for_a_new_api_service(target: Target) -> anyhow::Result<()> {
    let group = format!("{}.example.com", target.namespace);
    let service = json!({
        "apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService",
        "metadata": {"name": format!("{VERSION}.{group}")},
        "spec": {
            "group": group, "version": VERSION, "insecureSkipTLSVerify": true,
            "groupPriorityMinimum": 100, "versionPriority": 100,
            "service": {"namespace": "default", "name": "none", "port": 443},
        },
    });
    check_metadata_watch(&target, API_SERVICES, service).await
}

/// Discovery still lists an API version whose aggregated server is down, marked as stale and without resources.
async fn discovery_lists_the_version_of_a_stopped_aggregated_server_as_stale(target: Target) -> anyhow::Result<()> {
    let resources =
        json!([{"name": "things", "singularName": "thing", "namespaced": true, "kind": "Thing", "verbs": ["get"]}]);
    let aggregated = Aggregated::start(target, &resources).await?;
    let described = aggregated.described_with_resources().await;
    aggregated.server.stop();
    let stale = eventually(SEEN, async || {
        let version = aggregated.described().await?;
        ensure!(version["freshness"] == "Stale" && version["resources"].is_null(), "{version}");
        Ok(())
    })
    .await;
    aggregated.remove().await?;
    ensure!(described?["freshness"] == "Current");
    stale
}

/// Discovery lists a kind within a second after its definition is established. Tributary relies on this behavior: it
/// treats a kind as missing only after this time.
async fn discovery_lists_the_resource_of_an_established_crd_within_a_second(target: Target) -> anyhow::Result<()> {
    let (member, definition) = (target.members[0].http(), definition(&target));
    member.post(DEFINITIONS, &definition).send().await?.expect(201)?;
    let path = format!("{DEFINITIONS}/{}", definition["metadata"]["name"].as_str().context("no name")?);
    let is_established = async || {
        let made = member.get(&path).send().await?.expect(200)?.json()?;
        let mut conditions = made["status"]["conditions"].as_array().into_iter().flatten();
        ensure!(
            conditions.any(|condition| condition["type"] == "Established" && condition["status"] == "True"),
            "{made}"
        );
        Ok(())
    };
    let established = eventually(SOON, is_established).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    let described = member.get("/apis").accept(AGGREGATED).send().await?.expect(200)?.json();
    member.delete(&path).send().await?.expect(200)?;
    established?;
    let described = described?;
    let group = &definition["spec"]["group"];
    let mut groups = described["items"].as_array().into_iter().flatten();
    let group = groups.find(|described| described["metadata"]["name"] == *group).context("no such group")?;
    ensure!(group["versions"][0]["resources"][0]["resource"] == "signs", "{group}");
    Ok(())
}
