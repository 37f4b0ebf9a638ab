//! Joining the members' discovery documents: what the union holds, and in which order.

use std::cmp::Reverse;
use std::sync::Arc;

use tributary_apimachinery::ClusterName;

use super::model::{Group, GroupList, Nature, Resource, STALE, Version};
use super::union::MemberDiscovery;

type Members<'a> = &'a [(ClusterName, Arc<MemberDiscovery>)];

/// Joins one document of each member. `members` come by precedence, `by_name` by name.
pub(super) fn join<'a>(
    members: Members<'a>,
    by_name: Members<'a>,
    document: impl Fn(&'a MemberDiscovery) -> &'a GroupList,
) -> GroupList {
    let lists: Vec<&'a [Group]> = members.iter().map(|(_, member)| &document(member).items[..]).collect();
    let lists_by_name: Vec<&'a [Group]> = by_name.iter().map(|(_, member)| &document(member).items[..]).collect();
    let groups = interleave(&lists, |group| &group.metadata.name).into_iter().map(|name| {
        let of_name = |lists: &[&'a [Group]]| -> Vec<&'a Group> {
            lists.iter().filter_map(|list| list.iter().find(|group| group.metadata.name == name)).collect()
        };
        join_group(&of_name(&lists), &of_name(&lists_by_name))
    });
    GroupList::new(groups.collect())
}

/// Joins one group of several members, at least one.
fn join_group(groups: &[&Group], by_name: &[&Group]) -> Group {
    let lists: Vec<&[Version]> = groups.iter().map(|group| &group.versions[..]).collect();
    let mut names = interleave(&lists, |version| &version.version);
    let first = |name: &str| lists[0].iter().position(|own| own.version == name).unwrap_or(usize::MAX);
    let serving = |name: &str| lists.iter().filter(|list| list.iter().any(|own| own.version == name)).count();
    names.sort_by(|a, b| {
        let most = serving(b).cmp(&serving(a));
        most.then_with(|| first(a).cmp(&first(b))).then_with(|| by_age(b).cmp(&by_age(a)))
    });
    let versions = names.iter().map(|name| join_version(&of_version(groups, name), &of_version(by_name, name)));
    Group { metadata: groups[0].metadata.clone(), versions: versions.collect() }
}

fn of_version<'a>(groups: &[&'a Group], name: &str) -> Vec<&'a Version> {
    groups.iter().filter_map(|group| group.versions.iter().find(|own| own.version == name)).collect()
}

/// The age of a version by its name, as Kubernetes orders them (`CompareKubeAwareVersionStrings`): greater is newer.
fn by_age(version: &str) -> (u8, u64, u64, Reverse<&str>) {
    let stages = [("alpha", 1), ("beta", 2)];
    let read = || {
        let rest = version.strip_prefix('v')?;
        let found = stages.iter().find_map(|(name, rank)| rest.split_once(name).map(|split| (split, *rank)));
        match found {
            Some(((major, minor), rank)) => Some((rank, major.parse().ok()?, minor.parse().ok()?)),
            None => Some((3, rest.parse().ok()?, 0)),
        }
    };
    let (rank, major, minor) = read().unwrap_or((0, 0, 0));
    (rank, major, minor, Reverse(version))
}

/// Joins one version of several members, at least one.
fn join_version(versions: &[&Version], by_name: &[&Version]) -> Version {
    let lists: Vec<&[Resource]> = versions.iter().map(|version| &version.resources[..]).collect();
    let resources = interleave(&lists, |resource| &resource.resource)
        .into_iter()
        .map(|name| join_resource(&of_resource(versions, name), &of_resource(by_name, name)));
    let fresh = versions.iter().find(|version| version.freshness != STALE);
    Version {
        version: versions[0].version.clone(),
        resources: resources.collect(),
        freshness: fresh.unwrap_or(&versions[0]).freshness.clone(),
    }
}

fn of_resource<'a>(versions: &[&'a Version], name: &str) -> Vec<&'a Resource> {
    versions.iter().filter_map(|version| version.resources.iter().find(|own| own.resource == name)).collect()
}

/// Joins one resource of several members, at least one.
fn join_resource(resources: &[&Resource], by_name: &[&Resource]) -> Resource {
    let count = |nature: &Nature<'_>| by_name.iter().filter(|own| own.nature() == *nature).count();
    // Of several that are the most the first holds, by name.
    let most = by_name.iter().map(|own| own.nature()).rev().max_by_key(count);
    let mut alike = resources.iter().filter(|own| Some(own.nature()) == most);
    let mut joined = (*alike.next().unwrap_or(&resources[0])).clone();
    for other in alike {
        add_missing(&mut joined.verbs, &other.verbs);
        add_missing(&mut joined.short_names, &other.short_names);
        add_missing(&mut joined.categories, &other.categories);
        for subresource in &other.subresources {
            match joined.subresources.iter_mut().find(|own| own.subresource == subresource.subresource) {
                Some(own) => add_missing(&mut own.verbs, &subresource.verbs),
                None => joined.subresources.push(subresource.clone()),
            }
        }
    }
    joined
}

fn add_missing(known: &mut Vec<String>, more: &[String]) {
    for other in more {
        if !known.contains(other) {
            known.push(other.clone());
        }
    }
}

/// The names in all lists: in the first one's order, and what is only in later ones right after what it follows there.
fn interleave<'a, T>(lists: &[&'a [T]], name: impl Fn(&'a T) -> &'a str) -> Vec<&'a str> {
    let mut names: Vec<&str> = Vec::new();
    for list in lists {
        let mut after = 0;
        for own in list.iter().map(&name) {
            after = match names.iter().position(|known| *known == own) {
                Some(at) => at + 1,
                None => {
                    names.insert(after, own);
                    after + 1
                }
            };
        }
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    fn group(name: &str, versions: serde_json::Value) -> Group {
        serde_json::from_value(serde_json::json!({"metadata": {"name": name}, "versions": versions})).unwrap()
    }

    fn versions(names: &[&str]) -> serde_json::Value {
        names.iter().map(|name| serde_json::json!({"version": name})).collect()
    }

    #[test]
    fn names_keep_their_neighbours() {
        let cases: [(&[&[&str]], &[&str]); 4] = [
            (&[&["a", "b", "c"]], &["a", "b", "c"]),
            (&[&["a", "c"], &["a", "b", "c"]], &["a", "b", "c"]),
            (&[&["b"], &["a", "b", "c", "d"]], &["a", "b", "c", "d"]),
            (&[&["a", "b"], &["b", "x", "a"]], &["a", "b", "x"]),
        ];
        for (lists, expected) in cases {
            let owned: Vec<Vec<String>> =
                lists.iter().map(|list| list.iter().map(ToString::to_string).collect()).collect();
            let lists: Vec<&[String]> = owned.iter().map(|list| &list[..]).collect();
            assert_eq!(interleave(&lists, |name| name), expected);
        }
    }

    #[test]
    fn the_version_that_most_members_serve_is_preferred() {
        let order = |members: &[&[&str]]| {
            let groups: Vec<_> = members.iter().map(|names| group("x.io", versions(names))).collect();
            let groups: Vec<_> = groups.iter().collect();
            join_group(&groups, &groups).versions.into_iter().map(|version| version.version).collect::<Vec<_>>()
        };
        assert_eq!(order(&[&["v2", "v1"], &["v1"]]), ["v1", "v2"]);
        assert_eq!(order(&[&["v2", "v1"], &["v1", "v1beta1"]]), ["v1", "v2", "v1beta1"]);
        assert_eq!(order(&[&["v1beta1", "v1"], &["v1", "v1beta1"]]), ["v1beta1", "v1"], "the first member's own order");
        assert_eq!(
            order(&[&["v1"], &["v1alpha1", "v2", "v1beta2"], &["v1beta1"]]),
            ["v1", "v2", "v1beta2", "v1beta1", "v1alpha1"]
        );
        assert_eq!(order(&[&["foo", "v1"]]), ["foo", "v1"]);
    }

    #[test]
    fn a_version_is_stale_only_where_nobody_knows_it() {
        let version = |freshness: &str, resources: serde_json::Value| {
            serde_json::from_value::<Version>(
                serde_json::json!({"version": "v1", "freshness": freshness, "resources": resources}),
            )
            .unwrap()
        };
        let stale = version(STALE, serde_json::json!([]));
        let current = version("Current", serde_json::json!([{"resource": "pods"}]));
        let joined = join_version(&[&stale, &current], &[&stale, &current]);
        assert_eq!((&*joined.freshness, joined.resources.len()), ("Current", 1));
        assert_eq!(join_version(&[&stale, &stale], &[&stale, &stale]).freshness, STALE);
    }

    #[test]
    fn most_members_say_what_a_resource_is() {
        let resource = |kind: &str, scope: &str, verbs: &[&str]| {
            serde_json::from_value::<Resource>(serde_json::json!({
                "resource": "things", "responseKind": {"kind": kind}, "scope": scope, "verbs": verbs, "shortNames": verbs,
                "subresources": [{"subresource": "status", "verbs": verbs}],
            }))
            .unwrap()
        };
        let (one, two) = (resource("Thing", "Namespaced", &["get"]), resource("Thing", "Cluster", &["list"]));
        let three = resource("Thing", "Namespaced", &["watch"]);
        let joined = join_resource(&[&two, &one, &three], &[&one, &two, &three]);
        assert_eq!(
            (joined.scope.as_str(), &joined.verbs[..]),
            ("Namespaced", &["get".to_owned(), "watch".to_owned()][..])
        );
        assert_eq!((joined.short_names, joined.subresources[0].verbs.len()), (joined.verbs, 2));
        let joined = join_resource(&[&two, &one], &[&one, &two]);
        assert_eq!(joined.scope, "Namespaced", "of two that differ the first by name has it, whatever their versions");
    }
}
