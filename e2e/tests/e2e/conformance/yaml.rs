//! Cases for YAML with strings that a parser easily takes for another type. kubectl's Go parser must read the same
//! values as from JSON.

use super::{
    Conformance, conformance,
    differences::YAML_STYLE,
    list::escape,
    target::{Target, names_of, pod},
};
use anyhow::{Context, ensure};
use serde_json::{Map, Value, json};
use tributary_e2e::Kubectl;

pub(super) fn cases() -> Vec<Conformance> {
    conformance!["yaml";
        strings_that_look_like_other_types_stay_strings_in_a_yaml_object, strings_that_look_like_other_types_stay_strings_in_a_yaml_list,
        yaml_of_ordinary_objects_equals_the_members_yaml_byte_for_byte, yaml_of_empty_maps_parses_to_the_same_object_as_json,
        list_pages_as_yaml_parse_to_the_same_objects_as_json,
    ]
}

/// Strings that need quotes in YAML, and similar strings that need no quotes. U+007F is left out because kube-apiserver
/// answers 500, and U+0085 because kube-apiserver loses it.
const ODD: [&str; 80] = [
    "y",
    "n",
    "yes",
    "no",
    "on",
    "off",
    "Yes",
    "NO",
    "On",
    "OFF",
    "true",
    "False",
    "null",
    "Null",
    "~",
    "",
    " ",
    "0",
    "-0",
    "007",
    "0o7",
    "0x1F",
    "0b11",
    "1_000",
    "1e3",
    "1E+3",
    ".5",
    "5.",
    "1.0",
    "+1",
    ".inf",
    "-.Inf",
    ".nan",
    "NaN",
    "Infinity",
    "190:20:30",
    "2001-02-03",
    "2001-02-03T04:05:06Z",
    "=",
    "<<",
    "-",
    "--",
    "---",
    "...",
    "- a",
    "-a",
    "? a",
    "?",
    ": a",
    ":",
    "a: b",
    "a:",
    "a:b",
    "a #b",
    "#a",
    "a#b",
    "&a",
    "*a",
    "!a",
    "!!str a",
    "|",
    ">",
    "|-",
    "@a",
    "`a",
    "%a",
    "{a}",
    "[a]",
    "a, b",
    "\"a\"",
    "'a'",
    "it's",
    " leading",
    "trailing ",
    "\ttab",
    "tab\t",
    "a\tb",
    "\u{feff}bom",
    "\u{2028}line",
    "🜂 ä \u{0} é",
];

/// Strings with several lines, with all kinds of blanks and line ends.
const LINES: [&str; 22] = [
    "\n",
    "\n\n",
    "a\n",
    "a\nb",
    "a\nb\n",
    "a\n\nb\n\n",
    "\na",
    "\n\n a",
    " a\nb",
    " a\n b\n",
    "a\n b\nc",
    "a \nb ",
    "a\n \nb",
    "\ta\nb",
    "a\n\tb\n",
    "a\r\nb\r\n",
    "a\rb",
    "# a\nb: c\n",
    "---\na: b\n...\n",
    "- a\n- b",
    "a\n\n\n",
    "\u{2028}\nä\n",
];

/// Map keys that need quotes in YAML, and similar keys that need no quotes.
const KEYS: [&str; 21] = [
    "y",
    "No",
    "on",
    "null",
    "true",
    "1",
    "01",
    "1e3",
    "0x1f",
    ".5",
    "1.0",
    "-",
    "--",
    "---",
    "-a",
    "_",
    "2001-02-03",
    ".inf",
    "1_000",
    "a.b",
    "a2",
];

/// Makes a ConfigMap with all strings of the tests. It has annotations, so that the annotation that Tributary adds is
/// not the only one.
fn odd() -> Value {
    let long = "word ".repeat(60) + "end";
    let unbroken = "x".repeat(300);
    let texts = ODD.iter().chain(&LINES).copied().chain([&*long, &*unbroken]);
    let mut data: Map<String, Value> =
        texts.enumerate().map(|(at, text)| (format!("text-{at}"), json!(text))).collect();
    data.extend(KEYS.iter().map(|key| ((*key).to_owned(), json!(*key))));
    let annotations = json!({"example.com/on": "on", "y": "no", "example.com/lines": "a: |\n  b\n"});
    json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": "odd", "labels": {"n": "1e3", "1": "", "on": "007"}, "annotations": annotations},
        "data": data, "binaryData": {"bytes": "AP8=", "nothing": ""},
    })
}

/// Parses a YAML text into objects with kubectl.
async fn read_by_kubectl(kubectl: &Kubectl, yaml: &str) -> anyhow::Result<Vec<Value>> {
    let file = kubectl.file("answer.yaml", yaml)?;
    let arguments = [
        "create",
        "--dry-run=client",
        "--validate=false",
        "--output=json",
        "--show-managed-fields",
        "--filename",
        &file,
    ];
    let text = kubectl.ok(&arguments).await.with_context(|| format!("of this YAML:\n{yaml}"))?;
    let mut objects = Vec::new();
    for document in serde_json::Deserializer::from_str(&text).into_iter::<Value>() {
        let mut document = document.context("read what kubectl printed")?;
        match document["items"].take() {
            Value::Array(items) => objects.extend(items),
            _ => objects.push(without_items(document)),
        }
    }
    Ok(objects)
}

/// Removes the null field `items`, which an earlier index expression has inserted.
fn without_items(mut object: Value) -> Value {
    object.as_object_mut().map(|object| object.remove("items"));
    object
}

/// Describes the first difference between two values. `None` if they are equal.
fn difference(path: &str, shown: &Value, expected: &Value) -> Option<String> {
    match (shown, expected) {
        (Value::Object(ours), Value::Object(theirs)) => {
            let keys = ours.keys().chain(theirs.keys());
            keys.map(|key| difference(&format!("{path}.{key}"), &shown[key], &expected[key])).find_map(|found| found)
        }
        (Value::Array(ours), Value::Array(theirs)) if ours.len() == theirs.len() => {
            let pairs = ours.iter().zip(theirs).enumerate();
            pairs.map(|(at, (ours, theirs))| difference(&format!("{path}[{at}]"), ours, theirs)).find_map(|found| found)
        }
        _ => (shown != expected).then(|| format!("{path}: {shown} instead of {expected}")),
    }
}

async fn yaml(target: &Target, path: &str) -> anyhow::Result<String> {
    let answer = target.http.get(path).accept("application/yaml").send().await?.expect(200)?;
    ensure!(answer.header("content-type") == "application/yaml", "{:?}", answer.headers);
    String::from_utf8(answer.body.to_vec()).context("not UTF-8")
}

/// Checks that the YAML from a path has the same values as the JSON.
async fn agrees_with_json(target: &Target, path: &str) -> anyhow::Result<()> {
    let text = yaml(target, path).await?;
    let shown = read_by_kubectl(&target.kubectl_of_the_member()?, &text).await?;
    let whole = target.read(path).await?;
    let expected: Vec<Value> = match whole["items"].as_array() {
        // The items of a list have no kind in the response. kubectl adds the kind, which it derives from the kind of
        // the list.
        Some(items) => {
            let kind = whole["kind"].as_str().and_then(|kind| kind.strip_suffix("List")).context("no list")?;
            let of_kind = |item: &Value| {
                let mut item = item.clone();
                item["kind"] = json!(kind);
                item["apiVersion"] = whole["apiVersion"].clone();
                item
            };
            items.iter().map(of_kind).collect()
        }
        None => vec![whole],
    };
    if let Some(difference) = difference("", &json!(shown), &json!(expected)) {
        anyhow::bail!("{difference}\n{text}");
    }
    Ok(())
}

async fn strings_that_look_like_other_types_stay_strings_in_a_yaml_object(target: Target) -> anyhow::Result<()> {
    target.http.post(&target.maps(""), &odd()).send().await?.expect(201)?;
    agrees_with_json(&target, &target.map("odd")).await?;
    Ok(())
}

/// Returns the lines of an object's YAML, without its version and cluster annotation. If the target may differ in YAML
/// style, managed fields are also left out, because the quotes of their keys may differ.
fn lines<'a>(target: &Target, text: &'a str) -> Vec<&'a str> {
    let mut managed = false;
    let kept = |line: &&str| {
        if !line.starts_with("    ") && !line.starts_with("  - ") {
            managed = *line == "  managedFields:" && target.differs(&YAML_STYLE);
        }
        !managed && !line.contains("resourceVersion:") && !line.contains("tributary.dev/cluster")
    };
    text.split('\n').filter(kept).collect()
}

async fn yaml_of_ordinary_objects_equals_the_members_yaml_byte_for_byte(target: Target) -> anyhow::Result<()> {
    let script = "#!/bin/sh\nset -e\n\nif [ -n \"$A\" ]; then\n  echo 'a: b'  # c\nfi\n";
    let map = json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {
            "name": "ordinary", "labels": {"app": "web", "version": "1.2", "enabled": "true", "rank": "007"},
            "annotations": {"example.com/note": "two words", "example.com/lines": "a: b\n\tc: d\n"},
        },
        "data": {
            "run.sh": script, "empty": "", "number": "5", "yes": "no", "null": "null", "date": "2001-02-03",
            "unicode": "Gr\u{fc}\u{df}e", "unbroken": "x".repeat(300), "without-end": "a\nb", "more-ends": "a\n\n",
            "indented": "  a\n b\n", "url": "http://a:80/?b=c&d",
        },
    });
    target.http.post(&target.maps(""), &map).send().await?.expect(201)?;
    let mut object = pod("ordinary");
    object["metadata"]["annotations"] = json!({"example.com/note": "a"});
    object["spec"]["volumes"] = json!([{"name": "scratch", "emptyDir": {}}]);
    object["spec"]["containers"][0]["args"] = json!(["--on", "yes", "1e3"]);
    target.http.post(&target.core("pods", ""), &object).send().await?.expect(201)?;
    for path in [target.map("ordinary"), target.core("pods", "/ordinary")] {
        let own = target.members[0].http().get(&path).accept("application/yaml").send().await?.expect(200)?.text();
        let text = yaml(&target, &path).await?;
        let (shown, own) = (lines(&target, &text), lines(&target, &own));
        ensure!(shown.len() > 20 && shown == own, "{}\ninstead of\n{}", shown.join("\n"), own.join("\n"));
    }
    Ok(())
}

async fn strings_that_look_like_other_types_stay_strings_in_a_yaml_list(target: Target) -> anyhow::Result<()> {
    target.seed_maps(3).await?;
    target.http.post(&target.maps(""), &odd()).send().await?.expect(201)?;
    agrees_with_json(&target, &target.maps("")).await
}

async fn yaml_of_empty_maps_parses_to_the_same_object_as_json(target: Target) -> anyhow::Result<()> {
    let mut object = pod("empty");
    object["spec"]["volumes"] =
        json!([{"name": "on", "emptyDir": {}}, {"name": "off", "emptyDir": {"sizeLimit": "1e3"}}]);
    object["spec"]["containers"][0]["env"] = json!([{"name": "y", "value": "no"}, {"name": "EMPTY"}]);
    target.http.post(&target.core("pods", ""), &object).send().await?.expect(201)?;
    agrees_with_json(&target, &target.core("pods", "")).await?;
    agrees_with_json(&target, &target.core("pods", "/empty")).await
}

async fn list_pages_as_yaml_parse_to_the_same_objects_as_json(target: Target) -> anyhow::Result<()> {
    target.seed_maps(4).await?;
    let path = target.maps("?limit=3");
    agrees_with_json(&target, &path).await?;
    let text = yaml(&target, &path).await?;
    ensure!(text.contains("\n  remainingItemCount: 1\n"), "{text}");
    // The continue token must be on one line, because some tools read YAML line by line.
    let token = text.lines().find_map(|line| line.strip_prefix("  continue: ")).context("no continue token")?;
    let next = target.maps(&format!("?limit=3&continue={}", escape(token)));
    agrees_with_json(&target, &next).await?;
    ensure!(names_of(&target.read(&next).await?).len() == 1, "another rest");
    Ok(())
}
