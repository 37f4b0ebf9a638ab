//! Restarts the three kube-apiservers of a cluster in turn, under 200 requests per second. No request that Tributary
//! can repeat may be lost.

use super::load::Scene;
use crate::context::{Case, TestContext, cases, eventually};
use anyhow::ensure;
use std::{sync::atomic::Ordering, time::Duration};
use tributary_e2e::TestCluster;

/// Longest time until Tributary uses a restarted endpoint again.
const SOON: Duration = Duration::from_secs(60);

pub(super) fn cases() -> Vec<Case> {
    cases!["endpoints::rolling"; rolling_restart_of_three_apiservers_fails_no_request_that_can_be_retried]
}

async fn rolling_restart_of_three_apiservers_fails_no_request_that_can_be_retried(
    context: TestContext,
) -> anyhow::Result<()> {
    let _permits = context.fixture.load_on_own_member().await?;
    let member = TestCluster::builder("rolled")
        // Without this flag, the server waits up to a minute for the end of its watches.
        .apiserver_argument("--shutdown-watch-termination-grace-period=1s")
        .apiserver_argument("--shutdown-send-retry-after=true")
        .start(context.fixture.tools().await?)
        .await?;
    let (second, third) = tokio::try_join!(member.start_another_apiserver(), member.start_another_apiserver())?;
    let ports = [member.apiserver_port(), second, third];
    let endpoints = ports.map(|port| format!("https://127.0.0.1:{port}"));
    let scene = Scene::new(&context, member, &endpoints, "").await?;
    let ((), load_counts) = scene
        .under_load(true, async |_| {
            for port in ports {
                scene.member.restart_apiserver(port).await?;
                let line = format!("[+]cluster/rolled/endpoint/127.0.0.1:{port} ok");
                eventually(SOON, async || {
                    let health = scene.http.get("/readyz?verbose").send().await?.text();
                    ensure!(health.contains(&line), "{health}");
                    Ok(())
                })
                .await?;
            }
            Ok(())
        })
        .await?;
    let (reads, writes) = (load_counts.reads.load(Ordering::Relaxed), load_counts.writes.load(Ordering::Relaxed));
    // A server that ends may have executed a write in flight. Only the client can decide whether to repeat such a
    // write, so this error is allowed.
    let is_unsure = |error: &String| error.starts_with("write") && error.contains("may have been carried out");
    let (unsure, lost): (Vec<_>, Vec<_>) = load_counts.lost.lock().drain(..).partition(is_unsure);
    ensure!(lost.is_empty(), "{} of {reads} reads and {writes} writes: {:#?}", lost.len(), &lost[..lost.len().min(5)]);
    ensure!(unsure.len() <= ports.len(), "about one is under way at a server's end: {unsure:#?}");
    ensure!(reads > 1_000 && writes > 100, "{reads} and {writes}");
    for port in ports {
        let sent = scene.metric("tributary_endpoint_requests_total", &format!("127.0.0.1:{port}")).await?;
        ensure!(sent > 100, "{sent} requests through {port}: each has its part");
    }
    Ok(())
}
