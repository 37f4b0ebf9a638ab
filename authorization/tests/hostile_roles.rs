//! The memory for a hostile cluster's roles is limited by the size of their text, and these roles cost other users
//! little time.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::time::Duration;

use allocation_counter::measure;
use serde_json::json;
use tributary_apimachinery::{ClusterName, UserInfo};
use tributary_authorization::{Attributes, Fleet, RbacChange, RbacKind, RbacObject, ResourceAttributes, Visible};

/// The maximum memory for compiled roles, and for one role during its compilation, as a multiple of the size of its
/// text.
const TIMES_TEXT: u64 = 4;
const TIMES_TEXT_MEANWHILE: u64 = 8;

/// The size of one role's text, in bytes. A cluster may have some hundred roles of this size.
const ROLE_BYTES: usize = 512 << 10;

fn name(cluster: &str) -> ClusterName {
    ClusterName::new(cluster).unwrap()
}

fn read(kind: RbacKind, text: &str) -> RbacObject {
    RbacObject::parse(kind, text.as_bytes()).unwrap()
}

/// The JSON of a ClusterRole with these rules.
fn role(name: &str, rules: &str) -> String {
    format!(r#"{{"metadata":{{"name":"{name}"}},"rules":[{rules}]}}"#)
}

/// Returns a comma-separated list of numbered texts, up to the size of a role.
fn repeated(one: impl Fn(usize) -> String) -> String {
    let mut all = String::new();
    for number in 0.. {
        if all.len() >= ROLE_BYTES {
            break;
        }
        if !all.is_empty() {
            all.push(',');
        }
        all.push_str(&one(number));
    }
    all
}

#[test]
fn compiled_roles_take_at_most_four_times_their_text() {
    let words = |word: fn(usize) -> String| repeated(move |number| format!("\"{}\"", word(number)));
    let named = |word| {
        format!(r#"{{"verbs":["get"],"apiGroups":[""],"resources":["pods"],"resourceNames":[{}]}}"#, words(word))
    };
    let cases = [
        ("rules that say nothing", repeated(|_| "{}".to_owned())),
        ("rules that can allow nothing", repeated(|_| r#"{"verbs":["a"]}"#.to_owned())),
        ("the shortest rules", repeated(|_| r#"{"verbs":["a"],"nonResourceURLs":["b"]}"#.to_owned())),
        (
            "the shortest rules of resources",
            repeated(|_| r#"{"verbs":["a"],"apiGroups":[""],"resources":["b"]}"#.to_owned()),
        ),
        ("empty words", named(|_| String::new())),
        ("words of a letter", named(|_| "a".to_owned())),
        ("words that are all different", named(|number| format!("{number:x}"))),
        ("verbs", format!(r#"{{"verbs":[{}],"nonResourceURLs":["*"]}}"#, words(|number| format!("{number:x}")))),
    ];
    for (what, rules) in cases {
        let (text, mut fleet, own) = (role("r", &rules), Fleet::default(), name("eu"));
        for is_listed in [true, false] {
            let allocations = measure(|| {
                let role = read(RbacKind::ClusterRole, &text);
                if is_listed {
                    fleet.replace(&own, [role])
                } else {
                    fleet.apply(&own, [RbacChange::Put(role)])
                };
            });
            let (retained, most) = (allocations.bytes_current.unsigned_abs(), allocations.bytes_max);
            let (times, bytes) = (|it: u64| it as f64 / text.len() as f64, text.len() as u64);
            eprintln!(
                "{what}, listed {is_listed}: {:.2} times {bytes} bytes, {:.2} meanwhile",
                times(retained),
                times(most)
            );
            assert!(retained <= TIMES_TEXT * bytes, "{what}, listed {is_listed}: {retained} bytes of {bytes} of text");
            assert!(
                most <= TIMES_TEXT_MEANWHILE * bytes,
                "{what}, listed {is_listed}: {most} bytes of {bytes} of text"
            );
            fleet = Fleet::default();
        }
    }
}

/// Samples are chosen under the lock of the fleet, which delays the compilation of the roles of all clusters. The
/// choice must therefore be fast.
#[test]
#[expect(clippy::disallowed_types, reason = "how long it takes is what is looked at, and nothing here waits")]
fn sampling_cost_does_not_depend_on_the_size_of_roles() {
    /// The maximum time for choosing samples: a hundred times the usual time.
    const MOST: Duration = Duration::from_secs(5);
    let rules = repeated(|_| r#"{"verbs":["a"],"nonResourceURLs":["b"]}"#.to_owned());
    let binding = |number: usize| {
        let text = json!({"metadata": {"namespace": "n", "name": format!("b{number}")}, "subjects": [],
            "roleRef": {"kind": "ClusterRole", "name": "r"}});
        read(RbacKind::RoleBinding, &text.to_string())
    };
    let (mut fleet, own) = (Fleet::default(), name("eu"));
    fleet.replace(&own, (0..50_000).map(binding).chain([read(RbacKind::ClusterRole, &role("r", &rules))]));
    let started_at = std::time::Instant::now();
    assert_eq!(fleet.samples(&own, 20, 7), []);
    let took = started_at.elapsed();
    eprintln!("{took:?}");
    assert!(took <= MOST, "{took:?}");
}

/// A user may have thousands of watches, one for each resource and each selected name, so the watches must share the
/// visible objects.
#[test]
fn visible_objects_of_large_grants_are_stored_once() {
    const WATCHES: usize = 1_000;
    const MOST_BYTES: u64 = 8 << 20;
    let (mut fleet, own, other) = (Fleet::default(), name("eu"), name("us"));
    let names: Vec<_> = (0..40_000).map(|number| format!("\"{number:x}\"")).collect();
    let rules = format!(
        r#"{{"verbs":["list"],"apiGroups":[""],"resources":["configmaps"],"resourceNames":[{}]}}"#,
        names.join(",")
    );
    let binding = |subject: &str| {
        let text = json!({"metadata": {"name": subject}, "subjects": [{"kind": "Group", "name": subject}],
            "roleRef": {"kind": "ClusterRole", "name": "r"}});
        read(RbacKind::ClusterRoleBinding, &text.to_string())
    };
    let objects = || [read(RbacKind::ClusterRole, &role("r", &rules)), binding("dev")];
    fleet.replace(&own, objects());
    let groups = ["dev".to_owned()];
    let users: Vec<_> = (0..10).map(|number| format!("user-{number}")).collect();
    let mut all_visible = Vec::new();
    let allocations = measure(|| {
        for watch in 0..WATCHES {
            let user = &UserInfo::with_groups(&users[watch % users.len()], &groups);
            all_visible.push(fleet.rights(&own, user, "list", "", "configmaps"));
        }
    });
    let bytes = allocations.bytes_current.unsigned_abs();
    assert!(bytes <= MOST_BYTES, "{bytes}");
    assert!(all_visible.iter().all(|visible| visible.allows("n", "9c3f") && !visible.allows("n", "9c40")));
    // Grants of another cluster, or of another version of the role, have separate results.
    fleet.replace(&other, [read(RbacKind::ClusterRole, &role("r", "")), binding("dev")]);
    let ann = &UserInfo::with_groups("ann", &groups);
    assert!(fleet.rights(&other, ann, "list", "", "configmaps").is_nothing());
    assert!(fleet.rights(&own, ann, "get", "", "configmaps").is_nothing());
    fleet.upsert(&own, read(RbacKind::ClusterRole, &role("r", &rules.replace("9c3f", "9c40"))));
    let now = fleet.rights(&own, ann, "list", "", "configmaps");
    assert!(now.allows("n", "9c40") && !now.allows("n", "9c3f"));
    assert!(all_visible[0].allows("n", "9c3f"), "an existing value does not change");
}

/// The rights of each user include all grants to `system:authenticated`, and the visible objects are cached.
#[test]
#[expect(clippy::disallowed_types, reason = "how long it takes is what is looked at, and nothing here waits")]
fn large_grants_to_all_users_add_little_cost_per_request() {
    /// The maximum time for each measured step: a hundred times the usual time.
    const EACH: Duration = Duration::from_millis(250);
    const MOST_BYTES: u64 = 8 << 20;
    let group = ["system:authenticated".to_owned()];
    let ann = &UserInfo::with_groups("ann", &group);
    let names = |from: usize| {
        let names: Vec<_> = (from..from + 100_000).map(|number| format!("\"{number:x}\"")).collect();
        format!(
            r#"{{"verbs":["list"],"apiGroups":[""],"resources":["configmaps"],"resourceNames":[{}]}}"#,
            names.join(",")
        )
    };
    let binding = |namespace: &str, name: &str, role: &str| {
        let kind = if namespace.is_empty() { RbacKind::ClusterRoleBinding } else { RbacKind::RoleBinding };
        let subjects = json!([{"kind": "Group", "name": "system:authenticated"}]);
        let metadata = json!({"namespace": namespace, "name": name});
        let role = json!({"kind": "ClusterRole", "name": role});
        read(kind, &json!({"metadata": metadata, "roleRef": role, "subjects": subjects}).to_string())
    };
    let (mut fleet, own) = (Fleet::default(), name("eu"));
    let everywhere = |number: usize| {
        let (role_name, text) = (format!("r{number}"), role(&format!("r{number}"), &names(number * 100_000)));
        [read(RbacKind::ClusterRole, &text), binding("", &format!("b{number}"), &role_name)]
    };
    let lists = r#"{"verbs":["list"],"apiGroups":[""],"resources":["configmaps"]}"#;
    let in_namespaces = (0..400_000).map(|number| binding(&format!("n{number}"), "b", "lists"));
    let cases: [(&str, Vec<RbacObject>); 2] = [
        ("names", (0..30).flat_map(everywhere).collect()),
        ("namespaces", in_namespaces.chain([read(RbacKind::ClusterRole, &role("lists", lists))]).collect()),
    ];
    for (what, objects) in cases {
        fleet.replace(&own, objects);
        let started_at = std::time::Instant::now();
        let mut visible = Visible::nothing();
        let allocations = measure(|| visible = fleet.rights(&own, ann, "list", "", "configmaps"));
        let attributes = ResourceAttributes {
            verb: "list",
            resource: "configmaps",
            namespace: "default",
            name: "of nobody",
            ..ResourceAttributes::default()
        };
        assert!(!fleet.allows(&own, ann, &Attributes::Resource(attributes)));
        let took = started_at.elapsed();
        eprintln!("{what}: {took:?}, {} bytes", allocations.bytes_current);
        assert!(allocations.bytes_current.unsigned_abs() <= MOST_BYTES, "{what}: {} bytes", allocations.bytes_current);
        assert!(took <= EACH, "{what}: {took:?}");
        drop(visible);
    }
}

/// A denied user gets messages about missing roles. The administrator of a namespace can create any number of bindings
/// to missing roles.
#[test]
fn messages_about_missing_roles_are_limited_in_number() {
    const BINDINGS: usize = 49_000;
    const MOST_BYTES: u64 = 16 << 10;
    let group = ["system:authenticated".to_owned()];
    let ann = &UserInfo::with_groups("ann", &group);
    let binding = |number: usize, role: usize| {
        let text = json!({"metadata": {"namespace": "n", "name": format!("b{number:05}")},
            "subjects": [{"kind": "Group", "name": "system:authenticated"}],
            "roleRef": {"kind": "ClusterRole", "name": format!("r{role}")}});
        read(RbacKind::RoleBinding, &text.to_string())
    };
    let not_found = |role: usize| format!("clusterrole.rbac.authorization.k8s.io \"r{role}\" not found");
    // Each case has the number of bindings for each role, and the expected number of messages.
    for (each, message_count) in [(1, 10), (2, 10), (BINDINGS, 1)] {
        let (mut fleet, own) = (Fleet::default(), name("eu"));
        fleet.replace(&own, (0..BINDINGS).map(|number| binding(number, number / each)));
        let mut messages = Vec::new();
        let allocations = measure(|| messages = fleet.roles_not_found(&own, ann, "n", 10));
        assert_eq!(messages, (0..message_count).map(not_found).collect::<Vec<_>>());
        assert!(allocations.bytes_total <= MOST_BYTES, "{each}: {} bytes", allocations.bytes_total);
        assert!(fleet.roles_not_found(&own, ann, "other", 10).is_empty());
        assert_eq!(fleet.without_role(&own, ann).len(), BINDINGS);
    }
}
