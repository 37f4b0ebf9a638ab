//! Position in the log where a watch begins.

use std::sync::Arc;

use tributary_answers::refusal::{Refusal, VersionRefusal};
use tributary_apimachinery::{ClusterName, ResourceVersion, WatchOptions};
use tributary_merge::{CompositeResourceVersion, Log, TooOld, Watcher};
use tributary_views::view::{CacheStates, EarlierCacheStates, Unreached, View, WriterSelector};

use super::ahead::{Ahead, members_behind};
use crate::Router;
use crate::request::ClientRequest;
use crate::selection::Selection;
use crate::versions::{ReadVersion, Versions, of_clusters, refuse_watch, seen};

/// Refusal of a watch, in the form that the client gets.
pub(super) enum NotStarted {
    /// The refusal is the HTTP answer.
    AsAnswer(Refusal),
    /// The refusal is an event in the stream, after 200.
    InStream(Refusal),
}

pub(super) struct StartedWatch {
    pub(super) watcher: Watcher<Arc<Selection>>,
    /// Clusters for which the client has a newer version than memory.
    pub(super) ahead: Vec<Ahead>,
    /// State (fresh, stale or unknown) of each selected cluster.
    pub(super) cache_states: Arc<CacheStates>,
}

/// Waits until the cached view has reached the requested version, and finds the position of the version in the log.
pub(super) async fn start(
    request: ClientRequest<'_>,
    versions: &Versions,
    view: &Arc<View>,
    mut before: EarlierCacheStates,
    options: &WatchOptions,
    filter: Selection,
) -> Result<StartedWatch, NotStarted> {
    let resource = &view.kind.resource;
    let wanted = versions
        .read_wanted(resource, options.resource_version.as_deref(), refuse_watch)
        .map_err(NotStarted::from_refusal)?;
    versions.in_scope(options.resource_version.as_deref(), &wanted)?;
    says_its_rights(request, &wanted, options)?;
    let ahead = reach(request, view, &mut before, &wanted, options, &filter).await?;
    // The log is locked only after this call. The call may lock the view's clusters, and a task that has locked the
    // clusters may wait for the log.
    let place = WatchFrom::from_options(request.router, view, wanted, options, &filter)?;
    let log = view.log();
    let snapshots = Arc::clone(log.latest());
    let watcher = place.watcher(view, &log, Arc::new(filter))?;
    drop(log);
    let cache_states = view.cache_states_with(before, &snapshots).map_err(NotStarted::from_refusal)?;
    Ok(StartedWatch { watcher, ahead, cache_states })
}

/// Refuses to resume from a version that does not contain the rights under which Tributary issued it. An integer
/// version cannot contain rights, so a user in shared mode cannot resume from it. Otherwise, if the user has lost
/// rights in a cluster since, the client would keep the objects of the cluster. If the user has gained rights, the
/// objects would never arrive.
fn says_its_rights(
    request: ClientRequest<'_>,
    wanted: &ReadVersion,
    options: &WatchOptions,
) -> Result<(), VersionRefusal> {
    match wanted {
        ReadVersion::Item(cluster, _) if request.caller.rights().is_some() && !options.sends_initial_events() => {
            let cause = "the version does not contain the rights of its reader, so a watch can resume only from the \
                         version of a list or bookmark";
            Err(VersionRefusal::NotAfterItem { cluster: cluster.clone(), cause })
        }
        _ => Ok(()),
    }
}

/// Waits until the cached view has reached the requested version. A watch that resumes does not wait: the function
/// returns the clusters of which the client has a newer version.
async fn reach(
    request: ClientRequest<'_>,
    view: &Arc<View>,
    before: &mut EarlierCacheStates,
    wanted: &ReadVersion,
    options: &WatchOptions,
    filter: &Selection,
) -> Result<Vec<Ahead>, NotStarted> {
    let clusters = &filter.clusters;
    match wanted {
        ReadVersion::Any => {}
        ReadVersion::Newest => {
            let consistency = request.configuration.policy(&request.served.resource).consistency;
            view.newest(WriterSelector::One(request.caller.writer()), before, consistency).await?;
        }
        ReadVersion::Version(version) if options.sends_initial_events() => {
            view.reached(&of_clusters(version, clusters)).await.map_err(NotStarted::of_unreached)?;
        }
        ReadVersion::Version(version) => {
            return members_behind(view, &of_clusters(version, clusters)).map_err(NotStarted::AsAnswer);
        }
        ReadVersion::Item(cluster, version) => {
            let reached = view.reached(&seen(cluster, *version)).await;
            reached.map_err(|unreached| match NotStarted::of_unreached(unreached) {
                NotStarted::InStream(refusal) if !options.sends_initial_events() => {
                    VersionRefusal::ItemNotReached(refusal).into()
                }
                not_started => not_started,
            })?;
        }
    }
    Ok(Vec::new())
}

enum WatchFrom {
    /// The present objects, and with `end_bookmark` a bookmark after them.
    State { end_bookmark: bool },
    /// Changes from now on.
    Now,
    /// Changes after this version.
    Version(CompositeResourceVersion),
    /// Changes after the event that carries this integer version. This cluster is the only cluster that Tributary has
    /// ever had, so the integer is a version of the whole fleet.
    ItemOfWhole(ClusterName, ResourceVersion),
    /// Changes after the event in this cluster that carries this integer version.
    Item(ClusterName, ResourceVersion),
}

impl WatchFrom {
    /// Decides where the watch starts, except for checks that need the log.
    fn from_options(
        router: &Router,
        view: &View,
        wanted: ReadVersion,
        options: &WatchOptions,
        filter: &Selection,
    ) -> Result<Self, NotStarted> {
        Ok(match wanted {
            _ if options.sends_initial_events() => Self::State { end_bookmark: options.sends_initial_events_end() },
            ReadVersion::Newest | ReadVersion::Any => Self::Now,
            ReadVersion::Version(version) => Self::Version(version),
            // With only one cluster, any process can resume from this version.
            ReadVersion::Item(cluster, version) if router.is_whole(&cluster) => Self::ItemOfWhole(cluster, version),
            ReadVersion::Item(cluster, version) => {
                let namespace = filter.scope().namespace;
                if namespace.is_some_and(|namespace| view.is_sent_elsewhere(namespace, &cluster, version)) {
                    let cause = "a different cache of the namespace may have sent the event of the version";
                    return Err(VersionRefusal::NotAfterItem { cluster, cause }.into());
                }
                if !router.is_alone() {
                    let cause = "several replicas serve the clients, so a watch can resume only from the version of a \
                                 list or bookmark";
                    return Err(VersionRefusal::NotAfterItem { cluster, cause }.into());
                }
                Self::Item(cluster, version)
            }
        })
    }

    fn watcher(self, view: &View, log: &Log, filter: Arc<Selection>) -> Result<Watcher<Arc<Selection>>, NotStarted> {
        match self {
            Self::State { end_bookmark } => Ok(Watcher::initial(log, filter, end_bookmark)),
            Self::Now => Ok(Watcher::now(log, filter)),
            Self::Version(version) => Watcher::resume(log, &version, filter).map_err(too_old),
            Self::ItemOfWhole(cluster, version) => {
                let version = log.version_of_item(&cluster, version);
                Watcher::resume(log, &[(cluster, version)].into_iter().collect(), filter).map_err(too_old)
            }
            // The integer says nothing about the other clusters. Their versions are those at the time of the event in
            // the log. So the log must still have the event, and this process must have sent the event.
            Self::Item(cluster, version) => {
                let watcher = Watcher::after_event(log, view.handed_out.private_before(), &cluster, version, filter);
                let cause = "the event of the version is forgotten, or several events have the version";
                Ok(watcher.ok_or(VersionRefusal::NotAfterItem { cluster, cause })?)
            }
        }
    }
}

fn too_old(error: TooOld) -> NotStarted {
    VersionRefusal::TooOld(error).into()
}

impl From<VersionRefusal> for NotStarted {
    fn from(refusal: VersionRefusal) -> Self {
        Self::InStream(refusal.into())
    }
}

impl NotStarted {
    /// Refuses a version that memory does not reach. If the cluster is unknown, the refusal makes the client repeat the
    /// watch.
    fn of_unreached(unreached: Unreached) -> Self {
        Self::from_refusal(unreached.of_collection())
    }

    fn from_refusal(refusal: Refusal) -> Self {
        if refusal.is_unread() { Self::AsAnswer(refusal) } else { Self::InStream(refusal) }
    }
}
