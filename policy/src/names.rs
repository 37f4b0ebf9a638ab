//! Names of requested objects. A path can spell the name of a proxied object in several ways.
//!
//! The name of a proxied object has the form `[scheme:]name:port`. For example `web`, `web:80` and `https:web:` refer
//! to the service `web`. An entry without a colon is compared with the object's name, and an entry with a colon with
//! the spelling in the path. These rules ensure that no spelling evades a denial:
//!
//! ```text
//!                        an entry matches          an inverted entry excludes
//! a policy that denies   any spelling (wide)       only names that match as written, too (narrow)
//! any other policy       names as written, too     any spelling
//! ```

use tributary_apimachinery::RequestedResource;
use tributary_apimachinery::request_info::requested_resource::proxied_name;

use crate::pattern::{Pattern, TextPattern};

/// An entry that contains this character is compared with the spelling in the path.
const COLON: char = ':';

/// Resources of the core group that have the subresource `proxy`.
pub(crate) const PROXIED: [&str; 3] = ["nodes", "pods", "services"];

pub(crate) const PROXY: &str = "proxy";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Name<'a> {
    /// The name as written in the path.
    pub(crate) written: &'a str,
    /// The name of the object, if it differs from the spelling in the path.
    pub(crate) own: Option<&'a str>,
}

impl<'a> Name<'a> {
    pub(crate) fn from_resource(resource: &RequestedResource<'a>) -> Self {
        let written = resource.name;
        let is_proxied =
            resource.subresource == PROXY && resource.group.is_empty() && PROXIED.contains(&resource.resource);
        let own = is_proxied.then(|| proxied_name(written)).filter(|own| !own.is_empty() && *own != written);
        Self { written, own }
    }

    pub(crate) fn is_wide(self, entry: &TextPattern) -> bool {
        entry.matches(self.written) || self.own.is_some_and(|own| entry.matches(own))
    }

    /// Returns whether an entry matches the name in the path. If the entry has no colon, it must also match the
    /// object's own name. For example `http*` does not match `http:web:80`.
    pub(crate) fn is_narrow(self, entry: &TextPattern) -> bool {
        entry.matches(self.written) && self.own.is_none_or(|own| is_spelling(entry.text()) || entry.matches(own))
    }
}

/// Returns whether an entry is compared with the spelling in the path. Only such entries contain a colon, because names
/// of objects have none.
pub(crate) fn is_spelling(entry: &str) -> bool {
    entry.contains(COLON)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn name_of_a_proxied_object_is_read_without_scheme_and_port() {
        for (group, resource, subresource, written, own) in [
            ("", "services", "proxy", "web", None),
            ("", "services", "proxy", "web:80", Some("web")),
            ("", "services", "proxy", "web:", Some("web")),
            ("", "services", "proxy", "http:web:80", Some("web")),
            ("", "services", "proxy", "https:web:", Some("web")),
            ("", "services", "proxy", ":web:80", Some("web")),
            ("", "pods", "proxy", "web:80", Some("web")),
            ("", "nodes", "proxy", "https:n1:10250", Some("n1")),
            ("", "services", "proxy", "a:b:c:d", None),
            ("", "services", "proxy", ":80", None),
            ("", "services", "", "web:80", None),
            ("", "services", "status", "web:80", None),
            ("", "configmaps", "proxy", "web:80", None),
            ("example.com", "services", "proxy", "web:80", None),
            ("rbac.authorization.k8s.io", "clusterroles", "", "system:node", None),
        ] {
            let requested = RequestedResource { group, resource, subresource, namespace: "n", name: written };
            assert_eq!(
                Name::from_resource(&requested),
                Name { written, own },
                "{group}/{resource}/{subresource} {written}"
            );
        }
    }

    #[test]
    fn policy_entry_matches_an_object_name_with_or_without_scheme_and_port() {
        let name = Name { written: "http:web:80", own: Some("web") };
        for (entry, wide, narrow) in [
            ("web", true, false),
            ("we*", true, false),
            ("http*", true, false),
            ("http:*", true, true),
            ("http:web:80", true, true),
            ("web:80", false, false),
            ("other", false, false),
        ] {
            let entry = TextPattern::parse(entry);
            assert_eq!((name.is_wide(&entry), name.is_narrow(&entry)), (wide, narrow), "{entry:?}");
        }
        let name = Name { written: "web:80", own: Some("web") };
        assert!(name.is_narrow(&TextPattern::parse("we*")) && !name.is_narrow(&TextPattern::parse("web")));
        let plain = Name { written: "web", own: None };
        assert!(plain.is_narrow(&TextPattern::parse("web")) && plain.is_wide(&TextPattern::parse("w*")));
    }
}
