//! Where in the log a watch begins.

use std::sync::Arc;

use tributary_apimachinery::{ClusterName, CollectionVersion, Filter, ResourceVersion, Status, WatchOptions};
use tributary_cacher::Cacher;
use tributary_merge::{CompositeResourceVersion, Log, Watcher};

use super::super::collection;
use crate::Router;
use crate::request::ClientRequest;
use crate::versions::{Versions, Wanted, of_clusters, refuse_watch, seen};
use crate::view::{EarlierStandings, Standings, Unreached, View};

/// Why a watch does not start.
pub(super) enum Refusal {
    /// As the answer itself.
    Before(Status),
    /// As an event, after 200.
    InStream(Status),
}

/// A watch that begins.
pub(super) struct Started {
    pub(super) watcher: Watcher<Filter>,
    /// The clusters in which the client is ahead.
    pub(super) ahead: Vec<Ahead>,
    /// How each cluster that is wanted stands.
    pub(super) standings: Arc<Standings>,
}

pub(super) async fn start(
    request: ClientRequest<'_>,
    versions: &Versions,
    view: &Arc<View>,
    mut before: EarlierStandings,
    options: &WatchOptions,
    filter: Filter,
) -> Result<Started, Refusal> {
    let mut ahead = Vec::new();
    let wanted =
        versions.wanted(&view.kind.resource, options.resource_version.as_deref(), refuse_watch).map_err(Refusal::of)?;
    match &wanted {
        Wanted::Any => {}
        Wanted::Newest => collection::newest(request.configuration, view, &filter.clusters, &mut before)
            .await
            .map_err(Refusal::InStream)?,
        Wanted::Version(version) if options.sends_initial_events() => {
            view.reached(&of_clusters(version, &filter.clusters)).await.map_err(Refusal::of_version)?;
        }
        Wanted::Version(version) => ahead = members_behind(view, &of_clusters(version, &filter.clusters))?,
        Wanted::Item(cluster, version) => {
            view.reached(&seen(cluster, *version)).await.map_err(|unreached| match Refusal::of_version(unreached) {
                Refusal::InStream(status) if !options.sends_initial_events() => expired(status.message),
                refusal => refusal,
            })?;
        }
    }
    // Before the log: whoever holds a view's clusters may wait for it.
    let is_whole = matches!(&wanted, Wanted::Item(cluster, _) if request.router.is_whole(cluster));
    let is_told_elsewhere = match (&wanted, filter.scope().namespace) {
        (Wanted::Item(cluster, version), Some(namespace)) => view.is_told_elsewhere(namespace, cluster, *version),
        _ => false,
    };
    let log = view.log();
    let held = Arc::clone(log.head());
    let watcher = match wanted {
        _ if options.sends_initial_events() => Watcher::initial(&log, filter, options.sends_initial_events_end()),
        Wanted::Newest | Wanted::Any => Watcher::now(&log, filter),
        Wanted::Version(version) => Watcher::resume(&log, &version, filter).map_err(expired)?,
        Wanted::Item(cluster, version) if is_whole => {
            // Any process can resume it.
            let version = log.version_of_item(&cluster, version);
            Watcher::resume(&log, &[(cluster, version)].into_iter().collect(), filter).map_err(expired)?
        }
        Wanted::Item(cluster, _) if is_told_elsewhere => {
            return Err(not_after_item(&cluster, "another view of the namespace may have told its event"));
        }
        Wanted::Item(cluster, version) => after_item(request.router, view, &log, &cluster, version, filter)?,
    };
    drop(log);
    let standings = view.standings_with(before, &held).map_err(Refusal::of)?;
    Ok(Started { watcher, ahead, standings })
}

/// Goes on after the event that gave an object its integer.
///
/// The integer says nothing of the other clusters: their places are those of the event in this log, so it has to be there, and
/// the client has to have got it from here.
fn after_item(
    router: &Router,
    view: &View,
    log: &Log,
    cluster: &ClusterName,
    version: ResourceVersion,
    filter: Filter,
) -> Result<Watcher<Filter>, Refusal> {
    let cause = if router.is_alone() {
        match Watcher::after_event(log, view.handed_out.own_before(), cluster, version, filter) {
            Some(watcher) => return Ok(watcher),
            None => "its event is no longer remembered here, or is not the only one with that version",
        }
    } else {
        "several processes serve this endpoint, so a watch can resume only from the version of a list or bookmark"
    };
    Err(not_after_item(cluster, cause))
}

/// The number of an object of this cluster from which a watch cannot go on.
fn not_after_item(cluster: &ClusterName, cause: &str) -> Refusal {
    expired(format_args!("the resourceVersion of one object, of cluster {cluster}, cannot be resumed: {cause}"))
}

/// A version from which a watch cannot go on.
fn expired(cause: impl std::fmt::Display) -> Refusal {
    Refusal::InStream(Status::expired(cause.to_string()))
}

impl Refusal {
    /// Of a version that is not reached: a cluster that is not known yet is waited for by the client.
    fn of_version(unreached: Unreached) -> Self {
        Self::of(unreached.of_collection())
    }

    fn of(status: Status) -> Self {
        if status.code == 429 { Self::Before(status) } else { Self::InStream(status) }
    }
}

/// A cluster in which a client is ahead of this process, the client's version and the cacher that is to reach it.
type Ahead = (ClusterName, CollectionVersion, Arc<Cacher>);

/// Checks the components of a version that is to be resumed: a cluster that is configured but unknown (after our restart, for example)
/// is waited for by the client. Gives the components above ours: they are on their way, or of revisions that no longer exist.
fn members_behind(view: &Arc<View>, version: &CompositeResourceVersion) -> Result<Vec<Ahead>, Refusal> {
    let mut ahead = Vec::new();
    for (cluster, component) in version.iter() {
        let own = view.version_of(cluster);
        let known = view.cacher(cluster).filter(|cacher| own.is_some() || cacher.snapshot().is_some());
        let Some(cacher) = known else {
            // Its events may come: it has not been listed yet, or not been asked what it serves. One that is not configured, or forbids
            // to be read, has none; the log says so.
            let missing = view.missing(cluster);
            if missing.code == 429 {
                return Err(Refusal::Before(missing));
            }
            continue;
        };
        // Whether a part that we have is all of its revision, the member is to say: until then objects are held back that it may have
        // deleted there. Whoever has another part is told all of it again.
        let is_behind = |own: CollectionVersion| if component.is_part() { own.completed() } else { own } < component;
        if own.is_none_or(is_behind) {
            ahead.push((cluster.clone(), component, cacher));
        }
    }
    Ok(ahead)
}
