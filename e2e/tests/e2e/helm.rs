//! Runs Helm 3 and Helm 4 over two members. The merged view must install, upgrade and uninstall a release, and must
//! never put its objects into two clusters.

pub(crate) mod chart;

use crate::context::{Case, TestContext, eventually};
use crate::victim::{Harm, Victim};
use anyhow::{Context, ensure};
use chart::Chart;
use futures::future::BoxFuture;
use serde_json::{Value, json};
use std::{sync::Arc, time::Duration};
use tributary_e2e::{HttpClient, Kubectl, TestCluster, Tributary};

const SOON: Duration = Duration::from_secs(60);

type Test = fn(TestContext, u8) -> BoxFuture<'static, anyhow::Result<()>>;

pub(crate) fn cases() -> Vec<Case> {
    let tests: [(&str, Test); 7] = [
        ("helm_installs_upgrades_and_uninstalls_in_the_merged_view", |context, version| {
            Box::pin(helm_installs_upgrades_and_uninstalls_in_the_merged_view(context, version))
        }),
        ("helm_upgrade_stays_in_the_cluster_of_the_release", |context, version| {
            Box::pin(helm_upgrade_stays_in_the_cluster_of_the_release(context, version))
        }),
        ("helm_release_goes_to_the_cluster_of_its_namespace", |context, version| {
            Box::pin(helm_release_goes_to_the_cluster_of_its_namespace(context, version))
        }),
        ("helm_upgrade_is_refused_if_two_clusters_have_the_release_name", |context, version| {
            Box::pin(helm_upgrade_is_refused_if_two_clusters_have_the_release_name(context, version))
        }),
        ("helm_hook_without_a_label_goes_to_its_releases_cluster", |context, version| {
            Box::pin(helm_hook_without_a_label_goes_to_its_releases_cluster(context, version))
        }),
        ("helm_install_without_a_default_cluster_is_refused", |context, version| {
            Box::pin(helm_install_without_a_default_cluster_is_refused(context, version))
        }),
        ("helm_release_does_not_go_to_a_cluster_with_forged_release_records", |context, version| {
            Box::pin(helm_release_does_not_go_to_a_cluster_with_forged_release_records(context, version))
        }),
    ];
    let of_version = |version: u8| {
        tests.map(|(name, test)| Case::new(format!("helm::v{version}::{name}"), move |context| test(context, version)))
    };
    let harmed = |version: u8| {
        Harm::ALL.map(|(harm, word)| {
            let name = format!("helm::v{version}::release_changes_while_another_cluster_is_{word}");
            Case::new(name, move |context| {
                helm_release_of_a_healthy_cluster_can_change_while_another_cluster_fails(context, version, harm)
            })
        })
    };
    [3, 4].into_iter().flat_map(|version| of_version(version).into_iter().chain(harmed(version))).collect()
}

struct Setup {
    helm: Kubectl,
    chart: Chart,
    namespace: String,
    members: Vec<Arc<TestCluster>>,
    /// Held so that the process runs until the end.
    _tributary: Arc<Tributary>,
}

impl Setup {
    /// Starts Tributary over `member1` and `member2`. Objects without a cluster are created in `member1`.
    async fn new(context: &TestContext, version: u8) -> anyhow::Result<Self> {
        let members = context.fixture.pair().await?.to_vec();
        Self::over(context, version, context.fixture.over_two().await?, members).await
    }

    async fn over(
        context: &TestContext,
        version: u8,
        tributary: Arc<Tributary>,
        members: Vec<Arc<TestCluster>>,
    ) -> anyhow::Result<Self> {
        let helm = Kubectl::helm(context.fixture.tools().await?, version, tributary.kubeconfig())?;
        let namespace = context.namespace("helm", &members).await?;
        Ok(Self { helm, chart: Chart::write()?, namespace, members, _tributary: tributary })
    }

    /// Adds the namespace to Helm's arguments, and replaces `CHART` by the chart's path.
    fn arguments<'a>(&'a self, words: &[&'a str]) -> Vec<&'a str> {
        let words = words.iter().map(|word| if *word == "CHART" { self.chart.path() } else { word });
        ["-n", &self.namespace].into_iter().chain(words).collect()
    }

    async fn ok(&self, words: &[&str]) -> anyhow::Result<String> {
        self.helm.ok(&self.arguments(words)).await
    }

    /// Runs a Helm command that must fail, and returns its error.
    async fn refused(&self, words: &[&str]) -> anyhow::Result<String> {
        self.helm.run(&self.arguments(words)).await?.failure()
    }

    /// Returns the chart's objects and Helm's release records in a member, for example `configmaps/web-map`.
    async fn objects(&self, member: usize) -> anyhow::Result<Vec<String>> {
        let found = self.found(member).await?;
        Ok(found.into_iter().map(|(name, _)| name).collect())
    }

    /// Returns the objects of [`Setup::objects`], each with a version that every write of Helm changes.
    async fn found(&self, member: usize) -> anyhow::Result<Vec<(String, String)>> {
        let mut found = Vec::new();
        for (group, resource) in [("apis/apps/v1", "deployments"), ("api/v1", "configmaps"), ("api/v1", "secrets")] {
            let path = format!("/{group}/namespaces/{}/{resource}", self.namespace);
            let list = self.members[member].http().get(&path).send().await?.expect(200)?.json()?;
            let items = list["items"].as_array().cloned().unwrap_or_default();
            let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
            let own = items.iter().map(|item| &item["metadata"]).filter(|own| own["name"] != "kube-root-ca.crt");
            // Controllers write the status of a Deployment and so change its resourceVersion. The generation changes
            // only when Helm writes.
            let version = |own: &Value| match resource {
                "deployments" => own["generation"].to_string(),
                _ => text(&own["resourceVersion"]),
            };
            found.extend(own.map(|own| (format!("{resource}/{}", text(&own["name"])), version(own))));
        }
        Ok(found)
    }

    async fn has(&self, member: usize, expected: &[&str]) -> anyhow::Result<()> {
        let found = self.objects(member).await?;
        ensure!(found == expected, "{} has {found:?} instead of {expected:?}", self.members[member].name());
        Ok(())
    }

    /// Returns the revision and status of a release from `helm list`.
    async fn listed(&self, context: &[&str], release: &str) -> anyhow::Result<(String, String)> {
        let text = self.ok(&[context, &["list", "-o", "json"]].concat()).await?;
        let list: Value = serde_json::from_str(&text).with_context(|| format!("read {text}"))?;
        let found = list.as_array().into_iter().flatten().find(|own| own["name"] == release);
        let found = found.with_context(|| format!("no {release} in {text}"))?;
        let word = |field: &str| found[field].as_str().unwrap_or_default().to_owned();
        Ok((word("revision"), word("status")))
    }
}

/// Objects of a release after its installation, in the order of [`Setup::found`].
const FIRST: [&str; 3] = ["deployments/web", "configmaps/web-map", "secrets/sh.helm.release.v1.web.v1"];

/// Objects of a release after an upgrade that adds an object and a hook, in the order of [`Setup::found`].
const SECOND: [&str; 6] = [
    "deployments/web",
    "configmaps/web-hook",
    "configmaps/web-map",
    "configmaps/web-more",
    "secrets/sh.helm.release.v1.web.v1",
    "secrets/sh.helm.release.v1.web.v2",
];

async fn helm_installs_upgrades_and_uninstalls_in_the_merged_view(
    context: TestContext,
    version: u8,
) -> anyhow::Result<()> {
    let setup = Setup::new(&context, version).await?;
    let wait = ["--wait", "--timeout", "60s"];
    setup.ok(&[&["install", "web", "CHART", "--set", "node=member1-node-0"][..], &wait].concat()).await?;
    setup.has(0, &FIRST).await?;
    ensure!(setup.listed(&[], "web").await? == ("1".into(), "deployed".into()), "not deployed");
    let all = setup.helm.ok(&["list", "-A"]).await?;
    ensure!(all.lines().any(|line| line.starts_with("web") && line.contains(&setup.namespace)), "{all}");
    let upgrade = ["upgrade", "web", "CHART", "--set", "node=member1-node-0,step=2,more=true"];
    setup.ok(&[&upgrade[..], &wait].concat()).await?;
    setup.has(0, &SECOND).await?;
    let history = setup.ok(&["history", "web"]).await?;
    ensure!(history.contains("superseded") && history.contains("deployed"), "{history}");
    setup.ok(&[&["rollback", "web", "1"][..], &wait].concat()).await?;
    let map = format!("/api/v1/namespaces/{}/configmaps/web-map", setup.namespace);
    let map = setup.members[0].http().get(&map).send().await?.expect(200)?.json()?;
    ensure!(map["data"]["step"] == "1", "not rolled back: {map}");
    ensure!(!setup.objects(0).await?.contains(&"configmaps/web-more".to_owned()), "it is not taken away");
    let manifest = setup.ok(&["get", "manifest", "web"]).await?;
    ensure!(manifest.contains("web-map") && !manifest.contains("web-more"), "{manifest}");
    setup.ok(&[&["uninstall", "web"][..], &wait].concat()).await?;
    // Helm does not delete a hook's objects when it deletes the release.
    setup.has(0, &["configmaps/web-hook"]).await?;
    setup.has(1, &[]).await
}

/// The release is installed in the second cluster, which is not the default cluster. An upgrade through the merged view
/// must stay in this cluster.
async fn helm_upgrade_stays_in_the_cluster_of_the_release(context: TestContext, version: u8) -> anyhow::Result<()> {
    let setup = Setup::new(&context, version).await?;
    let own = ["--kube-context", "member2"];
    setup.ok(&[&own[..], &["install", "web", "CHART", "--set", "node=member2-node-0"]].concat()).await?;
    setup.has(1, &FIRST).await?;
    setup.ok(&["upgrade", "web", "CHART", "--set", "node=member2-node-0,step=2,more=true"]).await?;
    setup.has(1, &SECOND).await?;
    setup.has(0, &[]).await?;
    for context in [&own[..], &[]] {
        ensure!(setup.listed(context, "web").await? == ("2".into(), "deployed".into()), "not deployed");
    }
    // The next upgrade uses the kubeconfig context of the release's cluster.
    let revision = ["upgrade", "web", "CHART", "--set", "node=member2-node-0,step=3"];
    setup.ok(&[&own[..], &revision].concat()).await?;
    ensure!(setup.listed(&own, "web").await? == ("3".into(), "deployed".into()), "not deployed");
    setup.ok(&["rollback", "web", "2"]).await?;
    ensure!(setup.listed(&own, "web").await? == ("4".into(), "deployed".into()), "not rolled back");
    setup.ok(&["uninstall", "web"]).await?;
    setup.has(1, &["configmaps/web-hook"]).await?;
    setup.has(0, &[]).await
}

/// Both clusters have releases in the namespace. The hook's object has no label of the release, so only its name shows
/// to which release it belongs.
async fn helm_hook_without_a_label_goes_to_its_releases_cluster(
    context: TestContext,
    version: u8,
) -> anyhow::Result<()> {
    let setup = Setup::new(&context, version).await?;
    let own = ["--kube-context", "member2"];
    setup.ok(&["--kube-context", "member1", "install", "other", "CHART"]).await?;
    setup.ok(&[&own[..], &["install", "web", "CHART"]].concat()).await?;
    let before = setup.found(0).await?;
    setup.ok(&["upgrade", "web", "CHART", "--set", "more=true,label=false"]).await?;
    setup.has(1, &SECOND).await?;
    let after = setup.found(0).await?;
    ensure!(after == before, "the other release was changed: {after:?} instead of {before:?}");
    Ok(())
}

async fn helm_release_goes_to_the_cluster_of_its_namespace(context: TestContext, version: u8) -> anyhow::Result<()> {
    let mut setup = Setup::new(&context, version).await?;
    let members = context.fixture.pair().await?;
    setup.namespace = context.namespace("helm", &members[1..]).await?;
    setup.ok(&["install", "web", "CHART", "--set", "node=member2-node-0"]).await?;
    setup.has(1, &FIRST).await?;
    setup.ok(&["upgrade", "web", "CHART", "--set", "node=member2-node-0,more=true"]).await?;
    setup.has(1, &SECOND).await
}

async fn helm_upgrade_is_refused_if_two_clusters_have_the_release_name(
    context: TestContext,
    version: u8,
) -> anyhow::Result<()> {
    let setup = Setup::new(&context, version).await?;
    setup.ok(&["--kube-context", "member1", "install", "web", "CHART"]).await?;
    // In the second cluster, the release has one more revision, and an object whose name does not exist in the first
    // cluster.
    let second = ["--kube-context", "member2"];
    setup.ok(&[&second[..], &["install", "web", "CHART"]].concat()).await?;
    setup.ok(&[&second[..], &["upgrade", "web", "CHART", "--set", "more=true"]].concat()).await?;
    eventually(SOON, async || {
        let history = setup.ok(&["history", "web"]).await?;
        ensure!(history.lines().count() == 4, "not all are seen: {history}");
        Ok(())
    })
    .await?;
    let before = (setup.found(0).await?, setup.found(1).await?);
    let release = "helm --kube-context member1 … or helm --kube-context member2 …: ";
    // Commands that read combine the records of both clusters into one release, and print a Warning.
    for words in [&["list"][..], &["history", "web"], &["status", "web"], &["get", "manifest", "web"]] {
        let read = setup.helm.run(&setup.arguments(words)).await?;
        ensure!(read.code == Some(0) && read.stderr.contains(release), "{words:?}: {read:?}");
        let of_one = setup.helm.run(&setup.arguments(&[&second[..], words].concat())).await?;
        ensure!(of_one.code == Some(0) && !of_one.stderr.contains("helm --kube-context"), "{words:?}: {of_one:?}");
    }
    for (words, hint) in [
        (&["upgrade", "web", "CHART", "--set", "step=2,more=true"][..], release),
        (&["upgrade", "--install", "web", "CHART"], release),
        // Helm 3 prints the reason why the record was refused only with `--debug`.
        (&["uninstall", "web", "--debug"], release),
        // `rollback` reads the record of the first revision, whose name is in both clusters.
        (&["rollback", "web", "1"], release),
    ] {
        let refused = setup.refused(words).await?;
        ensure!(refused.contains(hint), "{words:?}: {refused}");
        let after = (setup.found(0).await?, setup.found(1).await?);
        ensure!(after == before, "{words:?} has written: {after:?} instead of {before:?}");
    }
    // With the context of a cluster, Helm must find only the release of this cluster.
    setup.ok(&[&second[..], &["upgrade", "web", "CHART", "--set", "step=2"]].concat()).await?;
    ensure!(setup.found(0).await? == before.0, "the other one was changed, too");
    Ok(())
}

async fn helm_install_without_a_default_cluster_is_refused(context: TestContext, version: u8) -> anyhow::Result<()> {
    let kubeconfig = context.fixture.pair_kubeconfig().await?;
    let tributary = Tributary::builder(&kubeconfig, ["member1", "member2"]).start().await?;
    let tributary = context.fixture.watch_log(tributary).await;
    let members = context.fixture.pair().await?.to_vec();
    let setup = Setup::over(&context, version, tributary, members).await?;
    let refused = setup.refused(&["install", "web", "CHART"]).await?;
    for word in ["--create-in", "helm --kube-context member1 …", "member2"] {
        ensure!(refused.contains(word), "no {word} in {refused}");
    }
    for member in [0, 1] {
        setup.has(member, &[]).await?;
    }
    // This Tributary has no default cluster. The upgrade of an installed release must not need one.
    setup.ok(&["--kube-context", "member2", "install", "web", "CHART"]).await?;
    setup.ok(&["upgrade", "web", "CHART", "--set", "more=true"]).await?;
    setup.has(1, &SECOND).await?;
    setup.has(0, &[]).await
}

/// A user that may write in a namespace of one cluster must not be able to move a release of a different cluster to it
/// with objects that only resemble release records.
async fn helm_release_does_not_go_to_a_cluster_with_forged_release_records(
    context: TestContext,
    version: u8,
) -> anyhow::Result<()> {
    let mut setup = Setup::new(&context, version).await?;
    let labels = json!({"owner": "helm", "name": "web", "version": "1", "status": "superseded"});
    let decoy = |name: &str| json!({"apiVersion": "v1", "metadata": {"name": name, "labels": labels}});
    let path = |resource: &str| format!("/api/v1/namespaces/{}/{resource}", setup.namespace);
    for (resource, kind, of_type, name) in [
        ("configmaps", "ConfigMap", Value::Null, "decoy"),
        ("secrets", "Secret", "helm.sh/release.v1".into(), "decoy"),
        ("secrets", "Secret", "Opaque".into(), "sh.helm.release.v1.web.v7"),
    ] {
        let mut object = decoy(name);
        object["kind"] = kind.into();
        if !of_type.is_null() {
            object["type"] = of_type;
        }
        setup.members[1].http().post(&path(resource), &object).send().await?.expect(201)?;
    }
    let there = ["configmaps/decoy", "secrets/decoy", "secrets/sh.helm.release.v1.web.v7"];
    setup.has(1, &there).await?;
    setup.ok(&["install", "web", "CHART", "--set", "node=member1-node-0"]).await?;
    setup.has(0, &FIRST).await?;
    setup.has(1, &there).await?;
    // A complete release record in the second cluster does attract the release, because the contents of a record do not
    // show to which cluster the release belongs.
    setup.namespace = context.namespace("helm", &setup.members).await?;
    let mut record = decoy("sh.helm.release.v1.web.v7");
    (record["kind"], record["type"]) = ("Secret".into(), "helm.sh/release.v1".into());
    let path = format!("/api/v1/namespaces/{}/secrets", setup.namespace);
    setup.members[1].http().post(&path, &record).send().await?.expect(201)?;
    let http = context.fixture.over_two().await?.http().await?;
    let seen = format!("{path}/sh.helm.release.v1.web.v7");
    eventually(SOON, async || http.get(&seen).send().await?.expect(200).map(drop)).await?;
    setup.ok(&["install", "web", "CHART", "--set", "node=member2-node-0"]).await?;
    setup.has(0, &[]).await
}

/// One cluster is frozen or killed. Releases in the healthy cluster stay readable and changeable. Tributary must refuse
/// changes to a release in the harmed cluster before any write, and must accept them after the cluster recovers.
async fn helm_release_of_a_healthy_cluster_can_change_while_another_cluster_fails(
    context: TestContext,
    version: u8,
    harm: Harm,
) -> anyhow::Result<()> {
    let _permit = context.fixture.own_members.acquire().await?;
    let own = Victim::start(&context, &["--create-in=member2"]).await?;
    let (victim, other) = (Arc::clone(&own.member), Arc::clone(&own.other));
    let http = own.tributary.http().await?;
    let setup = Setup::over(&context, version, Arc::clone(&own.tributary), vec![victim, other]).await?;
    setup.ok(&["--kube-context", "member2", "install", "web", "CHART"]).await?;
    setup.ok(&["--kube-context", "victim", "install", "lost", "CHART"]).await?;
    eventually(SOON, async || setup.listed(&[], "lost").await.map(drop)).await?;
    // The collections must be listed before the fault, because Tributary cannot serve objects of a collection that it
    // has never listed.
    let collections = ["api/v1/configmaps", "apis/apps/v1/deployments"];
    for path in collections {
        http.get(&format!("/{path}")).send().await?.expect(200)?;
    }
    let before = setup.found(0).await?;

    own.suffer(harm).await?;
    let done = while_harmed(&setup, &http).await;
    own.recover(harm).await?;
    done?;
    eventually(SOON, async || {
        ensure!(setup.found(0).await? == before, "something was written");
        Ok(())
    })
    .await?;
    eventually(SOON, async || setup.ok(&["upgrade", "lost", "CHART", "--set", "step=2"]).await.map(drop)).await?;
    ensure!(setup.listed(&["--kube-context", "victim"], "lost").await?.1 == "deployed", "not deployed");
    Ok(())
}

/// Runs Helm commands while the first member of the setup is frozen or killed.
async fn while_harmed(setup: &Setup, http: &HttpClient) -> anyhow::Result<()> {
    eventually(SOON, async || {
        let answer = http.get(&format!("/api/v1/namespaces/{}/secrets", setup.namespace)).send().await?.expect(200)?;
        ensure!(answer.header("warning").contains("victim"), "no warning: {:?}", answer.headers);
        Ok(())
    })
    .await?;
    // Tributary still has the cached objects of the dead member. Therefore it finds the cluster of an existing release,
    // and recognizes that another release is new.
    setup.ok(&["upgrade", "web", "CHART", "--set", "step=2,more=true"]).await?;
    setup.has(1, &SECOND).await?;
    setup.ok(&["install", "new", "CHART"]).await?;
    ensure!(setup.listed(&[], "lost").await? == ("1".into(), "deployed".into()), "it is not told of");
    for words in [&["upgrade", "lost", "CHART", "--set", "step=2"][..], &["uninstall", "lost"]] {
        let refused = setup.refused(words).await?;
        ensure!(refused.contains("victim"), "{words:?}: {refused}");
    }
    setup.ok(&["uninstall", "new"]).await?;
    setup.has(1, &SECOND).await
}
