//! Names of the records of Helm releases: Secrets or ConfigMaps named after the release and its revision.
//!
//! Source: `pkg/storage/driver` (`secrets.go`, `cfgmaps.go`) and `pkg/storage/storage.go` (`makeKey`) of Helm 3 and 4.

use tributary_apimachinery::GroupVersionResource;

/// Prefix of the names of records. The release, `.v` and the number of the revision follow.
pub const KEY_BEGIN: &str = "sh.helm.release.v1.";

/// The type of Secrets that are records.
pub const TYPE: &str = "helm.sh/release.v1";

/// Resources that Helm uses for records.
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

/// Whether the records of a resource have a [`TYPE`]: only Helm makes Secrets of that type.
pub fn has_type(resource: &GroupVersionResource) -> bool {
    &*resource.resource == SECRETS
}

/// Name of the release of a record, or `None` for an object that is not named like a record.
pub fn release_of(name: &str) -> Option<&str> {
    let (release, revision) = name.strip_prefix(KEY_BEGIN)?.rsplit_once(".v")?;
    let is_number = !revision.is_empty() && revision.bytes().all(|byte| byte.is_ascii_digit());
    (is_number && !release.is_empty()).then_some(release)
}
