//! The time until a revoked right ends an open watch. One real member has many users. Each user has a RoleBinding in
//! one namespace, and opens two watches: of that namespace and of all namespaces. The bindings are deleted in sequence,
//! and then all at once.

use std::time::Duration;

use anyhow::{Context, bail};
use bytes::Bytes;
use futures::future::try_join_all;
use http::Method;
use http_body_util::BodyExt;
use hyper::body::Incoming;
use serde::Serialize;
use serde_json::json;
use tokio::time::{Instant, sleep, timeout};
use tributary_e2e::{PeopleAuthority, TestCluster, Tributary};

use crate::client::{Contestant, ContestantConnection};
use crate::load;
use crate::statistics::Percentiles;

pub(crate) const NAME: &str = "revoked-rights";
/// The number of users, each with two watches.
const USERS: usize = 100;
/// The number of revocations per user, for each way of deletion.
const ROUNDS: usize = 5;
/// The timeout until granted rights take effect, and until revoked rights end a watch.
const RIGHTS_TIMEOUT: Duration = Duration::from_secs(30);
/// The pause before a refused watch is opened again.
const RETRY: Duration = Duration::from_millis(50);

const JSON: &str = "application/json";
const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";
const API: &str = "rbac.authorization.k8s.io";
const ROLE: &str = "revoked-pods";

/// The time from the response to the deletion of a binding to the end of the watch, in milliseconds.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(crate) struct RevocationTimes {
    pub(crate) watches: usize,
    pub(crate) times: Percentiles,
    pub(crate) longest: f64,
}

#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(crate) struct RevokedFigures {
    pub(crate) users: usize,
    /// The result for bindings that are deleted in sequence.
    pub(crate) one_by_one: RevocationTimes,
    /// The result for bindings that are deleted all at once.
    pub(crate) at_once: RevocationTimes,
}

impl RevocationTimes {
    fn from_times(times: &[Duration]) -> Self {
        let longest = times.iter().max().map_or(0.0, |longest| longest.as_secs_f64() * 1000.0);
        Self { watches: times.len(), times: Percentiles::from_times(times), longest }
    }
}

struct Person {
    number: usize,
    connection: ContestantConnection,
}

/// Measures the revocation of rights in a member that has pods.
///
/// # Errors
/// If a server cannot be started, or a watch cannot be opened or ends for another reason than the rights.
pub(crate) async fn run(member: &TestCluster, admin: &Contestant, pods: usize) -> anyhow::Result<RevokedFigures> {
    let folder = tempfile::Builder::new().prefix("tributary-bench-revoked-").tempdir().context("make a folder")?;
    let people = PeopleAuthority::new("the people's authority")?;
    let client_ca = folder.path().join("clients.crt");
    std::fs::write(&client_ca, people.pem()).context("write the authority")?;
    let admin = admin.connect().await?;
    let rules = json!([{"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list", "watch"]}]);
    let role =
        json!({"apiVersion": format!("{API}/v1"), "kind": "ClusterRole", "metadata": {"name": ROLE}, "rules": rules});
    admin.write(Method::POST, &format!("{RBAC}/clusterroles"), JSON, Bytes::from(role.to_string())).await?;
    let server = Tributary::builder(&member.kubeconfig(), ["member1"]).shared(&client_ca).start().await;
    let server = server.context("start tributary")?;
    let mut persons = Vec::new();
    for number in 0..USERS {
        let path = folder.path().join(format!("{number}.kubeconfig"));
        server.kubeconfig_of(&path, &people.user(&user(number), &[])?, &[])?;
        let connection = Contestant::from_kubeconfig("a user", &path, None).await?.connect().await?;
        persons.push(Person { number, connection });
    }
    let namespaces = pods.div_ceil(load::PODS_PER_NAMESPACE);
    let (mut one_by_one, mut at_once) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        let opened = try_join_all(persons.iter().map(|person| person.grant_and_watch(&admin, namespaces))).await?;
        for (person, watches) in persons.iter().zip(opened) {
            one_by_one.extend(person.revoke(&admin, namespaces, watches).await?);
        }
        let opened = try_join_all(persons.iter().map(|person| person.grant_and_watch(&admin, namespaces))).await?;
        let lost = persons.iter().zip(opened).map(|(person, watches)| person.revoke(&admin, namespaces, watches));
        at_once.extend(try_join_all(lost).await?.into_iter().flatten());
    }
    server.stop().await.context("stop tributary")?;
    Ok(RevokedFigures {
        users: USERS,
        one_by_one: RevocationTimes::from_times(&one_by_one),
        at_once: RevocationTimes::from_times(&at_once),
    })
}

fn user(number: usize) -> String {
    format!("revoked-{number:03}")
}

impl Person {
    fn namespace(&self, namespaces: usize) -> String {
        load::namespace(self.number % namespaces)
    }

    /// Grants the user the right to read the namespace, and opens the user's watches.
    async fn grant_and_watch(&self, admin: &ContestantConnection, namespaces: usize) -> anyhow::Result<[Incoming; 2]> {
        let (namespace, name) = (self.namespace(namespaces), user(self.number));
        let binding = json!({"apiVersion": format!("{API}/v1"), "kind": "RoleBinding", "metadata": {"name": name},
            "subjects": [{"apiGroup": API, "kind": "User", "name": name}],
            "roleRef": {"apiGroup": API, "kind": "ClusterRole", "name": ROLE}});
        let path = format!("{RBAC}/namespaces/{namespace}/rolebindings");
        admin.write(Method::POST, &path, JSON, Bytes::from(binding.to_string())).await?;
        let watch = "watch=1&resourceVersion=0&sendInitialEvents=false&resourceVersionMatch=NotOlderThan";
        let of_one = self.open_watch(&format!("/api/v1/namespaces/{namespace}/pods?{watch}")).await?;
        Ok([of_one, self.open_watch(&format!("/api/v1/pods?{watch}")).await?])
    }

    async fn open_watch(&self, path: &str) -> anyhow::Result<Incoming> {
        let begun = Instant::now();
        loop {
            let answer = self.connection.send(Method::GET, path, JSON, "", Bytes::new()).await?;
            match answer.status().as_u16() {
                200 => return Ok(answer.into_body()),
                403 if begun.elapsed() < RIGHTS_TIMEOUT => sleep(RETRY).await,
                code => bail!("the watch of {path} was answered {code}"),
            }
        }
    }

    /// Revokes the user's right. Returns for each watch the time from the member's response to the end of the watch.
    async fn revoke(
        &self,
        admin: &ContestantConnection,
        namespaces: usize,
        watches: [Incoming; 2],
    ) -> anyhow::Result<Vec<Duration>> {
        let path = format!("{RBAC}/namespaces/{}/rolebindings/{}", self.namespace(namespaces), user(self.number));
        let ends = watches.map(|watch| tokio::spawn(end_of(watch)));
        admin.write(Method::DELETE, &path, JSON, Bytes::new()).await?;
        let deleted = Instant::now();
        let mut outlived = Vec::new();
        for end in ends {
            let end = end.await.context("a watcher panicked")??;
            outlived.push(end.saturating_duration_since(deleted));
        }
        Ok(outlived)
    }
}

/// Reads a watch to its end. The last event must be an error that makes the client list again. Returns the arrival time
/// of that error.
async fn end_of(mut watch: Incoming) -> anyhow::Result<Instant> {
    let (mut last, mut told) = (Bytes::new(), Instant::now());
    while let Some(frame) = timeout(RIGHTS_TIMEOUT, watch.frame()).await.context("a watch goes on without a right")? {
        // The end of an HTTP/2 stream may be a frame without data.
        if let Ok(data) = frame.context("read a watch")?.into_data()
            && !data.is_empty()
        {
            (last, told) = (data, Instant::now());
        }
    }
    let text = String::from_utf8_lossy(&last);
    if !text.contains("\"code\":410") {
        bail!("a watch ended otherwise than for its rights: {text}");
    }
    Ok(told)
}
