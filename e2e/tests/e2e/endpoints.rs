//! Tests one cluster with several kube-apiservers on one etcd. The tests kill a kube-apiserver, restart all in turn,
//! let one answer with errors, remove one from the configuration, and send requests to one by a policy.

mod broken;
mod by_policy;
mod drained;
mod load;
mod rolling;

use crate::context::{Case, TestContext, cases, eventually};
use anyhow::{Context, ensure};
use serde_json::json;
use std::{collections::BTreeSet, fs, sync::Arc, time::Duration};
use tributary_e2e::{TestCluster, Tributary, guard, kubeconfig, namespace};

/// Longest time until Tributary notices that an endpoint is lost or available again. Tributary tries to connect to a
/// lost endpoint at least every half minute.
const SOON: Duration = Duration::from_secs(60);

/// Longest duration of a test, including its wait for a permit. Three tests put load on separate members, and run one
/// after the other.
const PATIENCE: Duration = Duration::from_secs(900);

/// Number of objects that the test creates one after the other. In the middle, the test kills the first kube-apiserver.
const WRITES: usize = 60;

pub(crate) fn cases() -> Vec<Case> {
    let own = cases!["endpoints"; killed_apiserver_is_replaced_by_the_second_endpoint];
    [own, rolling::cases(), broken::cases(), drained::cases(), by_policy::cases()]
        .into_iter()
        .flatten()
        .map(|case| case.patience(PATIENCE))
        .collect()
}

async fn killed_apiserver_is_replaced_by_the_second_endpoint(context: TestContext) -> anyhow::Result<()> {
    let _permit = context.fixture.own_members.acquire().await?;
    let shared = TestCluster::builder("shared").start(context.fixture.tools().await?).await?;
    let ports = [shared.apiserver_port(), shared.start_another_apiserver().await?];
    let other = Arc::clone(&context.fixture.pair().await?[1]);
    let folder = guard::temporary_folder("endpoints")?;
    let path = folder.path().join("kubeconfig");
    kubeconfig::write(&path, &[&other.access()])?;
    let access = shared.access();
    fs::write(folder.path().join("shared.ca"), &access.certificate_authority)?;
    let config = json!({
        "apiVersion": "tributary.dev/v1alpha1", "kind": "UpstreamCluster", "metadata": {"name": "shared"},
        "spec": {
            "endpoints": ports.map(|port| format!("https://127.0.0.1:{port}")),
            "caFile": folder.path().join("shared.ca"),
            "credentials": {"token": access.token},
        },
    });
    let config_path = folder.path().join("shared.yaml");
    fs::write(&config_path, config.to_string())?;
    let tributary = Tributary::builder(&path, ["member2"]).argument("--config").argument(config_path.to_string_lossy());
    let tributary = context.fixture.watch_log(tributary.start().await?).await;
    let http = tributary.http().await?;
    let namespace = namespace::unique_name("endpoints");
    namespace::create(&namespace, &[&shared]).await?;
    let maps = format!("/api/v1/namespaces/{namespace}/configmaps");
    let mut events = http.watch(&format!("{maps}?watch=1&labelSelector=made=here")).await?;
    let endpoint = |port: u16| format!("cluster/shared/endpoint/127.0.0.1:{port}");
    for number in 0..WRITES {
        if number == WRITES / 2 {
            for port in ports {
                let requests = requests_of(&http.get("/metrics").send().await?.text(), port)?;
                ensure!(requests >= WRITES / 4, "{requests} requests through {port}: not balanced");
            }
            shared.kill_apiserver().await?;
        }
        let metadata = json!({
            "name": format!("x{number:02}"), "labels": {"made": "here"}, "annotations": {"tributary.dev/cluster": "shared"},
        });
        let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata});
        http.post(&maps, &object).send().await?.expect(201)?;
        let listed = http.get(&format!("{maps}?labelSelector=made=here")).send().await?.expect(200)?.json()?;
        let count = listed["items"].as_array().map(Vec::len);
        ensure!(count == Some(number + 1), "own writes are seen: {count:?} of {}", number + 1);
        http.get(&format!("/clusters/shared{maps}/x00")).send().await?.expect(200)?;
    }
    let mut told = BTreeSet::new();
    while told.len() < WRITES {
        let event = events.expect(SOON).await?;
        ensure!(event["type"] == "ADDED", "{event}");
        let name = event["object"]["metadata"]["name"].as_str().context("no name")?.to_owned();
        ensure!(told.insert(name), "told twice: {event}");
    }
    let health = http.get("/readyz?verbose").send().await?.expect(200)?.text();
    ensure!(health.contains("[+]cluster/shared ok"), "{health}");
    ensure!(health.contains(&format!("[-]{} failed", endpoint(ports[0]))), "{health}");
    shared.start_again().await?;
    eventually(SOON, async || {
        let health = http.get("/readyz?verbose").send().await?.expect(200)?.text();
        ensure!(health.contains(&format!("[+]{} ok", endpoint(ports[0]))), "{health}");
        Ok(())
    })
    .await
}

fn requests_of(metrics: &str, port: u16) -> anyhow::Result<usize> {
    let name = format!("tributary_endpoint_requests_total{{cluster=\"shared\",endpoint=\"127.0.0.1:{port}\"}} ");
    let line = metrics.lines().find_map(|line| line.strip_prefix(&name)).context("no such metric")?;
    Ok(line.parse()?)
}
