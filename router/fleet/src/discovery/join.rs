//! Union of the clusters' discovery documents, and the order of groups, versions and resources in the union.
//!
//! Equal documents are joined once, with the number of clusters that have them: a fleet has a handful of distinct
//! documents.

use std::cmp::Reverse;
use std::collections::HashMap;

use tributary_apimachinery::built_in::built_in;

use super::model::{Group, GroupList, Nature, Resource, STALE, Version};

/// A document or a part of a document, with the number of clusters that have it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Copies<'a, T: ?Sized> {
    pub(super) value: &'a T,
    /// Number of clusters that share this document or part, at least one.
    pub(super) count: usize,
    /// Index of the first cluster by name that has this document or part.
    pub(super) first: usize,
}

impl<'a, T: ?Sized> Copies<'a, T> {
    /// Returns a part of this document or part. The same clusters have it.
    fn part<P: ?Sized>(&self, part: impl FnOnce(&'a T) -> &'a P) -> Copies<'a, P> {
        Copies { value: part(self.value), count: self.count, first: self.first }
    }
}

/// Joins the distinct documents of all members. The first document has the highest precedence. A document that several
/// members share has the precedence of its first member.
pub(super) fn join(documents: &[Copies<'_, GroupList>]) -> GroupList {
    let lists = documents.iter().map(|document| document.part(|list| &list.items[..]));
    let groups = by_name(lists, |group| &group.metadata.name);
    GroupList::new(groups.iter().map(|(_, copies)| join_group(copies)).collect())
}

fn join_group(groups: &[Copies<'_, Group>]) -> Group {
    let lists = groups.iter().map(|group| group.part(|group| &group.versions[..]));
    let mut versions = by_name(lists, |version| &version.version);
    let own = groups[0].value.versions.iter().enumerate().rev();
    let first: HashMap<&str, usize> = own.map(|(at, version)| (&*version.version, at)).collect();
    let place = |name: &str| first.get(name).copied().unwrap_or(usize::MAX);
    let serving = |copies: &[Copies<'_, Version>]| -> usize { copies.iter().map(|copies| copies.count).sum() };
    versions.sort_by(|(a, with_a), (b, with_b)| {
        let most = serving(with_b).cmp(&serving(with_a));
        most.then_with(|| place(a).cmp(&place(b))).then_with(|| by_age(b).cmp(&by_age(a)))
    });
    let name = &groups[0].value.metadata.name;
    let versions = versions.iter().map(|(_, copies)| join_version(name, copies)).collect();
    Group { metadata: groups[0].value.metadata.clone(), versions, unreadable: None }
}

/// Returns a sort key for the age of an API version, computed from its name in Kubernetes' order
/// (`CompareKubeAwareVersionStrings`). A greater key is newer.
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

fn join_version(group: &str, versions: &[Copies<'_, Version>]) -> Version {
    let lists = versions.iter().map(|version| version.part(|version| &version.resources[..]));
    let resources = by_name(lists, |resource| &resource.resource);
    let fresh = versions.iter().find(|version| version.value.freshness != STALE);
    Version {
        version: versions[0].value.version.clone(),
        resources: resources.iter().map(|(_, copies)| join_resource(group, copies)).collect(),
        freshness: fresh.unwrap_or(&versions[0]).value.freshness.clone(),
        unreadable: None,
    }
}

fn join_resource(group: &str, resources: &[Copies<'_, Resource>]) -> Resource {
    let most = decided(group, resources);
    let mut alike = resources.iter().map(|own| own.value).filter(|own| Some(own.nature()) == most);
    let mut joined = alike.next().unwrap_or(resources[0].value).clone();
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

/// Returns the kind and scope that most clusters give the resource. If two have the same number of clusters, the first
/// cluster by name decides. Kubernetes' own resources have a fixed kind and scope. Otherwise, hostile clusters in the
/// majority could cause the merged view to omit the other clusters.
fn decided<'a>(group: &str, resources: &[Copies<'a, Resource>]) -> Option<Nature<'a>> {
    let own = built_in(group, &resources[0].value.resource).map(|(kind, namespaced)| Nature { kind, namespaced });
    if own.is_some_and(|own| resources.iter().any(|copies| copies.value.nature() == own)) {
        return own;
    }
    let mut natures: Vec<(Nature<'a>, usize, usize)> = Vec::new();
    for Copies { value, count, first } in resources {
        match natures.iter_mut().find(|(nature, ..)| *nature == value.nature()) {
            Some((_, all, earliest)) => (*all, *earliest) = (*all + count, (*earliest).min(*first)),
            None => natures.push((value.nature(), *count, *first)),
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

/// Groups the items of several lists by name. If one list repeats a name, only its first item is used. The result has
/// the order of the first list. A name that only a later list has is inserted after the name that precedes it in that
/// list. Costs one lookup for each item.
fn by_name<'a, T>(
    lists: impl Iterator<Item = Copies<'a, [T]>>,
    name: impl Fn(&'a T) -> &'a str,
) -> Vec<(&'a str, Vec<Copies<'a, T>>)> {
    let mut named: Vec<Named<'a, T>> = Vec::new();
    let mut places: HashMap<&str, usize> = HashMap::new();
    let mut begins_with: Option<usize> = None;
    for (number, list) in lists.enumerate() {
        let mut before: Option<usize> = None;
        for value in list.value {
            let own = name(value);
            let place = *places.entry(own).or_insert_with(|| {
                let new = named.len();
                let followed_by = match before {
                    Some(before) => named[before].followed_by.replace(new),
                    None => begins_with.replace(new),
                };
                named.push(Named { name: own, copies: Vec::new(), last: None, followed_by });
                new
            });
            let entry = &mut named[place];
            if entry.last != Some(number) {
                entry.last = Some(number);
                entry.copies.push(Copies { value, count: list.count, first: list.first });
            }
            before = Some(place);
        }
    }
    let mut ordered = Vec::with_capacity(named.len());
    let mut next = begins_with;
    while let Some(place) = next {
        next = named[place].followed_by;
        ordered.push((named[place].name, std::mem::take(&mut named[place].copies)));
    }
    ordered
}

struct Named<'a, T> {
    name: &'a str,
    copies: Vec<Copies<'a, T>>,
    last: Option<usize>,
    /// Index of the name that follows this name in the result.
    followed_by: Option<usize>,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn group(name: &str, versions: serde_json::Value) -> Group {
        serde_json::from_value(serde_json::json!({"metadata": {"name": name}, "versions": versions})).unwrap()
    }

    fn copies<T>(all: &[T], by_name: impl Fn(usize) -> usize) -> Vec<Copies<'_, T>> {
        all.iter().enumerate().map(|(at, value)| Copies { value, count: 1, first: by_name(at) }).collect()
    }

    fn versions(names: &[&str]) -> serde_json::Value {
        names.iter().map(|name| serde_json::json!({"version": name})).collect()
    }

    #[test]
    fn joined_discovery_lists_keep_neighbouring_names_together() {
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
            let copies = lists.iter().map(|value| Copies { value: *value, count: 1, first: 0 });
            let names: Vec<_> = by_name(copies, |name| name).into_iter().map(|(name, _)| name).collect();
            assert_eq!(names, expected);
        }
    }

    /// A discovery document of 2 MB contains 60,000 names. A join that compares all pairs would take a minute.
    #[test]
    fn discovery_documents_with_many_names_are_joined_quickly() {
        let resources: Vec<_> = (0..60_000).map(|at| serde_json::json!({"resource": format!("r{at}")})).collect();
        let wide = group("x.io", serde_json::json!([{"version": "v1", "resources": resources}]));
        let mut groups: Vec<_> = (0..60_000).map(|at| group(&format!("g{at}.io"), versions(&["v1"]))).collect();
        groups.push(wide);
        let documents = [GroupList::new(groups.clone()), GroupList::new(groups.into_iter().rev().collect())];
        let joined = join(&copies(&documents, |at| at));
        assert_eq!((joined.items.len(), joined.items[60_000].versions[0].resources.len()), (60_001, 60_000));
    }

    /// A hostile cluster with a name that sorts first serves Kubernetes' own resources with different kinds. The merged
    /// view must keep the kinds of Kubernetes.
    #[test]
    fn majority_cannot_change_kind_or_scope_of_built_in_resources() {
        let resource = |kind: &str, scope: &str| {
            let text = serde_json::json!({"resource": "deployments", "responseKind": {"kind": kind}, "scope": scope});
            serde_json::from_value::<Resource>(text).unwrap()
        };
        let (own, other) = (resource("Deployment", "Namespaced"), resource("Deployment", "Cluster"));
        let hostile = [Copies { value: &other, count: 9, first: 0 }, Copies { value: &own, count: 1, first: 9 }];
        assert_eq!(join_resource("apps", &hostile).scope, "Namespaced");
        assert_eq!(join_resource("apps.example.com", &hostile).scope, "Cluster", "of others most members decide");
        assert_eq!(join_resource("apps", &hostile[..1]).scope, "Cluster", "where nobody serves it as it is");
    }

    #[test]
    fn api_version_served_by_most_members_is_preferred() {
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
    fn joined_api_version_is_stale_only_if_stale_in_every_cluster() {
        let version = |freshness: &str, resources: serde_json::Value| {
            serde_json::from_value::<Version>(
                serde_json::json!({"version": "v1", "freshness": freshness, "resources": resources}),
            )
            .unwrap()
        };
        let stale = version(STALE, serde_json::json!([]));
        let current = version("Current", serde_json::json!([{"resource": "pods"}]));
        let joined = join_version("", &copies(&[stale.clone(), current], |at| at));
        assert_eq!((&*joined.freshness, joined.resources.len()), ("Current", 1));
        assert_eq!(join_version("", &copies(&[stale.clone(), stale], |at| at)).freshness, STALE);
    }

    #[test]
    fn majority_of_members_decides_kind_and_scope_of_a_resource() {
        let resource = |kind: &str, scope: &str, verbs: &[&str]| {
            serde_json::from_value::<Resource>(serde_json::json!({
                "resource": "things", "responseKind": {"kind": kind}, "scope": scope, "verbs": verbs, "shortNames": verbs,
                "subresources": [{"subresource": "status", "verbs": verbs}],
            }))
            .unwrap()
        };
        let (one, two) = (resource("Thing", "Namespaced", &["get"]), resource("Thing", "Cluster", &["list"]));
        let three = resource("Thing", "Namespaced", &["watch"]);
        let joined = join_resource("x.io", &copies(&[two.clone(), one.clone(), three], |at| [1, 0, 2][at]));
        assert_eq!(
            (joined.scope.as_str(), &joined.verbs[..]),
            ("Namespaced", &["get".to_owned(), "watch".to_owned()][..])
        );
        assert_eq!((joined.short_names, joined.subresources[0].verbs.len()), (joined.verbs, 2));
        let joined = join_resource("x.io", &copies(&[two.clone(), one.clone()], |at| 1 - at));
        assert_eq!(joined.scope, "Namespaced", "of two that differ the first by name has it, whatever their versions");
        let many = [Copies { value: &two, count: 3, first: 2 }, Copies { value: &one, count: 2, first: 0 }];
        assert_eq!(join_resource("x.io", &many).scope, "Cluster", "members are counted, not documents");
    }
}
