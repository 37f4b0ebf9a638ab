//! Removes an endpoint from a cluster's configuration while clients watch and send requests. Requests in flight to this
//! endpoint must continue, new requests must use the other endpoint, and no request may be lost.

use super::load::Scene;
use crate::context::{Case, TestContext, cases, eventually};
use anyhow::ensure;
use serde_json::json;
use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};
use tributary_e2e::TestCluster;

/// Longest time until Tributary has read a changed file, and until an event arrives.
const SOON: Duration = Duration::from_secs(60);

/// Number of watches that clients open, half of them at each endpoint.
const WATCHES: usize = 4;

/// Number of watches that Tributary opens itself, of CustomResourceDefinitions and APIServices.
const OWN_WATCHES: usize = 2;

pub(super) fn cases() -> Vec<Case> {
    cases!["endpoints::drained"; requests_in_flight_continue_at_a_removed_endpoint]
}

async fn requests_in_flight_continue_at_a_removed_endpoint(context: TestContext) -> anyhow::Result<()> {
    let _permits = context.fixture.load_on_own_member().await?;
    let member = TestCluster::builder("drained").start(context.fixture.tools().await?).await?;
    let ports = [member.apiserver_port(), member.start_another_apiserver().await?];
    let [first, second] = ports.map(|port| format!("https://127.0.0.1:{port}"));
    let scene = Scene::new(&context, member, &[first, second.clone()], "").await?;
    let mut watches = Vec::new();
    for _ in 0..WATCHES {
        let mut watch = scene.http.watch(&format!("{}?watch=1", scene.collection())).await?;
        ensure!(watch.expect(SOON).await?["type"] == "ADDED", "the object that there is");
        watches.push(watch);
    }
    // At least one watch must use the endpoint that is removed later. Otherwise the test proves nothing.
    let at_first = AtomicU64::new(0);
    eventually(SOON, async || {
        let (one, two) = (scene.outstanding(ports[0]).await?, scene.outstanding(ports[1]).await?);
        at_first.store(one, Ordering::Relaxed);
        ensure!(one > 0 && one + two == (WATCHES + OWN_WATCHES) as u64, "{one} and {two} watches");
        Ok(())
    })
    .await?;
    let address = format!("127.0.0.1:{}", ports[0]);
    let (sent, load_counts) = scene
        .under_load(true, async |_| {
            scene.describe(&[second])?;
            let is_drained = format!("endpoint=\"{address}\",reason=\"drain\"}} 1");
            eventually(SOON, async || {
                let metrics = scene.http.get("/metrics").send().await?.expect(200)?.text();
                ensure!(metrics.contains(&is_drained), "it is not drained");
                Ok(())
            })
            .await?;
            let before = scene.metric("tributary_endpoint_requests_total", &address).await?;
            tokio::time::sleep(Duration::from_secs(2)).await;
            Ok(scene.metric("tributary_endpoint_requests_total", &address).await? - before)
        })
        .await?;
    ensure!(load_counts.lost.lock().is_empty(), "{:#?}", load_counts.lost.lock());
    // Of four hundred requests since the change, a few may have selected their endpoint before the change.
    ensure!(sent <= 2, "{sent} requests were sent to the endpoint that is drained");
    let before = at_first.load(Ordering::Relaxed);
    eventually(SOON, async || {
        let after = scene.outstanding(ports[0]).await?;
        ensure!(after == before, "{after} watches are at the endpoint that is drained, where {before} were");
        Ok(())
    })
    .await?;
    let patch = json!({"data": {"last": "yes"}});
    let object = format!("{}/one", scene.collection().trim_start_matches("/clusters/drained"));
    scene.member.http().patch(&object, "merge-patch+json", &patch).send().await?.expect(200)?;
    for watch in &mut watches {
        while watch.expect(SOON).await?["object"]["data"]["last"] != "yes" {}
    }
    Ok(())
}
