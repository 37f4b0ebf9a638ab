//! Annotations of foreign objects that Tributary reads.

/// The annotation of an item with the name of its member.
pub const CLUSTER_NAME: &str = "tributary.dev/cluster-name";

/// The annotation of an item with the index of its member in integer item versions.
pub const CLUSTER_INDEX: &str = "tributary.dev/cluster-index";

/// The annotation of a Secret with the only member that gets the credential (`docs/hub.md`).
pub(crate) const CREDENTIAL_OF: &str = "tributary.dev/credential-of";

/// The annotation of a Secret with the only hosts that get the credential, separated by commas.
pub(crate) const CREDENTIAL_HOSTS: &str = "tributary.dev/hosts";
