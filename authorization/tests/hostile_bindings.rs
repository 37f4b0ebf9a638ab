//! The memory for a hostile cluster's bindings is limited by the size of their text, and these bindings do not affect
//! other clusters.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use allocation_counter::measure;
use serde_json::json;
use std::sync::LazyLock;
use tributary_apimachinery::{ClusterName, UserInfo};
use tributary_authorization::{
    Attributes, Fleet, NAMED_SUBJECTS_MAX, RbacChange, RbacKind, RbacObject, ResourceAttributes,
};

/// The maximum memory for compiled bindings, as a multiple of their text's size.
const TIMES_TEXT: u64 = 4;

static ANN: LazyLock<UserInfo> = LazyLock::new(|| UserInfo::with_groups("ann", &[]));

fn name(cluster: &str) -> ClusterName {
    ClusterName::new(cluster).unwrap()
}

/// Returns a ClusterRole that grants `list` on Pods.
fn role() -> RbacObject {
    let rules = json!([{"verbs": ["list"], "apiGroups": [""], "resources": ["pods"]}]);
    read(RbacKind::ClusterRole, &json!({"metadata": {"name": "r"}, "rules": rules}).to_string())
}

fn read(kind: RbacKind, text: &str) -> RbacObject {
    RbacObject::parse(kind, text.as_bytes()).unwrap()
}

/// The notation of a generated subject.
#[derive(Clone, Copy, Debug)]
enum Written {
    /// A user in the stored form of kube-apiserver.
    User,
    /// A ServiceAccount in the stored form of kube-apiserver.
    ServiceAccount,
    /// The shortest valid notation of a user.
    Shortest,
}

/// Returns a RoleBinding whose subjects occur in no other binding.
fn made_up(cluster: usize, binding: usize, subjects: usize, written: Written) -> String {
    // The JSON is formatted by hand for speed: the tests create half a million subjects.
    let subject = |number: usize| match written {
        Written::User => {
            format!(r#"{{"kind":"User","apiGroup":"rbac.authorization.k8s.io","name":"{cluster}-{binding}-{number}"}}"#)
        }
        Written::ServiceAccount => {
            format!(r#"{{"kind":"ServiceAccount","namespace":"default","name":"{cluster}-{binding}-{number}"}}"#)
        }
        Written::Shortest => format!(r#"{{"kind":"User","name":"{cluster}-{binding}-{number}"}}"#),
    };
    let subjects: Vec<_> = (0..subjects).map(subject).collect();
    let stored = json!({"name": format!("b{binding}"), "namespace": "n", "resourceVersion": "12345",
        "uid": "6f1c1ee0-8c0a-4d8f-9d2c-3c3e1f0f6a11", "creationTimestamp": "2026-11-25T00:00:00Z"});
    let group = "rbac.authorization.k8s.io";
    let role = json!({"apiGroup": group, "kind": "ClusterRole", "name": "r"});
    let subjects = subjects.join(",");
    format!(
        r#"{{"apiVersion":"{group}/v1","kind":"RoleBinding","metadata":{stored},"roleRef":{role},"subjects":[{subjects}]}}"#
    )
}

/// Adds bindings to some clusters. Returns the size of the bindings' text, and the size of their compiled form, in
/// bytes.
fn measure_bindings(
    clusters: usize,
    bindings: usize,
    subjects: usize,
    written: Written,
    is_listed: bool,
) -> (u64, u64) {
    let (mut fleet, mut text) = (Fleet::default(), 0);
    let allocations = measure(|| {
        for cluster in 0..clusters {
            let binding = |number| {
                let binding = made_up(cluster, number, subjects, written);
                text += binding.len() as u64;
                read(RbacKind::RoleBinding, &binding)
            };
            let objects = (0..bindings).map(binding);
            let own = name(&format!("c{cluster}"));
            if is_listed {
                fleet.replace(&own, objects.chain([role()]));
            } else {
                fleet.upsert(&own, role());
                fleet.apply(&own, objects.map(RbacChange::Put));
            }
        }
    });
    drop(fleet);
    (text, u64::try_from(allocations.bytes_current).unwrap())
}

#[test]
fn compiled_bindings_take_at_most_four_times_their_text() {
    let cases = [
        (4, 5, 1_000, Written::User),
        (4, 5, 1_000, Written::ServiceAccount),
        (8, 250, 1, Written::User),
        (1, 2_000, 1, Written::ServiceAccount),
        // This number of subjects exceeds [`NAMED_SUBJECTS_MAX`].
        (1, 30, 10_000, Written::Shortest),
    ];
    for (clusters, bindings, subjects, written) in cases {
        for is_listed in [true, false] {
            let (text, bytes) = measure_bindings(clusters, bindings, subjects, written, is_listed);
            let case = format!("{clusters} × {bindings} × {subjects} {written:?}, listed {is_listed}");
            eprintln!("{case}: {bytes} bytes of {text}, {:.2} times", bytes as f64 / text as f64);
            assert!(bytes <= TIMES_TEXT * text, "{case}: {bytes} bytes of {text} of text");
        }
    }
}

fn lists(fleet: &Fleet, cluster: &ClusterName, user: &UserInfo) -> bool {
    let request =
        ResourceAttributes { verb: "list", resource: "pods", namespace: "n", ..ResourceAttributes::default() };
    fleet.allows(cluster, user, &Attributes::Resource(request))
}

fn ann_binding() -> RbacObject {
    let text = r#"{"metadata":{"namespace":"n","name":"own"},"roleRef":{"kind":"ClusterRole","name":"r"},
        "subjects":[{"kind":"User","name":"ann"}]}"#;
    read(RbacKind::RoleBinding, text)
}

#[test]
fn cluster_with_too_many_rbac_subjects_grants_nothing() {
    const EACH: usize = 10_000;
    let masters = ["system:masters".to_owned()];
    let (master, nobody) = (&UserInfo::with_groups("root", &masters), &UserInfo::with_groups("nobody", &[]));
    let (mut fleet, [a, b]) = (Fleet::default(), ["a", "b"].map(name));
    let binding = |number, subjects| read(RbacKind::RoleBinding, &made_up(0, number, subjects, Written::Shortest));
    // Together with the binding of `ann`, these bindings have exactly the maximum number of subjects.
    let full = NAMED_SUBJECTS_MAX / EACH;
    let some = || (1..full).map(|number| binding(number, EACH)).chain([binding(0, EACH - 1), role(), ann_binding()]);
    fleet.replace(&a, some());
    fleet.replace(&b, [role(), ann_binding()]);
    assert!(!fleet.exceeds_subject_limit(&a) && !fleet.has_unknown_rights(&a, &ANN) && lists(&fleet, &a, &ANN));
    let (before, of_b) = (fleet.generation_of(nobody), fleet.generation_in(&b, &ANN));

    let unknown = |fleet: &Fleet| {
        assert!(fleet.exceeds_subject_limit(&a) && !lists(fleet, &a, &ANN));
        assert!(
            fleet.has_unknown_rights(&a, &ANN) && fleet.has_unknown_rights(&a, nobody),
            "the rights of all users there are unknown"
        );
        assert!(!fleet.has_unknown_rights(&a, master) && lists(fleet, &a, master), "system:masters needs no binding");
        assert!(!fleet.exceeds_subject_limit(&b) && !fleet.has_unknown_rights(&b, &ANN) && lists(fleet, &b, &ANN));
        assert_eq!(fleet.generation_in(&b, &ANN), of_b);
    };
    assert!(fleet.upsert(&a, binding(full, 1)));
    unknown(&fleet);
    assert!(fleet.generation_of(nobody) > before, "cached answers must expire");
    assert!(!fleet.upsert(&a, binding(full + 1, 1)), "the cluster was already unknown");
    assert!(!fleet.upsert(&a, role()));
    unknown(&fleet);
    // The rights are known again after the number of subjects has decreased.
    let deletion =
        |number| RbacChange::Deleted { kind: RbacKind::RoleBinding, namespace: "n".into(), name: format!("b{number}") };
    assert!(!fleet.apply(&a, [deletion(full)]));
    assert!(fleet.apply(&a, [deletion(full + 1)]));
    assert!(!fleet.exceeds_subject_limit(&a) && !fleet.has_unknown_rights(&a, nobody) && lists(&fleet, &a, &ANN));
    assert!(lists(&fleet, &a, &UserInfo::with_groups("0-1-7", &[])));

    // Replacing all objects of the cluster makes its rights unknown or known again, like single changes. A new cluster
    // that reuses the cluster's index starts with known rights.
    assert!(fleet.replace(&a, some().chain([binding(full, 1)])));
    unknown(&fleet);
    assert!(fleet.replace(&a, [role(), ann_binding()]));
    assert!(!fleet.exceeds_subject_limit(&a) && lists(&fleet, &a, &ANN));
    assert!(!lists(&fleet, &a, &UserInfo::with_groups("0-1-7", &[])));
    assert!(fleet.replace(&a, some().chain([binding(full, 1)])) && fleet.leave(&a));
    fleet.upsert(&name("c"), ann_binding());
    assert!(!fleet.exceeds_subject_limit(&name("c")) && !fleet.has_unknown_rights(&name("c"), nobody));
}
