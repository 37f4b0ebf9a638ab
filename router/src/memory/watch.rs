//! A collection followed: the answer of a watch.

mod joined;
mod start;
mod stream;

use std::sync::Arc;
use std::time::Duration;

use futures::stream as streams;
use http::{Response, StatusCode};
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};
use rand::Rng;
use tokio_util::task::AbortOnDropHandle;
use tributary_apimachinery::{Filter, ItemResourceVersions, Status, Timeout, WatchOptions};
use tributary_merge::Watcher;

use super::{Collection, collection};
use crate::body::{self, Body, BoxError};
use crate::flow::long_answers::{Length, MEDIUM_BYTES};
use crate::limits;
use crate::negotiate::Answer;
use crate::request::ClientRequest;
use crate::response::watch::{EventWriter, error};
use crate::response::{self, ObjectWriter};
use crate::view::{View, standing};
use crate::views::choice::Lifetime;
use start::{Refusal, Started, start};
use stream::{Bookmarks, EVENTS_PER_TURN, WatchStream};

/// The bounds of the time after which a watch ends that names none, in seconds (`minRequestTimeout` and twice that).
const TIMEOUT_SECONDS: std::ops::Range<u64> = 1800..3600;

/// Answers a watch. What is wrong with its version is told in the stream, because clients treat an HTTP 410 as no answer and
/// come back with the same version for ever.
///
/// # Errors
/// 400, 406 and 422 for what cannot be asked; 429 while clusters are unknown.
pub(crate) async fn watch(request: ClientRequest<'_>) -> Result<Response<Body>, Status> {
    let ClientRequest { router, served, .. } = request;
    let form = request.preferences.form(Answer::Watch)?;
    let options = WatchOptions::parse(request.query, limits::SELECTOR)?;
    let (labels, fields) = (&options.label_selector, &options.field_selector);
    let collection = collection::collection(request, labels, fields, Lifetime::Follows).await?;
    let Collection { view, before, left_out, filter } = collection;
    let include = request.finish(form, Answer::Watch)?;
    let as_held = view.namespace.is_none() && before.is_one_forbidden();
    let versions = request.configuration.versions(&served.resource);
    let Started { watcher, ahead, standings } = match start(request, &versions, &view, before, &options, filter).await {
        Ok(started) => started,
        Err(Refusal::Before(status)) => return Err(status),
        Err(Refusal::InStream(status)) => {
            let content_type = form.encoding.stream_content_type();
            return Ok(response::with_content_type(StatusCode::OK, content_type, body::full(error(&status, form))));
        }
    };
    let initial = match initial_length(&view, &watcher) {
        Some(length) => Some(router.lanes().take(length, request.caller.connection).await?),
        None => None,
    };
    let items = versions.items();
    let objects = ObjectWriter::new(&view.kind, form, include);
    let writer = EventWriter::new(Arc::clone(&view), objects, Arc::clone(&request.configuration.epochs), items);
    let own_choice = || Timeout::new(Duration::from_secs(rand::rng().random_range(TIMEOUT_SECONDS)));
    let timeout = options.timeout.unwrap_or_else(own_choice);
    let bookmarks = match (options.allow_watch_bookmarks, items) {
        (false, _) => Bookmarks::None,
        (true, ItemResourceVersions::Composite) => Bookmarks::Regular,
        (true, ItemResourceVersions::Integer) => Bookmarks::AfterEvents,
    };
    let mut stream = WatchStream::new(
        &view,
        request.caller.connection,
        watcher,
        writer,
        bookmarks,
        timeout,
        router.draining().clone(),
    );
    stream.initial = initial;
    stream.as_held = as_held;
    // A task, so that what a member says is heard while the client does not read.
    stream.ahead =
        (!ahead.is_empty()).then(|| AbortOnDropHandle::new(tokio::spawn(Arc::clone(&view).caught_up(ahead))));
    // Boxed, because each frame moves it in and out of a future.
    let frames = streams::unfold(Box::new(stream), |mut stream| async move {
        Some((Ok::<_, BoxError>(Frame::data(stream.next().await?)), stream))
    });
    let mut response = response::with_content_type(
        StatusCode::OK,
        form.encoding.stream_content_type(),
        StreamBody::new(frames).boxed_unsync(),
    );
    view.warn(response.headers_mut(), &standings);
    standing::warn_left_out(response.headers_mut(), &served.resource, &left_out);
    Ok(response)
}

/// How long what is told of the present state is; `None` where one turn of a watcher has room for it, or nothing is. What is filtered
/// by but the scope is not looked at: most watches that select otherwise are of many objects, too.
fn initial_length(view: &View, watcher: &Watcher<Filter>) -> Option<Length> {
    if !watcher.tells_state() {
        return None;
    }
    let filter = watcher.filter();
    let heads = Arc::clone(view.log().head());
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
