//! What the records of Helm's releases are called: Secrets or ConfigMaps whose name says of which release they are, and
//! of which revision.
//!
//! Source: `pkg/storage/driver` (`secrets.go`, `cfgmaps.go`) and `pkg/storage/storage.go` (`makeKey`) of Helm 3 and 4.

use tributary_apimachinery::GroupVersionResource;

/// What the names of records begin with. The release follows, `.v` and the number of its revision.
pub const KEY_BEGIN: &str = "sh.helm.release.v1.";

/// The type of Secrets that are records.
pub const TYPE: &str = "helm.sh/release.v1";

/// What records may be.
const RESOURCES: [&str; 2] = [SECRETS, "configmaps"];

const SECRETS: &str = "secrets";

/// The resources that records may be of.
pub fn resources() -> [GroupVersionResource; 2] {
    RESOURCES.map(|name| GroupVersionResource::new("", "v1", name))
}

/// Whether objects of a resource may be records.
pub fn are_records(resource: &GroupVersionResource) -> bool {
    resource.group.is_empty() && RESOURCES.contains(&&*resource.resource)
}

/// Whether an object of this name may be a record.
pub fn is_record(resource: &GroupVersionResource, name: &[u8]) -> bool {
    are_records(resource) && name.starts_with(KEY_BEGIN.as_bytes())
}

/// Whether the records of a resource have a [`TYPE`]: nobody but Helm makes Secrets of it.
pub fn has_type(resource: &GroupVersionResource) -> bool {
    &*resource.resource == SECRETS
}

/// The release whose record has this name.
pub fn release_of(name: &str) -> Option<&str> {
    let (release, revision) = name.strip_prefix(KEY_BEGIN)?.rsplit_once(".v")?;
    let is_number = !revision.is_empty() && revision.bytes().all(|byte| byte.is_ascii_digit());
    (is_number && !release.is_empty()).then_some(release)
}
