//! The rules that hold in every cluster: what a SelfSubjectRulesReview of many clusters says.

use serde_json::{Value, json};

/// How many pairs of rules are compared one by one. Beyond that only rules that both clusters spell alike are kept;
/// thousands of rules are more than anybody reads.
const PAIRS_MAX: usize = 250_000;

/// One rule about resources or, where the other lists are empty, about paths.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct AuthorizationRule {
    verbs: Vec<String>,
    api_groups: Vec<String>,
    resources: Vec<String>,
    /// Empty for all.
    resource_names: Vec<String>,
    urls: Vec<String>,
}

/// The rules (`resourceRules` or `nonResourceRules`) that two clusters both give.
pub(super) fn common(ours: &[Value], theirs: &[Value]) -> Vec<Value> {
    let alike = |a: &[Value], b: &[Value]| a.iter().all(|rule| b.contains(rule));
    if alike(ours, theirs) && alike(theirs, ours) {
        return ours.to_vec();
    }
    if ours.len().saturating_mul(theirs.len()) > PAIRS_MAX {
        return ours.iter().filter(|rule| theirs.contains(rule)).cloned().collect();
    }
    let theirs: Vec<_> = theirs.iter().map(AuthorizationRule::read).collect();
    let mut common: Vec<AuthorizationRule> = Vec::new();
    for own in ours.iter().map(AuthorizationRule::read) {
        for rule in theirs.iter().filter_map(|other| own.meet(other)) {
            if !common.iter().any(|known| known.covers(&rule)) {
                common.retain(|known| !rule.covers(known));
                common.push(rule);
            }
        }
    }
    common.iter().map(AuthorizationRule::write).collect()
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

    /// What both allow; `None` if that is nothing.
    fn meet(&self, other: &Self) -> Option<Self> {
        let names = match (&self.resource_names[..], &other.resource_names[..]) {
            (all, names) | (names, all) if all.is_empty() => names.to_vec(),
            (ours, theirs) => some(meet(ours, theirs, |a, b| a == b))?,
        };
        let verbs = some(meet(&self.verbs, &other.verbs, any))?;
        if !self.urls.is_empty() || !other.urls.is_empty() {
            let urls = some(meet(&self.urls, &other.urls, url))?;
            return Some(Self { verbs, urls, ..Self::default() });
        }
        Some(Self {
            verbs,
            api_groups: some(meet(&self.api_groups, &other.api_groups, any))?,
            resources: some(meet(&self.resources, &other.resources, resource))?,
            resource_names: names,
            urls: Vec::new(),
        })
    }

    /// Whether everything that the other allows is allowed by this one.
    fn covers(&self, other: &Self) -> bool {
        let within = |ours: &[String], theirs: &[String], matches: fn(&str, &str) -> bool| {
            theirs.iter().all(|their| ours.iter().any(|own| matches(own, their)))
        };
        let names = self.resource_names.is_empty()
            || (!other.resource_names.is_empty() && within(&self.resource_names, &other.resource_names, |a, b| a == b));
        names
            && within(&self.verbs, &other.verbs, any)
            && within(&self.api_groups, &other.api_groups, any)
            && within(&self.resources, &other.resources, resource)
            && within(&self.urls, &other.urls, url)
    }
}

fn some(list: Vec<String>) -> Option<Vec<String>> {
    (!list.is_empty()).then_some(list)
}

/// What two lists of patterns have in common: of two patterns the narrower, if one lies within the other.
fn meet(ours: &[String], theirs: &[String], matches: fn(&str, &str) -> bool) -> Vec<String> {
    let mut both: Vec<String> = Vec::new();
    for (a, b) in ours.iter().flat_map(|a| theirs.iter().map(move |b| (a, b))) {
        let narrower = if matches(a, b) {
            b
        } else if matches(b, a) {
            a
        } else {
            continue;
        };
        if !both.contains(narrower) {
            both.push(narrower.clone());
        }
    }
    both
}

/// Whether a verb or group pattern holds another.
fn any(pattern: &str, value: &str) -> bool {
    pattern == "*" || pattern == value
}

/// Whether a resource pattern (`*`, `*/scale`, `pods/log`) holds another (RBAC's `ResourceMatches`).
fn resource(pattern: &str, value: &str) -> bool {
    let subresource = value.split_once('/').map(|(_, subresource)| subresource);
    any(pattern, value) || pattern.strip_prefix("*/").is_some_and(|of_any| subresource == Some(of_any))
}

/// Whether a path pattern (`/healthz`, `/healthz/*`, `*`) holds another (RBAC's `NonResourceURLMatches`).
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
    fn a_rule_is_what_both_allow() {
        let admin = rule(&["*"], &["*"], &["*"], &[]);
        let pods = rule(&["get", "list"], &[""], &["pods", "pods/log"], &[]);
        let cases = [
            (vec![admin.clone()], vec![admin.clone()], vec![admin.clone()]),
            (vec![admin.clone()], vec![pods.clone()], vec![pods.clone()]),
            (vec![pods.clone()], vec![rule(&["delete"], &["*"], &["*"], &[])], vec![]),
            // What one spells as two rules the other may spell as one.
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
            // The wider rule says it all.
            (vec![pods.clone(), admin.clone()], vec![admin.clone()], vec![admin.clone()]),
        ];
        for (ours, theirs, expected) in cases {
            assert_eq!(common(&ours, &theirs), expected, "{ours:?} {theirs:?}");
        }
    }

    #[test]
    fn paths_meet_by_prefix() {
        let rule = |urls: &[&str]| json!({"verbs": ["get"], "nonResourceURLs": urls});
        let both = common(&[rule(&["/api/*", "/healthz"])], &[rule(&["/api", "/api/v1/*", "*"])]);
        assert_eq!(both, [rule(&["/api/v1/*", "/api/*", "/healthz"])]);
        assert!(common(&[rule(&["/version"])], &[rule(&["/healthz"])]).is_empty());
    }
}
