//! Cases that read one object.

use super::{
    Conformance, conformance,
    differences::{CLUSTER_ANNOTATION, GET_OF_GARBAGE_VERSION},
    target::{SOON, Target, assert_status, config_map, version_of},
};
use anyhow::ensure;
use serde_json::json;

pub(super) fn cases() -> Vec<Conformance> {
    conformance!["get";
        get_returns_the_created_object, get_equals_the_members_object, get_of_a_missing_object_is_404,
        get_in_a_missing_namespace_is_404, get_at_version_zero_returns_the_object,
        get_at_the_current_version_of_the_object_returns_the_object, get_at_the_version_of_a_list_succeeds,
        get_at_a_future_version_is_504, get_at_an_invalid_version_is_an_error, get_and_list_return_an_object_immediately_after_its_write,
        get_returns_a_cluster_scoped_object, post_to_an_object_path_is_405,
        head_request_has_the_members_status_and_no_body, get_of_a_component_status_without_resource_version_succeeds,
        rbac_objects_with_unusual_names_are_readable,
    ]
}

async fn get_returns_the_created_object(target: Target) -> anyhow::Result<()> {
    target.create_map("here", &[("a", "b")]).await?;
    let object = target.read(&target.map("here")).await?;
    ensure!(object["kind"] == "ConfigMap" && object["apiVersion"] == "v1", "{object}");
    ensure!(object["metadata"]["namespace"] == target.namespace.as_str(), "{object}");
    ensure!(object["metadata"]["labels"]["a"] == "b" && object["data"]["step"] == "0", "{object}");
    ensure!(!version_of(&object).is_empty(), "{object}");
    Ok(())
}

async fn get_equals_the_members_object(target: Target) -> anyhow::Result<()> {
    target.create_map("here", &[]).await?;
    let mut shown = target.read(&target.map("here")).await?;
    let mut own = target.members[0].http().get(&target.map("here")).send().await?.expect(200)?.json()?;
    if target.differs(&CLUSTER_ANNOTATION) {
        let cluster = shown["metadata"]["annotations"]["tributary.dev/cluster"].clone();
        ensure!(cluster == target.members[0].name(), "cluster {cluster}");
        shown = target.without_cluster_annotation(shown);
    } else {
        ensure!(version_of(&shown) == version_of(&own), "{shown}");
    }
    for object in [&mut shown, &mut own] {
        object["metadata"]["resourceVersion"] = json!("");
    }
    ensure!(shown == own, "{shown}\ninstead of\n{own}");
    Ok(())
}

async fn get_of_a_missing_object_is_404(target: Target) -> anyhow::Result<()> {
    let answer = target.http.get(&target.map("nowhere")).send().await?;
    let status = assert_status(&answer, 404, Some("NotFound"), "configmaps \"nowhere\" not found")?;
    ensure!(status["details"] == json!({"name": "nowhere", "kind": "configmaps"}), "{status}");
    ensure!(answer.header("content-type") == "application/json", "{:?}", answer.headers);
    Ok(())
}

/// Tributary must forward the read of a ComponentStatus to the member, because a ComponentStatus has neither uid nor
/// version.
async fn get_of_a_component_status_without_resource_version_succeeds(target: Target) -> anyhow::Result<()> {
    let answer = target.http.get("/api/v1/componentstatuses/etcd-0").send().await?;
    if target.members.len() > 1 {
        assert_status(&answer, 409, Some("BadRequest"), "kubectl --context ")?;
        return Ok(());
    }
    let status = answer.expect(200)?.json()?;
    ensure!(status["kind"] == "ComponentStatus" && status["metadata"]["name"] == "etcd-0", "{status}");
    Ok(())
}

/// Unusual names of RBAC objects, which can be any path segment. Each entry has the name, and its forms in JSON, in a
/// path and in a field selector.
const ODD_NAMES: [(&str, &str, &str, &str); 3] = [
    // A kube-apiserver escapes `<` and `&` in JSON.
    ("x<y&z", r"x\u003cy\u0026z", "x%3Cy%26z", "x%3Cy%26z"),
    (r"CORP\ann", r"CORP\\ann", "CORP%5Cann", "CORP%5C%5Cann"),
    ("a\tb\u{1b}", r"a\tb\u001b", "a%09b%1b", "a%09b%1b"),
];

async fn rbac_objects_with_unusual_names_are_readable(target: Target) -> anyhow::Result<()> {
    for (name, in_json, in_path, in_selector) in ODD_NAMES {
        let roles = format!("/apis/rbac.authorization.k8s.io/v1/namespaces/{}/roles", target.namespace);
        let role = json!({
            "kind": "Role", "apiVersion": "rbac.authorization.k8s.io/v1", "metadata": {"name": name}, "rules": [],
        });
        target.http.get(&roles).send().await?.expect(200)?;
        let made = target.http.post(&roles, &role).send().await?.expect(201)?;
        ensure!(made.text().contains(in_json), "{}", made.text());
        let path = format!("{roles}/{in_path}");
        let read = target.read(&path).await?;
        ensure!(read["metadata"]["name"] == name, "{read}");
        let change = json!({"metadata": {"labels": {"changed": "yes"}}});
        target.http.patch(&path, "merge-patch+json", &change).send().await?.expect(200)?;
        let selected = format!("{roles}?fieldSelector=metadata.name%3D{in_selector}");
        let list = target.read(&selected).await?;
        ensure!(list["items"].as_array().is_some_and(|items| items.len() == 1), "{name:?}: {list}");
        let watch = format!("{selected}&watch=true&resourceVersion={}", version_of(&list));
        let mut stream = target.http.watch(&watch).await?;
        target.http.delete(&path).send().await?.expect(200)?;
        let gone = stream.expect(SOON).await?;
        ensure!(gone["type"] == "DELETED" && gone["object"]["metadata"]["name"] == name, "{gone}");
        let answer = target.http.get(&path).send().await?;
        ensure!(answer.status == 404, "{}: {}", answer.status, answer.text());
    }
    Ok(())
}

async fn get_in_a_missing_namespace_is_404(target: Target) -> anyhow::Result<()> {
    let answer = target.http.get("/api/v1/namespaces/there-is-none/configmaps/nowhere").send().await?;
    assert_status(&answer, 404, Some("NotFound"), "not found")?;
    Ok(())
}

async fn get_at_version_zero_returns_the_object(target: Target) -> anyhow::Result<()> {
    target.create_map("here", &[]).await?;
    // Version 0 allows any state that is not older than an earlier response. The test lists first, so that the state
    // must contain the object.
    target.read(&target.maps("")).await?;
    let object = target.read(&format!("{}?resourceVersion=0", target.map("here"))).await?;
    ensure!(object["metadata"]["name"] == "here", "{object}");
    Ok(())
}

async fn get_at_the_current_version_of_the_object_returns_the_object(target: Target) -> anyhow::Result<()> {
    let written = target.create_map("here", &[]).await?;
    let path = format!("{}?resourceVersion={}", target.map("here"), version_of(&written));
    let object = target.read(&path).await?;
    ensure!(version_of(&object) == version_of(&written), "{object}");
    Ok(())
}

async fn get_at_the_version_of_a_list_succeeds(target: Target) -> anyhow::Result<()> {
    target.create_map("here", &[]).await?;
    let list = target.read(&target.maps("")).await?;
    target.read(&format!("{}?resourceVersion={}", target.map("here"), version_of(&list))).await?;
    Ok(())
}

async fn get_at_a_future_version_is_504(target: Target) -> anyhow::Result<()> {
    target.create_map("here", &[]).await?;
    let list = target.read(&target.maps("")).await?;
    let future = target.future(&version_of(&list))?;
    let answer = target.http.get(&format!("{}?resourceVersion={future}", target.map("here"))).send().await?;
    let status = assert_status(&answer, 504, Some("Timeout"), "Too large resource version")?;
    ensure!(status["details"]["causes"][0]["reason"] == "ResourceVersionTooLarge", "{status}");
    ensure!(status["details"]["retryAfterSeconds"] == 1 && answer.header("retry-after") == "1", "{status}");
    Ok(())
}

async fn get_at_an_invalid_version_is_an_error(target: Target) -> anyhow::Result<()> {
    target.create_map("here", &[]).await?;
    let answer = target.http.get(&format!("{}?resourceVersion=garbage", target.map("here"))).send().await?;
    if target.differs(&GET_OF_GARBAGE_VERSION) {
        assert_status(&answer, 400, Some("BadRequest"), "resourceVersion")?;
    } else {
        answer.expect(500)?;
    }
    Ok(())
}

async fn get_and_list_return_an_object_immediately_after_its_write(target: Target) -> anyhow::Result<()> {
    target.create_map("here", &[]).await?;
    for step in 1..=20 {
        let step = step.to_string();
        let written = target.change_map("here", &step).await?;
        let read = target.read(&target.map("here")).await?;
        ensure!(read["data"]["step"] == step, "read {} after writing {step}", read["data"]["step"]);
        ensure!(version_of(&read) == version_of(&written), "versions differ: {read}\n{written}");
        let list = target.read(&target.maps("")).await?;
        ensure!(list["items"][0]["data"]["step"] == step, "listed {list} after writing {step}");
        ensure!(version_of(&list["items"][0]) == version_of(&written), "versions differ: {list}\n{written}");
    }
    target.delete_map("here").await?;
    target.http.get(&target.map("here")).send().await?.expect(404)?;
    ensure!(target.read(&target.maps("")).await?["items"] == json!([]), "deleted and still listed");
    Ok(())
}

async fn get_returns_a_cluster_scoped_object(target: Target) -> anyhow::Result<()> {
    let name = target.namespace.clone();
    let class =
        json!({"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": name}, "value": 7});
    let path = "/apis/scheduling.k8s.io/v1/priorityclasses";
    target.http.post(path, &class).send().await?.expect(201)?;
    let object = target.read(&format!("{path}/{name}")).await?;
    ensure!(object["kind"] == "PriorityClass" && object["value"] == 7, "{object}");
    target.http.delete(&format!("{path}/{name}")).send().await?.expect(200)?;
    Ok(())
}

async fn post_to_an_object_path_is_405(target: Target) -> anyhow::Result<()> {
    let answer = target.http.post(&target.map("here"), &config_map("here", &[])).send().await?;
    assert_status(&answer, 405, Some("MethodNotAllowed"), "")?;
    Ok(())
}

async fn head_request_has_the_members_status_and_no_body(target: Target) -> anyhow::Result<()> {
    target.create_map("here", &[]).await?;
    for path in [target.map("here"), target.maps("")] {
        let answer = target.http.request(http::Method::HEAD, &path).send().await?;
        let own = target.members[0].http().request(http::Method::HEAD, &path).send().await?;
        ensure!(answer.status == own.status, "HEAD {path}: {} instead of {}", answer.status, own.status);
        ensure!(answer.body.is_empty(), "HEAD with a body");
    }
    Ok(())
}
