//! The request for a member: the client's request with a rewritten body in the same format.

use http::{HeaderValue, Request, header};
use tributary_answers::refusal::Refusal;
use tributary_apimachinery::Status;
use tributary_apimachinery::rewrite::{Rewritten, Translate, VersionOf};
use tributary_sharing::body::{self, Body};
use tributary_sharing::flow::large_bodies::LargeBodies;

use super::buffered::BufferedRequest;

impl BufferedRequest {
    /// Makes the request for a member: `version` translates the versions, the annotation is removed, and `Accept`
    /// requests JSON.
    ///
    /// # Errors
    /// The refusal of `version`; 400 for a body that does not match its format.
    pub(crate) fn for_member(
        &self,
        has_annotations: bool,
        accept: &'static str,
        version: impl FnMut(VersionOf, &str) -> Result<String, Refusal>,
    ) -> Result<Request<Body>, Refusal> {
        let rewritten = translating(version, |version| self.body.rewritten(self.shape, has_annotations, version))?;
        Ok(self.with_body(rewritten, accept))
    }

    /// Rewrites the body once for all members. `None` for a body with a resourceVersion, which must differ by member.
    /// Members get YAML as the JSON that Tributary has read, so that no member can read the YAML differently.
    ///
    /// # Errors
    /// 400 for a body that does not match its format.
    pub(crate) async fn for_all(&self, large_bodies: &LargeBodies) -> Result<Option<Rewritten>, Refusal> {
        let mut names_version = false;
        let mut version = |_, text: &str| {
            names_version = true;
            Ok(text.to_owned())
        };
        let body_permit = large_bodies.body_permit(self.share_key(), self.body.readable_bytes()).await;
        let rewritten =
            body_permit.run(|| self.body.rewritten(self.shape, true, &mut version)).map_err(Refusal::malformed)?;
        let is_unchanged = rewritten.body == *self.body.text();
        let shared = match self.body.converted() {
            Some(json) if is_unchanged => Rewritten { body: json.clone(), content_type: Some("application/json") },
            _ => rewritten,
        };
        Ok((!names_version).then_some(shared))
    }

    /// Makes the request for a member with this body, without a copy of the body.
    pub(crate) fn with_body(&self, rewritten: Rewritten, accept: &'static str) -> Request<Body> {
        let mut request =
            Request::new(if rewritten.body.is_empty() { body::empty() } else { body::full(rewritten.body) });
        *request.method_mut() = self.head.method.clone();
        // The URI is copied as a whole, because most requests send it unchanged, without formatting and parsing.
        *request.uri_mut() = self.head.uri.clone();
        *request.headers_mut() = self.head.headers.clone();
        let headers = request.headers_mut();
        // Tributary rewrites the answer, so it must be JSON without compression.
        headers.insert(header::ACCEPT, HeaderValue::from_static(accept));
        headers.remove(header::ACCEPT_ENCODING);
        headers.remove(header::CONTENT_LENGTH);
        if let Some(content_type) = rewritten.content_type {
            headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
        }
        request
    }
}

/// Rewrites a text with `rewrite`, in which `version` translates the versions.
///
/// # Errors
/// The refusal of `version`; 400 for a text that cannot be read.
pub(super) fn translating<T>(
    mut version: impl FnMut(VersionOf, &str) -> Result<String, Refusal>,
    rewrite: impl FnOnce(Translate<'_>) -> Result<T, Status>,
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
