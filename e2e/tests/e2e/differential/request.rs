//! Generates the requests of the test.

use rand::{Rng, rngs::StdRng, seq::IndexedRandom};
use serde_json::{Value, json};
use std::fmt;

/// Generated request. `VERSION` and `TOKEN` in its query stand for a resourceVersion and a continue token of its
/// collection.
pub(super) struct Request {
    pub(super) method: http::Method,
    pub(super) path: String,
    /// Collection from which the values of the placeholders come.
    pub(super) collection: String,
    pub(super) query: Vec<String>,
    pub(super) headers: Vec<(&'static str, &'static str)>,
    pub(super) body: Option<&'static str>,
}

impl fmt::Display for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} {:?} {:?}", self.method, self.target(), self.headers, self.body)
    }
}

/// Returns the objects to create, each with its collection, in the order of creation.
pub(super) fn objects(namespace: &str) -> Vec<(String, Value)> {
    let core = |resource: &str| format!("/api/v1/namespaces/{namespace}/{resource}");
    let mut objects: Vec<(String, Value)> = ["one", "two", "three"]
        .iter()
        .enumerate()
        .map(|(at, name)| {
            let labels = json!({"app": name, "parity": if at % 2 == 0 { "even" } else { "odd" }});
            let metadata = json!({"name": name, "labels": labels, "annotations": {"note": "kept"}});
            let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"a": name}});
            (core("configmaps"), object)
        })
        .collect();
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "one", "labels": {"app": "one"}},
        "spec": {"nodeName": "no-such-node", "containers": [{"name": "main", "image": "example.test/main:1"}]},
    });
    objects.push((core("pods"), pod));
    let mut deployment = crate::conformance::target::deployment("one");
    deployment["metadata"]["labels"] = json!({"app": "one"});
    objects.push((format!("/apis/apps/v1/namespaces/{namespace}/deployments"), deployment));
    let class = json!({
        "apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "metadata": {"name": "differential"}, "handler": "none",
    });
    objects.push(("/apis/node.k8s.io/v1/runtimeclasses".to_owned(), class));
    objects
}

/// Collections that no other test changes. The last collections of the list are empty.
pub(super) fn collections(namespace: &str) -> Vec<String> {
    [
        "/api/v1/namespaces/NS/configmaps",
        "/api/v1/namespaces/NS/pods",
        "/apis/apps/v1/namespaces/NS/deployments",
        "/apis/node.k8s.io/v1/runtimeclasses",
        "/api/v1/namespaces/NS/endpoints",
        "/apis/batch/v1/namespaces/NS/jobs",
        "/apis/events.k8s.io/v1/namespaces/NS/events",
    ]
    .map(|path| path.replace("NS", namespace))
    .to_vec()
}

/// Text that follows a collection's path in a request.
const BELOW: &[&str] = &[
    "",
    "",
    "",
    "",
    "/one",
    "/one",
    "/differential",
    "/nothing",
    "/",
    "/one/",
    "/one/status",
    "/one/scale",
    "/one/log",
    "/one/nothing",
    "/one/status/more",
    "//",
    "/%6fne",
    "/one%20",
    "/-",
    "/ONE",
    "/nothing/status",
];

/// Paths that are not below a collection: discovery and other documents, missing objects and single objects.
const OTHERS: &[&str] = &[
    "/",
    "/api",
    "/api/",
    "/apis",
    "/apis/",
    "/api/v1",
    "/api/v1/",
    "/api/v2",
    "/apis/apps",
    "/apis/apps/",
    "/apis/apps/v1",
    "/apis/apps/v1/",
    "/apis/apps/v9",
    "/apis/nothing.test",
    "/apis/nothing.test/v1",
    "/apis/nothing.test/v1/things",
    "/apis/apps/v1/nothings",
    "/api/v1/nothings",
    "/api/v1/nothings/one",
    "/api/v1/namespaces/NS/nothings",
    "/api/v1/namespaces/NS/nothings/one",
    "/api/v1/namespaces/NS",
    "/api/v1/namespaces/NS/",
    "/api/v1/namespaces/NS/status",
    "/api/v1/namespaces/NS/finalize",
    "/api/v1/namespaces/NS/nodes",
    "/api/v1/namespaces/NS/namespaces",
    "/apis/node.k8s.io/v1/namespaces/NS/runtimeclasses",
    "/api/v1/namespaces/nowhere",
    "/api/v1/namespaces/nowhere/pods",
    "/api/v1/namespaces//configmaps",
    "/api/v1/configmaps/one",
    "/api/v1/nodes",
    "/api/v1/nodes/nothing",
    "/api/v1/nodes/nothing/status",
    "/api/v1/bindings",
    "/api/v1/namespaces/NS/bindings",
    "/api/v1/watch",
    "/api/v1/watch/",
    "/api/v1/proxy",
    "/api/v1/proxy/nodes",
    "/version",
    "/version/",
    "/versions",
    "/healthz",
    "/healthz/",
    "/healthz/ping",
    "/healthz/nothing",
    "/livez",
    "/livez/ping",
    "/readyz/ping",
    "/readyz/nothing",
    "/nothing",
    "/nothing/at/all",
    "/index.html",
    "/favicon.ico",
    "/swagger.json",
    "/swaggerapi",
    "/openapi",
    "/openapi/v1",
    "/openapi/v3/",
    "/openapi/v3/nothing",
    "/openapi/v3/apis/nothing/v1",
    "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews",
    "/apis/authentication.k8s.io/v1/tokenreviews",
    "/apis/metrics.k8s.io/v1beta1/nodes",
    "/.well-known/openid-configuration",
    "/openid/v1/jwks",
    "/API/v1",
    "/Api/v1/pods",
    "/api/V1/pods",
    "/apis/apps/v1/deployments/one",
    "/api//v1/pods",
    "/apis/batch/v1/namespaces/NS/cronjobs",
    "/apis/discovery.k8s.io/v1/namespaces/NS/endpointslices",
];

const LABEL_SELECTORS: &[&str] = &[
    "",
    "app%3Done",
    "app%3D%3Done",
    "app!%3Done",
    "app",
    "!app",
    "app%20in%20(one,two)",
    "app%20notin%20(one)",
    "app%20in%20()",
    "app%20in%20(one",
    "app%3D",
    "%3Done",
    "app%3Done,",
    ",app",
    "app,,parity",
    "app%20one",
    "app>1",
    "app%3E1",
    "app%3Cx",
    "a/b/c%3D1",
    "-a%3D1",
    "app%3Done%20two",
    "app%20in%20(one,,two)",
    "%21",
    "app%3D!",
    "app%3D-x",
    "example.test/app",
    "parity%3Deven,app!%3Dthree",
    "%20app%20%3D%20one%20",
    "a%00b",
    "%C3%A4%3D1",
    "app%3D%C3%A4",
    "in",
    "in%20in%20(in)",
    "app%20exists",
    "(app)",
];

const FIELD_SELECTORS: &[&str] = &[
    "",
    "metadata.name%3Done",
    "metadata.name!%3Done",
    "metadata.name",
    "metadata.namespace%3DNS",
    "metadata.namespace%3Dother",
    "metadata.uid%3Dx",
    "spec.nodeName%3Dno-such-node",
    "spec.nodeName!%3Dno-such-node",
    "status.phase%3DPending",
    "a%3Db",
    "%3D",
    "%3Dx",
    "metadata.name%3Done,metadata.name%3Dtwo",
    "metadata.name%3Done,",
    ",",
    "metadata.name%3Da%5C,b",
    "metadata.name%3Da%5Cb",
    "metadata.name%3D%3D%3Dx",
    "metadata.name%3E1",
    "status.successful%3D0",
    "reason%3Dx",
    "metadata.name%3Done,metadata.namespace%3DNS",
    "metadata.labels.app%3Done",
    "spec.restartPolicy%3DAlways",
];

const OPTIONS: &[&str] = &[
    "limit=",
    "limit=0",
    "limit=1",
    "limit=2",
    "limit=500",
    "limit=-1",
    "limit=abc",
    "limit=1.5",
    "limit=99999999999999999999",
    "limit=%201",
    "limit=%2B1",
    "limit=0x1",
    "limit=1_000",
    "limit=9223372036854775807",
    "continue=",
    "continue=garbage",
    "continue=e30",
    "continue=%2B%2F",
    "continue=eyJ2IjoibWV0YS5rOHMuaW8vdjEifQ",
    "limit=1&continue=TOKEN",
    "continue=TOKEN",
    "limit=1&continue=TOKEN&resourceVersion=0",
    "limit=1&continue=TOKEN&resourceVersion=VERSION",
    "limit=1&continue=TOKEN&resourceVersionMatch=Exact",
    "resourceVersion=",
    "resourceVersion=0",
    "resourceVersion=VERSION",
    "resourceVersion=VERSION&resourceVersionMatch=Exact",
    "resourceVersion=VERSION&resourceVersionMatch=NotOlderThan",
    "resourceVersion=0&resourceVersionMatch=NotOlderThan",
    "resourceVersion=0&resourceVersionMatch=Exact",
    "resourceVersion=0&limit=1",
    "resourceVersion=VERSION&limit=1",
    "resourceVersionMatch=",
    "resourceVersionMatch=Exact",
    "resourceVersionMatch=exact",
    "resourceVersionMatch=foo",
    "resourceVersion=VERSION&resourceVersionMatch=foo",
    "resourceVersion=0&resourceVersionMatch=foo&limit=abc",
    "sendInitialEvents=",
    "sendInitialEvents=true",
    "sendInitialEvents=false",
    "sendInitialEvents=x",
    "sendInitialEvents=true&resourceVersionMatch=NotOlderThan",
    "sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true",
    "sendInitialEvents=true&resourceVersionMatch=Exact",
    "allowWatchBookmarks=true",
    "allowWatchBookmarks=false",
    "allowWatchBookmarks=",
    "allowWatchBookmarks=x",
    "watch=false",
    "watch=0",
    "watch=FALSE",
    "timeoutSeconds=abc",
    "timeoutSeconds=-1",
    "timeoutSeconds=1",
    "timeoutSeconds=",
    "timeoutSeconds=1.5",
    "pretty=",
    "pretty=true",
    "pretty=false",
    "pretty=1",
    "pretty=0",
    "pretty=x",
    "includeObject=None",
    "includeObject=Metadata",
    "includeObject=Object",
    "includeObject=x",
    "includeObject=",
    "includeObject=none",
    "foo=bar",
    "foo",
    "=",
    "=x",
    "&&",
    "limit=1&limit=2",
    "labelSelector=app&labelSelector=!app",
    "limit=%zz",
    "%zz=1",
    "a;b",
    "limit=1;continue=x",
    "LIMIT=1",
    "Watch=true",
    "%00",
    "fieldManager=x",
    "dryRun=All",
    "dryRun=x",
    "gracePeriodSeconds=x",
    "export=true",
    "exact=true",
    "kind=Pod",
    "apiVersion=v1",
    "apiVersion=v2&kind=x",
    "+",
    "%20",
    "limit+=1",
    "shardSelector=x",
];

const ACCEPTS: &[&str] = &[
    "application/json",
    "application/json",
    "*/*",
    "",
    "application/yaml",
    "application/yaml",
    "text/html",
    "text/*",
    "application/*",
    "application/json;as=Table;v=v1;g=meta.k8s.io",
    "application/json;as=Table;v=v1;g=meta.k8s.io,application/json",
    "application/json;as=Table;v=v1beta1;g=meta.k8s.io",
    "application/json;as=Table;v=v2;g=meta.k8s.io",
    "application/json;as=Table;g=meta.k8s.io",
    "application/json;as=Table;v=v1",
    "application/json;as=Table",
    "application/yaml;as=Table;v=v1;g=meta.k8s.io",
    "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io",
    "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io",
    "application/yaml;as=PartialObjectMetadata;v=v1;g=meta.k8s.io",
    "application/json;as=PartialObjectMetadata;v=v1beta1;g=meta.k8s.io",
    "application/json;as=Chart;v=v1;g=meta.k8s.io",
    "application/json;as=Chart;v=v1;g=meta.k8s.io,application/yaml",
    "application/json;q=0",
    "application/json;q=0.5,application/yaml",
    "application/json;q=x",
    "application/json;stream=watch",
    "application/json;pretty=1",
    "application/json;pretty=true",
    "application/json;charset=utf-8",
    "APPLICATION/JSON",
    "application/json ; pretty=1",
    "application/json,",
    ",",
    ";",
    "application",
    "application/",
    "/json",
    "application/json;",
    "application/json;as",
    "application/json;as=",
    "application/xml,application/json",
    "application/cbor",
    "application/cbor-seq",
    "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList",
    "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json",
    "application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList",
    "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList;profile=nopeer",
    "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8",
    "application/merge-patch+json",
    "json",
    "*",
];

const HEADERS: &[(&str, &str)] = &[
    ("accept-encoding", "gzip"),
    ("accept-encoding", "gzip;q=0"),
    ("accept-encoding", "br"),
    ("accept-encoding", "*"),
    ("user-agent", "curl/8.0"),
    ("user-agent", "Mozilla/5.0 (X11)"),
    ("content-type", "text/plain"),
    ("content-type", "nonsense"),
    ("if-none-match", "\"x\""),
    ("if-none-match", "*"),
    ("if-modified-since", "Sat, 21 Nov 2026 00:00:00 GMT"),
    ("range", "bytes=0-10"),
    ("origin", "https://example.test"),
    ("x-http-method-override", "DELETE"),
    ("expect", "nothing"),
];

impl Request {
    pub(super) fn target(&self) -> String {
        if self.query.is_empty() { self.path.clone() } else { format!("{}?{}", self.path, self.query.join("&")) }
    }

    /// Returns whether the request is a watch, which takes a second.
    pub(super) fn is_watch(&self) -> bool {
        self.query.iter().any(|option| option.starts_with("watch=true"))
    }

    pub(super) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(own, _)| *own == name).map(|(_, value)| *value)
    }

    pub(super) fn generate(random: &mut StdRng, namespace: &str) -> Self {
        fn pick<T: Copy>(random: &mut StdRng, from: &[T]) -> T {
            *from.choose(random).unwrap_or_else(|| unreachable!("no list is empty"))
        }
        let collection = collections(namespace).choose(random).cloned().unwrap_or_default();
        let mut query = Vec::new();
        let path = if random.random_bool(0.7) {
            if random.random_bool(0.2) {
                query.push("watch=true&timeoutSeconds=1".to_owned());
            }
            format!("{collection}{}", pick(random, BELOW))
        } else {
            pick(random, OTHERS).replace("NS", namespace)
        };
        for _ in 0..random.random_range(0..3) {
            query.push(match random.random_range(0..6) {
                0 => format!("labelSelector={}", pick(random, LABEL_SELECTORS)),
                1 => format!("fieldSelector={}", pick(random, FIELD_SELECTORS).replace("NS", namespace)),
                _ => pick(random, OPTIONS).to_owned(),
            });
        }
        let mut headers = Vec::new();
        if random.random_bool(0.6) {
            headers.push(("accept", pick(random, ACCEPTS)));
        }
        if random.random_bool(0.15) {
            headers.push(pick(random, HEADERS));
        }
        // The test must change no object, so writes go only to paths without an object.
        let is_safe = path.contains("nothing") || path.contains("openapi") || !path[1..].contains('/');
        let method = match random.random_range(0..20) {
            0 => http::Method::HEAD,
            1 => http::Method::OPTIONS,
            2 if is_safe => http::Method::POST,
            3 if is_safe => http::Method::PUT,
            4 if is_safe => http::Method::PATCH,
            5 if is_safe => http::Method::DELETE,
            6 if is_safe => http::Method::from_bytes(b"FETCH").unwrap_or(http::Method::TRACE),
            _ => http::Method::GET,
        };
        let has_body = matches!(method.as_str(), "POST" | "PUT" | "PATCH");
        let body =
            has_body.then(|| pick(random, &["", "{}", "nonsense", "[]", "{\"kind\":\"X\",\"apiVersion\":\"v1\"}"]));
        Self { method, path, collection, query, headers, body }
    }
}
