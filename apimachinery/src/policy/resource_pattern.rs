//! The names of resources in a registry and in `--resources`.

use std::fmt;
use std::str::FromStr;

use crate::GroupVersionResource;

/// An entry of a registry's `resources`, or of `--resources`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum ResourcePattern {
    /// `*`: each resource with the verbs list and watch.
    All,
    /// A single resource.
    Resource {
        /// The API group; empty for the core group.
        group: String,
        /// The version; `None` for any version.
        version: Option<String>,
        /// The plural name of the resource.
        resource: String,
    },
}

/// The error for a text that does not name a resource.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} does not name a resource; allowed are \"*\", a plural name of the core group (\"pods\"), \"resource.group\" (\"deployments.apps\") and \"group/version/resource\" (\"apps/v1/deployments\")"
)]
pub struct InvalidResourcePattern(pub String);

impl ResourcePattern {
    /// Returns whether the pattern matches a resource.
    pub fn matches(&self, candidate: &GroupVersionResource) -> bool {
        match self {
            Self::All => true,
            Self::Resource { group, version, resource } => {
                **resource == *candidate.resource
                    && **group == *candidate.group
                    && version.as_ref().is_none_or(|version| **version == *candidate.version)
            }
        }
    }

    /// Returns the plural name in the pattern; `*` for all resources.
    pub fn resource_name(&self) -> &str {
        match self {
            Self::All => "*",
            Self::Resource { resource, .. } => resource,
        }
    }

    /// Returns whether one resource could match both this pattern and `other`.
    pub fn overlaps(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::All, _) | (_, Self::All) => true,
            (
                Self::Resource { group, version, resource },
                Self::Resource { group: other_group, version: other_version, resource: other_resource },
            ) => {
                (group, resource) == (other_group, other_resource)
                    && (version.is_none() || other_version.is_none() || version == other_version)
            }
        }
    }
}

impl FromStr for ResourcePattern {
    type Err = InvalidResourcePattern;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text == "*" {
            return Ok(Self::All);
        }
        let parts: Vec<&str> = text.split('/').collect();
        let (group, version, resource) = match *parts {
            [name] => by_name(name),
            // The core group has no name, so its version is the first part.
            [version, resource] => ("", Some(version), resource),
            [group, version, resource] if !group.is_empty() => (group, Some(version), resource),
            _ => return Err(InvalidResourcePattern(text.to_owned())),
        };
        let valid = is_label(resource)
            && !text.ends_with('.')
            && version.is_none_or(is_version)
            && (group.is_empty() || group.split('.').all(is_label));
        if !valid {
            return Err(InvalidResourcePattern(text.to_owned()));
        }
        Ok(Self::Resource {
            group: group.to_owned(),
            version: version.map(str::to_owned),
            resource: resource.to_owned(),
        })
    }
}

impl fmt::Display for ResourcePattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::All => f.write_str("*"),
            Self::Resource { group, version: None, resource } if group.is_empty() => f.write_str(resource),
            Self::Resource { group, version: None, resource } => write!(f, "{resource}.{group}"),
            Self::Resource { group, version: Some(version), resource } if group.is_empty() => {
                write!(f, "{version}/{resource}")
            }
            Self::Resource { group, version: Some(version), resource } => write!(f, "{group}/{version}/{resource}"),
        }
    }
}

/// Splits `resource`, `resource.group` or kubectl's `resource.version.group` into group, version and resource.
fn by_name(name: &str) -> (&str, Option<&str>, &str) {
    let Some((resource, rest)) = name.split_once('.') else {
        return ("", None, name);
    };
    match rest.split_once('.') {
        Some((version, group)) if is_version(version) => (group, Some(version), resource),
        _ => (rest, None, resource),
    }
}

fn is_label(text: &str) -> bool {
    let inner = text.bytes().all(|byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-'));
    inner && !text.is_empty() && text.len() <= 63 && !text.starts_with('-') && !text.ends_with('-')
}

/// Returns whether a text is a version such as `v1`, `v2beta1` or `v1alpha1`.
fn is_version(text: &str) -> bool {
    let Some(rest) = text.strip_prefix('v') else {
        return false;
    };
    let number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let stage = rest.split_once("alpha").or_else(|| rest.split_once("beta"));
    stage.map_or(number(rest), |(major, minor)| number(major) && number(minor))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resource_patterns_parse_print_and_match_resources() {
        let pods = GroupVersionResource::new("", "v1", "pods");
        let deployments = GroupVersionResource::new("apps", "v1", "deployments");
        let certificates = GroupVersionResource::new("cert-manager.io", "v1", "certificates");
        for (text, written, matches) in [
            ("*", "*", [true, true, true]),
            ("pods", "pods", [true, false, false]),
            ("v1/pods", "v1/pods", [true, false, false]),
            ("v2/pods", "v2/pods", [false, false, false]),
            ("deployments", "deployments", [false, false, false]),
            ("deployments.apps", "deployments.apps", [false, true, false]),
            ("deployments.v1.apps", "apps/v1/deployments", [false, true, false]),
            ("deployments.v2.apps", "apps/v2/deployments", [false, false, false]),
            ("apps/v1/deployments", "apps/v1/deployments", [false, true, false]),
            ("apps/v1beta1/deployments", "apps/v1beta1/deployments", [false, false, false]),
            ("certificates.cert-manager.io", "certificates.cert-manager.io", [false, false, true]),
            ("certificates.v1.cert-manager.io", "cert-manager.io/v1/certificates", [false, false, true]),
            ("foos.v1alpha1.example.com", "example.com/v1alpha1/foos", [false, false, false]),
        ] {
            let pattern: ResourcePattern = text.parse().unwrap();
            assert_eq!(pattern.to_string(), written, "{text}");
            let matched = [&pods, &deployments, &certificates].map(|resource| pattern.matches(resource));
            assert_eq!(matched, matches, "{text}");
        }
    }

    #[test]
    fn resource_pattern_without_a_resource_name_is_refused() {
        for bad in ["", "Pods", "pods/", "/pods", "/v1/pods", "apps/deployments", "a/v1/b/c", "pods.", "*.apps", "a b"]
        {
            let refused = bad.parse::<ResourcePattern>().unwrap_err().to_string();
            assert!(refused.starts_with(&format!("{bad:?} does not name a resource; allowed are")), "{refused}");
        }
    }

    #[test]
    fn resource_patterns_overlap_if_both_can_match_one_resource() {
        let pattern = |text: &str| text.parse::<ResourcePattern>().unwrap();
        for (one, other, expected) in [
            ("*", "pods", true),
            ("deployments.apps", "apps/v1/deployments", true),
            ("apps/v1beta1/deployments", "apps/v1/deployments", false),
            ("pods", "services", false),
        ] {
            assert_eq!(pattern(one).overlaps(&pattern(other)), expected, "{one} {other}");
            assert_eq!(pattern(other).overlaps(&pattern(one)), expected, "{other} {one}");
        }
    }
}
