//! Cases for creates, updates, patches and deletes, and for writes whose preconditions fail.

use super::{
    Conformance, conformance,
    differences::YAML_WITH_MANY_ALIASES,
    target::{Target, assert_status, config_map, names_of, version_of},
};
use anyhow::ensure;
use serde_json::{Value, json};

pub(super) fn cases() -> Vec<Conformance> {
    conformance!["writes";
        create_returns_the_stored_object, create_with_generate_name_returns_a_new_name, second_create_of_a_name_is_409,
        create_with_a_resource_version_is_refused, create_with_an_invalid_name_is_422,
        create_in_a_missing_namespace_is_404, create_with_malformed_json_is_400,
        create_with_an_unknown_content_type_is_415, create_accepts_yaml, create_accepts_yaml_with_aliases,
        create_from_yaml_with_many_aliases_is_400_through_tributary, create_from_yaml_with_exponential_aliases_is_400,
        dry_run_of_a_create_stores_nothing, strict_field_validation_refuses_an_unknown_field,
        update_with_the_current_version_succeeds, update_with_a_stale_version_is_409, update_without_a_version_succeeds,
        update_of_a_missing_object_is_404, update_with_a_different_name_in_the_body_is_400,
        update_with_an_invalid_version_writes_nothing, update_accepts_the_version_of_a_list_item,
        update_accepts_the_version_of_the_last_watch_event, merge_patch_with_the_current_version_succeeds,
        merge_patch_with_a_stale_version_is_409, strategic_merge_patch_merges_containers_by_name,
        json_patch_is_applied_only_if_its_test_operations_pass, json_patch_that_tests_the_current_version_succeeds,
        json_patch_that_tests_an_old_version_is_422, json_patch_adds_an_annotation_to_an_object_returned_by_create,
        unknown_patch_type_is_415, server_side_apply_creates_and_changes_the_object,
        server_side_apply_of_a_different_manager_conflicts, server_side_apply_with_a_stale_version_is_409,
        server_side_apply_with_a_version_creates_a_missing_object, delete_returns_the_uid_of_the_object,
        patch_of_the_last_finalizer_deletes_and_returns_the_object, delete_of_a_missing_object_is_404,
        delete_with_a_wrong_version_in_its_body_is_409, delete_with_a_wrong_uid_in_its_body_is_409,
        delete_checks_the_version_in_its_query, delete_checks_the_uid_in_its_query,
        delete_with_a_body_ignores_options_in_the_query, delete_of_a_collection_deletes_the_selected_objects,
        dry_run_of_a_delete_keeps_the_object, cluster_annotation_is_not_stored_by_an_update,
        write_errors_have_the_requested_media_type,
    ]
}

async fn create_returns_the_stored_object(target: Target) -> anyhow::Result<()> {
    let written = target.create_map("new", &[("a", "b")]).await?;
    ensure!(written["kind"] == "ConfigMap" && written["metadata"]["uid"].is_string(), "{written}");
    let read = target.read(&target.map("new")).await?;
    ensure!(read == written, "{read}\ninstead of\n{written}");
    Ok(())
}

async fn create_with_generate_name_returns_a_new_name(target: Target) -> anyhow::Result<()> {
    let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"generateName": "made-"}});
    let written = target.http.post(&target.maps(""), &object).send().await?.expect(201)?.json()?;
    let name = written["metadata"]["name"].as_str().unwrap_or_default();
    ensure!(name.starts_with("made-") && name.len() > 5, "{written}");
    target.read(&target.map(name)).await?;
    Ok(())
}

async fn second_create_of_a_name_is_409(target: Target) -> anyhow::Result<()> {
    target.create_map("new", &[]).await?;
    let answer = target.http.post(&target.maps(""), &config_map("new", &[])).send().await?;
    assert_status(&answer, 409, Some("AlreadyExists"), "configmaps \"new\" already exists")?;
    Ok(())
}

async fn create_with_a_resource_version_is_refused(target: Target) -> anyhow::Result<()> {
    let version = version_of(&target.create_map("new", &[]).await?);
    let mut object = config_map("second", &[]);
    object["metadata"]["resourceVersion"] = json!(version);
    let answer = target.http.post(&target.maps(""), &object).send().await?;
    let message = "resourceVersion should not be set on objects to be created";
    assert_status(&answer, 500, None, message)?;
    Ok(())
}

async fn create_with_an_invalid_name_is_422(target: Target) -> anyhow::Result<()> {
    let answer = target.http.post(&target.maps(""), &config_map("Not_A_Name", &[])).send().await?;
    let status = assert_status(&answer, 422, Some("Invalid"), "metadata.name")?;
    ensure!(status["details"]["causes"][0]["field"] == "metadata.name", "{status}");
    Ok(())
}

async fn create_in_a_missing_namespace_is_404(target: Target) -> anyhow::Result<()> {
    let path = "/api/v1/namespaces/there-is-none/configmaps";
    let answer = target.http.post(path, &config_map("new", &[])).send().await?;
    assert_status(&answer, 404, Some("NotFound"), "namespaces \"there-is-none\" not found")?;
    Ok(())
}

async fn create_with_malformed_json_is_400(target: Target) -> anyhow::Result<()> {
    let request = target.http.request(http::Method::POST, &target.maps("")).body("application/json", "{\"kind\": ");
    assert_status(&request.send().await?, 400, Some("BadRequest"), "")?;
    Ok(())
}

async fn create_with_an_unknown_content_type_is_415(target: Target) -> anyhow::Result<()> {
    let request = target.http.request(http::Method::POST, &target.maps("")).body("text/html", "<p>");
    assert_status(&request.send().await?, 415, Some("UnsupportedMediaType"), "")?;
    Ok(())
}

async fn create_accepts_yaml(target: Target) -> anyhow::Result<()> {
    let text = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: from-yaml\ndata:\n  step: \"7\"\n";
    let request = target.http.request(http::Method::POST, &target.maps("")).body("application/yaml", text);
    request.send().await?.expect(201)?;
    ensure!(target.read(&target.map("from-yaml")).await?["data"]["step"] == "7", "another value");
    Ok(())
}

async fn post_yaml(target: &Target, text: String) -> anyhow::Result<tributary_e2e::HttpResponse> {
    target.http.request(http::Method::POST, &target.maps("")).body("application/yaml", text).send().await
}

async fn create_accepts_yaml_with_aliases(target: Target) -> anyhow::Result<()> {
    let text = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: aliases\n  labels: &own {a: b, c: d}\ndata:\n  \
        <<: *own\n  c: e\n";
    post_yaml(&target, text.to_owned()).await?.expect(201)?;
    let data = target.read(&target.map("aliases")).await?["data"].clone();
    ensure!(data == json!({"a": "b", "c": "e"}), "{data}");
    Ok(())
}

/// The request body has 12 KB, but its aliases expand to 1.2 MB.
async fn create_from_yaml_with_many_aliases_is_400_through_tributary(target: Target) -> anyhow::Result<()> {
    let aliases: Vec<_> = (0..99).map(|at| format!("k{at}: *d")).collect();
    let head = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: many}\n";
    let text = format!("{head}data: {{d: &d {}, {}}}\n", "x".repeat(10_000), aliases.join(","));
    let answer = post_yaml(&target, text).await?;
    if target.differs(&YAML_WITH_MANY_ALIASES) {
        assert_status(&answer, 400, Some("BadRequest"), "document contains excessive aliasing")?;
    } else {
        ensure!(answer.status.as_u16() != 400, "{}", answer.text());
    }
    Ok(())
}

async fn create_from_yaml_with_exponential_aliases_is_400(target: Target) -> anyhow::Result<()> {
    let nine = |of: &str| [of; 9].join(",");
    let levels: String = (1..12).map(|at| format!("a{at}: &a{at} [{}]\n", nine(&format!("*a{}", at - 1)))).collect();
    let text = format!("apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: x}}\na0: &a0 [{}]\n{levels}", nine("x"));
    let answer = post_yaml(&target, text).await?;
    assert_status(&answer, 400, Some("BadRequest"), "document contains excessive aliasing")?;
    Ok(())
}

async fn dry_run_of_a_create_stores_nothing(target: Target) -> anyhow::Result<()> {
    let path = target.maps("?dryRun=All");
    target.http.post(&path, &config_map("new", &[])).send().await?.expect(201)?;
    target.http.get(&target.map("new")).send().await?.expect(404)?;
    Ok(())
}

async fn strict_field_validation_refuses_an_unknown_field(target: Target) -> anyhow::Result<()> {
    let mut object = config_map("new", &[]);
    object["unknownField"] = json!(1);
    let path = target.maps("?fieldValidation=Strict");
    assert_status(&target.http.post(&path, &object).send().await?, 400, Some("BadRequest"), "unknownField")?;
    let answer = target.http.post(&target.maps("?fieldValidation=Warn"), &object).send().await?.expect(201)?;
    ensure!(answer.header("warning").contains("unknownField"), "no warning: {:?}", answer.headers);
    Ok(())
}

/// Updates a ConfigMap with a new `data.step`.
async fn update(target: &Target, object: &Value, step: &str) -> anyhow::Result<tributary_e2e::HttpResponse> {
    let mut object = object.clone();
    object["data"]["step"] = json!(step);
    target.http.put(&target.map("one"), &object).send().await
}

async fn update_with_the_current_version_succeeds(target: Target) -> anyhow::Result<()> {
    let first = target.create_map("one", &[]).await?;
    let second = update(&target, &first, "1").await?.expect(200)?.json()?;
    ensure!(second["data"]["step"] == "1" && version_of(&second) != version_of(&first), "{second}");
    update(&target, &second, "2").await?.expect(200)?;
    let read = target.read(&target.map("one")).await?;
    update(&target, &read, "3").await?.expect(200)?;
    Ok(())
}

async fn update_with_a_stale_version_is_409(target: Target) -> anyhow::Result<()> {
    let first = target.create_map("one", &[]).await?;
    update(&target, &first, "1").await?.expect(200)?;
    let answer = update(&target, &first, "2").await?;
    let status = assert_status(&answer, 409, Some("Conflict"), "the object has been modified")?;
    ensure!(status["details"]["name"] == "one" && status["details"]["kind"] == "configmaps", "{status}");
    ensure!(target.read(&target.map("one")).await?["data"]["step"] == "1", "written in spite of the conflict");
    Ok(())
}

async fn update_without_a_version_succeeds(target: Target) -> anyhow::Result<()> {
    let first = target.create_map("one", &[]).await?;
    update(&target, &first, "1").await?.expect(200)?;
    update(&target, &config_map("one", &[]), "2").await?.expect(200)?;
    Ok(())
}

async fn update_of_a_missing_object_is_404(target: Target) -> anyhow::Result<()> {
    let answer = update(&target, &config_map("one", &[]), "1").await?;
    assert_status(&answer, 404, Some("NotFound"), "not found")?;
    Ok(())
}

async fn update_with_a_different_name_in_the_body_is_400(target: Target) -> anyhow::Result<()> {
    target.create_map("one", &[]).await?;
    let answer = update(&target, &config_map("two", &[]), "1").await?;
    assert_status(&answer, 400, Some("BadRequest"), "does not match")?;
    Ok(())
}

async fn update_with_an_invalid_version_writes_nothing(target: Target) -> anyhow::Result<()> {
    let mut object = target.create_map("one", &[]).await?;
    object["metadata"]["resourceVersion"] = json!("gar!bage");
    let answer = update(&target, &object, "1").await?;
    ensure!(!answer.status.is_success(), "{}", answer.text());
    ensure!(target.read(&target.map("one")).await?["data"]["step"] == "0", "written in spite of it");
    Ok(())
}

async fn update_accepts_the_version_of_a_list_item(target: Target) -> anyhow::Result<()> {
    target.create_map("one", &[]).await?;
    let list = target.read(&target.maps("")).await?;
    let mut item = list["items"][0].clone();
    item["apiVersion"] = json!("v1");
    item["kind"] = json!("ConfigMap");
    update(&target, &item, "1").await?.expect(200)?;
    assert_status(&update(&target, &item, "2").await?, 409, Some("Conflict"), "")?;
    Ok(())
}

async fn update_accepts_the_version_of_the_last_watch_event(target: Target) -> anyhow::Result<()> {
    target.seed_maps(4).await?;
    let version = version_of(&target.read(&target.maps("")).await?);
    let mut stream = target.watch_maps(&format!("resourceVersion={version}")).await?;
    target.create_map("one", &[]).await?;
    target.change_map("one", "1").await?;
    let created = stream.expect(super::target::SOON).await?["object"].clone();
    let changed = stream.expect(super::target::SOON).await?["object"].clone();
    assert_status(&update(&target, &created, "2").await?, 409, Some("Conflict"), "")?;
    update(&target, &changed, "3").await?.expect(200)?;
    Ok(())
}

async fn merge_patch_with_the_current_version_succeeds(target: Target) -> anyhow::Result<()> {
    let first = target.create_map("one", &[("a", "b")]).await?;
    let patch =
        json!({"metadata": {"resourceVersion": version_of(&first), "labels": {"a": null}}, "data": {"step": "1"}});
    let written =
        target.http.patch(&target.map("one"), "merge-patch+json", &patch).send().await?.expect(200)?.json()?;
    ensure!(written["data"]["step"] == "1" && written["metadata"].get("labels").is_none(), "{written}");
    Ok(())
}

async fn merge_patch_with_a_stale_version_is_409(target: Target) -> anyhow::Result<()> {
    let first = target.create_map("one", &[]).await?;
    target.change_map("one", "1").await?;
    let patch = json!({"metadata": {"resourceVersion": version_of(&first)}, "data": {"step": "2"}});
    let answer = target.http.patch(&target.map("one"), "merge-patch+json", &patch).send().await?;
    assert_status(&answer, 409, Some("Conflict"), "")?;
    Ok(())
}

async fn strategic_merge_patch_merges_containers_by_name(target: Target) -> anyhow::Result<()> {
    let path = format!("/apis/apps/v1/namespaces/{}/deployments", target.namespace);
    target.http.post(&path, &super::target::deployment("app")).send().await?.expect(201)?;
    let patch =
        json!({"spec": {"template": {"spec": {"containers": [{"name": "second", "image": "example.test/second:1"}]}}}});
    let path = format!("{path}/app");
    let written = target.http.patch(&path, "strategic-merge-patch+json", &patch).send().await?.expect(200)?.json()?;
    let containers = written["spec"]["template"]["spec"]["containers"].as_array().cloned().unwrap_or_default();
    ensure!(containers.len() == 2, "lists are not merged by name: {written}");
    Ok(())
}

async fn json_patch_is_applied_only_if_its_test_operations_pass(target: Target) -> anyhow::Result<()> {
    target.create_map("one", &[]).await?;
    let patch =
        json!([{"op": "test", "path": "/data/step", "value": "0"}, {"op": "add", "path": "/data/more", "value": "x"}]);
    let written = target.http.patch(&target.map("one"), "json-patch+json", &patch).send().await?.expect(200)?.json()?;
    ensure!(written["data"]["more"] == "x", "{written}");
    let failing = json!([{"op": "test", "path": "/data/step", "value": "9"}, {"op": "remove", "path": "/data/more"}]);
    let answer = target.http.patch(&target.map("one"), "json-patch+json", &failing).send().await?;
    assert_status(&answer, 422, Some("Invalid"), "")?;
    Ok(())
}

fn test_of_version(version: &str) -> Value {
    json!([
        {"op": "test", "path": "/metadata/resourceVersion", "value": version},
        {"op": "replace", "path": "/data/step", "value": "1"},
    ])
}

async fn json_patch_that_tests_the_current_version_succeeds(target: Target) -> anyhow::Result<()> {
    let first = target.create_map("one", &[]).await?;
    let patch = test_of_version(&version_of(&first));
    target.http.patch(&target.map("one"), "json-patch+json", &patch).send().await?.expect(200)?;
    Ok(())
}

async fn json_patch_that_tests_an_old_version_is_422(target: Target) -> anyhow::Result<()> {
    let first = target.create_map("one", &[]).await?;
    target.change_map("one", "2").await?;
    let patch = test_of_version(&version_of(&first));
    let answer = target.http.patch(&target.map("one"), "json-patch+json", &patch).send().await?;
    assert_status(&answer, 422, Some("Invalid"), "")?;
    Ok(())
}

async fn json_patch_adds_an_annotation_to_an_object_returned_by_create(target: Target) -> anyhow::Result<()> {
    // A client adds an annotation to the annotations that the server returned. If the server returned no annotations,
    // the client must create the map first.
    let shown = target.create_map("one", &[]).await?;
    let patch = match shown["metadata"].get("annotations") {
        Some(_) => json!([{"op": "add", "path": "/metadata/annotations/color", "value": "blue"}]),
        None => json!([{"op": "add", "path": "/metadata/annotations", "value": {"color": "blue"}}]),
    };
    let written = target.http.patch(&target.map("one"), "json-patch+json", &patch).send().await?.expect(200)?.json()?;
    ensure!(written["metadata"]["annotations"]["color"] == "blue", "{written}");
    Ok(())
}

async fn unknown_patch_type_is_415(target: Target) -> anyhow::Result<()> {
    target.create_map("one", &[]).await?;
    let answer = target.http.patch(&target.map("one"), "json", &json!({})).send().await?;
    assert_status(&answer, 415, Some("UnsupportedMediaType"), "")?;
    Ok(())
}

async fn apply(target: &Target, manager: &str, object: &Value) -> anyhow::Result<tributary_e2e::HttpResponse> {
    let path = format!("{}?fieldManager={manager}", target.map("one"));
    target.http.patch(&path, "apply-patch+yaml", object).send().await
}

async fn server_side_apply_creates_and_changes_the_object(target: Target) -> anyhow::Result<()> {
    let created = apply(&target, "first", &config_map("one", &[])).await?.expect(201)?.json()?;
    ensure!(created["metadata"]["managedFields"][0]["operation"] == "Apply", "{created}");
    let mut changed = config_map("one", &[]);
    changed["data"]["more"] = json!("x");
    let written = apply(&target, "first", &changed).await?.expect(200)?.json()?;
    ensure!(written["data"]["more"] == "x", "{written}");
    Ok(())
}

async fn server_side_apply_of_a_different_manager_conflicts(target: Target) -> anyhow::Result<()> {
    apply(&target, "first", &config_map("one", &[])).await?.expect(201)?;
    let mut changed = config_map("one", &[]);
    changed["data"]["step"] = json!("taken");
    let answer = apply(&target, "second", &changed).await?;
    let status = assert_status(&answer, 409, Some("Conflict"), "conflict")?;
    ensure!(status["details"]["causes"][0]["reason"] == "FieldManagerConflict", "{status}");
    let path = format!("{}?fieldManager=second&force=true", target.map("one"));
    target.http.patch(&path, "apply-patch+yaml", &changed).send().await?.expect(200)?;
    Ok(())
}

async fn server_side_apply_with_a_stale_version_is_409(target: Target) -> anyhow::Result<()> {
    let first = apply(&target, "first", &config_map("one", &[])).await?.expect(201)?.json()?;
    target.change_map("one", "1").await?;
    let mut object = config_map("one", &[]);
    object["metadata"]["resourceVersion"] = json!(version_of(&first));
    let answer = apply(&target, "first", &object).await?;
    assert_status(&answer, 409, Some("Conflict"), "")?;
    Ok(())
}

async fn server_side_apply_with_a_version_creates_a_missing_object(target: Target) -> anyhow::Result<()> {
    let first = apply(&target, "first", &config_map("one", &[])).await?.expect(201)?.json()?;
    target.http.delete(&target.map("one")).send().await?.expect(200)?;
    let mut object = config_map("one", &[]);
    object["metadata"]["resourceVersion"] = json!(version_of(&first));
    apply(&target, "first", &object).await?.expect(201)?;
    Ok(())
}

async fn delete_returns_the_uid_of_the_object(target: Target) -> anyhow::Result<()> {
    target.create_map("one", &[]).await?;
    let answer = target.delete_map("one").await?.json()?;
    ensure!(answer["kind"] == "Status" && answer["status"] == "Success", "{answer}");
    ensure!(answer["details"]["name"] == "one" && answer["details"]["uid"].is_string(), "{answer}");
    target.http.get(&target.map("one")).send().await?.expect(404)?;
    Ok(())
}

async fn patch_of_the_last_finalizer_deletes_and_returns_the_object(target: Target) -> anyhow::Result<()> {
    let finalizers = |list: Value| json!({"metadata": {"finalizers": list}});
    let patch =
        async |body: Value| target.http.patch(&target.map("one"), "merge-patch+json", &body).send().await?.expect(200);
    for _ in 0..5 {
        target.create_map("one", &[]).await?;
        patch(finalizers(json!(["example.com/held"]))).await?;
        target.delete_map("one").await?;
        let held = target.read(&target.map("one")).await?;
        ensure!(held["metadata"]["deletionTimestamp"].is_string(), "{held}");
        let answer = patch(finalizers(Value::Null)).await?.json()?;
        ensure!(version_of(&answer) == version_of(&held), "it is shown in the version before: {answer}");
        target.http.get(&target.map("one")).send().await?.expect(404)?;
        let list = target.read(&target.maps("")).await?;
        ensure!(names_of(&list).is_empty(), "{list}");
    }
    Ok(())
}

async fn delete_of_a_missing_object_is_404(target: Target) -> anyhow::Result<()> {
    let answer = target.http.delete(&target.map("nowhere")).send().await?;
    assert_status(&answer, 404, Some("NotFound"), "not found")?;
    Ok(())
}

async fn delete_with(target: &Target, preconditions: Value) -> anyhow::Result<tributary_e2e::HttpResponse> {
    let options = json!({"kind": "DeleteOptions", "apiVersion": "v1", "preconditions": preconditions});
    target.http.delete(&target.map("one")).json(&options).send().await
}

async fn delete_with_a_wrong_version_in_its_body_is_409(target: Target) -> anyhow::Result<()> {
    let first = target.create_map("one", &[]).await?;
    let second = target.change_map("one", "1").await?;
    let answer = delete_with(&target, json!({"resourceVersion": version_of(&first)})).await?;
    assert_status(&answer, 409, Some("Conflict"), "")?;
    delete_with(&target, json!({"resourceVersion": version_of(&second)})).await?.expect(200)?;
    Ok(())
}

async fn delete_with_a_wrong_uid_in_its_body_is_409(target: Target) -> anyhow::Result<()> {
    let object = target.create_map("one", &[]).await?;
    let answer = delete_with(&target, json!({"uid": "00000000-0000-0000-0000-000000000000"})).await?;
    assert_status(&answer, 409, Some("Conflict"), "")?;
    delete_with(&target, json!({"uid": object["metadata"]["uid"]})).await?.expect(200)?;
    Ok(())
}

async fn delete_checks_the_version_in_its_query(target: Target) -> anyhow::Result<()> {
    let first = target.create_map("one", &[]).await?;
    let second = target.change_map("one", "1").await?;
    let path = |version: &Value| format!("{}?resourceVersion={}", target.map("one"), version_of(version));
    assert_status(&target.http.delete(&path(&first)).send().await?, 409, Some("Conflict"), "")?;
    target.http.delete(&path(&second)).send().await?.expect(200)?;
    Ok(())
}

async fn delete_checks_the_uid_in_its_query(target: Target) -> anyhow::Result<()> {
    let object = target.create_map("one", &[]).await?;
    let path = |uid: &str| format!("{}?uid={uid}", target.map("one"));
    let answer = target.http.delete(&path("00000000-0000-0000-0000-000000000000")).send().await?;
    assert_status(&answer, 409, Some("Conflict"), "")?;
    target.http.delete(&path(object["metadata"]["uid"].as_str().unwrap_or_default())).send().await?.expect(200)?;
    Ok(())
}

async fn delete_with_a_body_ignores_options_in_the_query(target: Target) -> anyhow::Result<()> {
    target.create_map("one", &[]).await?;
    let path = format!("{}?dryRun=All&uid=00000000-0000-0000-0000-000000000000", target.map("one"));
    let request = target.http.request(http::Method::DELETE, &path).body("application/json", "{}");
    request.send().await?.expect(200)?;
    target.http.get(&target.map("one")).send().await?.expect(404)?;
    Ok(())
}

async fn delete_of_a_collection_deletes_the_selected_objects(target: Target) -> anyhow::Result<()> {
    for (name, keep) in [("a", "no"), ("b", "yes"), ("c", "no")] {
        target.create_map(name, &[("keep", keep)]).await?;
    }
    target.http.delete(&target.maps("?labelSelector=keep%3Dno")).send().await?.expect(200)?;
    let left = names_of(&target.read(&target.maps("")).await?);
    ensure!(left == ["b"], "{left:?}");
    Ok(())
}

async fn dry_run_of_a_delete_keeps_the_object(target: Target) -> anyhow::Result<()> {
    target.create_map("one", &[]).await?;
    target.http.delete(&format!("{}?dryRun=All", target.map("one"))).send().await?.expect(200)?;
    target.read(&target.map("one")).await?;
    Ok(())
}

async fn cluster_annotation_is_not_stored_by_an_update(target: Target) -> anyhow::Result<()> {
    target.create_map("one", &[]).await?;
    let shown = target.read(&target.map("one")).await?;
    update(&target, &shown, "1").await?.expect(200)?;
    let stored = target.members[0].http().get(&target.map("one")).send().await?.expect(200)?.json()?;
    ensure!(stored["data"]["step"] == "1", "{stored}");
    ensure!(stored["metadata"]["annotations"]["tributary.dev/cluster"].is_null(), "{stored}");
    ensure!(!stored.to_string().contains("f:tributary.dev/cluster"), "a field manager owns it: {stored}");
    Ok(())
}

async fn write_errors_have_the_requested_media_type(target: Target) -> anyhow::Result<()> {
    let stale = target.create_map("new", &[]).await?;
    target.change_map("new", "1").await?;
    let http = &target.http;
    let create = |kind: &str, body: &str| {
        http.request(http::Method::POST, &target.maps("")).body(kind, body.as_bytes().to_vec())
    };
    let text = |name: &str| format!("apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: {name}\n");
    let patch = json!({"data": {"step": "2"}});
    let rows = [
        (create("application/yaml", "kind: ["), 400, "BadRequest", ""),
        (create("text/html", "<p>"), 415, "UnsupportedMediaType", ""),
        (create("application/yaml", &text("new")), 409, "AlreadyExists", "configmaps \"new\" already exists"),
        (create("application/yaml", &text("Not_A_Name")), 422, "Invalid", "metadata.name"),
        (http.put(&target.map("new"), &stale), 409, "Conflict", "the object has been modified"),
        (http.patch(&target.map("none"), "merge-patch+json", &patch), 404, "NotFound", "configmaps \"none\" not found"),
        (http.patch(&target.map("new"), "no-patch+json", &patch), 415, "UnsupportedMediaType", ""),
        (http.delete(&target.map("none")), 404, "NotFound", "configmaps \"none\" not found"),
    ];
    for (request, code, reason, message) in rows {
        let mut answer = request.accept("application/yaml").send().await?;
        ensure!(answer.header("content-type") == "application/yaml", "{}: {:?}", answer.request, answer.headers);
        let status: Value = serde_saphyr::from_str(&answer.text())?;
        answer.body = status.to_string().into();
        assert_status(&answer, code, Some(reason), message)?;
    }
    Ok(())
}
