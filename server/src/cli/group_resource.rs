//! Parses a resource and its group in flags: `pods`, `deployments.apps`.

/// A resource and its group, written `deployments.apps`; `pods` for the core group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupResource {
    /// The group; empty for the core group.
    pub group: String,
    /// The plural name.
    pub resource: String,
}

impl std::str::FromStr for GroupResource {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (resource, group) = text.split_once('.').unwrap_or((text, ""));
        let is_plain = !resource.is_empty() && !text.contains(['/', '*', ' ']) && !text.ends_with('.');
        is_plain
            .then(|| Self { group: group.to_lowercase(), resource: resource.to_lowercase() })
            .ok_or_else(|| "must be a resource or resource.group, such as pods or deployments.apps".to_owned())
    }
}

impl std::fmt::Display for GroupResource {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.resource)?;
        if self.group.is_empty() { Ok(()) } else { write!(f, ".{}", self.group) }
    }
}
