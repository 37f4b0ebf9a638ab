//! The answer to a list, written frame by frame from snapshots.

use std::collections::VecDeque;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::task::{Context, Poll};

use bytes::Bytes;
use futures::poll;
use futures::stream::{self, Stream};
use http::{Response, StatusCode};
use http_body::Frame;
use http_body_util::BodyExt;
use tributary_answers::answer;
use tributary_answers::compression::{Gzip, THRESHOLD_BYTES};
use tributary_answers::negotiate::{AnswerForm, Encoding, Representation};
use tributary_answers::refusal::Refusal;
use tributary_apimachinery::{GroupVersionResource, Object};
use tributary_fleet::topology::ClusterMark;
use tributary_merge::ListCursor;
use tributary_rights::{ClusterItemVersions, ItemVersions};
use tributary_sharing::body::{self, Body, BoxError, FRAME_BYTES};
use tributary_sharing::flow::holder::Holder;
use tributary_sharing::flow::large_bodies::beside;
use tributary_sharing::flow::long_answers::{AnswerTurn, AnswerTurns, Length, MEDIUM_BYTES, NoTurn};
use tributary_views::view::View;

use super::indent::Indent;
use super::{ObjectContext, ObjectWriter, protobuf};
use crate::selection::Selection;

/// How much JSON is turned into YAML at one go, in bytes. YAML takes a hundred times as long to write as JSON is
/// copied: a frame's worth of 64 KiB took 10 ms, and with ten such lists under way another client's get
/// 23 ms (p50) instead of 0.4.
const YAML_BYTES: usize = 8 << 10;

/// After how many pieces of work others have their turn. 4: a piece of JSON is copied in 10 µs, a Table's printed in 80
/// µs. With a turn after each piece, a list of ten had the other threads woken 8 times for nothing, and its head sent
/// alone.
const PIECES_PER_TURN: usize = 4;

/// The list's own metadata.
#[derive(Clone, Debug, Default)]
pub(crate) struct ListMetadata {
    /// The vector of the snapshots, encoded.
    pub resource_version: String,
    /// Where the next page starts; `None` on the last.
    pub continue_token: Option<String>,
    /// How many objects come after this page, where that is known.
    pub remaining_item_count: Option<u64>,
    /// The form of the versions that the items carry.
    pub items: ItemVersions,
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
    cursor: ListCursor<Selection>,
    writer: ObjectWriter,
    /// How the versions are written of the cluster whose items come.
    of_cluster: Option<ClusterItemVersions>,
    /// Reused for the version of each item.
    version: String,
    /// Reused for the text of each item that is laid out anew.
    item: Vec<u8>,
    /// The bytes of all items, where they have to be known before the first is written.
    length: Option<usize>,
    indent: Option<Indent>,
    begun: bool,
    any: bool,
    done: bool,
    metadata: ListMetadata,
}

/// What a list's answer is made of.
pub(crate) struct ListAnswer<'a> {
    /// What is listed.
    pub view: Arc<View>,
    /// The objects.
    pub cursor: ListCursor<Selection>,
    /// Writes them in the form that was asked for.
    pub writer: ObjectWriter,
    /// The list's own metadata.
    pub metadata: ListMetadata,
    /// The turn that was taken already, to look for where the page ends.
    pub share: Option<AnswerTurn>,
    /// Whoever writes more than a frame takes a turn.
    pub answer_turns: &'a Arc<AnswerTurns>,
    /// The connection that it goes to.
    pub holder: Holder,
}

impl ListAnswer<'_> {
    /// The answer. One that fits a frame is made at once; a longer one waits for its turn,
    /// and holds no bytes until then.
    ///
    /// # Errors
    /// 429 where there is no turn for it in time.
    pub(crate) async fn respond(self) -> Result<Response<Body>, Refusal> {
        let Self { view, cursor, writer, metadata, share, answer_turns, holder } = self;
        let AnswerForm { encoding, gzip, .. } = writer.form();
        let content_type = encoding.content_type();
        let start = cursor.clone();
        let mut list = ListWriter::new(view, cursor, writer, metadata);
        let first = list.next_frame().unwrap_or_default();
        if list.done {
            return Ok(answer::with_content_type(StatusCode::OK, content_type, body::full(first)));
        }
        let mut made = VecDeque::from([Bytes::from(first)]);
        let share = match share {
            Some(share) => share,
            None => {
                let is_long = start.exceeds(MEDIUM_BYTES) == Some(true);
                let mut turn = pin!(answer_turns.acquire(if is_long { Length::Long } else { Length::Medium }, holder));
                match poll!(turn.as_mut()) {
                    Poll::Ready(turn) => turn?,
                    // Whoever waits holds no bytes.
                    Poll::Pending => {
                        made.clear();
                        list.restart(start);
                        turn.await?
                    }
                }
            }
        };
        if encoding == Encoding::Protobuf {
            list.measure().await;
        }
        let gzip = gzip.then(Gzip::default);
        let is_compressed = gzip.is_some();
        let mut long = LongAnswer { frames: made, list, gzip, is_last: Arc::default(), share, pieces: 0 };
        // What fits below the threshold of compression is answered whole, with its length.
        let mut frames = VecDeque::new();
        let mut bytes = 0;
        while bytes <= THRESHOLD_BYTES {
            let Some(frame) = long.text().await? else {
                let whole: Bytes = frames.into_iter().flatten().collect();
                return Ok(answer::with_content_type(StatusCode::OK, content_type, body::full(whole)));
            };
            bytes += frame.len();
            frames.push_back(frame);
        }
        long.frames = frames;
        let mut response = answer::with_content_type(StatusCode::OK, content_type, long.into_body());
        if is_compressed {
            super::mark_compressed(response.headers_mut());
        }
        Ok(response)
    }
}

/// An answer that is written frame by frame, as its reader takes it.
struct LongAnswer {
    /// Frames that were made before it was known how long it would be.
    frames: VecDeque<Bytes>,
    list: ListWriter,
    gzip: Option<Gzip>,
    /// Whether the last frame has been given.
    is_last: Arc<AtomicBool>,
    share: AnswerTurn,
    /// The pieces of work since others had their turn.
    pieces: usize,
}

impl LongAnswer {
    fn into_body(self) -> Body {
        let is_last = Arc::clone(&self.is_last);
        let frames = stream::unfold(Some(self), |answer| async move {
            let mut answer = answer?;
            match answer.next().await {
                Ok(frame) => Some((Ok(Frame::data(frame?)), Some(answer))),
                Err(none) => Some((Err(BoxError::from(none)), None)),
            }
        });
        ListBody { frames: Box::pin(frames), is_last }.boxed_unsync()
    }

    /// The next frame as it is sent; `None` after the last.
    async fn next(&mut self) -> Result<Option<Bytes>, NoTurn> {
        if self.is_last.load(Relaxed) {
            return Ok(None);
        }
        let mut text = self.text().await?;
        let Self { gzip: Some(gzip), frames, list, is_last, share, .. } = self else {
            self.is_last.store(self.frames.is_empty() && self.list.done, Relaxed);
            return Ok(text);
        };
        // No pause from here on: a compressor is not kept while others work.
        let mut packed = gzip.frame();
        loop {
            let Some(frame) = text else {
                is_last.store(true, Relaxed);
                return Ok(Some(packed.finish().into()));
            };
            packed.push(&frame);
            // Where much was looked at for little text, what there is goes out.
            if packed.is_full() || frame.len() < FRAME_BYTES / 4 {
                return Ok(Some(packed.end().into()));
            }
            text = next_text(frames, list, share);
        }
    }

    /// The next piece of the text, which is not empty; `None` after the last. A list of many megabytes is work without
    /// a pause, and so is looking for the few objects of many that are selected:
    /// others get their turn after each few pieces.
    async fn text(&mut self) -> Result<Option<Bytes>, NoTurn> {
        loop {
            self.share.go_on().await?;
            let text = next_text(&mut self.frames, &mut self.list, &mut self.share);
            self.pieces += 1;
            // YAML takes a hundred times as long, and compressing ten times.
            let is_slow = self.gzip.is_some() || self.list.writer.form().encoding == Encoding::Yaml;
            if is_slow || self.pieces >= PIECES_PER_TURN {
                self.pieces = 0;
                tokio::task::yield_now().await;
            }
            match text {
                Some(text) if text.is_empty() => {}
                text => return Ok(text),
            }
        }
    }
}

/// The frames of a list. HTTP/2 says with the last of them that it is the last, not with another one.
struct ListBody<S> {
    frames: Pin<Box<S>>,
    is_last: Arc<AtomicBool>,
}

impl<S: Stream<Item = Result<Frame<Bytes>, BoxError>>> http_body::Body for ListBody<S> {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        self.frames.as_mut().poll_next(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.is_last.load(Relaxed)
    }
}

/// A frame's worth of work; empty where nothing was found by it. What an answer costs is its text, compressed or not.
fn next_text(frames: &mut VecDeque<Bytes>, list: &mut ListWriter, share: &mut AnswerTurn) -> Option<Bytes> {
    let text = frames.pop_front().or_else(|| list.next_frame().map(Bytes::from))?;
    share.wrote(if text.is_empty() { FRAME_BYTES } else { text.len() });
    Some(text)
}

impl ListWriter {
    fn new(view: Arc<View>, cursor: ListCursor<Selection>, writer: ObjectWriter, metadata: ListMetadata) -> Self {
        let form = writer.form();
        let indent = (form.pretty && form.encoding == Encoding::Json).then(Indent::default);
        let (version, item) = (String::new(), Vec::new());
        let (begun, any, done) = (false, false, false);
        Self { view, cursor, writer, of_cluster: None, version, item, length: None, indent, begun, any, done, metadata }
    }

    /// Starts anew, as if nothing had been written.
    fn restart(&mut self, cursor: ListCursor<Selection>) {
        self.cursor = cursor;
        self.indent = self.indent.as_ref().map(|_| Indent::default());
        (self.begun, self.any, self.done) = (false, false, false);
    }

    /// The next frame; `None` after the last.
    fn next_frame(&mut self) -> Option<Vec<u8>> {
        if self.done {
            return None;
        }
        let frame = match self.writer.form() {
            AnswerForm { encoding: Encoding::Json, .. } => self.json_frame(),
            AnswerForm { encoding: Encoding::Protobuf, .. } => self.protobuf_frame(),
            // One object of a megabyte takes a tenth of a second.
            AnswerForm { encoding: Encoding::Yaml, .. } => beside(|| self.yaml_frame()),
        };
        let Some(indent) = &mut self.indent else { return Some(frame) };
        // Indented text is half as long again.
        let mut laid_out = Vec::with_capacity(frame.len() * 2);
        indent.push(&frame, &mut laid_out);
        Some(laid_out)
    }

    fn json_frame(&mut self) -> Vec<u8> {
        let mut out = Vec::with_capacity(FRAME_BYTES + FRAME_BYTES / 4);
        if !std::mem::replace(&mut self.begun, true) {
            self.head(&mut out);
        }
        let Self { view, cursor, writer, of_cluster, version, any, metadata, .. } = self;
        let more =
            next_items(FRAME_BYTES, cursor, view, &metadata.items, of_cluster, version, |object, version, mark| {
                if std::mem::replace(any, true) {
                    out.push(b',');
                }
                writer.write(object, version, mark, ObjectContext::Item, true, &mut out);
            });
        if !more {
            self.done = true;
            out.extend_from_slice(b"]}\n");
        }
        out
    }

    /// Items one by one: a value of a whole list would be ten times its text.
    fn yaml_frame(&mut self) -> Vec<u8> {
        let mut out = Vec::with_capacity(FRAME_BYTES + FRAME_BYTES / 4);
        if !std::mem::replace(&mut self.begun, true) {
            out.extend_from_slice(self.around_yaml_items().0.as_bytes());
        }
        let Self { view, cursor, writer, of_cluster, version, item, any, metadata, .. } = self;
        let more =
            next_items(YAML_BYTES, cursor, view, &metadata.items, of_cluster, version, |object, version, mark| {
                item.clear();
                writer.write(object, version, mark, ObjectContext::Item, true, item);
                for (at, line) in super::yaml::of_json(item).unwrap_or_default().lines().enumerate() {
                    out.extend_from_slice(if at == 0 { b"\n- " } else { b"\n  " });
                    out.extend_from_slice(line.as_bytes());
                }
                *any = true;
            });
        if !more {
            self.done = true;
            out.extend_from_slice(if self.any { b"\n" } else { b" []\n" });
            out.extend_from_slice(self.around_yaml_items().1.as_bytes());
        }
        out
    }

    /// What stands before the items in YAML, and what behind them. Keys are in order there: a list's kind and metadata
    /// come behind its `items`, and a Table's `rows` are the last.
    fn around_yaml_items(&self) -> (String, String) {
        let mut empty = Vec::new();
        self.head(&mut empty);
        empty.extend_from_slice(b"]}");
        let text = super::yaml::of_json(&empty).unwrap_or_default();
        let items = if matches!(self.writer.form().shape, Representation::Table(_)) { "rows" } else { "items" };
        let (before, behind) = text.split_once(&format!("\n{items}: []\n")).unwrap_or_default();
        (format!("{before}\n{items}:"), behind.to_owned())
    }

    /// The first frame tells the length of the whole. Until that is measured, it is empty.
    fn protobuf_frame(&mut self) -> Vec<u8> {
        let Some(length) = self.length.or_else(|| self.measured_at_once()) else { return Vec::new() };
        let mut out = Vec::with_capacity(FRAME_BYTES);
        if !std::mem::replace(&mut self.begun, true) {
            let ListMetadata { resource_version, continue_token, remaining_item_count, .. } = &self.metadata;
            let token = continue_token.as_deref().unwrap_or_default();
            let metadata = protobuf::list_metadata(resource_version, token, *remaining_item_count);
            protobuf::list_begin(metadata.len() + length, &mut out);
            out.extend_from_slice(&metadata);
        }
        let Self { view, cursor, writer, of_cluster, version, metadata, .. } = self;
        let more =
            next_items(FRAME_BYTES, cursor, view, &metadata.items, of_cluster, version, |object, version, mark| {
                writer.write(object, version, mark, ObjectContext::Item, true, &mut out);
            });
        if !more {
            self.done = true;
            protobuf::list_end(&mut out);
        }
        out
    }

    /// Measures all items, with a pause after each frame's worth: the price of an answer that is not held whole.
    async fn measure(&mut self) {
        let (mut cursor, mut length) = (self.cursor.clone(), 0);
        while self.measure_frame(&mut cursor, &mut length) {
            tokio::task::yield_now().await;
        }
        self.length = Some(length);
    }

    /// The bytes of all items, if these are not more than a frame's worth.
    fn measured_at_once(&mut self) -> Option<usize> {
        let (mut cursor, mut length) = (self.cursor.clone(), 0);
        self.length = (!self.measure_frame(&mut cursor, &mut length)).then_some(length);
        self.length
    }

    /// Adds the bytes of a frame's worth of items; false after the last.
    fn measure_frame(&mut self, cursor: &mut ListCursor<Selection>, length: &mut usize) -> bool {
        let Self { view, writer, of_cluster, version, item, metadata, .. } = self;
        next_items(FRAME_BYTES, cursor, view, &metadata.items, of_cluster, version, |object, version, mark| {
            item.clear();
            writer.write(object, version, mark, ObjectContext::Item, true, item);
            *length += item.len();
        })
    }

    fn head(&self, out: &mut Vec<u8>) {
        let metadata = self.metadata.json();
        if matches!(self.writer.form().shape, Representation::Table(_)) {
            return self.writer.table_head(true, &metadata, out);
        }
        let (kind, api_version) = list_kind(&self.view.kind.kind, &self.view.kind.resource, self.writer.form());
        let head =
            format!("{{\"kind\":\"{kind}\",\"apiVersion\":\"{api_version}\",\"metadata\":{{{metadata}}},\"items\":[");
        out.extend_from_slice(head.as_bytes());
    }
}

/// Visits items of about so many bytes of JSON, each with the text of its version and its cluster's mark;
/// false after the last.
fn next_items(
    bytes: usize,
    cursor: &mut ListCursor<Selection>,
    view: &View,
    items: &ItemVersions,
    of_cluster: &mut Option<ClusterItemVersions>,
    version: &mut String,
    mut write: impl FnMut(&Object, &str, &ClusterMark),
) -> bool {
    cursor.next_chunk(bytes, |cluster, object| {
        if of_cluster.as_ref().is_none_or(|known| known.mark().name != *cluster) {
            *of_cluster = Some(items.for_cluster(&view.mark(cluster)));
        }
        let Some(of_cluster) = of_cluster else { return };
        of_cluster.write(object.resource_version(), version);
        write(object, version, of_cluster.mark());
    })
}

/// Kind and apiVersion of a list.
fn list_kind(kind: &str, resource: &GroupVersionResource, form: AnswerForm) -> (String, String) {
    match form.shape {
        Representation::PartialMetadata(version) => ("PartialObjectMetadataList".into(), version.api_version().into()),
        _ => (format!("{kind}List"), resource.group_version().to_string()),
    }
}
