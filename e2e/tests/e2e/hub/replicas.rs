//! Tests two replicas of Tributary in hub mode: a rolling replacement under load, and the death of the replica that
//! writes the status.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context as _, ensure};
use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio::time::Instant;
use tributary_e2e::{HttpClient, Tributary, guard, ports};

use super::aggregated::{Aggregated, MERGED};
use super::{CLUSTERS, Hub, NAMESPACE, SOON, spec_of};
use crate::context::{Case, TestContext, cases, eventually};
use crate::deployment::balancer::Balancer;
use crate::deployment::rolling::{ReplicaResults, changes, pages, reads, roll_under_load, writes};
use crate::shared_mode::grant;
use crate::topology::informer::Informer;

/// Number of objects whose status a replica writes. At five writes per second, the writes take at least 8 s.
const OBJECTS: usize = 40;

pub(super) fn cases() -> Vec<Case> {
    cases!["hub::replicas";
        rolling_replacement_of_replicas_behind_the_hub_fails_no_request,
        second_replica_writes_the_status_after_the_death_of_the_leader,
    ]
}

/// Replica of Tributary. A new start uses the same ports and folder.
struct Replica {
    port: u16,
    /// Port of clients that do not connect through the hub, and of health checks.
    direct_port: u16,
    folder: PathBuf,
    running: Option<Tributary>,
}

impl Replica {
    fn new(hub: &Hub, name: &str) -> anyhow::Result<Self> {
        let folder = hub.folder.path().join(name);
        fs::create_dir(&folder)?;
        Ok(Self { port: ports::free_port()?, direct_port: ports::free_port()?, folder, running: None })
    }

    async fn start(&mut self, aggregated: &Aggregated) -> anyhow::Result<()> {
        let hub = &aggregated.hub;
        let builder = hub.builder_as(&hub.server.kubeconfig()).folder(&self.folder);
        let builder = builder.listen(format!("127.0.0.1:{}", self.direct_port)).arguments([
            format!("--aggregated-listen=127.0.0.1:{}", self.port).as_str(),
            "--replicas=Several",
            "--partial=Deny",
            "--shutdown-delay-duration=2s",
            // The hub's kube-apiserver uses a single connection to Tributary, so only GOAWAY frames move its requests
            // to the other replica.
            "--goaway-chance=0.02",
        ]);
        self.running = Some(aggregated.add_certificate(builder).start().await?);
        Ok(())
    }

    /// Creates a client that connects to the replica directly and not through the hub. `user` is the `user` entry of a
    /// kubeconfig.
    async fn direct(&self, user: &Value) -> anyhow::Result<HttpClient> {
        let running = self.running.as_ref().context("the replica does not run")?;
        let path = self.folder.join("direct.kubeconfig");
        running.kubeconfig_of(&path, user, &[])?;
        HttpClient::from_kubeconfig(&path, None).await
    }

    /// Returns the number of requests that the replica has answered from its cache or forwarded.
    async fn count_answered(&self, hub: &Hub, user: &str) -> anyhow::Result<f64> {
        let http = self.direct(&hub.people.user(user, &[])?).await?;
        let text = http.get("/metrics").send().await?.expect(200)?.text();
        let lines = text.lines().filter(|line| line.starts_with("tributary_requests_total{"));
        let lines = lines.filter(|line| line.contains(r#"="memory""#) || line.contains(r#"="forwarded""#));
        Ok(lines.filter_map(|line| line.rsplit_once(' ')?.1.parse::<f64>().ok()).sum())
    }
}

/// Replaces both replicas in turn. A replica must answer requests before the other replica ends.
async fn roll(
    aggregated: &Aggregated,
    replicas: &mut [Replica; 2],
    balancer: &Balancer,
    user: &str,
) -> anyhow::Result<()> {
    for _round in 0..2 {
        for (index, replica) in replicas.iter_mut().enumerate() {
            if let Some(running) = replica.running.take() {
                let status = running.stop().await?;
                ensure!(status.success(), "{status}");
            }
            replica.start(aggregated).await?;
            let before = balancer.connections(index);
            eventually(SOON, async || {
                let (answered, now) =
                    (replica.count_answered(&aggregated.hub, user).await?, balancer.connections(index));
                ensure!(balancer.is_ready(index) && now > before, "replica {index} got no connection");
                ensure!(answered > 20.0, "replica {index} answered {answered} requests");
                Ok(())
            })
            .await?;
        }
    }
    Ok(())
}

async fn rolling_replacement_of_replicas_behind_the_hub_fails_no_request(context: TestContext) -> anyhow::Result<()> {
    let _permits = context.fixture.load_on_own_member().await?;
    let aggregated = Aggregated::start(&context).await?;
    let hub = &aggregated.hub;
    let mut replicas = [Replica::new(hub, "one")?, Replica::new(hub, "two")?];
    let mut servers = Vec::new();
    for replica in &mut replicas {
        replica.start(&aggregated).await?;
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, replica.port));
        // The readiness probe of the chart uses the same port.
        servers.push((address, replica.direct(&json!({})).await?));
    }
    let balancer = Balancer::start(servers).await?;
    aggregated.register_at(balancer.port, Some(&aggregated.authority)).await?;
    let user = aggregated.user_of_all_members().await?;
    for member in &hub.members {
        // The informer compares the names of clusters with the names of members, so they must be equal.
        hub.add(member.name(), member).await?;
        let metrics = json!([{"nonResourceURLs": ["/metrics"], "verbs": ["get"]}]);
        grant(member, "", &user, &user, metrics).await?;
    }
    let login = hub.server.people().user(&user, &[])?;
    let kubeconfig = aggregated.kubeconfig(&login, MERGED)?;
    let maps = format!("/api/v1/namespaces/{}/configmaps", hub.namespace);
    let http = HttpClient::from_kubeconfig(&kubeconfig, None).await?;
    for replica in &replicas {
        let direct = aggregated.direct_at(replica.port, &login).await?.below(MERGED);
        hub.serves(&direct, &["member1", "member2"]).await?;
    }
    hub.serves(&http, &["member1", "member2"]).await?;

    let (results, mut tasks) = (Arc::new(ReplicaResults::default()), JoinSet::new());
    let paths = [maps.clone(), format!("{maps}/of-member1"), format!("{maps}/of-member2")];
    for index in 0..4 {
        tasks.spawn(reads(Arc::clone(&results), kubeconfig.clone(), paths.clone(), index == 0));
    }
    tasks.spawn(writes(Arc::clone(&results), kubeconfig.clone(), format!("{maps}/of-member2")));
    tasks.spawn(pages(Arc::clone(&results), kubeconfig.clone(), maps.clone()));
    tasks.spawn(changes(Arc::clone(&results), hub.members.clone(), maps.clone()));
    let mut informer = Informer::new(vec![http], &maps, 500);
    let rolling = roll(&aggregated, &mut replicas, &balancer, &user);
    roll_under_load(&results, tasks, &mut informer, rolling).await?;
    informer.check(&[&*hub.members[0], &*hub.members[1]]).await
}

/// Returns the holder of the Lease, which is the replica that writes the status.
async fn holder(hub: &Hub) -> anyhow::Result<String> {
    let path = format!("/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases/tributary-status");
    let lease = hub.server.http().get(&path).send().await?.expect(200)?.json()?;
    let holder = lease["spec"]["holderIdentity"].as_str().filter(|holder| !holder.is_empty());
    holder.map(str::to_owned).context("the Lease has no holder")
}

/// Returns the status and reason of a condition for the object's current generation.
fn condition<'a>(object: &'a Value, kind: &str) -> Option<(&'a str, &'a str)> {
    let mut conditions = object["status"]["conditions"].as_array().into_iter().flatten();
    let condition = conditions.find(|condition| condition["type"] == kind)?;
    (condition["observedGeneration"] == object["metadata"]["generation"])
        .then_some((condition["status"].as_str()?, condition["reason"].as_str()?))
}

async fn objects(hub: &Hub) -> anyhow::Result<Vec<Value>> {
    let list = hub.server.http().get(CLUSTERS).send().await?.expect(200)?.json()?;
    Ok(list["items"].as_array().cloned().unwrap_or_default())
}

async fn second_replica_writes_the_status_after_the_death_of_the_leader(context: TestContext) -> anyhow::Result<()> {
    let _permit = context.fixture.own_members.acquire().await?;
    let hub = Hub::start(&context).await?;
    let folder = guard::temporary_folder("second")?;
    let leader = hub.builder().start().await?;
    eventually(SOON, async || holder(&hub).await.map(drop)).await?;
    let first = holder(&hub).await?;
    let _second = context.fixture.watch_log(hub.builder().folder(folder.path()).start().await?).await;
    for index in 0..OBJECTS {
        hub.create_member(&format!("lost-{index}"), spec_of("nothing", &hub.members[1])).await?;
    }
    let written = async || {
        let objects = objects(&hub).await?;
        anyhow::Ok(objects.iter().filter(|object| condition(object, "ResolvedRefs").is_some()).count())
    };
    eventually(SOON, async || {
        let written = written().await?;
        ensure!(written >= 5, "{written} objects have a status");
        Ok(())
    })
    .await?;
    // The drop kills the process with SIGKILL, so the Lease still names the dead replica as its holder.
    drop(leader);
    let written = written().await?;
    ensure!(written < OBJECTS, "all objects had their status before the death of the leader");
    ensure!(holder(&hub).await? == first, "the leader has released the Lease");
    // The object changes before another replica may write its status. That replica must write the status later.
    hub.patch_member("lost-0", json!({"secretRef": {"name": "other"}})).await?;
    hub.add("eu", &hub.members[0]).await?;
    let begun = Instant::now();
    eventually(SOON, async || {
        let objects = objects(&hub).await?;
        ensure!(objects.len() == OBJECTS + 1, "{} objects", objects.len());
        for object in &objects {
            let expected = match object["metadata"]["name"].as_str() {
                Some("eu") => [("ResolvedRefs", ("True", "Resolved")), ("Ready", ("True", "Synced"))],
                _ => [("ResolvedRefs", ("False", "SecretNotFound")), ("Ready", ("False", "Misconfigured"))],
            };
            for (kind, expected) in expected {
                ensure!(condition(object, kind) == Some(expected), "{kind}: {object}");
            }
        }
        Ok(())
    })
    .await?;
    println!("{written} statuses before the death of the leader; the rest {:?} later", begun.elapsed());
    let second = holder(&hub).await?;
    ensure!(second != first, "{first} still holds the Lease");
    Ok(())
}
