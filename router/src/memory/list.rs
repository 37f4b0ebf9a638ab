//! Answers to lists from memory.

use std::ops::ControlFlow;
use std::sync::Arc;

use futures::FutureExt;
use http::{HeaderValue, Response, header};
use http_body::Body as _;
use tokio::time::Instant;
use tributary_answers::negotiate::ResponseKind;
use tributary_answers::refusal::{Refusal, VersionRefusal};
use tributary_apimachinery::{ClusterName, ClusterSelector, GroupVersionResource, ListOptions, ResourceVersionMatch};
use tributary_merge::{
    ClusterSnapshots, CompositeResourceVersion, ContinueError, ContinueToken, ListCursor, ListPage, OpeningList,
    Position,
};
use tributary_rights::Readable;
use tributary_sharing::body::{Body, EarlyEnd, FRAME_BYTES, end_early};
use tributary_sharing::flow::long_answers::{AnswerPermit, AnswerPermits, Length};
use tributary_sharing::flow::share_key::ShareKey;
use tributary_sharing::limits;
use tributary_views::view::{CacheStates, EarlierCacheStates, Unreached, View, WriterSelector, cache_state};

use super::uncached::CollectionRead;
use super::{Collection, collection};
use crate::caller::Caller;
use crate::forward::list::is_live_token;
use crate::mixed_releases;
use crate::request::ClientRequest;
use crate::response::ObjectWriter;
use crate::response::list::{ListAnswer, ListMetadata};
use crate::selected_names;
use crate::selection::Selection;
use crate::unknown_rights;
use crate::versions::{ReadVersion, Versions, of_clusters, refuse_list, seen};

/// State of the collection that a list shows.
#[derive(Clone, Debug, PartialEq, Eq)]
enum RequestedState {
    /// The newest state, which includes the client's own writes.
    Newest,
    /// The current state in memory.
    Any,
    /// A state that is not older than this version.
    NotOlderThan(CompositeResourceVersion),
    /// Exactly this version, in the clusters that have a component in the version. The present state in clusters that
    /// joined later. If this is the version of a single object, the present state in all other clusters.
    Exact(CompositeResourceVersion),
    /// The state of a continue token. For a token without a version (inconsistent continuation in kube-apiserver), the
    /// present state in memory.
    Continue(ContinueToken),
}

/// Answers a list from memory.
///
/// # Errors
/// 400, 410, 422 and 504 as kube-apiserver answers for resourceVersion, resourceVersionMatch, limit and continue
/// (reference: kubernetes/apiserver `pkg/storage/interfaces.go`); [`Refusal::NotCached`] for a list that Tributary has
/// to forward to the clusters; 429 for unknown clusters under `partial: Deny`.
pub(crate) async fn list(request: ClientRequest<'_>) -> Result<Response<Body>, Refusal> {
    let ClientRequest { router, served, .. } = request;
    let form = request.preferences.form(ResponseKind::List)?;
    let options = ListOptions::parse(request.query, limits::SELECTOR).map_err(Refusal::malformed)?;
    let (_, wanted) = ClusterSelector::split(&options.label_selector).map_err(Refusal::malformed)?;
    let partial = request.configuration.policy(&served.resource).partial;
    let mut readable = request.readable("list", &wanted, partial).await?;
    // With resourceVersion `0`, Tributary ignores the limit, as kube-apiserver does: the whole list is in memory.
    let any = options.resource_version.as_deref() == Some("0");
    let limit = if any { 0 } else { usize::try_from(options.limit).unwrap_or(usize::MAX) };
    let (list, (cursor, share), mixed) = loop {
        let begun = Instant::now();
        let read = read(request, &options, readable.as_ref()).await?;
        let mixed = mixed_releases_warning(&read, &served.resource, &options).await;
        let (list, opening) = read.opening(limit)?;
        let opened = open(opening, router.answer_permits(), request.caller.share_key).await?;
        match request.readable_anew(("list", &wanted, partial), &readable, begun).await? {
            None => break (list, opened, mixed),
            Some(anew) => readable = Some(anew),
        }
    };
    let OpenedList { view, cache_states, left_out, clusters, versions, version } = list;
    let include = request.finish(form, ResponseKind::List)?;
    let remaining = cursor.remaining_item_count();
    let next = cursor.continue_position().map(|position: &Position| {
        let token = ContinueToken { position: position.clone(), remaining, version: Some(version.clone()) };
        versions.encode_token(token)
    });
    let metadata = ListMetadata {
        resource_version: versions.encode(&version),
        continue_token: next,
        remaining_item_count: remaining,
        items: versions.item_versions(),
    };
    let answer = ListAnswer {
        view: Arc::clone(&view),
        cursor,
        writer: ObjectWriter::new(&view.kind, form, include),
        metadata,
        share,
        answer_permits: router.answer_permits(),
        share_key: request.caller.share_key,
    };
    let mut response = followed(request.caller, answer.respond().await?);
    view.warn(response.headers_mut(), &cache_states, &clusters);
    warn_limited(&mut response, readable.as_ref(), request.caller);
    warn_of_names(&mut response, &request, &wanted, readable.as_ref());
    response.headers_mut().extend(mixed.map(|warning| (header::WARNING, warning)));
    cache_state::warn_left_out(response.headers_mut(), request.caller.door, &served.resource, &left_out);
    Ok(response)
}

/// Ends a streamed answer once its caller must not get more objects. An answer that is complete in memory needs no
/// check.
fn followed(caller: &Caller, answer: Response<Body>) -> Response<Body> {
    if answer.body().size_hint().exact().is_some() {
        return answer;
    }
    let Some(termination) = caller.termination() else { return answer };
    answer.map(|body| end_early(body, false, termination.map(|why| EarlyEnd::AtOnce(why.into())).boxed()))
}

struct ReadList {
    view: Arc<View>,
    before: EarlierCacheStates,
    left_out: Vec<ClusterName>,
    filter: Selection,
    versions: Versions,
    state: RequestedState,
    snapshots: ClusterSnapshots,
    version: CompositeResourceVersion,
}

/// Facts about a list that do not depend on the page.
struct OpenedList {
    view: Arc<View>,
    cache_states: Arc<CacheStates>,
    left_out: Vec<ClusterName>,
    clusters: ClusterSelector,
    versions: Versions,
    version: CompositeResourceVersion,
}

impl ReadList {
    /// Returns the search for the end of the page, and the other facts about the list.
    ///
    /// # Errors
    /// 429 if a cluster has become unknown, and the policy forbids partial answers.
    fn opening(self, limit: usize) -> Result<(OpenedList, OpeningList<Selection>), Refusal> {
        let Self { view, before, left_out, filter, versions, state, snapshots, version } = self;
        let clusters = filter.clusters.clone();
        let cache_states = view.cache_states_with(before, &snapshots)?;
        let page = match state {
            RequestedState::Continue(token) => {
                ListPage { start: Some(token.position), limit, remaining: token.version.and(token.remaining) }
            }
            _ => ListPage { start: None, limit, remaining: None },
        };
        let list = OpenedList { view, cache_states, left_out, clusters, versions, version };
        Ok((list, OpeningList::new(snapshots, filter, page)))
    }
}

/// Reads the list for a caller with the rights in `readable`. May wait for clusters.
///
/// # Errors
/// As [`list`].
async fn read(
    request: ClientRequest<'_>,
    options: &ListOptions,
    readable: Option<&Readable>,
) -> Result<ReadList, Refusal> {
    let resource = &request.served.resource;
    let audience = readable.map(|readable| Arc::clone(&readable.audience));
    let versions = request.configuration.versions(resource).of_audience(audience);
    let collection_read = match options.continue_token.as_deref() {
        Some(token) if is_live_token(token) => CollectionRead::LivePage,
        None if options.resource_version.as_deref().is_none_or(str::is_empty) => CollectionRead::NewestList,
        _ => CollectionRead::List,
    };
    let state = if collection_read == CollectionRead::LivePage {
        RequestedState::Newest
    } else {
        state(&versions, resource, options)?
    };
    let (labels, fields) = (&options.label_selector, &options.field_selector);
    let collection = collection::collection(request, labels, fields, readable, collection_read).await?;
    let Collection { view, mut before, left_out, filter } = collection;
    let (snapshots, version) = snapshots(request, &versions, &view, &state, &filter.clusters, &mut before).await?;
    Ok(ReadList { view, before, left_out, filter, versions, state, snapshots, version })
}

/// Returns the Warning for a list of Helm records with one release in several clusters. Only the first page has the
/// Warning, and it covers all pages.
async fn mixed_releases_warning(
    read: &ReadList,
    resource: &GroupVersionResource,
    options: &ListOptions,
) -> Option<HeaderValue> {
    let is_first = options.continue_token.is_none();
    if !is_first || !mixed_releases::is_list_of_records(resource, &options.label_selector) {
        return None;
    }
    let found = mixed_releases::find_in_list(&read.snapshots, &read.filter).await;
    tributary_answers::warnings::warning_header(&found.warning()?)
}

/// Adds the Warning that the answer contains only objects that the rights allow. The Warning contains neither names nor
/// numbers.
pub(crate) fn warn_limited(answer: &mut Response<Body>, readable: Option<&Readable>, caller: &Caller) {
    let Some(readable) = readable else { return };
    let limited = readable
        .by_namespace
        .as_ref()
        .and_then(|_| tributary_answers::warnings::warning_header("the list has only the objects that you may list"));
    answer.headers_mut().extend(limited.map(|warning| (header::WARNING, warning)));
    if readable.has_unknown {
        unknown_rights::warn(answer, caller);
    }
}

/// Adds a Warning for each cluster in the selector that does not exist for the caller.
pub(crate) fn warn_of_names(
    answer: &mut Response<Body>,
    request: &ClientRequest<'_>,
    wanted: &ClusterSelector,
    readable: Option<&Readable>,
) {
    let is_shown = |cluster: &ClusterName| readable.is_none_or(|readable| readable.only.contains(cluster));
    selected_names::warn(answer.headers_mut(), request, wanted, is_shown);
}

/// Searches the end of the page. A short search needs no write permit. A longer search waits for a write permit, and
/// yields to other tasks after each part. The writer of the page continues with the returned write permit.
///
/// # Errors
/// 429 if no write permit is free in time.
async fn open(
    opening: OpeningList<Selection>,
    answer_permits: &Arc<AnswerPermits>,
    share_key: ShareKey,
) -> Result<(ListCursor<Selection>, Option<AnswerPermit>), Refusal> {
    let mut opening = match opening.step(FRAME_BYTES) {
        ControlFlow::Break(cursor) => return Ok((cursor, None)),
        ControlFlow::Continue(opening) => opening,
    };
    let mut share = answer_permits.acquire(Length::Medium, share_key).await?;
    loop {
        share.count_written(FRAME_BYTES);
        tokio::task::yield_now().await;
        share.wait_to_continue().await?;
        opening = match opening.step(FRAME_BYTES) {
            ControlFlow::Break(cursor) => return Ok((cursor, Some(share))),
            ControlFlow::Continue(opening) => opening,
        };
    }
}

/// Returns the state that the list options request.
fn state(
    versions: &Versions,
    resource: &GroupVersionResource,
    options: &ListOptions,
) -> Result<RequestedState, Refusal> {
    if let Some(token) = &options.continue_token {
        let epochs = versions.epochs();
        let decoded = versions.continued(token);
        if let Err(error @ ContinueError::Invalid(_)) = decoded {
            return Err(VersionRefusal::InvalidToken(error).into());
        }
        if options.resource_version.as_deref().is_some_and(|version| version != "0") {
            return Err(VersionRefusal::BesidesToken.into());
        }
        if let Ok(decoded) = &decoded {
            versions.token_in_scope(token, decoded)?;
        }
        return decoded.map(RequestedState::Continue).map_err(|error| match error {
            ContinueError::Foreign { position, source } => {
                let fresh = || Some(ContinueToken::inconsistent(position).encode(epochs));
                let expired = || VersionRefusal::ExpiredToken { fresh: fresh() }.into();
                versions.undecided(resource, &source).map_or_else(expired, Refusal::from)
            }
            error => VersionRefusal::InvalidToken(error).into(),
        });
    }
    let text = options.resource_version.as_deref();
    let wanted = versions.read_wanted(resource, text, refuse_list)?;
    versions.in_scope(text, &wanted)?;
    // Without `resourceVersionMatch`, a list with a limit is exactly at the version (kube-apiserver's `LegacyExact`).
    let is_exact = match options.resource_version_match {
        Some(ResourceVersionMatch::Exact) => true,
        Some(ResourceVersionMatch::NotOlderThan) => false,
        None => options.limit > 0,
    };
    Ok(match wanted {
        ReadVersion::Newest => RequestedState::Newest,
        ReadVersion::Any => RequestedState::Any,
        ReadVersion::Version(version) if is_exact => RequestedState::Exact(version),
        ReadVersion::Version(version) => RequestedState::NotOlderThan(version),
        ReadVersion::Item(cluster, version) if is_exact => {
            RequestedState::Exact([(cluster, version)].into_iter().collect())
        }
        ReadVersion::Item(cluster, version) => RequestedState::NotOlderThan(seen(&cluster, version)),
    })
}

/// Returns the snapshots of a state in the selected clusters, and the composite version of all clusters. All clusters,
/// because a client that resumes from the version may select other clusters.
async fn snapshots(
    request: ClientRequest<'_>,
    versions: &Versions,
    view: &Arc<View>,
    state: &RequestedState,
    wanted: &ClusterSelector,
    before: &mut EarlierCacheStates,
) -> Result<(ClusterSnapshots, CompositeResourceVersion), Refusal> {
    reach(request, versions, view, state, wanted, before).await?;
    Ok(match state {
        RequestedState::Exact(version) => {
            let mut vector = view.log().resource_version();
            for (cluster, component) in version.iter() {
                vector.set(cluster, component);
            }
            (view.state_at(&of_clusters(&vector, wanted)).await.map_err(VersionRefusal::NoSnapshot)?, vector)
        }
        RequestedState::Continue(token @ ContinueToken { version: Some(version), .. }) => {
            let state = view.state_at(&of_clusters(&remaining_components(version, token), wanted)).await;
            (state.map_err(|_| expired(versions, token))?, version.clone())
        }
        RequestedState::NotOlderThan(version) => {
            let log = view.log();
            let mut vector = log.resource_version();
            for (cluster, component) in version.iter().filter(|(cluster, _)| !wanted.matches(cluster)) {
                vector.raise(cluster, component);
            }
            (heads_of(log.latest(), wanted), vector)
        }
        RequestedState::Any
        | RequestedState::Newest
        | RequestedState::Continue(ContinueToken { version: None, .. }) => {
            let log = view.log();
            (heads_of(log.latest(), wanted), log.resource_version())
        }
    })
}

/// Waits until the cached view has reached a state.
async fn reach(
    request: ClientRequest<'_>,
    versions: &Versions,
    view: &Arc<View>,
    state: &RequestedState,
    wanted: &ClusterSelector,
    before: &mut EarlierCacheStates,
) -> Result<(), Refusal> {
    match state {
        RequestedState::Any | RequestedState::Continue(ContinueToken { version: None, .. }) => {}
        RequestedState::Newest => {
            let consistency = request.configuration.policy(&request.served.resource).consistency;
            view.newest(WriterSelector::One(request.caller.writer()), before, consistency).await?;
        }
        RequestedState::NotOlderThan(version) => {
            view.reached(&of_clusters(version, wanted)).await.map_err(Unreached::of_collection)?;
        }
        RequestedState::Exact(version) => {
            view.reached_by_members(&of_clusters(version, wanted)).await.map_err(Unreached::of_collection)?;
        }
        RequestedState::Continue(token @ ContinueToken { version: Some(version), .. }) => {
            // The first page may have come from a replica with a newer state than this process.
            let reached = view.reached_by_members(&of_clusters(&remaining_components(version, token), wanted)).await;
            reached.map_err(|unreached| match unreached {
                Unreached::WentBack { .. } => expired(versions, token),
                unreached => unreached.of_collection(),
            })?;
        }
    }
    Ok(())
}

/// Refuses a page whose version is no longer in memory. The token in the refusal continues at a newer version.
fn expired(versions: &Versions, token: &ContinueToken) -> Refusal {
    let fresh = ContinueToken::inconsistent(token.position.clone());
    VersionRefusal::ExpiredToken { fresh: Some(versions.encode_token(fresh)) }.into()
}

/// Returns the components of a token's version for the clusters that are not completely listed yet.
fn remaining_components(version: &CompositeResourceVersion, token: &ContinueToken) -> CompositeResourceVersion {
    let rest = version.iter().filter(|(cluster, _)| **cluster >= token.position.cluster);
    rest.map(|(cluster, component)| (cluster.clone(), component)).collect()
}

fn heads_of(heads: &ClusterSnapshots, wanted: &ClusterSelector) -> ClusterSnapshots {
    if wanted.is_everything() {
        return heads.clone();
    }
    ClusterSnapshots::new(heads.iter().filter(|(cluster, _)| wanted.matches(cluster)).cloned().collect())
}
