//! ClusterProfiles of `multicluster.x-k8s.io/v1alpha1`. Source: kubernetes-sigs/cluster-inventory-api
//! `apis/v1alpha1/clusterprofile_types.go`.

use serde_json::{Value, json};
use tributary_router::cluster_status::{ClusterStatus, ClusterStatusCondition};

use super::member_access::MemberAccess;
use crate::status::{format_time, present_condition};
use crate::verdict::shorten;

/// The name of the cluster manager and of the access provider.
const MANAGER: &str = "tributary";

/// The label of a profile with the name of its cluster manager.
pub(super) const LABEL: (&str, &str) = ("x-k8s.io/cluster-manager", MANAGER);

/// Returns the `spec` of a member's profile.
pub(super) fn profile_fields(member: &str) -> Value {
    json!({
        "spec": {"displayName": member, "clusterManager": {"name": MANAGER}},
    })
}

/// Returns the status of a member's profile. `present` is the present status of the profile.
pub(super) fn profile_status(member: &ClusterStatus, access: &MemberAccess<'_>, present: &Value) -> Value {
    let mut cluster = json!({"server": access.address.server(&member.origin.name)});
    if let Some(data) = access.authority_data() {
        cluster["certificate-authority-data"] = json!(data);
    }
    let mut status = json!({
        "conditions": [
            condition("ControlPlaneHealthy", &member.ready, present),
            condition("tributary.dev/Synced", &member.synced, present),
        ],
        "accessProviders": [{"name": MANAGER, "cluster": cluster}],
    });
    if let Some(version) = &member.version {
        status["version"] = json!({"kubernetes": shorten(version.clone())});
    }
    status
}

/// Returns whether a profile belongs to Tributary's cluster manager. `spec.clusterManager` is immutable, so the answer
/// never changes.
pub(super) fn is_managed(profile: &Value) -> bool {
    profile["spec"]["clusterManager"]["name"] == MANAGER
}

/// Returns a condition. If status and reason are unchanged, returns the present condition without changes, because a
/// new age in a message or a new transition time would cause a write in each round.
fn condition(name: &str, state: &ClusterStatusCondition, present: &Value) -> Value {
    let own = present_condition(present, name);
    let is_same_status = own["status"] == state.status.as_str();
    if is_same_status && own["reason"] == state.reason {
        return own.clone();
    }
    let since = own["lastTransitionTime"].as_str().filter(|_| is_same_status).map(str::to_owned);
    json!({
        "type": name,
        "status": state.status.as_str(),
        "reason": state.reason,
        "message": shorten(state.message.clone()),
        "lastTransitionTime": since.unwrap_or_else(|| format_time(state.since)),
    })
}
