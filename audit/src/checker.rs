//! What a policy says of a request (apiserver `pkg/audit/policy/checker.go`).

use std::borrow::Cow;

use percent_encoding::percent_decode_str;
use tributary_apimachinery::{RequestInfo, RequestTarget, RequestedResource};

use crate::{AuditPolicy, GroupResources, Level, PolicyRule, Stages};

/// What a policy looks at.
#[derive(Clone, Debug)]
pub struct AuditAttributes<'a> {
    /// Name and groups of who asks; `None` for who could not say.
    pub user: Option<(&'a str, &'a [String])>,
    /// The verb as RBAC has it, empty for a method that a resource does not know; the lower-case method of a request
    /// for no resource.
    pub verb: &'a str,
    /// The Kubernetes path, its escapes decoded: a policy is written for what is asked for, however it is spelled.
    pub path: Cow<'a, str>,
    /// The resource, where one is asked for.
    pub resource: Option<RequestedResource<'a>>,
}

impl<'a> AuditAttributes<'a> {
    /// What a policy looks at in a request that was read.
    pub fn from_request(info: &'a RequestInfo, user: Option<(&'a str, &'a [String])>) -> Self {
        let resource = match &info.target {
            RequestTarget::NonResource => None,
            RequestTarget::Resource(request) => Some(RequestedResource::from_request(request)),
        };
        Self { user, verb: info.requested_verb(), path: decoded(&info.path), resource }
    }
}

/// A text without its escapes, which most have none of.
pub fn decoded(text: &str) -> Cow<'_, str> {
    if text.contains('%') { percent_decode_str(text).decode_utf8_lossy() } else { Cow::Borrowed(text) }
}

/// What is written of a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AuditDecision {
    /// How much.
    pub level: Level,
    /// Of which stages nothing.
    pub omit_stages: Stages,
    /// Whether `metadata.managedFields` is left out of bodies.
    pub omit_managed_fields: bool,
}

impl AuditDecision {
    /// What is written where either says so: the higher level, and left out only what both leave out.
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
    /// What is written of a request: as the first rule that matches it says; nothing where none does. Costs a few
    /// comparisons of texts for each rule.
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
    /// What is found out soonest is asked first: a user may have many groups.
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
    fn matches(&self, asked: &RequestedResource<'_>) -> bool {
        if self.group != asked.group && self.group != "*" {
            return false;
        }
        if self.resources.is_empty() {
            return true;
        }
        let has_name = self.resource_names.is_empty() || has(&self.resource_names, asked.name);
        has_name && self.resources.iter().any(|own| resource_matches(own, asked))
    }
}

/// Whether `pods`, `pods/log`, `pods/*`, `*/log` or `*` means the resource. `pods/*` means `pods`, too.
fn resource_matches(own: &str, asked: &RequestedResource<'_>) -> bool {
    if own == "*" {
        return true;
    }
    match own.split_once('/') {
        None => asked.subresource.is_empty() && own == asked.resource,
        Some((resource, subresource)) => {
            let is_exact = resource == asked.resource && subresource == asked.subresource;
            let of_all = resource == "*" && subresource == asked.subresource;
            let all_of_it = subresource == "*" && resource == asked.resource;
            all_of_it || (!asked.subresource.is_empty() && (is_exact || of_all))
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
