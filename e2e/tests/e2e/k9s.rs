//! Tests the views file for k9s that Tributary ships, and the requests of k9s while a member is down. The module
//! `hub::clients` runs k9s itself.

use crate::context::{Case, TestContext, cases, eventually};
use crate::victim::{Harm, Victim};
use anyhow::{Context, ensure};
use serde::Deserialize;
use serde_json::{Value, json};
use std::{collections::BTreeMap, fs, path::Path, time::Duration};
use tributary_e2e::{EventStream, HttpClient};

const SOON: Duration = Duration::from_secs(60);

pub(crate) fn cases() -> Vec<Case> {
    let harmed = Harm::ALL.map(|(harm, word)| {
        Case::new(format!("k9s::k9s_views_open_and_continue_while_a_member_is_{word}"), move |context| {
            views(context, harm)
        })
    });
    cases!["k9s"; shipped_k9s_views_have_a_cluster_column].into_iter().chain(harmed).collect()
}

/// Contents of the file `views.yaml` in the structure that k9s reads (`internal/config/views.go`).
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Shipped {
    views: BTreeMap<String, View>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct View {
    columns: Vec<String>,
    #[serde(rename = "sortColumn")]
    sort_column: String,
}

/// k9s parses a column's expression in the same way as kubectl (`get.RelaxedJSONPathExpression`), so the test checks
/// the expressions with kubectl.
async fn shipped_k9s_views_have_a_cluster_column(context: TestContext) -> anyhow::Result<()> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy/k9s/views.yaml");
    let text = fs::read_to_string(&path).with_context(|| format!("read {}", path.display()))?;
    let shipped: Shipped = serde_saphyr::from_str(&text)?;
    ensure!(shipped.views.contains_key("v1/pods"), "no pods");
    let tributary = context.fixture.over_two().await?;
    let kubectl = tributary.kubectl(context.fixture.tools().await?)?;
    let discovered = kubectl.ok(&["api-resources", "-o", "name", "--verbs=list"]).await?;
    for (kind, View { columns, sort_column }) in &shipped.views {
        let parts: Vec<&str> = kind.split('/').collect();
        let (resource, full) = match parts[..] {
            [version, resource] => (resource.to_owned(), format!("{resource}.{version}.")),
            [group, version, resource] => (format!("{resource}.{group}"), format!("{resource}.{version}.{group}")),
            _ => anyhow::bail!("{kind} is no kind"),
        };
        ensure!(discovered.lines().any(|line| line == resource), "{resource} is not served");
        ensure!(columns.contains(&"NAME".to_owned()) && columns.contains(&"AGE".to_owned()), "{kind}: {columns:?}");
        let (sorted_by, order) = sort_column.split_once(':').with_context(|| format!("{kind}: {sort_column}"))?;
        ensure!(columns.iter().any(|column| column == sorted_by) && order == "asc", "{kind}: {sort_column}");
        let cluster = columns.first().filter(|first| first.starts_with("CLUSTER:"));
        let cluster = cluster.with_context(|| format!("{kind}: the first column is not the cluster"))?;
        let shown = kubectl.ok(&["get", &full, "-A", "-o", &format!("custom-columns={cluster}")]).await?;
        let mut lines = shown.lines();
        ensure!(lines.next() == Some("CLUSTER"), "{kind}: {shown}");
        ensure!(lines.all(|line| ["member1", "member2"].contains(&line)), "{kind}: {shown}");
        // Every cluster has objects of these kinds, so kubectl must print lines for at least two objects.
        let has_some = ["v1/nodes", "v1/namespaces", "v1/configmaps"].contains(&&**kind);
        ensure!(!has_some || shown.lines().count() > 2, "{kind}: {shown}");
    }
    Ok(())
}

/// First views of k9s. Each has a group and a resource, and true if the resource is namespaced.
pub(crate) const VIEWS: [(&str, &str, bool); 6] = [
    ("", "namespaces", false),
    ("", "nodes", false),
    ("", "configmaps", true),
    ("", "pods", true),
    ("apps", "deployments", true),
    ("apiextensions.k8s.io", "customresourcedefinitions", false),
];

/// Media types with which k9s requests a Table (`internal/dao/table.go`).
const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json";

/// View of k9s. Before k9s shows a view, it reviews the user's rights, lists a Table, and opens a watch.
pub(crate) struct Opened<'a> {
    pub(crate) http: &'a HttpClient,
    pub(crate) group: &'a str,
    pub(crate) resource: &'a str,
    pub(crate) namespace: Option<&'a str>,
}

impl Opened<'_> {
    fn path(&self) -> String {
        let root = if self.group.is_empty() { "/api/v1".to_owned() } else { format!("/apis/{}/v1", self.group) };
        let namespace = self.namespace.map(|name| format!("/namespaces/{name}")).unwrap_or_default();
        format!("{root}{namespace}/{}", self.resource)
    }

    /// Sends an access review for each verb that k9s uses. All must be allowed. If `missing` names a cluster, the
    /// review must report it as unreachable.
    async fn allowed(&self, missing: Option<&str>) -> anyhow::Result<()> {
        for verb in ["list", "watch", "get"] {
            let attributes =
                json!({"group": self.group, "resource": self.resource, "verb": verb, "namespace": self.namespace});
            let review = json!({
                "apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview",
                "spec": {"resourceAttributes": attributes},
            });
            let path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
            let status = self.http.post(path, &review).send().await?.expect(201)?.json()?["status"].take();
            let error = status["evaluationError"].as_str().unwrap_or_default();
            let is_said = missing.map_or(error.is_empty(), |missing| error.contains(missing));
            ensure!(status["allowed"] == true && is_said, "{verb} {}: {status}", self.resource);
        }
        Ok(())
    }

    /// Lists the Table of the view. Returns the Table, its version, and the Warning in the response.
    async fn table(&self) -> anyhow::Result<(Value, String, String)> {
        let answer = self.http.get(&self.path()).header("accept", TABLE).send().await?.expect(200)?;
        let (table, warning) = (answer.json()?, answer.header("warning").to_owned());
        ensure!(table["kind"] == "Table", "{}: {table}", self.resource);
        let version = table["metadata"]["resourceVersion"].as_str().context("no version")?.to_owned();
        Ok((table, version, warning))
    }

    /// Sends the requests with which k9s opens the view, including its watch.
    pub(crate) async fn open(&self, missing: Option<&str>) -> anyhow::Result<(Vec<String>, EventStream)> {
        self.allowed(missing).await?;
        let (table, version, warning) = self.table().await?;
        let is_said = missing.map_or(warning.is_empty(), |missing| warning.contains(missing));
        ensure!(is_said, "{}: a Warning of {warning:?}", self.resource);
        let stream = self.http.watch(&format!("{}?watch=true&resourceVersion={version}", self.path())).await?;
        Ok((names(&table), stream))
    }
}

fn names(table: &Value) -> Vec<String> {
    let rows = table["rows"].as_array().into_iter().flatten();
    let name = |row: &Value| row["object"]["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    let mut names: Vec<_> = rows.map(name).filter(|name| name != "kube-root-ca.crt").collect();
    names.sort();
    names
}

/// Returns the type and object name of the next event of a view.
pub(crate) async fn next(stream: &mut EventStream) -> anyhow::Result<(String, String)> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    loop {
        let event = stream.expect(SOON).await?;
        let name = text(&event["object"]["metadata"]["name"]);
        if event["type"] != "BOOKMARK" && name != "kube-root-ca.crt" {
            return Ok((text(&event["type"]), name));
        }
    }
}

/// A view that is open before the fault must continue. All other views must open with the last objects that Tributary
/// received from the member, and with a Warning. Writes to objects of the harmed member must be refused with the
/// member's name, and writes to the healthy member must succeed.
async fn views(context: TestContext, harm: Harm) -> anyhow::Result<()> {
    let _permit = context.fixture.own_members.acquire().await?;
    let own = Victim::start(&context, &[]).await?;
    let namespace = context.namespace("k9s", &[own.member.clone(), own.other.clone()]).await?;
    let http = own.tributary.http().await?;
    let maps = format!("/api/v1/namespaces/{namespace}/configmaps");
    let map = |name: &str| json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}});
    for (member, name) in [(&own.member, "theirs"), (&own.member, "doomed"), (&own.other, "others")] {
        member.http().post(&maps, &map(name)).send().await?.expect(201)?;
    }
    let view = |(group, resource, is_namespaced): (&'static str, &'static str, bool)| {
        let namespace = is_namespaced.then_some(namespace.as_str());
        Opened { http: &http, group, resource, namespace }
    };
    for (group, resource, is_namespaced) in VIEWS {
        view((group, resource, is_namespaced)).open(None).await?;
    }
    let shown = view(VIEWS[2]);
    eventually(SOON, async || {
        let (table, ..) = shown.table().await?;
        ensure!(names(&table) == ["doomed", "others", "theirs"], "{table}");
        Ok(())
    })
    .await?;
    let (_, mut stream) = shown.open(None).await?;

    own.suffer(harm).await?;
    let checked = async {
        for (group, resource, is_namespaced) in VIEWS {
            eventually(SOON, async || view((group, resource, is_namespaced)).open(Some("victim")).await.map(drop))
                .await?;
        }
        let (rows, _) = shown.open(Some("victim")).await?;
        ensure!(rows == ["doomed", "others", "theirs"], "{rows:?}");
        own.other.http().post(&maps, &map("later")).send().await?.expect(201)?;
        ensure!(next(&mut stream).await? == ("ADDED".to_owned(), "later".to_owned()), "another event");
        let label = json!({"metadata": {"labels": {"a": "b"}}});
        let patch = async |name: &str| http.patch(&format!("{maps}/{name}"), "merge-patch+json", &label).send().await;
        patch("others").await?.expect(200)?;
        ensure!(next(&mut stream).await? == ("MODIFIED".to_owned(), "others".to_owned()), "another event");
        let refused = patch("theirs").await?;
        ensure!(refused.status.is_server_error() && refused.text().contains("victim"), "{}", refused.text());
        ensure!(refused.header("retry-after").is_empty(), "k9s would wait, and ask again");
        anyhow::Ok(())
    }
    .await;
    own.recover(harm).await?;
    checked?;

    eventually(SOON, async || {
        own.member.http().delete(&format!("{maps}/doomed")).send().await?.expect(200)?;
        Ok(())
    })
    .await?;
    ensure!(next(&mut stream).await? == ("DELETED".to_owned(), "doomed".to_owned()), "another event");
    for (group, resource, is_namespaced) in VIEWS {
        eventually(SOON, async || view((group, resource, is_namespaced)).open(None).await.map(drop)).await?;
    }
    Ok(())
}
