//! Finding the cluster that owns an object.

mod ask;

use std::sync::Arc;
use std::time::Duration;

use tributary_apimachinery::ClusterName;

pub(crate) use self::ask::{Found, Located, LookupKey};
use crate::ownership::{self, NoOwner};
use crate::refusal::Refusal;
use crate::request::ClientRequest;
use crate::topology::Cluster;
use crate::view::KNOWN_WITHIN;

impl Located {
    /// The owner. `named` is the cluster that the body's annotation names.
    ///
    /// # Errors
    /// Why there is none.
    pub(crate) fn owner(&self, named: Option<&str>) -> Result<Found, NoOwner> {
        let clusters: Vec<_> = self.found.iter().map(|(cluster, _)| cluster.name()).collect();
        let owner = ownership::owner(&clusters, self.unknown.iter(), named)?;
        Ok(self.found[owner].clone())
    }

    /// Why there is no owner, as the client is told: in the words of a cluster that was asked, where one said why.
    pub(crate) fn refuse(&self, request: ClientRequest<'_>, none: NoOwner) -> Refusal {
        match (none, &self.unreadable, &self.refusal) {
            (NoOwner::Unknown(_), Some(unreadable), _) => unreadable.clone(),
            (NoOwner::Nowhere, _, Some(refusal)) => refusal.clone(),
            (none, ..) => none.refusal(request),
        }
    }
}

/// Finds the clusters that have the object: in memory, or by asking each where it is not held.
///
/// # Errors
/// 504 where this process's own writes of the object are not seen within 3 s.
pub(crate) async fn locate(request: ClientRequest<'_>) -> Result<Located, Refusal> {
    if request.is_held() {
        let located = in_memory(request).await?;
        return Ok(if located.found.is_empty() { left_out(request, located).await } else { located });
    }
    let mut located = live(request, KNOWN_WITHIN, |_| true).await;
    located.unknown.extend(request.router.fleet().undiscovered().iter().map(|cluster| cluster.name().clone()));
    Ok(located)
}

/// As [`locate`], but an object of which memory knows nothing is asked for before it is said not to be there: it may
/// have been made past this process a moment ago.
///
/// # Errors
/// As [`locate`].
pub(crate) async fn locate_now(request: ClientRequest<'_>) -> Result<Located, Refusal> {
    let mut located = locate(request).await?;
    if located.found.is_empty() && request.is_held() {
        let reachable =
            |cluster: &Arc<Cluster>| cluster.problem().is_none() && !located.unknown.contains(cluster.name());
        let asked = live(request, ASKED_WITHIN, reachable);
        // Whoever does not answer in time is known by what memory says of it.
        located.take(asked.await);
    }
    Ok(located)
}

/// As [`locate`], for what is to be made where the object is, or because there is none: what memory does not know is
/// asked for, and a cluster that does not answer is unknown, whatever memory says of it. `is_meant` chooses among
/// objects of one name.
///
/// # Errors
/// As [`locate`].
pub(crate) async fn locate_surely(
    request: ClientRequest<'_>,
    is_meant: impl Fn(&Found) -> bool,
) -> Result<Located, Refusal> {
    let mut located = locate(request).await?;
    located.found.retain(&is_meant);
    // Where there is one cluster there is nothing to choose.
    let several = request.router.fleet().clusters().len() > 1;
    if several && located.found.is_empty() && request.is_held() {
        located = live(request, ASKED_WITHIN, |_| true).await;
        located.found.retain(&is_meant);
        located.unknown.extend(request.router.fleet().undiscovered().iter().map(|cluster| cluster.name().clone()));
    }
    Ok(located)
}

/// Looks for an object that no cluster of the merged view has in the others.
/// So a name of the view is an object of the view.
async fn left_out(request: ClientRequest<'_>, mut located: Located) -> Located {
    let names = request.configuration.left_out(request.served);
    if !names.is_empty() {
        let chosen = |cluster: &Arc<Cluster>| names.contains(cluster.name());
        let asked = live(request, ASKED_WITHIN, chosen).await;
        let silent = names.into_iter().filter(|name| !request.served.clusters.contains(name));
        located.unknown.extend(asked.unknown.iter().cloned().chain(silent));
        located.take(asked);
    }
    located
}

/// Finds an object that is no longer where it was found a moment ago: asks the other clusters.
pub(crate) async fn locate_elsewhere(request: ClientRequest<'_>, before: &ClusterName) -> Located {
    let mut located = live(request, ASKED_WITHIN, |cluster| cluster.name() != before).await;
    located.unknown.extend(request.router.fleet().undiscovered().iter().map(|cluster| cluster.name().clone()));
    located
}

async fn in_memory(request: ClientRequest<'_>) -> Result<Located, Refusal> {
    let (view, before) = request.view().await?;
    let key = request.resource.key();
    view.own_writes_of_seen(&key).await?;
    let (found, standings) = view.find(before, &key)?;
    let found = found
        .into_iter()
        .filter_map(|(name, object)| Some((request.router.fleet().cluster(&name)?, Some(object))))
        .collect();
    let unknown = standings.unknown().cloned().collect();
    Ok(Located { found, unknown, ..Located::default() })
}

/// Asks each of the chosen clusters for the object, in the client's name, from now on: no answer is taken that was
/// asked for before. One that does not answer in time is among the unknown ones.
async fn live(request: ClientRequest<'_>, within: Duration, chosen: impl Fn(&Arc<Cluster>) -> bool) -> Located {
    let ClientRequest { router, caller, resource, .. } = request;
    let mut path = resource.resource.path(resource.namespace.as_deref());
    path.push('/');
    path.push_str(
        &percent_encoding::utf8_percent_encode(resource.name.as_deref().unwrap_or_default(), PATH_SEGMENT).to_string(),
    );
    let clusters = request.served.clusters.iter().filter_map(|name| router.fleet().cluster(name)).filter(chosen);
    let clusters: Vec<_> = clusters.collect();
    let question = LookupKey {
        connection: caller.connection,
        path: path.into(),
        impersonation: caller.impersonation(),
        clusters: clusters.iter().map(|cluster| cluster.name().clone()).collect(),
        within,
    };
    let bytes = Arc::clone(router.held_bytes());
    let put = || ask::ask(clusters, Arc::clone(&question.path), caller.clone(), bytes, within);
    router.locations().ask(question.clone(), put, Located::is_nowhere).await
}

/// How long members may take to say whether they have an object of which memory knows nothing.
const ASKED_WITHIN: Duration = Duration::from_secs(3);

/// What must be escaped in a segment of a path (RFC 3986 `pchar`), for names that RBAC objects may have.
const PATH_SEGMENT: &percent_encoding::AsciiSet = &percent_encoding::CONTROLS
    .add(b' ')
    .add(b'"')
    .add(b'#')
    .add(b'%')
    .add(b'/')
    .add(b'<')
    .add(b'>')
    .add(b'?')
    .add(b'`')
    .add(b'{')
    .add(b'}');
