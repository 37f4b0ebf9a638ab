//! Cases for the subresources status, scale and eviction, with their versions and preconditions.

use super::{
    Conformance, conformance,
    target::{Target, assert_status, deployment, pod, version_of},
};
use anyhow::ensure;
use serde_json::{Value, json};

pub(super) fn cases() -> Vec<Conformance> {
    conformance!["subresources";
        get_of_the_status_subresource_returns_the_pod, update_of_the_status_subresource_is_stored,
        update_of_the_status_subresource_with_a_stale_version_is_409, patch_of_the_status_subresource_with_a_stale_version_is_409,
        get_of_the_scale_subresource_returns_a_scale, update_of_the_scale_subresource_changes_the_replicas,
        update_of_the_scale_subresource_with_a_stale_version_is_409, patch_of_the_scale_subresource_changes_the_replicas,
        eviction_with_matching_preconditions_deletes_the_pod, eviction_with_a_different_uid_is_409,
        dry_run_of_an_eviction_keeps_the_pod, eviction_of_a_missing_pod_is_404, unknown_subresource_is_404,
        token_request_returns_a_service_account_token,
    ]
}

async fn create_pod(target: &Target) -> anyhow::Result<Value> {
    target.http.post(&target.core("pods", ""), &pod("one")).send().await?.expect(201)?.json()
}

async fn get_of_the_status_subresource_returns_the_pod(target: Target) -> anyhow::Result<()> {
    let created = create_pod(&target).await?;
    let read = target.read(&target.core("pods", "/one/status")).await?;
    ensure!(read["kind"] == "Pod" && version_of(&read) == version_of(&created), "{read}\n{created}");
    Ok(())
}

async fn update_of_the_status_subresource_is_stored(target: Target) -> anyhow::Result<()> {
    let mut object = create_pod(&target).await?;
    object["status"]["message"] = json!("hello");
    let path = target.core("pods", "/one/status");
    let written = target.http.put(&path, &object).send().await?.expect(200)?.json()?;
    ensure!(written["status"]["message"] == "hello", "{written}");
    let read = target.read(&target.core("pods", "/one")).await?;
    ensure!(read["status"]["message"] == "hello" && version_of(&read) == version_of(&written), "{read}");
    Ok(())
}

async fn update_of_the_status_subresource_with_a_stale_version_is_409(target: Target) -> anyhow::Result<()> {
    let mut object = create_pod(&target).await?;
    object["status"]["message"] = json!("hello");
    let path = target.core("pods", "/one/status");
    target.http.put(&path, &object).send().await?.expect(200)?;
    object["status"]["message"] = json!("again");
    assert_status(&target.http.put(&path, &object).send().await?, 409, Some("Conflict"), "")?;
    Ok(())
}

async fn patch_of_the_status_subresource_with_a_stale_version_is_409(target: Target) -> anyhow::Result<()> {
    let created = create_pod(&target).await?;
    let patch = json!({"metadata": {"resourceVersion": version_of(&created)}, "status": {"message": "hello"}});
    let path = target.core("pods", "/one/status");
    let written = target.http.patch(&path, "merge-patch+json", &patch).send().await?.expect(200)?.json()?;
    ensure!(written["status"]["message"] == "hello", "{written}");
    let answer = target.http.patch(
        &path,
        "merge-patch+json",
        &json!({
            "metadata": {"resourceVersion": version_of(&created)}, "status": {"message": "again"},
        }),
    );
    assert_status(&answer.send().await?, 409, Some("Conflict"), "")?;
    Ok(())
}

async fn create_deployment(target: &Target) -> anyhow::Result<String> {
    let path = format!("/apis/apps/v1/namespaces/{}/deployments", target.namespace);
    target.http.post(&path, &deployment("one")).send().await?.expect(201)?;
    Ok(format!("{path}/one"))
}

async fn get_of_the_scale_subresource_returns_a_scale(target: Target) -> anyhow::Result<()> {
    let path = create_deployment(&target).await?;
    let scale = target.read(&format!("{path}/scale")).await?;
    ensure!(scale["kind"] == "Scale" && scale["apiVersion"] == "autoscaling/v1", "{scale}");
    ensure!(scale["metadata"]["name"] == "one" && !version_of(&scale).is_empty(), "{scale}");
    Ok(())
}

async fn update_of_the_scale_subresource_changes_the_replicas(target: Target) -> anyhow::Result<()> {
    let path = create_deployment(&target).await?;
    crate::context::eventually(super::target::SOON, async || {
        // A controller may change the Deployment between the read and the update. The test then repeats both.
        let mut scale = target.read(&format!("{path}/scale")).await?;
        scale["spec"]["replicas"] = json!(2);
        target.http.put(&format!("{path}/scale"), &scale).send().await?.expect(200)?;
        Ok(())
    })
    .await?;
    let read = target.read(&path).await?;
    ensure!(read["spec"]["replicas"] == 2, "{read}");
    Ok(())
}

async fn update_of_the_scale_subresource_with_a_stale_version_is_409(target: Target) -> anyhow::Result<()> {
    let path = create_deployment(&target).await?;
    let mut scale = target.read(&format!("{path}/scale")).await?;
    let patch = json!({"metadata": {"labels": {"changed": "yes"}}});
    target.http.patch(&path, "merge-patch+json", &patch).send().await?.expect(200)?;
    scale["spec"]["replicas"] = json!(2);
    let answer = target.http.put(&format!("{path}/scale"), &scale).send().await?;
    assert_status(&answer, 409, Some("Conflict"), "")?;
    Ok(())
}

async fn patch_of_the_scale_subresource_changes_the_replicas(target: Target) -> anyhow::Result<()> {
    let path = create_deployment(&target).await?;
    let patch = json!({"spec": {"replicas": 3}});
    let written =
        target.http.patch(&format!("{path}/scale"), "merge-patch+json", &patch).send().await?.expect(200)?.json()?;
    ensure!(written["spec"]["replicas"] == 3, "{written}");
    Ok(())
}

fn eviction_body(preconditions: Value) -> Value {
    json!({
        "apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "one"},
        "deleteOptions": {"gracePeriodSeconds": 0, "preconditions": preconditions},
    })
}

async fn eviction_with_matching_preconditions_deletes_the_pod(target: Target) -> anyhow::Result<()> {
    let created = create_pod(&target).await?;
    let path = target.core("pods", "/one/eviction");
    let body = eviction_body(json!({"uid": created["metadata"]["uid"], "resourceVersion": version_of(&created)}));
    let answer = target.http.post(&path, &body).send().await?.expect(201)?.json()?;
    ensure!(answer["status"] == "Success", "{answer}");
    crate::context::eventually(super::target::SOON, async || {
        target.http.get(&target.core("pods", "/one")).send().await?.expect(404).map(|_| ())
    })
    .await
}

async fn eviction_with_a_different_uid_is_409(target: Target) -> anyhow::Result<()> {
    create_pod(&target).await?;
    let path = target.core("pods", "/one/eviction");
    let body = eviction_body(json!({"uid": "00000000-0000-0000-0000-000000000000"}));
    assert_status(&target.http.post(&path, &body).send().await?, 409, Some("Conflict"), "")?;
    target.read(&target.core("pods", "/one")).await?;
    Ok(())
}

async fn dry_run_of_an_eviction_keeps_the_pod(target: Target) -> anyhow::Result<()> {
    create_pod(&target).await?;
    let path = target.core("pods", "/one/eviction?dryRun=All");
    target.http.post(&path, &eviction_body(json!({}))).send().await?.expect(201)?;
    target.read(&target.core("pods", "/one")).await?;
    Ok(())
}

async fn eviction_of_a_missing_pod_is_404(target: Target) -> anyhow::Result<()> {
    let path = target.core("pods", "/one/eviction");
    assert_status(&target.http.post(&path, &eviction_body(json!({}))).send().await?, 404, Some("NotFound"), "")?;
    Ok(())
}

async fn unknown_subresource_is_404(target: Target) -> anyhow::Result<()> {
    create_pod(&target).await?;
    let answer = target.http.get(&target.core("pods", "/one/nothing")).send().await?;
    ensure!(answer.status == 404, "{}: {}", answer.status, answer.text());
    Ok(())
}

async fn token_request_returns_a_service_account_token(target: Target) -> anyhow::Result<()> {
    let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "robot"}});
    target.http.post(&target.core("serviceaccounts", ""), &account).send().await?.expect(201)?;
    let request = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}});
    let path = target.core("serviceaccounts", "/robot/token");
    let answer = target.http.post(&path, &request).send().await?.expect(201)?.json()?;
    ensure!(answer["status"]["token"].as_str().is_some_and(|token| token.contains('.')), "no token");
    Ok(())
}
