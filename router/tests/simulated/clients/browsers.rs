//! Protection against scripts in browsers, and against clients that forge headers which a proxy in front of a member
//! trusts.

use std::sync::Arc;

use http::{HeaderMap, Method};
use parking_lot::Mutex;
use tributary_apimachinery::Status;
use tributary_router::SharedMode;
use tributary_simulator::{Authorizer, SimulatorConfig};

use crate::access::rights::{binding, listed, role};
use crate::harness::{Fixture, allow, config, name};

/// An authorizer of a member that allows everything and records the headers of each request by path.
#[derive(Default)]
struct Headers(Mutex<Vec<(String, HeaderMap)>>);

impl Authorizer for Headers {
    fn refusal(&self, headers: &HeaderMap, _: &Method, target: &str) -> Option<Status> {
        self.0.lock().push((target.to_owned(), headers.clone()));
        None
    }

    fn allows(&self, _: &HeaderMap, _: &serde_json::Value) -> bool {
        true
    }
}

impl Headers {
    /// Returns those of the names that the last request had as headers, among the requests whose target ends with
    /// `end`.
    fn came(&self, end: &str, names: &[&'static str]) -> Vec<&'static str> {
        let came = self.0.lock();
        let (_, headers) = came.iter().rev().find(|(target, _)| target.ends_with(end)).expect("a request");
        names.iter().filter(|name| headers.contains_key(**name)).copied().collect()
    }
}

/// Proxies in front of members trust many headers, which no deny list can enumerate. So the router forwards only the
/// headers of an allow list.
#[tokio::test]
async fn member_receives_only_headers_of_the_kubernetes_api() {
    let fixture = Fixture::with([config("a")], allow()).await;
    let member = Arc::new(Headers::default());
    fixture.member("a").control().authorize(Some(Arc::clone(&member) as Arc<dyn Authorizer>));
    let sent = [
        ("kubectl-command", "kubectl get"),
        ("traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"),
        ("user-agent", "kubectl"),
        ("x-ssl-client-cn", "admin"),
        ("x-teleport-user", "admin"),
        ("x-page", "2"),
    ];
    let names = sent.map(|(name, _)| name);
    let of_the_api = ["kubectl-command", "traceparent", "user-agent"];
    let of_workloads = ["kubectl-command", "traceparent", "user-agent", "x-page"];
    let services = "/clusters/a/api/v1/namespaces/default/services/web";
    for (method, path, end, expected) in [
        ("POST", "/clusters/a/api/v1/namespaces/default/configmaps", "/configmaps", &of_the_api[..]),
        ("GET", services, "/services/web", &of_the_api),
        ("GET", &format!("{services}/proxy/metrics"), "/proxy/metrics", &of_workloads),
        ("GET", &format!("{services}/status"), "/status", &of_the_api),
        ("GET", "/clusters/a/version/x", "/version/x", &of_the_api),
    ] {
        fixture.client().send(method, path, &sent, "{}").await;
        assert_eq!(member.came(end, &names), expected, "{method} {path}");
    }
}

/// All clusters share one web origin. So a page that a workload serves must not act with the rights of the user who
/// opens it.
#[tokio::test]
async fn responses_of_workloads_cannot_run_scripts_in_shared_mode() {
    let with_pods = || SimulatorConfig { pods: 1, rbac: true, ..config("a") };
    let shared = tributary_router::RouterConfig {
        policies: allow(),
        shared: Some(SharedMode::default()),
        alone: true,
        ..tributary_router::RouterConfig::default()
    };
    let own =
        tributary_router::RouterConfig { policies: allow(), alone: true, ..tributary_router::RouterConfig::default() };
    for (router, is_shared) in [(shared, true), (own, false)] {
        let fixture = Fixture::of([with_pods()], router).await;
        let member = fixture.member("a");
        member.apply(role("", "all", [&["*"], &["*"], &["*"], &[]])).unwrap();
        member.apply(binding("", "root", ("ClusterRole", "all"), "root")).unwrap();
        if is_shared {
            listed(&fixture, "a", "root", "all").await;
        }
        let pod = member.list("pods").swap_remove(0);
        let namespace = pod["metadata"]["namespace"].as_str().unwrap();
        let pod = format!("/api/v1/namespaces/{namespace}/pods/{}", name(&pod));
        for (path, code, is_confined) in [
            (format!("{pod}/log"), 200, true),
            (format!("/clusters/a{pod}/log"), 200, true),
            (pod.clone(), 200, false),
            (format!("/clusters/a{pod}"), 200, false),
            ("/api/v1/pods".to_owned(), 200, false),
            (format!("/clusters/a{pod}x"), 404, false),
        ] {
            let answer = fixture.user("root", &[]).get(&path).await;
            let told = ["content-security-policy", "x-content-type-options"].map(|name| answer.headers.get(name));
            assert_eq!(answer.code, code, "{path}: {answer:?}");
            let confined = [Some("sandbox"), Some("nosniff")].map(|value| value.map(http::HeaderValue::from_static));
            let confined = confined.each_ref().map(Option::as_ref);
            assert_eq!(told, if is_shared && is_confined { confined } else { [None, None] }, "{path}");
        }
    }
}
