//! Tests whether known vulnerabilities and faults of other gateways exist in Tributary, with real servers.
//! `docs/precedents.md` lists all of them.

use crate::context::{Case, TestContext, cases, eventually};
use crate::deployment;
use anyhow::ensure;
use std::time::Duration;
use tributary_e2e::{MetricsServer, TestCluster, Tributary};

/// Longest time until a member reports that its aggregated API server is available.
const SOON: Duration = Duration::from_secs(120);

pub(crate) fn cases() -> Vec<Case> {
    cases!["precedents";
        cve_2018_1002102_and_cve_2022_3172_redirect_of_an_aggregated_api_is_not_followed,
        cve_2023_30622_chart_gives_no_rights_outside_hub_mode_and_no_wildcards,
    ]
    .into_iter()
    .map(|case| case.patience(Duration::from_secs(420)))
    .collect()
}

/// A hostile aggregated API server answers every request with a redirect. A kube-apiserver (1.36) refuses to follow it,
/// answers 502, and hides the location (`upgradeaware.go`, `RejectForwardingRedirects`). Tributary must do the same for
/// every client and request.
async fn cve_2018_1002102_and_cve_2022_3172_redirect_of_an_aggregated_api_is_not_followed(
    context: TestContext,
) -> anyhow::Result<()> {
    let _turn = context.fixture.own_members.acquire().await?;
    let member = TestCluster::builder("redirected").nodes(1).start(context.fixture.tools().await?).await?;
    let metrics = MetricsServer::start().await?;
    metrics.set_node("n", "100m", "64Mi");
    metrics.register(&member).await?;
    let tributary = Tributary::builder(&member.kubeconfig(), ["redirected"]).start().await?;
    let tributary = context.fixture.watch_log(tributary).await;
    let merged = tributary.http().await?;
    let node = "/apis/metrics.k8s.io/v1beta1/nodes/n";
    let below = format!("/clusters/redirected{node}");
    let paths = [(member.http(), node), (&merged, node), (&merged, &*below)];
    for (http, path) in paths {
        eventually(SOON, async || http.get(path).send().await?.expect(200).map(drop)).await?;
    }
    let elsewhere = MetricsServer::start().await?;
    metrics.redirect_to(Some(&elsewhere));
    for (http, path, code) in [(member.http(), node, 502), (&merged, node, 503), (&merged, &*below, 502)] {
        // The cluster may have the object, but the merged view cannot find out, so it answers 503.
        let answer = http.get(path).send().await?;
        ensure!(answer.status == code && answer.header("location").is_empty(), "{path}: {answer:?}");
        ensure!(!format!("{answer:?}").contains(&elsewhere.url()), "{path}: {answer:?}");
    }
    // Tributary lists the objects by requests to the clusters. It must not follow the redirect, and must not mention
    // its location.
    let list = merged.get("/apis/metrics.k8s.io/v1beta1/nodes").send().await?;
    ensure!(!list.status.is_redirection() && list.header("location").is_empty(), "{list:?}");
    ensure!(!format!("{list:?}").contains(&elsewhere.url()), "{list:?}");
    ensure!(elsewhere.requests() == 0, "{} requests were led away", elsewhere.requests());
    metrics.redirect_to(None);
    for (http, path) in paths {
        eventually(SOON, async || http.get(path).send().await?.expect(200).map(drop)).await?;
    }
    Ok(())
}

/// If an attacker takes over the node of a chart's pod, the attacker gets the pod's rights. This chart must grant no
/// rights outside hub mode. Its rights in a hub, and the rights of accounts in served clusters, must have no wildcards.
async fn cve_2023_30622_chart_gives_no_rights_outside_hub_mode_and_no_wildcards(
    context: TestContext,
) -> anyhow::Result<()> {
    let helm = deployment::helm(&context, 4).await?;
    for name in deployment::VALUES {
        for object in deployment::render::chart(&helm, &["--values", &deployment::values(name)]).await? {
            let kind = object["kind"].as_str().unwrap_or_default();
            if deployment::VALUES_WITH_RIGHTS.contains(&name) {
                ensure!(!kind.contains("Role") || !object.to_string().contains("\"*\""), "{object}");
                continue;
            }
            ensure!(!kind.contains("Role"), "the chart gives rights: {object}");
            if kind == "ServiceAccount" {
                ensure!(object["automountServiceAccountToken"] == false, "{object}");
            }
            if kind == "Deployment" {
                let pod = &object["spec"]["template"]["spec"];
                ensure!(pod["automountServiceAccountToken"] == false, "{pod}");
                ensure!(!pod.to_string().contains("serviceAccountToken\":{"), "{pod}");
            }
        }
    }
    let profiles = ["constrained", "any"].map(|folder| deployment::deploy(&format!("members/{folder}")));
    let files = profiles.iter().map(std::fs::read_dir).collect::<Result<Vec<_>, _>>()?;
    let mut seen = 0;
    for file in files.into_iter().flatten() {
        let text = std::fs::read_to_string(file?.path())?;
        ensure!(!text.contains("- '*'") && !text.contains("- \"*\""), "{text}");
        seen += 1;
    }
    ensure!(seen == 5, "{seen} profiles");
    Ok(())
}
