//! Joining the members' discovery documents: what the union holds, and in which order.
//!
//! Equal documents are joined once, with how many members have them: a fleet has a handful of distinct ones.

use std::cmp::Reverse;

use super::model::{Group, GroupList, Nature, Resource, STALE, Version};

/// A document that some members have, or a part of it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Copies<'a, T: ?Sized> {
    /// What they have.
    pub(super) what: &'a T,
    /// How many members have it, at least one.
    pub(super) count: usize,
    /// The place, among all members by name, of the first that has it.
    pub(super) first: usize,
}

impl<'a, T: ?Sized> Copies<'a, T> {
    /// A part of what these members have.
    fn part<P>(&self, find: impl FnOnce(&'a T) -> Option<&'a P>) -> Option<Copies<'a, P>> {
        Some(Copies { what: find(self.what)?, count: self.count, first: self.first })
    }
}

/// Joins the distinct documents of all members. They come by the precedence of the first that has each.
pub(super) fn join(documents: &[Copies<'_, GroupList>]) -> GroupList {
    let lists: Vec<&[Group]> = documents.iter().map(|document| &document.what.items[..]).collect();
    let groups = interleave(&lists, |group| &group.metadata.name).into_iter().map(|name| {
        let of_name = documents
            .iter()
            .filter_map(|document| document.part(|list| list.items.iter().find(|group| group.metadata.name == name)));
        join_group(&of_name.collect::<Vec<_>>())
    });
    GroupList::new(groups.collect())
}

/// Joins one group of several members, at least one.
fn join_group(groups: &[Copies<'_, Group>]) -> Group {
    let lists: Vec<&[Version]> = groups.iter().map(|group| &group.what.versions[..]).collect();
    let mut names = interleave(&lists, |version| &version.version);
    let first = |name: &str| lists[0].iter().position(|own| own.version == name).unwrap_or(usize::MAX);
    let serving = |name: &str| -> usize {
        let have = groups.iter().filter(|group| group.what.versions.iter().any(|own| own.version == name));
        have.map(|group| group.count).sum()
    };
    names.sort_by(|a, b| {
        let most = serving(b).cmp(&serving(a));
        most.then_with(|| first(a).cmp(&first(b))).then_with(|| by_age(b).cmp(&by_age(a)))
    });
    let versions = names.iter().map(|name| {
        let of_name = groups
            .iter()
            .filter_map(|group| group.part(|group| group.versions.iter().find(|own| own.version == *name)));
        join_version(&of_name.collect::<Vec<_>>())
    });
    Group { metadata: groups[0].what.metadata.clone(), versions: versions.collect() }
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
fn join_version(versions: &[Copies<'_, Version>]) -> Version {
    let lists: Vec<&[Resource]> = versions.iter().map(|version| &version.what.resources[..]).collect();
    let resources = interleave(&lists, |resource| &resource.resource).into_iter().map(|name| {
        let of_name = versions
            .iter()
            .filter_map(|version| version.part(|version| version.resources.iter().find(|own| own.resource == name)));
        join_resource(&of_name.collect::<Vec<_>>())
    });
    let fresh = versions.iter().find(|version| version.what.freshness != STALE);
    Version {
        version: versions[0].what.version.clone(),
        resources: resources.collect(),
        freshness: fresh.unwrap_or(&versions[0]).what.freshness.clone(),
    }
}

/// Joins one resource of several members, at least one.
fn join_resource(resources: &[Copies<'_, Resource>]) -> Resource {
    let most = most_frequent(resources);
    let mut alike = resources.iter().map(|own| own.what).filter(|own| Some(own.nature()) == most);
    let mut joined = alike.next().unwrap_or(resources[0].what).clone();
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

/// What most members say that a resource is; of several that are the most, what the first of all says, by name.
fn most_frequent<'a>(resources: &[Copies<'a, Resource>]) -> Option<Nature<'a>> {
    let mut natures: Vec<(Nature<'a>, usize, usize)> = Vec::new();
    for Copies { what, count, first } in resources {
        match natures.iter_mut().find(|(nature, ..)| *nature == what.nature()) {
            Some((_, all, earliest)) => (*all, *earliest) = (*all + count, (*earliest).min(*first)),
            None => natures.push((what.nature(), *count, *first)),
        }
    }
    let most = natures.into_iter().max_by_key(|(_, count, first)| (*count, Reverse(*first)));
    most.map(|(nature, ..)| nature)
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

    /// What one member each has; `by_name` says in which order they come by name.
    fn copies<T>(all: &[T], by_name: impl Fn(usize) -> usize) -> Vec<Copies<'_, T>> {
        all.iter().enumerate().map(|(at, what)| Copies { what, count: 1, first: by_name(at) }).collect()
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
            join_group(&copies(&groups, |at| at))
                .versions
                .into_iter()
                .map(|version| version.version)
                .collect::<Vec<_>>()
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
        let joined = join_version(&copies(&[stale.clone(), current], |at| at));
        assert_eq!((&*joined.freshness, joined.resources.len()), ("Current", 1));
        assert_eq!(join_version(&copies(&[stale.clone(), stale], |at| at)).freshness, STALE);
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
        let joined = join_resource(&copies(&[two.clone(), one.clone(), three], |at| [1, 0, 2][at]));
        assert_eq!(
            (joined.scope.as_str(), &joined.verbs[..]),
            ("Namespaced", &["get".to_owned(), "watch".to_owned()][..])
        );
        assert_eq!((joined.short_names, joined.subresources[0].verbs.len()), (joined.verbs, 2));
        let joined = join_resource(&copies(&[two.clone(), one.clone()], |at| 1 - at));
        assert_eq!(joined.scope, "Namespaced", "of two that differ the first by name has it, whatever their versions");
        let many = [Copies { what: &two, count: 3, first: 2 }, Copies { what: &one, count: 2, first: 0 }];
        assert_eq!(join_resource(&many).scope, "Cluster", "members are counted, not documents");
    }
}
