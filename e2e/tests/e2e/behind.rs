//! What answers from behind a member: a kubelet that rejects its kube-apiserver, and a server that sends back what it is sent.

use crate::context::{Case, TestContext, cases};
use crate::kubectl::pod;
use anyhow::ensure;
use http::Method;
use serde_json::json;
use tributary_e2e::kubelet::RefusingKubelet;
use tributary_e2e::{HttpClient, Kubectl, namespace};

pub(crate) fn cases() -> Vec<Case> {
    cases!["behind"; a_kubelets_refusal_is_told_as_it_is, what_is_proxied_is_not_held]
}

/// A node of the bare member whose kubelet refuses, and a pod on it.
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

/// kubectl prints and ends as it does with the member itself, and the cluster stays up.
async fn a_kubelets_refusal_is_told_as_it_is(context: TestContext) -> anyhow::Result<()> {
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
        ensure!((own.code, &own.stderr) == (shown.code, &shown.stderr), "{shown:?} instead of {own:?}");
        is_up().await?;
    }
    // The Status, as the member gives it.
    let path = format!("/api/v1/namespaces/{namespace}/pods/one/log");
    let (own, shown) = (member.http().get(&path).send().await?, http.get(&path).send().await?);
    ensure!(own.status == 401 && own.text().contains("pods/log one"), "{own:?}");
    ensure!((own.status, own.text()) == (shown.status, shown.text()), "{shown:?} instead of {own:?}");
    let log = tributary.log();
    ensure!(!log.contains("rejects this endpoint's own credentials"), "{log}");
    member.http().delete(&format!("/api/v1/nodes/{node}")).send().await?.expect(200)?;
    Ok(())
}

/// Bodies above what is held of a write pass both ways, below the cluster's own path and through the merged view.
async fn what_is_proxied_is_not_held(context: TestContext) -> anyhow::Result<()> {
    let (_kubelet, node, _namespace) = broken(&context).await?;
    let (member, tributary) = (context.fixture.bare().await?, context.fixture.over_one().await?);
    let path = format!("/api/v1/nodes/{node}/proxy/echo");
    let large = json!({"kind": "Node", "metadata": {"resourceVersion": "1"}, "data": "x".repeat(9 << 20)}).to_string();
    let echoes = async |http: &HttpClient, path: &str| -> anyhow::Result<()> {
        for method in [Method::POST, Method::PUT, Method::PATCH, Method::DELETE] {
            let answer = http.request(method.clone(), path).body("application/json", large.clone()).send().await?;
            let answer = answer.expect(200)?;
            ensure!(answer.body == large, "{method} {path}: {} of {} bytes", answer.body.len(), large.len());
        }
        Ok(())
    };
    echoes(member.http(), &path).await?;
    let http = tributary.http().await?;
    echoes(&http, &format!("/clusters/bare{path}")).await?;
    echoes(&http, &path).await?;
    member.http().delete(&format!("/api/v1/nodes/{node}")).send().await?.expect(200)?;
    Ok(())
}
