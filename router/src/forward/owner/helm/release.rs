//! Helm release of an object, and the records of a release: Secrets or ConfigMaps with special labels and names; record
//! Secrets also have a special type.
//!
//! Source: `pkg/storage/driver` (`secrets.go`, `cfgmaps.go`) and `pkg/storage/storage.go` (`makeKey`) of Helm 3 and 4.

use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use tributary_apimachinery::rewrite::{self, BodyKind, Format, ReleaseFacts};
use tributary_apimachinery::{GroupVersionResource, Object, ResourceRequest, is_namespace_name, json};

use tributary_answers::helm_record::{KEY_BEGIN, TYPE, are_records, has_type, is_record, release_of, resources};
use tributary_answers::refusal::ReleaseName;

/// Helm release of an object. The object belongs to the release, or is a record of the release.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Release {
    namespace: String,
    /// Name of the release; `None` for any release of the namespace.
    name: Option<String>,
    /// Resource of the records; `None` if only an object of the release is known.
    records: Option<GroupVersionResource>,
    state: RecordState,
}

/// Status that a release's records must have. All other records are ignored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum RecordState {
    Any,
    /// Any status is sufficient. But if several clusters have records, only records with a pending status matter: Helm
    /// creates hooks during an operation.
    PendingIfSeveral,
    /// The status must be pending.
    Pending,
}

/// Values of a record's label `status` during an operation of Helm.
///
/// Source: `pkg/release` of Helm 3 and `pkg/release/common` of Helm 4 (`Status`).
const PENDING: [&str; 4] = ["pending-install", "pending-upgrade", "pending-rollback", "uninstalling"];

/// Labels of objects that Helm writes: the first on records, the second on all other objects except hooks
/// (`pkg/action/validate.go`). An object without these labels belongs to no release.
const MARKS: [(&str, &str); 2] = [("owner", "helm"), ("app.kubernetes.io/managed-by", "Helm")];

/// Maximum number of records in an answer. A single record would suffice, but a few other objects with the labels of a
/// record may precede the record in the answer.
const ASKED_FOR: usize = 100;

/// Returns whether the answer to a write may be a record of a Helm release. An answer without a name may be a record.
pub(crate) fn may_be_record(request: &ResourceRequest, answer: &[u8]) -> bool {
    let answered =
        || json::find(answer, 0, &["metadata", "name"]).and_then(|place| json::string_contents(answer, &place));
    let named = request.name.as_deref().map(str::as_bytes).or_else(|| answer.get(answered()?));
    named.map_or_else(|| are_records(&request.resource), |name| is_record(&request.resource, name))
}

impl Release {
    /// Returns the release of an object with this name. A hook has no annotation with the release. Most charts set a
    /// label with the release's name; without the label, the hook belongs to some release of its namespace.
    pub(crate) fn from_facts(request: &ResourceRequest, name: Option<&str>, facts: &ReleaseFacts) -> Option<Self> {
        let own = request.namespace.clone();
        let is_record = are_records(&request.resource) && facts.record_owner.as_deref() == Some("helm");
        let of_record =
            name.and_then(release_of).filter(|name| is_record && facts.record_name.as_deref() == Some(name));
        if let Some(name) = of_record {
            let (name, records) = (Some(name.to_owned()), Some(request.resource.clone()));
            return Some(Self { namespace: own?, name, records, state: RecordState::Any });
        }
        let (namespace, name, state) = match (&facts.name, &facts.hook) {
            (Some(name), _) => (facts.namespace.clone().or(own)?, Some(name.clone()), RecordState::Any),
            (None, Some(events)) if is_test_hook(events) => (own?, facts.instance.clone(), RecordState::Any),
            (None, Some(_)) => (own?, facts.instance.clone(), RecordState::PendingIfSeveral),
            _ => return None,
        };
        // The namespace becomes a part of a URL's path, so it must be a valid name.
        is_namespace_name(&namespace).then_some(Self { namespace, name, records: None, state })
    }

    /// Returns the release of a member's object.
    pub(crate) fn of_object(request: &ResourceRequest, object: &Object) -> Option<Self> {
        if !MARKS.iter().any(|(label, value)| object.label(label) == Some(value)) {
            return None;
        }
        let facts = rewrite::read(Format::Json, BodyKind::Object, object.json()).ok()?;
        Self::from_facts(request, Some(object.name()), &facts.release)
    }

    /// Returns the same release with the requirement that its records are pending. It applies if several clusters have
    /// records of a release whose name is unknown. `None` for other releases.
    pub(crate) fn if_several(&self) -> Option<Self> {
        (self.state == RecordState::PendingIfSeveral && self.name.is_none())
            .then(|| Self { state: RecordState::Pending, ..self.clone() })
    }

    pub(crate) fn namespace(&self) -> &str {
        &self.namespace
    }

    pub(crate) fn into_name(self) -> ReleaseName {
        ReleaseName { namespace: self.namespace, name: self.name }
    }

    /// Returns whether the release was read from a record, not from an object that belongs to the release.
    pub(crate) fn is_known_by_record(&self) -> bool {
        self.records.is_some()
    }

    /// Returns the resources of the release's records: one, or Secrets and ConfigMaps.
    pub(crate) fn resources(&self) -> Vec<GroupVersionResource> {
        match &self.records {
            Some(resource) => vec![resource.clone()],
            None => resources().into(),
        }
    }

    /// Returns the prefix of the records' keys. Records with one prefix are adjacent in a snapshot.
    pub(crate) fn key_prefix(&self) -> String {
        let of_name = self.name.as_ref().map(|name| format!("{name}.v"));
        format!("{}/{KEY_BEGIN}{}", self.namespace, of_name.unwrap_or_default())
    }

    /// Returns whether a record of the release may have this name.
    pub(crate) fn has_name(&self, record: &str) -> bool {
        release_of(record).is_some_and(|release| self.name.as_deref().is_none_or(|own| own == release))
    }

    /// Returns whether an object of the release's namespace is a record of the release. Labels alone are insufficient,
    /// because any client may write ConfigMaps.
    pub(crate) fn has_record(&self, resource: &GroupVersionResource, object: &Object) -> bool {
        self.has_name(object.name())
            && object.label("owner") == Some("helm")
            && object.label("name") == release_of(object.name())
            && (self.state != RecordState::Pending
                || object.label("status").is_some_and(|status| PENDING.contains(&status)))
            && (!has_type(resource) || type_of(object) == Some(TYPE.as_bytes()))
    }

    /// Returns path and query of the lookup of records of one resource. A selector cannot match names by prefix, so the
    /// answer may contain other objects.
    pub(crate) fn lookup_path(&self, resource: &GroupVersionResource) -> String {
        let name = self.name.iter().map(|name| format!(",name={name}"));
        let mut labels = "owner=helm".to_owned() + &name.collect::<String>();
        if self.state == RecordState::Pending {
            labels.push_str(&format!(",status in ({})", PENDING.join(",")));
        }
        let labels = utf8_percent_encode(&labels, NON_ALPHANUMERIC);
        let mut path = resource.path(Some(&self.namespace));
        path.push_str(&format!("?labelSelector={labels}&limit={ASKED_FOR}"));
        if has_type(resource) {
            let fields = format!("type={TYPE}");
            path.push_str(&format!("&fieldSelector={}", utf8_percent_encode(&fields, NON_ALPHANUMERIC)));
        }
        path
    }

    #[cfg(test)]
    pub(crate) fn named(namespace: &str, name: &str) -> Self {
        Self { namespace: namespace.to_owned(), name: Some(name.to_owned()), records: None, state: RecordState::Any }
    }
}

/// Returns whether the hook's annotation names only events of `helm test`, which may create the hook at any time.
fn is_test_hook(events: &str) -> bool {
    events.split(',').all(|event| matches!(event.trim(), "test" | "test-success" | "test-failure"))
}

fn type_of(object: &Object) -> Option<&[u8]> {
    let text = object.json();
    let place = json::find(text, 0, &["type"])?;
    text.get(json::string_contents(text, &place)?)
}

#[cfg(test)]
mod tests {
    use tributary_apimachinery::ObjectDecoder;

    use super::*;

    #[test]
    fn helm_release_record_is_recognized_by_name_labels_and_type() {
        let object = |name: &str, labels: &str, of_type: &str| {
            let text = format!(
                r#"{{"kind":"K","apiVersion":"v1","metadata":{{"name":"{name}","namespace":"n","uid":"u","resourceVersion":"1",
                "labels":{labels}}},"type":"{of_type}"}}"#
            );
            ObjectDecoder::new("v1", "K", [].into()).decode(text.as_bytes()).unwrap()
        };
        let of_r = r#"{"owner":"helm","name":"r"}"#;
        let (secrets, maps) = (["secrets", "configmaps"].map(|name| GroupVersionResource::new("", "v1", name))).into();
        let release = Release::named("n", "r");
        let any = Release { name: None, ..release.clone() };
        for (name, labels, of_type, expected) in [
            ("sh.helm.release.v1.r.v1", of_r, TYPE, [true, true, true, true]),
            ("sh.helm.release.v1.r.v12", of_r, "Opaque", [false, false, true, true]),
            ("sh.helm.release.v1.r.v", of_r, TYPE, [false; 4]),
            ("sh.helm.release.v1.r.v1x", of_r, TYPE, [false; 4]),
            ("r", of_r, TYPE, [false; 4]),
            // A record of the release `r.v1`, not of the release `r`.
            ("sh.helm.release.v1.r.v1.v1", r#"{"owner":"helm","name":"r.v1"}"#, TYPE, [false, true, false, true]),
            // The labels name a different release than the object's name.
            ("sh.helm.release.v1.s.v1", of_r, TYPE, [false; 4]),
            ("sh.helm.release.v1.r.v1", r#"{"owner":"me","name":"r"}"#, TYPE, [false; 4]),
        ] {
            let object = object(name, labels, of_type);
            let found = [
                release.has_record(&secrets, &object),
                any.has_record(&secrets, &object),
                release.has_record(&maps, &object),
                any.has_record(&maps, &object),
            ];
            assert_eq!(found, expected, "{name}, {labels}, {of_type}");
        }
    }

    #[test]
    fn written_object_may_be_a_helm_record_by_its_name() {
        for (path, answer, expected) in [
            ("/api/v1/namespaces/n/secrets", r#"{"metadata":{"name":"sh.helm.release.v1.r.v1"}}"#, true),
            ("/api/v1/namespaces/n/secrets", r#"{"metadata":{"name":"mine"}}"#, false),
            ("/api/v1/namespaces/n/secrets", r#"{"kind":"Status"}"#, true),
            ("/api/v1/namespaces/n/configmaps/sh.helm.release.v1.r.v1", "", true),
            ("/api/v1/namespaces/n/configmaps/mine", "", false),
            ("/api/v1/namespaces/n/pods", r#"{"metadata":{"name":"sh.helm.release.v1.r.v1"}}"#, false),
        ] {
            let info = tributary_apimachinery::RequestInfo::parse("POST", path, None).unwrap();
            assert_eq!(may_be_record(info.resource().unwrap(), answer.as_bytes()), expected, "{path}: {answer}");
        }
    }

    #[test]
    fn helm_release_is_found_by_the_namespace_or_the_annotation_of_an_object() {
        let request = |namespace: Option<&str>| ResourceRequest {
            resource: GroupVersionResource::new("", "v1", "secrets"),
            namespace: namespace.map(str::to_owned),
            name: None,
            subresource: None,
            rest: None,
            selected_name: None,
        };
        let text = |text: &str| Some(text.to_owned());
        let annotated = |namespace| ReleaseFacts { name: text("r"), namespace, ..ReleaseFacts::default() };
        let record = || ReleaseFacts { record_owner: text("helm"), record_name: text("r"), ..ReleaseFacts::default() };
        let hook = |instance| ReleaseFacts { hook: text("pre-install"), instance, ..ReleaseFacts::default() };
        for (own, name, facts, expected) in [
            (Some("n"), None, annotated(None), Some(("n", Some("r")))),
            (Some("n"), None, annotated(text("m")), Some(("m", Some("r")))),
            (None, None, annotated(text("m")), Some(("m", Some("r")))),
            (None, None, annotated(None), None),
            (None, None, annotated(text("../m")), None),
            (Some("n"), None, hook(text("r")), Some(("n", Some("r")))),
            (Some("n"), None, hook(None), Some(("n", None))),
            // The namespace of the release is unknown.
            (None, None, hook(text("r")), None),
            (Some("n"), Some("sh.helm.release.v1.r.v1"), record(), Some(("n", Some("r")))),
            (Some("n"), Some("mine"), record(), None),
            (Some("n"), Some("sh.helm.release.v1.other.v1"), record(), None),
        ] {
            let found = Release::from_facts(&request(own), name, &facts);
            let found = found.as_ref().map(|release| (&*release.namespace, release.name.as_deref()));
            assert_eq!(found, expected, "{own:?}, {name:?}, {facts:?}");
        }
    }
}
