//! Compares commands that read, between a bare member and Tributary.

use super::{SHOP, Sides};
use crate::{
    context::{Case, TestContext, cases, eventually},
    kubectl::pod,
};
use anyhow::ensure;
use serde_json::json;
use std::time::Duration;

pub(super) fn cases() -> Vec<Case> {
    cases!["kubectl::compared";
        kubectl_get_output_matches_the_members_output, kubectl_get_output_formats_match_the_members_output,
        chunked_kubectl_get_output_matches_the_members_output, kubectl_get_all_output_matches_the_members_output,
        kubectl_describe_output_matches_the_members_output, discovery_command_output_matches_the_members_output,
        auth_command_output_matches_the_members_output, kubectl_error_output_matches_the_members_output,
        kubectl_wait_output_matches_the_members_output,
    ]
}

/// Longest time until the outputs are equal. They may differ at first, because ages change between two commands, and
/// because Tributary receives a direct write to the member later.
const PATIENCE: Duration = Duration::from_secs(60);

/// Number of pods. It is greater than the tested chunk sizes, so that lists have several pages.
const PODS: usize = 11;

/// Creates the objects of [`SHOP`] and pods in a namespace, directly in the member.
async fn set_up(context: &TestContext) -> anyhow::Result<Sides> {
    let sides = Sides::in_one_namespace(context).await?;
    sides.own.file("shop.yaml", SHOP)?;
    sides.own.run(&["create", "-f", "shop.yaml"]).await?.success()?;
    let path = format!("/api/v1/namespaces/{}/pods", sides.own.namespace);
    for index in 0..PODS {
        let mut pod = pod(&format!("pod-{index:02}"), "no-such-node");
        pod["metadata"]["annotations"] = json!({"note": "kept"});
        pod["metadata"]["labels"]["number"] = (PODS - index).to_string().into();
        sides.member.http().post(&path, &pod).send().await?.expect(201)?;
    }
    let event = json!({
        "apiVersion": "v1", "kind": "Event", "metadata": {"name": "seen", "annotations": {"note": "kept"}},
        "involvedObject": {
            "apiVersion": "v1", "kind": "Pod", "name": "pod-00", "namespace": sides.own.namespace,
        },
        "reason": "Seen", "message": "somebody saw it", "type": "Warning", "count": 3,
        "firstTimestamp": "2026-01-01T00:00:00Z", "lastTimestamp": "2026-01-01T00:00:00Z",
        "source": {"component": "eyes"},
    });
    sides.member.http().post(&path.replace("/pods", "/events"), &event).send().await?.expect(201)?;
    Ok(sides)
}

async fn same(context: TestContext, commands: &[&str]) -> anyhow::Result<()> {
    let sides = set_up(&context).await?;
    let mut wrong = Vec::new();
    for command in commands {
        let arguments: Vec<&str> = command.split(' ').collect();
        if let Err(error) = eventually(PATIENCE, || sides.same(&arguments)).await {
            wrong.push(format!("{error:#}"));
        }
    }
    ensure!(wrong.is_empty(), "{} of {} commands:\n{}", wrong.len(), commands.len(), wrong.join("\n\n"));
    Ok(())
}

async fn kubectl_get_output_matches_the_members_output(context: TestContext) -> anyhow::Result<()> {
    let commands = [
        "get pods,services,deployments",
        "get pods,services,deployments -o name",
        "get deploy/web svc/web pod/pod-03 cm/settings",
        "get pod pod-03 pod-01 pod-02",
        "get pods -l number",
        "get pods,services -l app=shop",
        "get pods --field-selector=metadata.name=pod-04",
        "get pods --show-labels",
        "get pods -L app,number",
        "get pods --show-kind",
        "get pods --sort-by=.metadata.labels.number",
        "get pods --sort-by={.metadata.name} -o name",
        "get cronjobs,jobs,hpa,ingresses,roles,events,secrets",
        "get deployments.v1.apps",
        "get deployments.apps web -o wide",
        "get nodes",
        "get priorityclasses",
        "get namespaces default kube-system",
        "get events --sort-by=.lastTimestamp",
        "events",
        "events --for=pod/pod-00",
        "events --types=Warning -o name",
    ];
    same(context, &commands).await
}

async fn kubectl_get_output_formats_match_the_members_output(context: TestContext) -> anyhow::Result<()> {
    let commands = [
        "get pod pod-00 -o yaml",
        "get configmaps,deployments -o yaml",
        "get deployment web -o yaml --show-managed-fields",
        "get services -o wide",
        "get pods -o jsonpath={.items[*].metadata.name}",
        "get pods -o jsonpath={range.items[*]}{.spec.nodeName}{end}",
        "get pods -o custom-columns=NAME:.metadata.name,NODE:.spec.nodeName,NONE:.spec.nothing",
        "get pods -o go-template={{.kind}}",
        "get --raw /api/v1/namespaces/default/nothings",
        "get --raw /version",
    ];
    same(context, &commands).await
}

async fn chunked_kubectl_get_output_matches_the_members_output(context: TestContext) -> anyhow::Result<()> {
    let commands = [
        "get pods --chunk-size=3",
        "get pods --chunk-size=3 -o name",
        "get pods --chunk-size=1 -l number -o name",
        "get pods --chunk-size=0 -o name",
        "get pods,configmaps --chunk-size=2 -o name",
        "get pods --chunk-size=4 --sort-by=.metadata.labels.number -o name",
        "describe pods --chunk-size=5",
    ];
    same(context, &commands).await
}

/// Runs `get all` in one namespace and in all namespaces. For all namespaces, the test compares only the lines of its
/// own namespace.
async fn kubectl_get_all_output_matches_the_members_output(context: TestContext) -> anyhow::Result<()> {
    let sides = set_up(&context).await?;
    for arguments in [&["get", "all"][..], &["get", "all", "-o", "wide"], &["get", "all", "-l", "app=shop"]] {
        eventually(PATIENCE, || sides.same(arguments)).await?;
    }
    eventually(PATIENCE, async || {
        let arguments = ["get", "all", "-A"];
        let (mut own, mut shown) = tokio::try_join!(sides.own.run(&arguments), sides.shown.run(&arguments))?;
        for output in [&mut own, &mut shown] {
            let kept = |line: &&str| {
                line.is_empty() || line.starts_with("NAMESPACE ") || line.starts_with(&sides.own.namespace)
            };
            output.stdout = output.stdout.lines().filter(kept).collect::<Vec<_>>().join("\n");
        }
        ensure!(own.stdout.lines().count() > PODS, "{own:?}");
        super::output::compare((&sides.own, &own), (&sides.shown, &shown))
    })
    .await
}

async fn kubectl_describe_output_matches_the_members_output(context: TestContext) -> anyhow::Result<()> {
    let commands = [
        "describe pod pod-00",
        "describe pods",
        "describe service web",
        "describe deployment web",
        "describe replicaset old",
        "describe statefulset,daemonset",
        "describe job count",
        "describe cronjob nightly",
        "describe hpa web",
        "describe ingress door",
        "describe configmap settings",
        "describe secret keys",
        "describe serviceaccount clerk",
        "describe role reader",
        "describe events",
        "describe -l app=shop deploy,svc",
    ];
    same(context, &commands).await
}

async fn discovery_command_output_matches_the_members_output(context: TestContext) -> anyhow::Result<()> {
    let commands = [
        "api-resources --namespaced --verbs=list,create",
        "api-resources --api-group=apps -o wide",
        "api-resources --sort-by=kind",
        "api-resources -o name",
        "api-resources --categories=all",
        "api-versions",
        "cluster-info",
        "version",
        "explain pods.spec.containers --recursive",
        "explain deployments.v1.apps.spec.strategy",
        "explain nothing",
        "get componentstatuses",
        "get cs etcd-0 -o yaml",
    ];
    same(context, &commands).await
}

async fn auth_command_output_matches_the_members_output(context: TestContext) -> anyhow::Result<()> {
    let commands = [
        "auth can-i --list",
        "auth can-i create pods",
        "auth can-i --list --as=nobody",
        "auth can-i get /healthz --as=nobody",
        "auth can-i get pods/log",
        "auth can-i get nothings",
        "auth can-i * * -A",
        "auth whoami",
        "auth whoami -o yaml",
        "rollout history deployment web",
        "rollout status deployment web --watch=false",
        "top pods",
    ];
    same(context, &commands).await
}

async fn kubectl_error_output_matches_the_members_output(context: TestContext) -> anyhow::Result<()> {
    let commands = [
        "get nothings",
        "get pod nothing",
        "get pods nothing pod-00",
        "get pods,nothings",
        "get deploy/nothing pod/pod-00",
        "get nothing --ignore-not-found",
        "get pod nothing --ignore-not-found",
        "get pods -l a,,b",
        "get pods -l =x",
        "get pods --field-selector=spec.nothing=x",
        "get pods --field-selector=nothing",
        "get jobs --field-selector=spec.nothing=x",
        "get roles --field-selector=spec.nothing=x",
        "get pods --raw /api",
        "get -n no-such-namespace pods",
        "get -n no-such-namespace pod nothing",
        "get --raw /nothing",
        "get --raw /api/v1/nothings",
        "get --raw /apis/nothing.example.test/v1",
        "describe pod nothing",
        "describe nothing",
        "logs pod-00",
        "logs nothing",
        "exec nothing -- true",
        "delete pod nothing",
        "label pod nothing a=b",
        "patch pod nothing --type=merge -p {}",
        "scale deployment nothing --replicas=1",
        "rollout status deployment nothing",
        "set image deployment/nothing main=x",
        "replace -f nothing.yaml",
        "expose pod nothing --port=80",
    ];
    same(context, &commands).await
}

async fn kubectl_wait_output_matches_the_members_output(context: TestContext) -> anyhow::Result<()> {
    let commands = [
        "wait --for=condition=Ready pod/pod-00 --timeout=1s",
        "wait --for=condition=Ready pod/nothing --timeout=1s",
        "wait --for=condition=Ready pods -l nothing --timeout=1s",
        "wait --for=delete pod/nothing --timeout=1s",
        "wait --for=delete pod/pod-00 --timeout=1s",
        "wait --for=jsonpath={.spec.nodeName}=no-such-node pods --all --timeout=30s",
        "wait --for=jsonpath={.data.colour}=blue configmap/settings --timeout=30s",
        "wait --for=jsonpath={.data.colour}=red configmap/settings --timeout=1s",
        "wait --for=create configmap/settings --timeout=30s",
        "wait --for=create configmap/nothing --timeout=1s",
    ];
    same(context, &commands).await
}
