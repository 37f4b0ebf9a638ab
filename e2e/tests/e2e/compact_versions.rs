//! Compact resourceVersions. Tributary sends them if composite resourceVersions would be too long. The test uses two
//! real clusters, and simulated clusters with long names.

use crate::context::{Case, TestContext, cases, eventually};
use anyhow::{Context, ensure};
use serde_json::{Value, json};
use std::{collections::BTreeSet, time::Duration};
use tributary_e2e::{Access, Tributary, kubeconfig};
use tributary_simulator::{Simulator, SimulatorConfig};

const SOON: Duration = Duration::from_secs(60);

/// Number of simulated clusters. Their names of 60 characters make a composite version longer than 4 KiB.
const SIMULATED: usize = 48;

pub(crate) fn cases() -> Vec<Case> {
    cases!["compact_versions"; resource_versions_over_many_clusters_have_the_compact_form]
}

fn version_of(object: &Value) -> String {
    object["metadata"]["resourceVersion"].as_str().unwrap_or_default().to_owned()
}

fn names_of(list: &Value) -> Vec<String> {
    let items = list["items"].as_array().into_iter().flatten();
    items.map(|item| item["metadata"]["name"].as_str().unwrap_or_default().to_owned()).collect()
}

fn is_compact(version: &str) -> bool {
    version.starts_with("c1.")
}

async fn resource_versions_over_many_clusters_have_the_compact_form(context: TestContext) -> anyhow::Result<()> {
    let pair = context.fixture.pair().await?;
    let mut simulated = Vec::new();
    for index in 0..SIMULATED {
        let name = format!("production-cluster-in-a-region-far-away-from-here-{index:010}");
        let config = SimulatorConfig { name, pods: 0, namespaces: 1, nodes: 1, ..SimulatorConfig::default() };
        simulated.push(Simulator::start(config).await.context("start a simulated member")?);
    }
    let accesses: Vec<Access> = simulated
        .iter()
        .map(|member| Access {
            name: member.name().to_owned(),
            server: member.url(),
            certificate_authority: member.ca_pem().to_owned(),
            token: member.token().to_owned(),
        })
        .chain(pair.iter().map(|member| member.access()))
        .collect();
    let folder = tributary_e2e::guard::temporary_folder("many")?;
    let path = folder.path().join("kubeconfig");
    kubeconfig::write(&path, &accesses.iter().collect::<Vec<_>>())?;
    let contexts: Vec<&str> = accesses.iter().map(|access| access.name.as_str()).collect();
    let start = async || {
        let tributary =
            Tributary::builder(&path, contexts.iter().copied()).argument("--create-in=member1").start().await?;
        anyhow::Ok(context.fixture.watch_log(tributary).await)
    };
    let (first, second) = tokio::try_join!(start(), start())?;
    let servers = [first.http().await?, second.http().await?];
    let namespace = context.namespace("many", pair).await?;
    let maps = format!("/api/v1/namespaces/{namespace}/configmaps");
    let mut names = Vec::new();
    for (number, member) in pair.iter().enumerate() {
        for index in 0..4 {
            let name = format!("map-{number}{index}");
            let map =
                json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"step": "0"}});
            member.http().post(&maps, &map).send().await?.expect(201)?;
            names.push(name);
        }
    }
    // Tributary sends compact resourceVersions only after every cluster has reported its uid.
    for http in &servers {
        eventually(SOON, async || {
            let list = http.get(&maps).send().await?.expect(200)?.json()?;
            ensure!(names_of(&list) == names && is_compact(&version_of(&list)), "{list}");
            Ok(())
        })
        .await?;
    }

    // The second process refuses versions from before its start as too old. This list gives a version that both
    // processes accept. The first process may lag behind.
    let begun = version_of(&servers[1].get(&maps).send().await?.expect(200)?.json()?);
    servers[0].get(&format!("{maps}?resourceVersion={begun}")).send().await?.expect(200)?;

    // The two processes alternate in serving the pages of one list while the objects change.
    let page = servers[0].get(&format!("{maps}?limit=3")).send().await?.expect(200)?.json()?;
    let version = version_of(&page);
    for (name, member) in [("map-03", &pair[0]), ("map-13", &pair[1])] {
        member.http().delete(&format!("{maps}/{name}")).send().await?.expect(200)?;
    }
    let token = page["metadata"]["continue"].as_str().context("no continue token")?;
    let rest = servers[0].get(&format!("{maps}?limit=3&continue={token}")).send().await?.expect(200)?.json()?;
    ensure!(names_of(&rest) == names[3..6] && version_of(&rest) == version, "{rest}");
    let token = rest["metadata"]["continue"].as_str().context("no second continue token")?;
    let rest = servers[1].get(&format!("{maps}?limit=3&continue={token}")).send().await?.expect(200)?.json()?;
    ensure!(names_of(&rest) == names[6..] && version_of(&rest) == version, "{rest}");
    let exact = format!("{maps}?resourceVersion={version}&resourceVersionMatch=Exact");
    for http in &servers {
        let list = http.get(&exact).send().await?.expect(200)?.json()?;
        ensure!(names_of(&list) == names && version_of(&list) == version, "{list}");
        http.get(&format!("{maps}/map-00?resourceVersion={version}")).send().await?.expect(200)?;
    }

    // After each event, the watch resumes at the process that did not send the event.
    let mut from = version;
    let mut told = BTreeSet::new();
    for http in &servers {
        let path = format!("{maps}?watch=true&resourceVersion={from}");
        let event = http.watch(&path).await?.expect(SOON).await?;
        ensure!(event["type"] == "DELETED", "{event}");
        told.extend(event["object"]["metadata"]["name"].as_str().map(str::to_owned));
        from = version_of(&event["object"]);
        ensure!(is_compact(&from), "{event}");
    }
    ensure!(told.iter().eq(["map-03", "map-13"]), "{told:?}");

    // An update with the resourceVersion of an event succeeds once. The second update with the same resourceVersion is
    // a conflict.
    let mut stream = servers[0].watch(&format!("{maps}?watch=true&resourceVersion={from}")).await?;
    let patch = json!({"data": {"step": "1"}});
    servers[1].patch(&format!("{maps}/map-10"), "merge-patch+json", &patch).send().await?.expect(200)?;
    let mut object = stream.expect(SOON).await?["object"].take();
    ensure!(object["data"]["step"] == "1" && is_compact(&version_of(&object)), "{object}");
    object["data"]["step"] = json!("2");
    servers[0].put(&format!("{maps}/map-10"), &object).send().await?.expect(200)?;
    servers[0].put(&format!("{maps}/map-10"), &object).send().await?.expect(409)?;

    // kubectl must be able to list in pages and to watch with compact versions.
    let kubectl = first.kubectl(context.fixture.tools().await?)?;
    let arguments = ["-n", &namespace, "get", "configmaps", "--chunk-size=2", "--output=name"];
    let text = kubectl.ok(&arguments).await?;
    ensure!(text.lines().count() == 6 && text.contains("configmap/map-12\n"), "{text}");
    let arguments = ["-n", &namespace, "wait", "configmap/map-12", "--for=jsonpath={.data.step}=3", "--timeout=60s"];
    let change = async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        let patch = json!({"data": {"step": "3"}});
        pair[1].http().patch(&format!("{maps}/map-12"), "merge-patch+json", &patch).send().await?.expect(200)
    };
    let (text, changed) = tokio::join!(kubectl.ok(&arguments), change);
    changed?;
    ensure!(text?.contains("condition met"), "kubectl did not wait");
    Ok(())
}
