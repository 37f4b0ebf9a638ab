//! From which view a read is answered: from that of all namespaces, or from one namespace's own where a
//! member forbids to read all.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use tributary_answers::refusal::{LimitRefusal, Refusal};
use tributary_apimachinery::{ClusterName, ClusterSelector, GroupVersionResource, ObjectKey, Partial};
use tributary_fleet::discovery::ServedResource;
use tributary_sharing::flow::holder::Holder;
use tributary_sharing::limits::NAMESPACE_UNUSED_AFTER;
use tributary_views::view::{EarlierStandings, KNOWN_WITHIN, Standing, Standings, View, WrittenBy};
use tributary_views::views::Views;

use crate::configuration::ConfigurationSnapshot;
use crate::request::ClientRequest;

/// For how long somebody reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lifetime {
    /// A single list, which does not wait for a namespace that does not exist.
    Once,
    /// A request for one name. A cluster whose first list takes long can be asked for the name.
    Name,
    /// A watch: the namespace may come.
    Follows,
}

/// The time that a request for one name waits for first lists of clusters that can be asked for it. 3 s: the time that
/// a read waits for a version, and the limit of such a question.
const NAME_ASKED_AFTER: Duration = Duration::from_secs(3);

/// What is read, and for whom.
#[derive(Clone, Copy)]
struct ViewRead<'a> {
    /// What the request sees of the configuration.
    configuration: &'a ConfigurationSnapshot,
    /// The resource.
    served: &'a ServedResource,
    /// The namespace that is asked for; `None` for all, and for what is in none.
    namespace: Option<&'a str>,
    /// The clusters that are asked for.
    wanted: &'a ClusterSelector,
    /// Whether clusters may be missing.
    partial: Partial,
    /// For how long it is read.
    lifetime: Lifetime,
    /// Whose share of the views it takes.
    user: Holder,
    /// Whose writes it waits for.
    by: WrittenBy,
}

/// What is known of namespaces.
struct Namespaces {
    view: Arc<View>,
    standings: Arc<Standings>,
}

impl Namespaces {
    /// Whether it is known of each of these clusters that it has no such namespace. One that was written to through
    /// this process is there, and so is one that was made, though its own event may be on its way.
    /// `of` is the view that is asked for.
    fn is_missing(&self, of: &View, clusters: &[ClusterName], namespace: &str) -> bool {
        let is_fresh = |cluster| self.standings.standing_of(cluster) == Some(&Standing::Fresh);
        let key = ObjectKey::new("", namespace);
        clusters.iter().all(|cluster| is_fresh(cluster) && !of.fences.has_pending_in(cluster, namespace))
            && self.view.fences.pending_of(WrittenBy::Anybody, key.as_str()).is_empty()
            && !self.view.log().find(key.as_str()).iter().any(|(cluster, _)| clusters.contains(cluster))
    }
}

impl ClientRequest<'_> {
    /// The view for a read of one name, and how its clusters stand. Waits only for first attempts.
    ///
    /// # Errors
    /// 429 where no further namespace can be held.
    pub(crate) async fn view(&self) -> Result<(Arc<View>, EarlierStandings), Refusal> {
        let (view, before) = self.read(&self.candidates.selector(), Partial::Allow, Lifetime::Name).await;
        Ok((view, before?))
    }

    /// The view for a read of the clusters that are wanted, and how these stand.
    ///
    /// # Errors
    /// (beside the view) 429 where clusters are unknown and a partial answer is denied,
    /// or no further namespace can be held.
    pub(crate) async fn read(
        &self,
        wanted: &ClusterSelector,
        partial: Partial,
        lifetime: Lifetime,
    ) -> (Arc<View>, Result<EarlierStandings, Refusal>) {
        let Self { configuration, served, .. } = *self;
        let (namespace, user) = (self.resource.namespace.as_deref(), self.caller.holder);
        let by = WrittenBy::One(self.caller.writer());
        let read = ViewRead { configuration, served, namespace, wanted, partial, lifetime, user, by };
        read.view(self.router.views()).await
    }
}

/// The standings of the wanted clusters, at this time at the latest. A partial answer is allowed, so there is no
/// refusal.
async fn standings_until(view: &View, wanted: &ClusterSelector, deadline: Instant) -> Arc<Standings> {
    let standings = view.wait_until_known(Partial::Allow, wanted, deadline).await;
    standings.unwrap_or_else(|_| view.standings_of(wanted))
}

impl ViewRead<'_> {
    /// The view for a read of the clusters that are wanted, and how these stand. Where a member forbids the collection
    /// of all namespaces and one is asked for, the view of that namespace takes its place.
    ///
    /// # Errors
    /// (beside the view) 429 where clusters are unknown and a partial answer is denied,
    /// or no further namespace can be held.
    async fn view(self, views: &Arc<Views>) -> (Arc<View>, Result<EarlierStandings, Refusal>) {
        let Self { configuration, served, wanted, partial, .. } = self;
        let (view, standings) = self.cached_view(views).await;
        let before = standings.map(|mut standings| {
            let policy = configuration.policy(&served.resource);
            let is_wanted = |cluster: &ClusterName| policy.selects(cluster) && wanted.matches(cluster);
            let others = Standing::left_out(served).chain(configuration.unserved(served));
            for (cluster, standing) in others.filter(|(cluster, _)| is_wanted(cluster)) {
                Arc::make_mut(&mut standings).set(cluster, standing);
            }
            EarlierStandings::new(standings, wanted, partial)
        });
        (view, before)
    }

    async fn cached_view(self, views: &Arc<Views>) -> (Arc<View>, Result<Arc<Standings>, Refusal>) {
        let Self { configuration, served, namespace, wanted, partial, lifetime, .. } = self;
        let deadline = Instant::now() + KNOWN_WITHIN;
        let own = configuration.policy(&served.resource).view_of(served.description.namespaced(), namespace);
        let view = views.get_or_start(served, own, namespace).await;
        view.follow_serving_clusters(served);
        let mut standings = self.wait_for_attempts(&view, deadline).await;
        if let Some(namespace) = namespace.filter(|_| own.is_none() && standings.is_one_forbidden()) {
            let forbidding: Vec<_> = standings.forbidding().cloned().collect();
            if lifetime == Lifetime::Follows || !self.is_missing(views, &view, &forbidding, namespace).await {
                return match self.of_namespace(views, &view, &forbidding, namespace).await {
                    Ok(part) => {
                        let standings = match partial {
                            Partial::Allow => Ok(self.wait_for_attempts(&part, deadline).await),
                            Partial::Deny => part.wait_until_known(partial, wanted, deadline).await,
                        };
                        (part, standings)
                    }
                    // Where what was held of them all is still served, want of room keeps nobody from it. Unless a view
                    // of the namespace was there, which may have told more: nobody is taken back behind that.
                    Err(_) if !standings.is_one_given_up() && !view.had_part(namespace) => {
                        let standings = view.wait_until_known(partial, wanted, deadline).await;
                        (view, standings)
                    }
                    Err(refusal) => (view, Err(refusal.into())),
                };
            }
            // Nothing is held of a namespace that is not there: that it has no objects is known.
            for cluster in forbidding {
                if !standings.standing_of(&cluster).is_some_and(Standing::is_known) {
                    Arc::make_mut(&mut standings).set(cluster, Standing::NoNamespace);
                }
            }
        }
        if partial == Partial::Allow || standings.are_known() {
            return (view, Ok(standings));
        }
        let standings = view.wait_until_known(partial, wanted, deadline).await;
        (view, standings)
    }

    /// The standings after the first attempt at each cluster. A request for a name does not wait long for clusters that
    /// can be asked for it.
    async fn wait_for_attempts(self, view: &View, deadline: Instant) -> Arc<Standings> {
        let Self { configuration, served, wanted, lifetime, .. } = self;
        let can_be_asked = |name: &ClusterName| {
            let cluster = configuration.clusters.get(name).filter(|_| served.clusters.contains(name));
            cluster.is_some_and(|cluster| cluster.can_be_asked())
        };
        if lifetime == Lifetime::Name {
            let standings = standings_until(view, wanted, Instant::now() + NAME_ASKED_AFTER).await;
            if standings.under_way().all(can_be_asked) {
                return standings;
            }
        }
        standings_until(view, wanted, deadline).await
    }

    /// The view of one namespace beside that of all, which these clusters forbid to read. Where all that may be held
    /// are in use, one goes of a namespace that is nowhere, or has been forbidden for long: watches of names that were
    /// made up keep nobody out. Not for one that is nowhere itself, and none that is forbidden and new: two of them
    /// would take turns for ever.
    async fn of_namespace(
        self,
        views: &Arc<Views>,
        whole: &Arc<View>,
        forbidding: &[ClusterName],
        namespace: &str,
    ) -> Result<Arc<View>, LimitRefusal> {
        let user = self.user;
        let part = views.get_or_start_part(whole, namespace, user);
        let Err(full) = part else { return part };
        let known = self.namespaces(views, forbidding).await;
        let is_missing =
            |namespace: &str| known.as_ref().is_some_and(|known| known.is_missing(whole, forbidding, namespace));
        let is_idle = |part: &Arc<View>| {
            let namespace = part.namespace.as_deref().unwrap_or_default();
            let is_forbidden = || part.age() >= NAMESPACE_UNUSED_AFTER && part.is_forbidden_by_all(forbidding);
            part.log().objects() == 0 && (is_missing(namespace) || is_forbidden())
        };
        if is_missing(namespace) || !views.end_idle_part(whole, user, is_idle) {
            return Err(full);
        }
        views.get_or_start_part(whole, namespace, user)
    }

    /// What is known of the namespaces of these clusters; `None` where they are not held. Waits only for the first
    /// attempts at these: of the others nothing is asked, and one that answers nothing would delay the
    /// read by half a minute.
    async fn namespaces(self, views: &Arc<Views>, clusters: &[ClusterName]) -> Option<Namespaces> {
        let namespaces = GroupVersionResource::new("", "v1", "namespaces");
        let configuration = self.configuration;
        let served = configuration.union.get(&namespaces).filter(|served| configuration.is_held(served, None))?;
        let view = views.get_or_start(served, None, None).await;
        let standings = view.attempted(clusters, Instant::now() + KNOWN_WITHIN).await;
        Some(Namespaces { view, standings })
    }

    /// Whether none of these clusters has a namespace, as far as the view of namespaces knows them all. Where something
    /// was written to it through this process, it is there, though its own event may be on its way.
    async fn is_missing(self, views: &Arc<Views>, view: &View, clusters: &[ClusterName], namespace: &str) -> bool {
        let Some(known) = self.namespaces(views, clusters).await else { return false };
        let key = ObjectKey::new("", namespace);
        known.view.writes_of_seen(self.by, self.wanted, &key).await.is_ok()
            && known.is_missing(view, clusters, namespace)
    }
}
