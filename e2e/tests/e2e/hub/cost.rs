//! Measures the cost of the aggregated API in the hub itself: the size of the OpenAPI document, and the requests of
//! `kubectl get all`.

use std::collections::BTreeMap;

use anyhow::{Context as _, ensure};
use serde_json::Value;
use tributary_e2e::{HttpClient, Kubectl};

use super::SOON;
use super::aggregated::{API, Aggregated, GROUP};
use crate::context::{Case, TestContext, cases, eventually};
use crate::shared_mode::make_config_map;

pub(super) fn cases() -> Vec<Case> {
    cases!["hub::cost"; hub_receives_only_requests_for_tributarys_api_group]
}

/// Returns the paths and definitions of the hub's OpenAPI v2 document.
async fn openapi(http: &HttpClient) -> anyhow::Result<BTreeMap<String, Value>> {
    let document = http.get("/openapi/v2").send().await?.expect(200)?.json()?;
    let parts = ["paths", "definitions"].map(|part| document[part].as_object().cloned().unwrap_or_default());
    Ok(parts.into_iter().flatten().collect())
}

/// Runs `kubectl get all` with an empty discovery cache. Returns the output and the number of requests.
async fn get_all(context: &TestContext, aggregated: &Aggregated, namespace: &str) -> anyhow::Result<(String, usize)> {
    let kubectl = Kubectl::new(context.fixture.tools().await?, &aggregated.hub.server.kubeconfig())?;
    let output = kubectl.run(&["get", "all", "-n", namespace, "-o", "name", "-v=6"]).await?;
    let requests =
        output.stderr.lines().filter(|line| line.contains("verb=\"GET\"") || line.contains("GET https://")).count();
    Ok((output.success()?, requests))
}

async fn hub_receives_only_requests_for_tributarys_api_group(context: TestContext) -> anyhow::Result<()> {
    let _permit = context.fixture.own_members.acquire().await?;
    let aggregated = Aggregated::start(&context).await?;
    let server = &aggregated.hub.server;
    make_config_map(server, "default", "unrelated", 1).await?;
    let service = serde_json::json!({
        "apiVersion": "v1", "kind": "Service", "metadata": {"name": "shop"}, "spec": {"ports": [{"port": 80}]},
    });
    server.http().post("/api/v1/namespaces/default/services", &service).send().await?.expect(201)?;
    // kube-apiserver adds the kinds of CustomResourceDefinitions to its OpenAPI documents with a delay. The measurement
    // must begin after that.
    eventually(SOON, async || {
        let known = openapi(server.http()).await?;
        for plural in ["upstreamclusters", "resourceregistries", "mergedendpoints", "deniedusers"] {
            let path = format!("/apis/tributary.dev/v1alpha1/{plural}");
            ensure!(known.contains_key(&path), "no {path}");
        }
        Ok(())
    })
    .await?;
    let before = openapi(server.http()).await?;
    let (shown, requests) = get_all(&context, &aggregated, "default").await?;
    ensure!(shown.contains("service/shop") && requests > 2, "{requests} requests: {shown}");

    let _tributary = aggregated.serve(&context).await?;
    eventually(SOON, async || {
        let known = openapi(server.http()).await?;
        ensure!(known.contains_key(&format!("{API}/clusters")), "no {API}/clusters");
        Ok(())
    })
    .await?;
    let after = openapi(server.http()).await?;
    for (name, value) in &before {
        let now = after.get(name).with_context(|| format!("{name} is gone"))?;
        ensure!(now == value, "{name}: {value} became {now}");
    }
    let group = GROUP.split('.').rev().collect::<Vec<_>>().join(".");
    let added: Vec<_> = after.keys().filter(|name| !before.contains_key(*name)).collect();
    for name in &added {
        let is_own = name.starts_with(&format!("/apis/{GROUP}/")) || name.starts_with(&group);
        ensure!(is_own, "the hub also got {name}");
    }
    println!("the OpenAPI document of the hub has {} more paths and definitions: {added:?}", added.len());

    let (now, later) = get_all(&context, &aggregated, "default").await?;
    ensure!(now == shown, "{now}\ninstead of\n{shown}");
    println!("kubectl get all sends {later} requests instead of {requests}");
    ensure!(later == requests, "{later} requests instead of {requests}");
    Ok(())
}
