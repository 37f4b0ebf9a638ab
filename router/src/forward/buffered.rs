//! The body of a request that goes to a member, read whole.

use bytes::Bytes;
use http::{Method, Request, request};
use tributary_apimachinery::Verb;
use tributary_apimachinery::rewrite::{self, BodyKind, Facts, Format};

use super::media_type::content_type;
use crate::body::{self, Body, BoxError};
use crate::flow::fair_share::{Exceeded, Portion};
use crate::refusal::{LimitRefusal, Refusal, RequestRefusal};
use crate::request::ClientRequest;

/// A request with its body read.
pub(crate) struct BufferedRequest {
    /// Method, URI, headers and extensions.
    pub(crate) head: request::Parts,
    /// The body as it came.
    pub(crate) body: Bytes,
    /// What the body says.
    pub(crate) facts: Facts,
    /// How the body is written.
    pub(super) format: Format,
    /// What the body is.
    pub(super) shape: BodyKind,
    /// What it occupies of the bytes that may be held, as long as it is.
    _portion: Portion,
}

impl BufferedRequest {
    /// Reads the body of a request, of at most so many bytes.
    ///
    /// # Errors
    /// 415 for a media type that is not understood, 413 for a body that is larger, 400 for one that is not of its type,
    /// 429 where so many bytes are held for others already.
    pub(crate) async fn read(
        request: ClientRequest<'_>,
        verb: Verb,
        message: Request<Body>,
        bytes_max: usize,
    ) -> Result<Self, Refusal> {
        let (head, incoming) = message.into_parts();
        let shape = BodyKind::of(verb, request.resource);
        let mut portion = request.router.held_bytes().take(request.caller.holder, 0)?;
        if matches!(head.method, Method::GET | Method::HEAD) {
            let (body, facts, format) = (Bytes::new(), Facts::default(), Format::Json);
            return Ok(Self { head, body, facts, format, shape, _portion: portion });
        }
        let format = Format::from_content_type(content_type(&head.headers));
        let body = body::whole_within(incoming, bytes_max, &mut portion).await.map_err(unreadable)?;
        let format = match format {
            Some(format) => format,
            None if body.is_empty() => Format::Json,
            None => return Err(RequestRefusal::BodyFormat.into()),
        };
        let turn = request.router.large_bodies().turn(portion.holder(), body.len()).await;
        let facts = turn.run(|| rewrite::read(format, shape, &body)).map_err(Refusal::malformed)?;
        Ok(Self { head, body, facts, format, shape, _portion: portion })
    }

    /// Whether it is a server-side apply, which makes the object if there is none.
    pub(crate) fn is_apply(&self) -> bool {
        self.format == Format::ApplyYaml
    }

    /// The cluster that the annotation in its body names.
    pub(super) fn named_cluster(&self) -> Option<&str> {
        self.facts.cluster.as_deref()
    }

    /// Whether it only tries what would happen.
    pub(crate) fn is_dry_run(&self) -> bool {
        let query = tributary_apimachinery::Query::parse(self.head.uri.query());
        !self.facts.dry_run.is_empty() || query.get("dryRun").is_some_and(|value| !value.is_empty())
    }
}

/// Why a request's body was not read. Nothing has been sent anywhere yet.
pub(super) fn unreadable(error: BoxError) -> Refusal {
    match (error.downcast_ref::<body::TooLarge>(), error.downcast_ref::<Exceeded>()) {
        (Some(body::TooLarge(limit)), _) => LimitRefusal::Body { max: *limit }.into(),
        (_, Some(exceeded)) => (*exceeded).into(),
        _ => RequestRefusal::BrokenOff { cause: error.to_string() }.into(),
    }
}
