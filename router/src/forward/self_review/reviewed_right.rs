//! Right that an access review checks, read from JSON or protobuf.

use serde_json::{Value, json};
use tributary_apimachinery::Status;
use tributary_apimachinery::rewrite::{Format, RequestBody};
use tributary_apimachinery::wire::{self, Malformed};
use tributary_authorization::{Attributes, ResourceAttributes};
use tributary_fleet::aggregated_group;

use tributary_answers::refusal::Refusal;

/// First bytes of a protobuf body of Kubernetes.
const MAGIC: &[u8] = b"k8s\0";

/// Right that an access review or a SelfSubjectRulesReview checks. An absent field is an empty text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct ReviewedRight {
    verb: String,
    group: String,
    version: String,
    resource: String,
    subresource: String,
    pub(super) namespace: String,
    name: String,
    pub(super) user: String,
    /// Path of a review without a resource.
    path: Option<String>,
}

impl ReviewedRight {
    /// Reads the body of a review. A SelfSubjectRulesReview (`is_of_rules`) has only a namespace.
    ///
    /// # Errors
    /// 400 for malformed protobuf.
    pub(super) fn read(body: &RequestBody, is_of_rules: bool) -> Result<Self, Refusal> {
        if body.format() != Format::Protobuf {
            return Ok(Self::of_json(body));
        }
        let malformed = |_| Refusal::malformed(Status::bad_request("the body is not a valid protobuf object"));
        Self::of_protobuf(body.text(), is_of_rules).map_err(malformed)
    }

    fn of_json(body: &RequestBody) -> Self {
        let names = ["namespace", "verb", "group", "version", "resource", "subresource", "name"];
        let attributes = body.texts_at(&["spec", "resourceAttributes"], names).unwrap_or_default();
        let [of_attributes, verb, group, version, resource, subresource, name] = attributes;
        // A SelfSubjectRulesReview has the namespace directly in its spec.
        let [of_spec, user] = body.texts_at(&["spec"], ["namespace", "user"]).unwrap_or_default();
        let namespace = if of_spec.is_empty() { of_attributes } else { of_spec };
        let reviewed_right = Self { verb, group, version, resource, subresource, namespace, name, user, path: None };
        match body.texts_at(&["spec", "nonResourceAttributes"], ["path", "verb"]) {
            Some([path, verb]) => Self { verb, path: Some(path), ..reviewed_right },
            None => reviewed_right,
        }
    }

    /// Reads protobuf like [`Self::of_json`], by the fields of `generated.proto` of k8s.io/api/authorization/v1.
    ///
    /// # Errors
    /// [`Malformed`].
    fn of_protobuf(body: &[u8], is_of_rules: bool) -> Result<Self, Malformed> {
        // The field `raw` is of type bytes, so decoders use its last occurrence.
        let object = last_contents(body.strip_prefix(MAGIC).ok_or(Malformed)?, 2)?.unwrap_or_default();
        let spec = merged_message(object, 2)?.unwrap_or_default();
        if is_of_rules {
            return Ok(Self { namespace: last_text(&spec, 1)?, ..Self::default() });
        }
        let user = last_text(&spec, 3)?;
        if let Some(path) = merged_message(&spec, 2)? {
            return Ok(Self { verb: last_text(&path, 2)?, user, path: Some(last_text(&path, 1)?), ..Self::default() });
        }
        let attributes = merged_message(&spec, 1)?.unwrap_or_default();
        Ok(Self {
            namespace: last_text(&attributes, 1)?,
            verb: last_text(&attributes, 2)?,
            group: last_text(&attributes, 3)?,
            version: last_text(&attributes, 4)?,
            resource: last_text(&attributes, 5)?,
            subresource: last_text(&attributes, 6)?,
            name: last_text(&attributes, 7)?,
            user,
            path: None,
        })
    }

    /// Returns whether the right is for a resource of Tributary's own API group, which no cluster knows.
    pub(super) fn is_of_own_group(&self) -> bool {
        self.group == aggregated_group::GROUP
    }

    /// Returns whether the right is a read of `clusters`. Each user has it, and sees the clusters that the user may
    /// know.
    pub(super) fn is_read_of_clusters(&self) -> bool {
        self.is_of_own_group()
            && self.is_read()
            && self.subresource.is_empty()
            && self.resource == aggregated_group::CLUSTERS
    }

    /// Returns whether the right is a read, which memory or a list of all clusters can answer in part.
    pub(super) fn is_read(&self) -> bool {
        matches!(&*self.verb, "get" | "list" | "watch")
    }

    /// Returns the rights that allow the answer to show a cluster: the reviewed right, or a read of the same object.
    pub(super) fn attributes(&self) -> Vec<Attributes<'_>> {
        if let Some(path) = &self.path {
            return [&self.verb, "get"].map(|verb| Attributes::NonResource { verb, path: path.into() }).into();
        }
        let with = |verb, subresource| {
            Attributes::Resource(ResourceAttributes {
                verb,
                group: &self.group,
                version: &self.version,
                resource: &self.resource,
                subresource,
                namespace: &self.namespace,
                name: &self.name,
            })
        };
        vec![with(&self.verb, &self.subresource), with("get", ""), with("list", "")]
    }

    pub(super) fn spec(&self) -> Value {
        if let Some(path) = &self.path {
            return json!({"nonResourceAttributes": {"path": path, "verb": self.verb}});
        }
        let fields = [
            ("namespace", &self.namespace),
            ("verb", &self.verb),
            ("group", &self.group),
            ("version", &self.version),
            ("resource", &self.resource),
            ("subresource", &self.subresource),
            ("name", &self.name),
        ];
        let nonempty = fields.into_iter().filter(|(_, text)| !text.is_empty());
        let attributes: serde_json::Map<_, _> =
            nonempty.map(|(field, text)| (field.to_owned(), Value::from(text.as_str()))).collect();
        json!({ "resourceAttributes": attributes })
    }
}

/// Returns the contents of all length-delimited fields of this number.
fn all_contents(message: &[u8], number: u64) -> Result<Vec<&[u8]>, Malformed> {
    let fields = wire::fields(message).filter(|field| !field.is_ok_and(|field| field.number != number));
    let contents: Result<Vec<_>, _> = fields.map(|field| field.map(|field| field.contents)).collect();
    Ok(contents?.into_iter().flatten().collect())
}

/// Returns the contents of the last field of this number. Decoders use the last occurrence of a bytes or text field.
fn last_contents(message: &[u8], number: u64) -> Result<Option<&[u8]>, Malformed> {
    Ok(all_contents(message, number)?.pop())
}

/// Returns the message in the fields of this number; `None` without such a field. Several occurrences of a message are
/// merged, which concatenation achieves.
///
/// Source: protobuf's encoding guide ("Last One Wins").
fn merged_message(message: &[u8], number: u64) -> Result<Option<Vec<u8>>, Malformed> {
    let occurrences = all_contents(message, number)?;
    Ok((!occurrences.is_empty()).then(|| occurrences.concat()))
}

fn last_text(message: &[u8], number: u64) -> Result<String, Malformed> {
    let contents = last_contents(message, number)?.unwrap_or_default();
    String::from_utf8(contents.to_vec()).map_err(|_| Malformed)
}

#[cfg(test)]
mod tests {
    use tributary_apimachinery::rewrite::YamlBody;
    use tributary_apimachinery::wire::put_field;

    use super::*;

    fn message(fields: &[(u64, &[u8])]) -> Vec<u8> {
        let mut message = Vec::new();
        fields.iter().for_each(|(number, contents)| put_field(&mut message, *number, contents));
        message
    }

    fn body(spec: &[u8]) -> Vec<u8> {
        let object = message(&[(1, b""), (2, spec)]);
        let kind = message(&[(1, b"authorization.k8s.io/v1"), (2, b"SelfSubjectAccessReview")]);
        [MAGIC, &message(&[(1, &kind), (2, &object)])].concat()
    }

    fn read(format: Format, text: &[u8], is_of_rules: bool) -> ReviewedRight {
        let body = RequestBody::new(format, text.to_vec().into()).or_else(YamlBody::convert).unwrap();
        ReviewedRight::read(&body, is_of_rules).unwrap()
    }

    #[test]
    fn review_in_json_yaml_and_protobuf_means_the_same() {
        let json = r#"{"spec":{"resourceAttributes":{"namespace":"shop","verb":"get","group":"apps","version":"v1",
            "resource":"deployments","subresource":"scale","name":"x"}}}"#;
        let yaml = "spec:\n  resourceAttributes:\n    namespace: shop\n    verb: get\n    group: apps\n    version: v1\n    resource: deployments\n    \
                    subresource: scale\n    name: x\n";
        let attributes: &[(u64, &[u8])] =
            &[(1, b"shop"), (2, b"get"), (3, b"apps"), (4, b"v1"), (5, b"deployments"), (6, b"scale"), (7, b"x")];
        let protobuf = body(&message(&[(1, &message(attributes))]));
        let expected = read(Format::Json, json.as_bytes(), false);
        assert_eq!((expected.resource.as_str(), expected.name.as_str()), ("deployments", "x"));
        assert_eq!(read(Format::Yaml, yaml.as_bytes(), false), expected);
        assert_eq!(read(Format::Protobuf, &protobuf, false), expected);
        for (format, text) in [
            (Format::Json, br#"{"spec":{"nonResourceAttributes":{"path":"/x","verb":"get"}}}"#.to_vec()),
            (Format::Protobuf, body(&message(&[(2, &message(&[(1, b"/x"), (2, b"get")]))]))),
        ] {
            let reviewed_right = read(format, &text, false);
            assert!(reviewed_right.path.as_deref() == Some("/x") && reviewed_right.is_read(), "{reviewed_right:?}");
        }
        for (format, text) in [
            (Format::Json, br#"{"spec":{"namespace":"shop-1"}}"#.to_vec()),
            (Format::Protobuf, body(&message(&[(1, b"shop-1")]))),
        ] {
            assert_eq!(read(format, &text, true).namespace, "shop-1");
        }
        for nothing in [&b""[..], b"{}", br#"{"spec":null}"#, br#"{"spec":{"resourceAttributes":null}}"#] {
            assert_eq!(read(Format::Json, nothing, false), ReviewedRight::default());
        }
    }

    #[test]
    fn malformed_protobuf_review_is_refused() {
        let unread = body(&message(&[(1, b"\x0a\x05shop")]));
        let cut_number = body(&message(&[(1, &message(&[(2, b"get")])), ((1 << 32) + 1, &message(&[(2, b"list")]))]));
        for garbage in [&b"k8s"[..], b"{", b"k8s\0\x12\xff", &unread[..], &cut_number[..]] {
            let body = RequestBody::new(Format::Protobuf, garbage.to_vec().into()).unwrap();
            assert_eq!(ReviewedRight::read(&body, false).unwrap_err().status().code, 400, "{garbage:?}");
        }
    }

    /// Kubernetes' protobuf decoder merges repeated messages. If Tributary read only the last message, it would check a
    /// different right than members.
    #[test]
    fn repeated_protobuf_messages_of_a_review_are_merged_as_by_members() {
        let shop = message(&[(1, b"shop"), (2, b"get"), (5, b"secrets")]);
        let pods = message(&[(2, b"list"), (5, b"pods")]);
        let expected = ReviewedRight {
            namespace: "shop".to_owned(),
            verb: "list".to_owned(),
            resource: "pods".to_owned(),
            ..ReviewedRight::default()
        };
        let specs = message(&[(2, &message(&[(1, &shop)])), (2, &message(&[(1, &pods)]))]);
        let twice = body(&message(&[(1, &shop), (1, &pods)]));
        let in_specs = [MAGIC, &message(&[(2, &specs)])].concat();
        let json = br#"{"spec":{"resourceAttributes":{"namespace":"shop","verb":"get","resource":"secrets"},
            "resourceAttributes":{"verb":"list"}},"spec":{"resourceAttributes":{"resource":"pods"}}}"#;
        for (format, text) in
            [(Format::Protobuf, &twice[..]), (Format::Protobuf, &in_specs[..]), (Format::Json, &json[..])]
        {
            assert_eq!(read(format, text, false), expected);
        }
        let namespaces = body(&message(&[(1, b"shop"), (1, b"team")]));
        assert_eq!(read(Format::Protobuf, &namespaces, true).namespace, "team", "of a text the last counts");
        let paths = body(&message(&[(2, &message(&[(1, b"/a"), (2, b"get")])), (2, &message(&[(1, b"/b")]))]));
        let path = read(Format::Protobuf, &paths, false);
        assert_eq!((path.path.as_deref(), path.verb.as_str()), (Some("/b"), "get"));
    }
}
