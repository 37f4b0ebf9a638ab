//! What opened a stream that a member answers, followed: whether the member's rules still grant it.

use tokio::sync::watch;
use tokio::time::sleep_until;
use tributary_apimachinery::request_info::ResourceRequest;
use tributary_apimachinery::{ClusterName, Verb};
use tributary_authorization::{Attributes, ResourceAttributes};

use super::judged::Needed;
use super::visible::CallerRights;
use crate::asked::attributes;
use crate::stream_over::StreamOver;

/// What somebody was granted in one cluster.
///
/// The member has let them, whatever the mirror says: it may not know yet, and other authorizers than the member's rules
/// may have. So the grant is lost once the mirror has seen it and sees it no more. A member that is asked is asked again
/// as often as its answers hold: a minute after it says no, nothing lasts any more.
pub(crate) struct FollowedGrant {
    rights: CallerRights,
    cluster: ClusterName,
    verb: Verb,
    resource: ResourceRequest,
    changes: watch::Receiver<u64>,
    /// Whether the mirror, or the member, has said so.
    is_seen: bool,
}

impl FollowedGrant {
    /// Follows it from before the member is asked: what it loses from now on is noticed.
    pub(crate) fn new(rights: &CallerRights, cluster: &ClusterName, verb: Verb, resource: &ResourceRequest) -> Self {
        let (rights, cluster, resource) = (rights.clone(), cluster.clone(), resource.clone());
        let changes = rights.changes();
        let mut grant = Self { rights, cluster, verb, resource, changes, is_seen: false };
        grant.look();
        grant
    }

    /// Ends once it is lost, or it is over for the user's own sake: where rights are not known it is not. Cancelling is safe.
    pub(crate) async fn lost(&mut self) -> StreamOver {
        loop {
            self.changes.mark_unchanged();
            if let Some(why) = self.rights.over() {
                return why;
            }
            let (is_lost, Needed { open, until }) = self.look();
            if is_lost {
                return StreamOver::RightLost;
            }
            let (rights, is_to_be_asked) = (self.rights.clone(), !open.is_empty());
            let asked_or_over = async {
                match (is_to_be_asked, until) {
                    (true, _) => rights.ask(open).await,
                    (false, Some(until)) => sleep_until(until).await,
                    (false, None) => std::future::pending().await,
                }
            };
            tokio::select! {
                () = asked_or_over => {}
                // The mirror ends with the process alone.
                changed = self.changes.changed() => if changed.is_err() {
                    std::future::pending().await
                },
            }
        }
    }

    /// Whether it is lost, and what has to be known for that. Costs a lookup of the user's and the groups' grants in the
    /// cluster.
    fn look(&mut self) -> (bool, Needed) {
        let asked = Attributes::Resource(ResourceAttributes {
            subresource: self.resource.subresource.as_deref().unwrap_or_default(),
            ..attributes(&self.resource, self.verb.as_str())
        });
        let (granted, needed) = self.rights.decided(|rights| rights.grants(&self.cluster, &asked));
        let is_lost = granted == Some(false) && self.is_seen;
        self.is_seen |= granted == Some(true);
        (is_lost, needed)
    }
}
