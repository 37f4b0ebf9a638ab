//! Compares Tables cell by cell. The test creates the samples of the crate `printers` in a member, and compares
//! Tributary's Tables with the member's Tables.

use crate::context::{Case, TestContext, cases, eventually};
use anyhow::{Context, bail, ensure};
use serde_json::{Value, json};
use std::{
    collections::{BTreeMap, HashMap},
    fs,
    path::Path,
    sync::atomic::{AtomicUsize, Ordering},
    time::Duration,
};
use tributary_e2e::{HttpClient, TestCluster, Tributary};

const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io";
const AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";

/// Smallest number of kinds with rows. With fewer kinds, the creation of the samples has failed, and the comparison
/// proves nothing.
const FEWEST_KINDS: usize = 40;

pub(crate) fn cases() -> Vec<Case> {
    cases!["tables"; tables_of_all_sample_objects_equal_the_members_tables]
}

#[derive(Clone, Debug)]
struct Resource {
    path: String,
    name: String,
    namespaced: bool,
    has_status: bool,
}

async fn tables_of_all_sample_objects_equal_the_members_tables(context: TestContext) -> anyhow::Result<()> {
    let _permit = context.fixture.own_members.acquire().await?;
    let tools = context.fixture.tools().await?;
    // The samples include webhooks and policies, which would affect the writes of other tests. The test therefore
    // starts a separate member.
    let member =
        TestCluster::builder("printed").apiserver_argument("--runtime-config=api/all=true").start(tools).await?;
    let created = create_samples(member.http()).await?;
    let tributary = Tributary::builder(&member.kubeconfig(), ["printed"]).start().await?;
    let tributary = context.fixture.watch_log(tributary).await;
    let http = tributary.http().await?;

    let mut compared = 0;
    let mut wrong = Vec::new();
    for resource in resources(member.http()).await?.into_values() {
        let path = format!("{}/{}", resource.path, resource.name);
        match compare(member.http(), &http, &path).await {
            Ok(rows) => compared += usize::from(rows > 0),
            Err(error) => wrong.push(format!("{path}: {error:#}")),
        }
    }
    ensure!(wrong.is_empty(), "{} of {} tables differ:\n{}", wrong.len(), compared + wrong.len(), wrong.join("\n"));
    ensure!(compared >= FEWEST_KINDS, "{created} samples created, but only {compared} tables have rows");
    Ok(())
}

/// Compares both Tables of a path until they agree. They may differ at first, because the ages of objects change
/// between the two requests.
async fn compare(member: &HttpClient, tributary: &HttpClient, path: &str) -> anyhow::Result<usize> {
    let rows = AtomicUsize::new(0);
    eventually(Duration::from_secs(60), async || {
        let own = member.get(path).accept(TABLE).send().await?.expect(200)?.json()?;
        let shown = tributary.get(path).accept(TABLE).send().await?.expect(200)?.json()?;
        rows.store(compare_tables(&own, &shown)?, Ordering::Relaxed);
        Ok(())
    })
    .await?;
    Ok(rows.into_inner())
}

fn rows_by_key(table: &Value, cluster_column: Option<usize>) -> anyhow::Result<BTreeMap<String, (Vec<Value>, Value)>> {
    let rows = table["rows"].as_array().context("no rows")?;
    rows.iter()
        .map(|row| {
            let mut cells = row["cells"].as_array().cloned().context("no cells")?;
            if let Some(index) = cluster_column {
                ensure!(cells.get(index) == Some(&json!("printed")), "cluster cell of {cells:?}");
                cells.remove(index);
            }
            let metadata = &row["object"]["metadata"];
            Ok((format!("{}/{}", metadata["namespace"], metadata["name"]), (cells, row["conditions"].clone())))
        })
        .collect()
}

fn compare_tables(own: &Value, shown: &Value) -> anyhow::Result<usize> {
    let mut columns = shown["columnDefinitions"].as_array().cloned().context("no columns")?;
    ensure!(columns.len() > 1 && columns[1]["name"] == "Cluster", "the second column is no cluster: {columns:?}");
    columns.remove(1);
    let own_columns = own["columnDefinitions"].as_array().context("no columns")?;
    for (ours, theirs) in columns.iter().zip(own_columns) {
        for field in ["name", "type", "format", "priority"] {
            ensure!(
                ours[field] == theirs[field],
                "column {}: {field} {} instead of {}",
                theirs["name"],
                ours[field],
                theirs[field]
            );
        }
    }
    ensure!(columns.len() == own_columns.len(), "{} columns instead of {}", columns.len(), own_columns.len());
    let (own_rows, rows) = (rows_by_key(own, None)?, rows_by_key(shown, Some(1))?);
    for (key, (cells, conditions)) in &own_rows {
        let (ours, our_conditions) = rows.get(key).with_context(|| format!("no row of {key}"))?;
        for (index, (ours, theirs)) in ours.iter().zip(cells).enumerate() {
            // A row may have more cells than the Table has columns. The message then has no column name.
            let column = own_columns.get(index).map_or(&Value::Null, |column| &column["name"]);
            ensure!(ours == theirs, "{key}: {column} is {ours} instead of {theirs}");
        }
        ensure!(
            ours.len() == cells.len() && our_conditions == conditions,
            "{key}: {our_conditions} instead of {conditions}"
        );
    }
    ensure!(rows.len() == own_rows.len(), "{} rows instead of {}", rows.len(), own_rows.len());
    Ok(rows.len())
}

/// Returns the resources of a member that can be listed, by group, version and kind.
async fn resources(member: &HttpClient) -> anyhow::Result<HashMap<(String, String), Resource>> {
    let mut found = HashMap::new();
    for (root, document) in [
        ("/api", member.get("/api").accept(AGGREGATED).send().await?.expect(200)?.json()?),
        ("/apis", member.get("/apis").accept(AGGREGATED).send().await?.expect(200)?.json()?),
    ] {
        for group in document["items"].as_array().into_iter().flatten() {
            let group_name = group["metadata"]["name"].as_str().unwrap_or_default();
            for version in group["versions"].as_array().into_iter().flatten() {
                let version_name = version["version"].as_str().unwrap_or_default();
                let (api_version, path) = if group_name.is_empty() {
                    (version_name.to_owned(), format!("{root}/{version_name}"))
                } else {
                    (format!("{group_name}/{version_name}"), format!("{root}/{group_name}/{version_name}"))
                };
                for resource in version["resources"].as_array().into_iter().flatten() {
                    let verbs = resource["verbs"].as_array().cloned().unwrap_or_default();
                    if !verbs.contains(&json!("list")) || !verbs.contains(&json!("watch")) {
                        continue;
                    }
                    let subresources = resource["subresources"].as_array().cloned().unwrap_or_default();
                    let kind = resource["responseKind"]["kind"].as_str().unwrap_or_default().to_owned();
                    let entry = Resource {
                        path: path.clone(),
                        name: resource["resource"].as_str().unwrap_or_default().to_owned(),
                        namespaced: resource["scope"] == "Namespaced",
                        has_status: subresources.iter().any(|subresource| subresource["subresource"] == "status"),
                    };
                    found.insert((api_version.clone(), kind), entry);
                }
            }
        }
    }
    Ok(found)
}

/// Creates every sample that the server accepts, and sets its status. Returns the number of created samples.
async fn create_samples(member: &HttpClient) -> anyhow::Result<usize> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../printers/testdata/samples");
    let mut files: Vec<_> = fs::read_dir(&folder)
        .with_context(|| format!("read {}", folder.display()))?
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| path.extension().is_some_and(|extension| extension == "json"))
        .collect();
    // Webhooks and policies come last, because they would affect later writes.
    files.sort_by_key(|path| {
        let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        (
            name.contains("webhook")
                || name.contains("policies")
                || name.contains("quota")
                || name.contains("limitrange"),
            name,
        )
    });
    let mut created = 0;
    let mut known = resources(member).await?;
    for file in files {
        let text = fs::read_to_string(&file).with_context(|| format!("read {}", file.display()))?;
        let list: Value = serde_json::from_str(&text).with_context(|| format!("read {}", file.display()))?;
        if file.ends_with("customresources.json") {
            known = with_custom_resources(member).await?;
        }
        for object in list["items"].as_array().into_iter().flatten() {
            created += usize::from(create(member, &known, object).await?);
        }
    }
    Ok(created)
}

/// Waits until the server serves the samples' custom resources, and returns [`resources`].
async fn with_custom_resources(member: &HttpClient) -> anyhow::Result<HashMap<(String, String), Resource>> {
    eventually(Duration::from_secs(60), async || {
        let known = resources(member).await?;
        ensure!(known.keys().any(|(version, _)| version.starts_with("printers.tributary.dev/")), "not served yet");
        Ok(())
    })
    .await?;
    resources(member).await
}

/// Creates an object, and returns whether the server accepted it. A sample that the server rejects is in neither Table.
async fn create(
    member: &HttpClient,
    known: &HashMap<(String, String), Resource>,
    object: &Value,
) -> anyhow::Result<bool> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let Some(resource) = known.get(&(text(&object["apiVersion"]), text(&object["kind"]))) else { return Ok(false) };
    let namespace = object["metadata"]["namespace"].as_str().unwrap_or("default");
    let collection = if resource.namespaced {
        format!("{}/namespaces/{namespace}/{}", resource.path, resource.name)
    } else {
        format!("{}/{}", resource.path, resource.name)
    };
    let answer = member.post(&collection, object).send().await?;
    if answer.status.is_server_error() {
        bail!("{collection}: {}", answer.text());
    }
    if !answer.status.is_success() {
        return Ok(false);
    }
    if resource.has_status && object["status"].is_object() {
        let mut with_status = answer.json()?;
        with_status["status"] = object["status"].clone();
        let path = format!("{collection}/{}/status", text(&object["metadata"]["name"]));
        let _a_status_it_refuses_is_missing_in_both = member.put(&path, &with_status).send().await?;
    }
    Ok(true)
}
