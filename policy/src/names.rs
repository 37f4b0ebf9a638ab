//! The name of a request's object, of which a path may have several spellings.
//!
//! What is proxied is named `[scheme:]name:port`: `web`, `web:80` and `https:web:` all lead to the service `web`. An
//! entry without a colon is about the object, one with a colon about what the path says. Which spelling counts is
//! decided so that no other spelling gets past a denial:
//!
//! ```text
//!                        an entry takes            an inverted entry spares
//! a policy that denies   every spelling (wide)     what matches as it stands, too (narrow)
//! any other policy       as it stands, too         every spelling
//! ```

use tributary_apimachinery::RequestedResource;
use tributary_apimachinery::request_info::requested_resource::proxied_name;

use crate::pattern::{Pattern, TextPattern};

/// What stands in an entry that is about the path's own spelling.
const COLON: char = ':';

/// Kubernetes' own resources that can be proxied, of the core group.
pub(crate) const PROXIED: [&str; 3] = ["nodes", "pods", "services"];

/// The subresource.
pub(crate) const PROXY: &str = "proxy";

/// The name of a request's object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Name<'a> {
    /// As the path has it.
    pub(crate) written: &'a str,
    /// The object's own, where that is another.
    pub(crate) own: Option<&'a str>,
}

impl<'a> Name<'a> {
    /// That of a request.
    pub(crate) fn from_resource(resource: &RequestedResource<'a>) -> Self {
        let written = resource.name;
        let is_proxied =
            resource.subresource == PROXY && resource.group.is_empty() && PROXIED.contains(&resource.resource);
        let own = is_proxied.then(|| proxied_name(written)).filter(|own| !own.is_empty() && *own != written);
        Self { written, own }
    }

    /// Whether an entry matches some spelling.
    pub(crate) fn is_wide(self, entry: &TextPattern) -> bool {
        entry.matches(self.written) || self.own.is_some_and(|own| entry.matches(own))
    }

    /// Whether an entry matches as the path has it, and the object's own name unless it is about the spelling: `http*`
    /// is not about `http:web:80`.
    pub(crate) fn is_narrow(self, entry: &TextPattern) -> bool {
        entry.matches(self.written) && self.own.is_none_or(|own| is_of_spelling(entry.text()) || entry.matches(own))
    }
}

/// Whether an entry is about what the path says: names of objects have no colon.
pub(crate) fn is_of_spelling(entry: &str) -> bool {
    entry.contains(COLON)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_proxied_has_a_name_of_its_own() {
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
            let asked = RequestedResource { group, resource, subresource, namespace: "n", name: written };
            assert_eq!(
                Name::from_resource(&asked),
                Name { written, own },
                "{group}/{resource}/{subresource} {written}"
            );
        }
    }

    #[test]
    fn an_entry_is_about_the_object_or_about_the_spelling() {
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
