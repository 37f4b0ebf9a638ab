//! The answer to a list, written frame by frame from snapshots.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;
use futures::stream;
use http::{HeaderValue, Response, StatusCode, header};
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};
use tributary_apimachinery::{Filter, GroupVersionResource};
use tributary_merge::ListCursor;

use super::compression::{Gzip, THRESHOLD_BYTES};
use super::{FRAME_BYTES, ObjectWriter, Place};
use crate::body::{self, Body, BoxError};
use crate::negotiate::{Encoding, Form, Shape};
use crate::topology::ClusterMark;
use crate::view::View;

/// The list's own metadata.
#[derive(Clone, Debug, Default)]
pub struct ListMetadata {
    /// The vector of the snapshots, encoded.
    pub resource_version: String,
    /// Where the next page starts; `None` on the last.
    pub continue_token: Option<String>,
    /// How many objects come after this page, where that is known.
    pub remaining_item_count: Option<u64>,
}

impl ListMetadata {
    /// The JSON text between the metadata's braces. Tokens need no escapes.
    fn json(&self) -> String {
        let mut text = format!("\"resourceVersion\":\"{}\"", self.resource_version);
        if let Some(token) = &self.continue_token {
            text.push_str(&format!(",\"continue\":\"{token}\""));
        }
        if let Some(remaining) = self.remaining_item_count {
            text.push_str(&format!(",\"remainingItemCount\":{remaining}"));
        }
        text
    }
}

/// A list that is being written.
struct ListWriter {
    view: Arc<View>,
    cursor: ListCursor<Filter>,
    writer: ObjectWriter,
    mark: Option<Arc<ClusterMark>>,
    /// Reused for the version of each item.
    version: String,
    begun: bool,
    any: bool,
    done: bool,
    metadata: ListMetadata,
}

/// The answer to a list. `gzip` says whether the client takes it.
pub fn answer(
    view: Arc<View>,
    cursor: ListCursor<Filter>,
    writer: ObjectWriter,
    metadata: ListMetadata,
    gzip: bool,
) -> Response<Body> {
    let form = writer.form();
    let mut list = ListWriter {
        view,
        cursor,
        writer,
        mark: None,
        version: String::new(),
        begun: false,
        any: false,
        done: false,
        metadata,
    };
    if form.encoding != Encoding::Json || form.pretty {
        return super::whole(StatusCode::OK, form, list.all());
    }
    // What fits below the threshold of compression is answered whole, with its length.
    let mut frames = VecDeque::new();
    let mut bytes = 0;
    while bytes <= THRESHOLD_BYTES {
        let Some(frame) = list.next_frame() else {
            return super::with_content_type(StatusCode::OK, Encoding::Json.content_type(), body_of(frames));
        };
        bytes += frame.len();
        frames.push_back(Bytes::from(frame));
    }
    let body = if gzip {
        streamed(Compressed { frames, list, gzip: Some(Gzip::default()) })
    } else {
        streamed(Plain { frames, list })
    };
    let mut response = super::with_content_type(StatusCode::OK, Encoding::Json.content_type(), body);
    if gzip {
        response.headers_mut().insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    }
    response.headers_mut().insert(header::VARY, HeaderValue::from_static("Accept-Encoding"));
    response
}

fn body_of(mut frames: VecDeque<Bytes>) -> Body {
    if frames.len() == 1 {
        body::full(frames.pop_front().unwrap_or_default())
    } else {
        body::full(frames.into_iter().flatten().collect::<Bytes>())
    }
}

/// Gives the frames of a body one by one.
trait Frames: Send + 'static {
    fn next(&mut self) -> Option<Bytes>;
}

struct Plain {
    frames: VecDeque<Bytes>,
    list: ListWriter,
}

impl Frames for Plain {
    fn next(&mut self) -> Option<Bytes> {
        self.frames.pop_front().or_else(|| self.list.next_frame().map(Bytes::from))
    }
}

struct Compressed {
    frames: VecDeque<Bytes>,
    list: ListWriter,
    gzip: Option<Gzip>,
}

impl Frames for Compressed {
    fn next(&mut self) -> Option<Bytes> {
        let gzip = self.gzip.as_mut()?;
        let mut out = Vec::new();
        while out.len() < FRAME_BYTES {
            let next = self.frames.pop_front().or_else(|| self.list.next_frame().map(Bytes::from));
            match next {
                Some(frame) => out.extend(gzip.push(&frame)),
                None => {
                    out.extend(self.gzip.take().map(Gzip::finish).unwrap_or_default());
                    break;
                }
            }
        }
        Some(out.into())
    }
}

fn streamed(frames: impl Frames) -> Body {
    let stream = stream::unfold(frames, |mut frames| async move {
        let frame = frames.next()?;
        // A list of many megabytes is work without a pause: others get their turn between frames.
        tokio::task::yield_now().await;
        Some((Ok::<_, BoxError>(Frame::data(frame)), frames))
    });
    StreamBody::new(stream).boxed_unsync()
}

impl ListWriter {
    /// The next frame; `None` after the last.
    fn next_frame(&mut self) -> Option<Vec<u8>> {
        if self.done {
            return None;
        }
        let mut out = Vec::with_capacity(FRAME_BYTES + FRAME_BYTES / 4);
        if !self.begun {
            self.begun = true;
            self.head(&mut out);
        }
        let Self { view, cursor, writer, mark, version, any, .. } = self;
        let more = cursor.next_chunk(FRAME_BYTES, |cluster, object| {
            if mark.as_ref().is_none_or(|mark| mark.name != *cluster) {
                *mark = Some(view.mark(cluster));
            }
            let Some(mark) = mark else { return };
            if std::mem::replace(any, true) {
                out.push(b',');
            }
            mark.item_version(object.resource_version(), version);
            writer.write(object, version, mark, Place::Item, true, &mut out);
        });
        if !more {
            self.done = true;
            out.extend_from_slice(b"]}\n");
        }
        Some(out)
    }

    fn all(&mut self) -> Vec<u8> {
        let mut out = Vec::new();
        while let Some(frame) = self.next_frame() {
            out.extend(frame);
        }
        out
    }

    fn head(&self, out: &mut Vec<u8>) {
        let metadata = self.metadata.json();
        if self.writer.form().shape == Shape::Table {
            return self.writer.table_head(true, &metadata, out);
        }
        let (kind, api_version) = list_kind(&self.view.kind.kind, &self.view.kind.resource, self.writer.form());
        let head =
            format!("{{\"kind\":\"{kind}\",\"apiVersion\":\"{api_version}\",\"metadata\":{{{metadata}}},\"items\":[");
        out.extend_from_slice(head.as_bytes());
    }
}

/// Kind and apiVersion of a list.
fn list_kind(kind: &str, resource: &GroupVersionResource, form: Form) -> (String, String) {
    match form.shape {
        Shape::PartialMetadata => ("PartialObjectMetadataList".into(), "meta.k8s.io/v1".into()),
        _ => (format!("{kind}List"), resource.group_version().to_string()),
    }
}
