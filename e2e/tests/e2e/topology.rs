//! Tests changes of the topology: members are restored, replaced and upgraded, resources appear and disappear, and
//! several processes serve the same members.

pub(crate) mod informer;

use crate::context::{Case, TestContext, cases, eventually};
use anyhow::{Context, bail, ensure};
use informer::Informer;
use serde_json::{Value, json};
use std::{sync::Arc, time::Duration};
use tokio::time::Instant;
use tributary_e2e::{EventStream, HttpClient, HttpResponse, TestCluster, Tributary};

const SOON: Duration = Duration::from_secs(60);

/// Longest duration of one watch of an informer. The informer then opens a new watch.
const CUT: Duration = Duration::from_millis(700);

pub(crate) fn cases() -> Vec<Case> {
    cases!["topology";
        member_restored_from_a_backup_or_replaced_leaves_no_old_state,
        custom_resource_definitions_appear_change_and_disappear,
        client_that_switches_between_two_replicas_receives_every_change,
    ]
}

/// Member that this test may harm (the victim), `member2`, and Tributary over both.
struct Own {
    victim: Arc<TestCluster>,
    other: Arc<TestCluster>,
    /// Held so that the process runs until the end, and its log can be printed after a failure.
    tributary: Arc<Tributary>,
    http: HttpClient,
}

impl Own {
    async fn start(context: &TestContext) -> anyhow::Result<Self> {
        let (victim, other, tributary) = context.fixture.over_a_victim().await?;
        let http = tributary.http().await?;
        Ok(Self { victim, other, tributary, http })
    }
}

fn map(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}})
}

fn names_of(list: &Value) -> Vec<String> {
    let items = list["items"].as_array().into_iter().flatten();
    items.map(|item| item["metadata"]["name"].as_str().unwrap_or_default().to_owned()).collect()
}

fn version_of(list: &Value) -> String {
    list["metadata"]["resourceVersion"].as_str().unwrap_or_default().to_owned()
}

/// Waits until a list has exactly these objects.
async fn names_are(http: &HttpClient, path: &str, expected: &[&str]) -> anyhow::Result<()> {
    eventually(SOON, async || {
        let answer = http.get(path).send().await?.expect(200)?;
        let names = names_of(&answer.json()?);
        ensure!(names == expected, "{names:?} instead of {expected:?}; {:?}", answer.headers.get("warning"));
        Ok(())
    })
    .await
}

/// Checks that the response is 410. Returns its Status, whose continue token continues an incomplete list.
fn expired(answer: &HttpResponse) -> anyhow::Result<Value> {
    ensure!(answer.status == 410, "{}: {}", answer.status, answer.text());
    let status = answer.json()?;
    ensure!(status["reason"] == "Expired", "{status}");
    Ok(status)
}

/// Checks that all requests with an old version are refused, so that clients list again. A client that has read a part
/// of a list can continue with a new token. Returns the names on the remaining page.
async fn is_void(http: &HttpClient, maps: &str, version: &str, token: &str) -> anyhow::Result<Vec<String>> {
    for query in ["", "&resourceVersionMatch=Exact"] {
        expired(&http.get(&format!("{maps}?resourceVersion={version}{query}")).send().await?)?;
    }
    let mut stream = http.watch(&format!("{maps}?watch=true&resourceVersion={version}")).await?;
    let event = stream.expect(SOON).await?;
    ensure!(event["type"] == "ERROR" && event["object"]["code"] == 410, "{event}");
    let status = expired(&http.get(&format!("{maps}?limit=500&continue={token}")).send().await?)?;
    let fresh = status["metadata"]["continue"].as_str().context("no fresh token")?;
    let rest = http.get(&format!("{maps}?limit=500&continue={fresh}")).send().await?.expect(200)?.json()?;
    Ok(names_of(&rest))
}

/// A restore sets etcd to an older state with the same uids. Later an empty cluster with new uids and low revisions
/// replaces the member at its address. No response may have an object of the lost state.
async fn member_restored_from_a_backup_or_replaced_leaves_no_old_state(context: TestContext) -> anyhow::Result<()> {
    let _permit = context.fixture.own_members.acquire().await?;
    let own = Own::start(&context).await?;
    let namespace = context.namespace("restore", &[Arc::clone(&own.victim), Arc::clone(&own.other)]).await?;
    let maps = format!("/api/v1/namespaces/{namespace}/configmaps");
    for name in ["deleted-later", "kept"] {
        own.victim.http().post(&maps, &map(name)).send().await?.expect(201)?;
    }
    own.other.http().post(&maps, &map("elsewhere")).send().await?.expect(201)?;
    own.victim.back_up().await?;
    names_are(&own.http, &maps, &["elsewhere", "deleted-later", "kept"]).await?;

    // The restore undoes these writes. There are so many that the revisions after the restore stay below the revisions
    // before the restore.
    for number in 0..300 {
        own.victim.http().post(&maps, &map(&format!("undone-{number:03}"))).send().await?.expect(201)?;
    }
    let patch = json!({"metadata": {"labels": {"generation": "9"}}});
    own.victim.http().patch(&format!("{maps}/kept"), "merge-patch+json", &patch).send().await?.expect(200)?;
    own.victim.http().delete(&format!("{maps}/deleted-later")).send().await?.expect(200)?;
    eventually(SOON, async || {
        let names = names_of(&own.http.get(&maps).send().await?.expect(200)?.json()?);
        ensure!(names.len() == 302 && !names.contains(&"deleted-later".to_owned()), "{} names", names.len());
        Ok(())
    })
    .await?;
    let page = own.http.get(&format!("{maps}?limit=1")).send().await?.expect(200)?.json()?;
    let (before, token) = (version_of(&page), page["metadata"]["continue"].as_str().context("no token")?.to_owned());
    ensure!(names_of(&page) == ["elsewhere"], "{page}");
    let mut stream = own.http.watch(&format!("{maps}?watch=true&resourceVersion={before}")).await?;
    let mut informer = Informer::new(vec![own.http.clone()], &maps, 100);
    informer.follow(Instant::now() + CUT, CUT).await?;

    own.victim.restore().await?;
    names_are(&own.http, &maps, &["elsewhere", "deleted-later", "kept"]).await?;
    let mut told = Vec::new();
    while told.len() < 302 {
        let event = stream.expect(SOON).await?;
        told.push(format!("{} {}", event["type"], event["object"]["metadata"]["name"]).replace('"', ""));
    }
    told.sort();
    ensure!(told[..2] == ["ADDED deleted-later", "DELETED undone-000"] && told[301] == "MODIFIED kept", "{told:?}");
    let rest = is_void(&own.http, &maps, &before, &token).await?;
    ensure!(rest == ["deleted-later", "kept"], "{rest:?}");
    informer.follow(Instant::now() + CUT * 3, CUT).await?;
    informer.check(&[&own.victim, &own.other]).await?;

    // A different cluster replaces the member at the same address and with the same name.
    let page = own.http.get(&format!("{maps}?limit=1")).send().await?.expect(200)?.json()?;
    let (before, token) = (version_of(&page), page["metadata"]["continue"].as_str().context("no token")?.to_owned());
    own.victim.make_anew().await?;
    names_are(&own.http, &maps, &["elsewhere"]).await?;
    let told = [stream.expect(SOON).await?, stream.expect(SOON).await?];
    ensure!(told.iter().all(|event| event["type"] == "DELETED"), "{told:?}");
    tributary_e2e::namespace::create(&namespace, &[&own.victim]).await?;
    own.victim.http().post(&maps, &map("new")).send().await?.expect(201)?;
    let event = stream.expect(SOON).await?;
    ensure!(event["type"] == "ADDED" && event["object"]["metadata"]["name"] == "new", "{event}");
    let rest = is_void(&own.http, &maps, &before, &token).await?;
    ensure!(rest == ["new"], "{rest:?}");
    informer.follow(Instant::now() + CUT * 3, CUT).await?;
    informer.check(&[&own.victim, &own.other]).await?;
    // Tributary notices the cluster's new uid shortly after its new revisions, when it reads the member's discovery
    // again.
    eventually(SOON, async || {
        let log = own.tributary.log();
        ensure!(log.contains("the name now belongs to a different cluster"), "{log}");
        Ok(())
    })
    .await?;
    let log = own.tributary.log();
    ensure!(log.contains("the resourceVersions of the cluster went back"), "{log}");
    // The log must have one line at the beginning and one at the end of each outage, independent of the number of
    // collections. An outage between two requests has no line. A starting kube-apiserver may be down, unready and ready
    // in turn, so there may be several outages.
    let troubles = log.lines().filter(|line| line.contains(" WARN ") && line.contains("is in trouble")).count();
    let ends = log.lines().filter(|line| line.contains("is well again")).count();
    ensure!(troubles <= 6 && ends == troubles, "{troubles} beginnings and {ends} ends:\n{log}");
    Ok(())
}

/// Makes a CustomResourceDefinition in the group `topology.example.com`.
fn definition(kind: &str, scope: &str, versions: &[(&str, bool)]) -> Value {
    let plural = "widgets";
    let versions: Vec<Value> = versions
        .iter()
        .enumerate()
        .map(|(index, (name, served))| {
            json!({"name": name, "served": served, "storage": index == 0,
                "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}})
        })
        .collect();
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.topology.example.com")},
        "spec": {"group": "topology.example.com", "scope": scope, "versions": versions,
            "names": {"plural": plural, "singular": kind.to_lowercase(), "kind": kind, "listKind": format!("{kind}List")}},
    })
}

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const DEFINITION: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/widgets.topology.example.com";

async fn define(member: &TestCluster, definition: &Value, path: &str) -> anyhow::Result<()> {
    member.http().post(DEFINITIONS, definition).send().await?.expect(201)?;
    served(member, path, true).await
}

/// Waits until the member itself serves a path (`yes`), or no longer serves it.
async fn served(member: &TestCluster, path: &str, yes: bool) -> anyhow::Result<()> {
    eventually(SOON, async || {
        let status = member.http().get(path).send().await?.status.as_u16();
        ensure!(status == if yes { 200 } else { 404 }, "{} of {}: {status}", path, member.name());
        Ok(())
    })
    .await
}

/// Returns the type, cluster and name of the next event that is not a bookmark.
async fn next(stream: &mut EventStream) -> anyhow::Result<String> {
    loop {
        let event = stream.expect(SOON).await?;
        if event["type"] == "BOOKMARK" {
            continue;
        }
        let metadata = &event["object"]["metadata"];
        let cluster = &metadata["annotations"]["tributary.dev/cluster"];
        return Ok(format!("{} {}/{}", event["type"], cluster, metadata["name"]).replace('"', ""));
    }
}

async fn nothing(stream: &mut EventStream, within: Duration) -> anyhow::Result<()> {
    let (events, ended) = stream.drain(within).await?;
    ensure!(!ended && events.iter().all(|event| event["type"] == "BOOKMARK"), "ended: {ended}, {events:?}");
    Ok(())
}

/// A CRD appears in one cluster, and then in both clusters with different versions. Later a cluster restarts, and the
/// CRD is removed.
async fn custom_resource_definitions_appear_change_and_disappear(context: TestContext) -> anyhow::Result<()> {
    let _permit = context.fixture.own_members.acquire().await?;
    let own = Own::start(&context).await?;
    let outcome = widgets(&context, &own).await;
    // Removes the CRD from the second member, because other tests share this member.
    own.other.http().delete(DEFINITION).send().await?;
    outcome
}

async fn widgets(context: &TestContext, own: &Own) -> anyhow::Result<()> {
    let Own { victim, other, http, .. } = own;
    let namespace = context.namespace("widgets", &[Arc::clone(victim), Arc::clone(other)]).await?;
    let first = format!("/apis/topology.example.com/v1/namespaces/{namespace}/widgets");
    let second = first.replace("/v1/", "/v2/");
    let widget = |version: &str, name: &str| json!({"apiVersion": format!("topology.example.com/{version}"), "kind": "Widget", "metadata": {"name": name}});
    http.get(&first).send().await?.expect(404)?;

    // Only one cluster serves the CRD. Tributary must not report the 404 of the other cluster as a failure.
    define(other, &definition("Widget", "Namespaced", &[("v1", true)]), &first).await?;
    other.http().post(&first, &widget("v1", "of-other")).send().await?.expect(201)?;
    eventually(SOON, async || http.get(&first).send().await?.expect(200).map(drop)).await?;
    names_are(http, &first, &["of-other"]).await?;
    let mut stream = http.watch(&format!("{first}?watch=true")).await?;
    ensure!(next(&mut stream).await? == "ADDED member2/of-other", "not the first object");

    // Now both clusters serve the CRD, and the victim also serves a second version. The open watch must report the
    // victim's objects.
    define(victim, &definition("Widget", "Namespaced", &[("v1", true), ("v2", true)]), &second).await?;
    victim.http().post(&first, &widget("v1", "of-victim")).send().await?.expect(201)?;
    ensure!(next(&mut stream).await? == "ADDED victim/of-victim", "not the second object");
    eventually(SOON, async || http.get(&second).send().await?.expect(200).map(drop)).await?;
    names_are(http, &first, &["of-other", "of-victim"]).await?;
    names_are(http, &second, &["of-victim"]).await?;
    let answer = http.get(&second).send().await?;
    let warning = answer.header("warning");
    ensure!(warning.contains("cluster member2") && warning.contains("only in v1"), "{:?}", answer.headers);
    ensure!(!http.get(&first).send().await?.headers.contains_key("warning"), "both serve this version");
    let mut of_second = http.watch(&format!("{second}?watch=true")).await?;
    ensure!(next(&mut of_second).await? == "ADDED victim/of-victim", "not the object in its other version");

    // After its start, a kube-apiserver does not serve its CRDs at once. Clients must not receive a 404 in this time,
    // because they treat a 404 as a deletion.
    victim.kill9().await?;
    let restarted = async {
        victim.start_again().await?;
        tokio::time::sleep(Duration::from_secs(3)).await;
        anyhow::Ok(())
    };
    let ask = async {
        loop {
            for path in [format!("{first}/of-victim"), second.clone()] {
                let answer = http.get(&path).send().await?;
                ensure!(answer.status != 404, "{}: {}", answer.request, answer.text());
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        #[expect(unreachable_code, reason = "names the type of the block")]
        anyhow::Ok(())
    };
    tokio::select! {
        outcome = restarted => outcome?,
        outcome = ask => outcome?,
    }
    nothing(&mut stream, Duration::from_secs(1)).await?;
    nothing(&mut of_second, Duration::from_secs(1)).await?;

    // The cluster stops serving one version. Only watches of this version must report its objects as deleted.
    let mut upgraded = definition("Widget", "Namespaced", &[("v1", false), ("v2", true)]);
    upgraded["spec"].as_object_mut().context("no spec")?.remove("names");
    victim.http().patch(DEFINITION, "merge-patch+json", &upgraded).send().await?.expect(200)?;
    ensure!(next(&mut stream).await? == "DELETED victim/of-victim", "not the object of the version that went");
    names_are(http, &first, &["of-other"]).await?;
    names_are(http, &second, &["of-victim"]).await?;
    nothing(&mut of_second, Duration::from_secs(1)).await?;

    // The CRD is removed. Watches must report DELETED for each object, and then the path must be 404.
    victim.http().delete(DEFINITION).send().await?.expect(200)?;
    ensure!(next(&mut of_second).await? == "DELETED victim/of-victim", "not the object of the CRD that went");
    other.http().delete(DEFINITION).send().await?.expect(200)?;
    ensure!(next(&mut stream).await? == "DELETED member2/of-other", "not the last object");
    eventually(SOON, async || {
        for path in [&first, &second] {
            http.get(path).send().await?.expect(404)?;
        }
        Ok(())
    })
    .await?;

    // The CRD is created again with a different scope.
    served(other, &first, false).await?;
    let all = "/apis/topology.example.com/v1/widgets";
    define(other, &definition("Gadget", "Cluster", &[("v1", true)]), all).await?;
    let gadget = json!({"apiVersion": "topology.example.com/v1", "kind": "Gadget", "metadata": {"name": "g"}});
    eventually(SOON, async || other.http().post(all, &gadget).send().await?.expect(201).map(drop)).await?;
    eventually(SOON, async || {
        let list = http.get(all).send().await?.expect(200)?.json()?;
        ensure!(list["kind"] == "GadgetList" && names_of(&list) == ["g"], "{list}");
        Ok(())
    })
    .await
}

/// Two processes serve the same members, and one restarts. Clients that move between the processes must lose no change
/// and must not receive an older state.
async fn client_that_switches_between_two_replicas_receives_every_change(context: TestContext) -> anyhow::Result<()> {
    let members = context.fixture.pair().await?.to_vec();
    let kubeconfig = context.fixture.pair_kubeconfig().await?;
    let start = async || Tributary::builder(&kubeconfig, ["member1", "member2"]).start().await;
    let (first, second) = tokio::try_join!(start(), start())?;
    let first = context.fixture.watch_log(first).await;
    let servers = vec![first.http().await?, second.http().await?];
    let namespace = context.namespace("replicas", &members).await?;
    let maps = format!("/api/v1/namespaces/{namespace}/configmaps");
    let mut informers: Vec<_> = [3, 500].map(|limit| Informer::new(servers.clone(), &maps, limit)).into();

    follow_writes(&mut informers, &members, &maps, 1).await?;

    // A restarted process has no versions from before its start. It can serve them only because clients send them in
    // requests.
    let status = second.stop().await?;
    ensure!(status.success(), "{status}");
    let second = start().await?;
    let servers = vec![first.http().await?, second.http().await?];
    for informer in &mut informers {
        informer.lead_to(servers.clone());
    }
    follow_writes(&mut informers, &members, &maps, 2).await?;

    let deadline = Instant::now() + SOON;
    for informer in &mut informers {
        loop {
            informer.follow(Instant::now() + CUT, CUT).await?;
            match informer.check(&[&members[0], &members[1]]).await {
                Ok(()) => break,
                Err(error) if Instant::now() > deadline => return Err(error),
                Err(_) => {}
            }
        }
    }
    Ok(())
}

/// Runs the informers while writers change both members, for one half of the test. The half lasts some seconds. On a
/// slow machine it lasts longer, until each informer has enough events and requests for a useful check.
async fn follow_writes(
    informers: &mut [Informer],
    members: &[Arc<TestCluster>],
    maps: &str,
    half: usize,
) -> anyhow::Result<()> {
    let (least, deadline) = (Instant::now() + Duration::from_secs(6), Instant::now() + SOON);
    let write = futures::future::try_join_all(members.iter().map(|member| write(member, maps, deadline)));
    let follow = futures::future::try_join_all(informers.iter_mut().map(async |informer| {
        while Instant::now() < least || informer.told.len() <= 25 * half || informer.requests <= 5 * half {
            ensure!(Instant::now() < deadline, "{} requests, told {:?}", informer.requests, informer.told);
            informer.follow(Instant::now() + CUT, CUT).await?;
        }
        Ok(())
    }));
    tokio::select! {
        followed = follow => followed.map(drop),
        written = write => bail!("the writes ended: {written:?}"),
    }
}

/// Writes ConfigMaps of a member with increasing generations. Some names also exist in the other member.
async fn write(member: &TestCluster, maps: &str, end: Instant) -> anyhow::Result<()> {
    for round in 0_u32.. {
        if Instant::now() > end {
            break;
        }
        let name =
            if round % 3 == 0 { format!("twin-{}", round % 4) } else { format!("{}-{}", member.name(), round % 5) };
        let path = format!("{maps}/{name}");
        // Generations begin with the current time, so that they are higher than in an earlier call.
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).context("the clock")?;
        let labels = json!({"generation": now.as_micros().to_string()});
        let http = member.http();
        if round % 11 == 10 {
            http.delete(&path).send().await?;
        } else {
            let patch = json!({"metadata": {"labels": labels}});
            if http.patch(&path, "merge-patch+json", &patch).send().await?.status == 404 {
                let mut object = map(&name);
                object["metadata"]["labels"] = labels;
                http.post(maps, &object).send().await?.expect(201)?;
            }
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    Ok(())
}
