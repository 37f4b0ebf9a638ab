//! The tables of apimachinery's `labels/selector_test.go`, and more cases of the grammar.

use super::*;

fn matches(selector: &str, labels: &[(&str, &str)]) -> bool {
    LabelSelector::parse(selector)
        .unwrap_or_else(|error| panic!("{selector}: {error}"))
        .matches_labels(|key| labels.iter().find(|(name, _)| *name == key).map(|(_, value)| *value))
}

#[test]
fn label_selectors_are_accepted_or_refused_like_apimachinery() {
    for good in [
        "x=a,y=b,z=c",
        "",
        "x!=a,y=b",
        "x=",
        "x= ",
        "x=,z= ",
        "x= ,z= ",
        "!x",
        "x>1",
        "x>1,z<5",
        "x in (in,notin)",
        "in in (in)",
        "x notin ( a ,b, )",
        "example.com/x=y",
        " x ",
    ] {
        assert!(LabelSelector::parse(good).is_ok(), "{good}");
    }
    for bad in [
        "x=a||y=b",
        "x==a==b",
        "!x=a",
        "x<a",
        "x>a",
        "x in",
        "x in (",
        "x in (a",
        "x in a",
        "x,",
        ",x",
        "x,,y",
        "(x)",
        "x=(a)",
        "x y",
        "x=a b",
        "=a",
        "!!x",
        "!",
        "x in (a b)",
        "x=a&b",
        "example.com/a/b",
        "-x",
        "x=-y",
        "x in (-y)",
        "x>1.5",
        "x>",
        "x=ä",
        "ä",
        "x notin",
        "!x in (a)",
        "tributary.dev/cluster in",
    ] {
        assert!(LabelSelector::parse(bad).is_err(), "{bad}");
    }
}

#[test]
fn label_selector_prints_an_equal_selector() {
    for (text, printed) in [
        ("x in (foo,bar)", "x in (bar,foo)"),
        ("x notin (a,a)", "x notin (a)"),
        ("x in ()", "x in ()"),
        ("x in (,a)", "x in (,a)"),
        ("x in (a,)", "x in (,a)"),
        ("x in (a,,b)", "x in (,a,b)"),
        ("z=1,a==2,m!=3,!n,o,p>4,q<5", "a==2,m!=3,!n,o,p>4,q<5,z=1"),
        ("x =a", "x=a"),
        ("x\t=\na", "x=a"),
    ] {
        let selector = LabelSelector::parse(text).unwrap();
        assert_eq!(selector.to_string(), printed);
        assert_eq!(LabelSelector::parse(printed).unwrap(), selector);
    }
}

#[test]
fn label_selector_matches_labels() {
    for (selector, labels, expected) in [
        ("", &[("x", "y")][..], true),
        ("x=y", &[("x", "y")], true),
        ("x=y,z=w", &[("x", "y"), ("z", "w")], true),
        ("x!=y,z!=w", &[("x", "z"), ("z", "a")], true),
        ("x!=y", &[], true),
        ("notin=in", &[("notin", "in")], true),
        ("x", &[("x", "z")], true),
        ("!x", &[("y", "z")], true),
        ("!x", &[("x", "z")], false),
        ("x>1", &[("x", "2")], true),
        ("x>1", &[("x", "1")], false),
        ("x>1", &[("x", "a")], false),
        ("x>1", &[], false),
        ("x<1", &[("x", "0")], true),
        ("x<1", &[("x", "-5")], true),
        ("x=z", &[], false),
        ("x=y", &[("x", "z")], false),
        ("x=y,z=w", &[("x", "w"), ("z", "w")], false),
        ("x!=y,z!=w", &[("x", "z"), ("z", "w")], false),
        ("x in (foo,bar)", &[("x", "bar")], true),
        ("x in (foo,bar)", &[("x", "baz")], false),
        ("x in (foo,bar)", &[], false),
        ("x notin (foo,bar)", &[("x", "baz")], true),
        ("x notin (foo,bar)", &[("x", "foo")], false),
        ("x notin (foo,bar)", &[], true),
        ("x=", &[("x", "")], true),
        ("x=", &[], false),
        ("x in (,a)", &[("x", "")], true),
        ("x in ()", &[("x", "")], true),
    ] {
        assert_eq!(matches(selector, labels), expected, "{selector} on {labels:?}");
    }
}

#[test]
fn label_selector_errors_have_the_messages_of_apimachinery() {
    for (selector, message) in [
        ("x y", "unable to parse requirement: found 'y', expected: in, notin, =, ==, !=, gt, lt"),
        ("x=a b", "found 'b', expected: ',' or 'end of string'"),
        ("x,", "found '', expected: identifier after ','"),
        (",x", "found ',', expected: !, identifier, or 'end of string'"),
        ("x in a", "unable to parse requirement: found 'a' expected: '('"),
        ("x in (a b)", "unable to parse requirement: found 'b', expected: ',' or ')'"),
        ("x in (=)", "unable to parse requirement: found '=', expected: ',', ')' or identifier"),
        ("x=(a)", "unable to parse requirement: found '(', expected: identifier"),
        ("!=a", "found '!=', expected: !, identifier, or 'end of string'"),
        ("!", "unable to parse requirement: found '', expected: identifier"),
        (
            "x>a",
            "unable to parse requirement: values[0]: Invalid value: \"a\": for 'Gt', 'Lt' operators, the value must be an integer",
        ),
        (
            "-x",
            "unable to parse requirement: <nil>: Invalid value: \"-x\": name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')",
        ),
        (
            "x=a+b",
            "unable to parse requirement: values[0][x]: Invalid value: \"a+b\": a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')",
        ),
    ] {
        assert_eq!(LabelSelector::parse(selector).unwrap_err().to_string(), message, "{selector}");
    }
}

#[test]
fn label_selector_matches_an_object() {
    let object = crate::ObjectDecoder::new("v1", "Pod", [].into())
        .decode(br#"{"metadata":{"name":"p","resourceVersion":"1","labels":{"app":"web","tier":"3"}}}"#)
        .unwrap();
    for (selector, expected) in
        [("app=web", true), ("app in (api,web),tier>2", true), ("app!=web", false), ("!app", false), ("!x", true)]
    {
        assert_eq!(LabelSelector::parse(selector).unwrap().matches(&object), expected, "{selector}");
    }
}

mod properties {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn arbitrary_label_selector_text_prints_an_equal_selector(text in "[a-z!=<>(), \\t\\x00-]{0,24}") {
            if let Ok(selector) = LabelSelector::parse(&text) {
                prop_assert_eq!(LabelSelector::parse(&selector.to_string()), Ok(selector));
            }
        }

        #[test]
        fn label_selector_parser_does_not_panic_for_arbitrary_unicode(text in ".{0,24}") {
            let _ = LabelSelector::parse(&text);
            let _ = crate::FieldSelector::parse(&text);
        }
    }
}
