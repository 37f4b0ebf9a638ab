//! A resource and its group, as flags name them.

/// A resource and its group, written `deployments.apps`; of the core group the resource alone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupResource {
    /// The group; empty for the core group.
    pub group: String,
    /// The plural.
    pub resource: String,
}

impl std::str::FromStr for GroupResource {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (resource, group) = text.split_once('.').unwrap_or((text, ""));
        let is_plain = !resource.is_empty() && !text.contains(['/', '*', ' ']) && !text.ends_with('.');
        is_plain
            .then(|| Self { group: group.to_lowercase(), resource: resource.to_lowercase() })
            .ok_or_else(|| "must be a resource, or resource.group: pods, deployments.apps".to_owned())
    }
}

impl std::fmt::Display for GroupResource {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.resource)?;
        if self.group.is_empty() { Ok(()) } else { write!(f, ".{}", self.group) }
    }
}
