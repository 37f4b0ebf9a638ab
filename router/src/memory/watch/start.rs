//! Where in the log a watch begins.

use std::sync::Arc;

use tributary_answers::refusal::{Refusal, VersionRefusal};
use tributary_apimachinery::{ClusterName, ResourceVersion, WatchOptions};
use tributary_merge::{CompositeResourceVersion, Log, TooOld, Watcher};
use tributary_views::view::{EarlierStandings, Standings, Unreached, View, WrittenBy};

use super::ahead::{Ahead, members_behind};
use crate::Router;
use crate::request::ClientRequest;
use crate::selection::Selection;
use crate::versions::{ReadVersion, Versions, of_clusters, refuse_watch, seen};

/// Why a watch does not start, by how its client is told.
pub(super) enum NotStarted {
    /// As the answer itself.
    AsAnswer(Refusal),
    /// As an event, after 200.
    InStream(Refusal),
}

/// A watch that begins.
pub(super) struct StartedWatch {
    pub(super) watcher: Watcher<Arc<Selection>>,
    /// The clusters in which the client is ahead.
    pub(super) ahead: Vec<Ahead>,
    /// How each cluster that is wanted stands.
    pub(super) standings: Arc<Standings>,
}

/// Waits until what is held has come to the version that is asked for, and finds its place in the log.
pub(super) async fn start(
    request: ClientRequest<'_>,
    versions: &Versions,
    view: &Arc<View>,
    mut before: EarlierStandings,
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
    // Before the log: whoever holds a view's clusters may wait for it.
    let place = WatchFrom::from_options(request.router, view, wanted, options, &filter)?;
    let log = view.log();
    let held = Arc::clone(log.head());
    let watcher = place.watcher(view, &log, Arc::new(filter))?;
    drop(log);
    let standings = view.standings_with(before, &held).map_err(NotStarted::from_refusal)?;
    Ok(StartedWatch { watcher, ahead, standings })
}

/// Whether a version that a watch goes on from says what its client has been shown. A number has no room for the rights
/// under which it was handed out, so of one of many users it does not: what was lost in some cluster since would never
/// be taken away, and what was gained never be told.
fn says_its_rights(
    request: ClientRequest<'_>,
    wanted: &ReadVersion,
    options: &WatchOptions,
) -> Result<(), VersionRefusal> {
    match wanted {
        ReadVersion::Item(cluster, _) if request.caller.rights().is_some() && !options.sends_initial_events() => {
            let cause = "it does not say under which rights it was handed out, so a watch can resume only from the version \
                         of a list or bookmark";
            Err(VersionRefusal::NotAfterItem { cluster: cluster.clone(), cause })
        }
        _ => Ok(()),
    }
}

/// Waits until what is held has come to what is wanted. A version that is resumed need not be reached: gives the
/// clusters in which the client is ahead.
async fn reach(
    request: ClientRequest<'_>,
    view: &Arc<View>,
    before: &mut EarlierStandings,
    wanted: &ReadVersion,
    options: &WatchOptions,
    filter: &Selection,
) -> Result<Vec<Ahead>, NotStarted> {
    let clusters = &filter.clusters;
    match wanted {
        ReadVersion::Any => {}
        ReadVersion::Newest => {
            let consistency = request.configuration.policy(&request.served.resource).consistency;
            view.newest(WrittenBy::One(request.caller.writer()), before, consistency).await?;
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

/// Where a watch begins.
enum WatchFrom {
    /// With the objects as they are, and perhaps a bookmark at their end.
    State { end_bookmark: bool },
    /// With what happens from now on.
    Now,
    /// Behind this version.
    Version(CompositeResourceVersion),
    /// Behind the event that gave an object of this cluster its number, which has told of no other cluster.
    ItemOfWhole(ClusterName, ResourceVersion),
    /// Behind the event that gave an object of this cluster its number.
    Item(ClusterName, ResourceVersion),
}

impl WatchFrom {
    /// Decides it, but for what the log has to say.
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
            // Any process can resume it.
            ReadVersion::Item(cluster, version) if router.is_whole(&cluster) => Self::ItemOfWhole(cluster, version),
            ReadVersion::Item(cluster, version) => {
                let namespace = filter.scope().namespace;
                if namespace.is_some_and(|namespace| view.is_told_elsewhere(namespace, &cluster, version)) {
                    let cause = "another view of the namespace may have told its event";
                    return Err(VersionRefusal::NotAfterItem { cluster, cause }.into());
                }
                if !router.is_alone() {
                    let cause = "several processes serve this endpoint, so a watch can resume only from the \
                                 version of a list or bookmark";
                    return Err(VersionRefusal::NotAfterItem { cluster, cause }.into());
                }
                Self::Item(cluster, version)
            }
        })
    }

    /// A watcher at this place of the log.
    fn watcher(self, view: &View, log: &Log, filter: Arc<Selection>) -> Result<Watcher<Arc<Selection>>, NotStarted> {
        match self {
            Self::State { end_bookmark } => Ok(Watcher::initial(log, filter, end_bookmark)),
            Self::Now => Ok(Watcher::now(log, filter)),
            Self::Version(version) => Watcher::resume(log, &version, filter).map_err(too_old),
            Self::ItemOfWhole(cluster, version) => {
                let version = log.version_of_item(&cluster, version);
                Watcher::resume(log, &[(cluster, version)].into_iter().collect(), filter).map_err(too_old)
            }
            // The integer says nothing of the other clusters: their places are those of the event in this log, so it
            // has to be there, and the client has to have got it from here.
            Self::Item(cluster, version) => {
                let watcher = Watcher::after_event(log, view.handed_out.private_before(), &cluster, version, filter);
                let cause = "its event is no longer remembered here, or is not the only one with that version";
                Ok(watcher.ok_or(VersionRefusal::NotAfterItem { cluster, cause })?)
            }
        }
    }
}

/// A version from which a watch cannot go on.
fn too_old(error: TooOld) -> NotStarted {
    VersionRefusal::TooOld(error).into()
}

impl From<VersionRefusal> for NotStarted {
    fn from(refusal: VersionRefusal) -> Self {
        Self::InStream(refusal.into())
    }
}

impl NotStarted {
    /// Of a version that is not reached: a cluster that is not known yet is waited for by the client.
    fn of_unreached(unreached: Unreached) -> Self {
        Self::from_refusal(unreached.of_collection())
    }

    fn from_refusal(refusal: Refusal) -> Self {
        if refusal.is_unread() { Self::AsAnswer(refusal) } else { Self::InStream(refusal) }
    }
}
