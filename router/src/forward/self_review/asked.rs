//! What a question about rights asks for, in the body's own form.

use serde_json::{Value, json};
use tributary_apimachinery::rewrite::Format;
use tributary_apimachinery::wire;
use tributary_authorization::{Attributes, ResourceAttributes};

/// What begins a protobuf body of Kubernetes.
const MAGIC: &[u8] = b"k8s\0";

/// What a SelfSubjectAccessReview or a SelfSubjectRulesReview asks for. Empty texts stand for what is not given.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct AskedRight {
    verb: String,
    group: String,
    version: String,
    resource: String,
    subresource: String,
    pub(super) namespace: String,
    name: String,
    /// The path that it is about, and no resource.
    path: Option<String>,
}

impl AskedRight {
    /// What a body asks for: of a SelfSubjectRulesReview (`is_of_rules`) the namespace alone. A body that cannot be
    /// read asks for nothing.
    pub(super) fn read(format: Format, body: &[u8], is_of_rules: bool) -> Self {
        match format {
            Format::Protobuf => Self::of_protobuf(body, is_of_rules).unwrap_or_default(),
            // JSON is YAML, too.
            _ => {
                let text = std::str::from_utf8(body).unwrap_or_default();
                let json = || serde_json::from_str(text).ok();
                Self::of_json(&json().or_else(|| serde_saphyr::from_str(text).ok()).unwrap_or(Value::Null))
            }
        }
    }

    fn of_json(review: &Value) -> Self {
        let spec = &review["spec"];
        let attributes = &spec["resourceAttributes"];
        let text = |field: &str| attributes[field].as_str().unwrap_or_default().to_owned();
        let path = &spec["nonResourceAttributes"];
        Self {
            verb: if path.is_object() { path["verb"].as_str().unwrap_or_default().to_owned() } else { text("verb") },
            group: text("group"),
            version: text("version"),
            resource: text("resource"),
            subresource: text("subresource"),
            // A review of rules has it in its spec.
            namespace: spec["namespace"].as_str().map_or_else(|| text("namespace"), str::to_owned),
            name: text("name"),
            path: path.is_object().then(|| path["path"].as_str().unwrap_or_default().to_owned()),
        }
    }

    /// As [`Self::of_json`], by the fields of `generated.proto` of k8s.io/api/authorization/v1.
    fn of_protobuf(body: &[u8], is_of_rules: bool) -> Option<Self> {
        let object = field(body.strip_prefix(MAGIC)?, 2)?;
        let spec = field(object, 2)?;
        let text = |message, number| {
            field(message, number).and_then(|own| String::from_utf8(own.to_vec()).ok()).unwrap_or_default()
        };
        let first = field(spec, 1).unwrap_or_default();
        if is_of_rules {
            return Some(Self { namespace: text(spec, 1), ..Self::default() });
        }
        if let Some(path) = field(spec, 2) {
            return Some(Self { verb: text(path, 2), path: Some(text(path, 1)), ..Self::default() });
        }
        Some(Self {
            namespace: text(first, 1),
            verb: text(first, 2),
            group: text(first, 3),
            version: text(first, 4),
            resource: text(first, 5),
            subresource: text(first, 6),
            name: text(first, 7),
            path: None,
        })
    }

    /// Whether it is of what memory, or a list of all clusters, can answer in part.
    pub(super) fn is_read(&self) -> bool {
        matches!(&*self.verb, "get" | "list" | "watch")
    }

    /// What decides whether a cluster may be told of: what is asked for, or a look at it.
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

    /// The spec of a review that asks for it.
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
        let given = fields.into_iter().filter(|(_, text)| !text.is_empty());
        let attributes: serde_json::Map<_, _> =
            given.map(|(field, text)| (field.to_owned(), Value::from(text.as_str()))).collect();
        json!({ "resourceAttributes": attributes })
    }
}

/// The contents of the last field of this number, as protobuf reads messages.
fn field(message: &[u8], number: u64) -> Option<&[u8]> {
    let fields = wire::fields(message).map_while(Result::ok);
    fields.filter(|field| field.number == number).filter_map(|field| field.contents).last()
}

#[cfg(test)]
mod tests {
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

    #[test]
    fn each_form_says_the_same() {
        let json = r#"{"spec":{"resourceAttributes":{"namespace":"shop","verb":"get","group":"apps","version":"v1",
            "resource":"deployments","subresource":"scale","name":"x"}}}"#;
        let yaml = "spec:\n  resourceAttributes:\n    namespace: shop\n    verb: get\n    group: apps\n    version: v1\n    resource: deployments\n    \
                    subresource: scale\n    name: x\n";
        let attributes: &[(u64, &[u8])] =
            &[(1, b"shop"), (2, b"get"), (3, b"apps"), (4, b"v1"), (5, b"deployments"), (6, b"scale"), (7, b"x")];
        let protobuf = body(&message(&[(1, &message(attributes))]));
        let expected = AskedRight::read(Format::Json, json.as_bytes(), false);
        assert_eq!((expected.resource.as_str(), expected.name.as_str()), ("deployments", "x"));
        assert_eq!(AskedRight::read(Format::Yaml, yaml.as_bytes(), false), expected);
        assert_eq!(AskedRight::read(Format::Protobuf, &protobuf, false), expected);
        for (format, text) in [
            (Format::Json, br#"{"spec":{"nonResourceAttributes":{"path":"/x","verb":"get"}}}"#.to_vec()),
            (Format::Protobuf, body(&message(&[(2, &message(&[(1, b"/x"), (2, b"get")]))]))),
        ] {
            let asked = AskedRight::read(format, &text, false);
            assert!(asked.path.as_deref() == Some("/x") && asked.is_read(), "{asked:?}");
        }
        for (format, text) in [
            (Format::Json, br#"{"spec":{"namespace":"shop-1"}}"#.to_vec()),
            (Format::Protobuf, body(&message(&[(1, b"shop-1")]))),
        ] {
            assert_eq!(AskedRight::read(format, &text, true).namespace, "shop-1");
        }
        for garbage in [&b""[..], b"k8s\0", b"{", b"k8s\0\x12\xff"] {
            assert_eq!(AskedRight::read(Format::Protobuf, garbage, false), AskedRight::default());
            assert_eq!(AskedRight::read(Format::Json, garbage, false), AskedRight::default());
        }
    }
}
