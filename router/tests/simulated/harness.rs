//! Simulated members behind one router, and a client that calls the router directly.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::mpsc::RecvTimeoutError;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bytes::{Bytes, BytesMut};
use http::{HeaderMap, Request, Response};
use http_body_util::BodyExt;
use kube::config::{KubeConfigOptions, Kubeconfig};
use serde_json::{Value, json};
use tributary_apimachinery::body::{self, Body};
use tributary_apimachinery::{ClusterName, ForeignDoors, ForeignSystem, Mount, Partial};
use tributary_authentication::Authority;
use tributary_proxy::{ClientTuning, ClusterClient};
use tributary_router::{
    ClusterAddress, ClusterAuthorization, ClusterSetup, ForeignMember, ForeignMembers, GatewayFacts, Limits,
    MemberRules, Policies, RequestArrival, RequestContext, ResourcePolicy, Router, RouterConfig, SharedMode, User,
};
use tributary_simulator::{SimulatedCluster, Simulator, SimulatorConfig};

/// Time limit for an expected event. The limit is high, because it only detects missing events.
pub(crate) const SOON: Duration = Duration::from_secs(60);

/// Time after which a test assumes that an unexpected event will not arrive.
pub(crate) const QUIET: Duration = Duration::from_millis(150);

pub(crate) const ANNOTATION: &str = "tributary.dev/cluster";

pub(crate) const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";

pub(crate) struct Fixture {
    pub(crate) members: Vec<SimulatedCluster>,
    pub(crate) router: Arc<Router>,
}

#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) code: u16,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

impl Answer {
    /// Returns the body as JSON. Panics with the response if the body is not JSON.
    #[track_caller]
    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    #[track_caller]
    pub(crate) fn ok(&self) -> Value {
        assert!((200..300).contains(&self.code), "{} {}", self.code, String::from_utf8_lossy(&self.body));
        self.json()
    }

    /// Checks the code, and returns the message of the `Status` in the body.
    #[track_caller]
    pub(crate) fn refused(&self, code: u16) -> String {
        let text = String::from_utf8_lossy(&self.body);
        assert_eq!(self.code, code, "{text}");
        let status = self.json();
        assert_eq!((&status["kind"], &status["code"]), (&json!("Status"), &json!(code)), "{text}");
        status["message"].as_str().unwrap_or_default().to_owned()
    }

    /// Checks that the response is kube-apiserver's plain-text 404.
    #[track_caller]
    pub(crate) fn no_route(&self) {
        assert_eq!((self.code, &self.body[..]), (404, &b"404 page not found\n"[..]), "{self:?}");
    }

    pub(crate) fn warnings(&self) -> Vec<String> {
        let values = self.headers.get_all("warning").iter();
        values.map(|value| value.to_str().unwrap_or_default().to_owned()).collect()
    }
}

pub(crate) fn config(name: &str) -> SimulatorConfig {
    SimulatorConfig { name: name.to_owned(), pods: 0, namespaces: 1, nodes: 1, ..SimulatorConfig::default() }
}

/// Returns policies that allow partial responses.
pub(crate) fn allow() -> Policies {
    Policies { default: ResourcePolicy { partial: Partial::Allow, ..ResourcePolicy::default() }, ..Policies::default() }
}

/// Creates a router with these policies and without clusters.
pub(crate) fn router(policies: Policies) -> Arc<Router> {
    Router::new(RouterConfig { policies, alone: true, ..RouterConfig::default() })
}

/// Returns the setup of a member as the cluster `name`.
pub(crate) async fn setup(member: &SimulatedCluster, name: &str) -> ClusterSetup {
    let url = member.url().parse().unwrap();
    setup_through(member, name, &[url], ClientTuning::default()).await
}

/// Like [`setup`], with the given addresses of the member.
pub(crate) async fn setup_through(
    member: &SimulatedCluster,
    name: &str,
    urls: &[http::Uri],
    tuning: ClientTuning,
) -> ClusterSetup {
    let kubeconfig = Kubeconfig::from_yaml(&member.kubeconfig()).unwrap();
    let mut config = kube::Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.unwrap();
    config.cluster_url = urls[0].clone();
    let name = ClusterName::new(name).unwrap();
    let further: Vec<_> = urls[1..].iter().cloned().map(Into::into).collect();
    let client = ClusterClient::connect_to_all(name.clone(), config, &further, tuning).await.map_err(|e| e.to_string());
    ClusterSetup {
        name,
        client,
        client_generation: 0,
        address: ClusterAddress::from_description(member.token()),
        index: None,
        impersonation: MemberRules::default(),
        // These tests skip the detection of the member's authorizer, which `rights_detected` tests.
        authorization: ClusterAuthorization::Rbac,
    }
}

impl Fixture {
    /// Starts members with these names behind a router that allows partial responses.
    pub(crate) async fn start<const N: usize>(names: [&str; N]) -> Self {
        Self::with(names.map(config), allow()).await
    }

    /// Starts members with these configurations behind a router with these policies.
    pub(crate) async fn with<const N: usize>(configs: [SimulatorConfig; N], policies: Policies) -> Self {
        Self::within(Limits::default(), configs, policies).await
    }

    /// Like [`with`](Self::with), with these limits.
    pub(crate) async fn within<const N: usize>(
        limits: Limits,
        configs: [SimulatorConfig; N],
        policies: Policies,
    ) -> Self {
        Self::of(configs, RouterConfig { policies, limits, alone: true, ..RouterConfig::default() }).await
    }

    /// Starts members with these names that serve roles and bindings, behind a router in the shared mode.
    pub(crate) async fn shared<const N: usize>(names: [&str; N], policies: Policies, mode: SharedMode) -> Self {
        let configs = names.map(|name| SimulatorConfig { rbac: true, ..config(name) });
        Self::of(configs, RouterConfig { policies, shared: Some(mode), alone: true, ..RouterConfig::default() }).await
    }

    /// Starts members with these configurations behind a router with this configuration.
    pub(crate) async fn of<const N: usize>(configs: [SimulatorConfig; N], router: RouterConfig) -> Self {
        let mut members = Vec::new();
        for config in configs {
            members.push(Simulator::start(config).await.unwrap());
        }
        let router = Router::new(router);
        let fixture = Self { members, router };
        let all: Vec<_> = fixture.members.iter().map(|member| member.name().to_owned()).collect();
        fixture.set_clusters(&all).await;
        fixture.router.asked_once(SOON).await;
        fixture
    }

    /// Starts a second router over the same members: another replica, or the same replica after a restart.
    pub(crate) async fn restarted(&self, policies: Policies) -> Self {
        let other = Self { members: Vec::new(), router: router(policies) };
        let mut setups = Vec::new();
        for member in &self.members {
            setups.push(setup(member, member.name()).await);
        }
        other.router.set_clusters(setups);
        other.router.asked_once(SOON).await;
        other
    }

    pub(crate) async fn set_clusters(&self, names: &[impl AsRef<str>]) {
        let mut setups = Vec::new();
        for name in names {
            let index = self.members.iter().position(|member| member.name() == name.as_ref());
            let index = index.and_then(|index| u16::try_from(index).ok());
            setups.push(ClusterSetup { index, ..setup(self.member(name.as_ref()), name.as_ref()).await });
        }
        self.router.set_clusters(setups);
    }

    #[track_caller]
    pub(crate) fn member(&self, name: &str) -> &SimulatedCluster {
        self.members.iter().find(|member| member.name() == name).unwrap_or_else(|| panic!("no member {name}"))
    }

    /// Writes a ConfigMap with one value directly to a member. Returns the member's revision.
    pub(crate) fn put(&self, member: &str, name: &str, value: &str) -> u64 {
        self.member(member).apply(config_map(name, value)).unwrap()
    }

    /// Like [`put`](Self::put), and waits until the router has received the ConfigMap.
    pub(crate) async fn put_and_see(&self, member: &str, name: &str, value: &str) -> u64 {
        let revision = self.put(member, name, value);
        self.see(member, revision).await;
        revision
    }

    /// Waits until the router has detected that a cluster is unreachable.
    pub(crate) async fn out_of_reach(&self, cluster: &str) {
        until(async || {
            let report = self.router.report().await;
            let own = report.clusters.iter().find(|own| own.name == cluster);
            own.is_some_and(|own| own.problem.is_some() || own.refusal.is_some())
        })
        .await;
        // The router notifies the cluster's cachers through a channel. This needs no timer, so the function waits in
        // real time, and the paused clock stands still.
        quiet_without_time().await;
    }

    /// Opens each kind of connection to a member for clients' requests. A new connection waits for the member's HTTP/2
    /// settings with a timer, so a test must open it before [`at_once`].
    pub(crate) async fn connect_clients(&self, member: &str) {
        let own = format!("/clusters/{member}{CONFIG_MAPS}");
        for path in [format!("{own}/nothing"), format!("{own}?watch=1")] {
            self.client().call("GET", &path, &[], "").await;
        }
    }

    pub(crate) async fn see(&self, member: &str, revision: u64) {
        let version = composite(&json!({ member: revision.to_string() }));
        self.get(&format!("{CONFIG_MAPS}?limit=1&resourceVersion={version}&resourceVersionMatch=NotOlderThan"))
            .await
            .ok();
    }

    pub(crate) fn client(&self) -> Client {
        Client { router: Arc::clone(&self.router), peer: None, user: tester(), mount: Mount::default(), prefix: "" }
    }

    /// Returns a client with its own connection, identified by the port.
    pub(crate) fn connection(&self, port: u16) -> Client {
        self.client().by_port(port)
    }

    pub(crate) fn user(&self, name: &str, groups: &[String]) -> Client {
        self.user_of(name, groups, "test".into())
    }

    /// Like [`user`](Self::user), authenticated by this authority.
    pub(crate) fn user_of(&self, name: &str, groups: &[String], authority: Authority) -> Client {
        let mut user = User::named(authority, name);
        user.info.groups = groups.to_vec();
        self.of_user(user)
    }

    pub(crate) fn of_user(&self, user: User) -> Client {
        Client { user, ..self.client() }
    }

    pub(crate) async fn get(&self, path: &str) -> Answer {
        self.client().send("GET", path, &[], "").await
    }

    pub(crate) async fn write(&self, method: &str, path: &str, body: &Value) -> Answer {
        self.client().send(method, path, &[("content-type", "application/json")], &body.to_string()).await
    }

    /// Sends a patch. `kind` is the media type without `application/`.
    pub(crate) async fn patch(&self, path: &str, kind: &str, body: &Value) -> Answer {
        let content_type = format!("application/{kind}");
        self.client().send("PATCH", path, &[("content-type", &content_type)], &body.to_string()).await
    }

    /// Opens a watch. Panics if the response is not 200.
    pub(crate) async fn watch(&self, path: &str) -> Events {
        self.client().watch(path).await
    }

    /// Makes changes while a watch is open. Then checks, for each event, that a watch from its version receives all
    /// later events.
    pub(crate) async fn resumes_after_each(&self, events: &mut Events) {
        let mut told = Vec::new();
        for number in 0..6 {
            self.put(if number % 2 == 0 { "a" } else { "b" }, &format!("x{number}"), "");
            told.push(events.soon().await);
        }
        for cut in 0..told.len() {
            let from = version(&told[cut]["object"]);
            let mut resumed = self.watch(&format!("{CONFIG_MAPS}?watch=1&resourceVersion={from}")).await;
            for event in &told[cut + 1..] {
                assert_eq!(resumed.soon().await, *event);
            }
            resumed.nothing().await;
        }
    }

    /// Returns the ConfigMaps of `default` in all members, by cluster and name. A test compares them with a list.
    pub(crate) fn config_maps_of_members(&self) -> BTreeMap<(String, String), Value> {
        let mut all = BTreeMap::new();
        for member in &self.members {
            for object in member.list("configmaps") {
                if object["metadata"]["namespace"] == "default" {
                    all.insert((member.name().to_owned(), name(&object)), object["data"].clone());
                }
            }
        }
        all
    }
}

fn tester() -> User {
    User::named("test", "tester")
}

#[derive(Clone)]
pub(crate) struct Client {
    pub(crate) router: Arc<Router>,
    /// The client's connection. `None` stands for one connection that all such clients share.
    peer: Option<SocketAddr>,
    pub(crate) user: User,
    /// What the client's host serves at the root path: the merged view or one cluster.
    mount: Mount,
    /// The path prefix of each request.
    prefix: &'static str,
}

impl Client {
    /// Returns the client at the host of this cluster.
    pub(crate) fn at_host_of(self, cluster: &str) -> Self {
        Self { mount: Mount::Cluster(cluster.parse().unwrap()), ..self }
    }

    pub(crate) fn at_mount(self, mount: Mount) -> Self {
        Self { mount, ..self }
    }

    /// Returns the client at the aggregated entry with the doors of Karmada, for members with the same names in Karmada
    /// and in Tributary.
    pub(crate) fn at_doors_of_karmada(self, names: &[&str]) -> Self {
        let doors = self.open_doors(&[ForeignSystem::Karmada], names);
        Self { mount: Mount::Aggregated(doors), ..self }
    }

    /// Opens the doors of these systems, which know these members by their names in Tributary.
    pub(crate) fn open_doors(&self, systems: &[ForeignSystem], names: &[&str]) -> Arc<ForeignDoors> {
        let names: Vec<_> = names.iter().map(|name| (*name, *name)).collect();
        self.foreign_members(systems, &names)
    }

    /// Opens the doors of these systems. `names` has the name in the systems and in Tributary of each member.
    pub(crate) fn foreign_members(&self, systems: &[ForeignSystem], names: &[(&str, &str)]) -> Arc<ForeignDoors> {
        let member = |system: ForeignSystem, (name, cluster): (&str, &str)| ForeignMember {
            name: name.to_owned(),
            gateway: (system == ForeignSystem::ClusterGateway).then(GatewayFacts::default),
            ..ForeignMember::with_own_name(system, &cluster.parse().unwrap())
        };
        let members = systems.iter().flat_map(|system| names.iter().map(|names| member(*system, *names)));
        let members = Arc::new(ForeignMembers::from_iter(members));
        let doors = Arc::new(members.doors(systems.iter().copied()));
        self.router.set_foreign_members(members);
        doors
    }

    /// Returns the client with a prefix before the path of each request.
    pub(crate) fn below(self, prefix: &'static str) -> Self {
        Self { prefix, ..self }
    }

    pub(crate) fn by_port(self, port: u16) -> Self {
        Self { peer: Some(SocketAddr::from(([127, 0, 0, 1], port))), ..self }
    }

    /// Returns the client at another IP address.
    pub(crate) fn at_address(self, address: IpAddr) -> Self {
        Self { peer: Some(SocketAddr::from((address, 1))), ..self }
    }

    /// Sends a request. Returns the response with its body unread.
    pub(crate) async fn call(&self, method: &str, path: &str, headers: &[(&str, &str)], text: &str) -> Response<Body> {
        self.ask(method, path, headers, text).await.response
    }

    /// Sends a request. Returns the response with its body unread, and the router's notes for the HTTP server.
    pub(crate) async fn ask(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        text: &str,
    ) -> tributary_router::Answer {
        let mut request = Request::builder().method(method).uri(format!("{}{path}", self.prefix));
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let text = if text.is_empty() { body::empty() } else { body::full(text.to_owned()) };
        let request = request.body(text).unwrap();
        let mut arrival = RequestArrival::new(self.mount.clone(), request.method(), request.uri());
        arrival.peer = self.peer;
        let context = RequestContext { arrival, sender: self.user.clone().into() };
        tokio::time::timeout(SOON * 6, self.router.handle(request, &context)).await.expect("an answer in time")
    }

    pub(crate) async fn watch(&self, path: &str) -> Events {
        self.watch_as(path, &[]).await
    }

    /// Like [`watch`](Self::watch), with these headers.
    pub(crate) async fn watch_as(&self, path: &str, headers: &[(&str, &str)]) -> Events {
        let response = self.call("GET", path, headers, "").await;
        assert_eq!(response.status(), 200, "{path}: {response:?}");
        Events::of(response)
    }

    pub(crate) async fn get(&self, path: &str) -> Answer {
        self.send("GET", path, &[], "").await
    }

    /// Sends a request and reads the whole response.
    pub(crate) async fn send(&self, method: &str, path: &str, headers: &[(&str, &str)], text: &str) -> Answer {
        let (head, incoming) = self.call(method, path, headers, text).await.into_parts();
        let body = incoming.collect().await.expect("a whole body").to_bytes();
        Answer { code: head.status.as_u16(), headers: head.headers, body }
    }
}

pub(crate) struct Events {
    body: Body,
    buffer: BytesMut,
    /// Number of bytes at the start of the buffer that contain no line feed.
    scanned: usize,
}

impl Events {
    pub(crate) fn of(response: Response<Body>) -> Self {
        Self { body: response.into_body(), buffer: BytesMut::new(), scanned: 0 }
    }

    /// Returns the next event, or `None` at the end of the stream.
    pub(crate) async fn next(&mut self) -> Option<Value> {
        let line = self.line().await?;
        Some(serde_json::from_slice(&line).expect("a frame is JSON"))
    }

    /// Returns the text of the next event, or `None` at the end of the stream.
    pub(crate) async fn line(&mut self) -> Option<Bytes> {
        loop {
            if let Some(end) = self.buffer[self.scanned..].iter().position(|byte| *byte == b'\n') {
                let line = self.buffer.split_to(self.scanned + end + 1).freeze();
                self.scanned = 0;
                return Some(line);
            }
            self.scanned = self.buffer.len();
            match self.body.frame().await? {
                Ok(frame) => self.buffer.extend_from_slice(frame.data_ref().expect("data")),
                Err(error) => panic!("the watch broke off: {error}"),
            }
        }
    }

    pub(crate) async fn soon(&mut self) -> Value {
        tokio::time::timeout(SOON, self.next()).await.expect("an event").expect("not the end")
    }

    /// Returns the type, cluster and name of the next event.
    pub(crate) async fn brief(&mut self) -> String {
        brief(&self.soon().await)
    }

    /// Returns the types of all events until the end of the stream.
    pub(crate) async fn types(mut self) -> Vec<String> {
        let mut types = Vec::new();
        while let Some(event) = self.next().await {
            types.push(event["type"].as_str().unwrap_or_default().to_owned());
        }
        types
    }

    /// Checks that no event arrives within [`QUIET`].
    pub(crate) async fn nothing(&mut self) {
        if let Ok(event) = tokio::time::timeout(QUIET, self.next()).await {
            panic!("nothing was to come, but: {event:?}");
        }
    }
}

/// Formats an event as `TYPE cluster/name`.
pub(crate) fn brief(event: &Value) -> String {
    let object = &event["object"];
    format!("{} {}/{}", event["type"].as_str().unwrap_or_default(), cluster(object), name(object))
}

/// Returns a ConfigMap in the namespace `default` with one value.
pub(crate) fn config_map(name: &str, value: &str) -> Value {
    json!({"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": name, "namespace": "default"}, "data": {"v": value}})
}

pub(crate) fn config_map_in(cluster: &str, name: &str, value: &str) -> Value {
    let mut object = config_map(name, value);
    object["metadata"]["annotations"] = json!({ ANNOTATION: cluster });
    object
}

pub(crate) fn name(object: &Value) -> String {
    object["metadata"]["name"].as_str().unwrap_or_default().to_owned()
}

pub(crate) fn cluster(object: &Value) -> String {
    object["metadata"]["annotations"][ANNOTATION].as_str().unwrap_or_default().to_owned()
}

pub(crate) fn version(object: &Value) -> String {
    object["metadata"]["resourceVersion"].as_str().unwrap_or_default().to_owned()
}

/// Decodes a composite resourceVersion into its JSON object.
#[track_caller]
pub(crate) fn vector(text: &str) -> Value {
    serde_json::from_slice(&URL_SAFE_NO_PAD.decode(text).expect("base64url")).expect("JSON")
}

/// Encodes a composite resourceVersion with these components.
pub(crate) fn composite(components: &Value) -> String {
    URL_SAFE_NO_PAD.encode(components.to_string())
}

/// Returns `cluster/name` of each item of a list.
pub(crate) fn items(list: &Value) -> Vec<String> {
    let items = list["items"].as_array().expect("items");
    items.iter().map(|item| format!("{}/{}", cluster(item), name(item))).collect()
}

pub(crate) async fn pass(time: Duration) {
    tokio::time::pause();
    tokio::time::sleep(time).await;
    tokio::time::resume();
}

/// Runs `work` while the clock stands still, which proves that `work` needs no timer. The clock is paused, and a
/// pending blocking task prevents tokio from advancing it. If `work` waits for a timer, the blocking task ends after a
/// minute, and the test fails.
pub(crate) async fn at_once<T>(work: impl Future<Output = T>) -> T {
    tokio::time::pause();
    let (done, waiting) = std::sync::mpsc::channel::<()>();
    let held = tokio::task::spawn_blocking(move || waiting.recv_timeout(SOON));
    let value = work.await;
    drop(done);
    assert_eq!(held.await.unwrap(), Err(RecvTimeoutError::Disconnected), "it waits for time to pass");
    tokio::time::resume();
    value
}

/// Lets all tasks run that need no timer, for the real time [`QUIET`]. The paused clock does not advance.
pub(crate) async fn quiet_without_time() {
    #[expect(
        clippy::disallowed_methods,
        reason = "the clock may be paused, and what sleeps is no worker of the runtime"
    )]
    let sleep = || std::thread::sleep(QUIET);
    tokio::task::spawn_blocking(sleep).await.unwrap();
}

/// Repeats a request until the response is not 504, for [`SOON`] at most. On a slow machine the router may need more
/// time to receive a write than a request waits.
pub(crate) async fn in_time<F: Future<Output = Answer>>(mut ask: impl FnMut() -> F) -> Answer {
    let deadline = tokio::time::Instant::now() + SOON;
    loop {
        let answer = ask().await;
        if answer.code != 504 {
            return answer;
        }
        assert!(tokio::time::Instant::now() < deadline, "it is never seen: {answer:?}");
    }
}

/// Waits until a condition is true, for [`SOON`] at most.
pub(crate) async fn until<F: Future<Output = bool>>(mut holds: impl FnMut() -> F) {
    let deadline = tokio::time::Instant::now() + SOON;
    while !holds().await {
        assert!(tokio::time::Instant::now() < deadline, "it does not come true");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}
