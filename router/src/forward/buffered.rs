//! The body of a request that goes to a member: read whole, and rewritten in the form that it came in.

use bytes::Bytes;
use http::{HeaderValue, Method, Request, header, request};
use tributary_apimachinery::rewrite::{self, BodyKind, Facts, Format, Rewritten, VersionOf};
use tributary_apimachinery::{Status, Verb};

use crate::body::{self, Body, BoxError};
use crate::flow::fair_share::{Exceeded, Portion};
use crate::refusal::{LimitRefusal, Refusal, RequestRefusal};
use crate::request::ClientRequest;

/// A request with its body read.
pub(crate) struct BufferedRequest {
    /// Method, headers and extensions.
    pub(crate) head: request::Parts,
    /// The body as it came.
    pub(crate) body: Bytes,
    /// What the body says.
    pub(crate) facts: Facts,
    format: Format,
    shape: BodyKind,
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
        let mut portion = request.router.held_bytes().take(request.caller.connection, 0)?;
        if matches!(head.method, Method::GET | Method::HEAD) {
            let (body, facts, format) = (Bytes::new(), Facts::default(), Format::Json);
            return Ok(Self { head, body, facts, format, shape, _portion: portion });
        }
        let content_type =
            head.headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
        let format = Format::from_content_type(content_type);
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

    /// Whether it only tries what would happen.
    pub(crate) fn is_dry_run(&self) -> bool {
        let query = tributary_apimachinery::Query::parse(self.head.uri.query());
        !self.facts.dry_run.is_empty() || query.get("dryRun").is_some_and(|value| !value.is_empty())
    }

    /// The request for a member: versions translated by `version`, the annotation taken out,
    /// an answer in JSON asked for.
    ///
    /// # Errors
    /// What `version` answers, and 400 for a body that is not of its form.
    pub(crate) fn for_member(
        &self,
        has_annotations: bool,
        accept: &'static str,
        version: impl FnMut(VersionOf, &str) -> Result<String, Refusal>,
    ) -> Result<Request<Body>, Refusal> {
        let rewritten = translating(version, |version| {
            rewrite::rewrite(self.format, self.shape, &self.body, has_annotations, version)
        })?;
        Ok(self.with_body(rewritten, accept))
    }

    /// The body as every member is sent it; `None` where it names a version, which each member has its own of.
    ///
    /// # Errors
    /// 400 for a body that is not of its form.
    pub(crate) fn for_all(&self) -> Result<Option<Rewritten>, Refusal> {
        let mut names_version = false;
        let rewritten = rewrite::rewrite(self.format, self.shape, &self.body, true, &mut |_, text| {
            names_version = true;
            Ok(text.to_owned())
        })
        .map_err(Refusal::malformed)?;
        Ok((!names_version).then_some(rewritten))
    }

    /// The request for a member with this body, which is not copied.
    pub(crate) fn with_body(&self, rewritten: Rewritten, accept: &'static str) -> Request<Body> {
        let mut request =
            Request::new(if rewritten.body.is_empty() { body::empty() } else { body::full(rewritten.body) });
        *request.method_mut() = self.head.method.clone();
        *request.headers_mut() = self.head.headers.clone();
        request.extensions_mut().clone_from(&self.head.extensions);
        let headers = request.headers_mut();
        // The answer is rewritten here: it has to come in JSON, and not compressed.
        headers.insert(header::ACCEPT, HeaderValue::from_static(accept));
        headers.remove(header::ACCEPT_ENCODING);
        headers.remove(header::CONTENT_LENGTH);
        if let Some(content_type) = rewritten.content_type {
            headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
        }
        request
    }
}

/// Has something rewritten whose versions `version` translates.
///
/// # Errors
/// What `version` answers, and 400 for what cannot be read.
pub(super) fn translating<T>(
    mut version: impl FnMut(VersionOf, &str) -> Result<String, Refusal>,
    rewrite: impl FnOnce(rewrite::Translate<'_>) -> Result<T, Status>,
) -> Result<T, Refusal> {
    let mut refused = None;
    let mut translate = |of, text: &str| {
        version(of, text).map_err(|refusal| {
            let status = refusal.status();
            refused = Some(refusal);
            status
        })
    };
    rewrite(&mut translate).map_err(|status| refused.unwrap_or_else(|| Refusal::malformed(status)))
}

/// Why a request's body was not read. Nothing has been sent anywhere yet.
pub(super) fn unreadable(error: BoxError) -> Refusal {
    match (error.downcast_ref::<body::TooLarge>(), error.downcast_ref::<Exceeded>()) {
        (Some(body::TooLarge(limit)), _) => LimitRefusal::Body { max: *limit }.into(),
        (_, Some(exceeded)) => (*exceeded).into(),
        _ => RequestRefusal::BrokenOff { cause: error.to_string() }.into(),
    }
}
