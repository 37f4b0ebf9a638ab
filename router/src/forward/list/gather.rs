//! Gathering of members' lists in order, until all members have answered, the page is full, or the limit of bytes is
//! reached.

use std::ops::ControlFlow;
use std::sync::Arc;

use futures::stream::{self, FuturesOrdered};
use futures::{StreamExt, future::BoxFuture};
use http::HeaderValue;
use tokio::time::{Duration, Instant};
use tributary_answers::refusal::{
    ImpersonationForbidden, MemberRefusal, Refusal, VersionRefusal, is_forbidden_by_status, is_list_error,
    is_permanent_error, is_unserved_by_status,
};
use tributary_apimachinery::{ClusterName, Partial};
use tributary_fleet::topology::Cluster;
use tributary_merge::{CompositeResourceVersion, Epochs};
use tributary_sharing::flow::fair_semaphore::FairSemaphore;
use tributary_sharing::flow::share_key::ShareKey;
use tributary_sharing::limits::GATHERED_BYTES_MAX;
use tributary_views::view::{CacheState, KNOWN_WITHIN, UncachedReason};

use super::member_list::{ListQuery, MemberList};
use super::token::LiveContinueToken;

/// Time limit of a cluster's list if a partial answer is allowed.
const ANSWER_WITHIN: Duration = Duration::from_secs(10);

/// Number of parallel requests to members while the size of their lists is unknown.
const WINDOW_MIN: usize = 4;

/// Maximum of parallel requests to members.
const WINDOW_MAX: usize = 32;

pub(super) struct Gathering<'a> {
    pub(super) list_query: ListQuery,
    /// Maximum of objects on a page; 0 for no limit.
    pub(super) limit: u64,
    pub(super) partial: Partial,
    /// Limit of body bytes, shared by all requests.
    pub(super) body_bytes: &'a Arc<FairSemaphore>,
    pub(super) share_key: ShareKey,
}

pub(super) fn within(partial: Partial) -> Duration {
    if partial == Partial::Deny { KNOWN_WITHIN } else { ANSWER_WITHIN }
}

pub(super) struct GatheredPage {
    pub(super) lists: Vec<MemberList>,
    pub(super) later: Vec<Arc<Cluster>>,
    pub(super) cache_states: Vec<(ClusterName, CacheState)>,
    /// Warnings of members, without duplicates.
    pub(super) warnings: Vec<(ClusterName, HeaderValue)>,
    /// Versions of the clusters on earlier pages.
    pub(super) version: CompositeResourceVersion,
    /// Start of the next page if this page is full. `None` if the next page starts in the middle of the last member's
    /// list.
    pub(super) next: Option<LiveContinueToken>,
    refusals: Vec<Refusal>,
    seen: GatherProgress,
}

/// Progress of the page, from which the size of the remaining answers is estimated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct GatherProgress {
    /// Number of members that have answered or failed.
    members: usize,
    items: u64,
    bytes: usize,
    longest: usize,
    /// Number of members on the previous page; 0 if unknown.
    before: usize,
}

impl GatherProgress {
    /// Returns the number of parallel requests. Without a limit of objects, the page needs every member, so the number
    /// depends on the size of the members' lists. With a limit, the number is the estimated number of members that the
    /// page still needs, and one more.
    fn window(&self, limit: u64) -> usize {
        let by_bytes = match self.members {
            0 => WINDOW_MIN,
            _ => (GATHERED_BYTES_MAX / self.longest.max(1)).clamp(WINDOW_MIN, WINDOW_MAX),
        };
        if limit == 0 {
            return by_bytes;
        }
        let remaining = limit.saturating_sub(self.items);
        let needed = match self.items {
            // The answered members had no items, so the window doubles.
            0 => self.before.max(self.members),
            items => usize::try_from(remaining.saturating_mul(self.members as u64) / items).unwrap_or(WINDOW_MAX),
        };
        needed.saturating_add(1).min(by_bytes.max(1 + self.before.min(WINDOW_MAX)))
    }
}

type ListResult = (Arc<Cluster>, Result<MemberList, Refusal>);

/// Result of [`MemberList::probe`] for a cluster: the Warnings of its answer, or a refusal.
type ProbeResult = (Arc<Cluster>, Result<Vec<HeaderValue>, Refusal>);

impl GatheredPage {
    /// Starts the page of a continue token, or the first page. `clusters` are the clusters of the list.
    ///
    /// # Errors
    /// 410 for a token whose versions are outdated, or belong to other clusters.
    pub(super) fn new(
        token: Option<&LiveContinueToken>,
        epochs: &Epochs,
        clusters: &[Arc<Cluster>],
    ) -> Result<Self, VersionRefusal> {
        let is_listed = |name: &ClusterName| clusters.iter().any(|cluster| cluster.name() == name);
        let version = token.map_or(Ok(None), |token| token.shown(epochs, is_listed))?.unwrap_or_default();
        Ok(Self {
            lists: Vec::new(),
            later: Vec::new(),
            cache_states: Vec::new(),
            warnings: Vec::new(),
            version,
            next: None,
            refusals: Vec::new(),
            seen: GatherProgress { before: token.map_or(0, |token| token.members), ..GatherProgress::default() },
        })
    }

    pub(super) fn bytes(&self) -> usize {
        self.seen.bytes
    }

    /// Sends the list to the clusters, beginning with the token's cluster, until the page is full, all clusters have
    /// answered, or the limit of bytes is reached. Cancellation: dropping the future ends the requests.
    ///
    /// # Errors
    /// Errors of the list.
    pub(super) async fn gather(
        &mut self,
        gathering: &Gathering<'_>,
        clusters: &[Arc<Cluster>],
        token: Option<LiveContinueToken>,
    ) -> Result<(), Refusal> {
        let begun = Instant::now();
        let limit = gathering.limit;
        // Clusters are sorted by name, so earlier pages contain all clusters before the token's cluster.
        let first = token.as_ref().map_or("", |token| &token.cluster);
        let wanted = &clusters[clusters.partition_point(|cluster| cluster.name().as_str() < first)..];
        let mut waiting = wanted.iter();
        let mut running: FuturesOrdered<BoxFuture<'_, ListResult>> = FuturesOrdered::new();
        loop {
            while running.len() < self.seen.window(limit)
                && let Some(cluster) = waiting.next()
            {
                // The token is only for its cluster. If this cluster was removed, the page starts at the beginning of
                // the next cluster.
                let own = token.as_ref().filter(|token| token.cluster == cluster.name().as_str());
                let own = own.and_then(|token| token.token.clone());
                running.push_back(Box::pin(
                    async move { (Arc::clone(cluster), gathering.fetch_list(cluster, own).await) },
                ));
            }
            let Some((cluster, result)) = running.next().await else { break };
            self.seen.members += 1;
            let Some(list) = self.sort_out(&cluster, result, (begun, gathering.partial))? else { continue };
            if self.add_list(list, limit, clusters).is_break() {
                break;
            }
        }
        drop(running);
        self.probe(gathering, begun).await?;
        let is_refused = self.lists.is_empty() && self.refusals.iter().all(is_final);
        match self.refusals.pop() {
            // All members refuse in the same way, so their refusal is the client's answer.
            Some(refusal) if is_refused => Err(refusal),
            _ => Ok(()),
        }
    }

    /// Adds the list of the next member, if the list fits on the page. Returns whether the page ends.
    fn add_list(&mut self, list: MemberList, limit: u64, clusters: &[Arc<Cluster>]) -> ControlFlow<()> {
        let cluster = Arc::clone(&list.cluster);
        let overflows = self.seen.bytes + list.bytes() > GATHERED_BYTES_MAX || !list.is_complete();
        let is_too_many = limit > 0 && (overflows || self.seen.items + list.count() > limit);
        if is_too_many && self.seen.items > 0 {
            self.end_before(&cluster);
            return ControlFlow::Break(());
        }
        let has_more = list.has_more();
        self.add(list);
        if has_more {
            return ControlFlow::Break(());
        }
        if !overflows {
            return ControlFlow::Continue(());
        }
        let mut behind = clusters.iter().filter(|other| other.name() > cluster.name());
        if limit > 0 {
            // The next page begins after this member, unless the remainder of this member's list ends with a continue
            // token.
            self.next = behind.next().map(|next| self.token_at(next));
        } else {
            self.later = behind.cloned().collect();
        }
        ControlFlow::Break(())
    }

    /// Probes the members whose lists do not fit into memory. The Warnings about missing clusters are headers, which
    /// precede the body, so the probes precede the body, too.
    async fn probe(&mut self, gathering: &Gathering<'_>, begun: Instant) -> Result<(), Refusal> {
        let later = std::mem::take(&mut self.later);
        let probes = later.into_iter().map(|cluster| async move {
            let result = gathering.probe(&cluster).await;
            (cluster, result)
        });
        let probes: Vec<BoxFuture<'_, ProbeResult>> = probes.map(|probe| Box::pin(probe) as BoxFuture<'_, _>).collect();
        let mut answers = stream::iter(probes).buffered(WINDOW_MAX);
        while let Some((cluster, result)) = answers.next().await {
            if let Some(warnings) = self.sort_out(&cluster, result, (begun, gathering.partial))? {
                self.add_warnings(&cluster, &warnings);
                self.later.push(cluster);
            }
        }
        Ok(())
    }

    /// Returns the cluster's answer, if the cluster serves the resource and answers. A cluster that forbids the user's
    /// impersonation is excluded without a Warning, unless it is the only cluster.
    ///
    /// # Errors
    /// A refusal of the request itself: the other clusters would refuse the request, too, or would never get the token
    /// of this cluster. Under `partial: Deny`, also the refusal to let Tributary's account impersonate: a retry would
    /// fail, too.
    fn sort_out<T>(
        &mut self,
        cluster: &Arc<Cluster>,
        result: Result<T, Refusal>,
        (begun, partial): (Instant, Partial),
    ) -> Result<Option<T>, Refusal> {
        let refusal = match result {
            Ok(value) => return Ok(Some(value)),
            Err(refusal) => refusal,
        };
        if refusal.is_impersonation_forbidden_by_cluster() {
            self.refusals.push(refusal);
            return Ok(None);
        }
        let (is_served, is_about_request, forbidden) = match refusal.member_status() {
            Some(status) => (!is_unserved_by_status(status), is_list_error(status), is_forbidden_by_status(status)),
            None => (true, refusal.is_about_request() || refusal.is_about_share(), false),
        };
        if is_about_request {
            return Err(expired(refusal, cluster));
        }
        if let Some(impersonation_forbidden) = refusal.impersonation_forbidden() {
            if partial == Partial::Deny {
                return Err(MemberRefusal::ImpersonationForbidden(ImpersonationForbidden {
                    is_one_of_several: true,
                    ..impersonation_forbidden.clone()
                })
                .into());
            }
            let reason = format!("the cluster {}", impersonation_forbidden.reason());
            self.cache_states.push((cluster.name().clone(), CacheState::LeftOut { reason }));
            self.refusals.push(refusal);
        } else if is_served {
            let reason = Some(refusal.to_string().into());
            let uncached_reason = if forbidden { UncachedReason::Forbidden } else { UncachedReason::Transient };
            let cache_state = CacheState::Unknown { since: begun, reason, uncached_reason };
            self.cache_states.push((cluster.name().clone(), cache_state));
            self.refusals.push(refusal);
        }
        Ok(None)
    }

    fn add_warnings(&mut self, cluster: &Cluster, warnings: &[HeaderValue]) {
        for warning in warnings {
            let entry = (cluster.name().clone(), warning.clone());
            if !self.warnings.contains(&entry) {
                self.warnings.push(entry);
            }
        }
        self.cache_states.push((cluster.name().clone(), CacheState::Fresh));
    }

    fn add(&mut self, list: MemberList) {
        self.seen.items += list.count();
        self.seen.bytes += list.bytes();
        self.seen.longest = self.seen.longest.max(list.bytes());
        let cluster = Arc::clone(&list.cluster);
        self.add_warnings(&cluster, &list.warnings);
        self.lists.push(list);
    }

    fn end_before(&mut self, cluster: &Cluster) {
        self.next = Some(self.token_at(cluster));
    }

    fn token_at(&self, cluster: &Cluster) -> LiveContinueToken {
        LiveContinueToken { cluster: cluster.name().to_string(), token: None, version: None, members: self.lists.len() }
    }
}

impl Gathering<'_> {
    async fn fetch_list(&self, cluster: &Arc<Cluster>, token: Option<String>) -> Result<MemberList, Refusal> {
        let portion = self.body_bytes.acquire(self.share_key, 0)?;
        let within = within(self.partial);
        MemberList::fetch_list(cluster, &self.list_query, token.as_deref(), within, Some(portion)).await
    }

    async fn probe(&self, cluster: &Arc<Cluster>) -> Result<Vec<HeaderValue>, Refusal> {
        MemberList::probe(cluster, &self.list_query, within(self.partial)).await
    }
}

/// Returns whether the member will also refuse each retry.
fn is_final(refusal: &Refusal) -> bool {
    refusal.impersonation_forbidden().is_some()
        || refusal.is_impersonation_forbidden_by_cluster()
        || refusal.member_status().is_some_and(is_permanent_error)
}

/// Converts a member's refusal of a continue token that the member has issued. A fresh token in the refusal becomes a
/// token of the merged list.
fn expired(mut refusal: Refusal, cluster: &Cluster) -> Refusal {
    if let Some(status) = refusal.member_status_mut()
        && let Some(metadata) = status.metadata.as_mut().filter(|metadata| !metadata.continue_token.is_empty())
    {
        let fresh = std::mem::take(&mut metadata.continue_token);
        let token =
            LiveContinueToken { cluster: cluster.name().to_string(), token: Some(fresh), version: None, members: 0 };
        metadata.continue_token = token.encode("");
    }
    refusal
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn live_list_sends_as_many_parallel_requests_as_a_page_needs() {
        let seen = |members, items, longest, before| GatherProgress { members, items, longest, before, bytes: 0 };
        for (seen, limit, expected) in [
            // Without a limit the page needs every member: the shorter their lists, the more parallel requests.
            (seen(0, 0, 0, 0), 0, 4),
            (seen(1, 10, 10 << 10, 0), 0, 32),
            (seen(3, 10, 1 << 20, 0), 0, 8),
            (seen(3, 10, 64 << 20, 0), 0, 4),
            (seen(4, 0, 0, 0), 0, 32),
            // With a limit, the first page sends one request, and then more in ever larger rounds.
            (seen(0, 0, 0, 0), 500, 1),
            (seen(1, 0, 0, 0), 500, 2),
            (seen(8, 0, 0, 0), 500, 9),
            // The number of items in the lists of the answered members shows how many more members the page needs.
            (seen(1, 500, 1 << 20, 0), 500, 1),
            (seen(2, 20, 1 << 10, 0), 500, 32),
            (seen(10, 450, 1 << 10, 0), 500, 2),
            // The next page begins with as many parallel requests as the previous page had members, and one more.
            (seen(0, 0, 0, 1), 500, 2),
            (seen(0, 0, 0, 20), 500, 21),
            // A client may write any number into its token, so the number of requests has a maximum.
            (seen(0, 0, 0, usize::MAX), 500, 33),
        ] {
            assert_eq!(seen.window(limit), expected, "{seen:?}, limit {limit}");
        }
    }
}
