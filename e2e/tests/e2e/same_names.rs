//! Several clusters have objects with the same namespaces and names, because controllers create them:
//! `kube-root-ca.crt` and the default service account of each namespace. A client that stores objects by name has one
//! of these objects, and must never lose a name that still exists in a cluster.

use crate::{
    clients::follower::Follower,
    context::{Case, TestContext, cases, eventually},
};
use anyhow::{Context, ensure};
use serde_json::Value;
use std::{collections::BTreeSet, sync::Arc, time::Duration};
use tokio::time::Instant;
use tributary_e2e::{TestCluster, Tributary, guard, kubeconfig, namespace};

const SOON: Duration = Duration::from_secs(60);

/// Longest time for which a name may be absent from a client's store while an object of a different cluster replaces
/// the old object. The DELETED and the ADDED event arrive together.
const AT_ONCE: Duration = Duration::from_secs(5);

/// Controllers that create a namespace's service account and CA ConfigMap, and delete them with the namespace.
const CONTROLLERS: &str = "namespace-controller,serviceaccount-controller,root-ca-certificate-publisher-controller";

pub(crate) fn cases() -> Vec<Case> {
    cases!["same_names"; informers_keep_every_name_that_several_clusters_have]
        .into_iter()
        .map(|case| case.patience(Duration::from_secs(420)))
        .collect()
}

/// Returns the keys in the informers' stores that belong to a namespace: the namespace itself, and the objects that
/// controllers create in it.
fn keys(namespace: &str) -> [(&'static str, String); 3] {
    [
        ("namespaces", namespace.to_owned()),
        ("serviceaccounts", format!("{namespace}/default")),
        ("configmaps", format!("{namespace}/kube-root-ca.crt")),
    ]
}

/// Reads the uids of the objects with this key from all members.
async fn uids(members: &[Arc<TestCluster>], resource: &str, key: &str) -> anyhow::Result<BTreeSet<String>> {
    let path = match key.split_once('/') {
        Some((namespace, name)) => format!("/api/v1/namespaces/{namespace}/{resource}/{name}"),
        None => format!("/api/v1/{resource}/{key}"),
    };
    let mut uids = BTreeSet::new();
    for member in members {
        let answer = member.http().get(&path).send().await?;
        if answer.status == 200 {
            uids.insert(answer.json()?["metadata"]["uid"].as_str().unwrap_or_default().to_owned());
        }
    }
    Ok(uids)
}

/// Waits until the informers' stores have, for each key, the object of one of the members.
async fn hold(follower: &mut Follower, members: &[Arc<TestCluster>], namespace: &str) -> anyhow::Result<()> {
    let deadline = Instant::now() + SOON;
    loop {
        let dump = follower.dump().await?;
        let mut wrong = Vec::new();
        for (resource, key) in keys(namespace) {
            let uid = dump["objects"][resource][&key]["uid"].as_str().unwrap_or_default();
            let known = uids(members, resource, &key).await?;
            if !known.contains(uid) {
                wrong.push(format!("{resource} {key} is {uid:?} instead of one of {known:?}"));
            }
        }
        if wrong.is_empty() {
            return Ok(());
        }
        ensure!(Instant::now() < deadline, "{wrong:?}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

async fn exists_in(member: &TestCluster, path: &str, exists: bool) -> anyhow::Result<()> {
    eventually(SOON, async || {
        let status = member.http().get(path).send().await?.status;
        ensure!((status == 200) == exists, "{path} in {}: {status}", member.name());
        Ok(())
    })
    .await
}

async fn informers_keep_every_name_that_several_clusters_have(context: TestContext) -> anyhow::Result<()> {
    let _permit = context.fixture.own_members.acquire().await?;
    let tools = context.fixture.tools().await?;
    let start = |name| TestCluster::builder(name).controllers_named(CONTROLLERS).start(tools);
    let (one, two) = tokio::try_join!(start("same1"), start("same2"))?;
    let members = [Arc::new(one), Arc::new(two)];
    let folder = guard::temporary_folder("same")?;
    let path = folder.path().join("kubeconfig");
    kubeconfig::write(&path, &[&members[0].access(), &members[1].access()])?;
    let tributary = Tributary::builder(&path, ["same1", "same2"]).start().await?;
    let tributary = context.fixture.watch_log(tributary).await;
    let name = namespace::unique_name("same");
    namespace::create(&name, &[&members[0], &members[1]]).await?;
    for watch_list in ["true", "false"] {
        let arguments = ["informer", "--resources", "namespaces,serviceaccounts,configmaps"];
        let environment = [("KUBE_FEATURE_WatchListClient", watch_list)];
        let mut follower = Follower::start(&tools.clients(), tributary.kubeconfig(), &arguments, &environment)?;
        follower.wait_for("synced", SOON).await?;
        hold(&mut follower, &members, &name).await.context("at first")?;
        for (resource, key) in &keys(&name)[1..] {
            let object = key.split('/').next_back().unwrap_or_default();
            let path = format!("/api/v1/namespaces/{name}/{resource}/{object}");
            for member in members.iter().cycle().take(6) {
                // The controller creates the object, and creates it again after the deletion.
                exists_in(member, &path, true).await?;
                member.http().delete(&path).send().await?.expect(200)?;
                exists_in(member, &path, true).await?;
            }
        }
        hold(&mut follower, &members, &name).await.context("after deletions that controllers undid")?;

        // Each cluster deletes the namespace with all objects, and the test creates the namespace again.
        for member in &members {
            let path = format!("/api/v1/namespaces/{name}");
            member.http().delete(&path).send().await?.expect(200)?;
            exists_in(member, &path, false).await?;
            hold(&mut follower, &members, &name).await.with_context(|| format!("without {}'s", member.name()))?;
            namespace::create(&name, &[member]).await?;
            exists_in(member, &format!("{path}/configmaps/kube-root-ca.crt"), true).await?;
            exists_in(member, &format!("{path}/serviceaccounts/default"), true).await?;
        }
        hold(&mut follower, &members, &name).await.context("with both again")?;
        never_lost(&follower.dump().await?, &name)?;
        follower.exit().await?;
    }
    Ok(())
}

/// Checks that no key of the namespace was absent for longer than [`AT_ONCE`].
fn never_lost(dump: &Value, namespace: &str) -> anyhow::Result<()> {
    let absences = dump["absences"].as_object().context("no absences")?;
    for (resource, key) in keys(namespace) {
        let longest = absences.get(&format!("{resource} {key}")).and_then(Value::as_f64);
        let longest = longest.with_context(|| format!("{resource} {key} was never deleted: {absences:?}"))?;
        ensure!(longest < AT_ONCE.as_secs_f64(), "{resource} {key} was absent for {longest} s");
    }
    Ok(())
}
