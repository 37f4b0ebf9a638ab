//! The server that a case tests: a bare kube-apiserver, or Tributary over one or two members.

use super::differences::{Difference, ORDER_BY_CLUSTER};
use crate::context::{TestContext, eventually};
use anyhow::{Context, bail, ensure};
use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use serde_json::{Map, Value, json};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};
use tributary_e2e::{EventStream, HttpClient, HttpResponse, Kubectl, TestCluster, Tools};
use tributary_simulator::compact;

/// Longest time until an expected event arrives, on a busy machine.
pub(crate) const SOON: Duration = Duration::from_secs(60);

/// Time without an event after which a case concludes that no event will arrive.
pub(crate) const QUIET: Duration = Duration::from_millis(700);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Bare,
    OverOne,
    OverTwo,
    /// Tributary over two members that sends integer versions of objects.
    OverTwoIntegers,
}

impl Kind {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Bare => "bare",
            Self::OverOne => "over_one",
            Self::OverTwo => "over_two",
            Self::OverTwoIntegers => "over_two_integers",
        }
    }
}

#[derive(Clone)]
pub(crate) struct Target {
    pub(crate) kind: Kind,
    pub(crate) http: HttpClient,
    /// The members behind the target, sorted by name.
    pub(crate) members: Vec<Arc<TestCluster>>,
    pub(crate) namespace: String,
    tools: Tools,
}

impl Target {
    pub(crate) async fn new(kind: Kind, context: &TestContext) -> anyhow::Result<Self> {
        let (http, members) = match kind {
            Kind::Bare => {
                let bare = context.fixture.bare().await?;
                (bare.http().clone(), vec![bare])
            }
            Kind::OverOne => {
                let tributary = context.fixture.over_one().await?;
                (tributary.http().await?, vec![context.fixture.bare().await?])
            }
            Kind::OverTwo => {
                let tributary = context.fixture.over_two().await?;
                (tributary.http().await?, context.fixture.pair().await?.to_vec())
            }
            Kind::OverTwoIntegers => {
                let tributary = context.fixture.over_two_integers().await?;
                (tributary.http().await?, context.fixture.pair().await?.to_vec())
            }
        };
        let namespace = context.namespace("case", &members).await?;
        let tools = context.fixture.tools().await?.clone();
        Ok(Self { kind, http, members, namespace, tools })
    }

    /// Returns whether the target shows a deliberate difference, which is true for every target except the bare
    /// kube-apiserver.
    pub(crate) fn differs(&self, difference: &Difference) -> bool {
        let Difference { kubernetes, tributary, reason } = difference;
        tracing::debug!(kubernetes, tributary, reason, target = self.kind.name(), "a deliberate difference");
        self.kind != Kind::Bare
    }

    /// Path of a core resource in the case's namespace. `query` is empty or begins with `?`.
    pub(crate) fn core(&self, resource: &str, query: &str) -> String {
        format!("/api/v1/namespaces/{}/{resource}{query}", self.namespace)
    }

    pub(crate) fn maps(&self, query: &str) -> String {
        self.core("configmaps", query)
    }

    pub(crate) fn map(&self, name: &str) -> String {
        self.core("configmaps", &format!("/{name}"))
    }

    /// Sends a GET, which must succeed, and returns its JSON.
    pub(crate) async fn read(&self, path: &str) -> anyhow::Result<Value> {
        self.http.get(path).send().await?.expect(200)?.json()
    }

    pub(crate) async fn create_map(&self, name: &str, labels: &[(&str, &str)]) -> anyhow::Result<Value> {
        self.http.post(&self.maps(""), &config_map(name, labels)).send().await?.expect(201)?.json()
    }

    /// Sets `data.step` of a ConfigMap by a merge patch to the target.
    pub(crate) async fn change_map(&self, name: &str, step: &str) -> anyhow::Result<Value> {
        let patch = json!({"data": {"step": step}});
        self.http.patch(&self.map(name), "merge-patch+json", &patch).send().await?.expect(200)?.json()
    }

    pub(crate) async fn delete_map(&self, name: &str) -> anyhow::Result<HttpResponse> {
        self.http.delete(&self.map(name)).send().await?.expect(200)
    }

    /// Creates ConfigMaps `map-00`, `map-01`, … directly in the members, and waits until the target lists all of them.
    /// Odd numbers have the label `parity=odd`, and even numbers `parity=even`.
    pub(crate) async fn seed_maps(&self, count: usize) -> anyhow::Result<Vec<String>> {
        let mut names = Vec::new();
        for index in 0..count {
            let name = format!("map-{index:02}");
            let parity = if index % 2 == 1 { "odd" } else { "even" };
            // Two consecutive objects go to the same member, so that each member has both parities.
            let member = &self.members[(index / 2) % self.members.len()];
            let object = config_map(&name, &[("parity", parity)]);
            member.http().post(&self.maps(""), &object).send().await?.expect(201)?;
            names.push(name);
        }
        let expected: BTreeSet<String> = names.iter().cloned().collect();
        eventually(SOON, async || {
            let shown: BTreeSet<String> = names_of(&self.read(&self.maps("")).await?).into_iter().collect();
            ensure!(shown == expected, "{shown:?} instead of {expected:?}");
            Ok(())
        })
        .await?;
        Ok(names)
    }

    /// Sorts the names from [`Target::seed_maps`] in the order of the target's lists.
    pub(crate) fn in_list_order(&self, names: &[String]) -> Vec<String> {
        if !self.differs(&ORDER_BY_CLUSTER) {
            return names.to_vec();
        }
        let mut keyed: Vec<(usize, String)> = names
            .iter()
            .map(|name| {
                let index: usize = name.trim_start_matches("map-").parse().unwrap_or_default();
                ((index / 2) % self.members.len(), name.clone())
            })
            .collect();
        keyed.sort();
        keyed.into_iter().map(|(_, name)| name).collect()
    }

    /// Returns a version that is later than every version during the test.
    pub(crate) fn future(&self, version: &str) -> anyhow::Result<String> {
        if self.kind == Kind::Bare {
            return Ok((version.parse::<u64>().context("a native version is a number")? + AHEAD).to_string());
        }
        let ahead: BTreeMap<String, String> = vector(version)?
            .into_iter()
            .map(|(cluster, native)| Ok((cluster, ahead_of(&native)?)))
            .collect::<anyhow::Result<_>>()?;
        Ok(URL_SAFE_NO_PAD.encode(serde_json::to_vec(&ahead).context("encode the vector")?))
    }

    /// Returns the compact form of a version, as a server of many clusters sends it. An integer version is returned
    /// unchanged.
    pub(crate) async fn compact(&self, version: &str) -> anyhow::Result<String> {
        if version.parse::<u64>().is_ok() {
            return Ok(version.to_owned());
        }
        let mut clusters = BTreeMap::new();
        for member in &self.members {
            let namespace = member.http().get("/api/v1/namespaces/kube-system").send().await?.expect(200)?.json()?;
            let uid = namespace["metadata"]["uid"].as_str().context("kube-system without a uid")?;
            clusters.insert(member.name().to_owned(), uid.to_owned());
        }
        compact::encode(&vector(version)?, &clusters).with_context(|| format!("{version} has a cluster of no member"))
    }

    /// Returns a kubectl that connects directly to the first member.
    pub(crate) fn kubectl_of_the_member(&self) -> anyhow::Result<Kubectl> {
        Kubectl::new(&self.tools, &self.members[0].kubeconfig())
    }

    pub(crate) async fn watch_maps(&self, query: &str) -> anyhow::Result<EventStream> {
        self.http.watch(&self.maps(&format!("?watch=true&{query}"))).await
    }

    /// Removes the annotation that Tributary adds, so that the object can be compared with the member's object.
    pub(crate) fn without_cluster_annotation(&self, mut object: Value) -> Value {
        if let Some(annotations) = object["metadata"]["annotations"].as_object_mut() {
            annotations.remove("tributary.dev/cluster");
            if annotations.is_empty() {
                object["metadata"].as_object_mut().map(|metadata| metadata.remove("annotations"));
            }
        }
        object
    }
}

/// Decodes the long form of a composite version to the component of each cluster. A component is a revision, optionally
/// followed by `-` and more parts.
pub(crate) fn vector(version: &str) -> anyhow::Result<BTreeMap<String, String>> {
    let bytes = URL_SAFE_NO_PAD.decode(version).with_context(|| format!("{version} is not base64url"))?;
    serde_json::from_slice(&bytes).with_context(|| format!("{version} is not a vector"))
}

/// Number that is added to a revision to get a future revision. No member makes so many writes during a test.
const AHEAD: u64 = 1_000_000;

/// Returns the revision at the beginning of a component.
pub(crate) fn revision(component: &str) -> anyhow::Result<u64> {
    let revision = component.split_once('-').map_or(component, |(revision, _)| revision);
    revision.parse().with_context(|| format!("{component} has no revision"))
}

fn ahead_of(component: &str) -> anyhow::Result<String> {
    Ok((revision(component)? + AHEAD).to_string())
}

pub(crate) fn config_map(name: &str, labels: &[(&str, &str)]) -> Value {
    let labels: Map<String, Value> = labels.iter().map(|(key, value)| ((*key).to_owned(), json!(value))).collect();
    json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": name, "labels": labels},
        "data": {"step": "0"},
    })
}

/// A pod that no kubelet runs, because its node does not exist.
pub(crate) fn pod(name: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "labels": {"app": name}},
        "spec": {"nodeName": "no-such-node", "containers": [{"name": "main", "image": "example.test/main:1"}]},
    })
}

pub(crate) fn deployment(name: &str) -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": name},
        "spec": {
            "replicas": 0,
            "selector": {"matchLabels": {"app": name}},
            "template": {
                "metadata": {"labels": {"app": name}},
                "spec": {"containers": [{"name": "main", "image": "example.test/main:1"}]},
            },
        },
    })
}

/// Names of the items of a list, in order.
pub(crate) fn names_of(list: &Value) -> Vec<String> {
    let items = list["items"].as_array().map(Vec::as_slice).unwrap_or_default();
    items.iter().map(|item| item["metadata"]["name"].as_str().unwrap_or_default().to_owned()).collect()
}

pub(crate) fn version_of(object: &Value) -> String {
    object["metadata"]["resourceVersion"].as_str().unwrap_or_default().to_owned()
}

/// Returns the type, name and `data.step` of an event.
pub(crate) fn summary(event: &Value) -> (String, String, String) {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let object = &event["object"];
    (text(&event["type"]), text(&object["metadata"]["name"]), text(&object["data"]["step"]))
}

/// Returns whether the event is the bookmark that ends the initial events.
pub(crate) fn ends_initial_events(event: &Value) -> bool {
    event["type"] == "BOOKMARK" && event["object"]["metadata"]["annotations"]["k8s.io/initial-events-end"] == "true"
}

pub(crate) fn assert_status(
    answer: &HttpResponse,
    code: u16,
    reason: Option<&str>,
    message: &str,
) -> anyhow::Result<Value> {
    let status = answer.json()?;
    ensure!(answer.status.as_u16() == code, "{}: {} instead of {code}: {status}", answer.request, answer.status);
    ensure!(status["kind"] == "Status" && status["apiVersion"] == "v1", "not a Status: {status}");
    ensure!(status["status"] == "Failure" && status["code"] == code, "not this failure: {status}");
    if let Some(reason) = reason {
        ensure!(status["reason"] == reason, "reason {} instead of {reason}: {status}", status["reason"]);
    }
    let said = status["message"].as_str().unwrap_or_default();
    if !said.contains(message) {
        bail!("{}: message {said:?} lacks {message:?}", answer.request);
    }
    Ok(status)
}
