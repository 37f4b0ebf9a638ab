//! Decides which events an audit policy requires for a request (apiserver `pkg/audit/policy/checker.go`).

use std::borrow::Cow;

use percent_encoding::percent_decode_str;
use tributary_apimachinery::{RequestInfo, RequestTarget, RequestedResource};

use crate::{AuditPolicy, GroupResources, Level, PolicyRule, Stages};

/// The attributes of a request that audit policies match.
#[derive(Clone, Debug)]
pub struct AuditAttributes<'a> {
    /// The name and the groups of the user; `None` for an unauthenticated request.
    pub user: Option<(&'a str, &'a [String])>,
    /// The RBAC verb of a resource request; empty for an HTTP method that resources do not support. For a non-resource
    /// request, the HTTP method in lower case.
    pub verb: &'a str,
    /// The path with its escapes decoded, so that a rule matches every spelling of the path.
    pub path: Cow<'a, str>,
    /// The requested resource; `None` for a non-resource request.
    pub resource: Option<RequestedResource<'a>>,
}

impl<'a> AuditAttributes<'a> {
    /// Returns the attributes of a parsed request.
    pub fn from_request(info: &'a RequestInfo, user: Option<(&'a str, &'a [String])>) -> Self {
        let resource = match &info.target {
            RequestTarget::NonResource => None,
            RequestTarget::Resource(request) => Some(RequestedResource::from_request(request)),
        };
        Self { user, verb: info.requested_verb(), path: decoded(&info.path), resource }
    }
}

/// Decodes the percent escapes of a text. Does not allocate for a text without escapes.
pub fn decoded(text: &str) -> Cow<'_, str> {
    if text.contains('%') { percent_decode_str(text).decode_utf8_lossy() } else { Cow::Borrowed(text) }
}

/// The policy's decision about the events of a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AuditDecision {
    /// The level of detail of the request's events.
    pub level: Level,
    /// The stages at which no event is written.
    pub omit_stages: Stages,
    /// Whether the bodies in events omit `metadata.managedFields`.
    pub omit_managed_fields: bool,
}

impl AuditDecision {
    /// Combines the decisions of two policies. The higher level applies. Stages and fields are omitted only if both
    /// decisions omit them.
    #[must_use]
    pub fn or(self, other: Self) -> Self {
        match (self.level, other.level) {
            (Level::None, _) => other,
            (_, Level::None) => self,
            (own, others) => Self {
                level: own.max(others),
                omit_stages: self.omit_stages.intersection(other.omit_stages),
                omit_managed_fields: self.omit_managed_fields && other.omit_managed_fields,
            },
        }
    }
}

impl AuditPolicy {
    /// Decides about a request by the first matching rule. The level is `None` if no rule matches. Costs a few string
    /// comparisons per rule.
    pub fn decide(&self, attributes: &AuditAttributes<'_>) -> AuditDecision {
        match self.rules.iter().find(|rule| rule.matches(attributes)) {
            Some(rule) => AuditDecision {
                level: rule.level,
                omit_stages: rule.omit_stages,
                omit_managed_fields: rule.omit_managed_fields,
            },
            None => AuditDecision {
                level: Level::None,
                omit_stages: self.omit_stages,
                omit_managed_fields: self.omit_managed_fields,
            },
        }
    }
}

impl PolicyRule {
    /// The groups are compared after all other conditions, because a user may have many groups.
    fn matches(&self, attributes: &AuditAttributes<'_>) -> bool {
        if !(self.verbs.is_empty() || has(&self.verbs, attributes.verb)) || !self.matches_target(attributes) {
            return false;
        }
        let (name, groups) = attributes.user.unzip();
        let has_user = self.users.is_empty() || name.is_some_and(|name| has(&self.users, name));
        let has_group = || {
            self.user_groups.is_empty()
                || groups.is_some_and(|groups| groups.iter().any(|group| has(&self.user_groups, group)))
        };
        has_user && has_group()
    }

    fn matches_target(&self, attributes: &AuditAttributes<'_>) -> bool {
        if !self.namespaces.is_empty() || !self.resources.is_empty() {
            return attributes.resource.is_some_and(|resource| self.matches_resource(&resource));
        }
        self.non_resource_urls.is_empty()
            || (attributes.resource.is_none()
                && self.non_resource_urls.iter().any(|url| path_matches(&attributes.path, url)))
    }

    fn matches_resource(&self, resource: &RequestedResource<'_>) -> bool {
        let has_namespace = self.namespaces.is_empty() || has(&self.namespaces, resource.namespace);
        has_namespace && (self.resources.is_empty() || self.resources.iter().any(|own| own.matches(resource)))
    }
}

impl GroupResources {
    fn matches(&self, requested: &RequestedResource<'_>) -> bool {
        if self.group != requested.group && self.group != "*" {
            return false;
        }
        if self.resources.is_empty() {
            return true;
        }
        let has_name = self.resource_names.is_empty() || has(&self.resource_names, requested.name);
        has_name && self.resources.iter().any(|own| resource_matches(own, requested))
    }
}

/// Returns whether an entry of a policy (`pods`, `pods/log`, `pods/*`, `*/log` or `*`) matches the resource. `pods/*`
/// also matches `pods`.
fn resource_matches(own: &str, requested: &RequestedResource<'_>) -> bool {
    if own == "*" {
        return true;
    }
    match own.split_once('/') {
        None => requested.subresource.is_empty() && own == requested.resource,
        Some((resource, subresource)) => {
            let is_exact = resource == requested.resource && subresource == requested.subresource;
            let of_all = resource == "*" && subresource == requested.subresource;
            let all_of_it = subresource == "*" && resource == requested.resource;
            all_of_it || (!requested.subresource.is_empty() && (is_exact || of_all))
        }
    }
}

fn path_matches(path: &str, url: &str) -> bool {
    url == "*" || url == path || (url.ends_with('*') && path.starts_with(url.trim_end_matches('*')))
}

fn has(texts: &[String], text: &str) -> bool {
    texts.iter().any(|own| own == text)
}

#[cfg(test)]
mod tests;
