//! Creates namespaces for tests. Each test has its own namespaces, so tests can share members.

use crate::TestCluster;
use serde_json::json;
use std::fmt::Write as _;

/// A name for a namespace, unique among all tests and runs.
#[must_use]
pub fn unique_name(prefix: &str) -> String {
    format!("{prefix}-{:06x}", rand::random::<u32>() & 0x00ff_ffff)
}

/// Creates a namespace in each member.
///
/// # Errors
/// When a member refuses the namespace.
pub async fn create(name: &str, members: &[&TestCluster]) -> anyhow::Result<()> {
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
    for member in members {
        member.http().post("/api/v1/namespaces", &namespace).send().await?.expect(201)?;
    }
    Ok(())
}

/// Lists the objects in a namespace, one line per object. The output helps to explain a failed test.
pub async fn dump(name: &str, member: &TestCluster) -> String {
    let mut text = String::new();
    for (group, resource) in
        [("api/v1", "pods"), ("api/v1", "configmaps"), ("apis/apps/v1", "deployments"), ("apis/apps/v1", "replicasets")]
    {
        let path = format!("/{group}/namespaces/{name}/{resource}");
        let Ok(Ok(list)) = member.http().get(&path).send().await.map(|answer| answer.json()) else { continue };
        for object in list["items"].as_array().into_iter().flatten().take(30) {
            let metadata = &object["metadata"];
            let _infallible = writeln!(
                text,
                "  {}: {resource}/{} version {} phase {}",
                member.name(),
                metadata["name"].as_str().unwrap_or_default(),
                metadata["resourceVersion"].as_str().unwrap_or_default(),
                object["status"]["phase"].as_str().unwrap_or("-"),
            );
        }
    }
    text
}
