//! Tests of a cluster name that is reassigned to another cluster. The new cluster's rights never apply to objects of
//! the old cluster.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use http_body_util::BodyExt;
use kube::config::{KubeConfigOptions, Kubeconfig};
use parking_lot::Mutex;
use serde_json::json;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{JoinSet, yield_now};
use tokio::time::{Instant, sleep};
use tributary_merge::Epochs;
use tributary_proxy::{ClientTuning, ClusterClient};
use tributary_router::{ClusterAddress, ClusterSetup, Policies, Router, RouterConfig, SharedMode};
use tributary_simulator::{Rejection, RequestKind, SimulatedCluster};

use crate::access::rights::{grant, listed};
use crate::harness::{
    Fixture, SOON, allow, brief, config_map, config_map_in, items, pass, setup, setup_through, until, vector, version,
};

const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";
const ALL: &str = "/api/v1/configmaps";

async fn as_a(member: &SimulatedCluster) -> ClusterSetup {
    setup(member, "a").await
}

/// Gives the name `a` to member `b`, and waits until the router has sent requests to `b`.
async fn switch(fixture: &Fixture) {
    let b = fixture.member("b");
    fixture.router.set_clusters(vec![as_a(b).await]);
    until(async || b.control().requests(RequestKind::Discovery) > 0).await;
}

/// Starts members `a` and `b` with one object each. The router serves only `a`.
async fn a_before_b(policies: Policies, mode: Option<SharedMode>) -> Fixture {
    let fixture = match mode {
        Some(mode) => Fixture::shared(["a", "b"], policies, mode).await,
        None => Fixture::with(["a", "b"].map(crate::harness::config), policies).await,
    };
    fixture.set_clusters(&["a"]).await;
    for member in &fixture.members {
        member.apply(config_map(&format!("of-{}", member.name()), "")).unwrap();
        member.control().reset_counters();
    }
    fixture
}

fn refuse_config_maps(member: &SimulatedCluster, code: u16) {
    let rejection =
        Rejection { resources: vec!["configmaps".into()], kinds: vec![RequestKind::List], ..Rejection::all(code) };
    member.control().reject(Some(rejection));
}

/// Fault F6 of docs/precedents.md: the new cluster answers lists with 403 or 500, so the router cannot replace the old
/// objects.
#[tokio::test]
async fn objects_of_a_replaced_cluster_are_hidden_from_new_rights() {
    for (code, policies) in [(403, allow()), (403, Policies::default()), (500, allow()), (500, Policies::default())] {
        let fixture = a_before_b(policies, Some(SharedMode::default())).await;
        grant(fixture.member("a"), "", "ann");
        grant(fixture.member("b"), "", "bob");
        let (ann, bob) = (fixture.user("ann", &[]), fixture.user("bob", &[]));
        until(async || ann.get(ALL).await.code == 200 && items(&ann.get(ALL).await.ok()) == ["a/of-a"]).await;
        bob.get(ALL).await.refused(403);
        refuse_config_maps(fixture.member("b"), code);
        switch(&fixture).await;
        let mut is_known = false;
        for _ in 0..100 {
            let (listed, read) = (bob.get(ALL).await, bob.get(&format!("{CONFIG_MAPS}/of-a")).await);
            assert!(!String::from_utf8_lossy(&listed.body).contains("of-a\""), "{code}: {listed:?}");
            assert_ne!(read.code, 200, "{code}");
            is_known |= crate::access::rights::lists(&fixture, "a", "bob") == "all";
            sleep(Duration::from_millis(30)).await;
        }
        assert!(is_known, "the rights in the successor are known");
    }
}

/// Fault F6 of docs/precedents.md: the new cluster answers all requests, so the watch deletes the old objects.
#[tokio::test]
async fn watch_deletes_the_objects_of_a_replaced_cluster() {
    let fixture = a_before_b(Policies::default(), None).await;
    let list = fixture.get(CONFIG_MAPS).await.ok();
    let from = version(&list);
    let mut events = fixture.watch(&format!("{CONFIG_MAPS}?watch=1&resourceVersion={from}")).await;
    switch(&fixture).await;
    assert_eq!(events.brief().await, "DELETED a/of-a");
    assert_eq!(events.brief().await, "ADDED a/of-b");
    assert_eq!(items(&fixture.get(CONFIG_MAPS).await.ok()), ["a/of-b"]);
    fixture.get(&format!("{CONFIG_MAPS}?resourceVersion={from}&resourceVersionMatch=Exact&limit=5")).await.refused(410);
    let mut late = fixture.watch(&format!("{CONFIG_MAPS}?watch=1&resourceVersion={from}")).await;
    assert_eq!(late.soon().await["object"]["code"], 410);
}

/// The watch must mark its versions with the new cluster's uid. Without this mark, the version would be a version of
/// the earlier cluster: a replica that knows the new cluster would refuse it, and a replica that does not would accept
/// it by mistake.
#[tokio::test]
async fn open_watch_marks_the_versions_of_a_successor() {
    let fixture = a_before_b(Policies::default(), None).await;
    let from = version(&fixture.get(CONFIG_MAPS).await.ok());
    let mut events = fixture.watch(&format!("{CONFIG_MAPS}?watch=1&resourceVersion={from}")).await;
    switch(&fixture).await;
    assert_eq!(events.brief().await, "DELETED a/of-a");
    let added = events.soon().await;
    assert_eq!(brief(&added), "ADDED a/of-b");
    let from = version(&added["object"]);
    let mut later = fixture.watch(&format!("{CONFIG_MAPS}?watch=1&resourceVersion={from}")).await;
    fixture.put("b", "later", "");
    assert_eq!(later.brief().await, "ADDED a/later");
}

/// Checks a promise of docs/operating.md: "If the cluster still has the same uid, its objects stay".
#[tokio::test]
async fn cluster_with_a_new_address_and_the_same_uid_keeps_its_objects() {
    let fixture = a_before_b(Policies::default(), None).await;
    let a = fixture.member("a");
    let from = version(&fixture.get(CONFIG_MAPS).await.ok());
    let mut events = fixture.watch(&format!("{CONFIG_MAPS}?watch=1&resourceVersion={from}")).await;
    a.control().hold_lists(true);
    let elsewhere = Switch::to(a).await;
    let address = ClusterAddress::from_description("elsewhere");
    let moved = setup_through(a, "a", &[elsewhere.url()], ClientTuning::default()).await;
    fixture.router.set_clusters(vec![ClusterSetup { address, ..moved }]);
    until(async || elsewhere.connections.load(Ordering::SeqCst) > 0).await;
    for _ in 0..20 {
        assert_eq!(items(&fixture.get(CONFIG_MAPS).await.ok()), ["a/of-a"]);
        pass(Duration::from_millis(50)).await;
    }
    a.control().hold_lists(false);
    events.nothing().await;
    a.apply(config_map("more", "")).unwrap();
    assert_eq!(events.brief().await, "ADDED a/more");
}

/// If the new address does not answer, it may belong to another cluster. So the router must not serve the objects in
/// memory.
#[tokio::test]
async fn cluster_with_an_unknown_uid_starts_without_cached_objects() {
    let fixture = a_before_b(allow(), None).await;
    until(async || items(&fixture.get(CONFIG_MAPS).await.ok()) == ["a/of-a"]).await;
    let namespaces = Rejection { resources: vec!["namespaces".into()], ..Rejection::all(403) };
    fixture.member("b").control().reject(Some(namespaces));
    fixture.router.set_clusters(vec![as_a(fixture.member("b")).await]);
    until(async || items(&fixture.get(CONFIG_MAPS).await.ok()) == ["a/of-b"]).await;
    fixture.member("a").control().stop_listening().await;
    fixture.router.set_clusters(vec![as_a(fixture.member("a")).await]);
    until(async || items(&fixture.get(CONFIG_MAPS).await.ok()).is_empty()).await;
}

/// A relay to one of two clusters, like a load balancer or a virtual IP address.
struct Switch {
    port: u16,
    target: Arc<Mutex<std::net::SocketAddr>>,
    lines: Arc<Mutex<JoinSet<()>>>,
    connections: Arc<AtomicUsize>,
}

impl Switch {
    async fn to(member: &SimulatedCluster) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (port, target) = (listener.local_addr().unwrap().port(), Arc::new(Mutex::new(member.address())));
        let (lines, connections) = (Arc::<Mutex<JoinSet<()>>>::default(), Arc::<AtomicUsize>::default());
        let switch = Self { port, target, lines, connections };
        let (target, lines, made) = (switch.target.clone(), switch.lines.clone(), switch.connections.clone());
        tokio::spawn(async move {
            while let Ok((mut near, _)) = listener.accept().await {
                let far = *target.lock();
                made.fetch_add(1, Ordering::SeqCst);
                lines.lock().spawn(async move {
                    if let Ok(mut far) = TcpStream::connect(far).await {
                        let _ = tokio::io::copy_bidirectional(&mut near, &mut far).await;
                    }
                });
            }
        });
        switch
    }

    fn url(&self) -> http::Uri {
        format!("https://127.0.0.1:{}", self.port).parse().unwrap()
    }

    /// Relays new connections to this cluster. Open connections stay.
    fn lead_to(&self, member: &SimulatedCluster) {
        *self.target.lock() = member.address();
    }

    fn cut(&self) {
        drop(std::mem::take(&mut *self.lines.lock()));
    }
}

/// Serves cluster `a` at a relay that can switch to `b`, and waits for the first connection. Both members accept the
/// same credentials and have equal certificates, so only the uid differs.
async fn behind_a_switch(fixture: &Fixture) -> Switch {
    let switch = at_a_switch(fixture).await;
    let root = fixture.user("root", &[]);
    until(async || switch.connections.load(Ordering::SeqCst) > 0).await;
    pass(Duration::from_secs(2)).await;
    until(async || root.get(&format!("{CONFIG_MAPS}/of-a")).await.code == 200).await;
    switch
}

/// Like [`behind_a_switch`], without a wait for the first connection.
async fn at_a_switch(fixture: &Fixture) -> Switch {
    let [a, b] = ["a", "b"].map(|name| fixture.member(name));
    b.control().accept(a.token(), None);
    let switch = Switch::to(a).await;
    let kubeconfig = Kubeconfig::from_yaml(&a.kubeconfig()).unwrap();
    let mut config = kube::Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.unwrap();
    (config.cluster_url, config.root_cert, config.accept_invalid_certs) = (switch.url(), None, true);
    let client = ClusterClient::connect("a".parse().unwrap(), config, ClientTuning::default()).await.unwrap();
    let address = ClusterAddress::from_description("switch");
    fixture.router.set_clusters(vec![ClusterSetup { client: Ok(client), address, ..as_a(a).await }]);
    switch
}

/// Fault F6 of docs/precedents.md: the address stays the same and now leads to another cluster.
#[tokio::test]
async fn cluster_replaced_behind_its_address_shows_no_earlier_objects() {
    let fixture = a_before_b(allow(), Some(SharedMode::default())).await;
    grant(fixture.member("b"), "", "bob");
    fixture.members.iter().for_each(|member| grant(member, "", "root"));
    listed(&fixture, "a", "root", "all").await;
    let switch = behind_a_switch(&fixture).await;
    let bob = fixture.user("bob", &[]);
    bob.get(ALL).await.refused(403);
    refuse_config_maps(fixture.member("b"), 500);
    switch.lead_to(fixture.member("b"));
    switch.cut();
    let mut is_known = false;
    for _ in 0..200 {
        let listed = bob.get(ALL).await;
        assert!(!String::from_utf8_lossy(&listed.body).contains("of-a\""), "{listed:?}");
        is_known |= crate::access::rights::lists(&fixture, "a", "bob") == "all";
        sleep(Duration::from_millis(20)).await;
    }
    assert!(is_known, "the rights in the successor are known");
    fixture.member("b").control().reject(None);
    until(async || items(&bob.get(ALL).await.json()) == ["a/of-b"]).await;
}

/// Fault F8 of docs/precedents.md: a name now means another cluster.
#[tokio::test]
async fn watch_at_the_path_of_a_replaced_cluster_ends() {
    let fixture = a_before_b(allow(), Some(SharedMode::default())).await;
    fixture.members.iter().for_each(|member| grant(member, "", "root"));
    listed(&fixture, "a", "root", "all").await;
    let root = fixture.user("root", &[]);
    until(async || items(&root.get(ALL).await.json()) == ["a/of-a"]).await;
    let from = version(&root.get(&format!("/clusters/a{CONFIG_MAPS}")).await.ok());
    let of_path = format!("/clusters/a{CONFIG_MAPS}?watch=1&resourceVersion={from}");
    let mut open = root.call("GET", &of_path, &[], "").await.into_body();
    fixture.member("a").apply(config_map("before", "")).unwrap();
    let first = open.frame().await.unwrap().unwrap().into_data().unwrap();
    assert!(String::from_utf8_lossy(&first).contains("before"));
    switch(&fixture).await;
    until(async || items(&root.get(ALL).await.json()) == ["a/of-b"]).await;
    fixture.member("a").apply(config_map("late", "")).unwrap();
    let mut told = String::new();
    let rest = async {
        while let Some(Ok(frame)) = open.frame().await {
            told += &String::from_utf8_lossy(frame.data_ref().unwrap());
        }
    };
    tokio::time::timeout(SOON, rest).await.expect("the watch ends");
    assert!(!told.contains("late"), "{told}");
}

/// The first connection to a new address reaches the same cluster. Later connections reach a different cluster.
#[tokio::test]
async fn cluster_replaced_while_its_new_address_is_checked_shows_no_earlier_objects() {
    for pause in 0..12 {
        let fixture = a_before_b(allow(), None).await;
        let a = fixture.member("a");
        a.control().reset_counters();
        let switch = at_a_switch(&fixture).await;
        while !a.control().request_log().iter().any(|line| line.contains("kube-system")) {
            yield_now().await;
        }
        for _ in 0..pause {
            yield_now().await;
        }
        switch.lead_to(fixture.member("b"));
        switch.cut();
        until(async || items(&fixture.get(CONFIG_MAPS).await.ok()) == ["a/of-b"]).await;
    }
}

/// If an address alternates between two clusters, the router must not drop all objects each time.
#[tokio::test]
async fn address_alternating_between_two_clusters_drops_objects_ever_more_rarely() {
    let fixture = a_before_b(allow(), Some(SharedMode::default())).await;
    fixture.members.iter().for_each(|member| grant(member, "", "root"));
    listed(&fixture, "a", "root", "all").await;
    let switch = behind_a_switch(&fixture).await;
    let replaced = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&replaced);
    fixture.router.on_cluster_forgotten(move |_| {
        counted.fetch_add(1, Ordering::SeqCst);
    });
    let begun = Instant::now();
    for turn in 0..18 {
        switch.lead_to(fixture.member(if turn % 2 == 0 { "b" } else { "a" }));
        switch.cut();
        sleep(Duration::from_millis(700)).await;
    }
    let (count, elapsed) = (replaced.load(Ordering::SeqCst), begun.elapsed());
    // The first replacement is immediate. The next ones follow after pauses of 10 s, 20 s, 40 s and so on.
    let sums_of_pauses = (1..).map(|doublings| Duration::from_secs(10) * (2_u32.pow(doublings) - 1));
    let allowed = 1 + sums_of_pauses.take_while(|pauses| *pauses <= elapsed).count();
    assert!(count <= allowed, "{count} replacements in {elapsed:?}, and {allowed} are allowed");
    // On a busy machine, 700 ms may be too short for a replacement, so the loop may have caused none. This switch has
    // no time limit.
    switch.lead_to(fixture.member("b"));
    switch.cut();
    until(async || replaced.load(Ordering::SeqCst) > 0).await;
}

/// Fault F9 of docs/precedents.md: after a restart, a client resumes with a version of the replaced cluster.
#[tokio::test]
async fn version_of_a_replaced_cluster_is_refused_after_a_restart() {
    let kept = Arc::new(Mutex::new(Epochs::default()));
    let config = || {
        let (epochs, keep) = (kept.lock().clone(), Arc::clone(&kept));
        let keep_epochs = Some(Box::new(move |epochs: &Epochs| *keep.lock() = epochs.clone()) as _);
        RouterConfig { policies: allow(), epochs, keep_epochs, alone: true, ..RouterConfig::default() }
    };
    let fixture = Fixture::of(["a", "b"].map(crate::harness::config), config()).await;
    let [a, b] = ["a", "b"].map(|name| fixture.member(name));
    fixture.router.set_clusters(vec![as_a(a).await]);
    for number in 0..20 {
        a.apply(config_map(&format!("of-a-{number}"), "")).unwrap();
    }
    until(async || items(&fixture.get(CONFIG_MAPS).await.ok()).len() == 20).await;
    let listed = fixture.get(CONFIG_MAPS).await.ok();
    let (from, item) = (version(&listed), version(&listed["items"][19]));
    until(async || kept.lock().current_uid_of(&"a".parse().unwrap()).is_some()).await;
    let (router, members) = (Router::new(config()), Vec::new());
    let later = Fixture { members, router };
    b.apply(config_map("of-b", "")).unwrap();
    later.router.set_clusters(vec![as_a(b).await]);
    until(async || items(&later.get(CONFIG_MAPS).await.ok()) == ["a/of-b"]).await;
    until(async || version(&later.get(CONFIG_MAPS).await.ok()).len() > from.len()).await;
    let own = version(&later.get(CONFIG_MAPS).await.ok());
    while b.control().revision() < a.control().revision() + 5 {
        b.apply(config_map("of-b", &b.control().revision().to_string())).unwrap();
    }
    for old in [&from, &item] {
        later.get(&format!("{CONFIG_MAPS}?resourceVersion={old}&resourceVersionMatch=NotOlderThan")).await.refused(410);
        let mut watch = later.watch(&format!("{CONFIG_MAPS}?watch=1&resourceVersion={old}")).await;
        assert_eq!(watch.soon().await["object"]["code"], 410, "{}", vector(old));
    }
    let mut watch = later.watch(&format!("{CONFIG_MAPS}?watch=1&resourceVersion={own}")).await;
    assert_eq!(watch.brief().await, "MODIFIED a/of-b");
    // A write with the object's version from the new cluster succeeds.
    let read = later.get(&format!("{CONFIG_MAPS}/of-b")).await.ok();
    let mut object = config_map_in("a", "of-b", "written");
    object["metadata"]["resourceVersion"] = version(&read).into();
    later.write("PUT", &format!("{CONFIG_MAPS}/of-b"), &object).await.ok();
    object["metadata"]["resourceVersion"] = json!(item);
    later.write("PUT", &format!("{CONFIG_MAPS}/of-b"), &object).await.refused(409);
}
