//! A fleet decides like a direct transcription of kube-apiserver's code, after any history of changes.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod generated;
mod reference;

use std::collections::BTreeMap;

use generated::{Change, requests, user};
use proptest::prelude::*;
use reference::Reference;
use serde_json::json;
use tributary_apimachinery::{ClusterName, UserInfo};
use tributary_authorization::{
    Attributes, Fleet, GRANTED_WORDS_MAX, RbacChange, RbacKind, RbacObject, ResourceAttributes, Scope, Visible,
};

const CLUSTERS: [&str; 3] = ["a", "b", "c"];

fn name(cluster: &str) -> ClusterName {
    ClusterName::new(cluster).unwrap()
}

fn apply(change: &Change, fleet: &mut Fleet, references: &mut BTreeMap<&'static str, Reference>) {
    match change {
        Change::Upsert(cluster, object) => {
            let read = RbacObject::parse(object.kind, object.text().as_bytes()).unwrap();
            fleet.upsert(&name(cluster), read);
            references.entry(cluster).or_default().put(object.clone());
        }
        Change::Remove(cluster, object) => {
            fleet.remove(&name(cluster), object.kind, object.namespace(), object.name());
            references.entry(cluster).and_modify(|reference| reference.remove(object));
        }
        Change::Replace(cluster, objects) => {
            let read = |object: &reference::Object| RbacObject::parse(object.kind, object.text().as_bytes()).unwrap();
            fleet.replace(&name(cluster), objects.iter().map(read));
            references.insert(cluster, Reference::from_objects(objects));
        }
        Change::ReplaceKind(cluster, kind, objects) => {
            let read = |object: &reference::Object| RbacObject::parse(object.kind, object.text().as_bytes()).unwrap();
            fleet.replace_kind(&name(cluster), *kind, objects.iter().map(read));
            if references.contains_key(cluster) || objects.iter().any(|object| object.kind == *kind) {
                references.entry(cluster).or_default().replace_kind(*kind, objects);
            }
        }
        Change::Apply(cluster, objects) => {
            let change = |(is_put, object): &(bool, reference::Object)| match is_put {
                true => RbacChange::Put(RbacObject::parse(object.kind, object.text().as_bytes()).unwrap()),
                false => {
                    let (namespace, name) = (object.namespace().to_owned(), object.name().to_owned());
                    RbacChange::Deleted { kind: object.kind, namespace, name }
                }
            };
            fleet.apply(&name(cluster), objects.iter().map(change));
            // A batch that contains only deletions does not add a cluster that the fleet does not contain.
            if references.contains_key(cluster) || objects.iter().any(|(is_put, _)| *is_put) {
                references.entry(cluster).or_default().apply(objects);
            }
        }
        Change::Leave(cluster) => {
            fleet.leave(&name(cluster));
            references.remove(cluster);
        }
    }
}

/// Returns the visible objects of a user for each cluster and verb.
fn all_rights(fleet: &Fleet, user: &UserInfo) -> Vec<Visible> {
    let rights = |cluster: &str| {
        let of = |verb| fleet.rights(&name(cluster), user, verb, "", "pods");
        ["get", "list"].map(of)
    };
    CLUSTERS.into_iter().flat_map(rights).collect()
}

proptest! {
    #[test]
    fn rbac_of_all_clusters_allows_the_same_requests_as_a_reference_model(
        changes in prop::collection::vec(generated::change(&CLUSTERS), 1..60),
        users in prop::collection::vec(user(), 4),
        requests in requests(),
    ) {
        let (mut fleet, mut references) = (Fleet::default(), BTreeMap::new());
        for change in &changes {
            apply(change, &mut fleet, &mut references);
        }
        for user in &users {
            let user = &user.as_user();
            for cluster in CLUSTERS {
                let reference = references.get(cluster);
                for attributes in &requests {
                    let expected = reference.is_some_and(|reference| reference.allows(user, attributes));
                    let cluster = name(cluster);
                    prop_assert_eq!(fleet.allows(&cluster, user, attributes), expected, "{:?} {:?}", user, attributes);
                    prop_assert_eq!(!fleet.allowed_by(&cluster, user, attributes).is_empty(), expected);
                }
                prop_assert_eq!(fleet.knows(&name(cluster)), reference.is_some());
            }
            for subset in [&requests[..], &requests[..requests.len().min(1)], &[]] {
                let allowing = fleet.allowing(user, subset);
                for cluster in CLUSTERS.map(name) {
                    let expected = subset.iter().any(|attributes| fleet.allows(&cluster, user, attributes));
                    prop_assert_eq!(allowing.contains(&cluster), expected, "{:?} {:?} {}", user, subset, cluster);
                }
            }
        }
    }

    #[test]
    fn visible_names_equal_the_individually_allowed_names(
        changes in prop::collection::vec(generated::change(&CLUSTERS[..1]), 1..40),
        user in user(),
        requests in requests(),
    ) {
        let (mut fleet, mut references) = (Fleet::default(), BTreeMap::new());
        for change in &changes {
            apply(change, &mut fleet, &mut references);
        }
        let (cluster, user) = (name(CLUSTERS[0]), &user.as_user());
        for attributes in &requests {
            let Attributes::Resource(attributes) = attributes else { continue };
            let attributes = ResourceAttributes { subresource: "", ..*attributes };
            let visible = fleet.rights(&cluster, user, attributes.verb, attributes.group, attributes.resource);
            prop_assert_eq!(
                visible.allows(attributes.namespace, attributes.name),
                fleet.allows(&cluster, user, &Attributes::Resource(attributes)),
                "{:?} {:?}", attributes, visible
            );
        }
    }

    /// A fleet that applied every change has the same rights as a fleet that got only the final objects.
    #[test]
    fn rights_do_not_depend_on_the_order_of_rbac_changes(
        changes in prop::collection::vec(generated::change(&CLUSTERS), 1..60),
        user in user(),
    ) {
        let (mut fleet, mut references) = (Fleet::default(), BTreeMap::new());
        for change in &changes {
            apply(change, &mut fleet, &mut references);
        }
        let mut rebuilt = Fleet::default();
        for (cluster, reference) in &references {
            let objects = reference.objects().map(|object| RbacObject::parse(object.kind, object.text().as_bytes()).unwrap());
            rebuilt.replace(&name(cluster), objects);
        }
        let user = &user.as_user();
        let (seen, rebuilt_rights) = (all_rights(&fleet, user), all_rights(&rebuilt, user));
        prop_assert_eq!(&seen, &rebuilt_rights);
        // Putting objects that the fleet already contains is no change.
        for (cluster, reference) in &references {
            let objects: Vec<_> = reference.objects().cloned().collect();
            let generation = fleet.generation();
            let read = |object: &reference::Object| RbacObject::parse(object.kind, object.text().as_bytes()).unwrap();
            prop_assert!(!fleet.replace(&name(cluster), objects.iter().map(read)));
            for object in &objects {
                prop_assert!(!fleet.upsert(&name(cluster), read(object)));
            }
            prop_assert_eq!(fleet.generation(), generation);
        }
    }

    /// A cache whose key contains the generation never returns outdated rights. The scope changes with the rights.
    #[test]
    fn rights_of_a_user_change_only_with_the_users_generation_number(
        changes in prop::collection::vec(generated::change(&CLUSTERS), 1..60),
        users in prop::collection::vec(user(), 3),
    ) {
        let (mut fleet, mut references) = (Fleet::default(), BTreeMap::new());
        let names = CLUSTERS.map(name);
        let rights_now = |fleet: &Fleet| -> Vec<_> {
            users.iter().map(|user| (fleet.generation_of(&user.as_user()), all_rights(fleet, &user.as_user()))).collect()
        };
        let rights_in_each = |fleet: &Fleet| -> Vec<_> {
            let each = users.iter().flat_map(|user| names.iter().map(|cluster| (cluster, user.as_user())));
            let rights = |cluster, user: &UserInfo| ["get", "list"].map(|verb| fleet.rights(cluster, user, verb, "", "pods"));
            each.map(|(cluster, user)| (fleet.generation_in(cluster, &user), rights(cluster, &user))).collect()
        };
        let mut before_in_each = rights_in_each(&Fleet::default());
        let mut before = rights_now(&fleet);
        let mut generation = fleet.generation();
        for change in &changes {
            apply(change, &mut fleet, &mut references);
            let now = rights_now(&fleet);
            for ((generation_before, rights_before), (generation_now, rights_now)) in before.iter().zip(&now) {
                prop_assert!(generation_before <= generation_now && *generation_now <= fleet.generation());
                let lists = |rights: &[Visible]| Scope::from_visible(names.iter().zip(rights.iter().skip(1).step_by(2)));
                let lists_are_the_same = rights_before.iter().zip(rights_now).skip(1).step_by(2).all(|(a, b)| a == b);
                prop_assert_eq!(lists(rights_before) == lists(rights_now), lists_are_the_same);
                if rights_before != rights_now {
                    prop_assert!(generation_before < generation_now && generation < fleet.generation());
                }
            }
            (before, generation) = (now, fleet.generation());
            let now_in_each = rights_in_each(&fleet);
            for ((generation_before, rights_before), (generation_now, rights_now)) in
                before_in_each.iter().zip(&now_in_each)
            {
                prop_assert!(generation_before <= generation_now && *generation_now <= generation);
                prop_assert!(rights_before == rights_now || generation_before < generation_now);
            }
            before_in_each = now_in_each;
        }
    }
}

#[test]
fn system_masters_is_allowed_everything_in_configured_clusters_only() {
    let mut fleet = Fleet::default();
    fleet.replace(&name("a"), []);
    let groups = ["system:masters".to_owned()];
    let user = &UserInfo::with_groups("root", &groups);
    let path = Attributes::NonResource { verb: "get", path: "/metrics".into() };
    assert!(fleet.allows(&name("a"), user, &path) && !fleet.allows(&name("b"), user, &path));
    assert_eq!(fleet.rights(&name("a"), user, "list", "", "pods"), Visible::Whole);
    assert!(fleet.rights(&name("b"), user, "list", "", "pods").is_nothing());
    assert_eq!(fleet.allowed_by(&name("a"), user, &path)[0].to_string(), "Group \"system:masters\"");
    // A user with the name `system:masters`, and a group with a similar name, are allowed nothing.
    let other = ["system:masters2".to_owned()];
    assert!(!fleet.allows(&name("a"), &UserInfo::with_groups("system:masters", &other), &path));
}

#[test]
fn reason_for_allowing_a_request_equals_that_of_kube_apiserver() {
    use tributary_authorization::RbacKind::{ClusterRole, ClusterRoleBinding, RoleBinding};
    let mut fleet = Fleet::default();
    let objects = [
        (
            ClusterRole,
            r#"{"metadata":{"name":"view"},"rules":[{"verbs":["get"],"apiGroups":[""],"resources":["pods"]}]}"#,
        ),
        (
            ClusterRoleBinding,
            r#"{"metadata":{"name":"all"},"roleRef":{"kind":"ClusterRole","name":"view"},
                "subjects":[{"kind":"Group","name":"g"},{"kind":"User","name":"system:serviceaccount:n:s"}]}"#,
        ),
        (
            RoleBinding,
            r#"{"metadata":{"name":"some","namespace":"n"},"roleRef":{"kind":"ClusterRole","name":"view"},
                "subjects":[{"kind":"ServiceAccount","name":"s"}]}"#,
        ),
    ];
    fleet.replace(&name("a"), objects.map(|(kind, text)| RbacObject::parse(kind, text.as_bytes()).unwrap()));
    let user = &UserInfo::with_groups("system:serviceaccount:n:s", &[]);
    let pods = ResourceAttributes { verb: "get", resource: "pods", namespace: "n", ..ResourceAttributes::default() };
    let reasons = |namespace| {
        let request = Attributes::Resource(ResourceAttributes { namespace, ..pods });
        fleet.allowed_by(&name("a"), user, &request).iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    let all = r#"ClusterRoleBinding "all" of ClusterRole "view" to User "system:serviceaccount:n:s""#;
    let some = r#"RoleBinding "some/n" of ClusterRole "view" to ServiceAccount "s/n""#;
    assert_eq!(reasons("n"), [all, some]);
    assert_eq!(reasons(""), [all]);
    let rules = fleet.rules(&name("a"), user, "n");
    assert_eq!(rules.len(), 1, "the rules of a role occur once");
}

/// Returns a ClusterRole that allows listing Pods and has this number of resource names in another rule.
fn role(role: &str, words: usize) -> RbacObject {
    let names: Vec<_> = (0..words).map(|number| number.to_string()).collect();
    let rules = json!([
        {"verbs": ["list"], "apiGroups": [""], "resources": ["pods"]},
        {"verbs": ["use"], "apiGroups": ["x"], "resources": ["y"], "resourceNames": names},
    ]);
    let value = json!({"metadata": {"name": role}, "rules": rules});
    RbacObject::parse(RbacKind::ClusterRole, value.to_string().as_bytes()).unwrap()
}

/// Returns a RoleBinding to all authenticated users, in a namespace without other bindings.
fn binding(number: usize, role: &str) -> RbacObject {
    let value = json!({
        "metadata": {"namespace": format!("n{number}"), "name": "everybody"},
        "roleRef": {"kind": "ClusterRole", "name": role},
        "subjects": [{"kind": "Group", "name": "system:authenticated"}],
    });
    RbacObject::parse(RbacKind::RoleBinding, value.to_string().as_bytes()).unwrap()
}

fn lists(fleet: &Fleet, cluster: &str, user: &UserInfo, namespace: &str) -> bool {
    let request = ResourceAttributes { verb: "list", resource: "pods", namespace, ..ResourceAttributes::default() };
    fleet.allows(&name(cluster), user, &Attributes::Resource(request))
}

/// A cluster changes all bindings of `system:authenticated` in one batch. Applying the changes one by one took 20,000
/// times as many steps under the lock: minutes.
#[test]
#[expect(clippy::disallowed_types, reason = "how long it takes is what is looked at, and nothing here waits")]
fn batch_of_rbac_changes_compiles_the_grants_of_a_subject_once() {
    const BINDINGS: usize = 20_000;
    let groups = ["system:authenticated".to_owned()];
    let ann = &UserInfo::with_groups("ann", &groups);
    let (mut fleet, a) = (Fleet::default(), name("a"));
    let started_at = std::time::Instant::now();
    fleet.replace(&a, [role("r", 0)].into_iter().chain((0..BINDINGS).map(|number| binding(number, "r"))));
    fleet.upsert(&a, role("s", 0));
    assert!(fleet.apply(&a, (0..BINDINGS).map(|number| RbacChange::Put(binding(number, "s")))));
    assert!(lists(&fleet, "a", ann, "n7"));
    let deletion = |number| RbacChange::Deleted {
        kind: RbacKind::RoleBinding,
        namespace: format!("n{number}"),
        name: "everybody".to_owned(),
    };
    assert!(fleet.apply(&a, (1..BINDINGS).map(deletion)));
    assert_eq!((lists(&fleet, "a", ann, "n0"), lists(&fleet, "a", ann, "n7")), (true, false));
    assert!(started_at.elapsed() < std::time::Duration::from_secs(20), "{:?}", started_at.elapsed());
}

#[test]
fn grants_above_the_size_limit_are_ignored_only_for_their_subject() {
    const WORDS: usize = 5_000;
    let groups = ["system:authenticated".to_owned()];
    let (ann, nobody) = (&UserInfo::with_groups("ann", &groups), &UserInfo::with_groups("nobody", &[]));
    let (mut fleet, [a, b]) = (Fleet::default(), ["a", "b"].map(name));
    for cluster in [&a, &b] {
        fleet.replace(cluster, [role("r", 0), role("s", WORDS), binding(0, "r")]);
    }
    let many = || (1..=GRANTED_WORDS_MAX / WORDS).map(|number| binding(number, "s"));
    fleet.apply(&a, many().skip(1).map(RbacChange::Put));
    assert!(!fleet.exceeds_grant_limit(&a) && lists(&fleet, "a", ann, "n7"));
    let before = fleet.generation_of(ann);
    assert!(fleet.upsert(&a, binding(1, "s")));
    assert!(fleet.exceeds_grant_limit(&a) && fleet.has_unknown_rights(&a, ann));
    assert!(
        !fleet.has_unknown_rights(&a, nobody) && !fleet.has_unknown_rights(&b, ann) && !fleet.exceeds_grant_limit(&b)
    );
    assert!(fleet.generation_of(ann) > before, "cached answers must expire");
    assert!(!lists(&fleet, "a", ann, "n0") && lists(&fleet, "b", ann, "n0"));
    assert_eq!(fleet.rights(&a, ann, "list", "", "pods"), Visible::nothing());
    assert!(fleet.rules(&a, ann, "n0").is_empty());
    // Two changes reduce the grants below the limit: a smaller role, and the removal of a binding.
    assert!(fleet.upsert(&a, role("s", 0)) && !fleet.has_unknown_rights(&a, ann) && lists(&fleet, "a", ann, "n7"));
    assert!(fleet.upsert(&a, role("s", WORDS)) && fleet.has_unknown_rights(&a, ann));
    assert!(fleet.remove(&a, RbacKind::RoleBinding, "n1", "everybody") && !fleet.has_unknown_rights(&a, ann));
    assert!(fleet.upsert(&a, binding(1, "s")) && fleet.has_unknown_rights(&a, ann));
    fleet.replace(&a, [role("r", 0), binding(0, "r")]);
    assert!(!fleet.exceeds_grant_limit(&a) && lists(&fleet, "a", ann, "n0"));
    fleet.apply(&a, [role("s", WORDS)].into_iter().chain(many()).map(RbacChange::Put));
    assert!(fleet.exceeds_grant_limit(&a));
    fleet.leave(&a);
    fleet.upsert(&name("c"), binding(0, "r"));
    assert!(!fleet.exceeds_grant_limit(&name("c")), "a cluster that reuses the index does not inherit the state");
}

/// Bindings of other subjects are created and deleted in one cluster, like the bindings in the namespaces of a CI
/// pipeline.
#[test]
fn change_of_one_subjects_grants_keeps_generation_numbers_of_other_subjects() {
    let groups = ["system:authenticated".to_owned()];
    let ann = &UserInfo::with_groups("ann", &groups);
    let of = |user: &str, number: usize| {
        let value = json!({
            "metadata": {"namespace": "own", "name": format!("made-up-{number}")},
            "roleRef": {"kind": "ClusterRole", "name": "r"},
            "subjects": [{"kind": "User", "name": user}],
        });
        RbacObject::parse(RbacKind::RoleBinding, value.to_string().as_bytes()).unwrap()
    };
    let (mut fleet, [a, b]) = (Fleet::default(), ["a", "b"].map(name));
    for cluster in [&a, &b] {
        fleet.replace(cluster, [role("r", 0), binding(0, "r")]);
    }
    let generations = |fleet: &Fleet| [&a, &b].map(|cluster| fleet.generation_in(cluster, ann));
    let (before, anywhere) = (generations(&fleet), fleet.generation_of(ann));
    for number in 0..100 {
        assert!(fleet.upsert(&b, of(&format!("made-up-{number}"), number)));
        assert!(fleet.remove(&b, RbacKind::RoleBinding, "own", &format!("made-up-{number}")));
    }
    assert_eq!(
        (generations(&fleet), fleet.generation_of(ann)),
        (before, anywhere),
        "the rights of ann have not changed"
    );
    assert!(fleet.upsert(&b, binding(1, "r")));
    let now = generations(&fleet);
    assert!(now[0] == before[0] && now[1] > before[1], "{now:?}");
    assert!(fleet.upsert(&b, of("ann", 0)) && fleet.remove(&b, RbacKind::RoleBinding, "own", "made-up-0"));
    let after_loss = generations(&fleet);
    assert!(after_loss[0] == before[0] && after_loss[1] > now[1], "the loss of a grant is remembered: {after_loss:?}");
    // The number of recorded losses of grants is limited. Above the limit, the generation of every user's rights in the
    // cluster increases.
    for number in 0..10_000 {
        fleet.upsert(&b, of(&format!("made-up-{number}"), number));
        fleet.remove(&b, RbacKind::RoleBinding, "own", &format!("made-up-{number}"));
    }
    let after_many_losses = generations(&fleet);
    assert!(
        after_many_losses[0] == before[0] && after_many_losses[1] > after_loss[1],
        "changes in b do not affect a: {after_many_losses:?}"
    );
    assert!(lists(&fleet, "b", ann, "n1") && !lists(&fleet, "b", ann, "own"));
}
