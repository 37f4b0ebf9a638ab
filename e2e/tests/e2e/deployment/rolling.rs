//! Replaces two replicas behind a load balancer in turn, while clients read, page, write and watch. No request may be
//! lost. `upgrade.rs` does the same with two versions of the program.

use super::balancer::Balancer;
use crate::context::{Case, TestContext, cases, eventually};
use crate::shared_mode::{grant, make_config_map};
use crate::topology::informer::Informer;
use anyhow::{Context as _, ensure};
use base64::{Engine, engine::general_purpose::STANDARD};
use parking_lot::Mutex;
use serde_json::{Value, json};
use std::{
    fs,
    net::{Ipv4Addr, SocketAddr},
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};
use tokio::{task::JoinSet, time::Instant};
use tributary_e2e::{
    HttpClient, PeopleAuthority, TestCluster, Tributary, guard,
    http::{HttpResponse, RequestBuilder},
    kubeconfig,
    kubeconfig::ContextParts,
    namespace, ports, tributary,
};

const SOON: Duration = Duration::from_secs(60);

/// Longest time until a replica serves. A start usually takes a quarter of a second, and ten seconds if a request to a
/// cluster must be repeated.
const STARTED_WITHIN: Duration = Duration::from_secs(6);

/// Error message of the client's HTTP library if a GOAWAY frame with NO_ERROR excludes the request. The frame names an
/// earlier stream as the last processed stream (RFC 9113 §6.8).
const SENT_AWAY: &str = "connection error received: not a result of an error";

pub(super) fn cases() -> Vec<Case> {
    cases!["deployment::rolling"; rolling_replacement_of_two_replicas_fails_no_request]
}

/// Replica of Tributary. A new start uses the same port and folder.
#[derive(Debug)]
struct Replica {
    port: u16,
    folder: PathBuf,
    running: Option<Tributary>,
}

/// Files and credentials that both replicas share.
struct Fleet {
    folder: tempfile::TempDir,
    people: PeopleAuthority,
    members: PathBuf,
}

impl Fleet {
    async fn new(context: &TestContext) -> anyhow::Result<Self> {
        let (folder, people) = (guard::temporary_folder("fleet")?, PeopleAuthority::new("people and servers")?);
        let (certificate, key) = people.serving(&["127.0.0.1"])?;
        for (name, text) in [("people.crt", people.pem()), ("tls.crt", &certificate), ("tls.key", &key)] {
            fs::write(folder.path().join(name), text)?;
        }
        Ok(Self { folder, people, members: context.fixture.pair_kubeconfig().await? })
    }

    fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Starts a replica with this binary, in the replica's folder.
    async fn start(&self, replica: &mut Replica, program: &Path) -> anyhow::Result<()> {
        let tributary = Tributary::builder(&self.members, ["member1", "member2"])
            .program(program)
            .shared(&self.file("people.crt"))
            .listen(format!("127.0.0.1:{}", replica.port))
            .argument(format!("--tls-cert-file={}", self.file("tls.crt").display()))
            .argument(format!("--tls-private-key-file={}", self.file("tls.key").display()))
            .arguments(["--replicas=Several", "--partial=Deny", "--shutdown-delay-duration=2s"])
            .folder(&replica.folder);
        replica.running = Some(tributary.start().await?);
        Ok(())
    }

    fn kubeconfig(&self, port: u16, user: Value) -> anyhow::Result<PathBuf> {
        let path = self.file(&namespace::unique_name("kubeconfig"));
        let authority = STANDARD.encode(self.people.pem());
        let cluster = json!({"server": format!("https://127.0.0.1:{port}"), "certificate-authority-data": authority});
        kubeconfig::write_entries(&path, &[ContextParts { name: "fleet".to_owned(), cluster, user }])?;
        Ok(path)
    }
}

/// Results of the requests that the clients send.
#[derive(Default)]
pub(crate) struct ReplicaResults {
    /// If true, the clients stop.
    pub(crate) stop: AtomicBool,
    answered: AtomicUsize,
    lost: Mutex<Vec<String>>,
}

impl ReplicaResults {
    /// Checks that every request was answered, and returns the number of requests.
    pub(crate) fn check_none_is_lost(&self) -> anyhow::Result<usize> {
        let (lost, answered) = (self.lost.lock(), self.answered.load(Ordering::Relaxed));
        let (count, first) = (lost.len(), &lost[..lost.len().min(5)]);
        ensure!(lost.is_empty(), "{count} of {} requests were lost: {first:#?}", answered + count);
        ensure!(answered > 200, "no load: {answered} requests");
        Ok(answered)
    }

    /// Sends a request that must get one of the statuses in `due`. Like Go's client, the function repeats the request
    /// once if a GOAWAY frame with NO_ERROR excludes the request.
    async fn ask(&self, request: RequestBuilder, due: &[u16]) -> Option<HttpResponse> {
        let sent = match request.clone().send().await {
            Err(error) if format!("{error:#}").contains(SENT_AWAY) => request.send().await,
            sent => sent,
        };
        let answer = sent.and_then(|answer| match due.contains(&answer.status.as_u16()) {
            true => Ok(answer),
            false => answer.expect(due[0]),
        });
        match answer {
            Ok(answer) => {
                self.answered.fetch_add(1, Ordering::Relaxed);
                Some(answer)
            }
            Err(error) => {
                self.lost.lock().push(format!("{error:#}"));
                None
            }
        }
    }
}

/// Sends reads until the load ends. Either each read uses a new connection, or all reads share one connection.
pub(crate) async fn reads(
    results: Arc<ReplicaResults>,
    kubeconfig: PathBuf,
    paths: [String; 3],
    is_new_each_time: bool,
) -> anyhow::Result<()> {
    let mut client = HttpClient::from_kubeconfig(&kubeconfig, None).await?;
    for path in paths.iter().cycle() {
        if results.stop.load(Ordering::Relaxed) {
            break;
        }
        results.ask(client.get(path), &[200]).await;
        if is_new_each_time {
            client = HttpClient::from_kubeconfig(&kubeconfig, None).await?;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    Ok(())
}

/// Lists in pages, with a new connection for each page. The balancer selects a replica for each connection. A replica
/// answers a `continue` token with the next page, or with 410 for an old list. After a 410, clients list again.
pub(crate) async fn pages(results: Arc<ReplicaResults>, kubeconfig: PathBuf, maps: String) -> anyhow::Result<()> {
    while !results.stop.load(Ordering::Relaxed) {
        let client = HttpClient::from_kubeconfig(&kubeconfig, None).await?;
        let Some(page) = results.ask(client.get(&format!("{maps}?limit=1")), &[200]).await else { continue };
        let page = page.json()?;
        let token = page["metadata"]["continue"].as_str().context("all of it is on one page")?;
        tokio::time::sleep(Duration::from_millis(200)).await;
        let client = HttpClient::from_kubeconfig(&kubeconfig, None).await?;
        results.ask(client.get(&format!("{maps}?limit=1&continue={token}")), &[200, 410]).await;
    }
    Ok(())
}

/// Writes a new value with each request to the balancer.
pub(crate) async fn writes(results: Arc<ReplicaResults>, kubeconfig: PathBuf, path: String) -> anyhow::Result<()> {
    let client = HttpClient::from_kubeconfig(&kubeconfig, None).await?;
    for step in 0.. {
        if results.stop.load(Ordering::Relaxed) {
            break;
        }
        let patch = json!({"data": {"step": step.to_string()}});
        results.ask(client.patch(&path, "merge-patch+json", &patch), &[200]).await;
        tokio::time::sleep(Duration::from_millis(30)).await;
    }
    Ok(())
}

/// Changes an object in each member repeatedly. The requests go directly to the members.
pub(crate) async fn changes(
    results: Arc<ReplicaResults>,
    members: [Arc<TestCluster>; 2],
    maps: String,
) -> anyhow::Result<()> {
    for generation in 1.. {
        if results.stop.load(Ordering::Relaxed) {
            break;
        }
        for member in &members {
            let patch = json!({"metadata": {"labels": {"generation": generation.to_string()}}});
            let path = format!("{maps}/of-{}", member.name());
            member.http().patch(&path, "merge-patch+json", &patch).send().await?.expect(200)?;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    Ok(())
}

/// Replaces both replicas in turn by replicas with the first binary in `to`, then in the same way with each further
/// binary.
async fn roll(fleet: &Fleet, replicas: &mut [Replica; 2], balancer: &Balancer, to: &[&Path]) -> anyhow::Result<()> {
    for program in to {
        for (index, replica) in replicas.iter_mut().enumerate() {
            if let Some(running) = replica.running.take() {
                let status = running.stop().await?;
                ensure!(status.success(), "{status}");
            }
            let begun = Instant::now();
            fleet.start(replica, program).await?;
            let started = begun.elapsed();
            ensure!(started < STARTED_WITHIN, "replica {index} served after {started:?}: {replica:?}");
            eventually(SOON, async || {
                ensure!(balancer.is_ready(index), "replica {index} is not ready");
                Ok(())
            })
            .await?;
        }
    }
    Ok(())
}

async fn rolling_replacement_of_two_replicas_fails_no_request(context: TestContext) -> anyhow::Result<()> {
    let program = tributary::binary()?;
    exchanged(&context, &program, &[&program, &program]).await
}

/// Starts two replicas with one binary, and replaces them in turn by each of the other binaries. Meanwhile clients
/// read, page, write and watch.
///
/// # Errors
/// If a request is lost, or an informer lists again more than once.
pub(super) async fn exchanged(context: &TestContext, from: &Path, to: &[&Path]) -> anyhow::Result<()> {
    let members = context.fixture.pair().await?.clone();
    let (own, ann) = (context.namespace("rolling", &members).await?, namespace::unique_name("ann"));
    for member in &members {
        let rules =
            json!([{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get", "list", "watch", "patch"]}]);
        grant(member, &own, &ann, &ann, rules).await?;
        make_config_map(member, &own, &format!("of-{}", member.name()), 1).await?;
    }
    let fleet = Fleet::new(context).await?;
    let replica =
        |name: &str| anyhow::Ok(Replica { port: ports::free_port()?, folder: fleet.file(name), running: None });
    let mut replicas = [replica("one")?, replica("two")?];
    let mut servers = Vec::new();
    for replica in &mut replicas {
        fs::create_dir(&replica.folder)?;
        fleet.start(replica, from).await?;
        let path = fleet.kubeconfig(replica.port, json!({}))?;
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, replica.port));
        servers.push((address, HttpClient::from_kubeconfig(&path, None).await?));
    }
    let balancer = Balancer::start(servers).await?;
    let person = fleet.kubeconfig(balancer.port, fleet.people.user(&ann, &[])?)?;
    let maps = format!("/api/v1/namespaces/{own}/configmaps");
    let http = HttpClient::from_kubeconfig(&person, None).await?;
    for replica in &replicas {
        let direct = fleet.kubeconfig(replica.port, fleet.people.user(&ann, &[])?)?;
        let direct = HttpClient::from_kubeconfig(&direct, None).await?;
        eventually(SOON, async || direct.get(&maps).send().await?.expect(200).map(drop)).await?;
    }
    let (results, mut tasks) = (Arc::new(ReplicaResults::default()), JoinSet::new());
    let paths = [maps.clone(), format!("{maps}/of-member1"), format!("/clusters/member2{maps}/of-member2")];
    for index in 0..6 {
        tasks.spawn(reads(Arc::clone(&results), person.clone(), paths.clone(), index % 3 == 0));
    }
    tasks.spawn(writes(Arc::clone(&results), person.clone(), format!("{maps}/of-member2")));
    tasks.spawn(pages(Arc::clone(&results), person.clone(), maps.clone()));
    tasks.spawn(changes(Arc::clone(&results), members.clone(), maps.clone()));
    let mut informer = Informer::new(vec![http], &maps, 500);
    roll_under_load(&results, tasks, &mut informer, roll(&fleet, &mut replicas, &balancer, to)).await?;
    informer.check(&[&*members[0], &*members[1]]).await
}

/// Runs `rolling` while `tasks` send load and an informer follows the objects. No request may be lost, and the informer
/// may list at most twice.
pub(crate) async fn roll_under_load(
    results: &ReplicaResults,
    mut tasks: JoinSet<anyhow::Result<()>>,
    informer: &mut Informer,
    rolling: impl Future<Output = anyhow::Result<()>>,
) -> anyhow::Result<()> {
    let long = Duration::from_secs(600);
    let rolled = tokio::select! {
        rolled = rolling => rolled,
        followed = informer.follow(Instant::now() + long, long) => followed,
    };
    results.stop.store(true, Ordering::Relaxed);
    while let Some(ended) = tasks.join_next().await {
        ended??;
    }
    rolled?;
    let answered = results.check_none_is_lost()?;
    informer.follow(Instant::now() + Duration::from_secs(1), long).await?;
    ensure!(informer.lists <= 2, "the informer listed {} times", informer.lists);
    println!("{answered} requests were answered, none lost; the informer listed {} times", informer.lists);
    Ok(())
}
