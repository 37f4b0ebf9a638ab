//! Tests a start of Tributary while the hub is down, and a hub together with configuration files.

use std::fs;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::json;
use tokio::time::sleep;
use tributary_e2e::{Kubectl, guard};

use super::{Hub, SOON, logs};
use crate::context::{Case, TestContext, cases, eventually};
use crate::shared_mode::make_config_map;

/// Time for which the test checks that Tributary stays unready without a stored copy of the hub's objects. With a copy,
/// a start takes 5 s.
const STAYS_UNREADY: Duration = Duration::from_secs(8);

pub(super) fn cases() -> Vec<Case> {
    cases!["hub::other_sources";
        start_without_a_saved_configuration_waits_for_all_lists_of_the_hub,
        hub_changes_are_applied_while_a_configuration_file_has_an_error,
    ]
}

async fn start_without_a_saved_configuration_waits_for_all_lists_of_the_hub(
    context: TestContext,
) -> anyhow::Result<()> {
    let _permit = context.fixture.own_members.acquire().await?;
    let hub = Hub::start(&context).await?;
    hub.add("eu", &hub.members[0]).await?;
    let kubectl = Kubectl::new(context.fixture.tools().await?, &hub.server.kubeconfig())?;
    kubectl.ok(&["delete", "crd", "deniedusers.tributary.dev"]).await?;
    let starting = tokio::spawn(hub.builder().start());
    eventually(SOON, async || {
        let log = fs::read_to_string(hub.folder.path().join("tributary.log"))?;
        let texts = [
            "the start waits until the hub has listed its objects",
            "install the CustomResourceDefinition deniedusers.tributary.dev",
        ];
        ensure!(texts.iter().all(|text| log.contains(text)), "{log}");
        Ok(())
    })
    .await?;
    sleep(STAYS_UNREADY).await;
    let output = fs::read_to_string(hub.folder.path().join("tributary.out"))?;
    ensure!(!output.contains("ready:"), "ready without the lists of the hub");
    let definition = concat!(env!("CARGO_MANIFEST_DIR"), "/../deploy/crds/tributary.dev_deniedusers.yaml");
    kubectl.ok(&["apply", "--server-side", "-f", definition]).await?;
    let tributary = context.fixture.watch_log(starting.await.context("the start")??).await;
    let http = hub.http(&tributary).await?;
    hub.serves(&http, &["eu"]).await
}

async fn hub_changes_are_applied_while_a_configuration_file_has_an_error(context: TestContext) -> anyhow::Result<()> {
    let _permit = context.fixture.own_members.acquire().await?;
    let hub = Hub::start(&context).await?;
    let [first, second] = &hub.members;
    let files = guard::temporary_folder("files")?;
    let (access, file) = (second.access(), files.path().join("file.yaml"));
    let object = json!({
        "apiVersion": "tributary.dev/v1alpha1", "kind": "UpstreamCluster", "metadata": {"name": "file"},
        "spec": {
            "endpoints": [access.server],
            "caData": STANDARD.encode(&access.certificate_authority),
            "credentials": {"token": access.token},
        },
    });
    fs::write(&file, object.to_string())?;
    let builder = hub.builder().arguments(["--config", &files.path().to_string_lossy()]);
    let tributary = context.fixture.watch_log(builder.start().await?).await;
    let http = hub.http(&tributary).await?;
    hub.serves(&http, &["file"]).await?;
    fs::write(&file, "kind: [")?;
    logs(&tributary, &["the new configuration is refused; the previous one stays in use"]).await?;
    hub.add("eu", first).await?;
    hub.serves(&http, &["eu", "file"]).await?;
    fs::write(&file, object.to_string())?;
    logs(&tributary, &["configuration reloaded", "the files have changed"]).await?;
    make_config_map(second, &hub.namespace, "after-the-repair", 1).await?;
    hub.serves(&http, &["eu", "file"]).await
}
