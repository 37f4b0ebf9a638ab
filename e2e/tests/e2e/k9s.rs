//! What is shipped for k9s, which itself is not run here: its module cannot be had. `faults` has its sequence of requests.

use crate::context::{Case, TestContext, cases};
use anyhow::{Context, ensure};
use serde::Deserialize;
use std::{collections::BTreeMap, fs, path::Path};

pub(crate) fn cases() -> Vec<Case> {
    cases!["k9s"; shipped_views_have_a_cluster_column]
}

/// `views.yaml`, as k9s reads it (`internal/config/views.go`).
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Shipped {
    views: BTreeMap<String, View>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct View {
    columns: Vec<String>,
}

/// k9s reads the expression of a column as kubectl does (`get.RelaxedJSONPathExpression`), which shows it here.
async fn shipped_views_have_a_cluster_column(context: TestContext) -> anyhow::Result<()> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy/k9s/views.yaml");
    let text = fs::read_to_string(&path).with_context(|| format!("read {}", path.display()))?;
    let shipped: Shipped = serde_saphyr::from_str(&text)?;
    ensure!(shipped.views.contains_key("v1/pods"), "no pods");
    let tributary = context.fixture.over_two().await?;
    let kubectl = tributary.kubectl(context.fixture.tools().await?)?;
    let discovered = kubectl.ok(&["api-resources", "-o", "name", "--verbs=list"]).await?;
    for (kind, View { columns }) in &shipped.views {
        let parts: Vec<&str> = kind.split('/').collect();
        let (resource, full) = match parts[..] {
            [version, resource] => (resource.to_owned(), format!("{resource}.{version}.")),
            [group, version, resource] => (format!("{resource}.{group}"), format!("{resource}.{version}.{group}")),
            _ => anyhow::bail!("{kind} is no kind"),
        };
        ensure!(discovered.lines().any(|line| line == resource), "{resource} is not served");
        ensure!(columns.contains(&"NAME".to_owned()) && columns.contains(&"AGE".to_owned()), "{kind}: {columns:?}");
        let cluster = columns.first().filter(|first| first.starts_with("CLUSTER:"));
        let cluster = cluster.with_context(|| format!("{kind}: the first column is not the cluster"))?;
        let shown = kubectl.ok(&["get", &full, "-A", "-o", &format!("custom-columns={cluster}")]).await?;
        let mut lines = shown.lines();
        ensure!(lines.next() == Some("CLUSTER"), "{kind}: {shown}");
        ensure!(lines.all(|line| ["member1", "member2"].contains(&line)), "{kind}: {shown}");
        // Each of these has some.
        let has_some = ["v1/nodes", "v1/namespaces", "v1/configmaps"].contains(&&**kind);
        ensure!(!has_some || shown.lines().count() > 2, "{kind}: {shown}");
    }
    Ok(())
}
