//! Tests rights that change between two requests or during one request, and rights that Tributary cannot read.

use super::{SOON, Shared, config_maps, grant, make_config_map, reads_config_maps, revoke};
use crate::context::{Case, TestContext, cases, eventually};
use anyhow::{Context, ensure};
use futures::{StreamExt, TryStreamExt, stream};
use serde_json::{Value, json};
use std::{collections::BTreeSet, sync::Arc, time::Duration};
use tributary_e2e::{
    HttpClient, TestCluster, guard,
    kubeconfig::{self, ContextParts},
    namespace,
};
use tributary_simulator::{Relay, RelayMode};

/// Total size in bytes of a watch's initial events. It exceeds all buffers between server and client.
const INITIAL_BYTES: usize = 40 << 20;

/// Longest time until Tributary notices that a cluster is unreachable, or reachable again.
pub(super) const CUT_OFF: Duration = Duration::from_secs(60);

/// Name of a member that only one test uses.
pub(super) const APART: &str = "apart";

pub(super) fn cases() -> Vec<Case> {
    cases!["shared_mode::races";
        watch_from_a_version_before_a_revocation_ends_with_410, continue_token_from_before_a_revocation_is_expired,
        initial_watch_events_end_when_the_right_is_revoked,
        proof_10000_initial_watch_events_end_when_the_right_is_revoked,
        rights_in_an_unreachable_cluster_expire_after_their_maximum_age, right_revoked_during_an_outage_hides_objects_after_recovery,
    ]
}

/// User that may read the ConfigMaps of two namespaces of the first member, and later loses the right to the second
/// namespace.
pub(super) struct Reader {
    pub(super) shared: Shared,
    pub(super) name: String,
    pub(super) kept: String,
    pub(super) lost: String,
    pub(super) http: HttpClient,
}

impl Reader {
    async fn start(context: &TestContext, shared: Shared) -> anyhow::Result<Self> {
        let name = namespace::unique_name("ann");
        let kept = context.namespace("kept", &shared.members).await?;
        let lost = context.namespace("lost", &shared.members).await?;
        for namespace in [&kept, &lost] {
            grant(&shared.members[0], namespace, &name, &name, reads_config_maps()).await?;
        }
        let http = shared.http(&name, &[]).await?;
        Ok(Self { shared, name, kept, lost, http })
    }

    /// Makes a reader of an endpoint over `member2` and over the member with these kubeconfig entries.
    pub(super) async fn beside(
        context: &TestContext,
        member: Arc<TestCluster>,
        entries: ContextParts,
        arguments: &[&str],
    ) -> anyhow::Result<Self> {
        let other = Arc::clone(&context.fixture.pair().await?[1]);
        let folder = guard::temporary_folder(APART)?;
        let path = folder.path().join("kubeconfig");
        kubeconfig::write_entries(&path, &[entries, other.access().entries()])?;
        let reader = Self::start(context, Shared::over(context, [member, other], &path, arguments).await?).await?;
        // The user's rights in `member2` never change.
        grant(&reader.shared.members[1], &reader.kept, &reader.name, &reader.name, reads_config_maps()).await?;
        Ok(reader)
    }

    pub(super) fn member(&self) -> &TestCluster {
        &self.shared.members[0]
    }

    pub(super) async fn make(&self, namespace: &str, names: &[&str]) -> anyhow::Result<()> {
        for name in names {
            make_config_map(self.member(), namespace, name, 10).await?;
        }
        Ok(())
    }

    pub(super) async fn list(&self) -> anyhow::Result<Value> {
        self.http.get("/api/v1/configmaps").send().await?.expect(200)?.json()
    }

    /// Waits until a list has exactly these objects. Each has a namespace and a name.
    pub(super) async fn lists(&self, expected: &[(&str, &str)]) -> anyhow::Result<Value> {
        let expected = expected.iter().map(|(namespace, name)| self.key(namespace, name)).collect::<BTreeSet<_>>();
        eventually(SOON, async || {
            let list = self.list().await?;
            ensure!(config_maps(&list) == expected, "{list}");
            Ok(())
        })
        .await?;
        self.list().await
    }

    pub(super) fn key(&self, namespace: &str, name: &str) -> (String, String, String) {
        (self.member().name().to_owned(), namespace.to_owned(), name.to_owned())
    }

    pub(super) async fn loses(&self) -> anyhow::Result<()> {
        revoke(self.member(), &self.lost, &self.name).await
    }
}

fn version(list: &Value) -> String {
    list["metadata"]["resourceVersion"].as_str().unwrap_or_default().to_owned()
}

async fn watch_from_a_version_before_a_revocation_ends_with_410(context: TestContext) -> anyhow::Result<()> {
    let reader = Reader::start(&context, Shared::start(&context).await?).await?;
    let (kept, lost) = (reader.kept.as_str(), reader.lost.as_str());
    reader.make(kept, &["one"]).await?;
    reader.make(lost, &["two"]).await?;
    let before = version(&reader.lists(&[(kept, "one"), (lost, "two")]).await?);
    let from = format!("/api/v1/configmaps?watch=1&resourceVersion={before}");
    let mut open = reader.http.watch(&from).await?;
    reader.loses().await?;
    // The open watch must end with the error that makes an informer list again.
    let end = open.expect(SOON).await?;
    ensure!(end["type"] == "ERROR" && end["object"]["code"] == 410, "{end}");
    reader.make(lost, &["hidden"]).await?;
    reader.make(kept, &["three"]).await?;
    for _ in 0..10 {
        let resumed = reader.http.get(&format!("{from}&timeoutSeconds=1")).send().await?;
        ensure!(resumed.text().contains("410") && !resumed.text().contains("hidden"), "{}", resumed.text());
    }
    let after = version(&reader.lists(&[(kept, "one"), (kept, "three")]).await?);
    let mut open = reader.http.watch(&format!("/api/v1/configmaps?watch=1&resourceVersion={after}")).await?;
    reader.make(lost, &["hidden-too"]).await?;
    reader.make(kept, &["four"]).await?;
    let event = open.expect(SOON).await?;
    ensure!(event["object"]["metadata"]["name"] == "four", "{event}");
    Ok(())
}

async fn continue_token_from_before_a_revocation_is_expired(context: TestContext) -> anyhow::Result<()> {
    let reader = Reader::start(&context, Shared::start(&context).await?).await?;
    let (kept, lost) = (reader.kept.as_str(), reader.lost.as_str());
    reader.make(kept, &["one", "two"]).await?;
    reader.make(lost, &["three", "four"]).await?;
    reader.lists(&[(kept, "one"), (kept, "two"), (lost, "three"), (lost, "four")]).await?;
    let first = reader.http.get("/api/v1/configmaps?limit=2").send().await?.expect(200)?.json()?;
    ensure!(first["metadata"].get("remainingItemCount").is_none(), "a count tells of what others have: {first}");
    let next = first["metadata"]["continue"].as_str().context("there is more")?;
    let next = format!("/api/v1/configmaps?limit=2&continue={next}");
    reader.http.get(&next).send().await?.expect(200)?;
    reader.loses().await?;
    eventually(SOON, async || reader.http.get(&next).send().await?.expect(410).map(drop)).await?;
    let refused = reader.http.get(&next).send().await?.expect(410)?.json()?;
    ensure!(refused["reason"] == "Expired" && !refused.to_string().contains(lost), "{refused}");
    reader.lists(&[(kept, "one"), (kept, "two")]).await.map(drop)
}

async fn initial_watch_events_end_when_the_right_is_revoked(context: TestContext) -> anyhow::Result<()> {
    initial_events(&context, 1_000).await
}

async fn proof_10000_initial_watch_events_end_when_the_right_is_revoked(context: TestContext) -> anyhow::Result<()> {
    initial_events(&context, 10_000).await
}

/// A client reads the initial events of a watch slowly. Meanwhile its user loses the right to these objects.
async fn initial_events(context: &TestContext, count: usize) -> anyhow::Result<()> {
    let reader = Reader::start(context, Shared::start(context).await?).await?;
    let making = (0..count).map(|at| {
        let reader = &reader;
        async move { make_config_map(reader.member(), &reader.lost, &format!("m{at}"), INITIAL_BYTES / count).await }
    });
    let making: Vec<_> = making.collect();
    stream::iter(making).buffer_unordered(16).try_collect::<()>().await?;
    let path = format!("/api/v1/namespaces/{}/configmaps", reader.lost);
    eventually(SOON, async || {
        let list = reader.http.get(&path).send().await?.expect(200)?.json()?;
        ensure!(config_maps(&list).len() == count, "not all are there");
        Ok(())
    })
    .await?;
    let options = "watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true";
    let mut events = reader.http.watch(&format!("{path}?{options}")).await?;
    let first = events.expect(SOON).await?;
    ensure!(first["type"] == "ADDED", "{first}");
    reader.loses().await?;
    eventually(SOON, async || reader.http.get(&path).send().await?.expect(403).map(drop)).await?;
    let mut seen = 1;
    loop {
        let event = events.expect(SOON).await?;
        match event["type"].as_str() {
            Some("ADDED") => seen += 1,
            Some("ERROR") => {
                ensure!(event["object"]["code"] == 410, "{event}");
                break;
            }
            _ => anyhow::bail!("after {seen} of {count}: {event}"),
        }
    }
    ensure!(seen < count, "all {count} events were sent, whatever the right to them");
    Ok(())
}

/// Starts an endpoint over `member2` and over a separate member. The test can cut the relay in front of the separate
/// member.
async fn behind_a_wire(context: &TestContext, arguments: &[&str]) -> anyhow::Result<(Reader, Relay)> {
    let member = Arc::new(TestCluster::builder(APART).start(context.fixture.tools().await?).await?);
    let wire = Relay::start(member.apiserver_port(), 0).await?;
    let mut entries = member.access().entries();
    entries.cluster["server"] = json!(format!("https://127.0.0.1:{}", wire.port()));
    Ok((Reader::beside(context, member, entries, arguments).await?, wire))
}

pub(super) fn cut(wire: &Relay) {
    wire.set(RelayMode::Cut { within: 0 });
    wire.cut();
}

async fn rights_in_an_unreachable_cluster_expire_after_their_maximum_age(context: TestContext) -> anyhow::Result<()> {
    let _permit = context.fixture.own_members.acquire().await?;
    let (reader, wire) = behind_a_wire(&context, &["--stale-rights=15"]).await?;
    let (kept, lost) = (reader.kept.as_str(), reader.lost.as_str());
    reader.make(kept, &["one"]).await?;
    reader.make(lost, &["two"]).await?;
    reader.lists(&[(kept, "one"), (lost, "two")]).await?;
    cut(&wire);
    // At first, the last known rights must remain valid, and a Warning must name the unreachable cluster.
    eventually(CUT_OFF, async || {
        let list = reader.http.get("/api/v1/configmaps").send().await?.expect(200)?;
        ensure!(list.header("warning").contains("apart"), "{}", list.header("warning"));
        ensure!(config_maps(&list.json()?).contains(&reader.key(kept, "one")), "{}", list.text());
        Ok(())
    })
    .await?;
    // After the rights have expired, responses to the user must not mention the cluster.
    eventually(CUT_OFF, async || {
        let list = reader.http.get("/api/v1/configmaps").send().await?.expect(200)?;
        ensure!(config_maps(&list.json()?).is_empty(), "{}", list.text());
        ensure!(!list.header("warning").contains("apart"), "{}", list.header("warning"));
        Ok(())
    })
    .await?;
    let refused = reader.http.get(&format!("/api/v1/namespaces/{lost}/configmaps/two")).send().await?;
    ensure!(!refused.status.is_success() && !refused.text().contains("apart"), "{}", refused.text());
    wire.set(RelayMode::Clear);
    eventually(CUT_OFF, async || {
        ensure!(config_maps(&reader.list().await?).contains(&reader.key(lost, "two")), "not there again");
        Ok(())
    })
    .await
}

/// While a cluster is unreachable, a user loses a right in this cluster, and the objects change. After the outage,
/// Tributary receives both changes. No response may show the new objects to the user.
async fn right_revoked_during_an_outage_hides_objects_after_recovery(context: TestContext) -> anyhow::Result<()> {
    let _permit = context.fixture.own_members.acquire().await?;
    let (reader, wire) = behind_a_wire(&context, &[]).await?;
    let (kept, lost) = (reader.kept.as_str(), reader.lost.as_str());
    reader.make(kept, &["one"]).await?;
    reader.make(lost, &["two"]).await?;
    reader.lists(&[(kept, "one"), (lost, "two")]).await?;
    for round in 0..3 {
        cut(&wire);
        eventually(CUT_OFF, async || {
            let list = reader.http.get("/api/v1/configmaps").send().await?.expect(200)?;
            ensure!(list.header("warning").contains("apart"), "{}", list.header("warning"));
            Ok(())
        })
        .await?;
        reader.loses().await?;
        let hidden = format!("hidden-{round}");
        reader.make(lost, &[&hidden]).await?;
        wire.set(RelayMode::Clear);
        let path = format!("/api/v1/namespaces/{lost}/configmaps");
        eventually(CUT_OFF, async || {
            let list = reader.list().await?;
            if config_maps(&list).contains(&reader.key(lost, &hidden)) {
                panic!("what was made after the loss is shown: {list}");
            }
            ensure!(!config_maps(&list).contains(&reader.key(lost, "two")), "the loss is not known yet");
            reader.http.get(&path).send().await?.expect(403).map(drop)
        })
        .await?;
        regain(&reader).await?;
    }
    Ok(())
}

/// Grants the revoked right again with the same binding.
pub(super) async fn regain(reader: &Reader) -> anyhow::Result<()> {
    let api = "rbac.authorization.k8s.io";
    let binding = json!({
        "apiVersion": format!("{api}/v1"), "kind": "RoleBinding", "metadata": {"name": reader.name},
        "subjects": [{"apiGroup": api, "kind": "User", "name": reader.name}],
        "roleRef": {"apiGroup": api, "kind": "Role", "name": reader.name},
    });
    let path = format!("/apis/{api}/v1/namespaces/{}/rolebindings", reader.lost);
    reader.member().http().post(&path, &binding).send().await?.expect(201)?;
    eventually(SOON, async || {
        let list = reader.http.get(&format!("/api/v1/namespaces/{}/configmaps", reader.lost)).send().await?;
        list.expect(200).map(drop)
    })
    .await
}
