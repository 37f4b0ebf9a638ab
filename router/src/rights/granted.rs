//! What a member grants a caller; and what opened a stream that it answers, followed: whether its rules still grant all
//! of it.

use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};
use tributary_apimachinery::{ClusterName, RequestInfo, or_never};
use tributary_authorization::Attributes;

use super::actor::Whom;
use super::caller_rights::CallerRights;
use super::needed::Needed;
use super::unconfirmed::CONFIRMED_WITHIN;
use crate::stream_over::StreamOver;

impl CallerRights {
    /// Whether a cluster lets the caller do something with a request, by its roles and bindings or by its word; `None`
    /// where that is not known.
    pub(super) fn grants(
        &self,
        cluster: &ClusterName,
        request: &Attributes<'_>,
        asked: &Attributes<'_>,
    ) -> Option<bool> {
        let fleet = self.mirror.compiled();
        self.there_for(&fleet, cluster, request, || self.judged(&fleet, Whom::Acting).allows(cluster, asked))
    }
}

/// What somebody was granted in one cluster: each of the verbs that opened what lasts.
///
/// The member has let them, whatever the mirror says: it may not know yet, and other authorizers than the member's
/// rules may have. So the grant is lost once the mirror has seen it and sees it no more. A member that is asked is
/// asked again as often as its answers hold: a minute after it says no, nothing lasts any more. Nor does what it has
/// not confirmed a minute after what it said ceased to count.
pub(crate) struct FollowedGrant {
    rights: CallerRights,
    cluster: ClusterName,
    verbs: Vec<FollowedVerb>,
    asked: RequestInfo,
    changes: watch::Receiver<u64>,
    /// Since when it has not been known whether the member that is asked grants what it has granted.
    unconfirmed: Option<Instant>,
}

struct FollowedVerb {
    verb: &'static str,
    /// Whether the mirror, or the member, has said that it is granted.
    is_seen: bool,
}

impl FollowedGrant {
    /// Follows it from before the member is asked: what it loses from now on is noticed.
    pub(crate) fn new(
        rights: &CallerRights,
        cluster: &ClusterName,
        verbs: impl IntoIterator<Item = &'static str>,
        asked: &RequestInfo,
    ) -> Self {
        let (rights, cluster, asked) = (rights.clone(), cluster.clone(), asked.clone());
        let verbs = verbs.into_iter().map(|verb| FollowedVerb { verb, is_seen: false }).collect();
        let changes = rights.changes();
        let mut grant = Self { rights, cluster, verbs, asked, changes, unconfirmed: None };
        grant.look();
        grant
    }

    /// Ends once it is lost, or it is over for the user's own sake: where roles and bindings are not known it is not.
    /// Cancelling is safe.
    pub(crate) async fn lost(&mut self) -> StreamOver {
        loop {
            self.changes.mark_unchanged();
            if let Some(why) = self.rights.over() {
                return why;
            }
            let ((is_lost, is_unknown), Needed { open, until }) = self.look();
            let is_asked = !open.is_empty() || until.is_some();
            let since = (is_unknown && is_asked).then(|| self.unconfirmed.unwrap_or_else(Instant::now));
            self.unconfirmed = since;
            let confirm_by = since.map(|since| since + CONFIRMED_WITHIN);
            if is_lost || confirm_by.is_some_and(|by| by <= Instant::now()) {
                return StreamOver::RightLost;
            }
            let (rights, is_to_be_asked) = (self.rights.clone(), !open.is_empty());
            let asked_or_over = async {
                match is_to_be_asked {
                    true => rights.confirm(open).await,
                    false => or_never(until.map(sleep_until)).await,
                }
            };
            tokio::select! {
                () = asked_or_over => {}
                () = or_never(confirm_by.map(sleep_until)) => {}
                // The mirror ends with the process alone.
                changed = self.changes.changed() => if changed.is_err() {
                    std::future::pending().await
                },
            }
        }
    }

    /// Whether one of the verbs is lost, and whether it is not known of one that was granted, with what has to be known
    /// for that. Costs a lookup of the user's and the groups' grants in the cluster for each.
    fn look(&mut self) -> ((bool, bool), Needed) {
        let Self { rights, cluster, verbs, asked, .. } = self;
        let asked = Attributes::of(asked);
        rights.decided(|rights| {
            // All are looked at, so that all are asked at once.
            verbs.iter_mut().fold((false, false), |(is_lost, is_unknown), FollowedVerb { verb, is_seen }| {
                let granted = rights.grants(cluster, &asked, &asked.with_verb(verb));
                let was_seen = std::mem::replace(is_seen, *is_seen || granted == Some(true));
                (is_lost || (granted == Some(false) && was_seen), is_unknown || (granted.is_none() && was_seen))
            })
        })
    }
}
