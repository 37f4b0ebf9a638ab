//! Request for one member's list, and reading of the list part by part.

use std::sync::Arc;

use http::{HeaderValue, Request, Response, header};
use http_body_util::BodyExt;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use tokio::time::{Duration, timeout};
use tributary_answers::refusal::{MemberRefusal, Refusal};
use tributary_answers::warnings;
use tributary_apimachinery::{Query, RequestInfo, ResourceVersion};
use tributary_cacher::wire::{ListParser, ListPart};
use tributary_fleet::topology::Cluster;
use tributary_sharing::body::{self, Body, WHOLE_BODY_BYTES_MAX};
use tributary_sharing::flow::fair_semaphore::FairPermit;
use tributary_sharing::limits::REFUSAL_BYTES_MAX;

use crate::caller::Caller;
use crate::forward::send::send;
use crate::request::ClientRequest;

/// Bytes of one member's list that are read before the list is written. The remainder waits at the member.
const READ_AHEAD_BYTES: usize = 1 << 20;

/// List request that every member gets.
#[derive(Clone)]
pub(super) struct ListQuery {
    info: RequestInfo,
    /// Query without `limit` and `continue`, which differ by member.
    query: String,
    limit: u64,
    accept: HeaderValue,
    caller: Caller,
}

impl ListQuery {
    /// Makes the members' request from the client's request. `labels` is the client's label selector without the
    /// requirements that select clusters.
    pub(super) fn new(request: ClientRequest<'_>, table: bool, labels: &str, limit: u64) -> Self {
        let accept = match table {
            true => "application/json;as=Table;v=v1;g=meta.k8s.io,application/json",
            false => "application/json",
        };
        let mut query = unchanged_parameters(request.query);
        if !labels.is_empty() {
            query.push(format!("labelSelector={}", utf8_percent_encode(labels, NON_ALPHANUMERIC)));
        }
        let (info, accept) = (request.info.clone(), HeaderValue::from_static(accept));
        Self { info, query: query.join("&"), limit, accept, caller: request.caller.clone() }
    }

    /// Sends the request to a member. Returns only a successful answer.
    ///
    /// # Errors
    /// The member's refusal, or the cause of a missing answer.
    async fn put(&self, cluster: &Arc<Cluster>, limit: u64, token: Option<&str>) -> Result<Response<Body>, Refusal> {
        let mut request = Request::new(body::empty());
        request.headers_mut().insert(header::ACCEPT, self.accept.clone());
        let mut query = self.query.clone();
        if limit > 0 {
            query.push_str(&format!("&limit={limit}"));
        }
        if let Some(token) = token {
            query.push_str(&format!("&continue={}", utf8_percent_encode(token, NON_ALPHANUMERIC)));
        }
        let query = query.trim_start_matches('&');
        let answer =
            send(cluster, &self.caller, request, &self.info, Some(query).filter(|query| !query.is_empty())).await?;
        if answer.status().is_success() {
            return Ok(answer);
        }
        let (head, incoming) = answer.into_parts();
        let text = body::whole_up_to(incoming, REFUSAL_BYTES_MAX).await.unwrap_or_default();
        Err(Refusal::from_member_answer(head.status, &text))
    }
}

/// Returns the query parameters that members get unchanged. The other parameters concern the merged list, or differ by
/// member.
fn unchanged_parameters(query: Option<&str>) -> Vec<String> {
    const OWN: [&str; 6] = ["limit", "continue", "resourceVersion", "resourceVersionMatch", "pretty", "labelSelector"];
    let encode = |text: &str| utf8_percent_encode(text, NON_ALPHANUMERIC).to_string();
    let query = Query::parse(query);
    let pairs = query.iter().filter(|(name, _)| !OWN.contains(name));
    pairs.map(|(name, value)| format!("{}={}", encode(name), encode(value))).collect()
}

/// The received part of a member's list.
pub(super) struct MemberList {
    pub(super) cluster: Arc<Cluster>,
    pub(super) warnings: Vec<HeaderValue>,
    /// Columns of the member's Table, as JSON; `None` until they arrive.
    pub(super) columns: Option<Vec<u8>>,
    pub(super) end: Option<End>,
    texts: Texts,
    count: u64,
    rest: Option<(ListParser, Body)>,
    within: Duration,
    /// Reserved part of the limit of body bytes. `None` for a list that is written frame by frame as it arrives.
    portion: Option<FairPermit>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct End {
    pub(super) version: Option<ResourceVersion>,
    /// Continue token that the member has issued, if the member has more items.
    pub(super) continue_token: Option<String>,
}

#[derive(Default)]
struct Texts {
    text: Vec<u8>,
    /// End of each item in `text`, and whether the item is a row of a Table.
    ends: Vec<(usize, bool)>,
    next: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Item<'a> {
    Object(&'a [u8]),
    Row(&'a [u8]),
}

impl MemberList {
    /// Sends the request to a member, and reads the beginning of its list. Cancellation: dropping the future, or the
    /// list, ends the request.
    ///
    /// # Errors
    /// The member's refusal, or the cause of no answer in time; 429 at the limit of body bytes.
    pub(super) async fn fetch_list(
        cluster: &Arc<Cluster>,
        list_query: &ListQuery,
        token: Option<&str>,
        within: Duration,
        portion: Option<FairPermit>,
    ) -> Result<Self, Refusal> {
        let member_list = async {
            let (head, incoming) = list_query.put(cluster, list_query.limit, token).await?.into_parts();
            let mut list = Self {
                cluster: Arc::clone(cluster),
                warnings: warnings::readable(head.headers.get_all(header::WARNING)).cloned().collect(),
                columns: None,
                end: None,
                texts: Texts::default(),
                count: 0,
                rest: Some((ListParser::new(WHOLE_BODY_BYTES_MAX), incoming)),
                within,
                portion,
            };
            let ahead = if list.portion.is_some() { READ_AHEAD_BYTES } else { 1 };
            while list.rest.is_some() && list.texts.text.len() < ahead {
                list.read().await?;
            }
            Ok::<_, Refusal>(list)
        };
        timeout(within, member_list).await.unwrap_or_else(|_| Err(late(cluster, within)))
    }

    /// Probes whether a cluster answers successfully, without reading its list. Returns the Warnings of the answer.
    ///
    /// # Errors
    /// As [`fetch_list`](Self::fetch_list).
    pub(super) async fn probe(
        cluster: &Arc<Cluster>,
        list_query: &ListQuery,
        within: Duration,
    ) -> Result<Vec<HeaderValue>, Refusal> {
        let answer = timeout(within, list_query.put(cluster, 1, None)).await;
        let answer = answer.unwrap_or_else(|_| Err(late(cluster, within)))?;
        Ok(warnings::readable(answer.headers().get_all(header::WARNING)).cloned().collect())
    }

    pub(super) fn is_complete(&self) -> bool {
        self.rest.is_none()
    }

    pub(super) fn has_more(&self) -> bool {
        self.end.as_ref().is_some_and(|end| end.continue_token.is_some())
    }

    pub(super) fn count(&self) -> u64 {
        self.count
    }

    pub(super) fn bytes(&self) -> usize {
        self.texts.text.len()
    }

    /// Returns the objects that have arrived and are not yet written. Skips rows of a Table.
    pub(super) fn objects(&self) -> impl Iterator<Item = &[u8]> {
        let Texts { text, ends, next } = &self.texts;
        let start = |at: usize| at.checked_sub(1).map_or(0, |before| ends[before].0);
        let whole = ends.iter().enumerate().skip(*next).filter(|(_, (_, is_row))| !is_row);
        whole.map(move |(at, (end, _))| &text[start(at)..*end])
    }

    pub(super) fn next_item(&mut self) -> Option<Item<'_>> {
        let Texts { text, ends, next } = &mut self.texts;
        let (end, is_row) = *ends.get(*next)?;
        let start = next.checked_sub(1).map_or(0, |before| ends[before].0);
        *next += 1;
        let text = &text[start..end];
        Some(if is_row { Item::Row(text) } else { Item::Object(text) })
    }

    /// Drops the written part of the list, and reads the next part. Returns false after the end. Waits for the member,
    /// never for the client.
    ///
    /// # Errors
    /// The cause if the list broke off.
    pub(super) async fn more(&mut self) -> Result<bool, Refusal> {
        self.texts.clear();
        if let Some(portion) = &mut self.portion {
            portion.shrink_to(0);
        }
        while self.rest.is_some() && self.texts.ends.is_empty() {
            let within = self.within;
            timeout(within, self.read()).await.unwrap_or_else(|_| Err(late(&self.cluster, within)))?;
        }
        Ok(!self.texts.ends.is_empty())
    }

    async fn read(&mut self) -> Result<(), Refusal> {
        let Some((parser, body)) = &mut self.rest else { return Ok(()) };
        let broken = |cluster: &Cluster, error: &dyn std::fmt::Display| {
            MemberRefusal::unavailable(cluster.name(), format_args!("the list cannot be read: {error}"))
        };
        let Some(frame) = body.frame().await else {
            let Some((parser, _)) = self.rest.take() else { return Ok(()) };
            let (version, continue_token) = parser.finish_any().map_err(|error| broken(&self.cluster, &error))?;
            self.end = Some(End { version, continue_token });
            return Ok(());
        };
        let frame = frame.map_err(|error| broken(&self.cluster, &error))?;
        let Ok(chunk) = frame.into_data() else { return Ok(()) };
        let (texts, columns, count) = (&mut self.texts, &mut self.columns, &mut self.count);
        let before = texts.text.len();
        let parsed = parser.push_parts(&chunk, |part| match part {
            ListPart::Item(text) | ListPart::Row(text) => {
                *count += 1;
                texts.push(text, matches!(part, ListPart::Row(_)));
            }
            ListPart::Columns(text) => *columns = Some(text.to_vec()),
        });
        parsed.map_err(|error| broken(&self.cluster, &error))?;
        if let Some(portion) = &mut self.portion {
            portion.grow(self.texts.text.len() - before)?;
        }
        Ok(())
    }
}

impl Texts {
    fn push(&mut self, text: &[u8], is_row: bool) {
        self.text.extend_from_slice(text);
        self.ends.push((self.text.len(), is_row));
    }

    fn clear(&mut self) {
        // A large buffer is freed at once; a buffer of a frame's size is reused.
        if self.text.capacity() > 2 * tributary_sharing::body::FRAME_BYTES {
            *self = Self::default();
        }
        self.text.clear();
        self.ends.clear();
        self.next = 0;
    }
}

fn late(cluster: &Cluster, within: Duration) -> Refusal {
    let cause = format_args!("the cluster did not return the list within {} s", within.as_secs());
    MemberRefusal::unavailable(cluster.name(), cause).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_get_only_list_parameters_that_tributary_does_not_rewrite() {
        let query = "limit=3&label%53elector=a%3Db&fieldSelector=x%3Dy&resourceVersion=eyJ&timeoutSeconds=5&continue=t&pretty=1";
        assert_eq!(unchanged_parameters(Some(query)), ["fieldSelector=x%3Dy", "timeoutSeconds=5"]);
        assert!(unchanged_parameters(None).is_empty());
    }

    #[test]
    fn list_buffer_records_the_end_of_each_item() {
        let mut texts = Texts::default();
        texts.push(b"{1}", false);
        texts.push(b"{22}", true);
        assert_eq!((texts.text.len(), &texts.ends[..]), (7, &[(3, false), (7, true)][..]));
        texts.clear();
        assert!(texts.text.is_empty() && texts.ends.is_empty());
    }
}
