//! Tests of the query parameters: the tables of apimachinery's `internalversion/validation`, and the conversions of a
//! query string.

use super::*;

fn list(query: &str) -> Result<ListOptions, Status> {
    ListOptions::parse(Some(query), SelectorBounds::NONE)
}

fn watch(query: &str) -> Result<WatchOptions, Status> {
    WatchOptions::parse(Some(query), SelectorBounds::NONE)
}

fn seconds(seconds: u64) -> Timeout {
    Timeout::new(std::time::Duration::from_secs(seconds))
}

#[test]
fn list_parameters_convert_like_kube_apiserver() {
    let options = list("resourceVersion=abc&resourceVersionMatch=NotOlderThan&limit=5&labelSelector=a%3Db&fieldSelector=metadata.name%3Dx&timeoutSeconds=30&pretty=true&unknown=1&limit=7").unwrap();
    assert_eq!(options.resource_version.as_deref(), Some("abc"));
    assert_eq!(options.resource_version_match, Some(ResourceVersionMatch::NotOlderThan));
    assert_eq!((options.limit, options.timeout), (5, Some(seconds(30))));
    assert_eq!(options.label_selector.to_string(), "a=b");
    assert_eq!(options.field_selector.to_string(), "metadata.name=x");
    let empty = list("resourceVersion=&continue=&labelSelector=&timeoutSeconds=0&limit=-1&pretty=").unwrap();
    assert_eq!(empty, ListOptions::default());
    assert_eq!(ListOptions::parse(None, SelectorBounds::NONE).unwrap(), ListOptions::default());
    assert_eq!(GetOptions::parse(Some("resourceVersion=0")).unwrap().resource_version.as_deref(), Some("0"));
}

#[test]
fn timeout_seconds_are_capped_at_one_year() {
    const YEAR: u64 = 365 * 24 * 60 * 60;
    for (text, expected) in [
        ("0", None),
        ("1", Some(seconds(1))),
        ("-5", Some(seconds(0))),
        ("-9223372036854775808", Some(seconds(0))),
        ("31536000", Some(seconds(YEAR))),
        ("31536001", Some(seconds(YEAR))),
        ("9223372036854775807", Some(seconds(YEAR))),
    ] {
        let timeout = watch(&format!("timeoutSeconds={text}")).unwrap().timeout;
        assert_eq!(timeout, expected, "{text}");
        #[expect(clippy::disallowed_types, reason = "tokio's is made of it, and there is no runtime here")]
        let _ = std::time::Instant::now() + timeout.map(Timeout::duration).unwrap_or_default();
    }
}

#[test]
fn selector_with_too_many_requirements_or_values_is_refused() {
    let bounds = SelectorBounds { requirements: 3, values: 4 };
    let label = |text: &str| LabelSelector::parse_within(text, bounds).map(drop).map_err(|error| error.to_string());
    let field = |text: &str| FieldSelector::parse_within(text, bounds).map(drop).map_err(|error| error.to_string());
    let too_many = |what: &str, most| Err(format!("too many {what}: a selector may have {most} at most"));
    for (text, expected) in [
        ("a,!b,c=d", Ok(())),
        ("a in (1,2,3),b=4", Ok(())),
        ("a,b,c,d", too_many("requirements", 3)),
        // The parser reports the exceeded limit and ignores the remaining text, which is malformed.
        ("a,b,c,d,===", too_many("requirements", 3)),
        ("a in (1,2,3,4),b!=5", too_many("values", 4)),
        // A value that occurs several times in a list is counted once.
        ("a in (1,1,1,1,1)", Ok(())),
    ] {
        assert_eq!(label(text), expected, "{text}");
    }
    assert_eq!(field("a=1,b=2,,c!=3"), Ok(()));
    assert_eq!(field("a=1,b=2,c!=3,d=4"), too_many("requirements", 3));
}

#[test]
fn malformed_query_parameters_return_400() {
    for (query, message) in [
        ("limit=abc", r#"strconv.ParseInt: parsing "abc": invalid syntax"#),
        ("limit=", r#"strconv.ParseInt: parsing "": invalid syntax"#),
        ("limit=1.5", r#"strconv.ParseInt: parsing "1.5": invalid syntax"#),
        ("limit=99999999999999999999", r#"strconv.ParseInt: parsing "99999999999999999999": value out of range"#),
        ("timeoutSeconds=x", r#"strconv.ParseInt: parsing "x": invalid syntax"#),
        ("labelSelector=x%20y", "unable to parse requirement: found 'y', expected: in, notin, =, ==, !=, gt, lt"),
        ("fieldSelector=blurb", "invalid selector: 'blurb'; can't understand 'blurb'"),
        ("limit=x&labelSelector=%3D", r#"strconv.ParseInt: parsing "x": invalid syntax"#),
        (
            "labelSelector=%zz",
            r#"the query parameter "labelSelector" has an invalid percent escape: write a percent sign as %25"#,
        ),
    ] {
        let status = list(query).unwrap_err();
        assert_eq!((status.code, status.reason.as_str(), status.message.as_str()), (400, "BadRequest", message));
        if !query.contains("continue") {
            assert_eq!(watch(query).unwrap_err(), status, "{query}");
        }
    }
    assert!(list("resourceVersion=0&continue=t").is_ok());
}

#[test]
fn contradicting_query_parameters_return_422() {
    const PREFIX: &str = "ListOptions.meta.k8s.io \"\" is invalid: ";
    let unset = "resourceVersionMatch: Forbidden: resourceVersionMatch is forbidden unless resourceVersion is provided";
    let paging = "resourceVersionMatch: Forbidden: resourceVersionMatch is forbidden when continue is provided";
    for (query, message) in [
        ("resourceVersionMatch=Exact", unset.to_owned()),
        ("resourceVersionMatch=NotOlderThan", unset.to_owned()),
        ("resourceVersionMatch=NotOlderThan&resourceVersion=1&continue=t", paging.to_owned()),
        ("resourceVersionMatch=NotOlderThan&continue=t", format!("[{unset}, {paging}]")),
        (
            "resourceVersionMatch=foo&resourceVersion=1",
            r#"resourceVersionMatch: Unsupported value: "foo": supported values: "Exact", "NotOlderThan", """#
                .to_owned(),
        ),
        (
            "resourceVersionMatch=Exact&resourceVersion=0",
            r#"resourceVersionMatch: Forbidden: resourceVersionMatch "exact" is forbidden for resourceVersion "0""#
                .to_owned(),
        ),
        ("sendInitialEvents=1", "sendInitialEvents: Forbidden: sendInitialEvents is forbidden for list".to_owned()),
        ("sendInitialEvents=0", "sendInitialEvents: Forbidden: sendInitialEvents is forbidden for list".to_owned()),
    ] {
        let status = list(query).unwrap_err();
        assert_eq!((status.code, status.reason.as_str()), (422, "Invalid"));
        assert_eq!(status.message, format!("{PREFIX}{message}"), "{query}");
    }
    let needs =
        "resourceVersionMatch: Forbidden: sendInitialEvents requires setting resourceVersionMatch to NotOlderThan";
    let alone = "resourceVersionMatch: Forbidden: resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided";
    let other = r#"resourceVersionMatch: Unsupported value: "Exact": supported values: "NotOlderThan""#;
    for (query, message) in [
        ("sendInitialEvents=true", needs.to_owned()),
        ("sendInitialEvents=false&resourceVersion=1", needs.to_owned()),
        ("resourceVersionMatch=NotOlderThan", alone.to_owned()),
        ("resourceVersionMatch=NotOlderThan&resourceVersion=0", alone.to_owned()),
        ("resourceVersionMatch=Exact", format!("[{alone}, {other}]")),
        ("sendInitialEvents=true&resourceVersionMatch=Exact", format!("[{needs}, {other}]")),
        ("sendInitialEvents=true&resourceVersionMatch=NotOlderThan&continue=t", paging.to_owned()),
    ] {
        let status = watch(query).unwrap_err();
        assert_eq!(status.code, 422);
        assert_eq!(status.message, format!("{PREFIX}{message}"), "{query}");
    }
}

#[test]
fn watch_without_a_version_gets_initial_events_by_default() {
    for (query, initial, end) in [
        ("", true, false),
        ("resourceVersion=0", true, false),
        ("resourceVersion=&allowWatchBookmarks=1", true, true),
        ("resourceVersion=0&allowWatchBookmarks=true", true, true),
        ("resourceVersion=5", false, false),
        ("resourceVersion=5&allowWatchBookmarks=1", false, false),
        ("sendInitialEvents=false&resourceVersionMatch=NotOlderThan", false, false),
        ("sendInitialEvents=0&resourceVersionMatch=NotOlderThan&resourceVersion=0&allowWatchBookmarks=1", false, false),
        (
            "sendInitialEvents=true&resourceVersionMatch=NotOlderThan&resourceVersion=5&allowWatchBookmarks=1",
            true,
            true,
        ),
        ("sendInitialEvents=&resourceVersionMatch=NotOlderThan", true, false),
    ] {
        let options = watch(query).unwrap();
        assert_eq!((options.sends_initial_events(), options.sends_initial_events_end()), (initial, end), "{query}");
        if initial {
            assert_eq!(options.resource_version_match, Some(ResourceVersionMatch::NotOlderThan));
        }
    }
}

#[test]
fn get_with_the_export_parameter_is_refused() {
    assert!(GetOptions::parse(Some("export=false")).is_ok());
    assert_eq!(GetOptions::parse(Some("export=true")).unwrap_err().code, 400);
}
