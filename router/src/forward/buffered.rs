//! A request to a member whose body is complete in memory.

use bytes::Bytes;
use http::{Method, Request, request};
use tributary_answers::refusal::{LimitRefusal, Refusal, RequestRefusal};
use tributary_apimachinery::rewrite::{BodyKind, Facts, Format, RequestBody};
use tributary_apimachinery::{Query, Verb};
use tributary_sharing::body::{self, Body, BoxError};
use tributary_sharing::flow::buffered_body::read_whole_within;
use tributary_sharing::flow::fair_semaphore::{Exceeded, FairPermit};
use tributary_sharing::flow::share_key::ShareKey;

use super::body_permits;
use super::media_type::content_type;
use crate::request::ClientRequest;

pub(crate) struct BufferedRequest {
    pub(crate) head: request::Parts,
    /// Body of the request. YAML has been converted to JSON.
    pub(crate) body: RequestBody,
    /// Facts in the body that determine the cluster of the request.
    pub(crate) facts: Facts,
    pub(super) shape: BodyKind,
    /// Part of the limit `--max-held-bytes` for the body.
    portion: FairPermit,
}

impl BufferedRequest {
    /// Reads the body of a request, of at most `bytes_max` bytes.
    ///
    /// # Errors
    /// 415 for an unknown media type, 413 for a larger body, 400 for a body that does not match its type, 429 at the
    /// limit of body bytes.
    pub(crate) async fn read(
        request: ClientRequest<'_>,
        verb: Verb,
        message: Request<Body>,
        bytes_max: usize,
    ) -> Result<Self, Refusal> {
        let (head, incoming) = message.into_parts();
        let shape = BodyKind::for_request(verb, request.resource);
        let mut portion = request.router.held_bytes().acquire(request.caller.share_key, 0)?;
        let is_read = matches!(head.method, Method::GET | Method::HEAD);
        let text = match is_read {
            true => Bytes::new(),
            false => read_whole_within(incoming, bytes_max, &mut portion).await.map_err(unreadable)?,
        };
        let format = match Format::from_content_type(content_type(&head.headers)) {
            _ if is_read => Format::Json,
            Some(format) => format,
            None if text.is_empty() => Format::Json,
            None => return Err(RequestRefusal::BodyFormat.into()),
        };
        let facts = |body: &RequestBody| match shape {
            BodyKind::DeleteOptions if body.text().is_empty() => Ok(Facts::from_delete_query(request.query)),
            _ => body.facts(shape),
        };
        let large_bodies = request.router.large_bodies();
        let (body, facts) =
            body_permits::convert_with_permits(large_bodies, &mut portion, (format, text), facts).await?;
        let facts = facts.map_err(Refusal::malformed)?;
        Ok(Self { head, body, facts, shape, portion })
    }

    /// Returns whether the request is a server-side apply, which creates a missing object.
    pub(crate) fn is_apply(&self) -> bool {
        self.body.format() == Format::ApplyYaml
    }

    /// Returns the client (connection or user) whose share of body bytes contains the body.
    pub(super) fn share_key(&self) -> ShareKey {
        self.portion.share_key()
    }

    pub(super) fn named_cluster(&self) -> Option<&str> {
        self.facts.cluster.as_deref()
    }

    /// Returns whether the request is a dry run. A delete with a body ignores the `dryRun` of the query.
    pub(crate) fn is_dry_run(&self) -> bool {
        let is_tried = || Query::parse(self.head.uri.query()).get("dryRun").is_some_and(|value| !value.is_empty());
        !self.facts.dry_run.is_empty() || (self.shape != BodyKind::DeleteOptions && is_tried())
    }
}

/// Refuses a request whose body cannot be read. No member has seen the request.
pub(crate) fn unreadable(error: BoxError) -> Refusal {
    match (error.downcast_ref::<body::TooLarge>(), error.downcast_ref::<Exceeded>()) {
        (Some(body::TooLarge(limit)), _) => LimitRefusal::Body { max: *limit }.into(),
        (_, Some(exceeded)) => (*exceeded).into(),
        _ => RequestRefusal::BrokenOff { cause: error.to_string() }.into(),
    }
}
