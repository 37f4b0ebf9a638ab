//! Choice of the cached view for a read: the view of all namespaces, or the view of one namespace if a member forbids
//! reading all of them.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use tributary_answers::refusal::{LimitRefusal, Refusal};
use tributary_apimachinery::{ClusterName, ClusterSelector, GroupVersionResource, ObjectKey, Partial};
use tributary_fleet::discovery::ServedResource;
use tributary_sharing::flow::share_key::ShareKey;
use tributary_sharing::limits::NAMESPACE_UNUSED_AFTER;
use tributary_views::view::{CacheState, CacheStates, EarlierCacheStates, KNOWN_WITHIN, View, WriterSelector};
use tributary_views::views::Views;

use crate::configuration::ConfigurationSnapshot;
use crate::request::ClientRequest;

/// Kind of a read, by its duration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lifetime {
    /// A single list, which does not wait for the creation of a missing namespace.
    Once,
    /// A request for one name. If a cluster's first list takes long, Tributary can send the request to the cluster
    /// instead.
    Name,
    /// A watch, which waits for the creation of a missing namespace.
    Follows,
}

/// Time that a request for one name waits for first lists of clusters, before Tributary sends the request to these
/// clusters. 3 s is the time that a read waits for a version, and the time limit of a lookup in a cluster.
const NAME_ASKED_AFTER: Duration = Duration::from_secs(3);

#[derive(Clone, Copy)]
struct ViewRead<'a> {
    configuration: &'a ConfigurationSnapshot,
    served: &'a ServedResource,
    /// Requested namespace; `None` for all namespaces, and for cluster-scoped resources.
    namespace: Option<&'a str>,
    wanted: &'a ClusterSelector,
    /// Policy for clusters without cached objects: a partial answer, or a refusal.
    partial: Partial,
    lifetime: Lifetime,
    /// Client whose share of namespace views the read uses.
    user: ShareKey,
    /// Client whose writes the read waits for.
    by: WriterSelector,
}

/// The cached objects of the resource `namespaces`, to check whether a namespace exists.
struct Namespaces {
    view: Arc<View>,
    cache_states: Arc<CacheStates>,
}

impl Namespaces {
    /// Returns whether all of these clusters are known to lack the namespace. A namespace is assumed to exist if its
    /// creation, or a write in the namespace, passed through this process, even if the event has not arrived. `of` is
    /// the cached view of the requested resource.
    fn is_missing(&self, of: &View, clusters: &[ClusterName], namespace: &str) -> bool {
        let is_fresh = |cluster| self.cache_states.cache_state_of(cluster) == Some(&CacheState::Fresh);
        let key = ObjectKey::new("", namespace);
        clusters.iter().all(|cluster| is_fresh(cluster) && !of.read_your_writes.has_pending_in(cluster, namespace))
            && self.view.read_your_writes.pending_of(WriterSelector::AnyWriter, key.as_str()).is_empty()
            && !self.view.log().find(key.as_str()).iter().any(|(cluster, _)| clusters.contains(cluster))
    }
}

impl ClientRequest<'_> {
    /// Returns the cached view for a read of one name, and the state of its clusters. Waits only for the first list of
    /// each cluster.
    ///
    /// # Errors
    /// 429 if the limit of namespace views is reached.
    pub(crate) async fn view(&self) -> Result<(Arc<View>, EarlierCacheStates), Refusal> {
        let (view, before) = self.read(&self.candidates.selector(), Partial::Allow, Lifetime::Name).await;
        Ok((view, before?))
    }

    /// Returns the cached view for a read of the selected clusters, and the state of the clusters.
    ///
    /// # Errors
    /// The state is an error, beside a valid view: 429 if clusters are unknown and the policy forbids partial answers,
    /// or if the limit of namespace views is reached.
    pub(crate) async fn read(
        &self,
        wanted: &ClusterSelector,
        partial: Partial,
        lifetime: Lifetime,
    ) -> (Arc<View>, Result<EarlierCacheStates, Refusal>) {
        let Self { configuration, served, .. } = *self;
        let (namespace, user) = (self.resource.namespace.as_deref(), self.caller.share_key);
        let by = WriterSelector::One(self.caller.writer());
        let read = ViewRead { configuration, served, namespace, wanted, partial, lifetime, user, by };
        let (view, cache_states) = read.cached_view(self.router.views()).await;
        let before = cache_states.map(|mut cache_states| {
            let policy = configuration.policy(&served.resource);
            let is_wanted = |cluster: &ClusterName| policy.selects(cluster) && wanted.matches(cluster);
            let others = CacheState::left_out(served).chain(configuration.unserved(served));
            for (cluster, cache_state) in others.filter(|(cluster, _)| is_wanted(cluster)) {
                Arc::make_mut(&mut cache_states).set(cluster, cache_state);
            }
            EarlierCacheStates::new(cache_states, wanted, partial)
        });
        (view, before)
    }
}

impl ViewRead<'_> {
    /// Returns the cached view for the read, and the state of its clusters. If a member forbids reading all namespaces
    /// and the request names a namespace, the result is the view of the namespace.
    ///
    /// # Errors
    /// As [`ClientRequest::read`].
    async fn cached_view(self, views: &Arc<Views>) -> (Arc<View>, Result<Arc<CacheStates>, Refusal>) {
        let Self { configuration, served, namespace, wanted, partial, lifetime, .. } = self;
        let deadline = Instant::now() + KNOWN_WITHIN;
        let own = configuration.policy(&served.resource).view_of(served.description.namespaced(), namespace);
        let view = views.get_or_start(served, own, namespace).await;
        view.follow_serving_clusters(served);
        let mut cache_states = self.wait_for_attempts(&view, deadline).await;
        if let Some(namespace) = namespace.filter(|_| own.is_none() && cache_states.is_one_forbidden()) {
            let forbidding: Vec<_> = cache_states.forbidding().cloned().collect();
            if lifetime == Lifetime::Follows || !self.is_missing(views, &view, &forbidding, namespace).await {
                return match self.of_namespace(views, &view, &forbidding, namespace).await {
                    Ok(part) => {
                        let cache_states = match partial {
                            Partial::Allow => Ok(self.wait_for_attempts(&part, deadline).await),
                            Partial::Deny => part.wait_until_known(partial, wanted, deadline).await,
                        };
                        (part, cache_states)
                    }
                    // At the limit of namespace views, the cached view of all namespaces serves the objects that it
                    // has. But not if there was a view of the namespace: it may have sent newer events, and a client
                    // must not see older objects afterwards.
                    Err(_) if !cache_states.is_one_given_up() && !view.had_namespace_view(namespace) => {
                        let cache_states = view.wait_until_known(partial, wanted, deadline).await;
                        (view, cache_states)
                    }
                    Err(refusal) => (view, Err(refusal.into())),
                };
            }
            // Memory has no objects of a missing namespace, so a list of the namespace is empty.
            for cluster in forbidding {
                if !cache_states.cache_state_of(&cluster).is_some_and(CacheState::is_known) {
                    Arc::make_mut(&mut cache_states).set(cluster, CacheState::NoNamespace);
                }
            }
        }
        if partial == Partial::Allow || cache_states.are_known() {
            return (view, Ok(cache_states));
        }
        let cache_states = view.wait_until_known(partial, wanted, deadline).await;
        (view, cache_states)
    }

    /// Waits for the first list of each cluster, and returns the cache states of the clusters. A request for one name
    /// waits less for clusters to which Tributary can send the request.
    async fn wait_for_attempts(self, view: &View, deadline: Instant) -> Arc<CacheStates> {
        let Self { configuration, served, wanted, lifetime, .. } = self;
        let can_be_asked = |name: &ClusterName| {
            let cluster = configuration.clusters.get(name).filter(|_| served.clusters.contains(name));
            cluster.is_some_and(|cluster| cluster.can_be_asked())
        };
        // A partial answer is allowed, so no refusal is possible.
        let states_until = async |until| {
            let cache_states = view.wait_until_known(Partial::Allow, wanted, until).await;
            cache_states.unwrap_or_else(|_| view.cache_states_of(wanted))
        };
        if lifetime == Lifetime::Name {
            let cache_states = states_until(Instant::now() + NAME_ASKED_AFTER).await;
            if cache_states.under_way().all(can_be_asked) {
                return cache_states;
            }
        }
        states_until(deadline).await
    }

    /// Returns the view of one namespace, for clusters that forbid reading all namespaces. At the limit of views, the
    /// view of a missing or long forbidden namespace is dropped, so that watches of invented names cannot exhaust the
    /// limit. A view of a missing namespace never replaces a different view. The view of a recently forbidden namespace
    /// stays, because otherwise two clients could replace each other's views forever.
    async fn of_namespace(
        self,
        views: &Arc<Views>,
        whole: &Arc<View>,
        forbidding: &[ClusterName],
        namespace: &str,
    ) -> Result<Arc<View>, LimitRefusal> {
        let user = self.user;
        let part = views.get_or_start_namespace_view(whole, namespace, user);
        let Err(full) = part else { return part };
        let known = self.namespaces(views, forbidding).await;
        let is_missing =
            |namespace: &str| known.as_ref().is_some_and(|known| known.is_missing(whole, forbidding, namespace));
        let is_idle = |part: &Arc<View>| {
            let namespace = part.namespace.as_deref().unwrap_or_default();
            let is_forbidden = || part.age() >= NAMESPACE_UNUSED_AFTER && part.is_forbidden_by_all(forbidding);
            part.log().objects() == 0 && (is_missing(namespace) || is_forbidden())
        };
        if is_missing(namespace) || !views.end_idle_namespace_view(whole, user, is_idle) {
            return Err(full);
        }
        views.get_or_start_namespace_view(whole, namespace, user)
    }

    /// Returns the cached view of the resource `namespaces`; `None` if memory does not cache namespaces. Waits only for
    /// the first lists of `clusters`: other clusters that do not answer would delay the read by half a minute.
    async fn namespaces(self, views: &Arc<Views>, clusters: &[ClusterName]) -> Option<Namespaces> {
        let namespaces = GroupVersionResource::new("", "v1", "namespaces");
        let configuration = self.configuration;
        let served =
            configuration.merged_discovery.get(&namespaces).filter(|served| configuration.is_cached(served, None))?;
        let view = views.get_or_start(served, None, None).await;
        let cache_states = view.attempted(clusters, Instant::now() + KNOWN_WITHIN).await;
        Some(Namespaces { view, cache_states })
    }

    /// Returns whether none of these clusters has the namespace, according to the cached namespaces. A namespace is
    /// assumed to exist if a write in the namespace passed through this process, even if the event has not arrived.
    async fn is_missing(self, views: &Arc<Views>, view: &View, clusters: &[ClusterName], namespace: &str) -> bool {
        let Some(known) = self.namespaces(views, clusters).await else { return false };
        let key = ObjectKey::new("", namespace);
        known.view.writes_of_seen(self.by, self.wanted, &key).await.is_ok()
            && known.is_missing(view, clusters, namespace)
    }
}
