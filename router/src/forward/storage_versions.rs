//! Hashes of the versions in which members store their objects.
//!
//! Clients compare the hashes to see whether stored objects have to be migrated. Tributary reads aggregated discovery,
//! which lacks the hashes. So it fetches them from one member when a client reads the legacy document of one version.
//! Newer clients do not read the legacy document.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use futures::future::join_all;
use http::{Request, header};
use serde::Deserialize;
use tributary_answers::refusal::{ClusterRefusal, MemberRefusal, Refusal};
use tributary_apimachinery::json::null_is_default;
use tributary_apimachinery::{ClusterName, GroupVersionResource};
use tributary_fleet::discovery::MergedDiscovery;
use tributary_fleet::discovery::documents::StorageVersionHashes;
use tributary_fleet::topology::Fleet;
use tributary_sharing::body;

use super::send::look_up_with_own_account;
use crate::dispatch::Dispatch;

/// Time limit for a member. A document without hashes is better than no document.
const PATIENCE: Duration = Duration::from_secs(3);

#[derive(Deserialize)]
struct ResourceList {
    #[serde(default, deserialize_with = "null_is_default")]
    resources: Vec<ResourceStorageVersion>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ResourceStorageVersion {
    name: String,
    #[serde(default, deserialize_with = "null_is_default")]
    storage_version_hash: String,
}

/// Fetches the hashes of one version. Each resource is read from the first member that serves it, is reachable, and
/// does not have `dispatch: DenyAll`. The resources of a member that does not answer have no hashes.
pub(crate) async fn hashes(
    fleet: &Fleet,
    merged_discovery: &MergedDiscovery,
    (group, version): (&str, &str),
    dispatch: Option<&Dispatch>,
) -> StorageVersionHashes {
    let is_frozen = |name: &ClusterName| dispatch.is_some_and(|dispatch| dispatch.frozen(name).is_some());
    let Some(described) = merged_discovery.version(group, version) else { return StorageVersionHashes::new() };
    let owners: BTreeMap<&str, &ClusterName> = described
        .resources
        .iter()
        .filter_map(|resource| {
            let served = merged_discovery.get(&GroupVersionResource::new(group, version, &resource.resource))?;
            let mut in_reach = served.clusters.iter().filter(|name| {
                let cluster = fleet.cluster(name);
                !is_frozen(name) && cluster.is_some_and(|cluster| cluster.problem().is_none())
            });
            Some((&*resource.resource, in_reach.next()?))
        })
        .collect();
    let path = if group.is_empty() { format!("/api/{version}") } else { format!("/apis/{group}/{version}") };
    let clusters: BTreeSet<&ClusterName> = owners.values().copied().collect();
    let requests = clusters.into_iter().map(async |name| {
        match tokio::time::timeout(PATIENCE, fetch_resource_list(fleet, name, &path)).await {
            Ok(Ok(list)) => (name, list.resources),
            Ok(Err(refusal)) => {
                tracing::debug!(cluster = %name, path, message = %refusal,
                    "the storage version hashes of the cluster cannot be read");
                (name, Vec::new())
            }
            Err(_) => (name, Vec::new()),
        }
    });
    let answers = join_all(requests).await.into_iter();
    answers
        .flat_map(|(cluster, resources)| resources.into_iter().map(move |stored| (cluster, stored)))
        .filter(|(cluster, stored)| {
            !stored.storage_version_hash.is_empty() && owners.get(&*stored.name) == Some(cluster)
        })
        .map(|(_, stored)| (stored.name, stored.storage_version_hash))
        .collect()
}

async fn fetch_resource_list(fleet: &Fleet, name: &ClusterName, path: &str) -> Result<ResourceList, Refusal> {
    let cluster = fleet.cluster(name).ok_or_else(|| ClusterRefusal::NotConfigured(name.clone()))?;
    let mut request = Request::new(body::empty());
    request.headers_mut().insert(header::ACCEPT, header::HeaderValue::from_static("application/json"));
    let answer = look_up_with_own_account(&cluster, request, path).await?;
    let code = answer.status();
    let text = body::whole(answer.into_body()).await.map_err(|error| MemberRefusal::unavailable(name, error))?;
    if !code.is_success() {
        return Err(Refusal::from_member_answer(code, &text));
    }
    Ok(serde_json::from_slice(&text).map_err(|error| MemberRefusal::unavailable(name, error))?)
}
