//! Cases for discovery, OpenAPI, version and health.

use super::{
    Conformance, conformance,
    target::{SOON, Target, assert_status},
};
use crate::context::eventually;
use anyhow::{Context, ensure};
use serde_json::Value;
use std::collections::BTreeMap;
use tributary_apimachinery::built_in::built_in;

/// The media types of aggregated discovery, as client-go requests them.
const AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json";

pub(super) fn cases() -> Vec<Conformance> {
    conformance!["discovery";
        version_endpoint_equals_the_members_version, health_endpoints_answer_ok_as_plain_text,
        verbose_readyz_lists_its_checks, api_endpoint_lists_core_v1, unaggregated_group_list_equals_the_members_list,
        unaggregated_apps_group_has_version_v1, unaggregated_core_resources_equal_the_members_resources,
        unaggregated_apps_resources_equal_the_members_resources, aggregated_core_discovery_lists_pods_with_exec,
        aggregated_discovery_lists_apps_v1_as_current, aggregated_discovery_requested_with_its_etag_is_304,
        unknown_group_and_unknown_resource_are_404, openapi_v3_has_the_schema_of_deployments,
        openapi_v2_is_served_as_json_and_protobuf, tributarys_list_of_built_in_resources_equals_the_members_discovery,
    ]
}

async fn version_endpoint_equals_the_members_version(target: Target) -> anyhow::Result<()> {
    let version = target.read("/version").await?;
    let members = target.members[0].http().get("/version").send().await?.expect(200)?.json()?;
    for field in ["major", "minor", "gitVersion"] {
        ensure!(version[field] == members[field], "{field}: {} instead of {}", version[field], members[field]);
    }
    Ok(())
}

async fn health_endpoints_answer_ok_as_plain_text(target: Target) -> anyhow::Result<()> {
    for path in ["/healthz", "/livez", "/readyz"] {
        let answer = target.http.get(path).send().await?.expect(200)?;
        ensure!(answer.text() == "ok", "{path}: {:?}", answer.text());
        ensure!(answer.header("content-type").starts_with("text/plain"), "{:?}", answer.headers);
    }
    Ok(())
}

async fn verbose_readyz_lists_its_checks(target: Target) -> anyhow::Result<()> {
    let text = target.http.get("/readyz?verbose").send().await?.expect(200)?.text();
    ensure!(text.contains("[+]") && text.contains("readyz check passed"), "{text}");
    Ok(())
}

async fn api_endpoint_lists_core_v1(target: Target) -> anyhow::Result<()> {
    let versions = target.read("/api").await?;
    ensure!(versions["kind"] == "APIVersions" && versions["versions"][0] == "v1", "{versions}");
    Ok(())
}

async fn unaggregated_group_list_equals_the_members_list(target: Target) -> anyhow::Result<()> {
    let groups = target.read("/apis").await?;
    ensure!(groups["kind"] == "APIGroupList" && groups["apiVersion"] == "v1", "{groups}");
    let members = target.members[0].http().get("/apis").send().await?.json()?;
    let names = |list: &Value| -> Vec<String> {
        let groups = list["groups"].as_array().cloned().unwrap_or_default();
        // The test ignores the API groups of other cases' custom resources, because these groups appear and disappear.
        // It also ignores Tributary's group.
        let is_other = |name: &str| name.ends_with(".example.com") || name.ends_with(".tributary.dev");
        let lasts = |group: &&Value| !group["name"].as_str().is_some_and(is_other);
        let of_group = |group: &Value| format!("{} {}", group["name"], group["preferredVersion"]["version"]);
        let mut names: Vec<String> = groups.iter().filter(lasts).map(of_group).collect();
        names.sort();
        names
    };
    ensure!(names(&groups) == names(&members), "{:?}\ninstead of {:?}", names(&groups), names(&members));
    Ok(())
}

async fn unaggregated_apps_group_has_version_v1(target: Target) -> anyhow::Result<()> {
    let group = target.read("/apis/apps").await?;
    ensure!(group["kind"] == "APIGroup" && group["name"] == "apps", "{group}");
    ensure!(group["versions"][0]["groupVersion"] == "apps/v1", "{group}");
    Ok(())
}

/// Returns the resources of a discovery document by name, with the fields that clients use.
fn resources(list: &Value) -> BTreeMap<String, Vec<Value>> {
    list["resources"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|resource| {
            let facts =
                ["kind", "singularName", "namespaced", "verbs", "shortNames", "categories", "storageVersionHash"];
            (
                resource["name"].as_str().unwrap_or_default().to_owned(),
                facts.map(|fact| resource[fact].clone()).to_vec(),
            )
        })
        .collect()
}

async fn same_resources(target: &Target, path: &str) -> anyhow::Result<()> {
    let list = target.read(path).await?;
    ensure!(list["kind"] == "APIResourceList", "{list}");
    let (shown, members) = (resources(&list), resources(&target.members[0].http().get(path).send().await?.json()?));
    ensure!(!members.is_empty(), "the member shows no resources");
    for (name, facts) in &members {
        let ours = shown.get(name).with_context(|| format!("{path} lacks {name}"))?;
        ensure!(ours == facts, "{name}: {ours:?} instead of {facts:?}");
    }
    ensure!(shown.len() == members.len(), "more resources than the member has: {:?}", shown.keys());
    Ok(())
}

async fn unaggregated_core_resources_equal_the_members_resources(target: Target) -> anyhow::Result<()> {
    same_resources(&target, "/api/v1").await
}

async fn unaggregated_apps_resources_equal_the_members_resources(target: Target) -> anyhow::Result<()> {
    same_resources(&target, "/apis/apps/v1").await
}

async fn aggregated(target: &Target, path: &str) -> anyhow::Result<Value> {
    let answer = target.http.get(path).accept(AGGREGATED).send().await?.expect(200)?;
    ensure!(
        answer.header("content-type") == "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList",
        "content type {:?}",
        answer.header("content-type"),
    );
    ensure!(answer.header("vary").contains("Accept"), "vary: {:?}", answer.header("vary"));
    let document = answer.json()?;
    ensure!(document["kind"] == "APIGroupDiscoveryList", "{}", document["kind"]);
    ensure!(document["apiVersion"] == "apidiscovery.k8s.io/v2", "{}", document["apiVersion"]);
    Ok(document)
}

async fn tributarys_list_of_built_in_resources_equals_the_members_discovery(target: Target) -> anyhow::Result<()> {
    let mut differing = Vec::new();
    for path in ["/api", "/apis"] {
        let document = aggregated(&target, path).await?;
        let groups = document["items"].as_array().context("no groups")?.iter();
        for group in groups {
            let name = group["metadata"]["name"].as_str().unwrap_or_default();
            let versions = group["versions"].as_array().into_iter().flatten();
            for resource in versions.flat_map(|version| version["resources"].as_array().into_iter().flatten()) {
                let told =
                    (resource["responseKind"]["kind"].as_str().unwrap_or_default(), resource["scope"] == "Namespaced");
                let plural = resource["resource"].as_str().unwrap_or_default();
                let known = built_in(name, plural);
                let is_custom =
                    name.contains(".example.") || name.ends_with(".test") || name.ends_with(".tributary.dev");
                if known != Some(told).filter(|_| !is_custom) {
                    differing.push(format!("({name:?}, {plural:?}, {:?}, {})", told.0, told.1));
                }
            }
        }
    }
    ensure!(differing.is_empty(), "not as the table says:\n{}", differing.join(",\n"));
    Ok(())
}

async fn aggregated_core_discovery_lists_pods_with_exec(target: Target) -> anyhow::Result<()> {
    let document = aggregated(&target, "/api").await?;
    let resources = document["items"][0]["versions"][0]["resources"].as_array().context("no resources")?;
    let pods = resources.iter().find(|resource| resource["resource"] == "pods").context("no pods")?;
    ensure!(pods["responseKind"]["kind"] == "Pod" && pods["scope"] == "Namespaced", "{pods}");
    let subresources = pods["subresources"].as_array().context("pods without subresources")?;
    ensure!(subresources.iter().any(|subresource| subresource["subresource"] == "exec"), "{pods}");
    Ok(())
}

async fn aggregated_discovery_lists_apps_v1_as_current(target: Target) -> anyhow::Result<()> {
    let document = aggregated(&target, "/apis").await?;
    let groups = document["items"].as_array().context("no groups")?;
    let apps = groups.iter().find(|group| group["metadata"]["name"] == "apps").context("no group apps")?;
    let version = &apps["versions"][0];
    ensure!(version["version"] == "v1" && version["freshness"] == "Current", "{version}");
    Ok(())
}

async fn aggregated_discovery_requested_with_its_etag_is_304(target: Target) -> anyhow::Result<()> {
    // Other cases run at the same time, so groups of their custom resources may appear or disappear between the two
    // requests. The test repeats both requests in this case.
    eventually(SOON, async || {
        for path in ["/api", "/apis"] {
            let first = target.http.get(path).accept(AGGREGATED).send().await?.expect(200)?;
            let etag = first.header("etag").to_owned();
            ensure!(etag.starts_with('"') && etag.ends_with('"') && etag.len() > 2, "etag {etag:?}");
            let again =
                target.http.get(path).accept(AGGREGATED).header("if-none-match", &etag).send().await?.expect(304)?;
            ensure!(again.body.is_empty(), "a 304 with a body");
        }
        Ok(())
    })
    .await
}

async fn unknown_group_and_unknown_resource_are_404(target: Target) -> anyhow::Result<()> {
    target.http.get("/apis/nothing.example.test/v1").send().await?.expect(404)?;
    target.http.get("/apis/nothing.example.test/v1/things").send().await?.expect(404)?;
    let answer = target.http.get("/api/v1/things").send().await?;
    assert_status(&answer, 404, Some("NotFound"), "the server could not find the requested resource")?;
    Ok(())
}

async fn openapi_v3_has_the_schema_of_deployments(target: Target) -> anyhow::Result<()> {
    let root = target.read("/openapi/v3").await?;
    let url = root["paths"]["apis/apps/v1"]["serverRelativeURL"].as_str().context("no apps/v1")?.to_owned();
    let document = target.read(&url).await?;
    ensure!(document["components"]["schemas"]["io.k8s.api.apps.v1.Deployment"].is_object(), "no schema of Deployment");
    Ok(())
}

async fn openapi_v2_is_served_as_json_and_protobuf(target: Target) -> anyhow::Result<()> {
    let document = target.read("/openapi/v2").await?;
    ensure!(document["definitions"]["io.k8s.api.core.v1.Pod"].is_object(), "no definition of Pod");
    let protobuf = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf";
    let answer = target.http.get("/openapi/v2").accept(protobuf).send().await?.expect(200)?;
    ensure!(answer.header("content-type").contains("protobuf"), "{:?}", answer.header("content-type"));
    Ok(())
}
