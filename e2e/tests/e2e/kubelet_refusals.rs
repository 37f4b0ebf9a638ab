//! Tests the errors of a kubelet that refuses requests of its kube-apiserver.
//!
//! Other requests to the subresource `proxy` are tested with simulated members only. A kube-apiserver forwards nothing
//! to a loopback address ("address not allowed", `pkg/registry/core/node/strategy.go`), and these tests listen only on
//! loopback.

use std::collections::BTreeSet;

use crate::context::{Case, TestContext, cases};
use crate::kubectl::pod;
use anyhow::ensure;
use tributary_e2e::kubelet::RefusingKubelet;
use tributary_e2e::{Kubectl, namespace};

pub(crate) fn cases() -> Vec<Case> {
    cases!["kubelet_refusals"; kubelet_refusal_reaches_kubectl_unchanged]
}

/// Creates a node in the bare member whose kubelet refuses all requests, and a pod on this node.
async fn broken(context: &TestContext) -> anyhow::Result<(RefusingKubelet, String, String)> {
    let member = context.fixture.bare().await?;
    let kubelet = RefusingKubelet::start().await?;
    let node = namespace::unique_name("broken");
    kubelet.register(&member, &node).await?;
    let namespace = context.namespace("behind", std::slice::from_ref(&member)).await?;
    let path = format!("/api/v1/namespaces/{namespace}/pods");
    member.http().post(&path, &pod("one", &node)).send().await?.expect(201)?;
    Ok((kubelet, node, namespace))
}

/// kubectl's output and exit code must be the same as at the member, and Tributary must still regard the cluster as
/// ready.
async fn kubelet_refusal_reaches_kubectl_unchanged(context: TestContext) -> anyhow::Result<()> {
    let (_kubelet, node, namespace) = broken(&context).await?;
    let (member, tributary) = (context.fixture.bare().await?, context.fixture.over_one().await?);
    let tools = context.fixture.tools().await?;
    let (own, shown) = (Kubectl::new(tools, &member.kubeconfig())?, tributary.kubectl(tools)?);
    let http = tributary.http().await?;
    let is_up = async || -> anyhow::Result<()> {
        let health = http.get("/readyz?verbose").send().await?.expect(200)?.text();
        ensure!(health.contains("[+]cluster/bare ok"), "{health}");
        Ok(())
    };
    for words in [&["logs", "one"][..], &["logs", "-f", "one"], &["exec", "one", "--", "true"], &["attach", "one"]] {
        let arguments = [&["-n", &*namespace], words].concat();
        let (own, shown) = tokio::try_join!(own.run(&arguments), shown.run(&arguments))?;
        ensure!(own.code != Some(0) && !own.stderr.is_empty(), "the node is well: {own:?}");
        // `logs -f` repeats its request for some time, and prints each error. The number of repetitions varies, so the
        // comparison ignores repeated lines.
        let said = |stderr: &str| stderr.lines().map(str::to_owned).collect::<BTreeSet<_>>();
        let same = (own.code, said(&own.stderr)) == (shown.code, said(&shown.stderr));
        ensure!(same, "{shown:?} instead of {own:?}");
        is_up().await?;
    }
    // Tributary must forward the member's Status unchanged.
    let path = format!("/api/v1/namespaces/{namespace}/pods/one/log");
    let (own, shown) = (member.http().get(&path).send().await?, http.get(&path).send().await?);
    ensure!(own.status == 401 && own.text().contains("pods/log one"), "{own:?}");
    ensure!((own.status, own.text()) == (shown.status, shown.text()), "{shown:?} instead of {own:?}");
    let log = tributary.log();
    ensure!(!log.contains("rejects Tributary's own credentials"), "{log}");
    member.http().delete(&format!("/api/v1/nodes/{node}")).send().await?.expect(200)?;
    Ok(())
}
