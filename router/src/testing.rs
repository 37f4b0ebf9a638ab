//! Functions for tests and fuzzing of other crates.

pub use tributary_fleet::discovery::{MemberDiscovery, MergedDiscovery, model};

use tokio::sync::watch;
pub use tributary_answers::negotiate::{AnswerForm, NotAcceptable, Preferences, ResponseKind};
use tributary_apimachinery::{ClusterName, GroupVersionResource, UserInfo};
use tributary_authorization::Visible;

use crate::Router;

/// Returns the rights of a user in a cluster, as read from the cluster's roles and bindings; `None` if no valid rights
/// are known.
pub fn rights_in(
    router: &Router,
    cluster: &ClusterName,
    user: &UserInfo,
    verb: &str,
    resource: &GroupVersionResource,
) -> Option<Visible> {
    let mirror = router.rights()?;
    let rights = || mirror.compiled().rights(cluster, user, verb, &resource.group, &resource.resource);
    mirror.knows(cluster).then(rights)
}

/// Returns a receiver of changes of rights; `None` in personal mode.
pub fn rights_changes(router: &Router) -> Option<watch::Receiver<u64>> {
    router.rights().map(|mirror| mirror.changes())
}
