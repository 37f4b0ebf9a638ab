//! Properties of all answers at all doors: no redirect at the aggregated entry, and no byte of a credential.

use tributary_apimachinery::ForeignSystem;
use tributary_simulator::Rejection;

use super::table::{DoorRow, MEMBERS, MERGED_VIEWS};
use crate::access::rights::{binding, role};
use crate::harness::{Answer, Fixture, setup, until};
use crate::membership::members::fixture;

const METHODS: [&str; 6] = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"];

/// Paths of each kind: objects, subresources, documents, servers' own paths, and malformed paths.
const PATHS: &[&str] = &[
    "",
    "/",
    "/api",
    "/apis/",
    "/api/v1/",
    "/api/v1/configmaps",
    "/api/v1/secrets",
    "/api/v1/namespaces/default/configmaps/x",
    "/api/v1/namespaces/default/secrets/x",
    "/api/v1/namespaces/default/serviceaccounts/default/token",
    "/api/v1/namespaces/default/services/s/proxy",
    "/api/v1/namespaces/default/services/s/proxy/",
    "/api/v1/namespaces/default/pods/p/log",
    "/api/v1/namespaces/default/pods/p/exec?command=a",
    "/api/v1/nodes/n/proxy/configz",
    "/apis/authentication.k8s.io/v1/selfsubjectreviews",
    "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews",
    "/openapi/v2",
    "/openapi/v3",
    "/openapi/v3/api/v1?hash=00",
    "/openapi/v3/apis/apps/v1?hash=00",
    "/openapi/v3/unknown?hash=00",
    "/version/",
    "/readyz?verbose",
    "/metrics",
    "/tributary/status",
    "/clusters/b/api",
    "/%zz",
    "//",
    "/..",
];

fn text_of(answer: &Answer) -> String {
    let headers = answer.headers.values().map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned());
    headers.chain([String::from_utf8_lossy(&answer.body).into_owned()]).collect::<Vec<_>>().join("\n")
}

/// Sends all requests at a door. Returns the number of answers with 200.
async fn check_answers(row: &DoorRow, fixture: &Fixture, credentials: &[String]) -> usize {
    let client = row.enter(fixture.user("root", &[]), fixture);
    let allows_redirects = row.door(client.open_doors(&ForeignSystem::ALL, &["a", "b"])).allows_redirects();
    let mut read = 0;
    for path in PATHS {
        for method in METHODS {
            let headers = [("content-type", "application/json"), ("accept", "application/json")];
            let body = if matches!(method, "GET" | "HEAD") { "" } else { "{}" };
            // `http` requires a path.
            let path = if row.prefix.is_empty() && path.is_empty() { "/" } else { path };
            let answer = client.send(method, path, &headers, body).await;
            let is_redirect = (300..400).contains(&answer.code) && answer.code != 304;
            assert!(allows_redirects || !is_redirect, "{row:?} {method} {path}: {answer:?}");
            let text = text_of(&answer);
            let found = credentials.iter().find(|credential| text.contains(*credential));
            assert!(found.is_none(), "{row:?} {method} {path} has {found:?}: {text}");
            read += usize::from(answer.code == 200);
        }
    }
    read
}

/// Starts members whose administrator is root. Each member also accepts an impersonator's token, which Tributary knows.
/// Returns all credentials.
async fn start() -> (Fixture, Vec<String>) {
    let (fixture, rbac) = fixture(["a", "b"]).await;
    let (mut setups, mut credentials) = (Vec::new(), Vec::new());
    for (member, rbac) in fixture.members.iter().zip(&rbac) {
        member.apply(role("", "all", [&["*"], &["*"], &["*"], &[]])).unwrap();
        member.apply(binding("", "root-all", ("ClusterRole", "all"), "root")).unwrap();
        rbac.learn(member);
        let impersonator = format!("impersonator-of-{}", member.name());
        member.control().accept(&impersonator, None);
        let setup = setup(member, member.name()).await;
        setup.client.as_ref().unwrap().set_impersonator(Some(&impersonator)).unwrap();
        setups.push(setup);
        credentials.extend([member.token().to_owned(), impersonator]);
    }
    fixture.router.set_clusters(setups);
    until(async || fixture.user("root", &[]).get("/api/v1/nodes").await.code == 200).await;
    (fixture, credentials)
}

#[tokio::test]
async fn no_answer_at_any_door_is_a_redirect_or_has_a_credential() {
    let (fixture, credentials) = start().await;
    let rows = || MERGED_VIEWS.iter().chain(MEMBERS);
    for row in rows() {
        let read = check_answers(row, &fixture, &credentials).await;
        assert!(read > 5, "{row:?}: only {read} answers have status 200");
    }
    for code in [401, 500] {
        fixture.members.iter().for_each(|member| member.control().reject(Some(Rejection::all(code))));
        for row in rows() {
            check_answers(row, &fixture, &credentials).await;
        }
    }
    fixture.members.iter().for_each(|member| member.control().reject(None));
    for name in ["a", "b"] {
        fixture.member(name).control().stop_listening().await;
        fixture.out_of_reach(name).await;
    }
    for row in rows() {
        check_answers(row, &fixture, &credentials).await;
    }
}
