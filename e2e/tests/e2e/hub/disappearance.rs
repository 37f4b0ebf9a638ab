//! A hub suddenly lists no members, as after the restore of an old backup. Tributary must not remove all members at
//! once.

use std::time::Duration;

use anyhow::ensure;
use serde_json::json;
use tokio::time::{Instant, sleep};
use tributary_e2e::{Kubectl, ports};

use super::Hub;
use crate::context::{Case, TestContext, cases, eventually};

/// Longest time for which Tributary keeps the members, including some seconds for a busy machine.
const CONFIRMED: Duration = Duration::from_secs(150);

pub(super) fn cases() -> Vec<Case> {
    cases!["hub::disappearance"; members_are_served_for_a_minute_after_the_hub_lists_none]
}

async fn members_are_served_for_a_minute_after_the_hub_lists_none(context: TestContext) -> anyhow::Result<()> {
    let _permit = context.fixture.own_members.acquire().await?;
    let hub = Hub::start(&context).await?;
    hub.add("eu", &hub.members[0]).await?;
    hub.add("us", &hub.members[1]).await?;
    for name in ["down", "off"] {
        hub.create_secret(name, name, &hub.members[0]).await?;
        let server = format!("https://127.0.0.1:{}", ports::free_port()?);
        hub.create_member(name, json!({"endpoints": [server], "secretRef": {"name": name}})).await?;
    }
    let tributary = context.fixture.watch_log(hub.builder().start().await?).await;
    let http = hub.http(&tributary).await?;
    hub.serves(&http, &["eu", "us"]).await?;
    // Tributary applies a single deletion at once. The test has added a fourth member, so that three members remain.
    let kubectl = Kubectl::new(context.fixture.tools().await?, &hub.server.kubeconfig())?;
    kubectl.ok(&["delete", "upstreamcluster", "us"]).await?;
    hub.serves(&http, &["eu"]).await?;
    hub.create_member("us", super::spec_of("us", &hub.members[1])).await?;
    hub.serves(&http, &["eu", "us"]).await?;

    let begun = Instant::now();
    kubectl.ok(&["delete", "upstreamclusters", "--all", "--wait=false"]).await?;
    while begun.elapsed() < Duration::from_secs(30) {
        let served = hub.served(&http).await?;
        ensure!(served.iter().eq(["eu", "us"]), "{served:?} after {:?}", begun.elapsed());
        sleep(Duration::from_secs(1)).await;
    }
    eventually(CONFIRMED, async || {
        let served = hub.served(&http).await?;
        ensure!(served.is_empty(), "{served:?}");
        Ok(())
    })
    .await?;
    println!("the members left {:?} after the hub listed none", begun.elapsed());
    ensure!(begun.elapsed() > Duration::from_secs(55), "{:?}", begun.elapsed());
    Ok(())
}
