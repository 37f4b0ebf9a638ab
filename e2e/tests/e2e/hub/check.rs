//! `tributary check --hub-kubeconfig` must report the verdict on each object of the hub, and must write nothing.

use anyhow::ensure;
use serde_json::{Value, json};
use tributary_e2e::tributary;

use super::{CLUSTERS, Hub, NAMESPACE, spec_of};
use crate::context::{Case, TestContext, cases};

pub(super) fn cases() -> Vec<Case> {
    cases!["hub::check"; check_command_reports_on_each_hub_object_without_writing]
}

async fn check_command_reports_on_each_hub_object_without_writing(context: TestContext) -> anyhow::Result<()> {
    let _permit = context.fixture.own_members.acquire().await?;
    let hub = Hub::start(&context).await?;
    let [eu, us] = &hub.members;
    hub.add("eu", eu).await?;
    hub.create_secret("us", "us", us).await?;
    let mut insecure = spec_of("us", us);
    insecure["insecureSkipVerify"] = json!(true);
    hub.create_member("us", insecure).await?;
    hub.create_member("lab", spec_of("lab", us)).await?;
    let registry = json!({"apiVersion": "tributary.dev/v1alpha1", "kind": "ResourceRegistry",
        "metadata": {"name": "workloads"}, "spec": {"resources": ["pods"]}});
    hub.server.http().post("/apis/tributary.dev/v1alpha1/resourceregistries", &registry).send().await?.expect(201)?;
    let kubeconfig = hub.server.kubeconfig().display().to_string();
    let arguments = ["check", "--hub-kubeconfig", &kubeconfig, "--hub-allow-cidr=127.0.0.0/8"];
    let refused = tributary::run(&arguments).await?;
    ensure!(refused.code == Some(1), "{refused:?}");
    for line in [
        "the hub has 4 objects:",
        "  UpstreamCluster eu: accepted",
        "  UpstreamCluster lab: accepted; SecretNotFound: Secret lab does not exist",
        "  UpstreamCluster us: refused; Invalid: spec.insecureSkipVerify",
        "  ResourceRegistry workloads: accepted",
    ] {
        ensure!(refused.stdout.lines().any(|own| own.starts_with(line)), "{line:?} in {refused:?}");
    }
    let loopback = tributary::run(&["check", "--hub-kubeconfig", &kubeconfig]).await?;
    ensure!(loopback.stdout.contains("  UpstreamCluster eu: refused; RefusedAddress: "), "{loopback:?}");
    for name in ["us", "lab"] {
        hub.server.http().delete(&format!("{CLUSTERS}/{name}")).send().await?.expect(200)?;
    }
    let accepted = tributary::run(&arguments).await?;
    ensure!(accepted.code == Some(0), "{accepted:?}");
    let object = hub.server.http().get(&format!("{CLUSTERS}/eu")).send().await?.expect(200)?.json()?;
    ensure!(object["status"] == Value::Null, "the check writes no status: {object}");
    let lease = format!("/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases/tributary-status");
    hub.server.http().get(&lease).send().await?.expect(404)?;
    let unknown = tributary::run(&["check", "--hub-kubeconfig", "/missing"]).await?;
    ensure!(unknown.code == Some(2), "{unknown:?}");
    Ok(())
}
