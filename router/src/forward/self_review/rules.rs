//! Intersection of the rules of many clusters, for a SelfSubjectRulesReview.

use std::collections::HashSet;

use serde_json::{Value, json};

/// Maximum number of comparisons of patterns for each cluster: some 50 ms of CPU time. The rules of people and
/// controllers need some thousands. The limit protects against a member that sends any number of rules. Beyond the
/// limit, only rules with equal text in both clusters remain.
const COMPARISONS_MAX: usize = 4_000_000;

/// One rule about resources, or about non-resource paths if the lists about resources are empty.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct AuthorizationRule {
    verbs: Vec<String>,
    api_groups: Vec<String>,
    resources: Vec<String>,
    /// Names of objects. An empty list means all names.
    resource_names: Vec<String>,
    urls: Vec<String>,
}

/// Returns the rules (`resourceRules` or `nonResourceRules`) that two clusters have in common.
pub(super) fn common(ours: &[Value], theirs: &[Value]) -> Vec<Value> {
    let spelled = |rules: &[Value]| rules.iter().map(Value::to_string).collect::<HashSet<_>>();
    let (own, other) = (spelled(ours), spelled(theirs));
    if own == other {
        return ours.to_vec();
    }
    match met(ours, theirs, &mut Comparisons(COMPARISONS_MAX)) {
        Some(common) => common.iter().map(AuthorizationRule::write).collect(),
        None => ours.iter().filter(|rule| other.contains(&rule.to_string())).cloned().collect(),
    }
}

/// Returns the part of the rules that allows reads.
pub(super) fn reads(rules: &[Value]) -> Vec<Value> {
    let of_reads = |rule: &Value| {
        let verbs: Vec<_> = rule["verbs"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        let reads = READS.into_iter().filter(|read| verbs.contains(read) || verbs.contains(&"*"));
        let reads: Vec<_> = reads.collect();
        let mut rule = rule.clone();
        rule["verbs"] = json!(reads);
        (!reads.is_empty()).then_some(rule)
    };
    rules.iter().filter_map(of_reads).collect()
}

const READS: [&str; 3] = ["get", "list", "watch"];

pub(super) fn with(mut rules: Vec<Value>, others: Vec<Value>) -> Vec<Value> {
    let mut spelled: HashSet<_> = rules.iter().map(Value::to_string).collect();
    rules.extend(others.into_iter().filter(|rule| spelled.insert(rule.to_string())));
    rules
}

/// Returns the common part of each pair of rules, without parts that another rule covers; `None` beyond the limit of
/// comparisons.
fn met(ours: &[Value], theirs: &[Value], remaining: &mut Comparisons) -> Option<Vec<AuthorizationRule>> {
    let theirs: Vec<_> = theirs.iter().map(AuthorizationRule::read).collect();
    let mut common: Vec<AuthorizationRule> = Vec::new();
    for own in ours.iter().map(AuthorizationRule::read) {
        for other in &theirs {
            let Some(rule) = own.meet(other, remaining)? else { continue };
            let mut is_covered = false;
            for known in &common {
                is_covered = is_covered || known.covers(&rule, remaining)?;
            }
            if is_covered {
                continue;
            }
            let mut uncovered = Vec::with_capacity(common.len() + 1);
            for known in common {
                if !rule.covers(&known, remaining)? {
                    uncovered.push(known);
                }
            }
            uncovered.push(rule);
            common = uncovered;
        }
    }
    Some(common)
}

/// Number of comparisons that remain until the limit.
struct Comparisons(usize);

impl Comparisons {
    /// Takes `count` comparisons; `None` beyond the limit.
    fn spend(&mut self, count: usize) -> Option<()> {
        self.0 = self.0.checked_sub(count)?;
        Some(())
    }
}

impl AuthorizationRule {
    fn read(rule: &Value) -> Self {
        let list = |member: &str| -> Vec<String> {
            let values = rule[member].as_array().into_iter().flatten();
            values.filter_map(|value| value.as_str().map(str::to_owned)).collect()
        };
        Self {
            verbs: list("verbs"),
            api_groups: list("apiGroups"),
            resources: list("resources"),
            resource_names: list("resourceNames"),
            urls: list("nonResourceURLs"),
        }
    }

    fn write(&self) -> Value {
        let mut rule = json!({ "verbs": self.verbs });
        let lists = [
            ("apiGroups", &self.api_groups),
            ("resources", &self.resources),
            ("resourceNames", &self.resource_names),
            ("nonResourceURLs", &self.urls),
        ];
        for (member, list) in lists.into_iter().filter(|(_, list)| !list.is_empty()) {
            rule[member] = json!(list);
        }
        rule
    }

    /// Returns the rights that two rules both allow, if any. `None` beyond the limit of comparisons.
    fn meet(&self, other: &Self, remaining: &mut Comparisons) -> Option<Option<Self>> {
        let names = match (&self.resource_names[..], &other.resource_names[..]) {
            (all, names) | (names, all) if all.is_empty() => names.to_vec(),
            (ours, theirs) => match meet(ours, theirs, |a, b| a == b, remaining)? {
                none if none.is_empty() => return Some(None),
                names => names,
            },
        };
        let mut met = Self { resource_names: names, ..Self::default() };
        met.verbs = meet(&self.verbs, &other.verbs, any, remaining)?;
        if !self.urls.is_empty() || !other.urls.is_empty() {
            let urls = meet(&self.urls, &other.urls, url, remaining)?;
            let is_some = !met.verbs.is_empty() && !urls.is_empty();
            return Some(is_some.then_some(Self { verbs: met.verbs, urls, ..Self::default() }));
        }
        met.api_groups = meet(&self.api_groups, &other.api_groups, any, remaining)?;
        met.resources = meet(&self.resources, &other.resources, resource, remaining)?;
        let is_some = !met.verbs.is_empty() && !met.api_groups.is_empty() && !met.resources.is_empty();
        Some(is_some.then_some(met))
    }

    /// Returns whether this rule allows all actions that `other` allows. `None` beyond the limit of comparisons.
    fn covers(&self, other: &Self, remaining: &mut Comparisons) -> Option<bool> {
        let lists = |rule: &Self| {
            [&rule.verbs, &rule.api_groups, &rule.resources, &rule.resource_names, &rule.urls].map(|list| list.len())
        };
        remaining.spend(1 + lists(self).iter().zip(lists(other)).map(|(own, other)| own * other).sum::<usize>())?;
        let within = |ours: &[String], theirs: &[String], matches: fn(&str, &str) -> bool| {
            theirs.iter().all(|their| ours.iter().any(|own| matches(own, their)))
        };
        let names = self.resource_names.is_empty()
            || (!other.resource_names.is_empty() && within(&self.resource_names, &other.resource_names, |a, b| a == b));
        Some(
            names
                && within(&self.verbs, &other.verbs, any)
                && within(&self.api_groups, &other.api_groups, any)
                && within(&self.resources, &other.resources, resource)
                && within(&self.urls, &other.urls, url),
        )
    }
}

/// Returns the common part of two lists of patterns: for each pair, the narrower pattern, if the wider one covers it.
/// `None` beyond the limit of comparisons.
fn meet(
    ours: &[String],
    theirs: &[String],
    matches: fn(&str, &str) -> bool,
    remaining: &mut Comparisons,
) -> Option<Vec<String>> {
    remaining.spend(1 + ours.len() * theirs.len())?;
    let mut both: Vec<String> = Vec::new();
    for (a, b) in ours.iter().flat_map(|a| theirs.iter().map(move |b| (a, b))) {
        let narrower = if matches(a, b) {
            b
        } else if matches(b, a) {
            a
        } else {
            continue;
        };
        remaining.spend(both.len())?;
        if !both.contains(narrower) {
            both.push(narrower.clone());
        }
    }
    Some(both)
}

fn any(pattern: &str, value: &str) -> bool {
    pattern == "*" || pattern == value
}

/// Returns whether a resource pattern (`*`, `*/scale`, `pods/log`) covers another pattern (RBAC's `ResourceMatches`).
fn resource(pattern: &str, value: &str) -> bool {
    let subresource = value.split_once('/').map(|(_, subresource)| subresource);
    any(pattern, value) || pattern.strip_prefix("*/").is_some_and(|of_any| subresource == Some(of_any))
}

/// Returns whether a path pattern (`/healthz`, `/healthz/*`, `*`) covers another pattern (RBAC's
/// `NonResourceURLMatches`).
fn url(pattern: &str, value: &str) -> bool {
    any(pattern, value) || pattern.strip_suffix('*').is_some_and(|prefix| value.starts_with(prefix))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(verbs: &[&str], groups: &[&str], resources: &[&str], names: &[&str]) -> Value {
        let mut rule = json!({"verbs": verbs, "apiGroups": groups, "resources": resources});
        if !names.is_empty() {
            rule["resourceNames"] = json!(names);
        }
        rule
    }

    #[test]
    fn common_rules_are_the_intersection_of_two_clusters_rules() {
        let admin = rule(&["*"], &["*"], &["*"], &[]);
        let pods = rule(&["get", "list"], &[""], &["pods", "pods/log"], &[]);
        let cases = [
            (vec![admin.clone()], vec![admin.clone()], vec![admin.clone()]),
            (vec![admin.clone()], vec![pods.clone()], vec![pods.clone()]),
            (vec![pods.clone()], vec![rule(&["delete"], &["*"], &["*"], &[])], vec![]),
            // Two rules of one cluster may correspond to a single rule of the other cluster.
            (
                vec![pods.clone()],
                vec![rule(&["get"], &[""], &["pods"], &[]), rule(&["list"], &[""], &["pods"], &[])],
                vec![rule(&["get"], &[""], &["pods"], &[]), rule(&["list"], &[""], &["pods"], &[])],
            ),
            (
                vec![rule(&["get"], &[""], &["pods"], &["a", "b"])],
                vec![rule(&["get"], &[""], &["pods"], &["b", "c"]), rule(&["get"], &[""], &["nodes"], &[])],
                vec![rule(&["get"], &[""], &["pods"], &["b"])],
            ),
            (
                vec![rule(&["get"], &["apps"], &["*/scale"], &[])],
                vec![rule(&["*"], &["apps"], &["deployments", "deployments/scale"], &[])],
                vec![rule(&["get"], &["apps"], &["deployments/scale"], &[])],
            ),
            // Of two rules, only the wider rule remains.
            (vec![pods.clone(), admin.clone()], vec![admin.clone()], vec![admin.clone()]),
        ];
        for (ours, theirs, expected) in cases {
            assert_eq!(common(&ours, &theirs), expected, "{ours:?} {theirs:?}");
        }
    }

    /// A comparison of every pair of rules would take minutes, and delay all other clients.
    #[test]
    fn thousands_of_rules_are_merged_without_comparing_each_pair() {
        let names = |count: usize| (0..count).map(|at| format!("n{at}")).collect::<Vec<_>>();
        let of_names =
            |names: &[String]| names.iter().map(|name| rule(&["get"], &[""], &["pods"], &[name])).collect::<Vec<_>>();
        let (few, many) = (of_names(&names(100)), of_names(&names(20_000)));
        let turned: Vec<_> = many.iter().rev().cloned().collect();
        assert_eq!(common(&many, &turned).len(), 20_000, "they are the same");
        assert_eq!(common(&few, &many), few, "what both spell alike");
        let wide = names(5_000);
        let wide: Vec<&str> = wide.iter().map(String::as_str).collect();
        let admin = vec![rule(&["*"], &["*"], &["*"], &[]); 100];
        let hostile: Vec<_> = (0..50).map(|_| rule(&wide, &wide, &wide, &[])).collect();
        assert!(common(&hostile, &hostile[1..].iter().chain(&admin).cloned().collect::<Vec<_>>()).len() <= 50);
        // With the usual rules of people, the comparison of all pairs stays below the limit.
        let own: Vec<_> = names(200).iter().map(|name| rule(&["get", "list"], &[""], &[name], &[])).collect();
        let read = vec![rule(&["get", "list", "watch"], &["", "apps"], &["*"], &[])];
        assert_eq!(common(&own, &read).len(), 200);
    }

    #[test]
    fn path_rules_intersect_by_prefix() {
        let rule = |urls: &[&str]| json!({"verbs": ["get"], "nonResourceURLs": urls});
        let both = common(&[rule(&["/api/*", "/healthz"])], &[rule(&["/api", "/api/v1/*", "*"])]);
        assert_eq!(both, [rule(&["/api/v1/*", "/api/*", "/healthz"])]);
        assert!(common(&[rule(&["/version"])], &[rule(&["/healthz"])]).is_empty());
    }
}
