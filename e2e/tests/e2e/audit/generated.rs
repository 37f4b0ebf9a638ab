//! Generates an audit policy and requests from a small vocabulary, so that rules often match.

use http::Method;
use rand::{Rng, rngs::StdRng, seq::IndexedRandom};
use serde_json::{Map, Value, json};

/// Number of narrow rules before the final rule, which matches every request. With narrow rules, many different rules
/// decide requests.
const RULES: usize = 60;

const LEVELS: &[&str] = &["None", "Metadata", "Request", "RequestResponse"];
const STAGES: &[&str] = &["RequestReceived", "ResponseStarted", "ResponseComplete", "Panic"];
const USERS: &[&str] = &["admin", "system:anonymous", "system:serviceaccount:one:robot", "ann"];
const GROUPS: &[&str] = &["system:masters", "system:authenticated", "system:serviceaccounts", "system:unauthenticated"];
const VERBS: &[&str] =
    &["get", "list", "watch", "create", "update", "patch", "delete", "deletecollection", "head", "options", ""];
const NAMESPACES: &[&str] = &["one", "two", "", "default"];
const API_GROUPS: &[&str] = &["", "", "apps", "example.io", "*"];
const RESOURCES: &[&str] = &[
    "pods",
    "pods/log",
    "pods/*",
    "*/log",
    "*/status",
    "*",
    "configmaps",
    "namespaces",
    "deployments",
    "deployments/scale",
    "*/*",
    "pods/",
];
const NAMES: &[&str] = &["x", "y", "", "one"];
const PATHS: &[&str] = &["/healthz", "/healthz*", "/healthz/*", "*", "/version", "/api*", "/nowhere"];

fn pick<'a>(random: &mut StdRng, from: &[&'a str]) -> &'a str {
    from.choose(random).unwrap_or_else(|| unreachable!("no list is empty"))
}

fn some<'a>(random: &mut StdRng, from: &[&'a str]) -> Vec<&'a str> {
    let count = random.random_range(1..=2);
    from.choose_multiple(random, count).copied().collect()
}

/// Generates a policy that kube-apiserver accepts.
pub(crate) fn policy(random: &mut StdRng) -> Value {
    let mut rules: Vec<Value> = (0..RULES).map(|_| rule(random)).collect();
    rules.push(json!({"level": "Metadata", "verbs": ["get", "list", "watch", "create", "update"]}));
    json!({
        "apiVersion": "audit.k8s.io/v1", "kind": "Policy", "rules": rules, "omitStages": ["Panic"],
        "omitManagedFields": true,
    })
}

fn rule(random: &mut StdRng) -> Value {
    let mut rule = Map::new();
    rule.insert("level".to_owned(), pick(random, LEVELS).into());
    for (field, words, chance) in
        [("users", USERS, 0.4), ("userGroups", GROUPS, 0.3), ("verbs", VERBS, 0.5), ("omitStages", STAGES, 0.4)]
    {
        if random.random_bool(chance) {
            rule.insert(field.to_owned(), some(random, words).into());
        }
    }
    if random.random_bool(0.2) {
        rule.insert("nonResourceURLs".to_owned(), some(random, PATHS).into());
        return rule.into();
    }
    if random.random_bool(0.4) {
        rule.insert("namespaces".to_owned(), some(random, NAMESPACES).into());
    }
    let mut resources = json!({"group": pick(random, API_GROUPS)});
    if random.random_bool(0.9) {
        resources["resources"] = some(random, RESOURCES).into();
        if random.random_bool(0.5) {
            resources["resourceNames"] = some(random, NAMES).into();
        }
    }
    rule.insert("resources".to_owned(), json!([resources]));
    rule.into()
}

/// Methods, each with the text that follows a collection's path in the request.
const FORMS: &[(&str, &str)] = &[
    ("GET", ""),
    ("GET", "?limit=1"),
    ("GET", "?watch=1&timeoutSeconds=1"),
    ("GET", "?fieldSelector=metadata.name%3Dx"),
    ("GET", "/x"),
    ("GET", "/y"),
    ("GET", "/x/log"),
    ("GET", "/x/status"),
    ("GET", "/x/scale"),
    ("POST", ""),
    ("PUT", "/x"),
    ("PUT", "/y/status"),
    ("PATCH", "/x"),
    ("DELETE", "/nobody"),
    ("DELETE", "?fieldSelector=metadata.name%3Dnobody"),
    ("OPTIONS", ""),
    ("PUT", ""),
    ("PATCH", ""),
    ("POST", "/x"),
    ("HEAD", "/x"),
];

/// Collections, both existing and missing.
const COLLECTIONS: &[&str] = &[
    "/api/v1/namespaces/one/pods",
    "/api/v1/namespaces/two/pods",
    "/api/v1/pods",
    "/api/v1/namespaces/one/configmaps",
    "/api/v1/namespaces",
    "/apis/apps/v1/namespaces/one/deployments",
    "/apis/apps/v1/deployments",
    "/apis/example.io/v1/namespaces/one/things",
];

const OTHER_PATHS: &[&str] =
    &["/healthz", "/healthz/ping", "/version", "/api", "/api/v1", "/apis/apps/v1", "/nowhere", "/nowhere/else"];

/// Generates a request that changes nothing: a write is malformed, or names a missing object.
pub(crate) fn request(random: &mut StdRng) -> (Method, String) {
    let (method, target) = match random.random_bool(0.2) {
        true => (pick(random, &["GET", "GET", "HEAD", "POST", "OPTIONS"]), pick(random, OTHER_PATHS).to_owned()),
        false => {
            let (method, form) = FORMS.choose(random).copied().unwrap_or(("GET", ""));
            (method, format!("{}{form}", pick(random, COLLECTIONS)))
        }
    };
    (Method::from_bytes(method.as_bytes()).unwrap_or_default(), target)
}
