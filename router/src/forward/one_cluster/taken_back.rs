//! What the merged view gave, sent to one cluster's own view: its versions become the cluster's, its annotation goes,
//! and what is of another cluster is refused. A request that holds nothing of ours stays byte for byte.

use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderValue, Request, header};
use tributary_apimachinery::rewrite::{self, BodyKind, Format, Rewritten, VersionOf};
use tributary_apimachinery::{ClusterName, CollectionVersion, Object, Query, ResourceRequest, Verb};
use tributary_merge::{Foreign, VersionDecodeError};

use crate::forward::list::is_live_token;
use crate::forward::rewritten::translating;
use crate::refusal::{ClusterRefusal, PreconditionRefusal, Refusal, VersionRefusal};
use crate::topology::Fleet;
use crate::versions::Versions;

/// How a composite version begins in its two forms. A continue token begins so, too, or with `v1.`.
const BEGINNINGS: [&str; 2] = ["eyJ", "c1."];

/// What our annotation has in common however JSON, YAML or a JSON pointer write it.
const ANNOTATION_PREFIX: &str = "tributary.dev";

/// One request to a cluster's own view.
pub(super) struct TakenBack<'a> {
    /// The cluster.
    pub(super) cluster: &'a ClusterName,
    /// What it is asked to do.
    pub(super) verb: Verb,
    /// With what.
    pub(super) resource: &'a ResourceRequest,
    /// Reads composite versions.
    pub(super) versions: Versions,
    /// All clusters.
    pub(super) fleet: &'a Fleet,
    /// What the merged view knows of the object.
    pub(super) known: Option<KnownObject>,
}

/// An object that the merged view holds.
pub(super) struct KnownObject {
    /// The object.
    pub(super) object: Arc<Object>,
    /// Up to which version all of the cluster's changes were seen when it was looked up.
    pub(super) seen: CollectionVersion,
}

/// Whose a version is.
#[derive(Debug, PartialEq, Eq)]
enum Owner {
    /// It was not given by the merged view: the cluster's own, or nobody's, as the cluster will say.
    Native,
    /// The cluster's component of a version of the merged view.
    Component(CollectionVersion),
    /// A version of the merged view that says nothing of the cluster.
    Other,
}

impl TakenBack<'_> {
    /// The query for the cluster; `None` for the one that came.
    ///
    /// # Errors
    /// 409 for another cluster's version in a write, 410 in a read; 410 for a continue token of the merged view, after
    /// which clients list from the beginning.
    pub(super) fn query(&self, query: &str) -> Result<Option<String>, Refusal> {
        if !query.contains('%') && !["eyJ", "c1.", "v1."].iter().any(|begin| query.contains(begin)) {
            return Ok(None);
        }
        if let Some(token) = Query::parse(Some(query)).get("continue")
            && (self.versions.gave_token(token) || is_live_token(token))
        {
            return Err(VersionRefusal::ExpiredToken { fresh: None }.into());
        }
        let version = |_, text: &str| match self.owner(text) {
            Owner::Native => Ok(text.to_owned()),
            // Of a part of a revision the cluster tells all again, so that nothing is missed.
            Owner::Component(component) if self.is_read() => Ok(component.resume_after().to_string()),
            Owner::Component(component) => Ok(self.precondition(component)),
            Owner::Other => Err(self.of_other()),
        };
        translating(version, |version| rewrite::rewrite_query(query, version)).map(Some)
    }

    /// The request for the cluster.
    ///
    /// # Errors
    /// 400 for a body that is not of its form, 409 for one of another cluster.
    pub(super) fn request(&self, format: Format, request: Request<Bytes>) -> Result<Request<Bytes>, Refusal> {
        if !may_hold_ours(request.body()) {
            return Ok(request);
        }
        let rewritten = self.body(format, request.body())?;
        let (mut head, before) = request.into_parts();
        if rewritten.body != before {
            head.headers.remove(header::CONTENT_LENGTH);
        }
        if let Some(content_type) = rewritten.content_type {
            head.headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
        }
        Ok(Request::from_parts(head, rewritten.body))
    }

    /// The body for the cluster.
    ///
    /// # Errors
    /// As [`Self::request`].
    fn body(&self, format: Format, body: &Bytes) -> Result<Rewritten, Refusal> {
        let shape = BodyKind::of(self.verb, self.resource);
        let facts = rewrite::read(format, shape, body).map_err(Refusal::malformed)?;
        if let Some(named) = facts.cluster.filter(|named| named != self.cluster.as_str()) {
            let name = self.resource.name.clone().or(facts.name).unwrap_or_default();
            return Err(self.of_other_context(name, named).into());
        }
        let version = |of, text: &str| match (self.owner(text), of) {
            (Owner::Native, _) => Ok(text.to_owned()),
            (Owner::Component(component), VersionOf::Object) => Ok(self.precondition(component)),
            (Owner::Component(component), VersionOf::Reference) => Ok(component.revision().to_string()),
            (Owner::Other, VersionOf::Object) => Err(self.of_other()),
            // Nothing depends on it.
            (Owner::Other, VersionOf::Reference) => Ok(String::new()),
        };
        // The member's own object may have annotations, which an operation that adds an empty map would take away.
        translating(version, |version| rewrite::rewrite(format, shape, body, true, version))
    }

    fn of_other_context(&self, name: String, named: String) -> ClusterRefusal {
        let is_configured = ClusterName::new(&named).is_ok_and(|named| self.fleet.cluster(&named).is_some());
        let (resource, cluster) = (self.resource.resource.clone(), self.cluster.clone());
        ClusterRefusal::OfOtherContext { resource, name, named, is_configured, cluster }
    }

    /// Whose a version is.
    fn owner(&self, text: &str) -> Owner {
        match self.versions.decode(text) {
            Ok(given) => given.component(self.cluster).map_or(Owner::Other, Owner::Component),
            Err(VersionDecodeError::Malformed(_) | VersionDecodeError::Foreign(Foreign::Number)) => Owner::Native,
            Err(VersionDecodeError::Foreign(_)) => Owner::Other,
        }
    }

    /// The version of the object that is meant by a vector which covers it: events carry the whole collection's. Where
    /// memory has not seen all that the vector has, what it holds may be older than the object that the vector is of.
    fn precondition(&self, component: CollectionVersion) -> String {
        let known = self.known.as_ref().filter(|known| known.seen >= component);
        let held = known.map(|known| known.object.resource_version()).filter(|held| component >= *held);
        held.unwrap_or(component.revision()).to_string()
    }

    /// Whether nothing is changed: a version of another cluster is then too old, and no conflict.
    fn is_read(&self) -> bool {
        matches!(self.verb, Verb::Get | Verb::List | Verb::Watch)
    }

    /// The refusal of a version that is of another cluster.
    fn of_other(&self) -> Refusal {
        let cluster = self.cluster.clone();
        if self.is_read() {
            return VersionRefusal::OfOtherCluster { cluster }.into();
        }
        let name = self.resource.name.clone().unwrap_or_default();
        PreconditionRefusal::OfOtherContext { resource: self.resource.resource.clone(), name, cluster }.into()
    }
}

/// Whether a body may hold a version or the annotation of the merged view. Letters that are escaped are not looked
/// through: who escapes them is read.
fn may_hold_ours(body: &[u8]) -> bool {
    let holds = |text: &str| body.windows(text.len()).any(|part| part == text.as_bytes());
    holds(ANNOTATION_PREFIX) || BEGINNINGS.iter().any(|begin| holds(begin)) || holds("\\u") || holds("\\x")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_body_without_anything_of_ours_is_not_read() {
        for (body, expected) in [
            (r#"{"metadata":{"name":"x","resourceVersion":"1234"}}"#, false),
            (r#"{"metadata":{"annotations":{"a":"a\nb"}}}"#, false),
            ("", false),
            (r#"{"metadata":{"resourceVersion":"eyJhIjoiMSJ9"}}"#, true),
            (r#"{"metadata":{"resourceVersion":"c1.abc"}}"#, true),
            (r#"{"metadata":{"annotations":{"tributary.dev\/cluster":"a"}}}"#, true),
            (r#"{"metadata":{"annotations":{"\u0074ributary.dev/cluster":"a"}}}"#, true),
            (r#"[{"op":"remove","path":"/metadata/annotations/tributary.dev~1cluster"}]"#, true),
        ] {
            assert_eq!(may_hold_ours(body.as_bytes()), expected, "{body}");
        }
    }
}
