//! Answer to a list, written frame by frame from snapshots.

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
use tributary_answers::protobuf;
use tributary_answers::refusal::Refusal;
use tributary_apimachinery::Object;
use tributary_fleet::discovery::ResourceKind;
use tributary_fleet::topology::ClusterMark;
use tributary_merge::ListCursor;
use tributary_rights::{ClusterItemVersions, ItemVersions};
use tributary_sharing::body::{self, Body, BoxError, FRAME_BYTES};
use tributary_sharing::flow::large_bodies::run_in_place;
use tributary_sharing::flow::long_answers::{AnswerPermit, AnswerPermits, Length, MEDIUM_BYTES, NoWritePermit};
use tributary_sharing::flow::share_key::ShareKey;
use tributary_views::view::View;

use super::indent::Indent;
use super::{Columns, ObjectContext, ObjectWriter};
use crate::selection::Selection;

/// Bytes of JSON converted to YAML without a yield to other tasks. Writing YAML takes a hundred times as long as
/// copying JSON: with frames of 64 KiB, which take 10 ms each, ten such lists raised the time of a different client's
/// get from 0.4 ms to 23 ms (p50).
const YAML_BYTES: usize = 8 << 10;

/// Number of pieces of text that a list writes between two yields to other tasks. Copying a piece of JSON takes 10 µs,
/// printing a piece of a Table 80 µs. With a yield after each piece, a list of ten objects woke the other threads 8
/// times in vain, and its head was sent separately.
const PIECES_PER_TURN: usize = 4;

#[derive(Clone, Debug, Default)]
pub(crate) struct ListMetadata {
    /// Composite version of the snapshots, as text.
    pub resource_version: String,
    /// Token of the next page; `None` on the last page.
    pub continue_token: Option<String>,
    /// Number of objects after this page, if known.
    pub remaining_item_count: Option<u64>,
    /// Form of the items' resourceVersions.
    pub items: ItemVersions,
}

impl ListMetadata {
    /// Returns the JSON text between the braces of the metadata. The token needs no escapes.
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

struct ListWriter {
    view: Arc<View>,
    cursor: ListCursor<Selection>,
    writer: ObjectWriter,
    item_texts: ItemTexts,
    /// Buffer for the text of an item whose layout changes.
    item: Vec<u8>,
    /// Length of all items in bytes, if the format needs the length before the first item.
    length: Option<usize>,
    indent: Option<Indent>,
    begun: bool,
    any: bool,
    done: bool,
    metadata: ListMetadata,
}

pub(crate) struct ListAnswer<'a> {
    /// Cached view whose objects are listed.
    pub view: Arc<View>,
    pub cursor: ListCursor<Selection>,
    pub writer: ObjectWriter,
    pub metadata: ListMetadata,
    /// Write permit that the search for the end of the page has already taken.
    pub share: Option<AnswerPermit>,
    /// Write permits: an answer of more than one frame needs a write permit.
    pub answer_permits: &'a Arc<AnswerPermits>,
    /// Client (connection or user) whose share of write permits the answer uses.
    pub share_key: ShareKey,
}

impl ListAnswer<'_> {
    /// Makes the answer. An answer of one frame is complete immediately. A longer answer waits for its write permit,
    /// without bytes in memory.
    ///
    /// # Errors
    /// 429 if no write permit is free in time.
    pub(crate) async fn respond(self) -> Result<Response<Body>, Refusal> {
        let Self { view, cursor, writer, metadata, share, answer_permits, share_key } = self;
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
                let mut acquisition =
                    pin!(answer_permits.acquire(if is_long { Length::Long } else { Length::Medium }, share_key));
                match poll!(acquisition.as_mut()) {
                    Poll::Ready(permit) => permit?,
                    // A waiting answer keeps no bytes in memory.
                    Poll::Pending => {
                        made.clear();
                        list.restart(start);
                        acquisition.await?
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
        // An answer below the compression threshold is sent whole, with its length.
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

/// An answer that is written frame by frame, at the speed of the client.
struct LongAnswer {
    /// Frames that were made before the length of the answer was known.
    frames: VecDeque<Bytes>,
    list: ListWriter,
    gzip: Option<Gzip>,
    /// True once the last frame was returned.
    is_last: Arc<AtomicBool>,
    share: AnswerPermit,
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

    /// Returns the next frame to send; `None` after the last.
    async fn next(&mut self) -> Result<Option<Bytes>, NoWritePermit> {
        if self.is_last.load(Relaxed) {
            return Ok(None);
        }
        let mut text = self.text().await?;
        let Self { gzip: Some(gzip), frames, list, is_last, share, .. } = self else {
            self.is_last.store(self.frames.is_empty() && self.list.done, Relaxed);
            return Ok(text);
        };
        // Until the end of the compressed frame, the function must not yield: all tasks of this thread share one
        // compressor.
        let mut packed = gzip.frame();
        loop {
            let Some(frame) = text else {
                is_last.store(true, Relaxed);
                return Ok(Some(packed.finish().into()));
            };
            packed.push(&frame);
            // A frame with little text is the result of a long search. It is sent now, because the next frame may take
            // long, too.
            if packed.is_full() || frame.len() < FRAME_BYTES / 4 {
                return Ok(Some(packed.end().into()));
            }
            text = next_text(frames, list, share);
        }
    }

    /// Returns the next piece of text, never empty; `None` after the last. Writing many megabytes runs without a pause,
    /// and so does a search of many objects for few matches. Therefore the function yields after a few pieces.
    async fn text(&mut self) -> Result<Option<Bytes>, NoWritePermit> {
        loop {
            self.share.wait_to_continue().await?;
            let text = next_text(&mut self.frames, &mut self.list, &mut self.share);
            self.pieces += 1;
            // Writing YAML takes a hundred times as long as copying JSON, and compression takes ten times as long. So
            // the function yields after each piece.
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

/// Frames of a list. The last frame itself carries HTTP/2's end of stream, so that no additional frame is needed.
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

/// Returns the text of one frame; empty if no object matched. Records the written bytes, before compression, in the
/// write permit.
fn next_text(frames: &mut VecDeque<Bytes>, list: &mut ListWriter, share: &mut AnswerPermit) -> Option<Bytes> {
    let text = frames.pop_front().or_else(|| list.next_frame().map(Bytes::from))?;
    share.count_written(if text.is_empty() { FRAME_BYTES } else { text.len() });
    Some(text)
}

impl ListWriter {
    fn new(view: Arc<View>, cursor: ListCursor<Selection>, writer: ObjectWriter, metadata: ListMetadata) -> Self {
        let form = writer.form();
        let indent = (form.pretty && form.encoding == Encoding::Json).then(Indent::default);
        let (item_texts, item) = (ItemTexts::default(), Vec::new());
        let (begun, any, done) = (false, false, false);
        Self { view, cursor, writer, item_texts, item, length: None, indent, begun, any, done, metadata }
    }

    /// Resets the writer to the state before the first frame.
    fn restart(&mut self, cursor: ListCursor<Selection>) {
        self.cursor = cursor;
        self.indent = self.indent.as_ref().map(|_| Indent::default());
        (self.begun, self.any, self.done) = (false, false, false);
    }

    /// Returns the next frame; `None` after the last.
    fn next_frame(&mut self) -> Option<Vec<u8>> {
        if self.done {
            return None;
        }
        let frame = match self.writer.form() {
            AnswerForm { encoding: Encoding::Json, .. } => self.json_frame(),
            AnswerForm { encoding: Encoding::Protobuf, .. } => self.protobuf_frame(),
            // The conversion of one object of a megabyte takes a tenth of a second, so other tasks move to another
            // thread.
            AnswerForm { encoding: Encoding::Yaml, .. } => run_in_place(|| self.yaml_frame()),
        };
        let Some(indent) = &mut self.indent else { return Some(frame) };
        // Indentation makes the text about 1.5 times as long.
        let mut laid_out = Vec::with_capacity(frame.len() * 2);
        indent.push(&frame, &mut laid_out);
        Some(laid_out)
    }

    fn json_frame(&mut self) -> Vec<u8> {
        let mut out = Vec::with_capacity(FRAME_BYTES + FRAME_BYTES / 4);
        if !std::mem::replace(&mut self.begun, true) {
            self.head(&mut out);
        }
        let Self { view, cursor, writer, item_texts, any, metadata, .. } = self;
        let more = item_texts.visit(FRAME_BYTES, cursor, view, &metadata.items, |object, version, mark| {
            if std::mem::replace(any, true) {
                out.push(b',');
            }
            writer.write(object, version, mark, ObjectContext::Item, &mut out);
        });
        if !more {
            self.done = true;
            out.extend_from_slice(b"]}\n");
        }
        out
    }

    /// Writes the items one by one, because a parsed value of the whole list would need ten times the memory of the
    /// list's text.
    fn yaml_frame(&mut self) -> Vec<u8> {
        let mut out = Vec::with_capacity(FRAME_BYTES + FRAME_BYTES / 4);
        if !std::mem::replace(&mut self.begun, true) {
            out.extend_from_slice(self.around_yaml_items().0.as_bytes());
        }
        let Self { view, cursor, writer, item_texts, item, any, metadata, .. } = self;
        let more = item_texts.visit(YAML_BYTES, cursor, view, &metadata.items, |object, version, mark| {
            item.clear();
            writer.write(object, version, mark, ObjectContext::Item, item);
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

    /// Returns the YAML text before the items, and the text after the items. YAML keys are sorted, so a list's `items`
    /// come before `kind` and `metadata`, and a Table's `rows` come last.
    fn around_yaml_items(&self) -> (String, String) {
        let mut empty = Vec::new();
        self.head(&mut empty);
        empty.extend_from_slice(b"]}");
        let text = super::yaml::of_json(&empty).unwrap_or_default();
        let items = if matches!(self.writer.form().shape, Representation::Table(_)) { "rows" } else { "items" };
        let (before, behind) = text.split_once(&format!("\n{items}: []\n")).unwrap_or_default();
        (format!("{before}\n{items}:"), behind.to_owned())
    }

    /// Returns the next frame. The first frame contains the length of the whole list, so the result is empty until the
    /// length is measured.
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
        let Self { view, cursor, writer, item_texts, metadata, .. } = self;
        let more = item_texts.visit(FRAME_BYTES, cursor, view, &metadata.items, |object, version, mark| {
            writer.write(object, version, mark, ObjectContext::Item, &mut out);
        });
        if !more {
            self.done = true;
            protobuf::list_end(&mut out);
        }
        out
    }

    /// Measures the length of all items, with a yield after each frame of text. Costs a second pass over the objects,
    /// because the answer is never complete in memory.
    async fn measure(&mut self) {
        let (mut cursor, mut length) = (self.cursor.clone(), 0);
        while self.measure_frame(&mut cursor, &mut length) {
            tokio::task::yield_now().await;
        }
        self.length = Some(length);
    }

    /// Returns the length of all items in bytes, if the items fit into one frame.
    fn measured_at_once(&mut self) -> Option<usize> {
        let (mut cursor, mut length) = (self.cursor.clone(), 0);
        self.length = (!self.measure_frame(&mut cursor, &mut length)).then_some(length);
        self.length
    }

    /// Adds the length of one frame of items to `length`. Returns false after the last item.
    fn measure_frame(&mut self, cursor: &mut ListCursor<Selection>, length: &mut usize) -> bool {
        let Self { view, writer, item_texts, item, metadata, .. } = self;
        item_texts.visit(FRAME_BYTES, cursor, view, &metadata.items, |object, version, mark| {
            item.clear();
            writer.write(object, version, mark, ObjectContext::Item, item);
            *length += item.len();
        })
    }

    fn head(&self, out: &mut Vec<u8>) {
        let metadata = self.metadata.json();
        if matches!(self.writer.form().shape, Representation::Table(_)) {
            return self.writer.table_head(Columns::Defined, &metadata, out);
        }
        list_head(&self.view.kind, self.writer.form(), &metadata, out);
    }
}

#[derive(Default)]
struct ItemTexts {
    /// Form of versions for the current cluster.
    of_cluster: Option<ClusterItemVersions>,
    /// Buffer for the version of each item.
    version: String,
}

impl ItemTexts {
    /// Calls `write` for the next items, together about `bytes` bytes of JSON, each with the text of its version and
    /// the annotation of its cluster. Returns false after the last item.
    fn visit(
        &mut self,
        bytes: usize,
        cursor: &mut ListCursor<Selection>,
        view: &View,
        items: &ItemVersions,
        mut write: impl FnMut(&Object, &str, &ClusterMark),
    ) -> bool {
        let Self { of_cluster, version } = self;
        cursor.next_chunk(bytes, |cluster, object| {
            if of_cluster.as_ref().is_none_or(|known| known.mark().name != *cluster) {
                *of_cluster = Some(items.for_cluster(&view.mark(cluster)));
            }
            let Some(of_cluster) = of_cluster else { return };
            of_cluster.write(object.resource_version(), version);
            write(object, version, of_cluster.mark());
        })
    }
}

/// Writes a list up to the bracket before its first item. `metadata` is the text between the braces of the list's
/// metadata.
fn list_head(kind: &ResourceKind, form: AnswerForm, metadata: &str, out: &mut Vec<u8>) {
    let (kind, api_version) = match form.shape {
        Representation::PartialMetadata(version) => ("PartialObjectMetadataList".into(), version.api_version().into()),
        _ => (format!("{}List", kind.kind), kind.resource.group_version().to_string()),
    };
    let head =
        format!("{{\"kind\":\"{kind}\",\"apiVersion\":\"{api_version}\",\"metadata\":{{{metadata}}},\"items\":[");
    out.extend_from_slice(head.as_bytes());
}

/// Writes a list of Tributary's own objects, each with its version. For JSON and YAML, the result is JSON.
pub(crate) fn whole_list(
    kind: &ResourceKind,
    writer: &mut ObjectWriter,
    items: &[(Arc<Object>, String)],
    version: &str,
) -> Vec<u8> {
    let form = writer.form();
    let mut out = Vec::new();
    if form.encoding == Encoding::Protobuf {
        let mut list = protobuf::list_metadata(version, "", None);
        for (object, version) in items {
            writer.write_of(None, object, version, ObjectContext::Item, &mut list);
        }
        protobuf::list_begin(list.len(), &mut out);
        out.extend(list);
        protobuf::list_end(&mut out);
        return out;
    }
    let metadata = format!("\"resourceVersion\":\"{version}\"");
    if matches!(form.shape, Representation::Table(_)) {
        writer.table_head(Columns::Defined, &metadata, &mut out);
    } else {
        list_head(kind, form, &metadata, &mut out);
    }
    for (at, (object, version)) in items.iter().enumerate() {
        if at > 0 {
            out.push(b',');
        }
        writer.write_of(None, object, version, ObjectContext::Item, &mut out);
    }
    out.extend_from_slice(b"]}\n");
    out
}
