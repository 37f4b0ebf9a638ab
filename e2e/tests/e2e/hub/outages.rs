//! The hub does not answer, or refuses Tributary's requests. Tributary must continue to use the last configuration that
//! it accepted.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};
use tributary_e2e::kubeconfig::{ContextParts, write_entries};
use tributary_e2e::{HttpClient, Kubectl};

use super::aggregated::{Aggregated, MERGED};
use super::{CLUSTERS, Hub, NAMESPACE, SOON, logs};
use crate::context::{Case, TestContext, cases, eventually};
use crate::shared_mode::make_config_map;

/// Name of Tributary's ServiceAccount in `deploy/hub/rbac.yaml`.
const ACCOUNT: &str = "tributary-server";

pub(super) fn cases() -> Vec<Case> {
    cases!["hub::outages";
        members_are_served_during_an_outage_of_the_hub, proof_members_are_served_while_the_hub_is_down_for_a_minute,
        configuration_stays_in_force_while_the_hub_forbids_its_objects,
    ]
}

async fn members_are_served_during_an_outage_of_the_hub(context: TestContext) -> anyhow::Result<()> {
    serve_during_an_outage(&context, Duration::from_secs(15)).await
}

async fn proof_members_are_served_while_the_hub_is_down_for_a_minute(context: TestContext) -> anyhow::Result<()> {
    serve_during_an_outage(&context, Duration::from_secs(60)).await
}

/// Creates a ConfigMap in a member. The merged view must show it, which proves that the watch works, because Tributary
/// answers from its cache.
async fn change_arrives(hub: &Hub, http: &HttpClient, name: &str) -> anyhow::Result<()> {
    make_config_map(&hub.members[0], &hub.namespace, name, 1).await?;
    let path = format!("/api/v1/namespaces/{}/configmaps/{name}", hub.namespace);
    eventually(SOON, async || http.get(&path).send().await?.expect(200).map(drop)).await
}

async fn serve_during_an_outage(context: &TestContext, outage: Duration) -> anyhow::Result<()> {
    let _permit = context.fixture.own_members.acquire().await?;
    let aggregated = Aggregated::start(context).await?;
    let tributary = aggregated.serve(context).await?;
    let hub = &aggregated.hub;
    let user = aggregated.user_of_all_members().await?;
    hub.add("eu", &hub.members[0]).await?;
    let http = hub.http(&tributary).await?;
    let through = aggregated.http(&hub.server.people().user(&user, &[])?, MERGED).await?;
    hub.serves(&http, &["eu"]).await?;
    hub.serves(&through, &["eu"]).await?;

    hub.server.kill9().await?;
    let begun = Instant::now();
    let mut reads = 0;
    while begun.elapsed() < outage {
        let served = hub.served(&http).await?;
        ensure!(served.iter().eq(["eu"]), "{served:?} after {:?}", begun.elapsed());
        reads += 1;
        change_arrives(hub, &http, &format!("during-{reads}")).await?;
        sleep(Duration::from_secs(1)).await;
    }
    ensure!(reads > 5, "{reads} reads");
    ensure!(through.get("/api").send().await.is_err(), "the hub answers");
    hub.server.start_again().await?;
    let begun = Instant::now();
    logs(&tributary, &["changes of the hub arrive again"]).await?;
    hub.add("us", &hub.members[1]).await?;
    hub.serves(&http, &["eu", "us"]).await?;
    println!("a change of the hub is served {:?} after its return", begun.elapsed());
    aggregated.becomes_available().await?;
    hub.serves(&through, &["eu", "us"]).await
}

/// Makes a kubeconfig for Tributary's ServiceAccount, which has only the RBAC rights of `deploy/hub/rbac.yaml`.
async fn write_account(hub: &Hub, kubectl: &Kubectl) -> anyhow::Result<PathBuf> {
    kubectl.ok(&["apply", "-f", &rights()]).await?;
    let token = kubectl.ok(&["-n", NAMESPACE, "create", "token", ACCOUNT]).await?;
    let path = hub.folder.path().join("account.kubeconfig");
    let entries = ContextParts { user: json!({"token": token.trim()}), ..hub.server.access().entries() };
    write_entries(&path, &[entries])?;
    Ok(path)
}

fn rights() -> String {
    concat!(env!("CARGO_MANIFEST_DIR"), "/../deploy/hub/rbac.yaml").to_owned()
}

async fn configuration_stays_in_force_while_the_hub_forbids_its_objects(context: TestContext) -> anyhow::Result<()> {
    let _permit = context.fixture.own_members.acquire().await?;
    let hub = Hub::start(&context).await?;
    let kubectl = Kubectl::new(context.fixture.tools().await?, &hub.server.kubeconfig())?;
    let account = write_account(&hub, &kubectl).await?;
    hub.add("eu", &hub.members[0]).await?;
    let builder = hub.builder_as(&account).argument("--partial=Allow").folder(hub.folder.path());
    let tributary = context.fixture.watch_log(builder.start().await?).await;
    let http = hub.http(&tributary).await?;
    hub.serves(&http, &["eu"]).await?;
    let is_ready = async || {
        let object = hub.server.http().get(&format!("{CLUSTERS}/eu")).send().await?.expect(200)?.json()?;
        let mut conditions = object["status"]["conditions"].as_array().into_iter().flatten();
        let is_ready = |one: &Value| one["type"] == "Ready" && one["status"] == "True";
        ensure!(conditions.any(is_ready), "{object}");
        Ok(())
    };
    eventually(SOON, is_ready).await.context("the account cannot write a status")?;

    kubectl.ok(&["delete", "clusterrolebinding", "tributary-hub"]).await?;
    kubectl.ok(&["-n", NAMESPACE, "delete", "rolebinding", "tributary-hub"]).await?;
    // The kube-apiserver checks RBAC rights only at the start of a watch. The restart ends the watches, so that the
    // change of rights takes effect.
    hub.server.kill_apiserver().await?;
    hub.server.start_again().await?;
    logs(&tributary, &["changes of the hub do not arrive", "forbidden"]).await?;
    // Tributary still has no right to read this object, so the log and the served clusters must not change.
    hub.add("us", &hub.members[1]).await?;
    for index in 0..5 {
        change_arrives(&hub, &http, &format!("forbidden-{index}")).await?;
        hub.serves(&http, &["eu"]).await?;
        sleep(Duration::from_secs(1)).await;
    }
    kubectl.ok(&["apply", "-f", &rights()]).await?;
    logs(&tributary, &["changes of the hub arrive again"]).await?;
    hub.serves(&http, &["eu", "us"]).await
}
