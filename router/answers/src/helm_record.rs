//! Names of Helm's release records: Secrets or ConfigMaps named after the release and its revision.
//!
//! Source: `pkg/storage/driver` (`secrets.go`, `cfgmaps.go`) and `pkg/storage/storage.go` (`makeKey`) of Helm 3 and 4.

use tributary_apimachinery::GroupVersionResource;

/// Prefix of the names of release records. The release's name, `.v` and the revision follow the prefix.
pub const KEY_BEGIN: &str = "sh.helm.release.v1.";

/// Type of the Secrets that are release records.
pub const TYPE: &str = "helm.sh/release.v1";

/// Resources in which Helm stores release records.
const RESOURCES: [&str; 2] = [SECRETS, "configmaps"];

const SECRETS: &str = "secrets";

/// Returns the resources in which Helm stores release records.
pub fn resources() -> [GroupVersionResource; 2] {
    RESOURCES.map(|name| GroupVersionResource::new("", "v1", name))
}

/// Returns whether the resource is one in which Helm stores release records.
pub fn are_records(resource: &GroupVersionResource) -> bool {
    resource.group.is_empty() && RESOURCES.contains(&&*resource.resource)
}

/// Returns whether an object of this name may be a Helm release record.
pub fn is_record(resource: &GroupVersionResource, name: &[u8]) -> bool {
    are_records(resource) && name.starts_with(KEY_BEGIN.as_bytes())
}

/// Returns whether release records in the resource have the type [`TYPE`]. True for Secrets, because only Helm creates
/// Secrets of this type. ConfigMaps have no type.
pub fn has_type(resource: &GroupVersionResource) -> bool {
    &*resource.resource == SECRETS
}

/// Returns the release's name from the name of its record. `None` if the object does not have a record's name.
pub fn release_of(name: &str) -> Option<&str> {
    let (release, revision) = name.strip_prefix(KEY_BEGIN)?.rsplit_once(".v")?;
    let is_number = !revision.is_empty() && revision.bytes().all(|byte| byte.is_ascii_digit());
    (is_number && !release.is_empty()).then_some(release)
}
