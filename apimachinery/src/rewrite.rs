//! Request bodies on their way to a member: versions become the member's own, and the cluster annotation goes.
//!
//! Clients send back what the merged view gave them: its resourceVersions and its annotation. Both are read here
//! ([`RequestBody::facts`]) to find the owner, and replaced here ([`RequestBody::rewritten`]) in the wire form that
//! came, be it JSON, YAML, protobuf or one of the patches. Only the places concerned are touched; everything else stays
//! byte for byte. Pure: what a version becomes is the caller's answer.

mod body;
mod format;
mod json_body;
mod json_patch;
mod protobuf;
mod query;
mod said;
mod written;
mod yaml;

use std::borrow::Cow;

use bytes::Bytes;

pub use body::{RequestBody, YamlBody};
pub use format::{BodyKind, Format};
pub use query::{rewrite_query, without_clusters, without_parameter};
pub use said::{read_status, status_message, status_of_protobuf};
pub use written::{WriteResult, deleted_by_change};

use crate::{Query, Status};

/// What a body says about the object that it is for. Of a JSON patch only what its operations set or test is known.
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
    /// The annotation that names a cluster; not checked to be one's name.
    pub cluster: Option<String>,
    /// `metadata.ownerReferences`.
    pub owners: Vec<Reference>,
    /// What labels and annotations say of the Helm release that the object belongs to.
    pub release: ReleaseFacts,
    /// `spec.nodeName` of a Pod.
    pub node_name: Option<String>,
    /// `target` of a Binding.
    pub target: Option<Reference>,
    /// `involvedObject` or `regarding` of an Event.
    pub involved: Option<Reference>,
    /// `preconditions.uid` of DeleteOptions, in an Eviction too.
    pub precondition_uid: Option<String>,
    /// `preconditions.resourceVersion` of DeleteOptions, in an Eviction too.
    pub precondition_resource_version: Option<String>,
    /// `dryRun` of DeleteOptions, in an Eviction too.
    pub dry_run: Vec<String>,
}

/// What labels and annotations say of the Helm release that an object belongs to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReleaseFacts {
    /// The label `owner`: `helm` on the records of a release, which are Secrets or ConfigMaps.
    pub record_owner: Option<String>,
    /// The label `name`: on a record, the name of its release.
    pub record_name: Option<String>,
    /// The annotation `meta.helm.sh/release-name`.
    pub name: Option<String>,
    /// The annotation `meta.helm.sh/release-namespace`.
    pub namespace: Option<String>,
    /// The annotation `helm.sh/hook`. Helm writes none of the above on a hook.
    pub hook: Option<String>,
    /// The label `app.kubernetes.io/instance`: the name of the release, in charts that follow Helm's conventions.
    pub instance: Option<String>,
}

impl ReleaseFacts {
    /// What is said here, and what `other` says where nothing is.
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

/// The label by which Helm finds the records of its releases, and the one that names the release.
const RECORD_OWNER_LABEL: &str = "owner";
const RECORD_NAME_LABEL: &str = "name";

/// How our annotation begins, up to what JSON, YAML or a JSON pointer may write in another way.
pub const ANNOTATION_PREFIX: &str = "tributary.dev";

/// The annotations by which Helm knows what belongs to a release (`pkg/action/validate.go` of Helm 3 and 4).
const RELEASE_NAME_ANNOTATION: &str = "meta.helm.sh/release-name";
const RELEASE_NAMESPACE_ANNOTATION: &str = "meta.helm.sh/release-namespace";

/// The annotation that makes an object of a chart a hook, and the label by which its chart may say of which release.
const HOOK_ANNOTATION: &str = "helm.sh/hook";
const INSTANCE_LABEL: &str = "app.kubernetes.io/instance";

/// The most owners that an object may name, and the most values of `dryRun`. Objects have a handful; a body of two
/// bytes for each would take a hundred times its size once it is read.
const LISTED_MAX: usize = 1_000;

impl Facts {
    /// The options of a delete without a body, which a member reads from the query
    /// (`Convert_url_Values_To_v1_DeleteOptions` in apimachinery). With a body it does not look at the query.
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

    /// Refuses a body that lists more than is kept of it: whoever reads one keeps one item more than it may have.
    fn within_bounds(self) -> Result<Self, Status> {
        for (field, count) in [("metadata.ownerReferences", self.owners.len()), ("dryRun", self.dry_run.len())] {
            if count > LISTED_MAX {
                return Err(Status::bad_request(format!("{field} has more than {LISTED_MAX} items")));
            }
        }
        Ok(self)
    }
}

/// A reference to another object. What is not given is empty.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reference {
    /// `apiVersion`.
    pub api_version: String,
    /// `kind`.
    pub kind: String,
    /// `namespace`; owners have none, because they live in the namespace of what they own.
    pub namespace: String,
    /// `name`.
    pub name: String,
    /// `uid`.
    pub uid: String,
}

/// What a version in a body is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum VersionOf {
    /// The object itself: a precondition of the request.
    Object,
    /// Another object that an Event is about: a note, on which nothing depends.
    Reference,
}

/// What a version becomes; the empty text takes it out.
pub type Translate<'a> = &'a mut dyn FnMut(VersionOf, &str) -> Result<String, Status>;

/// A body for a member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rewritten {
    /// The body; the same bytes, not copied, where nothing had to change.
    pub body: Bytes,
    /// The media type, where it is another than the one that came (YAML becomes JSON).
    pub content_type: Option<&'static str>,
}

/// Reads a body at once. YAML takes one to two microseconds for each byte. See [`RequestBody::facts`].
///
/// # Errors
/// 400 for a body that does not match its format, or lists more than 1,000 owners.
pub fn read(format: Format, shape: BodyKind, body: &[u8]) -> Result<Facts, Status> {
    match format {
        Format::Yaml | Format::ApplyYaml if !body.is_empty() => body::facts(format, shape, &yaml::to_json(body)?),
        _ => body::facts(format, shape, body),
    }
}

/// Converts a body in YAML to JSON at once; returns JSON unchanged.
///
/// # Errors
/// 400 for a text that is not YAML, and for YAML whose aliases and merge keys add too much.
pub fn yaml_to_json(body: &[u8]) -> Result<Cow<'_, [u8]>, Status> {
    yaml::to_json(body)
}

/// Rewrites a body at once, YAML included. See [`RequestBody::rewritten`].
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

/// Whether a body may hold one of these texts, for whoever reads it. They are of ASCII letters, digits, `.` and `-`;
/// where they could stand in another way than as themselves, it may.
pub fn may_hold(format: Format, body: &[u8], texts: &[&str]) -> bool {
    let holds = |text: &str| body.windows(text.len()).any(|part| part == text.as_bytes());
    let may_hide_text = match format {
        Format::Yaml | Format::ApplyYaml => yaml::may_hide_text(body),
        Format::Json | Format::MergePatch | Format::StrategicMergePatch => holds("\\u"),
        // These bring what does not stand in the patch.
        Format::JsonPatch => ["\\u", "\"copy\"", "\"move\""].into_iter().any(holds),
        Format::Protobuf => false,
    };
    may_hide_text || texts.iter().any(|text| holds(text))
}

/// What `version` makes of a text; the empty text is no version and stays.
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
