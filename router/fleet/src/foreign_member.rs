//! A member as a foreign system knows it.

use std::collections::BTreeMap;

use tributary_apimachinery::{ClusterName, ForeignSystem};

/// A member that an object of a foreign system describes, with the facts that the door of this system shows. A member
/// can have several names, also in one system.
#[derive(Clone, Debug, PartialEq)]
pub struct ForeignMember {
    /// The system with the object.
    pub system: ForeignSystem,
    /// The name in the paths of the system.
    pub name: String,
    /// The name of the member in Tributary.
    pub cluster: ClusterName,
    /// The labels of the object in the foreign system.
    pub labels: BTreeMap<String, String>,
    /// The creation time of the object, in RFC 3339.
    pub created: String,
}
