//! Answer to a list that is forwarded to the clusters: first the gathered lists, then the lists of the remaining
//! members as they arrive.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;
use futures::future::BoxFuture;
use futures::stream::{self, FuturesOrdered};
use futures::{FutureExt, StreamExt};
use http::{Response, StatusCode};
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};
use tributary_answers::answer;
use tributary_answers::compression::{Gzip, THRESHOLD_BYTES};
use tributary_answers::negotiate::{AnswerForm, Encoding};
use tributary_answers::refusal::{LimitRefusal, Refusal};
use tributary_apimachinery::{ClusterName, Partial};
use tributary_fleet::discovery::ServedResource;
use tributary_fleet::topology::Cluster;
use tributary_merge::{CompositeResourceVersion, Epochs};
use tributary_sharing::body::{self, Body, BoxError, FRAME_BYTES};
use tributary_sharing::flow::long_answers::{AnswerPermit, AnswerPermits, Length, MEDIUM_BYTES};
use tributary_sharing::flow::share_key::ShareKey;
use tributary_sharing::limits::GATHERED_BYTES_MAX;

use super::gather::{GatheredPage, within};
use super::member_list::{ListQuery, MemberList};
use super::token::LiveContinueToken;
use super::write::{ListForm, LiveListMetadata, LiveListWriter, UnitedColumns, printer};
use crate::response;
use crate::response::indent::Indent;

/// Number of members whose requests run while a list is written: Tributary writes the list of one member, and the next
/// member already begins its answer.
const CONCURRENT_LISTS: usize = 2;

pub(super) struct LiveAnswer {
    list_query: ListQuery,
    partial: Partial,
    lists: VecDeque<MemberList>,
    /// Members that have not got the request yet.
    later: VecDeque<Arc<Cluster>>,
    running: FuturesOrdered<BoxFuture<'static, Result<MemberList, Refusal>>>,
    /// List that is being written, and the index of each of its columns in the merged Table.
    current: Option<(MemberList, Vec<Option<usize>>)>,
    writer: LiveListWriter,
    form: AnswerForm,
    indent: Option<Indent>,
    version: CompositeResourceVersion,
    /// Clusters whose versions the answer omits.
    uncached: Vec<ClusterName>,
    epochs: Arc<Epochs>,
    next: Option<LiveContinueToken>,
    members: usize,
    bytes: usize,
    begun: bool,
    ended: bool,
}

impl LiveAnswer {
    pub(super) fn new(
        page: GatheredPage,
        list_query: ListQuery,
        partial: Partial,
        wish: ListForm,
        served: &ServedResource,
        epochs: Arc<Epochs>,
    ) -> Self {
        let (mut columns, printer) = (UnitedColumns::default(), printer(served));
        for list in &page.lists {
            columns.add(list.columns.as_deref(), &printer);
        }
        let form = wish.form;
        Self {
            list_query,
            partial,
            bytes: page.bytes(),
            members: page.lists.len(),
            lists: page.lists.into(),
            later: page.later.into(),
            running: FuturesOrdered::new(),
            current: None,
            writer: LiveListWriter::new(wish, served, columns),
            form,
            indent: (form.pretty && form.encoding == Encoding::Json).then(Indent::default),
            version: page.version,
            uncached: Vec::new(),
            epochs,
            next: page.next,
            begun: false,
            ended: false,
        }
    }

    pub(super) fn without_versions_of(self, uncached: &[ClusterName]) -> Self {
        Self { uncached: uncached.to_vec(), ..self }
    }

    /// Makes the answer. An answer of more than one frame waits for a write permit.
    ///
    /// # Errors
    /// 429 if no write permit is free in time; 406 for a protobuf list that is too large for memory, because protobuf
    /// begins with the length of the list.
    pub(super) async fn respond(
        mut self,
        answer_permits: &Arc<AnswerPermits>,
        share_key: ShareKey,
    ) -> Result<Response<Body>, Refusal> {
        let is_open = !self.later.is_empty() || self.lists.iter().any(|list| !list.is_complete());
        let AnswerForm { encoding, gzip, .. } = self.form;
        if is_open && encoding == Encoding::Protobuf {
            return Err(LimitRefusal::ProtobufList { max: GATHERED_BYTES_MAX }.into());
        }
        let share = match self.bytes {
            _ if is_open => Some(answer_permits.acquire(Length::Long, share_key).await?),
            0..FRAME_BYTES => None,
            FRAME_BYTES..MEDIUM_BYTES => Some(answer_permits.acquire(Length::Medium, share_key).await?),
            _ => Some(answer_permits.acquire(Length::Long, share_key).await?),
        };
        // An answer below the compression threshold is sent whole, with its length.
        let (mut frames, mut bytes) = (VecDeque::new(), 0);
        while bytes <= THRESHOLD_BYTES {
            let Some(frame) = self.next_frame().await? else {
                let whole: Bytes = frames.into_iter().flatten().collect();
                return Ok(answer::with_content_type(StatusCode::OK, encoding.content_type(), body::full(whole)));
            };
            bytes += frame.len();
            frames.push_back(Bytes::from(frame));
        }
        let written = LiveListBody { frames, list: self, gzip: gzip.then(Gzip::default), ended: false, share };
        let mut response = answer::with_content_type(StatusCode::OK, encoding.content_type(), written.into_body());
        if gzip {
            response::mark_compressed(response.headers_mut());
        }
        Ok(response)
    }

    /// Returns the next frame of text; `None` after the last.
    ///
    /// # Errors
    /// The cause if a member's list broke off.
    async fn next_frame(&mut self) -> Result<Option<Vec<u8>>, Refusal> {
        if self.ended {
            return Ok(None);
        }
        let mut out = Vec::with_capacity(FRAME_BYTES + FRAME_BYTES / 4);
        if !std::mem::replace(&mut self.begun, true) {
            self.writer.begin(&mut out);
        }
        let whole = self.form.encoding == Encoding::Protobuf;
        while whole || out.len() < FRAME_BYTES {
            let Some((list, places)) = &mut self.current else {
                if self.next_member().await? {
                    continue;
                }
                self.ended = true;
                self.writer.end(&self.metadata(), &mut out);
                break;
            };
            let mark = Arc::clone(&list.cluster.mark);
            if let Some(item) = list.next_item() {
                self.writer.item(&mark, item, places, &mut out);
            } else if !list.more().await? {
                self.end_member();
            }
        }
        let Some(indent) = &mut self.indent else { return Ok(Some(out)) };
        // Indentation makes the text about 1.5 times as long.
        let mut laid_out = Vec::with_capacity(out.len() * 2);
        indent.push(&out, &mut laid_out);
        Ok(Some(laid_out))
    }

    /// Continues with the next member. Returns false after the last member.
    async fn next_member(&mut self) -> Result<bool, Refusal> {
        let list = match self.lists.pop_front() {
            Some(list) => list,
            None => {
                while self.running.len() < CONCURRENT_LISTS
                    && let Some(cluster) = self.later.pop_front()
                {
                    let (list_query, within) = (self.list_query.clone(), within(self.partial));
                    let member_list =
                        async move { MemberList::fetch_list(&cluster, &list_query, None, within, None).await };
                    self.running.push_back(member_list.boxed());
                }
                match self.running.next().await {
                    Some(list) => list?,
                    None => return Ok(false),
                }
            }
        };
        let places = self.writer.columns().places(list.columns.as_deref(), self.writer.printer());
        self.current = Some((list, places));
        Ok(true)
    }

    /// Adds the version and the continue token at the end of a member's list to the metadata of the merged list.
    fn end_member(&mut self) {
        let Some((list, _)) = self.current.take() else { return };
        let end = list.end.unwrap_or_default();
        if let Some(version) = end.version.filter(|_| !self.uncached.contains(list.cluster.name())) {
            self.version.set(list.cluster.name(), version);
        }
        if end.continue_token.is_some() {
            let (cluster, members) = (list.cluster.name().to_string(), self.members);
            self.next = Some(LiveContinueToken { cluster, token: end.continue_token, version: None, members });
        }
    }

    fn metadata(&self) -> LiveListMetadata {
        let version = if self.version.is_empty() { String::new() } else { self.version.encode(&self.epochs) };
        LiveListMetadata { continue_token: self.next.as_ref().map(|next| next.encode(&version)), version }
    }
}

/// Body of a list, written frame by frame at the speed of the client.
struct LiveListBody {
    /// Frames that were made before the length of the answer was known.
    frames: VecDeque<Bytes>,
    list: LiveAnswer,
    gzip: Option<Gzip>,
    /// True once the last compressed frame has been made.
    ended: bool,
    share: Option<AnswerPermit>,
}

impl LiveListBody {
    fn into_body(self) -> Body {
        let stream = stream::unfold(Some(self), |written| async move {
            let mut written = written?;
            match written.next().await {
                Ok(frame) => {
                    let frame = frame?;
                    // A list of many megabytes is written without waiting, so the task yields between frames.
                    tokio::task::yield_now().await;
                    Some((Ok(Frame::data(frame)), Some(written)))
                }
                Err(error) => Some((Err(error), None)),
            }
        });
        StreamBody::new(stream).boxed_unsync()
    }

    async fn next(&mut self) -> Result<Option<Bytes>, BoxError> {
        if self.ended {
            return Ok(None);
        }
        if self.gzip.is_none() {
            return self.plain().await;
        }
        let mut texts = Vec::new();
        let mut bytes = 0;
        while bytes < COMPRESSED_AT_ONCE {
            let Some(text) = self.plain().await? else {
                self.ended = true;
                break;
            };
            bytes += text.len();
            texts.push(text);
        }
        let Some(gzip) = &mut self.gzip else { return Ok(None) };
        let mut packed = gzip.frame();
        texts.iter().for_each(|text| packed.push(text));
        Ok(Some(if self.ended { packed.finish() } else { packed.end() }.into()))
    }

    async fn plain(&mut self) -> Result<Option<Bytes>, BoxError> {
        if let Some(share) = &mut self.share {
            share.wait_to_continue().await?;
        }
        let frame = match self.frames.pop_front() {
            Some(frame) => Some(frame),
            None => self.list.next_frame().await.map_err(|refusal| refusal.to_string())?.map(Bytes::from),
        };
        if let (Some(frame), Some(share)) = (&frame, &mut self.share) {
            share.count_written(frame.len());
        }
        Ok(frame)
    }
}

/// Bytes of text compressed into one frame: about a millisecond of CPU time.
const COMPRESSED_AT_ONCE: usize = 128 << 10;
