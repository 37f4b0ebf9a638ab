//! Rewrites request bodies for a member: replaces versions of the merged view by the member's versions, and removes the
//! cluster annotation.
//!
//! Clients send back the resourceVersions and the cluster annotation of the merged view. [`RequestBody::facts`] reads
//! both to find the object's cluster, and [`RequestBody::rewritten`] replaces them in the format of the body: JSON,
//! YAML, protobuf or a patch. All other bytes stay unchanged. The module has no state: a function of the caller
//! translates each version.

mod body;
mod format;
mod json_body;
mod json_patch;
mod protobuf;
mod query;
mod refusal;
mod write_result;
mod yaml;

use std::borrow::Cow;

use bytes::Bytes;

pub use body::{RequestBody, YamlBody};
pub use format::{BodyKind, Format};
pub use query::{rewrite_query, without_clusters, without_parameter};
pub use refusal::{parse_protobuf_status, read_status, status_message};
pub use write_result::{WriteResult, deleted_by_change};

use crate::{Query, Status};

/// The fields of a body that identify its object and cluster. For a JSON patch, only fields that its operations set or
/// test are present.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Facts {
    /// `apiVersion`.
    pub api_version: Option<String>,
    /// `kind`.
    pub kind: Option<String>,
    /// `metadata.name`.
    pub name: Option<String>,
    /// `metadata.generateName`.
    pub generate_name: Option<String>,
    /// `metadata.namespace`.
    pub namespace: Option<String>,
    /// `metadata.uid`.
    pub uid: Option<String>,
    /// `metadata.resourceVersion`.
    pub resource_version: Option<String>,
    /// The cluster name in the cluster annotation, not validated.
    pub cluster: Option<String>,
    /// `metadata.ownerReferences`.
    pub owners: Vec<Reference>,
    /// The labels and annotations that name the Helm release of the object.
    pub release: ReleaseFacts,
    /// `spec.nodeName` of a Pod.
    pub node_name: Option<String>,
    /// `target` of a Binding.
    pub target: Option<Reference>,
    /// `involvedObject` or `regarding` of an Event.
    pub involved: Option<Reference>,
    /// `preconditions.uid` of DeleteOptions, also in an Eviction.
    pub precondition_uid: Option<String>,
    /// `preconditions.resourceVersion` of DeleteOptions, also in an Eviction.
    pub precondition_resource_version: Option<String>,
    /// `dryRun` of DeleteOptions, also in an Eviction.
    pub dry_run: Vec<String>,
}

/// The labels and annotations that name the Helm release of an object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReleaseFacts {
    /// The label `owner`. Its value is `helm` on a release record, the Secret or ConfigMap in which Helm stores a
    /// release.
    pub record_owner: Option<String>,
    /// The label `name`. On a release record, its value is the name of the release.
    pub record_name: Option<String>,
    /// The annotation `meta.helm.sh/release-name`.
    pub name: Option<String>,
    /// The annotation `meta.helm.sh/release-namespace`.
    pub namespace: Option<String>,
    /// The annotation `helm.sh/hook`. Helm sets none of the other fields on a hook.
    pub hook: Option<String>,
    /// The label `app.kubernetes.io/instance`: the name of the release in charts that follow Helm's conventions.
    pub instance: Option<String>,
}

impl ReleaseFacts {
    /// Returns `self` with its absent fields filled from `other`.
    fn or(self, other: Self) -> Self {
        Self {
            record_owner: self.record_owner.or(other.record_owner),
            record_name: self.record_name.or(other.record_name),
            name: self.name.or(other.name),
            namespace: self.namespace.or(other.namespace),
            hook: self.hook.or(other.hook),
            instance: self.instance.or(other.instance),
        }
    }
}

/// The label by which Helm finds its release records, and the label with the release's name.
const RECORD_OWNER_LABEL: &str = "owner";
const RECORD_NAME_LABEL: &str = "name";

/// The prefixes of the cluster annotations, up to the first character that JSON, YAML or a JSON pointer may escape.
pub const ANNOTATION_PREFIXES: [&str; 2] = ["tributary.dev", "resource.karmada.io"];

/// The annotations with which Helm marks the objects of a release (`pkg/action/validate.go` of Helm 3 and 4).
const RELEASE_NAME_ANNOTATION: &str = "meta.helm.sh/release-name";
const RELEASE_NAMESPACE_ANNOTATION: &str = "meta.helm.sh/release-namespace";

/// The annotation that makes an object of a chart a hook, and the label with which the chart may name the release.
const HOOK_ANNOTATION: &str = "helm.sh/hook";
const INSTANCE_LABEL: &str = "app.kubernetes.io/instance";

/// The maximum number of an object's owner references, and of values of `dryRun`. 1,000: objects have a few. Without a
/// limit, a body with two bytes for each entry would take a hundred times its size in memory.
const LISTED_MAX: usize = 1_000;

impl Facts {
    /// Reads the options of a delete without a body from the query, as a member does
    /// (`Convert_url_Values_To_v1_DeleteOptions` in apimachinery). With a body, a member ignores the query.
    pub fn from_delete_query(query: Option<&str>) -> Self {
        let query = Query::parse(query);
        let text = |name| query.get(name).filter(|value| !value.is_empty()).map(str::to_owned);
        Self {
            precondition_uid: text("uid"),
            precondition_resource_version: text("resourceVersion"),
            dry_run: text("dryRun").into_iter().collect(),
            ..Self::default()
        }
    }

    /// Refuses a body with more owners or `dryRun` values than the maximum. The parsers stop after one value above the
    /// maximum, which is enough for this check.
    fn within_bounds(self) -> Result<Self, Status> {
        for (field, count) in [("metadata.ownerReferences", self.owners.len()), ("dryRun", self.dry_run.len())] {
            if count > LISTED_MAX {
                return Err(Status::bad_request(format!("{field} has more than {LISTED_MAX} items")));
            }
        }
        Ok(self)
    }
}

/// A reference to another object. Absent fields are empty.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reference {
    /// The `apiVersion` field.
    pub api_version: String,
    /// The `kind` field.
    pub kind: String,
    /// The `namespace` field; empty for owners, which are in the namespace of their dependents.
    pub namespace: String,
    /// The `name` field.
    pub name: String,
    /// The `uid` field.
    pub uid: String,
}

/// The role of a resourceVersion in a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum VersionOf {
    /// The resourceVersion of the object itself: a precondition of the request.
    Object,
    /// The resourceVersion of the object that an Event refers to: information only.
    Reference,
}

/// Translates a resourceVersion of the merged view into the member's resourceVersion. An empty result removes the
/// resourceVersion from the body.
pub type Translate<'a> = &'a mut dyn FnMut(VersionOf, &str) -> Result<String, Status>;

/// A rewritten body for a member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rewritten {
    /// The body. Without a change, the original bytes are shared and not copied.
    pub body: Bytes,
    /// The new media type of the body; `None` if the media type stays. YAML becomes JSON.
    pub content_type: Option<&'static str>,
}

/// Reads the fields of a body that identify its object and cluster, like [`RequestBody::facts`]. YAML takes one to two
/// microseconds for each byte.
///
/// # Errors
/// 400 for a body that does not match its format, or lists more than 1,000 owners.
pub fn read(format: Format, shape: BodyKind, body: &[u8]) -> Result<Facts, Status> {
    match format {
        Format::Yaml | Format::ApplyYaml if !body.is_empty() => body::facts(format, shape, &yaml::to_json(body)?),
        _ => body::facts(format, shape, body),
    }
}

/// Converts a YAML body to JSON. A JSON body is returned unchanged.
///
/// # Errors
/// 400 for a text that is not YAML, and for YAML whose aliases and merge keys add too much.
pub fn yaml_to_json(body: &[u8]) -> Result<Cow<'_, [u8]>, Status> {
    yaml::to_json(body)
}

/// Rewrites a body of any format, like [`RequestBody::rewritten`]. YAML is converted to JSON first.
///
/// # Errors
/// 400 for a body that does not match its format, and the errors of `version`.
pub fn rewrite(
    format: Format,
    shape: BodyKind,
    body: &Bytes,
    has_annotations: bool,
    version: Translate<'_>,
) -> Result<Rewritten, Status> {
    let body = RequestBody::new(format, body.clone()).or_else(YamlBody::convert)?;
    body.rewritten(shape, has_annotations, version)
}

/// Returns whether a text of `texts` could be in the body, in the reading of any parser. True if the body could contain
/// a text in a different spelling, such as an escape. The texts have only ASCII letters, digits, `.` and `-`.
pub fn may_contain(format: Format, body: &[u8], texts: &[&str]) -> bool {
    let holds = |text: &str| body.windows(text.len()).any(|part| part == text.as_bytes());
    let may_hide_text = match format {
        Format::Yaml | Format::ApplyYaml => yaml::may_hide_text(body),
        Format::Json | Format::MergePatch | Format::StrategicMergePatch => holds("\\u"),
        // The operations `copy` and `move` insert values that are not in the patch, so the values could contain any of
        // the texts.
        Format::JsonPatch => ["\\u", "\"copy\"", "\"move\""].into_iter().any(holds),
        Format::Protobuf => false,
    };
    may_hide_text || texts.iter().any(|text| holds(text))
}

/// Returns the member's version for a version of the merged view; `None` if both texts are equal. An empty text is not
/// a version and stays.
fn translate(of: VersionOf, version: Translate<'_>, text: &str) -> Result<Option<String>, Status> {
    if text.is_empty() {
        return Ok(None);
    }
    version(of, text).map(|new| (new != text).then_some(new))
}

#[cfg(test)]
mod equivalence;
#[cfg(test)]
mod tests;
