//! Tests custom resources with an account that may read the resources but not their CustomResourceDefinition.

use crate::context::{Case, TestContext, cases, eventually};
use anyhow::{Context, ensure};
use serde_json::{Value, json};
use std::time::Duration;
use tributary_e2e::{Access, HttpClient, TestCluster, Tributary, guard, kubeconfig};

const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io";
const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";
const SOON: Duration = Duration::from_secs(60);

pub(crate) fn cases() -> Vec<Case> {
    cases!["unreadable_definitions";
        printer_columns_and_field_selectors_work_without_readable_definitions,
        printer_columns_work_for_an_account_of_one_namespace,
    ]
}

/// Custom resource in a separate API group, and an account of the first member that may read it.
struct Bars {
    group: String,
    namespace: String,
    access: Access,
}

impl Bars {
    /// Creates the custom resource and the account. The account may read the resource in all namespaces if `is_whole`
    /// is true, and otherwise in one namespace.
    async fn new(context: &TestContext, member: &TestCluster, is_whole: bool) -> anyhow::Result<Self> {
        let members = context.fixture.pair().await?.clone();
        let namespace = context.namespace("bars", &members).await?;
        let group = format!("{namespace}.example.com");
        let http = member.http();
        http.post(DEFINITIONS, &definition(&group)).send().await?.expect(201)?;
        let path = format!("/apis/{group}/v1/namespaces/{namespace}/bars");
        for (name, colour) in [("one", "red"), ("two", "blue")] {
            let bar = json!({"apiVersion": format!("{group}/v1"), "kind": "Bar", "metadata": {"name": name},
                "spec": {"colour": colour, "size": 1}});
            eventually(SOON, async || http.post(&path, &bar).send().await?.expect(201).map(drop)).await?;
        }
        let accounts = format!("/api/v1/namespaces/{namespace}/serviceaccounts");
        let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "small"}});
        http.post(&accounts, &account).send().await?.expect(201)?;
        let place = if is_whole { String::new() } else { format!("/namespaces/{namespace}") };
        let (role, binding) =
            if is_whole { ("clusterroles", "clusterrolebindings") } else { ("roles", "rolebindings") };
        let rules = json!([{"apiGroups": [group, ""], "resources": ["bars", "namespaces"],
            "verbs": ["get", "list", "watch"]}]);
        let made = json!({"metadata": {"name": group}, "rules": rules});
        http.post(&format!("{RBAC}{place}/{role}"), &made).send().await?.expect(201)?;
        let kind = if is_whole { "ClusterRole" } else { "Role" };
        let made = json!({"metadata": {"name": group},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": group},
            "subjects": [{"kind": "ServiceAccount", "name": "small", "namespace": namespace}]});
        http.post(&format!("{RBAC}{place}/{binding}"), &made).send().await?.expect(201)?;
        let request = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}});
        let token = http.post(&format!("{accounts}/small/token"), &request).send().await?.expect(201)?.json()?;
        let token = token["status"]["token"].as_str().context("no token")?.to_owned();
        Ok(Self { group, namespace, access: Access { token, ..member.access() } })
    }

    fn path(&self) -> String {
        format!("/apis/{}/v1/namespaces/{}/bars", self.group, self.namespace)
    }

    /// Lists a Table. Returns its columns and its first row.
    async fn shown(&self, http: &HttpClient, query: &str) -> anyhow::Result<(Vec<String>, Value)> {
        let path = format!("{}{query}", self.path());
        let table = http.get(&path).accept(TABLE).send().await?.expect(200)?.json()?;
        let columns = table["columnDefinitions"].as_array().context("no columns")?;
        let names = columns.iter().filter_map(|column| column["name"].as_str().map(str::to_owned)).collect();
        Ok((names, table["rows"][0]["cells"].clone()))
    }

    /// Starts a Tributary that connects to the member with the account.
    async fn serve(&self, member: &str) -> anyhow::Result<(Tributary, tempfile::TempDir)> {
        let folder = guard::temporary_folder("bars")?;
        let path = folder.path().join("kubeconfig");
        kubeconfig::write(&path, &[&self.access])?;
        Ok((Tributary::builder(&path, [member]).start().await?, folder))
    }

    async fn remove(&self, member: &TestCluster) {
        for path in [
            format!("{DEFINITIONS}/bars.{}", self.group),
            format!("{RBAC}/clusterroles/{}", self.group),
            format!("{RBAC}/clusterrolebindings/{}", self.group),
        ] {
            // The test removes only these objects. All other objects disappear with their member at the end of the run.
            let _gone = member.http().delete(&path).send().await;
        }
    }
}

fn definition(group: &str) -> Value {
    let column = |name: &str, kind: &str, path: &str| json!({"name": name, "type": kind, "jsonPath": path});
    let mut described = column("Size", "integer", ".spec.size");
    described["description"] = "How large it is.".into();
    let columns =
        [column("Colour", "string", ".spec.colour"), described, column("Age", "date", ".metadata.creationTimestamp")];
    let properties = json!({"colour": {"type": "string"}, "size": {"type": "integer"}});
    let schema = json!({"type": "object", "properties": {"spec": {"type": "object", "properties": properties}}});
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("bars.{group}")},
        "spec": {
            "group": group, "scope": "Namespaced", "names": {"plural": "bars", "singular": "bar", "kind": "Bar"},
            "versions": [{
                "name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema},
                "selectableFields": [{"jsonPath": ".spec.colour"}], "additionalPrinterColumns": columns,
            }],
        },
    })
}

async fn printer_columns_and_field_selectors_work_without_readable_definitions(
    context: TestContext,
) -> anyhow::Result<()> {
    check(&context, true).await
}

async fn printer_columns_work_for_an_account_of_one_namespace(context: TestContext) -> anyhow::Result<()> {
    check(&context, false).await
}

async fn check(context: &TestContext, is_whole: bool) -> anyhow::Result<()> {
    let member = &context.fixture.pair().await?[0];
    let bars = Bars::new(context, member, is_whole).await?;
    let outcome = check_shown(context, &bars, member.name()).await;
    bars.remove(member).await;
    outcome
}

async fn check_shown(context: &TestContext, bars: &Bars, member: &str) -> anyhow::Result<()> {
    let direct = HttpClient::from_access(&bars.access).await?;
    let refused = direct.get(&format!("{DEFINITIONS}/bars.{}", bars.group)).send().await?;
    ensure!(refused.status == 403, "the account may read the definition: {}", refused.text());
    let (columns, _) = bars.shown(&direct, "").await?;
    ensure!(columns == ["Name", "Colour", "Size", "Age"], "{columns:?}");
    let (tributary, _folder) = bars.serve(member).await?;
    let tributary = context.fixture.watch_log(tributary).await;
    let http = tributary.http().await?;
    eventually(SOON, async || {
        // The Table has no column Size, because only the CustomResourceDefinition has its JSONPath.
        let (columns, cells) = bars.shown(&http, "").await?;
        ensure!(columns == ["Name", "Cluster", "Colour", "Age"], "{columns:?}");
        ensure!([&cells[0], &cells[1], &cells[2]] == ["one", member, "red"], "{cells}");
        let (_, cells) = bars.shown(&http, "?fieldSelector=spec.colour%3Dblue").await?;
        ensure!(cells[0] == "two", "{cells}");
        Ok(())
    })
    .await
}
