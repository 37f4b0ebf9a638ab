//! Answers to watches: an initial state, and subsequent events.

mod ahead;
mod bookmarks;
mod followed_policies;
mod joined;
mod source;
mod start;
mod stream;

use std::sync::Arc;
use std::time::Duration;

use futures::stream::unfold;
use http::{Response, StatusCode};
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};
use rand::Rng;
use tokio::time::Instant;
use tributary_answers::answer;
use tributary_answers::negotiate::ResponseKind;
use tributary_answers::refusal::Refusal;
use tributary_apimachinery::{ClusterSelector, ItemResourceVersions, Timeout, WatchOptions};
use tributary_merge::Watcher;
use tributary_rights::{DeniedAt, SubscribedRights};
use tributary_sharing::body::{self, Body, BoxError};
use tributary_sharing::flow::long_answers::{Length, MEDIUM_BYTES};
use tributary_sharing::limits;
use tributary_views::view::{View, cache_state};

use super::list::{warn_limited, warn_of_names};
use super::uncached::CollectionRead;
use super::{Collection, collection};
use crate::request::ClientRequest;
use crate::response::ObjectWriter;
use crate::response::watch::{EventWriter, error};
use crate::selection::Selection;
use ahead::CatchingUp;
use bookmarks::{BookmarkFrequency, BookmarkSchedule};
use followed_policies::FollowedPolicies;
use source::{EVENTS_PER_TURN, LogPosition};
use start::{NotStarted, StartedWatch, start};
use stream::{StreamPhase, WatchStream};

/// Range of a watch's default timeout, in seconds (kube-apiserver's `minRequestTimeout`, and twice that).
const TIMEOUT_SECONDS: std::ops::Range<u64> = 1800..3600;

/// Answers a watch. An error about the resourceVersion is an event in the stream: clients repeat a watch after an HTTP
/// 410 for ever with the same version.
///
/// # Errors
/// 400, 406 and 422 for an invalid request; 405 for versions that are not numbers; 429 for unknown clusters.
pub(crate) async fn watch(request: ClientRequest<'_>) -> Result<Response<Body>, Refusal> {
    let ClientRequest { router, served, caller, .. } = request;
    let form = request.preferences.form(ResponseKind::Watch)?;
    let options = WatchOptions::parse(request.query, limits::SELECTOR).map_err(Refusal::malformed)?;
    let (labels, fields) = (&options.label_selector, &options.field_selector);
    let (_, wanted) = ClusterSelector::split(labels).map_err(Refusal::malformed)?;
    let partial = request.configuration.policy(&served.resource).partial;
    // The policies are read before the rights, so that a change of the policies in between is not missed.
    let denied = caller.dispatched.clone().map(|dispatched| -> DeniedAt {
        Arc::new(move |cluster| dispatched.denied_clusters().is_some_and(|denied| denied.has(cluster)))
    });
    let subscribed =
        caller.rights().map(|rights| SubscribedRights::new(rights, request.read_target(), wanted.clone(), denied));
    let readable = request.readable("watch", &wanted, partial).await?;
    let collection = collection::collection(request, labels, fields, readable.as_ref(), CollectionRead::Watch).await?;
    let Collection { view, before, left_out, filter } = collection;
    let include = request.finish(form, ResponseKind::Watch)?;
    let followed = subscribed
        .zip(readable.as_ref())
        .map(|(subscribed, readable)| subscribed.follow(readable, view.cluster_names()));
    let policies = caller.dispatched.as_ref().map(|dispatched| {
        let shown = readable.as_ref().filter(|_| caller.rights().is_none()).map(|readable| Arc::clone(&readable.only));
        FollowedPolicies::new(dispatched, wanted.clone(), view.cluster_names(), shown)
    });
    let is_forbidden = before.is_one_forbidden();
    let audience = readable.as_ref().map(|readable| Arc::clone(&readable.audience));
    let versions = request.configuration.versions(&served.resource).of_audience(audience);
    let clusters = filter.clusters.clone();
    let answer = |body| answer::with_content_type(StatusCode::OK, form.encoding.stream_content_type(), body);
    let StartedWatch { watcher, ahead, cache_states } =
        match start(request, &versions, &view, before, &options, filter).await {
            Ok(started) => started,
            Err(NotStarted::AsAnswer(refusal)) => return Err(refusal),
            Err(NotStarted::InStream(refusal)) => return Ok(answer(body::full(error(&refusal.status(), form)))),
        };
    let phase = match initial_length(&view, &watcher) {
        Some(length) => StreamPhase::Initial(router.answer_permits().acquire(length, caller.share_key).await?),
        None => StreamPhase::Behind,
    };
    let source = LogPosition::new(&view, caller.connection, watcher, is_forbidden);
    let objects = ObjectWriter::new(&view.kind, form, include);
    let epochs = Arc::clone(&request.configuration.epochs);
    let writer =
        EventWriter::new(Arc::clone(&view), objects, (epochs, router.present_epochs()), versions.item_versions());
    let bookmarks = bookmarks(&options, versions.items(), caller.stream_end().map(|(at, _)| at));
    let ahead = CatchingUp::start(&view, ahead);
    let stream =
        WatchStream::new(source, phase, ahead, writer, bookmarks, router.draining().clone()).under(followed, policies);
    let mut response = answer(frames(stream));
    view.warn(response.headers_mut(), &cache_states, &clusters);
    warn_limited(&mut response, readable.as_ref(), caller);
    warn_of_names(&mut response, &request, &wanted, readable.as_ref());
    let only_watched = readable.as_ref().map_or(&[][..], |readable| &readable.only_watched);
    cache_state::warn_only_watched(response.headers_mut(), caller.door, &served.resource, only_watched);
    cache_state::warn_left_out(response.headers_mut(), caller.door, &served.resource, &left_out);
    Ok(response)
}

/// Returns the schedule of bookmarks, and the end of a watch: after its own timeout, and at `until` at the latest.
fn bookmarks(options: &WatchOptions, items: ItemResourceVersions, until: Option<Instant>) -> BookmarkSchedule {
    let kind = match (options.allow_watch_bookmarks, items) {
        (false, _) => BookmarkFrequency::None,
        (true, ItemResourceVersions::Composite) => BookmarkFrequency::Regular,
        (true, ItemResourceVersions::Integer) => BookmarkFrequency::AfterEvents,
    };
    let own_choice = || Timeout::new(Duration::from_secs(rand::rng().random_range(TIMEOUT_SECONDS)));
    let (now, timeout) = (Instant::now(), options.timeout.unwrap_or_else(own_choice));
    let remaining = until.map_or(Timeout::MAX, |until| until.saturating_duration_since(now));
    BookmarkSchedule::new(kind, now, Timeout::new(remaining.min(timeout.duration())))
}

/// Returns the stream as a body. Boxed, because each frame moves the stream in and out of a future.
fn frames(stream: WatchStream) -> Body {
    let frames = unfold(Box::new(stream), |mut stream| async move {
        Some((Ok::<_, BoxError>(Frame::data(stream.next().await?)), stream))
    });
    StreamBody::new(frames).boxed_unsync()
}

/// Returns the length of the initial state. `None` if the watch sends no initial state, or if the state fits into one
/// batch of events. Ignores selectors, because most watches with selectors also match many objects.
fn initial_length(view: &View, watcher: &Watcher<Arc<Selection>>) -> Option<Length> {
    if !watcher.starts_with_state() {
        return None;
    }
    let filter = watcher.filter();
    let heads = Arc::clone(view.log().latest());
    let (mut objects, mut bytes) = (0, 0);
    for object in heads.iter().flat_map(|(_, snapshot)| snapshot.range(&filter.scope(), None)) {
        objects += 1;
        bytes += object.json().len();
        if bytes > MEDIUM_BYTES {
            return Some(Length::Long);
        }
    }
    (objects > EVENTS_PER_TURN).then_some(Length::Medium)
}
