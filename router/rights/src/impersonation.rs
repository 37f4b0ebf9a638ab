//! Rights that a cluster requires for impersonation. The decision equals kube-apiserver's decision (apiserver
//! `pkg/endpoints/filters/impersonation` of 1.36). This module does no I/O.
//!
//! A kube-apiserver with constrained impersonation (KEP-5284) first tries its modes. In a mode, the user also needs a
//! separate verb for the request itself. After the modes, the kube-apiserver tries the verb `impersonate`, which allows
//! all requests of the impersonated user. The order of the attempts changes only the text of a refusal.

use std::cell::Cell;

use tributary_apimachinery::status::go_quote;
use tributary_apimachinery::{FieldError, MASTERS_GROUP, NODE_USER_PREFIX, ServiceAccount, is_dns_subdomain};
use tributary_authentication::UserInfo;
use tributary_authorization::{Attributes, ResourceAttributes};

use super::reviews::PARALLEL_REVIEWS_MAX;

/// API group for the impersonation of uids and extras. In constrained impersonation, also of names and groups.
const AUTHENTICATION: &str = "authentication.k8s.io";
/// API version in kube-apiserver's authorization attributes for impersonation (`mode.go`).
const VERSION: &str = "v1";
/// Number of groups, or of values of extras, from which a single wildcard check precedes the separate checks
/// (`manyAuthorizationChecksInLoop`).
const MANY: usize = 4;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum ImpersonationFilter {
    /// The filter checks only the verb `impersonate` (`WithImpersonation`). Tributary assumes this filter while the
    /// filter is unknown.
    #[default]
    Legacy,
    /// The filter tries constrained impersonation before the verb `impersonate` (`WithConstrainedImpersonation`).
    Constrained,
}

/// Mode of constrained impersonation. The modes for nodes are absent, because no client can impersonate a node through
/// Tributary.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ImpersonationMode {
    /// Impersonation of a ServiceAccount, without uid, groups or extras.
    ServiceAccount,
    /// Impersonation of a user that is neither a node nor a ServiceAccount.
    UserInfo,
}

/// Requests that a cluster allows to a sender in the name of the impersonated user.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ImpersonationScope {
    Nothing,
    /// Only requests for which the sender itself has the verb of this mode, see [`ImpersonationMode::on`].
    InMode(ImpersonationMode),
    Anything,
}

/// One attribute of an impersonated user. kube-apiserver authorizes each attribute separately.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Impersonated<'a> {
    verb: &'static str,
    group: &'static str,
    resource: &'static str,
    /// Key of the extra, if the attribute is the value of an extra.
    subresource: &'a str,
    namespace: &'a str,
    name: &'a str,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Check<'a> {
    Each(Impersonated<'a>),
    /// A wildcard check for all attributes. If the cluster denies the wildcard, each attribute is checked separately.
    AllOrEach(Impersonated<'a>, Vec<Impersonated<'a>>),
    /// An attribute that no mode allows. The text is the reason.
    Never(Impersonated<'a>, String),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ImpersonationRefused<'a> {
    /// The sender lacks the right to impersonate an attribute. The text is the reason if no mode allows the attribute,
    /// else empty.
    ToBe(Impersonated<'a>, String),
    /// The sender lacks the right to make the request in this mode.
    ToDo(ImpersonationMode),
}

impl<'a> Impersonated<'a> {
    pub(super) fn attributes(&self) -> ResourceAttributes<'a> {
        let Self { verb, group, resource, subresource, namespace, name } = *self;
        ResourceAttributes { verb, group, version: VERSION, resource, subresource, namespace, name }
    }
}

impl ImpersonationMode {
    pub(super) fn for_impersonated(impersonated: &UserInfo) -> Option<Self> {
        let is_name_alone =
            impersonated.uid.is_empty() && impersonated.groups.is_empty() && impersonated.extra.is_empty();
        match ServiceAccount::of_user(&impersonated.username) {
            Some(_) => is_name_alone.then_some(Self::ServiceAccount),
            // Tributary sends no impersonated node to a cluster. For an invalid node name, kube-apiserver would use the
            // mode user-info.
            None if impersonated.username.starts_with(NODE_USER_PREFIX) => None,
            None => Some(Self::UserInfo),
        }
    }

    /// Returns the verb that the sender needs in this mode for a request with `verb`.
    pub(super) fn on(self, verb: &str) -> String {
        let mode = match self {
            Self::ServiceAccount => "serviceaccount",
            Self::UserInfo => "user-info",
        };
        format!("impersonate-on:{mode}:{verb}")
    }

    fn verb(self) -> &'static str {
        match self {
            Self::ServiceAccount => "impersonate:serviceaccount",
            Self::UserInfo => "impersonate:user-info",
        }
    }
}

/// Returns the requests that a cluster allows to a sender in the name of the impersonated user; `None` if unknown.
/// `allows` returns whether the cluster allows the impersonation of an attribute (`None` if unknown). The name is
/// checked first, and all other attributes together after the name. So a sender without the right costs a cluster only
/// one review, or two with constrained impersonation.
pub(super) fn impersonation_scope(
    impersonated: &UserInfo,
    filter: ImpersonationFilter,
    allows: impl Fn(&Attributes<'_>) -> Option<bool>,
) -> Option<ImpersonationScope> {
    if all_allowed(legacy(impersonated, filter), &allows)? {
        return Some(ImpersonationScope::Anything);
    }
    let Some(mode) = mode_of(impersonated, filter) else { return Some(ImpersonationScope::Nothing) };
    let impersonation_scope = all_allowed(constrained(impersonated, mode), &allows)?;
    Some(if impersonation_scope { ImpersonationScope::InMode(mode) } else { ImpersonationScope::Nothing })
}

/// Returns the first missing right for an impersonated request, with the number of allowed steps before it. `None` if
/// no right is missing. `does` returns whether the sender may make the request in a mode.
pub(super) fn refused<'a>(
    impersonated: &'a UserInfo,
    filter: ImpersonationFilter,
    does: impl Fn(ImpersonationMode) -> bool,
    allows: impl Fn(&Attributes<'_>) -> bool,
) -> Option<(usize, ImpersonationRefused<'a>)> {
    let by_legacy = first_refused(legacy(impersonated, filter), &allows)?;
    let Some(mode) = mode_of(impersonated, filter) else { return Some(by_legacy) };
    let to_be = first_refused(constrained(impersonated, mode), &allows);
    match does(mode) {
        // The check of the request itself is the first step.
        true => to_be.map(|(place, refused)| (place + 1, refused)),
        false => Some((if to_be.is_none() { usize::MAX } else { 0 }, ImpersonationRefused::ToDo(mode))),
    }
}

fn mode_of(impersonated: &UserInfo, filter: ImpersonationFilter) -> Option<ImpersonationMode> {
    match filter {
        ImpersonationFilter::Legacy => None,
        ImpersonationFilter::Constrained => ImpersonationMode::for_impersonated(impersonated),
    }
}

/// Returns the first denied check, with its number. Later checks are not evaluated.
fn first_refused<'a>(
    checks: impl Iterator<Item = Check<'a>>,
    allows: &impl Fn(&Attributes<'_>) -> bool,
) -> Option<(usize, ImpersonationRefused<'a>)> {
    let refused = checks.enumerate().find_map(|(place, check)| Some((place, check.refused(allows)?)));
    refused.map(|(place, (what, why))| (place + 1, ImpersonationRefused::ToBe(what, why)))
}

/// Returns whether a cluster allows all checks; `None` if unknown. Stops after a refusal, after an unknown answer about
/// the name, and after [`PARALLEL_REVIEWS_MAX`] unknown answers. Without this limit, a user without rights could cause
/// a review for each of 512 groups in each cluster.
fn all_allowed<'a>(
    checks: impl Iterator<Item = Check<'a>>,
    allows: &impl Fn(&Attributes<'_>) -> Option<bool>,
) -> Option<bool> {
    let unknown = Cell::new(0);
    for (place, check) in checks.enumerate() {
        match check.allowed(allows, &unknown) {
            Some(true) => {}
            Some(false) => return Some(false),
            None if place == 0 || unknown.get() >= PARALLEL_REVIEWS_MAX => return None,
            // The loop continues after an unknown answer, so that all missing reviews are sent together.
            None => {}
        }
    }
    (unknown.get() == 0).then_some(true)
}

impl<'a> Check<'a> {
    /// Evaluates this check, and adds the number of unknown answers to `unknown`.
    fn allowed(&self, allows: &impl Fn(&Attributes<'_>) -> Option<bool>, unknown: &Cell<usize>) -> Option<bool> {
        let allows = |own: &Impersonated<'_>| {
            let allowed = allows(&Attributes::Resource(own.attributes()));
            unknown.set(unknown.get() + usize::from(allowed.is_none()));
            allowed
        };
        match self {
            Self::Each(own) => allows(own),
            Self::Never(..) => Some(false),
            // If the cluster denies the wildcard, it may still allow the separate attributes. While the answer about
            // the wildcard is unknown, no attribute is checked separately.
            Self::AllOrEach(all, _) if allows(all)? => Some(true),
            Self::AllOrEach(_, each) => {
                let before = unknown.get();
                for own in each {
                    if unknown.get() >= PARALLEL_REVIEWS_MAX {
                        return None;
                    }
                    if allows(own) == Some(false) {
                        return Some(false);
                    }
                }
                (unknown.get() == before).then_some(true)
            }
        }
    }

    fn refused(&self, allows: &impl Fn(&Attributes<'_>) -> bool) -> Option<(Impersonated<'a>, String)> {
        let refuses = |own: &Impersonated<'_>| !allows(&Attributes::Resource(own.attributes()));
        match self {
            Self::Each(own) => refuses(own).then(|| (*own, String::new())),
            Self::Never(own, why) => Some((*own, why.clone())),
            Self::AllOrEach(all, each) if refuses(all) => {
                each.iter().find(|own| refuses(own)).map(|own| (*own, String::new()))
            }
            Self::AllOrEach(..) => None,
        }
    }
}

/// Checks of the verb `impersonate`. The legacy filter and the constrained filter use different orders.
fn legacy(impersonated: &UserInfo, filter: ImpersonationFilter) -> impl Iterator<Item = Check<'_>> {
    let (verb, group) = ("impersonate", "");
    let (name, uid) = (Check::Each(user(verb, group, impersonated)), uid(verb, impersonated));
    let groups = impersonated.groups.iter().map(move |name| Check::Each(group_named(verb, group, name)));
    let extras = extras(verb, impersonated).map(Check::Each);
    let (uid_before, uid_after) = match filter {
        ImpersonationFilter::Legacy => (None, uid),
        ImpersonationFilter::Constrained => (uid, None),
    };
    std::iter::once(name).chain(uid_before).chain(groups).chain(extras).chain(uid_after)
}

/// Checks of a mode (`impersonationModeState.check`): first the name, and after its answer the other attributes.
fn constrained(impersonated: &UserInfo, mode: ImpersonationMode) -> impl Iterator<Item = Check<'_>> {
    let name = Check::Each(user(mode.verb(), AUTHENTICATION, impersonated));
    let others = std::iter::once_with(move || constrained_beside_the_name(impersonated, mode));
    std::iter::once(name).chain(others.flatten())
}

fn constrained_beside_the_name(impersonated: &UserInfo, mode: ImpersonationMode) -> Vec<Check<'_>> {
    let (verb, group) = (mode.verb(), AUTHENTICATION);
    let mut checks: Vec<_> = uid(verb, impersonated).into_iter().collect();
    let a_group = group_named(verb, group, "");
    if impersonated.groups.iter().any(String::is_empty) {
        checks.push(Check::Never(a_group, "impersonating the empty string group is not allowed".to_owned()));
    }
    if impersonated.groups.iter().any(|own| own == MASTERS_GROUP) {
        let masters = Impersonated { name: MASTERS_GROUP, ..a_group };
        checks.push(Check::Never(masters, "impersonating the system:masters group is not allowed".to_owned()));
    }
    let groups = impersonated.groups.iter().map(|name| Impersonated { name, ..a_group }).collect();
    checks.extend(many_or_each(Impersonated { name: "*", ..a_group }, groups, impersonated.groups.len() >= MANY));
    let an_extra = extra(verb, "", "");
    let invalid = impersonated.extra.iter().find_map(|(key, values)| invalid_extra(key, values));
    checks.extend(invalid.map(|why| Check::Never(an_extra, why)));
    let extras: Vec<_> = extras(verb, impersonated).collect();
    let are_many = extras.len().max(impersonated.extra.len()) >= MANY;
    checks.extend(many_or_each(extra(verb, "*", "*"), extras, are_many));
    checks
}

fn many_or_each<'a>(all: Impersonated<'a>, each: Vec<Impersonated<'a>>, are_many: bool) -> Vec<Check<'a>> {
    match are_many {
        true => vec![Check::AllOrEach(all, each)],
        false => each.into_iter().map(Check::Each).collect(),
    }
}

fn user<'a>(verb: &'static str, group: &'static str, impersonated: &'a UserInfo) -> Impersonated<'a> {
    let (resource, namespace, name) = match ServiceAccount::of_user(&impersonated.username) {
        Some(ServiceAccount { namespace, name }) => ("serviceaccounts", namespace, name),
        None => ("users", "", &*impersonated.username),
    };
    Impersonated { verb, group, resource, subresource: "", namespace, name }
}

fn group_named<'a>(verb: &'static str, group: &'static str, name: &'a str) -> Impersonated<'a> {
    Impersonated { verb, group, resource: "groups", subresource: "", namespace: "", name }
}

fn uid<'a>(verb: &'static str, impersonated: &'a UserInfo) -> Option<Check<'a>> {
    let (group, resource, name) = (AUTHENTICATION, "uids", &*impersonated.uid);
    let uid = Impersonated { verb, group, resource, subresource: "", namespace: "", name };
    (!name.is_empty()).then_some(Check::Each(uid))
}

fn extra<'a>(verb: &'static str, key: &'a str, value: &'a str) -> Impersonated<'a> {
    let (group, resource) = (AUTHENTICATION, "userextras");
    Impersonated { verb, group, resource, subresource: key, namespace: "", name: value }
}

fn extras<'a>(verb: &'static str, impersonated: &'a UserInfo) -> impl Iterator<Item = Impersonated<'a>> {
    impersonated.extra.iter().flat_map(move |(key, values)| values.iter().map(move |value| extra(verb, key, value)))
}

/// Reason for which no mode allows an extra (`validateExtra`).
fn invalid_extra(key: &str, values: &[String]) -> Option<String> {
    let what = match () {
        () if key.is_empty() => "the empty string key in extra is not allowed".to_owned(),
        () if !is_domain_prefixed_path(key) => {
            let must = "must be a domain-prefixed path (such as \"acme.io/foo\")";
            format!("an invalid key in extra is not allowed: {}", FieldError::invalid("extra.key", key, must))
        }
        () if key != key.to_lowercase() => format!("a non-lowercase key in extra is not allowed: {}", go_quote(key)),
        () if values.is_empty() => "empty values in extra is not allowed".to_owned(),
        () if values.iter().any(String::is_empty) => "the empty string value in extra is not allowed".to_owned(),
        () => return None,
    };
    Some(format!("impersonating {what}"))
}

/// Returns whether a key is a DNS domain with a path (apimachinery `validation.IsDomainPrefixedPath`).
fn is_domain_prefixed_path(key: &str) -> bool {
    let Some((domain, path)) = key.split_once('/') else { return false };
    let is_path = |byte: u8| byte.is_ascii_alphanumeric() || b"/-._~%!$&'()*+,;=:".contains(&byte);
    is_dns_subdomain(domain) && !path.is_empty() && path.bytes().all(is_path)
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::collections::BTreeMap;

    use super::*;

    /// Parses a user from `NAME`, followed by words `group=…`, `uid=…` and `KEY:VALUE`.
    fn parse_user(text: &str) -> UserInfo {
        let mut words = text.split(' ');
        let username = words.next().unwrap_or_default().to_owned();
        let mut impersonated = UserInfo { username, uid: String::new(), groups: Vec::new(), extra: BTreeMap::new() };
        for word in words {
            match (word.split_once('='), word.rsplit_once(':')) {
                (Some(("group", group)), _) => impersonated.groups.push(group.to_owned()),
                (Some(("uid", uid)), _) => impersonated.uid = uid.to_owned(),
                (_, Some((key, value))) => impersonated.extra.entry(key.to_owned()).or_default().push(value.to_owned()),
                _ => panic!("{word}"),
            }
        }
        impersonated
    }

    /// Describes a check: `users bob`, `serviceaccounts n/s`. Prefix `c ` for the mode user-info, `s ` for the mode
    /// ServiceAccount.
    fn described(attributes: &Attributes<'_>) -> String {
        let Attributes::Resource(attributes) = attributes else { panic!("{attributes:?}") };
        let ResourceAttributes { verb, group, version, resource, subresource, namespace, name } = *attributes;
        assert_eq!(version, "v1");
        let mode = match verb {
            "impersonate" => "",
            "impersonate:user-info" => "c ",
            "impersonate:serviceaccount" => "s ",
            _ => panic!("{verb}"),
        };
        let of_core = mode.is_empty() && !["uids", "userextras"].contains(&resource);
        assert_eq!(group, if of_core { "" } else { AUTHENTICATION }, "{resource}");
        let below = if subresource.is_empty() { String::new() } else { format!("/{subresource}") };
        let within = if namespace.is_empty() { String::new() } else { format!("{namespace}/") };
        format!("{mode}{resource}{below} {within}{name}")
    }

    #[test]
    fn impersonation_is_allowed_exactly_as_by_kube_apiserver() {
        use ImpersonationFilter::{Constrained, Legacy};
        use ImpersonationScope::{Anything, InMode, Nothing};
        let (user_info, account) = (InMode(ImpersonationMode::UserInfo), InMode(ImpersonationMode::ServiceAccount));
        let robot = "system:serviceaccount:n:s";
        for (filter, words_of_user, allowed, expected) in [
            (Legacy, "bob", "users bob", Anything),
            (Legacy, "bob", "c users bob", Nothing),
            (Constrained, "bob", "users bob", Anything),
            (Constrained, "bob", "c users bob", user_info),
            (Constrained, "bob", "s users bob", Nothing),
            // Rights for constrained impersonation of one attribute, and the verb `impersonate` for another, do not add
            // up.
            (Constrained, "bob group=a", "users bob, c groups a", Nothing),
            (Constrained, "bob group=a", "c users bob, groups a", Nothing),
            (Constrained, "bob group=a", "c users bob", Nothing),
            (Constrained, "bob group=a", "c users bob, c groups a", user_info),
            (Constrained, "bob group=a group=b", "c users bob, c groups a", Nothing),
            (Constrained, "bob uid=u", "c users bob", Nothing),
            (Constrained, "bob uid=u", "c users bob, c uids u", user_info),
            (Constrained, "bob x.io/k:v", "c users bob, c userextras/x.io/k v", user_info),
            (Constrained, "bob x.io/k:v", "c users bob, c userextras/x.io/k w", Nothing),
            // Four or more groups are first checked by a wildcard.
            (Constrained, "bob group=a group=b group=c", "c users bob, c groups *", Nothing),
            (Constrained, "bob group=a group=b group=c group=d", "c users bob, c groups *", user_info),
            (
                Constrained,
                "bob group=a group=b group=c group=d",
                "c users bob, c groups a, c groups b, c groups c, c groups d",
                user_info,
            ),
            (
                Constrained,
                "bob group=a group=b group=c group=d",
                "c users bob, c groups a, c groups b, c groups c",
                Nothing,
            ),
            (Constrained, "bob group=a group=b group=c group=d", "users bob, groups *", Nothing),
            (Constrained, "bob x/a:1 x/a:2 x/a:3 x/a:4", "c users bob, c userextras/* *", user_info),
            (Constrained, "bob x/a:1 x/b:2 x/c:3 x/d:4", "c users bob, c userextras/* *", user_info),
            (Constrained, "bob x/a:1 x/b:2 x/c:3", "c users bob, c userextras/* *", Nothing),
            // Attributes that no mode of constrained impersonation allows, but the verb `impersonate` does.
            (Constrained, "bob group=system:masters", "c users bob, c groups system:masters", Nothing),
            (Constrained, "bob group=", "c users bob, c groups ", Nothing),
            (Constrained, "bob k:v", "c users bob, c userextras/k v", Nothing),
            (Constrained, "bob k:v", "users bob, userextras/k v", Anything),
            (Constrained, "bob x.io/K:v", "c users bob, c userextras/x.io/K v", Nothing),
            (Constrained, "bob X.io/k:v", "c users bob, c userextras/X.io/k v", Nothing),
            (Constrained, "bob x.io/:v", "c users bob, c userextras/x.io/ v", Nothing),
            (Constrained, "bob x.io/k:", "c users bob, c userextras/x.io/k ", Nothing),
            (Constrained, "bob x/a:1 x/b:2 x/c:3 d:4", "c users bob, c userextras/* *", Nothing),
            // Impersonation of a ServiceAccount has a mode only without groups and uid.
            (Legacy, robot, "serviceaccounts n/s", Anything),
            (Constrained, robot, "serviceaccounts n/s", Anything),
            (Constrained, robot, "s serviceaccounts n/s", account),
            (Constrained, robot, "c serviceaccounts n/s, c users system:serviceaccount:n:s", Nothing),
            (Constrained, "system:serviceaccount:n:s group=a", "s serviceaccounts n/s, s groups a", Nothing),
            (Constrained, "system:serviceaccount:n:s uid=u", "s serviceaccounts n/s, s uids u", Nothing),
            // A user name that begins with `system:serviceaccount:` but does not continue with `NAMESPACE:NAME` is an
            // ordinary user name.
            (Constrained, "system:serviceaccount:n", "c users system:serviceaccount:n", user_info),
            (Constrained, "system:node:n", "c users system:node:n, c nodes n", Nothing),
        ] {
            let words: Vec<_> = allowed.split(", ").collect();
            let impersonated = parse_user(words_of_user);
            let allows = |attributes: &Attributes<'_>| words.contains(&&*described(attributes));
            assert_eq!(
                impersonation_scope(&impersonated, filter, |attributes| Some(allows(attributes))),
                Some(expected),
                "{words_of_user}: {allowed}"
            );
            // `refused` finds a missing right exactly if `impersonation_scope` allows no request.
            let is_refused = refused(&impersonated, filter, |_| true, allows).is_some();
            assert_eq!(is_refused, expected == Nothing, "{words_of_user}: {allowed}");
        }
    }

    #[test]
    fn refused_impersonation_right_is_the_one_that_kube_apiserver_names() {
        use ImpersonationFilter::{Constrained, Legacy};
        let bob = "bob group=a group=b uid=u x.io/k:v";
        for (filter, words_of_user, does, allowed, expected) in [
            (Legacy, bob, false, "", "users bob"),
            (Legacy, bob, false, "users bob, groups a, uids u, userextras/x.io/k v", "groups b"),
            (Legacy, bob, false, "users bob, groups a, groups b", "userextras/x.io/k v"),
            (Legacy, bob, false, "users bob, groups a, groups b, userextras/x.io/k v", "uids u"),
            // In constrained impersonation, the sender's right to make the request is checked before the right to
            // impersonate.
            (Constrained, bob, false, "", "UserInfo"),
            (Constrained, bob, false, "users bob, groups a, c users bob", "UserInfo"),
            (Constrained, bob, true, "", "c users bob"),
            (Constrained, bob, true, "users bob", "c users bob"),
            (Constrained, bob, true, "c users bob", "c uids u"),
            (Constrained, bob, true, "c users bob, c uids u", "c groups a"),
            (Constrained, bob, true, "c users bob, c uids u, c groups a, c groups b", "c userextras/x.io/k v"),
            (
                Constrained,
                "bob k:v",
                true,
                "c users bob",
                "c userextras : impersonating an invalid key in extra is not allowed: extra.key: Invalid value: \"k\": must be a domain-prefixed path (such as \"acme.io/foo\")",
            ),
            (Constrained, "system:serviceaccount:n:s", false, "", "ServiceAccount"),
            (Constrained, "system:serviceaccount:n:s", true, "", "s serviceaccounts n/s"),
            // If no mode applies, the verb `impersonate` decides. The checks have the order of the constrained filter.
            (Constrained, "system:serviceaccount:n:s group=a uid=u", true, "serviceaccounts n/s", "uids u"),
            (Legacy, "system:serviceaccount:n:s group=a uid=u", true, "serviceaccounts n/s", "groups a"),
        ] {
            let (words, impersonated): (Vec<_>, _) = (allowed.split(", ").collect(), parse_user(words_of_user));
            let allows = |attributes: &Attributes<'_>| words.contains(&&*described(attributes));
            let named = match refused(&impersonated, filter, |_| does, allows) {
                Some((0 | usize::MAX, ImpersonationRefused::ToDo(mode))) => format!("{mode:?}"),
                Some((_, ImpersonationRefused::ToBe(own, why))) if why.is_empty() => {
                    described(&Attributes::Resource(own.attributes()))
                }
                Some((_, ImpersonationRefused::ToBe(own, why))) => {
                    format!("{}: {why}", described(&Attributes::Resource(own.attributes())))
                }
                other => format!("{other:?}"),
            };
            assert_eq!(named, expected, "{words_of_user}: {allowed}");
        }
    }

    /// A user without rights can request 512 groups, and each cluster would check them.
    #[test]
    fn impersonation_checks_stop_after_a_refused_user_name() {
        let impersonated = parse_user("bob group=a group=b group=c group=d group=e");
        let name = || std::iter::once(Check::Each(user("impersonate", "", &impersonated)));
        let others = || std::iter::from_fn(|| -> Option<Check<'_>> { unreachable!("nothing else is made") });
        assert_eq!(all_allowed(name().chain(others()), &|_: &Attributes<'_>| Some(false)), Some(false));
        assert_eq!(all_allowed(name().chain(others()), &|_: &Attributes<'_>| None), None);
        let refused = first_refused(name().chain(others()), &|_: &Attributes<'_>| false);
        assert_eq!(refused.map(|(place, _)| place), Some(1));
        // Until the check of the user name has a result, the iterator has made no other check.
        assert_eq!(constrained(&impersonated, ImpersonationMode::UserInfo).size_hint().0, 1);
        assert_eq!(constrained(&impersonated, ImpersonationMode::UserInfo).count(), 2);
    }

    /// Each unknown check costs a cluster a review, although a single refusal would decide.
    #[test]
    fn reviews_of_many_impersonated_groups_are_sent_in_batches() {
        use ImpersonationFilter::{Constrained, Legacy};
        let words: Vec<_> = (0..511).map(|number| format!("group=g{number} ")).collect();
        let impersonated = parse_user(format!("bob {}", words.concat()).trim_end());
        /// Number of reviews in each round until the impersonation is decided. The cluster allows all checks except
        /// those in `refused`.
        fn rounds(
            impersonated: &UserInfo,
            filter: ImpersonationFilter,
            refused: impl Fn(&str) -> bool,
        ) -> (Option<ImpersonationScope>, Vec<usize>) {
            let (known, mut rounds) = (RefCell::new(BTreeMap::<String, bool>::new()), Vec::new());
            loop {
                let before = known.borrow().clone();
                let found = impersonation_scope(impersonated, filter, |check| {
                    let check = described(check);
                    known.borrow_mut().insert(check.clone(), !refused(&check));
                    before.get(&check).copied()
                });
                if found.is_some() {
                    return (found, rounds);
                }
                rounds.push(known.borrow().len() - before.len());
            }
        }
        let batches = |first: Vec<usize>| [first, vec![PARALLEL_REVIEWS_MAX; 15], vec![31]].concat();
        assert_eq!(rounds(&impersonated, Legacy, |_| false), (Some(ImpersonationScope::Anything), batches(vec![1])));
        let of_one = rounds(&impersonated, Legacy, |check| check == "groups g5");
        assert_eq!(of_one, (Some(ImpersonationScope::Nothing), vec![1, PARALLEL_REVIEWS_MAX]));
        let in_mode = rounds(&impersonated, Constrained, |check| ["users bob", "c groups *"].contains(&check));
        assert_eq!(in_mode, (Some(ImpersonationScope::InMode(ImpersonationMode::UserInfo)), batches(vec![1, 1, 1])));
    }

    #[test]
    fn user_without_impersonation_rights_costs_few_access_reviews() {
        use ImpersonationFilter::{Constrained, Legacy};
        let impersonated = parse_user("bob group=a group=b uid=u");
        for (filter, known, expected, expected_reviews) in [
            (Legacy, "", None, "users bob"),
            (Legacy, "-users bob", Some(ImpersonationScope::Nothing), "users bob"),
            (Legacy, "users bob", None, "users bob, groups a, groups b, uids u"),
            (Constrained, "", None, "users bob"),
            (Constrained, "-users bob", None, "users bob, c users bob"),
            (Constrained, "-users bob, -c users bob", Some(ImpersonationScope::Nothing), "users bob, c users bob"),
            (Constrained, "-users bob, c users bob", None, "users bob, c users bob, c uids u, c groups a, c groups b"),
        ] {
            let (words, sent_reviews): (Vec<_>, _) = (known.split(", ").collect(), RefCell::new(Vec::new()));
            let found = impersonation_scope(&impersonated, filter, |check| {
                let check = described(check);
                sent_reviews.borrow_mut().push(check.clone());
                let (yes, no) = (words.contains(&&*check), words.contains(&&*format!("-{check}")));
                (yes || no).then_some(yes)
            });
            assert_eq!((found, &*sent_reviews.into_inner().join(", ")), (expected, expected_reviews), "{known}");
        }
    }
}
