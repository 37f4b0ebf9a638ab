//! What tests and fuzzing of other crates look at, and nobody else needs.

pub use tributary_fleet::discovery::{MemberDiscovery, Union, model};

use tokio::sync::watch;
pub use tributary_answers::negotiate::{AnswerForm, NotAcceptable, Preferences, ResponseKind};
use tributary_apimachinery::{ClusterName, GroupVersionResource};
use tributary_authorization::{RbacUser, Visible};

use crate::Router;

/// What the mirror says that a user may do in a cluster; `None` where it knows nothing that counts.
pub fn rights_in(
    router: &Router,
    cluster: &ClusterName,
    user: RbacUser<'_>,
    verb: &str,
    resource: &GroupVersionResource,
) -> Option<Visible> {
    let mirror = router.rights()?;
    let rights = || mirror.compiled().rights(cluster, user, verb, &resource.group, &resource.resource);
    mirror.knows(cluster).then(rights)
}

/// Tells when rights may have changed; `None` in personal mode.
pub fn rights_changes(router: &Router) -> Option<watch::Receiver<u64>> {
    router.rights().map(|mirror| mirror.changes())
}
