//! What opened a stream that a member answers, followed: whether the member's rules still grant it.

use tokio::sync::watch;
use tributary_apimachinery::request_info::ResourceRequest;
use tributary_apimachinery::{ClusterName, Verb};
use tributary_authorization::ResourceAttributes;

use super::visible::CallerRights;
use crate::asked::attributes;
use crate::stream_over::StreamOver;

/// What somebody was granted in one cluster.
///
/// The member has let them, whatever the mirror says: it may not know yet, and other authorizers than the member's rules
/// may have. So the grant is lost once the mirror has seen it and sees it no more.
pub(crate) struct FollowedGrant {
    rights: CallerRights,
    cluster: ClusterName,
    verb: Verb,
    resource: ResourceRequest,
    changes: watch::Receiver<u64>,
    /// Whether the mirror has seen it.
    is_seen: bool,
}

impl FollowedGrant {
    /// Follows it from before the member is asked: what it loses from now on is noticed.
    pub(crate) fn new(rights: &CallerRights, cluster: &ClusterName, verb: Verb, resource: &ResourceRequest) -> Self {
        let (rights, cluster, resource) = (rights.clone(), cluster.clone(), resource.clone());
        let changes = rights.changes();
        let mut grant = Self { rights, cluster, verb, resource, changes, is_seen: false };
        grant.is_lost();
        grant
    }

    /// Ends once it is lost, or it is over for the user's own sake: where rights are not known it is not. Cancelling is safe.
    pub(crate) async fn lost(&mut self) -> StreamOver {
        loop {
            self.changes.mark_unchanged();
            if let Some(why) = self.rights.over() {
                return why;
            }
            if self.is_lost() {
                return StreamOver::RightLost;
            }
            // The mirror ends with the process alone.
            if self.changes.changed().await.is_err() {
                std::future::pending().await
            }
        }
    }

    /// Looks. Costs a lookup of the user's and the groups' grants in the cluster.
    fn is_lost(&mut self) -> bool {
        let asked = ResourceAttributes {
            subresource: self.resource.subresource.as_deref().unwrap_or_default(),
            ..attributes(&self.resource, self.verb.as_str())
        };
        match self.rights.grants(&self.cluster, asked) {
            Some(true) => self.is_seen = true,
            Some(false) => return self.is_seen,
            None => {}
        }
        false
    }
}
