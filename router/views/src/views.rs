//! Views of all cached resources. A view is started on first use, shared by clients, and ended when unused. The view is
//! started again when the definition of its resource changes.

pub mod cache_metrics;
mod definition;
mod own_series;
mod relist_counts;
mod report;
mod shared_tasks;

use std::collections::hash_map::RandomState;
use std::sync::{Arc, Weak};
use std::time::Duration;

use arc_swap::ArcSwap;
use futures::future::join_all;
use hashbrown::hash_map::Entry;
use hashbrown::{Equivalent, HashMap};
use parking_lot::RwLock;
use tokio::sync::Notify;
use tokio::time::{Instant, timeout};
use tributary_answers::refusal::LimitRefusal;
use tributary_apimachinery::{GroupVersionResource, ObjectDecoder};
use tributary_fleet::discovery::ResourceKind;
use tributary_fleet::discovery::ServedResource;
use tributary_fleet::metrics::Metrics;
use tributary_fleet::policy::Policies;
use tributary_fleet::topology::Fleet;
use tributary_limiters::FairShare;
use tributary_sharing::flow::share_key::ShareKey;
use tributary_sharing::limits::{Limits, NAMESPACE_UNUSED_AFTER};

use crate::view::{View, ViewedResource};
use definition::{Definition, DefinitionChange};
use shared_tasks::{SharedTask, SharedTasks};

/// Interval between two removals of unused views and old log entries.
const SWEEP_INTERVAL: Duration = Duration::from_secs(10);

/// Interval between two checks of the CRDs of views in use. Tributary notices a change of a CRD through this process at
/// once, and any other change within this interval. A check costs a GET of metadata for each CRD.
const DEFINITION_INTERVAL: Duration = Duration::from_secs(10);

/// First and longest pause before the next request for a CRD that no cluster has returned. The pause doubles each time,
/// because most clusters that forbid reads of their CRDs always forbid them.
const LOOKUP_RETRY: std::ops::RangeInclusive<Duration> = Duration::from_secs(10)..=Duration::from_secs(600);

/// If a view was not used for longer than this time, its CRD is no longer checked.
const USED_WITHIN: Duration = Duration::from_secs(60);

type ViewKey = (GroupVersionResource, Option<String>);

/// A borrowed key for lookups without copies. The fields have the order of [`ViewKey`], so both keys have the same
/// hash.
#[derive(Hash)]
struct ViewKeyRef<'a> {
    resource: &'a GroupVersionResource,
    namespace: Option<&'a str>,
}

impl Equivalent<ViewKey> for ViewKeyRef<'_> {
    fn equivalent(&self, (resource, namespace): &ViewKey) -> bool {
        self.resource == resource && self.namespace == namespace.as_deref()
    }
}

/// Cached views by key. The hash function has a random key, because clients choose the namespaces.
type CachedViews = HashMap<ViewKey, CachedView, RandomState>;

/// A view, and the source of its printer columns and selectable fields.
struct CachedView {
    view: Arc<View>,
    described: DefinitionSourceState,
    /// The client to whose share of the limit this view belongs. For a view of one namespace: the client that began to
    /// use the view when no other client used it.
    user: ShareKey,
}

enum DefinitionSourceState {
    /// Built-in definitions, which never change.
    BuiltIn,
    /// The CRD of a cluster, or the columns and fields that a cluster shows in place of its CRD.
    By(Definition),
    /// No cluster has returned the CRD yet. The next request is sent at the time `again`.
    NotYet { again: Instant, pause: Duration },
}

/// Views by resource. Views of single namespaces exist only if a cluster forbids reads of all namespaces, or if the
/// configuration names the cached namespaces.
pub struct Views {
    fleet: Arc<Fleet>,
    policies: Arc<ArcSwap<Policies>>,
    metrics: Arc<Metrics>,
    limits: Limits,
    /// Locked for writing while unused views are ended, so that no request can start to use them.
    by_key: RwLock<CachedViews>,
    definition_lookups: Arc<SharedTasks<GroupVersionResource, Option<Definition>>>,
    definitions: Arc<Notify>,
}

impl Views {
    /// Creates an empty set of views that follows the fleet. Must be called within a tokio runtime.
    pub fn new(
        fleet: Arc<Fleet>,
        policies: Arc<ArcSwap<Policies>>,
        metrics: Arc<Metrics>,
        limits: Limits,
    ) -> Arc<Self> {
        let (by_key, definition_lookups, definitions) = (RwLock::default(), SharedTasks::new(), Arc::default());
        let views = Arc::new(Self { fleet, policies, metrics, limits, by_key, definition_lookups, definitions });
        let weak = Arc::downgrade(&views);
        let mut changes = views.fleet.changes();
        tokio::spawn(async move {
            let mut sweep = tokio::time::interval(SWEEP_INTERVAL);
            loop {
                tokio::select! {
                    changed = changes.changed() => if changed.is_err() { break },
                    _ = sweep.tick() => {}
                }
                let Some(views) = weak.upgrade() else { break };
                views.sweep();
                views.end_clashing();
                for view in views.weak_views() {
                    // Keeps a reference to only one view at a time, because a view with a reference is treated as used.
                    if let Some(view) = view.upgrade() {
                        view.follow_fleet();
                        view.trim();
                    }
                    // Each view visits all clusters, so other tasks run between two views.
                    tokio::task::yield_now().await;
                }
            }
        });
        views.follow_definitions();
        let weak = Arc::downgrade(&views);
        views.fleet.on_forgotten(move |cluster, successor| {
            let Some(views) = weak.upgrade() else { return };
            views.all().for_each(|view| view.forget_cluster(cluster, successor));
        });
        views
    }

    /// Checks the CRDs of views in use, periodically and on request.
    fn follow_definitions(self: &Arc<Self>) {
        let (weak, requested, mut changes) =
            (Arc::downgrade(self), Arc::clone(&self.definitions), self.fleet.changes());
        tokio::spawn(async move {
            loop {
                let at_once = tokio::select! {
                    () = requested.notified() => true,
                    changed = changes.changed() => if changed.is_err() { break } else { false },
                    () = tokio::time::sleep(DEFINITION_INTERVAL) => false,
                };
                let Some(views) = weak.upgrade() else { break };
                views.retry_lookups(at_once);
                views.check_definitions().await;
            }
        });
    }

    /// Requests a check of the CRDs, because a client wrote a CRD through this process.
    pub fn definitions_changed(&self) {
        self.definitions.notify_one();
    }

    /// Ends the views whose columns or selectable fields differ from the current CRD. As in kube-apiserver, their
    /// watches end, and a client that reconnects gets a new view.
    async fn check_definitions(&self) {
        let described: Vec<_> = {
            let by_key = self.by_key.read();
            let used = by_key.iter().filter(|(_, cached)| cached.view.idle() < USED_WITHIN);
            let known = used.filter_map(|(key, cached)| match &cached.described {
                DefinitionSourceState::By(definition) => Some((key.clone(), definition.clone())),
                DefinitionSourceState::BuiltIn | DefinitionSourceState::NotYet { .. } => None,
            });
            known.collect()
        };
        let merged_discovery = self.fleet.merged_discovery();
        let checks = described.into_iter().filter_map(|(key, before)| {
            let served = Arc::clone(merged_discovery.get(&key.0)?);
            Some(async move { (key, definition::changed(&self.fleet, &served, &before).await) })
        });
        for (key, now) in join_all(checks).await {
            match now {
                DefinitionChange::None => {}
                DefinitionChange::Elsewhere(definition) => {
                    if let Some(cached) = self.by_key.write().get_mut(&key) {
                        cached.described = DefinitionSourceState::By(definition);
                    }
                }
                DefinitionChange::Changed => {
                    self.end(&key, "the CustomResourceDefinition has different columns or selectable fields now")
                }
            }
        }
    }

    /// Requests the CRDs that views in use lack, if the next request is due or `at_once` is set.
    fn retry_lookups(self: &Arc<Self>, at_once: bool) {
        let now = Instant::now();
        let due: Vec<_> = {
            let by_key = self.by_key.read();
            let used = by_key.iter().filter(|(_, cached)| cached.view.idle() < USED_WITHIN);
            let is_due = |described: &DefinitionSourceState| matches!(described, DefinitionSourceState::NotYet { again, .. } if at_once || *again <= now);
            used.filter(|(_, cached)| is_due(&cached.described)).map(|(key, _)| key.0.clone()).collect()
        };
        let merged_discovery = self.fleet.merged_discovery();
        for served in due.iter().filter_map(|resource| merged_discovery.get(resource)) {
            drop(self.look_up_definition(served, None));
        }
    }

    /// Returns the running request for a CRD, and starts a request if none is running. If Tributary may not read the
    /// CRD, the request reads a Table of the resource instead. If Tributary's account may not list all namespaces
    /// either, the request reads the Table of `namespace`, or else of a namespace that has a view.
    fn look_up_definition(
        self: &Arc<Self>,
        served: &ServedResource,
        namespace: Option<&str>,
    ) -> SharedTask<Option<Definition>> {
        self.definition_lookups.join(&served.resource, || {
            let (views, served, fleet) = (Arc::downgrade(self), Arc::new(served.clone()), Arc::clone(&self.fleet));
            let namespace = namespace.map(str::to_owned).or_else(|| self.namespace_of(&served.resource));
            async move {
                let found = definition::find(&fleet, &served, namespace).await;
                if let Some(views) = views.upgrade() {
                    views.apply_definition(&served.resource, found.as_ref());
                }
                found
            }
        })
    }

    fn namespace_of(&self, resource: &GroupVersionResource) -> Option<String> {
        let by_key = self.by_key.read();
        let mut of_resource = by_key.keys().filter(|key| key.0 == *resource);
        of_resource.find_map(|(_, namespace)| namespace.clone())
    }

    /// Applies the result of a CRD request to the views that were started without the CRD.
    fn apply_definition(&self, resource: &GroupVersionResource, found: Option<&Definition>) {
        let mut outdated = Vec::new();
        for (key, cached) in self.by_key.write().iter_mut().filter(|(key, _)| key.0 == *resource) {
            let DefinitionSourceState::NotYet { pause, .. } = cached.described else { continue };
            match found {
                Some(found) if found.is_empty() => cached.described = DefinitionSourceState::By(found.clone()),
                Some(_) => outdated.push(key.clone()),
                None => {
                    let again = Instant::now() + pause;
                    cached.described =
                        DefinitionSourceState::NotYet { again, pause: (pause * 2).min(*LOOKUP_RETRY.end()) };
                }
            }
        }
        for key in outdated {
            self.end(&key, "the columns and selectable fields of the resource were found");
        }
    }

    /// Ends the views whose kind or scope differs from the kind or scope that the clusters serve now.
    fn end_clashing(&self) {
        let merged_discovery = self.fleet.merged_discovery();
        let clashes = |(key, cached): (&ViewKey, &CachedView)| {
            let served = merged_discovery.get(&key.0)?;
            (served.description.nature() != cached.view.kind.nature()).then(|| key.clone())
        };
        let clashing: Vec<_> = self.by_key.read().iter().filter_map(clashes).collect();
        for key in clashing {
            self.end(&key, "the resource has a different kind or scope now");
        }
    }

    fn end(&self, key: &ViewKey, reason: &str) {
        let ended = self.by_key.write().remove(key);
        if let Some(cached) = ended {
            tracing::info!(resource = %key.0, reason, "the cached resource is dropped, and read again on its next use");
            self.end_namespace_views(&cached.view);
            cached.view.end();
        }
    }

    fn end_namespace_views(&self, whole: &Arc<View>) {
        let is_namespace_view = |_: &ViewKey, cached: &mut CachedView| cached.view.is_namespace_view_of(whole);
        let parts: Vec<_> = self.by_key.write().extract_if(is_namespace_view).collect();
        parts.iter().for_each(|(_, cached)| cached.view.end());
    }

    /// Returns all views. A view of all namespaces comes before the views of single namespaces that it supplies.
    fn weak_views(&self) -> Vec<Weak<View>> {
        let by_key = self.by_key.read();
        let (parts, wholes): (Vec<_>, Vec<_>) = by_key.values().partition(|cached| cached.view.is_namespace_view());
        wholes.into_iter().chain(parts).map(|cached| Arc::downgrade(&cached.view)).collect()
    }

    /// Returns all views, one view at a time, because a view with a reference is treated as used.
    pub fn all(&self) -> impl Iterator<Item = Arc<View>> {
        self.weak_views().into_iter().filter_map(|view| view.upgrade())
    }

    /// Returns the view of a resource, if the view exists. Costs one hash and a shared lock, and allocates nothing.
    pub fn get(&self, resource: &GroupVersionResource, namespace: Option<&str>) -> Option<Arc<View>> {
        let sought = ViewKeyRef { resource, namespace };
        let view = self.by_key.read().get(&sought).map(|cached| Arc::clone(&cached.view))?;
        view.begin();
        Some(view)
    }

    /// Returns the view of a resource, and starts the view if necessary. The first read of a custom resource waits up
    /// to 2 s for the CRD. `read` is the namespace of this read, or `None` for all namespaces.
    pub async fn get_or_start(
        self: &Arc<Self>,
        served: &ServedResource,
        namespace: Option<&str>,
        read: Option<&str>,
    ) -> Arc<View> {
        let found = self.get(&served.resource, namespace);
        if let Some(view) = found.filter(|view| is_of_kind(view, served)) {
            view.touch();
            return view;
        }
        // Two concurrent callers may both create a view. The second caller then uses the view of the first.
        let described = self.described(served, read).await;
        let definition = match &described {
            DefinitionSourceState::By(definition) => Some(definition),
            DefinitionSourceState::BuiltIn | DefinitionSourceState::NotYet { .. } => None,
        };
        let description = definition::describe(&served.resource, definition);
        let kind = ResourceKind {
            resource: served.resource.clone(),
            kind: served.description.kind().into(),
            namespaced: served.description.namespaced(),
            printer: description.printer,
        };
        let api_version = served.resource.group_version().to_string();
        let decoder = ObjectDecoder::new(&api_version, &kind.kind, description.fields);
        let namespace = namespace.map(str::to_owned);
        let resource = ViewedResource { kind, namespace: namespace.clone(), decoder };
        let new = || {
            let (fleet, policies, metrics) = (&self.fleet, &self.policies, &self.metrics);
            let (fleet, policies, metrics) = (Arc::clone(fleet), Arc::clone(policies), Arc::clone(metrics));
            let view = View::empty(resource, fleet, policies, metrics, &self.limits);
            CachedView { view, described, user: ShareKey::Unknown }
        };
        let (view, outdated) = match self.by_key.write().entry((served.resource.clone(), namespace.clone())) {
            Entry::Occupied(known) if is_of_kind(&known.get().view, served) => (Arc::clone(&known.get().view), None),
            Entry::Occupied(mut outdated) => {
                let cached = new();
                (Arc::clone(&cached.view), Some(outdated.insert(cached).view))
            }
            Entry::Vacant(none) => (Arc::clone(&none.insert(new()).view), None),
        };
        // Called without the lock, because `begin` visits all clusters while other callers need their views.
        view.begin();
        if let Some(outdated) = outdated {
            self.end_namespace_views(&outdated);
            outdated.end();
        }
        view
    }

    /// Returns the view of one namespace that uses the view of all namespaces, and starts it if necessary. If the
    /// number of views has reached the limit, the new view replaces the least recently used view that is not in use.
    /// Clients share the limit as in [`FairShare`].
    ///
    /// # Errors
    /// 429 with the limit, if all views in this client's share are in use.
    pub fn get_or_start_namespace_view(
        &self,
        whole: &Arc<View>,
        namespace: &str,
        user: ShareKey,
    ) -> Result<Arc<View>, LimitRefusal> {
        let view = self.get_or_insert_namespace_view(whole, namespace, user)?;
        // Called without the lock, because `begin` visits all clusters.
        view.begin();
        Ok(view)
    }

    fn get_or_insert_namespace_view(
        &self,
        whole: &Arc<View>,
        namespace: &str,
        user: ShareKey,
    ) -> Result<Arc<View>, LimitRefusal> {
        let resource = &whole.kind.resource;
        let sought = ViewKeyRef { resource, namespace: Some(namespace) };
        if let Some(used) = self.namespace_view_in_use(whole, &sought) {
            used.touch();
            return Ok(used);
        }
        // The ended view is dropped after the lock is released, because the drop of a view ends its cachers.
        let mut ended = None;
        let mut by_key = self.by_key.write();
        let known = by_key.get(&sought).filter(|cached| cached.view.is_namespace_view_of(whole));
        let is_used = known.is_some_and(|cached| !is_unused(&cached.view));
        if !is_used {
            let used = ViewUsage::count_views(&by_key, resource, user, |_| true);
            if !used.leave_room_in(self.limits.namespace_views) {
                let (resource, max) = (resource.clone(), self.limits.namespace_views);
                return Err(LimitRefusal::Namespaces { resource, all: used.all, own: used.own, max });
            }
        }
        if let Some(cached) = by_key.get_mut(&sought).filter(|cached| cached.view.is_namespace_view_of(whole)) {
            if !is_used {
                cached.user = user;
            }
            cached.view.touch();
            return Ok(Arc::clone(&cached.view));
        }
        let parts = by_key.iter().filter(|((of, _), cached)| of == resource && cached.view.is_namespace_view());
        if parts.clone().count() >= self.limits.namespace_views {
            let unused =
                parts.filter(|(_, cached)| is_unused(&cached.view)).max_by_key(|(_, cached)| cached.view.idle());
            // An unused view exists, because fewer views are in use than the limit allows, but the number of views has
            // reached the limit.
            if let Some(least) = unused.map(|(key, _)| key.clone()) {
                ended = by_key.remove(&least);
            }
        }
        let view = View::namespace_view_of(whole, namespace, &self.limits);
        let key = (resource.clone(), Some(namespace.to_owned()));
        let outdated =
            by_key.insert(key, CachedView { view: Arc::clone(&view), described: DefinitionSourceState::BuiltIn, user });
        drop(by_key);
        if let Some(outdated) = &outdated {
            outdated.view.end();
        }
        drop((ended, outdated));
        Ok(view)
    }

    /// Returns the view of one namespace, if the view is in use. Only the first client of a view uses up its share of
    /// the limit.
    fn namespace_view_in_use(&self, whole: &Arc<View>, sought: &ViewKeyRef<'_>) -> Option<Arc<View>> {
        let by_key = self.by_key.read();
        let view = &by_key.get(sought)?.view;
        (view.is_namespace_view_of(whole) && !is_unused(view)).then(|| Arc::clone(view))
    }

    /// Frees capacity for a view of one more namespace. Ends a watched view without objects, for which `is_idle`
    /// returns true, preferably a view that the same client started. Returns whether a view was ended and the capacity
    /// now suffices. The watches of the ended view end with a bookmark, as kube-apiserver's watches do from time to
    /// time.
    pub fn end_idle_namespace_view(
        &self,
        whole: &Arc<View>,
        user: ShareKey,
        is_idle: impl Fn(&Arc<View>) -> bool,
    ) -> bool {
        let resource = &whole.kind.resource;
        let (own, others): (Vec<_>, Vec<_>) = {
            let by_key = self.by_key.read();
            let parts = by_key.values().filter(|cached| cached.view.is_namespace_view_of(whole));
            parts.map(|cached| (cached.user, Arc::downgrade(&cached.view))).partition(|(of, _)| *of == user)
        };
        // Called without the lock, because `is_idle` takes locks of other views.
        let mut parts = own.into_iter().chain(others).filter_map(|(_, view)| view.upgrade());
        let Some(idle) = parts.find(is_idle) else { return false };
        let mut by_key = self.by_key.write();
        let without = ViewUsage::count_views(&by_key, resource, user, |view| !Arc::ptr_eq(view, &idle));
        if !without.leave_room_in(self.limits.namespace_views) {
            return false;
        }
        let ended = match by_key.entry((resource.clone(), idle.namespace.clone())) {
            Entry::Occupied(occupied) if Arc::ptr_eq(&occupied.get().view, &idle) => Some(occupied.remove()),
            _ => None,
        };
        drop(by_key);
        idle.end();
        ended.is_some()
    }

    async fn described(self: &Arc<Self>, served: &ServedResource, read: Option<&str>) -> DefinitionSourceState {
        if !definition::is_custom(&served.resource) {
            return DefinitionSourceState::BuiltIn;
        }
        match timeout(definition::DEFINITION_TIMEOUT, self.look_up_definition(served, read)).await {
            Ok(Some(Some(definition))) => DefinitionSourceState::By(definition),
            _ => DefinitionSourceState::NotYet {
                again: Instant::now() + *LOOKUP_RETRY.start(),
                pause: *LOOKUP_RETRY.start(),
            },
        }
    }

    fn sweep(&self) {
        let is_over = |cached: &CachedView| {
            let unused_after =
                if cached.view.is_namespace_view() { NAMESPACE_UNUSED_AFTER } else { self.limits.unused_after };
            cached.view.idle() > unused_after && is_unused(&cached.view)
        };
        // The views are dropped after the lock is released, because the drop of a view ends its cachers.
        let unused: Vec<_> = self.by_key.write().extract_if(|_, cached| is_over(cached)).collect();
        drop(unused);
    }
}

/// Returns whether no request, no watch, and no view of a single namespace uses the view, so that only `Views` refers
/// to it.
fn is_unused(view: &Arc<View>) -> bool {
    Arc::strong_count(view) == 1
}

#[derive(Clone, Copy)]
struct ViewUsage {
    all: usize,
    own: usize,
}

impl ViewUsage {
    fn count_views(
        by_key: &CachedViews,
        resource: &GroupVersionResource,
        user: ShareKey,
        counts: impl Fn(&Arc<View>) -> bool,
    ) -> Self {
        let parts = by_key.iter().filter(|((of, _), cached)| of == resource && cached.view.is_namespace_view());
        let used = parts.filter(|(_, cached)| !is_unused(&cached.view) && counts(&cached.view));
        used.fold(Self { all: 0, own: 0 }, |Self { all, own }, (_, cached)| Self {
            all: all + 1,
            own: own + usize::from(cached.user == user),
        })
    }

    fn leave_room_in(self, max: usize) -> bool {
        self.own < FairShare::with_reserve(max, 1).capacity(self.all - self.own)
    }
}

/// Returns whether a view still has the kind and scope that members serve, and has its own cachers. Kind and scope
/// change if a CRD is recreated. A view has no cachers of its own if the view of all namespaces supplies its objects.
/// If a changed policy caches the namespace alone, such a view must be replaced.
fn is_of_kind(view: &View, served: &ServedResource) -> bool {
    view.kind.nature() == served.description.nature() && !view.is_namespace_view()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::hash::BuildHasher;

    use allocation_counter::measure;

    use super::*;
    use tributary_fleet::topology::MemberShareMetrics;

    #[tokio::test]
    async fn view_lookup_does_not_allocate() {
        let fleet = Fleet::new(MemberShareMetrics::default(), BTreeMap::new());
        let views = Views::new(fleet, Arc::default(), Arc::default(), Limits::default());
        let (whole, pods) = (View::for_tests(), GroupVersionResource::new("", "v1", "pods"));
        let part = View::namespace_view_of(&whole, "shop", &Limits::default());
        let entries = [(None, whole), (Some("shop"), part)];
        for (namespace, view) in &entries {
            let view = CachedView {
                view: Arc::clone(view),
                described: DefinitionSourceState::BuiltIn,
                user: ShareKey::Unknown,
            };
            views.by_key.write().insert((pods.clone(), namespace.map(str::to_owned)), view);
            // The first call starts the view, which allocates.
            assert!(views.get(&pods, *namespace).is_some());
        }
        for (namespace, view) in &entries {
            let mut found = None;
            let allocations = measure(|| found = views.get(&pods, *namespace));
            assert!(found.is_some_and(|found| Arc::ptr_eq(&found, view)), "{namespace:?}");
            assert_eq!(allocations.count_total, 0, "{namespace:?}");
        }
        for (resource, namespace) in [("pods", Some("")), ("pods", Some("shops")), ("nodes", None)] {
            let resource = GroupVersionResource::new("", "v1", resource);
            assert!(views.get(&resource, namespace).is_none(), "{resource} in {namespace:?}");
        }
    }

    #[test]
    fn borrowed_view_key_has_the_hash_of_the_owned_key() {
        let hasher = RandomState::new();
        let resource = GroupVersionResource::new("apps", "v1", "deployments");
        for namespace in [None, Some(""), Some("shop")] {
            let (sought, key) =
                (ViewKeyRef { resource: &resource, namespace }, (resource.clone(), namespace.map(str::to_owned)));
            assert!(sought.equivalent(&key));
            assert_eq!(hasher.hash_one(&sought), hasher.hash_one(&key), "{namespace:?}");
        }
    }
}
