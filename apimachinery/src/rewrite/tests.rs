//! Tests of rewriting in each wire format: the expected changes occur, and no others.

use super::*;

fn native(_: VersionOf, _: &str) -> Result<String, Status> {
    Ok("42".to_owned())
}

fn apply(format: Format, shape: BodyKind, body: &[u8], has_annotations: bool) -> Result<Rewritten, Status> {
    rewrite(format, shape, &Bytes::copy_from_slice(body), has_annotations, &mut native)
}

fn text(format: Format, shape: BodyKind, body: &str, has_annotations: bool) -> String {
    let rewritten =
        apply(format, shape, body.as_bytes(), has_annotations).unwrap_or_else(|error| panic!("{body}: {error}"));
    String::from_utf8(rewritten.body.to_vec()).unwrap()
}

#[test]
fn rewritten_json_object_has_native_version_and_no_cluster_annotation() {
    for (input, expected) in [
        (
            r#"{"metadata":{"name":"p","resourceVersion":"abc","annotations":{"tributary.dev/cluster":"c1"}},"n":12345678901234567890.10}"#,
            r#"{"metadata":{"name":"p","resourceVersion":"42"},"n":12345678901234567890.10}"#,
        ),
        (
            r#"{"metadata":{"annotations":{"tributary.dev/cluster":"c1","a":"b"},"resourceVersion":"abc"}}"#,
            r#"{"metadata":{"annotations":{"a":"b"},"resourceVersion":"42"}}"#,
        ),
        (
            r#"{"metadata":{"annotations":{"a":"b", "tributary.dev/cluster":"c1" , "c":"d"}}}"#,
            r#"{"metadata":{"annotations":{"a":"b" , "c":"d"}}}"#,
        ),
        (r#"{"metadata":{"annotations":{"tributary.dev/cluster":"c1"}}}"#, r#"{"metadata":{}}"#),
        (r#"{"metadata":{"annotations":{"tributary.dev/cluster":null},"name":"p"}}"#, r#"{"metadata":{"name":"p"}}"#),
        // Field names with escapes are treated like the same names without escapes.
        (
            r#"{"metadata":{"annotations":{"tributary.dev\/cluster":"c1","a":"b"},"resource\u0056ersion":"x"}}"#,
            r#"{"metadata":{"annotations":{"a":"b"},"resource\u0056ersion":"42"}}"#,
        ),
        // Members use the last occurrence of a repeated field, so each occurrence is edited.
        (
            r#"{"metadata":{"resourceVersion":"a"},"metadata":{"resourceVersion":"b","resourceVersion":"c","annotations":{"tributary.dev/cluster":"a"},"annotations":{"x":"y","tributary.dev/cluster":"b"}}}"#,
            r#"{"metadata":{"resourceVersion":"42"},"metadata":{"resourceVersion":"42","resourceVersion":"42","annotations":{"x":"y"}}}"#,
        ),
        // A value that is not a version stays unchanged; the member accepts or refuses the value.
        (r#"{"metadata":{"resourceVersion":""}}"#, r#"{"metadata":{"resourceVersion":""}}"#),
        (r#"{"metadata":{"resourceVersion":7}}"#, r#"{"metadata":{"resourceVersion":7}}"#),
        (r#"{"metadata":{"annotations":{}}}"#, r#"{"metadata":{"annotations":{}}}"#),
        (r#"{"metadata":{"annotations":null}}"#, r#"{"metadata":{"annotations":null}}"#),
        (r#"{"metadata":null}"#, r#"{"metadata":null}"#),
        // Fields with the same names at other paths stay unchanged.
        (
            r#"{"spec":{"template":{"metadata":{"resourceVersion":"x","annotations":{"tributary.dev/cluster":"c"}}}},"resourceVersion":"y","preconditions":{"resourceVersion":"z"}}"#,
            r#"{"spec":{"template":{"metadata":{"resourceVersion":"x","annotations":{"tributary.dev/cluster":"c"}}}},"resourceVersion":"y","preconditions":{"resourceVersion":"z"}}"#,
        ),
        ("[]", "[]"),
        ("\"x\"", "\"x\""),
    ] {
        for format in [Format::Json, Format::MergePatch, Format::StrategicMergePatch, Format::ApplyYaml, Format::Yaml] {
            if format == Format::Yaml && !input.starts_with('{') {
                continue;
            }
            if format == Format::ApplyYaml && !input.starts_with('{') {
                continue;
            }
            assert_eq!(text(format, BodyKind::Object, input, true), expected, "{format:?}");
            assert_eq!(apply(format, BodyKind::Object, input.as_bytes(), true).unwrap().content_type, None);
        }
    }
}

#[test]
fn rewritten_json_body_of_each_kind_has_native_versions() {
    for (shape, input, expected) in [
        (
            BodyKind::CoreEvent,
            r#"{"metadata":{"name":"e"},"involvedObject":{"uid":"u","resourceVersion":"x"},"regarding":{"resourceVersion":"x"}}"#,
            r#"{"metadata":{"name":"e"},"involvedObject":{"uid":"u","resourceVersion":"42"},"regarding":{"resourceVersion":"x"}}"#,
        ),
        (
            BodyKind::Event,
            r#"{"regarding":{"resourceVersion":"x"},"related":{"resourceVersion":"y"}}"#,
            r#"{"regarding":{"resourceVersion":"42"},"related":{"resourceVersion":"42"}}"#,
        ),
        (
            BodyKind::Eviction,
            r#"{"metadata":{"name":"p","resourceVersion":"a"},"deleteOptions":{"preconditions":{"uid":"u","resourceVersion":"x"}}}"#,
            r#"{"metadata":{"name":"p","resourceVersion":"42"},"deleteOptions":{"preconditions":{"uid":"u","resourceVersion":"42"}}}"#,
        ),
        (
            BodyKind::DeleteOptions,
            r#"{"kind":"DeleteOptions","preconditions":{"resourceVersion":"x"},"gracePeriodSeconds":0}"#,
            r#"{"kind":"DeleteOptions","preconditions":{"resourceVersion":"42"},"gracePeriodSeconds":0}"#,
        ),
    ] {
        assert_eq!(text(Format::Json, shape, input, true), expected);
    }
}

#[test]
fn resource_version_of_an_events_involved_object_is_translated_separately() {
    let body = br#"{"metadata":{"resourceVersion":"a"},"involvedObject":{"resourceVersion":"b"},"related":{"resourceVersion":"c"}}"#;
    let mut version = |of: VersionOf, _: &str| match of {
        VersionOf::Object => Ok("42".to_owned()),
        VersionOf::Reference => Ok(String::new()),
    };
    let rewritten = rewrite(Format::Json, BodyKind::CoreEvent, &Bytes::from_static(body), true, &mut version).unwrap();
    let expected = br#"{"metadata":{"resourceVersion":"42"},"involvedObject":{"resourceVersion":""},"related":{"resourceVersion":""}}"#;
    assert_eq!(*rewritten.body, *expected);
}

#[test]
fn object_identity_fields_are_read_from_a_json_body() {
    let facts = read(
        Format::Json,
        BodyKind::CoreEvent,
        br#"{"apiVersion":"v1","kind":"Event","metadata":{"name":"a","name":"e","generateName":"g","namespace":"n","resourceVersion":"\u0061","annotations":{"tributary.dev/cluster":"c1"},"ownerReferences":[{"uid":"o1"},{"uid":"o2"}]},"involvedObject":{"uid":"u"}}"#,
    )
    .unwrap();
    let some = |text: &str| Some(text.to_owned());
    assert_eq!(
        facts,
        Facts {
            api_version: some("v1"),
            kind: some("Event"),
            name: some("e"),
            generate_name: some("g"),
            namespace: some("n"),
            resource_version: some("a"),
            cluster: some("c1"),
            owners: ["o1", "o2"].map(|uid| Reference { uid: uid.into(), ..Reference::default() }).into(),
            involved: Some(Reference { uid: "u".into(), ..Reference::default() }),
            ..Facts::default()
        }
    );
    let facts = read(
        Format::Json,
        BodyKind::Eviction,
        br#"{"metadata":{"name":"p"},"deleteOptions":{"preconditions":{"uid":"u","resourceVersion":"5"},"dryRun":["All"]}}"#,
    )
    .unwrap();
    assert_eq!((facts.precondition_uid, facts.precondition_resource_version), (some("u"), some("5")));
    assert_eq!((facts.dry_run, facts.name), (vec!["All".to_owned()], some("p")));
    assert_eq!(read(Format::Json, BodyKind::Object, b"").unwrap(), Facts::default());
}

/// The fields that determine the cluster are equal in each format.
#[test]
fn object_identity_fields_are_equal_in_each_body_format() {
    let some = |text: &str| Some(text.to_owned());
    let release = ReleaseFacts {
        record_owner: some("helm"),
        record_name: some("rb"),
        name: some("r"),
        namespace: some("shop"),
        hook: some("pre-upgrade"),
        instance: some("ri"),
    };
    let yaml = "metadata:\n  uid: u\n  labels: {owner: helm, name: rb, app.kubernetes.io/instance: ri}\n  annotations:\n    \
                meta.helm.sh/release-name: r\n    meta.helm.sh/release-namespace: shop\n    helm.sh/hook: pre-upgrade\n\
                spec: {nodeName: node-0}\n";
    let whole = serde_json::from_slice::<serde_json::Value>(&yaml::to_json(yaml.as_bytes()).unwrap()).unwrap();
    let patch = format!(
        r#"[{{"op":"add","path":"/metadata","value":{}}},{{"op":"test","path":"/spec/nodeName","value":"node-0"}}]"#,
        whole["metadata"]
    );
    for (format, body) in
        [(Format::ApplyYaml, yaml.to_owned()), (Format::Json, whole.to_string()), (Format::JsonPatch, patch)]
    {
        let facts = read(format, BodyKind::Pod, body.as_bytes()).unwrap();
        assert_eq!((&facts.uid, &facts.release), (&some("u"), &release), "{format:?}");
        assert_eq!(facts.node_name, some("node-0"), "{format:?}");
    }
    let spec = br#"{"spec":{"nodeName":"node-0"},"target":{"kind":"Node","name":"node-1"}}"#;
    assert_eq!(
        read(Format::Json, BodyKind::Object, spec).unwrap(),
        Facts::default(),
        "these facts exist only for a Pod and a Binding"
    );
    let target = Reference { kind: "Node".into(), name: "node-1".into(), ..Reference::default() };
    assert_eq!(read(Format::Json, BodyKind::Binding, spec).unwrap().target, Some(target));
}

#[test]
fn malformed_request_body_returns_400() {
    for (format, body) in [
        (Format::Json, &b"{"[..]),
        (Format::Json, b"{\"a\":1}}"),
        (Format::MergePatch, b"\xff"),
        (Format::JsonPatch, b"{}"),
        (Format::JsonPatch, br#"[{"op":"add"}]"#),
        (Format::JsonPatch, br#"[{"op":"add","path":"metadata"}]"#),
        (Format::JsonPatch, b"[1]"),
        (Format::Yaml, b"a: [1"),
        (Format::Yaml, b"a: 1\n---\nb: 2\n"),
        (Format::ApplyYaml, b"\xff\xfe"),
        (Format::Protobuf, b"{}"),
        (Format::Protobuf, b"k8s\0\x12\x05ab"),
        (Format::Protobuf, b"k8s\0\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"),
        (Format::Protobuf, b"k8s\0\x0b"),
        (Format::Protobuf, b"k8s\0\x12\x03\x0a\x05a"),
        (Format::Protobuf, b"k8s\0\x1a\x04gzip"),
    ] {
        let status = apply(format, BodyKind::Object, body, true).expect_err(&format!("{format:?} {body:?}"));
        assert_eq!((status.code, status.reason.as_str()), (400, "BadRequest"));
        assert_eq!(read(format, BodyKind::Object, body).unwrap_err().code, 400);
    }
}

#[test]
fn body_rewrite_returns_the_error_if_a_resource_version_is_not_translated() {
    for (format, body) in [
        (Format::Json, &br#"{"metadata":{"resourceVersion":"x"}}"#[..]),
        (Format::JsonPatch, br#"[{"op":"test","path":"/metadata/resourceVersion","value":"x"}]"#),
        (Format::Yaml, b"metadata: {resourceVersion: x}"),
        (Format::Protobuf, b"k8s\0\x12\x05\x0a\x03\x32\x01x"),
    ] {
        let refused = rewrite(format, BodyKind::Object, &Bytes::copy_from_slice(body), true, &mut |_, input| {
            assert_eq!(input, "x");
            Err(Status::gone("no"))
        });
        assert_eq!(refused.unwrap_err().code, 410, "{format:?}");
    }
}

#[test]
fn json_patch_is_rewritten_for_the_members_object() {
    let unchanged = |patch: &'static str| (patch, true, patch);
    for (input, has_annotations, expected) in [
        (
            r#"[{"op":"test","path":"/metadata/resourceVersion","value":"x"},{"op":"replace","path":"/spec/n","value":1}]"#,
            true,
            r#"[{"op":"test","path":"/metadata/resourceVersion","value":"42"},{"op":"replace","path":"/spec/n","value":1}]"#,
        ),
        (
            r#"[{"value":"x","path":"/metadata/resourceVersion","op":"replace"}]"#,
            true,
            r#"[{"value":"42","path":"/metadata/resourceVersion","op":"replace"}]"#,
        ),
        unchanged(r#"[{"op":"remove","path":"/metadata/resourceVersion"}]"#),
        unchanged(r#"[]"#),
        unchanged(r#"[{"op":"add","path":"/spec/template/metadata/resourceVersion","value":"x"}]"#),
        // Operations on the cluster annotation are removed, because the member's object lacks the annotation.
        (
            r#"[{"op":"add","path":"/metadata/annotations/tributary.dev~1cluster","value":"c1"},{"op":"add","path":"/a","value":1}]"#,
            true,
            r#"[{"op":"add","path":"/a","value":1}]"#,
        ),
        (
            r#"[{"op":"add","path":"/a","value":1} , {"op":"test","path":"/metadata/annotations/tributary.dev~1cluster","value":"c1"}]"#,
            true,
            r#"[{"op":"add","path":"/a","value":1}]"#,
        ),
        (r#"[{"op":"remove","path":"/metadata/annotations/tributary.dev~1cluster"}]"#, true, "[]"),
        // The annotations map of these patches exists only in the merged view, because of the cluster annotation.
        (
            r#"[{"op":"test","path":"/a","value":1},{"op":"add","path":"/metadata/annotations/x","value":"y"},{"op":"add","path":"/metadata/annotations/z","value":"y"}]"#,
            false,
            r#"[{"op":"test","path":"/a","value":1},{"op":"add","path":"/metadata/annotations","value":{}},{"op":"add","path":"/metadata/annotations/x","value":"y"},{"op":"add","path":"/metadata/annotations/z","value":"y"}]"#,
        ),
        unchanged(r#"[{"op":"add","path":"/metadata/annotations/x","value":"y"}]"#),
        (
            r#"[{"op":"add","path":"/metadata/annotations","value":{}},{"op":"add","path":"/metadata/annotations/x","value":"y"}]"#,
            false,
            r#"[{"op":"add","path":"/metadata/annotations","value":{}},{"op":"add","path":"/metadata/annotations/x","value":"y"}]"#,
        ),
        (
            r#"[{"op":"copy","from":"/metadata/name","path":"/metadata/annotations/x"}]"#,
            false,
            r#"[{"op":"add","path":"/metadata/annotations","value":{}},{"op":"copy","from":"/metadata/name","path":"/metadata/annotations/x"}]"#,
        ),
        // Patches of the whole annotations map.
        (
            r#"[{"op":"replace","path":"/metadata/annotations","value":{"tributary.dev/cluster":"c1","a":"b"}}]"#,
            false,
            r#"[{"op":"add","path":"/metadata/annotations","value":{"a":"b"}}]"#,
        ),
        (
            r#"[{"op":"test","path":"/metadata/annotations","value":{"a":"b","tributary.dev/cluster":"c1"}}]"#,
            true,
            r#"[{"op":"test","path":"/metadata/annotations","value":{"a":"b"}}]"#,
        ),
        (
            r#"[{"op":"test","path":"/metadata/annotations","value":{"tributary.dev/cluster":"c1"}},{"op":"add","path":"/a","value":1}]"#,
            false,
            r#"[{"op":"add","path":"/a","value":1}]"#,
        ),
        (r#"[{"op":"remove","path":"/metadata/annotations"}]"#, false, "[]"),
        unchanged(r#"[{"op":"remove","path":"/metadata/annotations"}]"#),
        // Patches of the whole metadata or object.
        (
            r#"[{"op":"test","path":"/metadata","value":{"name":"p","resourceVersion":"x","annotations":{"tributary.dev/cluster":"c1"}}}]"#,
            false,
            r#"[{"op":"test","path":"/metadata","value":{"name":"p","resourceVersion":"42"}}]"#,
        ),
        (
            r#"[{"op":"replace","path":"","value":{"metadata":{"resourceVersion":"x","annotations":{"tributary.dev/cluster":"c1","a":"b"}}}}]"#,
            true,
            r#"[{"op":"replace","path":"","value":{"metadata":{"resourceVersion":"42","annotations":{"a":"b"}}}}]"#,
        ),
        (
            r#"[{"op":"replace","path":"/metadata","value":{"annotations":{"tributary.dev/cluster":"c1"}}},{"op":"add","path":"/metadata/annotations/x","value":"y"}]"#,
            true,
            r#"[{"op":"replace","path":"/metadata","value":{}},{"op":"add","path":"/metadata/annotations","value":{}},{"op":"add","path":"/metadata/annotations/x","value":"y"}]"#,
        ),
    ] {
        assert_eq!(text(Format::JsonPatch, BodyKind::Object, input, has_annotations), expected);
    }
    assert_eq!(
        text(
            Format::JsonPatch,
            BodyKind::CoreEvent,
            r#"[{"op":"add","path":"/involvedObject","value":{"resourceVersion":"x"}},{"op":"add","path":"/involvedObject/resourceVersion","value":"x"}]"#,
            true
        ),
        r#"[{"op":"add","path":"/involvedObject","value":{"resourceVersion":"42"}},{"op":"add","path":"/involvedObject/resourceVersion","value":"42"}]"#
    );
    let moved = br#"[{"op":"move","from":"/metadata/annotations/tributary.dev~1cluster","path":"/metadata/labels/x"}]"#;
    assert_eq!(apply(Format::JsonPatch, BodyKind::Object, moved, true).unwrap_err().code, 400);
    let facts = read(
        Format::JsonPatch,
        BodyKind::Object,
        br#"[{"op":"test","path":"/metadata/resourceVersion","value":"x"},{"op":"test","path":"/metadata/annotations/tributary.dev~1cluster","value":"c1"}]"#,
    )
    .unwrap();
    assert_eq!((facts.resource_version.as_deref(), facts.cluster.as_deref()), (Some("x"), Some("c1")));
}

#[test]
fn yaml_body_becomes_json_only_if_the_rewrite_changes_it() {
    let plain = "apiVersion: v1\nkind: ConfigMap # comment\nmetadata: {name: a}\ndata: {mode: '0644'}\n";
    let same = apply(Format::Yaml, BodyKind::Object, plain.as_bytes(), true).unwrap();
    assert_eq!((&*same.body, same.content_type), (plain.as_bytes(), None));
    let input = "metadata:\n  name: a\n  resourceVersion: x\n  annotations:\n    tributary.dev/cluster: c1\nspec:\n  defaultMode: 0644\n  big: 9007199254740993\n  half: 0.5\n  ten: 10.0\n  kilo: 1e3\n  octal: 08\n  on: off\n  text: '007'\n  none: ~\n  yes: true\n  list: [a, \"b\"]\n";
    let changed = apply(Format::Yaml, BodyKind::Object, input.as_bytes(), true).unwrap();
    assert_eq!(changed.content_type, Some("application/json"));
    let value: serde_json::Value = serde_json::from_slice(&changed.body).unwrap();
    assert_eq!(value["metadata"], serde_json::json!({"name": "a", "resourceVersion": "42"}));
    let spec = &value["spec"];
    assert_eq!(spec["defaultMode"], 420, "YAML 1.1 octal");
    assert_eq!(spec["big"], 9_007_199_254_740_993_u64);
    assert_eq!((&spec["half"], &spec["text"], &spec["none"]), (&0.5.into(), &"007".into(), &serde_json::Value::Null));
    assert_eq!(spec["ten"].as_i64().zip(spec["kilo"].as_i64()).zip(spec["octal"].as_i64()), Some(((10, 1000), 8)));
    assert_eq!(spec["on"], false, "YAML 1.1 words for booleans");
    assert_eq!(spec["list"], serde_json::json!(["a", "b"]));
    let applied = apply(Format::ApplyYaml, BodyKind::Object, input.as_bytes(), true).unwrap();
    assert_eq!((&applied.body, applied.content_type), (&changed.body, None));
    assert_eq!(read(Format::Yaml, BodyKind::Object, input.as_bytes()).unwrap().cluster.as_deref(), Some("c1"));
}

/// Creates YAML in which each level repeats the previous level nine times: 2.8 × 10¹¹ values in 670 bytes.
fn aliases_of_aliases() -> String {
    let nine = |of: &str| [of; 9].join(",");
    let levels: String = (1..12).map(|at| format!("a{at}: &a{at} [{}]\n", nine(&format!("*a{}", at - 1)))).collect();
    format!("kind: ConfigMap\na0: &a0 [{}]\n{levels}", nine("x"))
}

/// Creates YAML that merges a map of `keys` keys into `merged` other maps.
fn merges(keys: usize, merged: usize) -> String {
    let keys: Vec<_> = (0..keys).map(|key| format!("k{key}: v")).collect();
    let merges: String = (0..merged).map(|at| format!("c{at}: {{<<: *b}}\n")).collect();
    format!("b: &b {{{}}}\n{merges}", keys.join(","))
}

/// Creates YAML that repeats a text of `bytes` bytes by `times` aliases.
fn repeated(bytes: usize, times: usize) -> String {
    let data: Vec<_> = (0..times).map(|at| format!("k{at}: *d")).collect();
    format!("binaryData: {{d: &d \"{}\"}}\ndata: {{{}}}\n", "x".repeat(bytes), data.join(","))
}

#[test]
fn yaml_body_with_expanding_aliases_is_refused() {
    let in_anchors = |levels: usize, values: usize| {
        let open: String = (0..levels).map(|at| format!("&n{at} [")).collect();
        format!("x: {open}{}{}\n", "a,".repeat(values), "]".repeat(levels))
    };
    let long_tag = format!("%TAG !t! tag:{}\n---\nx: [{}]\n", "x".repeat(1_000), "!t!a b,".repeat(1_000));
    for text in [aliases_of_aliases(), merges(2_000, 100), repeated(60_000, 99), in_anchors(50, 19_000), long_tag] {
        for format in [Format::Yaml, Format::ApplyYaml] {
            let refused = read(format, BodyKind::Object, text.as_bytes()).unwrap_err();
            assert_eq!((refused.code, refused.reason.as_str()), (400, "BadRequest"));
            let message = "error converting YAML to JSON: document contains excessive aliasing";
            assert!(refused.message.starts_with(message), "{}", refused.message);
            assert!(refused.message.ends_with("write out the values, or send JSON"), "{}", refused.message);
        }
    }
    // Two kinds of aliases are allowed: many aliases of one anchor, and aliases that repeat only a part of the body.
    for text in [repeated(20, 150), repeated(20_000, 4), merges(20, 20), merges(2_000, 4), in_anchors(2, 100)] {
        let json = yaml::convert(text.as_bytes()).unwrap();
        assert!(json.len() < text.len() * 10 + (64 << 10), "{} bytes of {}", json.len(), text.len());
    }
    let merged: serde_json::Value = serde_json::from_slice(&yaml::convert(merges(2, 2).as_bytes()).unwrap()).unwrap();
    let map = serde_json::json!({"k0": "v", "k1": "v"});
    assert_eq!(merged, serde_json::json!({"b": map, "c0": map, "c1": map}));
}

#[test]
fn yaml_body_with_too_many_values_or_levels_is_refused() {
    let many = format!("x: [{}]\n", "a,".repeat(250_001));
    // The outer map is the first nesting level.
    let nested = |levels: usize| format!("x: {}{}\n", "[".repeat(levels - 1), "]".repeat(levels - 1));
    assert!(yaml::convert(nested(64).as_bytes()).is_ok());
    let refused = [(many, "document has more than 250000 values"), (nested(65), "document has more than 64 levels")];
    for (text, expected) in refused {
        let message = read(Format::Yaml, BodyKind::Object, text.as_bytes()).unwrap_err().message;
        assert!(message.contains(expected) && message.ends_with("; send JSON"), "{message}");
    }
}

#[test]
fn yaml_body_is_converted_to_json_once() {
    let text = "metadata: {annotations: {tributary.dev/cluster: c1}, resourceVersion: x}\n";
    let input = Bytes::from_static(text.as_bytes());
    let yaml = RequestBody::new(Format::ApplyYaml, input.clone()).unwrap_err();
    assert_eq!(yaml.bytes(), input.len());
    let body = yaml.convert().unwrap();
    let json = br#"{"metadata":{"annotations":{"tributary.dev/cluster":"c1"},"resourceVersion":"x"}}"#;
    assert_eq!((body.text(), &**body.converted().unwrap()), (&input, &json[..]));
    assert_eq!(body.readable_bytes(), json.len());
    assert_eq!(body.facts(BodyKind::Object).unwrap().cluster.as_deref(), Some("c1"));
    let mut version = |_, _: &str| Ok("42".to_owned());
    let rewritten = body.rewritten(BodyKind::Object, true, &mut version).unwrap();
    assert_eq!(&*rewritten.body, br#"{"metadata":{"resourceVersion":"42"}}"#);
    for (format, text) in [(Format::ApplyYaml, &b" {\"a\":1}"[..]), (Format::Yaml, b""), (Format::Json, b"a: 1")] {
        let body = RequestBody::new(format, Bytes::from_static(text)).unwrap();
        assert_eq!((body.converted(), body.readable_bytes()), (None, text.len()));
    }
}

/// The member decides about repeated keys (`fieldValidation=Strict`), so the text stays unchanged.
#[test]
fn yaml_body_with_a_repeated_key_is_forwarded() {
    let input = "metadata:\n  name: a\nspec:\n  unknown: x\n  foo: foo1\n  foo: foo2\n";
    for format in [Format::Yaml, Format::ApplyYaml] {
        let same = apply(format, BodyKind::Object, input.as_bytes(), true).unwrap();
        assert_eq!((&*same.body, same.content_type), (input.as_bytes(), None));
    }
    let versioned = input.replace("name: a", "resourceVersion: x\n  name: b\n  name: a");
    let changed = apply(Format::ApplyYaml, BodyKind::Object, versioned.as_bytes(), true).unwrap();
    let value: serde_json::Value = serde_json::from_slice(&changed.body).unwrap();
    assert_eq!(value["metadata"], serde_json::json!({"name": "a", "resourceVersion": "42"}), "the last key counts");
    assert_eq!(value["spec"]["foo"], "foo2");
}

#[test]
fn resource_version_in_a_query_is_translated() {
    for (input, expected) in [
        ("", ""),
        ("a=b&c", "a=b&c"),
        ("resourceVersion=abc", "resourceVersion=42"),
        ("uid=u&resourceVersion=a%2Bb&resourceVersion=c&x=%zz", "uid=u&resourceVersion=42&resourceVersion=42&x=%zz"),
        ("resource%56ersion=abc", "resourceVersion=42"),
        ("resourceVersion=", "resourceVersion="),
    ] {
        assert_eq!(rewrite_query(input, &mut native).as_deref(), Ok(expected));
    }
    assert_eq!(
        rewrite_query("resourceVersion=a", &mut |_, _| Ok("x&y=z".into())).unwrap(),
        "resourceVersion=x%26y%3Dz"
    );
}

#[test]
fn body_format_follows_the_content_type_and_body_kind_follows_the_request() {
    for (content_type, format) in [
        ("", Some(Format::Json)),
        ("application/json; charset=utf-8", Some(Format::Json)),
        ("Application/YAML", Some(Format::Yaml)),
        ("application/vnd.kubernetes.protobuf", Some(Format::Protobuf)),
        ("application/json-patch+json", Some(Format::JsonPatch)),
        ("application/merge-patch+json", Some(Format::MergePatch)),
        ("application/strategic-merge-patch+json", Some(Format::StrategicMergePatch)),
        ("application/apply-patch+yaml", Some(Format::ApplyYaml)),
        ("application/apply-patch+cbor", None),
        ("application/cbor", None),
        ("text/plain", None),
    ] {
        assert_eq!(Format::from_content_type(content_type), format, "{content_type}");
    }
    for (method, path, shape) in [
        ("POST", "/api/v1/namespaces/n/pods", BodyKind::Pod),
        ("POST", "/api/v1/namespaces/n/bindings", BodyKind::Binding),
        ("POST", "/api/v1/namespaces/n/pods/p/binding", BodyKind::Binding),
        ("PUT", "/api/v1/namespaces/n/pods/p/status", BodyKind::Object),
        ("POST", "/api/v1/namespaces/n/pods/p/eviction", BodyKind::Eviction),
        ("POST", "/api/v1/namespaces/n/events", BodyKind::CoreEvent),
        ("PATCH", "/apis/events.k8s.io/v1/namespaces/n/events/e", BodyKind::Event),
        ("DELETE", "/api/v1/namespaces/n/events/e", BodyKind::DeleteOptions),
        ("DELETE", "/api/v1/namespaces/n/pods", BodyKind::DeleteOptions),
        ("PUT", "/apis/apps/v1/namespaces/n/deployments/d/scale", BodyKind::Object),
    ] {
        let info = crate::RequestInfo::parse(method, path, None).unwrap();
        assert_eq!(BodyKind::for_request(info.verb, info.resource().unwrap()), shape, "{method} {path}");
    }
}

mod protobuf_bodies {
    use super::*;

    fn field(number: u64, contents: &[u8]) -> Vec<u8> {
        let mut out = varint(number << 3 | 2);
        out.extend(varint(contents.len() as u64));
        out.extend_from_slice(contents);
        out
    }

    fn varint(mut value: u64) -> Vec<u8> {
        let mut out = Vec::new();
        while value >= 0x80 {
            out.push(value as u8 | 0x80);
            value >>= 7;
        }
        out.push(value as u8);
        out
    }

    fn number(number: u64, value: u64) -> Vec<u8> {
        [varint(number << 3), varint(value)].concat()
    }

    fn entry(key: &str, value: &str) -> Vec<u8> {
        field(12, &[field(1, key.as_bytes()), field(2, value.as_bytes())].concat())
    }

    fn body(kind: &str, raw: &[u8]) -> Vec<u8> {
        let type_meta = [field(1, b"v1"), field(2, kind.as_bytes())].concat();
        [b"k8s\0".to_vec(), field(1, &type_meta), field(2, raw), field(3, b""), field(4, b"")].concat()
    }

    fn rewritten(shape: BodyKind, input: &[u8]) -> Vec<u8> {
        apply(Format::Protobuf, shape, input, true).unwrap().body.to_vec()
    }

    #[test]
    fn rewritten_protobuf_object_has_native_version_and_no_cluster_annotation() {
        let long = "x".repeat(300);
        let metadata = |version: &str, annotations: Vec<u8>| {
            let owner = [field(5, b"v1"), field(4, b"o1")].concat();
            [
                field(1, b"p"),
                field(2, b"g"),
                field(3, b"n"),
                field(5, b"u"),
                field(6, version.as_bytes()),
                number(7, 3),
                field(11, &[field(1, b"l"), field(2, b"v")].concat()),
                annotations,
                field(13, &owner),
                field(99, b"unknown"),
                vec![0x95, 0x06, 1, 2, 3, 4],
                vec![0x91, 0x06, 1, 2, 3, 4, 5, 6, 7, 8],
            ]
            .concat()
        };
        let object = |metadata: &[u8]| [field(1, metadata), field(2, b"spec"), field(3, b"status")].concat();
        let annotations = [entry("a", &long), entry("tributary.dev/cluster", "c1")].concat();
        let input = body("Pod", &object(&metadata(&long, annotations)));
        let expected = body("Pod", &object(&metadata("42", entry("a", &long))));
        assert_eq!(rewritten(BodyKind::Object, &input), expected, "length prefixes fit the new contents");
        let facts = read(Format::Protobuf, BodyKind::Object, &input).unwrap();
        assert_eq!((facts.api_version.as_deref(), facts.kind.as_deref()), (Some("v1"), Some("Pod")));
        assert_eq!((facts.name.as_deref(), facts.generate_name.as_deref()), (Some("p"), Some("g")));
        assert_eq!((facts.namespace.as_deref(), facts.cluster.as_deref()), (Some("n"), Some("c1")));
        assert_eq!(facts.resource_version, Some(long));
        let owner = Reference { api_version: "v1".into(), uid: "o1".into(), ..Reference::default() };
        assert_eq!(facts.owners, [owner]);
        assert_eq!(facts.uid.as_deref(), Some("u"));
    }

    #[test]
    fn helm_release_node_name_and_binding_target_are_read_from_protobuf() {
        let label =
            |key: &str, value: &str| field(11, &[field(1, key.as_bytes()), field(2, value.as_bytes())].concat());
        let metadata = [
            label("owner", "helm"),
            label("name", "rb"),
            entry("meta.helm.sh/release-name", "r"),
            entry("meta.helm.sh/release-namespace", "shop"),
            entry("helm.sh/hook", "pre-upgrade"),
            label("app.kubernetes.io/instance", "ri"),
        ];
        let reference = [field(1, b"Node"), field(3, b"node-1")].concat();
        let pod = body("Pod", &[field(1, &metadata.concat()), field(2, &field(10, b"node-0"))].concat());
        let facts = read(Format::Protobuf, BodyKind::Pod, &pod).unwrap();
        let ReleaseFacts { record_owner, record_name, name, namespace, hook, instance } = facts.release;
        let release = [record_owner, record_name, name, namespace, hook, instance].map(Option::unwrap);
        assert_eq!(release, ["helm", "rb", "r", "shop", "pre-upgrade", "ri"]);
        assert_eq!(facts.node_name.as_deref(), Some("node-0"));
        let binding = read(Format::Protobuf, BodyKind::Binding, &body("Binding", &field(2, &reference))).unwrap();
        assert_eq!(binding.target.map(|target| (target.kind, target.name)), Some(("Node".into(), "node-1".into())));
    }

    #[test]
    fn rewritten_protobuf_body_of_each_kind_has_native_versions() {
        let reference = |version: &str| [field(4, b"u"), field(6, version.as_bytes()), field(7, b"path")].concat();
        for (shape, at) in [(BodyKind::CoreEvent, 2), (BodyKind::Event, 8)] {
            let event =
                |version: &str| body("Event", &[field(1, &field(1, b"e")), field(at, &reference(version))].concat());
            assert_eq!(rewritten(shape, &event("x")), event("42"));
            let involved = read(Format::Protobuf, shape, &event("x")).unwrap().involved;
            assert_eq!(involved.map(|involved| involved.uid).as_deref(), Some("u"));
            assert_eq!(rewritten(BodyKind::Object, &event("x")), event("x"), "only in Events");
        }
        let options = |version: &str| {
            let preconditions = [field(1, b"u"), field(2, version.as_bytes())].concat();
            [number(1, 0), field(2, &preconditions), field(5, b"All")].concat()
        };
        let delete = |version: &str| body("DeleteOptions", &options(version));
        assert_eq!(rewritten(BodyKind::DeleteOptions, &delete("x")), delete("42"));
        let evict = |version: &str| {
            body("Eviction", &[field(1, &field(6, version.as_bytes())), field(2, &options(version))].concat())
        };
        assert_eq!(rewritten(BodyKind::Eviction, &evict("x")), evict("42"));
        for facts in [
            read(Format::Protobuf, BodyKind::DeleteOptions, &delete("x")).unwrap(),
            read(Format::Protobuf, BodyKind::Eviction, &evict("x")).unwrap(),
        ] {
            assert_eq!(facts.precondition_uid.as_deref(), Some("u"));
            assert_eq!(facts.precondition_resource_version.as_deref(), Some("x"));
            assert_eq!(facts.dry_run, ["All"]);
        }
    }

    #[test]
    fn unchanged_protobuf_body_keeps_its_bytes() {
        // Length prefixes with more bytes than necessary stay unchanged in the rewritten body.
        let odd = b"k8s\0\x12\x86\x00\x0a\x04\x0a\x02ab";
        let input = Bytes::from_static(odd);
        let same = rewrite(Format::Protobuf, BodyKind::Object, &input, true, &mut native).unwrap();
        assert_eq!(same.body.as_ptr(), input.as_ptr(), "the bytes are not copied");
    }

    #[test]
    fn repeated_metadata_messages_in_a_protobuf_body_are_merged() {
        let raw =
            [field(1, &field(6, b"x")), field(1, &field(6, b"y")), field(1, &entry("tributary.dev/cluster", "c"))];
        let input = body("Pod", &raw.concat());
        let expected = body("Pod", &[field(1, &field(6, b"42")), field(1, &field(6, b"42")), field(1, b"")].concat());
        assert_eq!(rewritten(BodyKind::Object, &input), expected);
        assert_eq!(read(Format::Protobuf, BodyKind::Object, &input).unwrap().resource_version.as_deref(), Some("y"));
    }

    /// Bodies from a kube-apiserver 1.36.3, in base64.
    mod of_a_real_server {
        use base64::Engine;

        use super::*;

        const CONFIG_MAP: &str = "azhzAAoPCgJ2MRIJQ29uZmlnTWFwEsYDCrsDCgVvd25lZBIDb3duGgdkZWZhdWx0IgAqJGU1ZWZmYzQzLTgwMmYtNDJmZC04OTU3LThhYmY2N2RkNjhkYjICODY4AEIICLW3htgGEABiCwoEa2VlcBIDeWVzYhsKFXRyaWJ1dGFyeS5kZXYvY2x1c3RlchICYzFqOAoJQ29uZmlnTWFwGgFvIiQxMTExMTExMS0yMjIyLTMzMzMtNDQ0NC01NTU1NTU1NTU1NTUqAnYxigGGAgoEY3VybBIGVXBkYXRlGgJ2MSIICLW3htgGEAAyCEZpZWxkc1YxOtsBCtgBeyJmOmRhdGEiOnsiLiI6e30sImY6ayI6e319LCJmOm1ldGFkYXRhIjp7ImY6YW5ub3RhdGlvbnMiOnsiLiI6e30sImY6a2VlcCI6e30sImY6dHJpYnV0YXJ5LmRldi9jbHVzdGVyIjp7fX0sImY6Z2VuZXJhdGVOYW1lIjp7fSwiZjpvd25lclJlZmVyZW5jZXMiOnsiLiI6e30sIms6e1widWlkXCI6XCIxMTExMTExMS0yMjIyLTMzMzMtNDQ0NC01NTU1NTU1NTU1NTVcIn0iOnt9fX19QgASBgoBaxIBdhoAIgA=";
        const CORE_EVENT: &str = "azhzAAoLCgJ2MRIFRXZlbnQS7AEKpwEKAmV2EgAaB2RlZmF1bHQiACokMGYyZWIxM2ItMWQyZi00YjRkLWI5MzQtNjBlOThlMTY3ZDc5MgI4NzgAQggItbeG2AYQAIoBXQoEY3VybBIGVXBkYXRlGgJ2MSIICLW3htgGEAAyCEZpZWxkc1YxOjMKMXsiZjppbnZvbHZlZE9iamVjdCI6e30sImY6cmVhc29uIjp7fSwiZjp0eXBlIjp7fX1CABIfCgNQb2QSB2RlZmF1bHQaAXAiA3UtMSoAMgNhYmM6ABoBUiIAKgQKABIAMgA6AEAASgZOb3JtYWxSAGIAcgB6ABoAIgA=";
        const EVENT: &str = "azhzAAoZChBldmVudHMuazhzLmlvL3YxEgVFdmVudBLsAQqnAQoCZXYSABoHZGVmYXVsdCIAKiQwZjJlYjEzYi0xZDJmLTRiNGQtYjkzNC02MGU5OGUxNjdkNzkyAjg3OABCCAi1t4bYBhAAigFdCgRjdXJsEgZVcGRhdGUaAnYxIggItbeG2AYQADIIRmllbGRzVjE6MwoxeyJmOmludm9sdmVkT2JqZWN0Ijp7fSwiZjpyZWFzb24iOnt9LCJmOnR5cGUiOnt9fUIAEgAiACoAMgA6AVJCHwoDUG9kEgdkZWZhdWx0GgFwIgN1LTEqADIDYWJjOgBSAFoGTm9ybWFsYgQKABIAagByAHgAGgAiAA==";

        fn decoded(text: &str) -> Vec<u8> {
            base64::engine::general_purpose::STANDARD.decode(text).unwrap()
        }

        fn count(bytes: &[u8], part: &[u8]) -> usize {
            bytes.windows(part.len()).filter(|window| *window == part).count()
        }

        #[test]
        fn config_map_of_a_real_kube_apiserver_is_rewritten() {
            let input = decoded(CONFIG_MAP);
            let facts = read(Format::Protobuf, BodyKind::Object, &input).unwrap();
            assert_eq!((facts.kind.as_deref(), facts.name.as_deref()), (Some("ConfigMap"), Some("owned")));
            assert_eq!((facts.generate_name.as_deref(), facts.namespace.as_deref()), (Some("own"), Some("default")));
            assert_eq!((facts.resource_version.as_deref(), facts.cluster.as_deref()), (Some("86"), Some("c1")));
            let owner = Reference {
                api_version: "v1".into(),
                kind: "ConfigMap".into(),
                name: "o".into(),
                uid: "11111111-2222-3333-4444-555555555555".into(),
                ..Reference::default()
            };
            assert_eq!(facts.owners, [owner]);
            let sent = rewritten(BodyKind::Object, &input);
            // The body shrinks by the annotation's 27 bytes, and by two bytes for the annotation's tag and length. All
            // enclosing length prefixes keep their number of bytes.
            assert_eq!(sent.len(), input.len() - 29);
            let facts = read(Format::Protobuf, BodyKind::Object, &sent).unwrap();
            assert_eq!((facts.resource_version.as_deref(), facts.cluster), (Some("42"), None));
            assert_eq!(count(&sent, b"tributary.dev/cluster"), 1, "managedFields stay as they are");
            assert_eq!(count(&input, b"tributary.dev/cluster"), 2);
        }

        #[test]
        fn events_of_a_real_kube_apiserver_are_rewritten() {
            for (shape, text) in [(BodyKind::CoreEvent, CORE_EVENT), (BodyKind::Event, EVENT)] {
                let input = decoded(text);
                let facts = read(Format::Protobuf, shape, &input).unwrap();
                let involved = Reference {
                    kind: "Pod".into(),
                    namespace: "default".into(),
                    name: "p".into(),
                    uid: "u-1".into(),
                    ..Reference::default()
                };
                assert_eq!((facts.involved, facts.resource_version.as_deref()), (Some(involved), Some("87")));
                let sent = rewritten(shape, &input);
                assert_eq!((count(&input, b"\x32\x03abc"), count(&sent, b"\x32\x0242")), (1, 2), "{shape:?}");
                assert_eq!(sent.len(), input.len() - 1);
            }
        }
    }
}

mod properties {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;

    fn leaf() -> impl Strategy<Value = Value> {
        prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            ".{0,6}".prop_map(Value::from)
        ]
    }

    fn tree() -> impl Strategy<Value = Value> {
        leaf().prop_recursive(3, 24, 4, |inner| {
            prop_oneof![
                proptest::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                proptest::collection::hash_map(name(), inner, 0..5)
                    .prop_map(|map| Value::Object(map.into_iter().collect())),
            ]
        })
    }

    /// Generates field names: some that the rewriting edits, and some that it leaves unchanged.
    fn name() -> impl Strategy<Value = String> {
        prop_oneof![
            Just("metadata".to_owned()),
            Just("annotations".to_owned()),
            Just("resourceVersion".to_owned()),
            Just("tributary.dev/cluster".to_owned()),
            "[a-z\"\\\\/]{0,4}",
        ]
    }

    fn object() -> impl Strategy<Value = Value> {
        (
            proptest::option::of(tree()),
            tree(),
            proptest::option::of(proptest::collection::hash_map(name(), leaf(), 0..4)),
            tree(),
        )
            .prop_map(|(version, name, annotations, spec)| {
                let mut metadata = json!({ "name": name });
                if let Some(version) = version {
                    metadata["resourceVersion"] = version;
                }
                if let Some(annotations) = annotations {
                    metadata["annotations"] = Value::Object(annotations.into_iter().collect());
                }
                json!({ "metadata": metadata, "spec": spec })
            })
    }

    /// Returns the expected result of rewriting a JSON tree.
    fn expected(mut value: Value) -> Value {
        let Some(metadata) = value.get_mut("metadata").and_then(Value::as_object_mut) else { return value };
        if metadata.get("resourceVersion").and_then(Value::as_str).is_some_and(|version| !version.is_empty()) {
            metadata["resourceVersion"] = "42".into();
        }
        if let Some(annotations) = metadata.get_mut("annotations").and_then(Value::as_object_mut)
            && annotations.remove("tributary.dev/cluster").is_some()
            && annotations.is_empty()
        {
            metadata.remove("annotations");
        }
        value
    }

    proptest! {
        #[test]
        fn rewritten_json_body_equals_the_body_edited_as_a_json_tree(value in object(), pretty in any::<bool>()) {
            let input = if pretty { serde_json::to_vec_pretty(&value) } else { serde_json::to_vec(&value) }.unwrap();
            let rewritten = apply(Format::Json, BodyKind::Object, &input, true).unwrap();
            prop_assert_eq!(serde_json::from_slice::<Value>(&rewritten.body).unwrap(), expected(value.clone()));
            // Rewriting the result once more changes nothing, and the returned body shares the allocation of its input.
            let again = apply(Format::Json, BodyKind::Object, &rewritten.body, true).unwrap();
            prop_assert_eq!(&again.body, &rewritten.body);
            if expected(value.clone()) == value {
                prop_assert_eq!(&rewritten.body[..], &input[..]);
            }
        }

        #[test]
        fn rewritten_json_patch_equals_the_patch_edited_as_a_json_tree(value in object(), whole in any::<bool>()) {
            let (path, inner, outer) = if whole {
                ("", value.clone(), expected(value.clone()))
            } else {
                ("/metadata", value["metadata"].clone(), expected(value.clone())["metadata"].clone())
            };
            let input = json!([{ "op": "replace", "path": path, "value": inner }]).to_string();
            let rewritten = apply(Format::JsonPatch, BodyKind::Object, input.as_bytes(), true).unwrap();
            prop_assert_eq!(serde_json::from_slice::<Value>(&rewritten.body).unwrap(), json!([{ "op": "replace", "path": path, "value": outer }]));
        }

        #[test]
        fn rewriting_arbitrary_bytes_does_not_panic(mut bytes in proptest::collection::vec(any::<u8>(), 0..60), magic in any::<bool>()) {
            if magic {
                bytes.splice(0..0, *b"k8s\0");
            }
            for format in [Format::Json, Format::JsonPatch, Format::Yaml, Format::Protobuf] {
                for shape in [BodyKind::Object, BodyKind::CoreEvent, BodyKind::Event, BodyKind::Eviction, BodyKind::DeleteOptions] {
                    let _ = read(format, shape, &bytes);
                    let _ = apply(format, shape, &bytes, false);
                }
            }
        }
    }
}

/// The parser reads a body with a million owner references in bounded memory.
#[test]
fn body_with_more_than_1000_owner_references_is_refused() {
    let owners = |count: usize| vec!["{}"; count].join(",");
    let json = |count| format!(r#"{{"metadata":{{"name":"x","ownerReferences":[{}]}}}}"#, owners(count));
    let protobuf = |count: usize| {
        let mut metadata = Vec::new();
        (0..count).for_each(|_| crate::wire::put_field(&mut metadata, 13, b""));
        let mut object = Vec::new();
        crate::wire::put_field(&mut object, 1, &metadata);
        let mut unknown = b"k8s\0".to_vec();
        crate::wire::put_field(&mut unknown, 2, &object);
        unknown
    };
    let refused = |format, body: &[u8]| read(format, BodyKind::Object, body).unwrap_err();
    for (format, body) in [(Format::Json, json(2_000_000).into_bytes()), (Format::Protobuf, protobuf(4_000_000))] {
        let status = refused(format, &body);
        let expected = "metadata.ownerReferences has more than 1000 items";
        assert_eq!((status.code, &*status.message), (400, expected), "{format:?}");
    }
    for (format, body) in [(Format::Json, json(1_000).into_bytes()), (Format::Protobuf, protobuf(1_000))] {
        assert_eq!(read(format, BodyKind::Object, &body).unwrap().owners.len(), 1_000, "{format:?}");
    }
    let dry_runs = format!(r#"{{"dryRun":[{}]}}"#, vec![r#""""#; 2_000].join(","));
    assert!(
        read(Format::Json, BodyKind::DeleteOptions, dry_runs.as_bytes()).unwrap_err().message.starts_with("dryRun has")
    );
}
