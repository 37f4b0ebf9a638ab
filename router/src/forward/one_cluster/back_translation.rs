//! Back-translation of values of the merged view in a request to one cluster's own view. Versions become the cluster's,
//! the annotation is removed, and values of another cluster are refused. A request without such values stays byte for
//! byte the same.

use bytes::Bytes;
use http::{HeaderValue, Request, header};
use tributary_answers::refusal::{ClusterRefusal, PreconditionRefusal, Refusal, VersionRefusal};
use tributary_apimachinery::rewrite::{self, ANNOTATION_PREFIXES, BodyKind, Format, RequestBody, Rewritten, VersionOf};
use tributary_apimachinery::{ClusterName, CollectionVersion, Query, ResourceRequest, ResourceVersion, Verb};
use tributary_merge::{Foreign, VersionDecodeError};
use tributary_rights::Candidates;

use crate::forward::list::is_live_token;
use crate::forward::rewritten::translating;
use crate::versions::{ClientVersion, Versions};

/// Possible first characters of a composite version. A continue token begins with the same characters, or with
/// [`TOKEN_PREFIX`].
const VERSION_PREFIXES: [&str; 2] = ["eyJ", "c1."];

/// Third possible beginning of a continue token.
const TOKEN_PREFIX: &str = "v1.";

/// Each body with a value of the merged view contains at least one of these texts.
const MERGED_VIEW_MARKERS: [&str; 4] =
    [ANNOTATION_PREFIXES[0], ANNOTATION_PREFIXES[1], VERSION_PREFIXES[0], VERSION_PREFIXES[1]];

/// Facts for translating one request to a cluster's own view.
pub(super) struct BackTranslation<'a> {
    pub(super) cluster: &'a ClusterName,
    pub(super) verb: Verb,
    pub(super) resource: &'a ResourceRequest,
    pub(super) versions: Versions,
    /// Clusters whose names an error may contain. In shared mode at most this cluster: a check of the rights in all
    /// other clusters would slow down every request, and only mistaken requests need it.
    pub(super) candidates: Candidates,
    pub(super) known: Option<KnownObject>,
}

/// State of an object in the merged view's memory.
#[derive(Clone, Copy, Debug)]
pub(super) struct KnownObject {
    pub(super) version: ResourceVersion,
    /// Version of the cluster's collection in memory at the time of the lookup.
    pub(super) seen: CollectionVersion,
}

#[derive(Debug, PartialEq, Eq)]
enum Origin {
    /// A version that the merged view did not issue. The cluster accepts or refuses the version.
    Native,
    Given(ClientVersion, CollectionVersion),
    /// A version of an object in this cluster that is not a number, as the cluster has issued it.
    Opaque(String),
    /// A version of the merged view without a component for the cluster.
    Other,
}

/// Returns whether a query may contain a value of the merged view. Most queries contain none.
pub(super) fn query_may_hold(query: &str) -> bool {
    query.contains('%') || VERSION_PREFIXES.iter().chain([&TOKEN_PREFIX]).any(|begin| query.contains(begin))
}

/// Returns whether a body may contain a value of the merged view. Most bodies contain none.
pub(super) fn body_may_hold(format: Format, body: &[u8]) -> bool {
    rewrite::may_contain(format, body, &MERGED_VIEW_MARKERS)
}

impl BackTranslation<'_> {
    /// Translates the query for the cluster; `None` to keep the query unchanged.
    ///
    /// # Errors
    /// 409 for another cluster's version in a write, 410 in a read. 410 for a continue token of the merged view, after
    /// which clients list from the start.
    pub(super) fn query(&self, query: &str) -> Result<Option<String>, Refusal> {
        if !query_may_hold(query) {
            return Ok(None);
        }
        if let Some(token) = Query::parse(Some(query)).get("continue")
            && (self.versions.gave_token(token) || is_live_token(token))
        {
            return Err(VersionRefusal::ExpiredToken { fresh: None }.into());
        }
        let version = |_, text: &str| match self.origin(text) {
            Origin::Native => Ok(text.to_owned()),
            Origin::Opaque(own) => Ok(own),
            // If the client has seen only a part of a revision's changes, the cluster sends the whole revision again,
            // so that no change is lost.
            Origin::Given(_, component) if self.is_read() => Ok(component.resume_after().to_string()),
            Origin::Given(decoded, component) => Ok(self.precondition(&decoded, component)),
            Origin::Other => Err(self.of_other()),
        };
        translating(version, |version| rewrite::rewrite_query(query, version)).map(Some)
    }

    /// Builds the request for the cluster from the client's request and its parsed body.
    ///
    /// # Errors
    /// 400 for a body that does not match its format, 409 for a version of a different cluster.
    pub(super) fn request(&self, body: &RequestBody, request: Request<Bytes>) -> Result<Request<Bytes>, Refusal> {
        let rewritten = self.body(body)?;
        let (mut head, before) = request.into_parts();
        if rewritten.body != before {
            head.headers.remove(header::CONTENT_LENGTH);
        }
        if let Some(content_type) = rewritten.content_type {
            head.headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
        }
        Ok(Request::from_parts(head, rewritten.body))
    }

    /// Translates the body for the cluster.
    ///
    /// # Errors
    /// As [`Self::request`].
    fn body(&self, body: &RequestBody) -> Result<Rewritten, Refusal> {
        let shape = BodyKind::for_request(self.verb, self.resource);
        let facts = body.facts(shape).map_err(Refusal::malformed)?;
        if let Some(named) = facts.cluster.filter(|named| named != self.cluster.as_str()) {
            let name = self.resource.name.clone().or(facts.name).unwrap_or_default();
            return Err(self.of_other_context(name, named).into());
        }
        let version = |of, text: &str| match (self.origin(text), of) {
            (Origin::Native, _) => Ok(text.to_owned()),
            (Origin::Opaque(own), _) => Ok(own),
            (Origin::Given(decoded, component), VersionOf::Object) => Ok(self.precondition(&decoded, component)),
            (Origin::Given(_, component), VersionOf::Reference) => Ok(component.revision().to_string()),
            (Origin::Other, VersionOf::Object) => Err(self.of_other()),
            // No request depends on the version in a reference to an object, so the version becomes empty.
            (Origin::Other, VersionOf::Reference) => Ok(String::new()),
        };
        // `true`: the object in the member may have annotations of its own. With `false`, a JSON patch would get an
        // operation that adds an empty map, which would remove these annotations.
        translating(version, |version| body.rewritten(shape, true, version))
    }

    fn of_other_context(&self, name: String, named: String) -> ClusterRefusal {
        let is_visible_to_client =
            |named: ClusterName| self.versions.has_cluster(&named) && self.candidates.has(&named);
        let is_configured = ClusterName::new(&named).is_ok_and(is_visible_to_client);
        let (resource, cluster) = (self.resource.resource.clone(), self.cluster.clone());
        ClusterRefusal::OfOtherContext { resource, name, named, is_configured, cluster }
    }

    fn origin(&self, text: &str) -> Origin {
        match self.versions.decode(text) {
            Ok(ClientVersion::Opaque(decoded)) if decoded.cluster == *self.cluster => Origin::Opaque(decoded.version),
            Ok(decoded) => match decoded.component(self.cluster) {
                Some(component) => Origin::Given(decoded, component),
                None => Origin::Other,
            },
            Err(VersionDecodeError::Malformed(_) | VersionDecodeError::Foreign(Foreign::Number)) => Origin::Native,
            Err(VersionDecodeError::Foreign(_)) => Origin::Other,
        }
    }

    /// Returns the version for the precondition. If memory has not reached the component of a composite version, the
    /// object in memory may be too old to compare, so the component itself is the precondition.
    fn precondition(&self, decoded: &ClientVersion, component: CollectionVersion) -> String {
        let cached = self.known.filter(|known| known.seen >= component).map(|known| known.version);
        decoded.native(self.cluster, cached).unwrap_or_else(|| component.revision().to_string())
    }

    /// Returns whether the request is a read. A version of another cluster is expired in a read, and a conflict in a
    /// write.
    fn is_read(&self) -> bool {
        matches!(self.verb, Verb::Get | Verb::List | Verb::Watch)
    }

    fn of_other(&self) -> Refusal {
        let cluster = self.cluster.clone();
        if self.is_read() {
            return VersionRefusal::OfOtherCluster { cluster }.into();
        }
        let name = self.resource.name.clone().unwrap_or_default();
        PreconditionRefusal::OfOtherContext { resource: self.resource.resource.clone(), name, cluster }.into()
    }
}

#[cfg(test)]
mod tests {
    use tributary_apimachinery::rewrite::YamlBody;
    use tributary_apimachinery::wire::put_field;
    use tributary_apimachinery::{ItemResourceVersions, RequestInfo};

    use super::*;
    use crate::versions::tests::versions;

    const YAML: Format = Format::Yaml;
    const APPLY: Format = Format::ApplyYaml;

    /// Every way to write the cluster annotation: the format, the body with the placeholder `CLUSTER` for the cluster's
    /// name, and the body that cluster `a` gets.
    const WRITTEN: [(Format, &str, &str); 21] = [
        (Format::Json, r#"{"metadata":{"annotations":{"tributary.dev/cluster":"CLUSTER"}}}"#, r#"{"metadata":{}}"#),
        (Format::Json, r#"{"metadata":{"annotations":{"tributary.dev\/cluster":"CLUSTER"}}}"#, r#"{"metadata":{}}"#),
        (
            Format::Json,
            r#"{"met\u0061data":{"annot\u0061tions":{"\u0074ributary\u002edev/cluster":"CLUSTER"}}}"#,
            r#"{"met\u0061data":{}}"#,
        ),
        (
            Format::Json,
            r#"{"metadata":{"annotations":{"tributary.dev/cluster":"c","tributary.dev/cluster":"CLUSTER"}},"metadata":{}}"#,
            r#"{"metadata":{},"metadata":{}}"#,
        ),
        (
            Format::MergePatch,
            r#"{"metadata":{"annotations":{"\u0074ributary.dev/cluster":"CLUSTER","x":"y"}}}"#,
            r#"{"metadata":{"annotations":{"x":"y"}}}"#,
        ),
        (
            Format::StrategicMergePatch,
            r#"{"metadata":{"annotations":{"tributary.dev/cluster":"CLUSTER"}}}"#,
            r#"{"metadata":{}}"#,
        ),
        (
            Format::JsonPatch,
            r#"[{"op":"add","path":"/metadata/annotations/tributary.dev~1cluster","value":"CLUSTER"}]"#,
            "[]",
        ),
        (
            Format::JsonPatch,
            r#"[{"op":"add","p\u0061th":"/metadata/annotations/\u0074ributary.dev~1cluster","value":"CLUSTER"}]"#,
            "[]",
        ),
        (
            Format::JsonPatch,
            r#"[{"op":"add","path":"/metadata/annotations","value":{"\u0074ributary.dev/cluster":"CLUSTER"}}]"#,
            r#"[{"op":"add","path":"/metadata/annotations","value":{}}]"#,
        ),
        (
            Format::JsonPatch,
            r#"[{"op":"add","path":"/metadata","value":{"annotations":{"tributary.dev/cluster":"CLUSTER"}}}]"#,
            r#"[{"op":"add","path":"/metadata","value":{}}]"#,
        ),
        (YAML, "metadata:\n  annotations:\n    tributary.dev/cluster: CLUSTER\n", r#"{"metadata":{}}"#),
        (YAML, "metadata: {annotations: {'tributary.dev/cluster': CLUSTER}}", r#"{"metadata":{}}"#),
        (YAML, r#"metadata: {annotations: {"\U00000074ributary.dev/cluster": CLUSTER}}"#, r#"{"metadata":{}}"#),
        (YAML, r#"metadata: {annotations: {"\x74ributary\u002edev/cluster": CLUSTER}}"#, r#"{"metadata":{}}"#),
        (
            YAML,
            "metadata:\n  annotations:\n    ? \"tributary.d\\\n      ev/cluster\"\n    : CLUSTER\n",
            r#"{"metadata":{}}"#,
        ),
        (YAML, "metadata:\n  annotations:\n    ? tributary.dev/cluster\n    : CLUSTER\n", r#"{"metadata":{}}"#),
        (
            YAML,
            "x: &key tributary.dev/cluster\nmetadata:\n  annotations:\n    *key : CLUSTER\n",
            r#"{"metadata":{},"x":"tributary.dev/cluster"}"#,
        ),
        (
            YAML,
            "x: &map {tributary.dev/cluster: CLUSTER}\nmetadata:\n  annotations:\n    <<: *map\n",
            r#"{"metadata":{},"x":{"tributary.dev/cluster":"a"}}"#,
        ),
        (YAML, "metadata: {annotations: {!!binary dHJpYnV0YXJ5LmRldi9jbHVzdGVy: CLUSTER}}", r#"{"metadata":{}}"#),
        (APPLY, r#"{"metadata":{"annotations":{"\u0074ributary.dev/cluster":"CLUSTER"}}}"#, r#"{"metadata":{}}"#),
        (
            APPLY,
            "%TAG ! tag:yaml.org,2002:\n---\nmetadata: {annotations: {!binary dHJpYnV0YXJ5LmRldi9jbHVzdGVy: CLUSTER}}",
            r#"{"metadata":{}}"#,
        ),
    ];

    /// Translates a write to a ConfigMap in cluster `a`'s own view. Memory has reached version 20.
    fn back_translation(verb: Verb, format: Format, body: impl Into<Bytes>) -> Result<Rewritten, Refusal> {
        let info = RequestInfo::parse("PUT", "/api/v1/namespaces/default/configmaps/x", None).unwrap();
        let known = KnownObject { version: ResourceVersion(17), seen: ResourceVersion(20).into() };
        let translation = BackTranslation {
            cluster: &ClusterName::new("a").unwrap(),
            verb,
            resource: info.resource().unwrap(),
            versions: versions(ItemResourceVersions::Composite),
            candidates: Candidates::default(),
            known: Some(known),
        };
        let mut request = Request::new(body.into());
        request.headers_mut().insert(header::CONTENT_LENGTH, HeaderValue::from_static("1"));
        if !body_may_hold(format, request.body()) {
            return Ok(Rewritten { body: request.into_body(), content_type: None });
        }
        let body = RequestBody::new(format, request.body().clone()).or_else(YamlBody::convert);
        let request = translation.request(&body.map_err(Refusal::malformed)?, request)?;
        let content_type = request.headers().get(header::CONTENT_TYPE).map(|_| "application/json");
        Ok(Rewritten { body: request.into_body(), content_type })
    }

    fn refused(verb: Verb, format: Format, body: impl Into<Bytes>) -> u16 {
        back_translation(verb, format, body).unwrap_err().status().code
    }

    #[test]
    fn cluster_annotation_is_found_in_every_spelling() {
        for (format, body, expected) in WRITTEN {
            let named = |cluster: &str| body.replace("CLUSTER", cluster);
            let sent = back_translation(Verb::Update, format, named("a"))
                .unwrap_or_else(|refusal| panic!("{body}: {refusal:?}"));
            assert_eq!(sent.body, expected, "{body}");
            assert_eq!(sent.content_type.is_some(), format == YAML, "{body}");
            for other in ["b", "nobody"] {
                assert_eq!(refused(Verb::Update, format, named(other)), 409, "{body}");
            }
        }
    }

    #[test]
    fn cluster_annotation_is_found_in_protobuf() {
        let message = |parts: &[(u64, &[u8])]| {
            let mut out = Vec::new();
            parts.iter().for_each(|(number, contents)| put_field(&mut out, *number, contents));
            out
        };
        let body = |metadata: &[u8]| [b"k8s\0".to_vec(), message(&[(2, &message(&[(1, metadata)]))])].concat();
        let entry = |cluster: &str| message(&[(1, b"tributary.dev/cluster"), (2, cluster.as_bytes())]);
        let own =
            back_translation(Verb::Update, Format::Protobuf, body(&message(&[(1, b"x"), (12, &entry("a"))]))).unwrap();
        assert_eq!(own.body, body(&message(&[(1, b"x")])));
        assert_eq!(refused(Verb::Update, Format::Protobuf, body(&message(&[(12, &entry("b"))]))), 409);
        // Each body contains an entry that Go's decoder reads, although the field number is too large, or a field of
        // the entry has the wrong type.
        let cut_number = message(&[((1 << 32) + 12, &entry("b"))]);
        assert_eq!(refused(Verb::Update, Format::Protobuf, body(&cut_number)), 400);
        let of_another_type =
            [&[1 << 3 | 5, 21][..], b"tributary.dev/cluster", &[2 << 3 | 2, 101], &[b'x'; 101]].concat();
        assert_eq!(refused(Verb::Update, Format::Protobuf, body(&message(&[(12, &of_another_type)]))), 400);
    }

    #[test]
    fn json_patch_copies_lose_the_cluster_annotation() {
        let patch = |op: &str, path: &str| format!(r#"[{{"op":"{op}","from":"/metadata/labels","path":"{path}"}}]"#);
        for op in ["copy", "move"] {
            let sent = back_translation(Verb::Patch, Format::JsonPatch, patch(op, "/metadata/annotations")).unwrap();
            let end: &[u8] = br#"{"op":"remove","path":"/metadata/annotations/tributary.dev~1cluster"}]"#;
            assert!(sent.body.ends_with(end), "{:?}", sent.body);
            let elsewhere = patch(op, "/metadata/annotations/x");
            assert_eq!(back_translation(Verb::Patch, Format::JsonPatch, elsewhere.clone()).unwrap().body, elsewhere);
            for path in ["", "/metadata", "/metadata/annotations/tributary.dev~1cluster"] {
                assert_eq!(refused(Verb::Patch, Format::JsonPatch, patch(op, path)), 400, "{path}");
            }
        }
    }

    #[test]
    fn body_without_the_cluster_annotation_stays_byte_for_byte_equal() {
        for (format, body) in [
            (Format::Json, r#"{"metadata":{"name":"x","resourceVersion":"1234"}}"#),
            (Format::Json, r#"{"metadata":{"annotations":{"a":"a\nb"}}"#),
            (Format::Json, "no JSON"),
            (YAML, "a: [b\n"),
            (YAML, "data: {a: \"b\\n\"} # kept\n"),
            (Format::Json, ""),
        ] {
            let sent = back_translation(Verb::Update, format, body).unwrap();
            assert_eq!((sent.body, sent.content_type), (body.as_bytes().into(), None));
        }
    }

    #[test]
    fn composite_version_at_a_clusters_path_becomes_the_clusters_version() {
        let vector = |components: &[(&str, u64)]| {
            let components = components.iter().map(|(name, version)| {
                (ClusterName::new(name).unwrap(), CollectionVersion::from(ResourceVersion(*version)))
            });
            components
                .collect::<tributary_merge::CompositeResourceVersion>()
                .encode(&tributary_merge::Epochs::default())
        };
        let own = |version: &str| format!(r#"{{"metadata":{{"resourceVersion":"{version}"}}}}"#);
        let precondition = |version: &str| format!(r#"{{"preconditions":{{"resourceVersion":"{version}"}}}}"#);
        for (version, expected) in [
            // The composite version covers the version of the object in memory, so the request has the object's
            // version.
            (vector(&[("a", 18), ("b", 3)]), Some("17")),
            (vector(&[("a", 17)]), Some("17")),
            // The composite version is older than the object in memory: the cluster will refuse the write.
            (vector(&[("a", 16)]), Some("16")),
            // Memory has not reached the composite version.
            (vector(&[("a", 21)]), Some("21")),
            (vector(&[("b", 17)]), None),
            ("17".to_owned(), Some("17")),
            ("garbage".to_owned(), Some("garbage")),
        ] {
            for (verb, body) in [(Verb::Update, &own as &dyn Fn(&str) -> String), (Verb::Delete, &precondition)] {
                match expected {
                    Some(expected) => {
                        let sent = back_translation(verb, Format::Json, body(&version)).unwrap();
                        assert_eq!(sent.body, body(expected), "{version}");
                    }
                    None => assert_eq!(refused(verb, Format::Json, body(&version)), 409, "{version}"),
                }
            }
        }
    }
}
