//! Cases for media types: Table, PartialObjectMetadata, YAML, and types that the server does not support.

use super::{
    Conformance, conformance,
    differences::{CLUSTER_COLUMN, EMPTY_METADATA_LIST, PROTOBUF_ALONE, WARNING_OF_A_MEMBER, without_cluster},
    target::{QUIET, SOON, Target, assert_status, version_of},
};
use anyhow::{Context, ensure};
use serde_json::{Value, json};

/// The media types that kubectl requests.
const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json";
const TABLE_ALONE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io";
const PARTIAL: &str = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io";
const PARTIAL_LIST: &str = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io";

pub(super) fn cases() -> Vec<Conformance> {
    conformance!["output";
        list_as_a_table_has_a_row_for_each_object, object_as_a_table_has_one_row,
        empty_list_as_a_table_has_columns_and_no_rows, include_object_selects_the_object_in_table_rows,
        watch_as_tables_has_column_definitions_only_in_the_first_event,
        unsupported_table_version_falls_back_to_the_plain_list, list_as_partial_object_metadata_has_no_data,
        empty_list_as_partial_object_metadata_has_no_items, object_as_partial_object_metadata_has_no_data,
        watch_as_partial_object_metadata_has_no_data, list_is_served_as_yaml, object_is_served_as_yaml,
        missing_or_wildcard_accept_header_gets_json, unknown_media_type_parameters_are_ignored,
        accept_header_with_protobuf_and_json_gets_one_of_the_two, accept_header_with_only_protobuf_is_406_through_tributary,
        accept_header_with_an_unknown_media_type_is_406, accept_header_with_an_unknown_transformation_is_406,
        accept_header_with_application_wildcard_gets_the_same_status_as_at_the_member, watch_as_yaml_is_406, access_review_as_a_table_is_406,
        error_is_json_if_the_accept_header_allows_only_a_table, deprecated_api_version_has_a_warning_header,
    ]
}

fn columns(table: &Value) -> Vec<String> {
    let columns = table["columnDefinitions"].as_array().map(Vec::as_slice).unwrap_or_default();
    columns.iter().map(|column| column["name"].as_str().unwrap_or_default().to_owned()).collect()
}

/// Checks the names of the columns and the number of cells in each row. The column that Tributary adds is ignored.
fn check_columns(target: &Target, table: &Value, expected: &[&str]) -> anyhow::Result<()> {
    let mut shown = columns(table);
    if target.differs(&CLUSTER_COLUMN) {
        ensure!(shown.get(1).is_some_and(|name| name == "Cluster"), "{shown:?}");
        shown.remove(1);
    }
    ensure!(shown == expected, "{shown:?} instead of {expected:?}");
    for row in table["rows"].as_array().into_iter().flatten() {
        let cells = row["cells"].as_array().context("a row without cells")?;
        ensure!(cells.len() == columns(table).len(), "{row}");
    }
    Ok(())
}

async fn table(target: &Target, path: &str) -> anyhow::Result<Value> {
    target.http.get(path).accept(TABLE).send().await?.expect(200)?.json()
}

async fn list_as_a_table_has_a_row_for_each_object(target: Target) -> anyhow::Result<()> {
    let names = target.seed_maps(5).await?;
    let table = table(&target, &target.maps("")).await?;
    ensure!(table["kind"] == "Table" && table["apiVersion"] == "meta.k8s.io/v1", "{table}");
    check_columns(&target, &table, &["Name", "Data", "Age"])?;
    let rows = table["rows"].as_array().context("no rows")?;
    let shown: Vec<&Value> = rows.iter().map(|row| &row["cells"][0]).collect();
    ensure!(shown == target.in_list_order(&names).iter().collect::<Vec<_>>(), "{shown:?}");
    for row in rows {
        ensure!(row["object"]["kind"] == "PartialObjectMetadata", "{row}");
        ensure!(row["object"]["metadata"]["namespace"] == target.namespace.as_str(), "{row}");
        let data = &row["cells"][columns(&table).len() - 2];
        ensure!(*data == json!(1) || *data == json!("1"), "{row}");
    }
    ensure!(!version_of(&table).is_empty(), "{table}");
    Ok(())
}

async fn object_as_a_table_has_one_row(target: Target) -> anyhow::Result<()> {
    target.create_map("one", &[]).await?;
    let table = table(&target, &target.map("one")).await?;
    check_columns(&target, &table, &["Name", "Data", "Age"])?;
    ensure!(table["rows"].as_array().is_some_and(|rows| rows.len() == 1), "{table}");
    Ok(())
}

async fn empty_list_as_a_table_has_columns_and_no_rows(target: Target) -> anyhow::Result<()> {
    let table = table(&target, &target.maps("")).await?;
    check_columns(&target, &table, &["Name", "Data", "Age"])?;
    ensure!(table["rows"] == json!([]), "{table}");
    Ok(())
}

async fn include_object_selects_the_object_in_table_rows(target: Target) -> anyhow::Result<()> {
    target.create_map("one", &[]).await?;
    for (include, kind) in
        [("Object", json!("ConfigMap")), ("Metadata", json!("PartialObjectMetadata")), ("None", Value::Null)]
    {
        let table = table(&target, &target.maps(&format!("?includeObject={include}"))).await?;
        ensure!(table["rows"][0]["object"]["kind"] == kind, "{include}: {table}");
    }
    let answer = target.http.get(&target.maps("?includeObject=Everything")).accept(TABLE).send().await?;
    assert_status(&answer, 400, None, "includeObject")?;
    Ok(())
}

async fn watch_as_tables_has_column_definitions_only_in_the_first_event(target: Target) -> anyhow::Result<()> {
    target.seed_maps(2).await?;
    let path = target.maps("?watch=true");
    let mut stream = target.http.get(&path).accept(TABLE_ALONE).stream().await?.events()?;
    let (first, second) = (stream.expect(SOON).await?, stream.expect(SOON).await?);
    ensure!(first["type"] == "ADDED" && first["object"]["kind"] == "Table", "{first}");
    check_columns(&target, &first["object"], &["Name", "Data", "Age"])?;
    ensure!(columns(&second["object"]).is_empty(), "column definitions twice: {second}");
    ensure!(second["object"]["rows"].as_array().is_some_and(|rows| rows.len() == 1), "{second}");
    target.change_map("map-01", "1").await?;
    let third = stream.expect(SOON).await?;
    ensure!(third["type"] == "MODIFIED" && third["object"]["rows"][0]["cells"][0] == "map-01", "{third}");
    Ok(())
}

async fn unsupported_table_version_falls_back_to_the_plain_list(target: Target) -> anyhow::Result<()> {
    let accept = "application/json;as=Table;v=v1alpha1;g=meta.k8s.io,application/json";
    let answer = target.http.get(&target.maps("")).accept(accept).send().await?.expect(200)?.json()?;
    ensure!(answer["kind"] == "ConfigMapList", "{answer}");
    Ok(())
}

async fn list_as_partial_object_metadata_has_no_data(target: Target) -> anyhow::Result<()> {
    target.seed_maps(3).await?;
    let list = target.http.get(&target.maps("")).accept(PARTIAL_LIST).send().await?.expect(200)?.json()?;
    ensure!(list["kind"] == "PartialObjectMetadataList" && list["apiVersion"] == "meta.k8s.io/v1", "{list}");
    ensure!(list["items"].as_array().is_some_and(|items| items.len() == 3), "{list}");
    ensure!(list["items"][0].get("data").is_none(), "{list}");
    ensure!(list["items"][0]["metadata"]["labels"]["parity"].is_string(), "{list}");
    Ok(())
}

async fn empty_list_as_partial_object_metadata_has_no_items(target: Target) -> anyhow::Result<()> {
    let list = target.http.get(&target.maps("")).accept(PARTIAL_LIST).send().await?.expect(200)?.json()?;
    let due = if target.differs(&EMPTY_METADATA_LIST) { json!([]) } else { Value::Null };
    ensure!(list["items"] == due, "{list}");
    Ok(())
}

async fn object_as_partial_object_metadata_has_no_data(target: Target) -> anyhow::Result<()> {
    target.create_map("one", &[]).await?;
    let object = target.http.get(&target.map("one")).accept(PARTIAL).send().await?.expect(200)?.json()?;
    ensure!(object["kind"] == "PartialObjectMetadata" && object["apiVersion"] == "meta.k8s.io/v1", "{object}");
    ensure!(object["metadata"]["name"] == "one" && object.get("data").is_none(), "{object}");
    Ok(())
}

async fn watch_as_partial_object_metadata_has_no_data(target: Target) -> anyhow::Result<()> {
    target.seed_maps(1).await?;
    let mut stream = target.http.get(&target.maps("?watch=true")).accept(PARTIAL).stream().await?.events()?;
    let event = stream.expect(SOON).await?;
    ensure!(event["object"]["kind"] == "PartialObjectMetadata" && event["object"].get("data").is_none(), "{event}");
    let (more, _) = stream.drain(QUIET).await?;
    ensure!(more.is_empty(), "{more:?}");
    Ok(())
}

async fn list_is_served_as_yaml(target: Target) -> anyhow::Result<()> {
    target.seed_maps(2).await?;
    let answer = target.http.get(&target.maps("")).accept("application/yaml").send().await?.expect(200)?;
    ensure!(answer.header("content-type") == "application/yaml", "{:?}", answer.headers);
    let text = answer.text();
    ensure!(text.contains("kind: ConfigMapList") && text.contains("name: map-01") && !text.starts_with('{'), "{text}");
    Ok(())
}

async fn object_is_served_as_yaml(target: Target) -> anyhow::Result<()> {
    target.create_map("one", &[("quoted", "1")]).await?;
    let answer = target.http.get(&target.map("one")).accept("application/yaml").send().await?.expect(200)?;
    let text = answer.text();
    ensure!(text.contains("kind: ConfigMap") && text.contains("quoted: \"1\""), "{text}");
    Ok(())
}

async fn missing_or_wildcard_accept_header_gets_json(target: Target) -> anyhow::Result<()> {
    for accept in ["*/*", ""] {
        let mut request = target.http.get(&target.maps(""));
        request = if accept.is_empty() { request.without_header("accept") } else { request.accept(accept) };
        let answer = request.send().await?.expect(200)?;
        ensure!(answer.header("content-type") == "application/json", "{accept:?}: {:?}", answer.headers);
    }
    Ok(())
}

async fn unknown_media_type_parameters_are_ignored(target: Target) -> anyhow::Result<()> {
    let accept = "application/json;drop=metadata.managedFields";
    target.http.get(&target.maps("")).accept(accept).send().await?.expect(200)?;
    Ok(())
}

async fn accept_header_with_protobuf_and_json_gets_one_of_the_two(target: Target) -> anyhow::Result<()> {
    target.seed_maps(1).await?;
    let accept = "application/vnd.kubernetes.protobuf,application/json";
    let answer = target.http.get(&target.maps("")).accept(accept).send().await?.expect(200)?;
    match answer.header("content-type") {
        "application/json" => ensure!(answer.json()?["kind"] == "ConfigMapList", "{}", answer.text()),
        "application/vnd.kubernetes.protobuf" => ensure!(answer.body.starts_with(b"k8s\0"), "not protobuf"),
        other => anyhow::bail!("{other:?}"),
    }
    Ok(())
}

async fn accept_header_with_only_protobuf_is_406_through_tributary(target: Target) -> anyhow::Result<()> {
    let answer = target.http.get(&target.maps("")).accept("application/vnd.kubernetes.protobuf").send().await?;
    if target.differs(&PROTOBUF_ALONE) {
        assert_status(&answer, 406, Some("NotAcceptable"), "application/json")?;
    } else {
        answer.expect(200)?;
    }
    Ok(())
}

async fn accept_header_with_an_unknown_media_type_is_406(target: Target) -> anyhow::Result<()> {
    let answer = target.http.get(&target.maps("")).accept("text/html").send().await?;
    ensure!(answer.status == 406, "{}: {}", answer.status, answer.text());
    ensure!(answer.text().contains("application/json"), "{}", answer.text());
    Ok(())
}

async fn accept_header_with_an_unknown_transformation_is_406(target: Target) -> anyhow::Result<()> {
    let accept = "application/json;as=Chart;v=v1;g=meta.k8s.io";
    let answer = target.http.get(&target.maps("")).accept(accept).send().await?;
    assert_status(&answer, 406, Some("NotAcceptable"), "only the following media types are accepted")?;
    Ok(())
}

async fn accept_header_with_application_wildcard_gets_the_same_status_as_at_the_member(
    target: Target,
) -> anyhow::Result<()> {
    let answer = target.http.get(&target.maps("")).accept("application/*").send().await?;
    let own = target.members[0].http().get(&target.maps("")).accept("application/*").send().await?;
    ensure!(answer.status == own.status, "{} instead of {}", answer.status, own.status);
    Ok(())
}

async fn watch_as_yaml_is_406(target: Target) -> anyhow::Result<()> {
    let path = target.maps("?watch=true&timeoutSeconds=1");
    let answer = target.http.get(&path).accept("application/yaml").send().await?;
    ensure!(answer.status == 406, "{}: {}", answer.status, answer.text());
    Ok(())
}

/// An access review has no rows, so the server refuses to return it as a Table, unless the client accepts a second
/// media type.
async fn access_review_as_a_table_is_406(target: Target) -> anyhow::Result<()> {
    let path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
    let review = json!({
        "kind": "SelfSubjectAccessReview", "apiVersion": "authorization.k8s.io/v1",
        "spec": {"nonResourceAttributes": {"path": "/", "verb": "get"}},
    });
    let ask = |accept: &'static str| target.http.post(path, &review).accept(accept).send();
    assert_status(&ask(TABLE_ALONE).await?, 406, Some("NotAcceptable"), "application/json")?;
    let answer = ask(TABLE).await?.expect(201)?.json()?;
    ensure!(answer["kind"] == "SelfSubjectAccessReview" && answer["status"]["allowed"] == true, "{answer}");
    Ok(())
}

async fn error_is_json_if_the_accept_header_allows_only_a_table(target: Target) -> anyhow::Result<()> {
    let answer = target.http.get(&target.map("nowhere")).accept(TABLE_ALONE).send().await?;
    assert_status(&answer, 404, Some("NotFound"), "not found")?;
    Ok(())
}

async fn deprecated_api_version_has_a_warning_header(target: Target) -> anyhow::Result<()> {
    let endpoints = json!({"apiVersion": "v1", "kind": "Endpoints", "metadata": {"name": "one"}});
    target.http.post(&target.core("endpoints", ""), &endpoints).send().await?.expect(201)?;
    for path in ["", "/one", "?watch=true&timeoutSeconds=1"].map(|rest| target.core("endpoints", rest)) {
        let answer = target.http.get(&path).send().await?.expect(200)?;
        let own = target.members[0].http().get(&path).send().await?;
        let (said, due) = (answer.header("warning"), own.header("warning"));
        let text = if target.differs(&WARNING_OF_A_MEMBER) { without_cluster(said) } else { said.to_owned() };
        ensure!(text == due && said.contains("v1 Endpoints is deprecated"), "{path}: {said:?} instead of {due:?}");
        let is_named = target.members.iter().any(|member| said.contains(member.name()));
        ensure!(is_named == target.differs(&WARNING_OF_A_MEMBER), "{path}: {said:?}");
    }
    let plain = target.http.get(&target.maps("")).send().await?;
    ensure!(plain.header("warning").is_empty(), "{:?}", plain.headers);
    Ok(())
}
