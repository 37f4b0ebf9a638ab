//! The fuzzed properties of a client's request: path, options, selectors, `Accept`.

use std::collections::BTreeMap;
use std::sync::Arc;

use http::{HeaderMap, HeaderValue, header};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use tributary_apimachinery::query::{PARAMETERS_MAX, Query};
use tributary_apimachinery::request_info::RequestTarget;
use tributary_apimachinery::selector::LabelOperator;
use tributary_apimachinery::selector::field::{self, FieldRequirement};
use tributary_apimachinery::{
    FieldSelector, ForeignDoors, ForeignSystem, GetOptions, GroupVersionResource, LabelSelector, ListOptions, Mount,
    MountTarget, Mounted, RequestInfo, ResourceVersionMatch, SelectorBounds, Status, WatchOptions,
};
use tributary_router::testing::{AnswerForm, Preferences, ResponseKind};

use crate::choice;

const METHODS: [&str; 8] = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "get"];

/// The input is a request: `<method><path>[?<query>]`. The path is parsed as in kube-apiserver.
///
/// Names have no slash and are never `.` or `..`. A path consists of the prefix of its mount and the inner path. The
/// prefix changes only the cluster. Escaping each byte of a segment changes nothing.
pub fn path(data: &[u8]) {
    let (method, rest) = choice(data);
    let method = METHODS[usize::from(method) % METHODS.len()];
    let Ok(text) = std::str::from_utf8(rest) else { return };
    let (path, query) = text.split_once('?').map_or((text, None), |(path, query)| (path, Some(query)));
    mounted(path);
    let parsed = RequestInfo::parse(method, path, query);
    if let Ok(info) = &parsed
        && let Some(request) = info.resource()
    {
        for part in [&request.name, &request.namespace, &request.subresource].into_iter().flatten() {
            let is_segment = !part.contains('/') && !part.is_empty() && part != "." && part != "..";
            assert!(is_segment, "{part:?} cannot be a segment of {path:?}");
        }
        assert!(!request.resource.resource.is_empty(), "{path:?} has a resource with an empty name");
    }
    // The HTTP parser rejects all other paths before the tested parser gets them.
    let comes = path.parse::<http::uri::PathAndQuery>().is_ok_and(|parsed| parsed.path() == path);
    if path.starts_with("/clusters") || !path.starts_with('/') || !comes {
        return;
    }
    below_a_cluster(method, path, query, &parsed);
    // Paths with a backslash are left out, because a proxy may read a backslash as a slash.
    if !path.contains(['%', '\\']) {
        escaped(method, path, query, &parsed);
    }
}

/// Checks that the prefix of a mount and the inner path together are the path.
fn mounted(path: &str) {
    for mount in [Mount::Merged, Mount::aggregated()] {
        let Ok(Mounted { target, prefix, inner, .. }) = mount.resolve(path) else { continue };
        let is_prefix_alone = inner == "/" && prefix == path;
        assert!(is_prefix_alone || path.strip_prefix(prefix) == Some(inner), "{path:?}: {prefix:?} and {inner:?}");
        assert_eq!(
            prefix.is_empty(),
            matches!((&mount, target), (Mount::Merged, MountTarget::Merged) | (_, MountTarget::Entry))
        );
    }
}

/// Checks that the path prefixes and a host of a cluster change only the cluster of the parsed request, and that the
/// prefix of the merged view changes nothing.
fn below_a_cluster(method: &str, path: &str, query: Option<&str>, parsed: &Result<RequestInfo, Status>) {
    const AGGREGATED: &str = "/apis/aggregation.tributary.dev/v1alpha1";
    let below = RequestInfo::parse(method, &format!("/clusters/c{path}"), query);
    let aggregated = |place: &str| {
        RequestInfo::parse_at(&Mount::aggregated(), method, &format!("{AGGREGATED}/{place}/proxy{path}"), query)
    };
    assert_eq!((&aggregated("clusters/c"), &aggregated("views/all")), (&below, parsed), "{path:?}");
    let below_rancher = RequestInfo::parse(method, &format!("/k8s/clusters/c{path}"), query);
    assert_eq!(below_rancher, below, "{path:?}");
    let mut doors = ForeignDoors::default();
    doors.open(ForeignSystem::OpenClusterManagement, [("c".to_owned(), "c".parse().expect("a name"))].into());
    let managed = Mount::OpenClusterManagement(Arc::new(doors));
    assert_eq!(RequestInfo::parse_at(&managed, method, &format!("/c{path}"), query), below, "{path:?}");
    if let Ok(below) = &below {
        let mount =
            Mount::Cluster(below.cluster.clone().unwrap_or_else(|| panic!("{path:?} should be below a cluster")));
        assert_eq!(RequestInfo::parse_at(&mount, method, path, query).as_ref(), Ok(below), "{path:?}");
    }
    match (parsed, &below) {
        (Ok(info), Ok(below)) => {
            assert_eq!(below.cluster.as_ref().map(|cluster| cluster.as_str()), Some("c"), "{path:?}");
            assert_eq!((info.verb, &info.target), (below.verb, &below.target), "{path:?}");
        }
        (Err(status), Err(below)) => assert_eq!(status.code, below.code, "{path:?}"),
        _ => panic!("{path:?}: {parsed:?}, but below a cluster {below:?}"),
    }
}

/// Checks that escaping each byte of a segment does not change the parsed request.
fn escaped(method: &str, path: &str, query: Option<&str>, parsed: &Result<RequestInfo, Status>) {
    let escape = |segment: &str| segment.bytes().map(|byte| format!("%{byte:02X}")).collect::<String>();
    let escaped: Vec<_> = path.split('/').map(escape).collect();
    let escaped = RequestInfo::parse(method, &escaped.join("/"), query);
    match (parsed, &escaped) {
        (Ok(info), Ok(escaped)) => {
            assert_eq!(info.verb, escaped.verb, "{path:?}");
            let named = |target: &RequestTarget| match target {
                RequestTarget::Resource(request) => {
                    let request = request.clone();
                    Some((request.resource, request.namespace, request.name, request.subresource))
                }
                RequestTarget::NonResource => None,
            };
            assert_eq!(named(&info.target), named(&escaped.target), "{path:?}");
        }
        (Err(status), Err(escaped)) => assert_eq!(status.code, escaped.code, "{path:?}"),
        _ => panic!("{path:?}: {parsed:?}, but escaped {escaped:?}"),
    }
}

/// The input is a query string, which is parsed as the options of a get, a list and a watch.
///
/// Encoding parsed options and parsing the result yields equal options. An unknown parameter changes nothing, unless
/// the query has too many parameters.
pub fn options(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    if text.matches('&').count() + 1 >= PARAMETERS_MAX {
        return;
    }
    let more = |text: &str| format!("{text}&zz=1");
    let get = GetOptions::parse(Some(text));
    assert_eq!(get.is_ok(), GetOptions::parse(Some(&more(text))).is_ok(), "{text:?}");
    if let Ok(list) = ListOptions::parse(Some(text), SelectorBounds::NONE) {
        assert_eq!(Ok(&list), ListOptions::parse(Some(&more(text)), SelectorBounds::NONE).as_ref(), "{text:?}");
        let anew = written(&[
            ("resourceVersion", list.resource_version.clone()),
            ("resourceVersionMatch", list.resource_version_match.map(match_name)),
            ("limit", (list.limit > 0).then(|| list.limit.to_string())),
            ("continue", list.continue_token.clone()),
            ("labelSelector", Some(list.label_selector.to_string())),
            ("fieldSelector", Some(list.field_selector.to_string())),
            ("timeoutSeconds", list.timeout.map(|timeout| timeout.duration().as_secs().to_string())),
        ]);
        let again = ListOptions::parse(Some(&anew), SelectorBounds::NONE)
            .map(|mut list| (ordered(&mut list.field_selector), list));
        let (zero, mut list) = (list.timeout.is_some_and(|timeout| timeout.duration().is_zero()), list);
        let list = (ordered(&mut list.field_selector), list);
        assert!(zero || again == Ok(list), "{text:?}, encoded again as {anew:?}");
    }
    if let Ok(watch) = WatchOptions::parse(Some(text), SelectorBounds::NONE) {
        assert_eq!(Ok(&watch), WatchOptions::parse(Some(&more(text)), SelectorBounds::NONE).as_ref(), "{text:?}");
        let anew = written(&[
            ("resourceVersion", watch.resource_version.clone()),
            ("resourceVersionMatch", watch.resource_version_match.map(match_name)),
            ("sendInitialEvents", watch.send_initial_events.map(|sends| sends.to_string())),
            ("allowWatchBookmarks", Some(watch.allow_watch_bookmarks.to_string())),
            ("labelSelector", Some(watch.label_selector.to_string())),
            ("fieldSelector", Some(watch.field_selector.to_string())),
            ("timeoutSeconds", watch.timeout.map(|timeout| timeout.duration().as_secs().to_string())),
        ]);
        let again = WatchOptions::parse(Some(&anew), SelectorBounds::NONE)
            .map(|mut watch| (ordered(&mut watch.field_selector), watch));
        let (zero, mut watch) = (watch.timeout.is_some_and(|timeout| timeout.duration().is_zero()), watch);
        let watch = (ordered(&mut watch.field_selector), watch);
        assert!(zero || again == Ok(watch), "{text:?}, encoded again as {anew:?}");
    }
}

/// Returns the requirements of a field selector in a canonical order. As in Go, the parser sorts requirements by the
/// client's text, so a requirement may have another index after encoding.
fn ordered(selector: &mut FieldSelector) -> Vec<FieldRequirement> {
    let mut requirements = std::mem::take(selector).requirements().to_vec();
    requirements.sort_by(|a, b| (&a.field, a.equals, &a.value).cmp(&(&b.field, b.equals, &b.value)));
    requirements
}

fn match_name(wanted: ResourceVersionMatch) -> String {
    match wanted {
        ResourceVersionMatch::Exact => "Exact",
        ResourceVersionMatch::NotOlderThan => "NotOlderThan",
    }
    .to_owned()
}

fn written(parameters: &[(&str, Option<String>)]) -> String {
    let pairs = parameters.iter().filter_map(|(name, value)| {
        Some(format!("{name}={}", utf8_percent_encode(value.as_deref()?, NON_ALPHANUMERIC)))
    });
    let text = pairs.collect::<Vec<_>>().join("&");
    assert!(!Query::parse(Some(&text)).is_malformed(), "{text:?}");
    text
}

/// The input is a label selector or a field selector. Printing a parsed selector and parsing the text yields an equal
/// selector. It selects the same objects as a reference implementation.
pub fn selectors(data: &[u8]) {
    let (kind, rest) = choice(data);
    let Ok(text) = std::str::from_utf8(rest) else { return };
    if kind % 2 == 0 {
        labels(text);
    } else {
        fields(text);
    }
}

fn labels(text: &str) {
    let Ok(selector) = LabelSelector::parse(text) else { return };
    assert_eq!(LabelSelector::parse(&selector.to_string()).as_ref(), Ok(&selector), "{text:?}");
    // Some label sets have values that occur in the selector, so that they can match. Other label sets have unrelated
    // values.
    let requirements = selector.requirements();
    let mut sets = vec![BTreeMap::new()];
    for requirement in requirements {
        let key = requirement.key();
        let values = requirement.values().iter().map(String::as_str).chain(["", "x", "0", "-1", "+7", "007"]);
        let with = values.take(8).flat_map(|value| {
            sets.iter().take(4).map(move |set| {
                let mut set: BTreeMap<&str, &str> = set.clone();
                set.insert(key, value);
                set
            })
        });
        let with: Vec<_> = with.collect();
        sets.extend(with);
        sets.truncate(64);
    }
    for set in sets {
        let expected = requirements.iter().all(|requirement| {
            let own = set.get(requirement.key()).copied();
            let values = requirement.values();
            let number = |text: &str| text.parse::<i64>().ok();
            match requirement.operator() {
                LabelOperator::Equals | LabelOperator::DoubleEquals | LabelOperator::In => {
                    own.is_some_and(|own| values.iter().any(|value| value == own))
                }
                LabelOperator::NotEquals | LabelOperator::NotIn => {
                    own.is_none_or(|own| values.iter().all(|value| value != own))
                }
                LabelOperator::Exists => own.is_some(),
                LabelOperator::DoesNotExist => own.is_none(),
                LabelOperator::GreaterThan => {
                    own.and_then(number) > number(&values[0]) && own.and_then(number).is_some()
                }
                LabelOperator::LessThan => own.and_then(number).is_some_and(|own| Some(own) < number(&values[0])),
            }
        });
        assert_eq!(selector.matches_labels(|key| set.get(key).copied()), expected, "{text:?} of {set:?}");
    }
}

fn fields(text: &str) {
    assert_eq!(field::unescape(&field::escape(text)).as_deref(), Ok(text), "{text:?}");
    let Ok(selector) = FieldSelector::parse(text) else { return };
    // The requirements are compared as sets, because the parser sorts them by their original text.
    let sorted = |selector: &FieldSelector| {
        let mut requirements: Vec<_> =
            selector.requirements().iter().map(|r| (r.field.clone(), r.equals, r.value.clone())).collect();
        requirements.sort();
        requirements
    };
    let again = FieldSelector::parse(&selector.to_string());
    assert_eq!(again.as_ref().map(sorted), Ok(sorted(&selector)), "{text:?}");
    for wanted in selector.requirements() {
        let get = |value: &'static str| selector.matches(|_| value);
        let all = selector.requirements().iter();
        assert_eq!(get(""), all.clone().all(|r| r.equals == r.value.is_empty()), "{text:?} {wanted:?}");
        assert_eq!(get("x"), all.clone().all(|r| r.equals == (r.value == "x")), "{text:?} {wanted:?}");
    }
}

/// The input is an `Accept` header. The form that the server chooses is named in the header. If the header has a single
/// clause, its quality has no effect.
pub fn accept(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let services = GroupVersionResource::new("", "v1", "services");
    for answer in [ResponseKind::Object, ResponseKind::Review, ResponseKind::List, ResponseKind::Watch] {
        let form = |text: &str| -> Option<Option<AnswerForm>> {
            let mut headers = HeaderMap::new();
            headers.insert(header::ACCEPT, HeaderValue::from_str(text).ok()?);
            let preferences = Preferences::from_headers(&headers, None);
            // `error_form` must return a form for every header.
            let _ = preferences.error_form();
            let form = preferences.fits_route(answer, &services).and_then(|()| preferences.form(answer));
            let fits = |form: &AnswerForm| preferences.fits(*form, answer, &services, "Service").is_ok();
            Some(form.ok().filter(fits))
        };
        let Some(given) = form(text) else { return };
        if let Some(given) = given {
            let (kind, subtype) = given.encoding.content_type().split_once('/').expect("a media type");
            // A header without any media type is ignored, so any form may be chosen.
            let names = !text.contains('/') || text.contains('*') || text.contains(kind) && text.contains(subtype);
            assert!(names, "{text:?} is given {given:?}");
        }
        if !text.contains([',', 'q']) && !text.trim().is_empty() {
            assert_eq!(form(&format!("{text};q=0.5")), Some(given), "{text:?}");
        }
    }
}
