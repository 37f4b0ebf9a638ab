//! Custom resources: the selectable fields and the printer columns of a definition.

use super::{
    Conformance,
    differences::CLUSTER_COLUMN,
    list::escape,
    target::{SOON, Target, assert_status, ends_initial_events, names_of, version_of},
    watch::{nothing_more, take},
};
use crate::context::eventually;
use anyhow::{Context, ensure};
use futures::future::BoxFuture;
use serde_json::{Value, json};
use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};
use tributary_e2e::HttpClient;

const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io";
const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

/// Longest time until all servers serve a new definition.
const SERVED: Duration = Duration::from_secs(60);

/// Number of events of a Table watch that [`change`] causes, both with and without the selector.
const CHANGES: usize = 5;

type Body = for<'a> fn(&'a Gauges) -> BoxFuture<'a, anyhow::Result<()>>;

const CASES: [(&str, Body); 8] = [
    ("custom_resources_are_listed_by_selectable_field", |gauges| {
        Box::pin(custom_resources_are_listed_by_selectable_field(gauges))
    }),
    ("field_selector_on_an_unsupported_custom_resource_field_is_400", |gauges| {
        Box::pin(field_selector_on_an_unsupported_custom_resource_field_is_400(gauges))
    }),
    ("custom_resources_are_watched_by_selectable_field", |gauges| {
        Box::pin(custom_resources_are_watched_by_selectable_field(gauges))
    }),
    ("initial_events_are_selected_by_a_custom_field", |gauges| {
        Box::pin(initial_events_are_selected_by_a_custom_field(gauges))
    }),
    ("custom_resource_table_has_the_members_columns", |gauges| {
        Box::pin(custom_resource_table_has_the_members_columns(gauges))
    }),
    ("custom_resource_table_omits_columns_from_the_first_invalid_jsonpath_on", |gauges| {
        Box::pin(custom_resource_table_omits_columns_from_the_first_invalid_jsonpath_on(gauges))
    }),
    ("custom_resource_table_watch_equals_the_members_watch", |gauges| {
        Box::pin(custom_resource_table_watch_equals_the_members_watch(gauges))
    }),
    ("custom_resource_table_watch_has_rows_of_all_members", |gauges| {
        Box::pin(custom_resource_table_watch_has_rows_of_all_members(gauges))
    }),
];

pub(super) fn cases() -> Vec<Conformance> {
    let case = |(name, body): (&str, Body)| {
        Conformance::new(format!("custom::{name}"), move |target| async move {
            let gauges = Gauges { group: format!("{}.example.com", target.namespace), target };
            let outcome = match gauges.define().await {
                Ok(()) => body(&gauges).await,
                Err(error) => Err(error),
            };
            // Removes the definition, because other tests share the members.
            gauges.remove().await;
            outcome
        })
    };
    CASES.into_iter().map(case).collect()
}

/// CustomResourceDefinition in an API group that only one case uses.
struct Gauges {
    target: Target,
    group: String,
}

impl Gauges {
    fn name(&self) -> String {
        format!("gauges.{}", self.group)
    }

    fn path(&self, query: &str) -> String {
        format!("/apis/{}/v1/namespaces/{}/gauges{query}", self.group, self.target.namespace)
    }

    fn one(&self, name: &str) -> String {
        self.path(&format!("/{name}"))
    }

    fn gauge(&self, name: &str, spec: &Value) -> Value {
        let labels = json!({"app": "meter"});
        json!({
            "apiVersion": format!("{}/v1", self.group), "kind": "Gauge",
            "metadata": {"name": name, "labels": labels}, "spec": spec,
        })
    }

    /// Creates the definition in every member, and waits until each member serves it.
    async fn define(&self) -> anyhow::Result<()> {
        let column = |name: &str, kind: &str, path: &str| json!({"name": name, "type": kind, "jsonPath": path});
        let mut columns = vec![
            column("Colour", "string", ".spec.colour"),
            column("Size", "integer", ".spec.size"),
            column("On", "boolean", ".spec.on"),
            column("Made", "date", ".spec.made"),
            column("Tags", "string", ".spec.tags[*]"),
            column("App", "string", ".metadata.labels.app"),
        ];
        columns.push(json!({"name": "Wide", "type": "string", "jsonPath": ".spec.colour", "priority": 1}));
        let properties = json!({
            "colour": {"type": "string"}, "size": {"type": "integer"}, "on": {"type": "boolean"},
            "made": {"type": "string"}, "tags": {"type": "array", "items": {"type": "string"}},
        });
        let schema = json!({"type": "object", "properties": {"spec": {"type": "object", "properties": properties}}});
        let selectable = [".spec.colour", ".spec.size", ".spec.on"].map(|path| json!({"jsonPath": path}));
        let definition = json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": self.name()},
            "spec": {
                "group": self.group, "scope": "Namespaced",
                "names": {"plural": "gauges", "singular": "gauge", "kind": "Gauge", "listKind": "GaugeList"},
                "versions": [{
                    "name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema},
                    "selectableFields": selectable, "additionalPrinterColumns": columns,
                }],
            },
        });
        for member in &self.target.members {
            member.http().post(DEFINITIONS, &definition).send().await?.expect(201)?;
        }
        for member in &self.target.members {
            eventually(SERVED, async || member.http().get(&self.path("")).send().await?.expect(200).map(drop)).await?;
        }
        Ok(())
    }

    async fn remove(&self) {
        for member in &self.target.members {
            let path = format!("{DEFINITIONS}/{}", self.name());
            // If the deletion fails, the definition disappears with its member at the end of the run.
            let _gone = member.http().delete(&path).send().await;
        }
    }

    /// Creates gauges alternately in the members, and waits until the target lists all of them.
    async fn seed(&self, gauges: &[(&str, Value)]) -> anyhow::Result<()> {
        for (index, (name, spec)) in gauges.iter().enumerate() {
            let member = &self.target.members[index % self.target.members.len()];
            member.http().post(&self.path(""), &self.gauge(name, spec)).send().await?.expect(201)?;
        }
        eventually(SERVED, async || {
            let shown = names_of(&self.target.read(&self.path("")).await?);
            ensure!(shown.len() == gauges.len(), "{shown:?}");
            Ok(())
        })
        .await
    }

    async fn change(&self, name: &str, spec: Value) -> anyhow::Result<Value> {
        let patch = json!({"spec": spec});
        self.target.http.patch(&self.one(name), "merge-patch+json", &patch).send().await?.expect(200)?.json()
    }
}

/// Gauges with fields of all types and with missing fields, for both members.
fn all_sorts() -> [(&'static str, Value); 6] {
    [
        ("red-1", json!({"colour": "red", "size": 1, "on": true})),
        ("red-2", json!({"colour": "red", "size": 2, "on": false})),
        ("blue-1", json!({"colour": "blue", "size": 1})),
        ("blue-12", json!({"colour": "blue", "size": 12, "on": true})),
        ("plain", json!({})),
        ("empty", json!({"colour": ""})),
    ]
}

async fn custom_resources_are_listed_by_selectable_field(gauges: &Gauges) -> anyhow::Result<()> {
    gauges.seed(&all_sorts()).await?;
    let rows: [(&str, &[&str]); 13] = [
        ("spec.colour=red", &["red-1", "red-2"]),
        ("spec.colour==blue", &["blue-1", "blue-12"]),
        ("spec.colour!=red", &["blue-1", "blue-12", "empty", "plain"]),
        // A selector treats a missing field as an empty string.
        ("spec.colour=", &["empty", "plain"]),
        ("spec.colour=green", &[]),
        ("spec.size=1", &["blue-1", "red-1"]),
        ("spec.size=01", &[]),
        ("spec.size!=1,spec.colour!=", &["blue-12", "red-2"]),
        ("spec.on=true", &["blue-12", "red-1"]),
        ("spec.on=false", &["red-2"]),
        ("metadata.name=red-1,spec.colour=red", &["red-1"]),
        ("metadata.name=red-1,spec.colour=blue", &[]),
        ("spec.colour=red,spec.colour=blue", &[]),
    ];
    for (selector, expected) in rows {
        let mut query = format!("?fieldSelector={}", escape(selector));
        let whole: BTreeSet<String> = names_of(&gauges.target.read(&gauges.path(&query)).await?).into_iter().collect();
        ensure!(whole.iter().eq(expected), "{selector}: {whole:?} instead of {expected:?}");
        // A list in pages must have the same objects as a list without pages.
        let mut paged = BTreeSet::new();
        query.push_str("&limit=1");
        let mut page = gauges.target.read(&gauges.path(&query)).await?;
        loop {
            ensure!(page["metadata"]["remainingItemCount"].is_null(), "{selector}: a count with a selector");
            paged.extend(names_of(&page));
            let Some(token) = page["metadata"]["continue"].as_str().filter(|token| !token.is_empty()) else { break };
            page = gauges.target.read(&gauges.path(&format!("{query}&continue={}", escape(token)))).await?;
        }
        ensure!(paged == whole, "{selector}: {paged:?} in pages");
    }
    Ok(())
}

async fn field_selector_on_an_unsupported_custom_resource_field_is_400(gauges: &Gauges) -> anyhow::Result<()> {
    gauges.seed(&all_sorts()).await?;
    for field in ["spec.made", "spec.tags", "spec", "status.phase", "metadata.labels", "metadata.uid", ".spec.colour"] {
        for query in ["", "&watch=true&timeoutSeconds=1", "&limit=1"] {
            let path = gauges.path(&format!("?fieldSelector={field}%3Dx{query}"));
            let answer = gauges.target.http.get(&path).send().await?;
            let status =
                assert_status(&answer, 400, Some("BadRequest"), &format!("field label not supported: {field}"))?;
            let own = gauges.target.members[0].http().get(&path).send().await?.json()?;
            ensure!(status == own, "{status}\ninstead of\n{own}");
        }
    }
    Ok(())
}

/// Formats an event as type, name, colour and size.
fn shown(event: &Value) -> String {
    let (object, spec) = (&event["object"], &event["object"]["spec"]);
    let word = |value: &Value| value.to_string().replace('"', "");
    [&event["type"], &object["metadata"]["name"], &spec["colour"], &spec["size"]].map(word).join(" ")
}

async fn custom_resources_are_watched_by_selectable_field(gauges: &Gauges) -> anyhow::Result<()> {
    let spec = |colour: &str| json!({"colour": colour, "size": 0});
    gauges.seed(&[("moving", spec("blue")), ("still", spec("red")), ("never", spec("green"))]).await?;
    let version = version_of(&gauges.target.read(&gauges.path("")).await?);
    let red = |from: &str| gauges.path(&format!("?watch=true&fieldSelector=spec.colour%3Dred&resourceVersion={from}"));
    let not_red = gauges.path(&format!("?watch=true&fieldSelector=spec.colour!%3Dred&resourceVersion={version}"));
    let mut stream = gauges.target.http.watch(&red(&version)).await?;
    let mut rest = gauges.target.http.watch(&not_red).await?;
    for (colour, size) in [
        (json!("red"), 1),
        (json!("red"), 2),
        (json!("blue"), 3),
        (json!("blue"), 4),
        (json!("red"), 5),
        (Value::Null, 6),
    ] {
        gauges.change("moving", json!({"colour": colour, "size": size})).await?;
    }
    gauges.change("moving", json!({"colour": "red", "size": 7})).await?;
    gauges.target.http.delete(&gauges.one("moving")).send().await?.expect(200)?;
    let events = take(&mut stream, 7).await?;
    let expected = [
        "ADDED moving red 1",
        "MODIFIED moving red 2",
        // The DELETED event has the last state of the object that matched the selector.
        "DELETED moving red 2",
        "ADDED moving red 5",
        "DELETED moving red 5",
        "ADDED moving red 7",
        "DELETED moving red 7",
    ];
    let seen: Vec<String> = events.iter().map(shown).collect();
    ensure!(seen == expected, "{seen:?}");
    // The DELETED event has the version of the change, so a client can resume from it.
    let mut resumed = gauges.target.http.watch(&red(&version_of(&events[2]["object"]))).await?;
    let seen: Vec<String> = take(&mut resumed, 4).await?.iter().map(shown).collect();
    ensure!(seen == expected[3..], "resumed: {seen:?}");
    let seen: Vec<String> = take(&mut rest, 5).await?.iter().map(shown).collect();
    let expected = [
        "DELETED moving blue 0",
        "ADDED moving blue 3",
        "MODIFIED moving blue 4",
        "DELETED moving blue 4",
        "ADDED moving null 6",
    ];
    ensure!(seen == expected, "the others: {seen:?}");
    let seen = shown(&take(&mut rest, 1).await?[0]);
    ensure!(seen == "DELETED moving null 6", "{seen}");
    nothing_more(&mut stream).await?;
    nothing_more(&mut rest).await
}

async fn initial_events_are_selected_by_a_custom_field(gauges: &Gauges) -> anyhow::Result<()> {
    gauges.seed(&all_sorts()).await?;
    let streaming = "&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true";
    let path = gauges.path(&format!("?watch=true&fieldSelector=spec.colour%3Dred{streaming}"));
    let mut stream = gauges.target.http.watch(&path).await?;
    let mut names = BTreeSet::new();
    loop {
        let event = stream.expect(SOON).await?;
        if event["type"] == "BOOKMARK" {
            ensure!(ends_initial_events(&event) && event["object"]["kind"] == "Gauge", "{event}");
            break;
        }
        ensure!(event["type"] == "ADDED", "{event}");
        names.extend(event["object"]["metadata"]["name"].as_str().map(str::to_owned));
    }
    ensure!(names.iter().eq(["red-1", "red-2"]), "{names:?}");
    gauges.change("blue-1", json!({"colour": "red"})).await?;
    let event = take(&mut stream, 1).await?.remove(0);
    ensure!(shown(&event) == "ADDED blue-1 red 1", "{event}");
    Ok(())
}

/// Returns the parts of a Table that must equal the member's Table: names and types of the columns, and for each row
/// its cells and the kind and name of its object.
fn printed(table: &Value, cluster: Option<&str>) -> anyhow::Result<Value> {
    let mut columns = table["columnDefinitions"].as_array().cloned().unwrap_or_default();
    let mut rows = table["rows"].as_array().cloned().context("no rows")?;
    if let Some(cluster) = cluster {
        if !columns.is_empty() {
            let heading = columns.remove(1)["name"].clone();
            ensure!(heading == "Cluster" || heading == "Member", "the second column is no cluster: {table}");
            ensure!(columns.iter().all(|column| column["name"] != heading), "two columns {heading}: {table}");
        }
        for cells in rows.iter_mut().filter_map(|row| row["cells"].as_array_mut()).filter(|cells| cells.len() > 1) {
            let cell = cells.remove(1);
            ensure!(cell == cluster || cell == "", "{cell} is not {cluster}: {table}");
        }
    }
    let column = |column: &Value| json!([column["name"], column["type"], column["format"], column["priority"]]);
    let columns: Vec<Value> = columns.iter().map(column).collect();
    let row = |row: &Value| {
        let object = &row["object"];
        let end = &object["metadata"]["annotations"]["k8s.io/initial-events-end"];
        json!([row["cells"], object["kind"], object["metadata"]["name"], end])
    };
    let rows: Vec<Value> = rows.iter().map(row).collect();
    Ok(json!({"kind": table["kind"], "columns": columns, "rows": rows}))
}

impl Gauges {
    /// Clients of the target and of its first member. For the target, also the name in the cluster column of its
    /// Tables.
    fn both(&self) -> [(&HttpClient, Option<&str>); 2] {
        let member = &self.target.members[0];
        let cluster = self.target.differs(&CLUSTER_COLUMN).then(|| member.name());
        [(&self.target.http, cluster), (member.http(), None)]
    }

    /// Creates a gauge in the first member only, and waits until the target lists it.
    async fn only(&self) -> anyhow::Result<()> {
        let spec = json!({"colour": "red", "size": 1, "on": true, "made": "2001-02-03T04:05:06Z", "tags": ["a", "b"]});
        self.seed(&[("one", spec)]).await
    }
}

async fn custom_resource_table_has_the_members_columns(gauges: &Gauges) -> anyhow::Result<()> {
    gauges.only().await?;
    let mut tables = Vec::new();
    for (http, cluster) in gauges.both() {
        let table = http.get(&gauges.path("")).accept(TABLE).send().await?.expect(200)?.json()?;
        tables.push(printed(&table, cluster)?);
        let table = http.get(&gauges.one("one")).accept(TABLE).send().await?.expect(200)?.json()?;
        tables.push(printed(&table, cluster)?);
    }
    ensure!(tables[0] == tables[2] && tables[1] == tables[3], "{tables:#?}");
    let names: Vec<&Value> = tables[0]["columns"].as_array().into_iter().flatten().map(|column| &column[0]).collect();
    ensure!(names == ["Name", "Colour", "Size", "On", "Made", "Tags", "App", "Wide"], "{names:?}");
    Ok(())
}

/// A kube-apiserver shows only the columns before the first column with an invalid path. A definition may have a column
/// named `Cluster`.
async fn custom_resource_table_omits_columns_from_the_first_invalid_jsonpath_on(gauges: &Gauges) -> anyhow::Result<()> {
    let column = |name: &str, path: &str| json!({"name": name, "type": "string", "jsonPath": path});
    let columns = [column("Cluster", ".spec.colour"), column("Bad", ".spec[\"x\"]"), column("Last", ".spec.colour")];
    let change = json!([{"op": "replace", "path": "/spec/versions/0/additionalPrinterColumns", "value": columns}]);
    // The object is created first, because a kube-apiserver refuses creates while it replaces the storage of a changed
    // definition.
    gauges.only().await?;
    for member in &gauges.target.members {
        let path = format!("{DEFINITIONS}/{}", gauges.name());
        member.http().patch(&path, "json-patch+json", &change).send().await?.expect(200)?;
    }
    eventually(SERVED, async || {
        let mut tables = Vec::new();
        for (http, cluster) in gauges.both() {
            let table = http.get(&gauges.path("")).accept(TABLE).send().await?.expect(200)?.json()?;
            tables.push(printed(&table, cluster)?);
        }
        ensure!(tables[0] == tables[1], "{tables:#?}");
        ensure!(tables[0]["columns"].as_array().is_some_and(|columns| columns.len() == 2), "{tables:#?}");
        ensure!(tables[0]["rows"][0][0] == json!(["one", "red"]), "{tables:#?}");
        Ok(())
    })
    .await
}

/// Causes [`CHANGES`] events: an object changes, no longer matches the selector, matches again, and is deleted.
async fn change(gauges: &Gauges) -> anyhow::Result<()> {
    gauges.change("one", json!({"size": 2, "tags": null})).await?;
    gauges.change("one", json!({"colour": "blue"})).await?;
    gauges.change("one", json!({"colour": "red", "on": null})).await?;
    gauges.target.http.delete(&gauges.one("one")).send().await?.expect(200)?;
    Ok(())
}

async fn custom_resource_table_watch_equals_the_members_watch(gauges: &Gauges) -> anyhow::Result<()> {
    let streaming = "&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true";
    for query in ["", "&fieldSelector=spec.colour%3Dred", streaming] {
        gauges.only().await?;
        let path = gauges.path(&format!("?watch=true{query}"));
        let mut streams = Vec::new();
        for (http, cluster) in gauges.both() {
            let mut stream = http.get(&path).accept(TABLE).stream().await?.events()?;
            // The test waits for the event of the first object before the next change, so that both streams report the
            // same events.
            let first = stream.expect(SOON).await?;
            streams.push((stream, cluster, vec![first]));
        }
        change(gauges).await?;
        let mut told = Vec::new();
        for (mut stream, cluster, mut events) in streams {
            let mut ended = false;
            while events.iter().filter(|event| event["type"] != "BOOKMARK").count() < CHANGES {
                let event = stream.expect(SOON).await?;
                // With integer versions, a bookmark follows each burst of events. The test keeps only the first of
                // these bookmarks.
                if event["type"] != "BOOKMARK" || !std::mem::replace(&mut ended, true) {
                    events.push(event);
                }
            }
            let events: Vec<Value> = events
                .iter()
                .map(|event| Ok(json!([event["type"], printed(&event["object"], cluster)?])))
                .collect::<anyhow::Result<_>>()?;
            told.push(events);
        }
        // The bookmark at the end of the initial events may arrive before or after the first change. The test compares
        // this bookmark separately.
        let bookmarks: Vec<Vec<&Value>> =
            told.iter().map(|events| events.iter().filter(is_bookmark).collect()).collect();
        ensure!(!query.contains("sendInitial") || bookmarks[0] == bookmarks[1], "{query}: {bookmarks:#?}");
        let events: Vec<Vec<&Value>> =
            told.iter().map(|events| events.iter().filter(|event| !is_bookmark(event)).collect()).collect();
        ensure!(events[0] == events[1], "{query}: {events:#?}");
        for (index, event) in events[0].iter().enumerate() {
            let columns = event[1]["columns"].as_array().map_or(0, Vec::len);
            ensure!((columns > 0) == (index == 0), "{query}: {columns} columns in event {index}");
        }
        let types: Vec<&Value> = events[0].iter().map(|event| &event[0]).collect();
        let expected = if query.contains("fieldSelector") {
            ["ADDED", "MODIFIED", "DELETED", "ADDED", "DELETED"]
        } else {
            ["ADDED", "MODIFIED", "MODIFIED", "MODIFIED", "DELETED"]
        };
        ensure!(types == expected, "{query}: {types:?}");
    }
    Ok(())
}

fn is_bookmark(event: &&Value) -> bool {
    event[0] == "BOOKMARK"
}

/// Each row must have the cells of the member that has the object, and the name of this member's cluster.
async fn custom_resource_table_watch_has_rows_of_all_members(gauges: &Gauges) -> anyhow::Result<()> {
    let (sorts, members) = (all_sorts(), &gauges.target.members);
    gauges.seed(&sorts).await?;
    let mut stream = gauges.target.http.get(&gauges.path("?watch=true")).accept(TABLE).stream().await?.events()?;
    for kind in ["ADDED", "MODIFIED"] {
        if kind == "MODIFIED" {
            for (name, _) in &sorts {
                gauges.change(name, json!({"size": 40})).await?;
            }
        }
        let mut told = BTreeMap::new();
        while told.len() < sorts.len() {
            let event = stream.expect(SOON).await?;
            ensure!(event["type"] == kind, "{event}");
            let first = kind == "ADDED" && told.is_empty();
            let defines = event["object"]["columnDefinitions"].as_array().is_some_and(|columns| !columns.is_empty());
            ensure!(defines == first, "the columns are defined once: {event}");
            let row = &event["object"]["rows"][0];
            let name = row["object"]["metadata"]["name"].as_str().context("a row without a name")?;
            told.insert(name.to_owned(), row["cells"].clone());
        }
        for (index, (name, _)) in sorts.iter().enumerate() {
            let member = &members[index % members.len()];
            let table = member.http().get(&gauges.one(name)).accept(TABLE).send().await?.expect(200)?.json()?;
            let mut cells = table["rows"][0]["cells"].as_array().cloned().context("no cells")?;
            if gauges.target.differs(&CLUSTER_COLUMN) {
                cells.insert(1, json!(member.name()));
            }
            ensure!(told[*name] == json!(cells), "{name}: {} instead of {cells:?}", told[*name]);
        }
    }
    Ok(())
}
