//! Annotations of foreign objects that Tributary reads.

/// Annotation of an object in a foreign list. Sets the name of the member that the object becomes.
pub const CLUSTER_NAME: &str = "tributary.dev/cluster-name";

/// Annotation of an object in a foreign list. Sets the cluster index of its member, which integer resourceVersions of
/// objects contain.
pub const CLUSTER_INDEX: &str = "tributary.dev/cluster-index";

/// Annotation of a Secret. Names the only member that may use the Secret's credential (`docs/hub.md`).
pub(crate) const CREDENTIAL_OF: &str = "tributary.dev/credential-of";

/// Annotation of a Secret. Lists the only hosts to which Tributary may send the Secret's credential, separated by
/// commas.
pub(crate) const CREDENTIAL_HOSTS: &str = "tributary.dev/hosts";
