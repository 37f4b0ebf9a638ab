//! Tests of the response for each state of a cluster, each kind of request, and each version. Every combination is one
//! case.

use std::time::Duration;

use serde_json::{Value, json};
use tributary_apimachinery::Partial;
use tributary_router::{Policies, ResourcePolicy};
use tributary_simulator::{Rejection, RequestKind};

use crate::harness::{
    Answer, CONFIG_MAPS, Events, Fixture, SOON, allow, composite, config, config_map_in, items, pass, vector, version,
};

/// The state of cluster `b` in the router. Cluster `a` is always fresh.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Fresh,
    /// The router has read `b`, and `b` is unreachable now.
    Stale,
    /// The router started while `b` was unreachable.
    Undiscovered,
    /// The router started while `b` refused lists.
    Unsynced,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verb {
    List,
    ListExact,
    /// The request for the second page of a list.
    Continue,
    Watch,
    WatchList,
    GetOfA,
    GetOfB,
    /// A get of a name that no cluster has.
    GetOfNobody,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Version {
    Unset,
    Zero,
    /// An earlier version of both clusters.
    Both,
    /// An earlier version that contains only `a`.
    OfA,
    /// A version of both clusters, with a revision of `b` that `b` has not reached.
    Ahead,
}

const STATES: [State; 4] = [State::Fresh, State::Stale, State::Undiscovered, State::Unsynced];
const VERBS: [Verb; 8] = [
    Verb::List,
    Verb::ListExact,
    Verb::Continue,
    Verb::Watch,
    Verb::WatchList,
    Verb::GetOfA,
    Verb::GetOfB,
    Verb::GetOfNobody,
];
const VERSIONS: [Version; 5] = [Version::Unset, Version::Zero, Version::Both, Version::OfA, Version::Ahead];

/// Returns the expected response according to docs/consistency.md ("Answers to reads"), in the form of [`outcome`].
fn expected(partial: Partial, state: State, verb: Verb, version: Version) -> &'static str {
    let unknown = matches!(state, State::Undiscovered | State::Unsynced);
    let names_b = matches!(version, Version::Both | Version::Ahead);
    let ahead = version == Version::Ahead;
    match verb {
        // A get never waits for an unreachable cluster. The cluster with the object answers. No response claims that
        // the object does not exist.
        Verb::GetOfA | Verb::GetOfB | Verb::GetOfNobody => match state {
            _ if unknown && names_b => "429",
            State::Fresh | State::Stale if ahead => "504",
            // The cluster refuses lists, but answers gets.
            State::Unsynced if verb == Verb::GetOfNobody => "404",
            State::Unsynced => "200",
            // The cluster in the unknown state may also have an object with this name.
            _ if unknown && verb == Verb::GetOfA => "200 missing",
            _ if verb == Verb::GetOfA => "200",
            _ if unknown => "503",
            // The object is not in memory, but the memory may be outdated.
            State::Stale if verb == Verb::GetOfNobody => "404 stale",
            _ if verb == Verb::GetOfNobody => "404",
            State::Stale => "200 stale",
            _ => "200",
        },
        Verb::List | Verb::ListExact | Verb::Continue | Verb::Watch | Verb::WatchList => match state {
            _ if unknown && partial == Partial::Deny => "429 at last",
            // With a 200, an informer would drop its objects of `b`.
            _ if unknown && names_b => "429",
            _ if unknown => "200 missing",
            State::Stale if ahead && verb == Verb::Watch => "200 stale",
            State::Stale if ahead && verb == Verb::WatchList => "ERROR 504",
            State::Stale if ahead => "504",
            State::Stale => "200 stale",
            // The router asks the member, which has not reached the version.
            _ if ahead && matches!(verb, Verb::Watch | Verb::WatchList) => "ERROR 410",
            _ if ahead => "410",
            _ => "200",
        },
    }
}

/// Returns whether this kind of request can have this version.
fn exists(verb: Verb, version: Version) -> bool {
    match verb {
        Verb::ListExact | Verb::Continue => !matches!(version, Version::Unset | Version::Zero),
        _ => true,
    }
}

/// Returns the status code, the kind of Warning about `b`, and `at last` if the response took half a minute.
fn outcome(answer: &Answer, took: Duration) -> String {
    let mut text = answer.code.to_string();
    let warnings = answer.warnings();
    assert!(warnings.len() <= 1, "{warnings:?}");
    if let Some(warning) = warnings.first() {
        let is_of = |begin: &str, age: &str| {
            let rest = warning.strip_prefix("299 - \"cluster b");
            rest.is_some_and(|rest| rest.starts_with(begin) && rest.contains(age) && rest.contains(" s"))
        };
        // After a get that another cluster answers, the Warning says that `b` may also have the object.
        let is_missing =
            is_of(": configmaps are missing, ", " waiting for ") || is_of(" may have configmaps ", " queried (for ");
        assert!(is_missing || is_of(": configmaps may be stale, ", " s ago: "), "{warning}");
        text += if is_missing { " missing" } else { " stale" };
    }
    // A 503 for a name in an unreachable cluster has no Retry-After (see the module `faults`). A 429 or 504 has it.
    if matches!(answer.code, 429 | 504) {
        assert!(answer.headers.contains_key("retry-after"), "{answer:?}");
    }
    if answer.code == 504 {
        let cause = &answer.json()["details"]["causes"][0]["reason"];
        assert_eq!(cause, "ResourceVersionTooLarge");
        assert!(took < Duration::from_secs(4), "{took:?}");
    }
    if took >= Duration::from_secs(30) {
        text += " at last";
    }
    text
}

/// What the requests need: a composite version of both clusters, and the continue token of the second page.
struct Given {
    both: Value,
    token: String,
}

impl Given {
    async fn of(fixture: &Fixture) -> Self {
        let list = fixture.get(CONFIG_MAPS).await.ok();
        let page = fixture.get(&format!("{CONFIG_MAPS}?limit=1")).await.ok();
        let token = page["metadata"]["continue"].as_str().unwrap().to_owned();
        Self { both: vector(&version(&list)), token }
    }

    fn version(&self, version: Version) -> Option<String> {
        let mut named = self.both.clone();
        match version {
            Version::Unset => return None,
            Version::Zero => return Some("0".to_owned()),
            Version::Both => {}
            Version::OfA => drop(named.as_object_mut().unwrap().remove("b")),
            Version::Ahead => {
                let revision: u64 = named["b"].as_str().unwrap().parse().unwrap();
                named["b"] = json!((revision + 1000).to_string());
            }
        }
        Some(composite(&named))
    }

    fn path(&self, verb: Verb, version: Version) -> String {
        let version = self.version(version);
        let with = |query: &str| match &version {
            Some(version) => format!("?resourceVersion={version}{query}"),
            None => format!("?{query}"),
        };
        match verb {
            Verb::List => format!("{CONFIG_MAPS}{}", with("")),
            Verb::ListExact => format!("{CONFIG_MAPS}{}", with("&resourceVersionMatch=Exact")),
            Verb::Continue => {
                // A continue token is a position and a version. The test replaces the version.
                let (place, _) = self.token.rsplit_once('.').unwrap();
                format!("{CONFIG_MAPS}?limit=1&continue={place}.{}", version.unwrap_or_default())
            }
            Verb::Watch => format!("{CONFIG_MAPS}{}", with("&watch=1")),
            Verb::WatchList => {
                let query =
                    "&watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true";
                format!("{CONFIG_MAPS}{}", with(query))
            }
            Verb::GetOfA => format!("{CONFIG_MAPS}/of-a{}", with("")),
            Verb::GetOfB => format!("{CONFIG_MAPS}/of-b{}", with("")),
            Verb::GetOfNobody => format!("{CONFIG_MAPS}/of-nobody{}", with("")),
        }
    }
}

/// Sends a request with a paused clock, which leaps over waits. Returns the outcome.
async fn asked(fixture: &Fixture, verb: Verb, path: &str) -> String {
    tokio::time::pause();
    let started = tokio::time::Instant::now();
    let outcome = if matches!(verb, Verb::Watch | Verb::WatchList) {
        watched(fixture, path, started).await
    } else {
        let answer = fixture.get(path).await;
        outcome(&answer, started.elapsed())
    };
    tokio::time::resume();
    outcome
}

/// Returns whether this event is the bookmark at the end of the initial events.
fn is_end(event: &Value) -> bool {
    event["object"]["metadata"]["annotations"]["k8s.io/initial-events-end"] == "true"
}

async fn watched(fixture: &Fixture, path: &str, started: tokio::time::Instant) -> String {
    let response = fixture.client().call("GET", path, &[], "").await;
    let took = started.elapsed();
    if response.status() != 200 {
        let (head, body) = response.into_parts();
        let body = http_body_util::BodyExt::collect(body).await.unwrap().to_bytes();
        return outcome(&Answer { code: head.status.as_u16(), headers: head.headers, body }, took);
    }
    let head = Answer { code: 200, headers: response.headers().clone(), body: bytes::Bytes::new() };
    let mut events = Events::of(response);
    // The router waits for a version for less than this time, and then sends an ERROR event.
    let error = tokio::time::timeout(Duration::from_secs(4), async {
        loop {
            let event = events.next().await?;
            if event["type"] == "ERROR" || is_end(&event) {
                break Some(event["object"].clone());
            }
        }
    });
    match error.await.ok().flatten() {
        Some(status) if status["code"] == 504 => {
            assert_eq!(status["details"]["causes"][0]["reason"], "ResourceVersionTooLarge");
            "ERROR 504".to_owned()
        }
        Some(status) if status["kind"] == "Status" => format!("ERROR {}", status["code"]),
        // The bookmark at the end of the initial events must not wait for a cluster.
        None if path.contains("allowWatchBookmarks") => "no end of the initial events".to_owned(),
        _ => outcome(&head, took),
    }
}

/// Returns a router with this policy, for which `b` is in this state, and the versions for requests. Also returns the
/// first router, whose tasks must stay alive.
async fn in_state(partial: Partial, state: State) -> (Fixture, Fixture, Given) {
    let policies = Policies { default: ResourcePolicy { partial, ..ResourcePolicy::default() }, ..Policies::default() };
    let mut fixture = Fixture::with(["a", "b"].map(config), policies.clone()).await;
    fixture.put("a", "of-a", "");
    fixture.put_and_see("b", "of-b", "").await;
    let given = Given::of(&fixture).await;
    let control = fixture.member("b").control();
    match state {
        State::Fresh => {}
        State::Stale => {
            control.stop_listening().await;
            // After 8 s without contact, the member is unreachable for the router.
            pass(Duration::from_secs(8)).await;
            return (fixture, Fixture { members: Vec::new(), router: crate::harness::router(allow()) }, given);
        }
        State::Undiscovered => control.stop_listening().await,
        State::Unsynced => {
            control
                .reject(Some(Rejection { kinds: vec![RequestKind::List, RequestKind::Watch], ..Rejection::all(500) }));
        }
    }
    let other = fixture.restarted(policies).await;
    let members = std::mem::take(&mut fixture.members);
    // The caller keeps the first router, because its tasks must not end during the test.
    (Fixture { members, router: other.router }, fixture, given)
}

#[tokio::test]
async fn each_cluster_state_and_request_kind_has_the_documented_response() {
    let mut wrong = Vec::new();
    let mut cells = 0;
    for partial in [Partial::Deny, Partial::Allow] {
        for state in STATES {
            let (fixture, _first, given) = in_state(partial, state).await;
            // The first request starts the cachers of the ConfigMaps.
            asked(&fixture, Verb::GetOfA, &given.path(Verb::GetOfA, Version::Unset)).await;
            for verb in VERBS {
                for version in VERSIONS.into_iter().filter(|version| exists(verb, *version)) {
                    let found = asked(&fixture, verb, &given.path(verb, version)).await;
                    let expected = expected(partial, state, verb, version);
                    cells += 1;
                    if found != expected {
                        wrong.push(format!("{partial:?} {state:?} {verb:?} {version:?}: {found}, not {expected}"));
                    }
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{} of {cells} cells:\n{}", wrong.len(), wrong.join("\n"));
    assert_eq!(cells, 2 * 4 * (8 * 5 - 4));
}

#[tokio::test]
async fn request_waits_no_longer_than_its_timeout() {
    let (fixture, _first, given) = in_state(Partial::Deny, State::Unsynced).await;
    asked(&fixture, Verb::GetOfA, &given.path(Verb::GetOfA, Version::Unset)).await;
    tokio::time::pause();
    for (timeout, code, seconds) in [("5s", 504, 5), ("0s", 429, 30), ("2h", 429, 30)] {
        let started = tokio::time::Instant::now();
        let answer = fixture.get(&format!("{CONFIG_MAPS}?timeout={timeout}")).await;
        let message = answer.refused(code);
        assert_eq!(started.elapsed().as_secs(), seconds, "{timeout}: {message}");
        assert!(code != 504 || message.contains("did not complete within the allotted timeout"), "{message}");
    }
    fixture.get(&format!("{CONFIG_MAPS}?timeout=soon")).await.refused(400);
}

#[tokio::test]
async fn warnings_name_ten_clusters_and_count_the_rest() {
    let names: Vec<String> = (0..13).map(|number| format!("c{number:02}")).collect();
    let fixture =
        Fixture::with(std::array::from_fn::<_, 13, _>(|number| config(&names[number])), crate::harness::allow()).await;
    fixture.put("c00", "x", "");
    for name in &names[1..] {
        fixture.member(name).control().stop_listening().await;
    }
    let other = fixture.restarted(allow()).await;
    let answer = other.get(CONFIG_MAPS).await;
    assert_eq!(items(&answer.ok()).len(), 1);
    let warnings = answer.warnings();
    assert_eq!(warnings.len(), 11, "{warnings:?}");
    for (warning, name) in warnings.iter().zip(&names[1..]).take(10) {
        assert!(warning.starts_with(&format!("299 - \"cluster {name}: configmaps are missing")), "{warning}");
    }
    assert!(warnings[10].contains("2 more clusters"), "{warnings:?}");
}

#[tokio::test]
async fn list_of_a_never_reached_clusters_resource_gets_a_429() {
    let fixture = Fixture::start(["a", "b"]).await;
    fixture.member("a").control().serve("deployments.apps", false);
    fixture.member("b").control().stop_listening().await;
    let other = fixture.restarted(allow()).await;
    let path = "/apis/apps/v1/namespaces/default/deployments";
    for query in ["", "?watch=1"] {
        let answer = other.get(&format!("{path}{query}")).await;
        assert!(answer.refused(429).contains('b') && answer.headers.contains_key("retry-after"), "{query}");
    }
    assert!(other.get(&format!("{path}/x")).await.refused(503).contains('b'), "nobody may read it as deleted");
    fixture.member("b").control().start_listening().await;
    crate::harness::until(|| async { other.get(path).await.code == 200 }).await;
    other.get(&format!("{path}/x")).await.refused(404);
}

#[tokio::test]
async fn idle_collection_reaches_a_version_without_a_relist() {
    let fixture = Fixture::start(["a", "b"]).await;
    fixture.put("b", "x", "");
    let list = fixture.get(CONFIG_MAPS).await.ok();
    let control = fixture.member("b").control();
    // A write to another resource advances the member's revision. No event of a ConfigMap has this revision, so the
    // router must reach it in a different way.
    let service = json!({"kind": "Service", "apiVersion": "v1", "metadata": {"name": "s", "namespace": "default"}});
    let revision = fixture.member("b").apply(service).unwrap();
    let mut named = vector(&version(&list));
    assert!(named["b"].as_str().unwrap().parse::<u64>().unwrap() < revision);
    named["b"] = json!(revision.to_string());
    control.reset_counters();
    tokio::time::pause();
    let started = tokio::time::Instant::now();
    let (path, both) = (CONFIG_MAPS, composite(&named));
    let waiters = (0..50).map(|_| async { fixture.get(&format!("{path}?resourceVersion={both}")).await.ok() });
    for list in futures::future::join_all(waiters).await {
        assert_eq!(vector(&version(&list))["b"], json!(revision.to_string()));
    }
    assert!(started.elapsed() < Duration::from_secs(2), "{:?}", started.elapsed());
    tokio::time::resume();
    let asked: Vec<_> = control.request_log().into_iter().filter(|line| line.contains("/configmaps")).collect();
    let (questions, watches): (Vec<_>, Vec<_>) = asked.iter().partition(|line| line.contains("limit=1"));
    assert_eq!(questions.len(), 1, "once for all who wait: {asked:?}");
    assert!(watches.iter().all(|line| line.contains("watch=1&resourceVersion=")), "{asked:?}");
}

#[tokio::test]
async fn long_idle_collection_is_not_relisted() {
    let mut quiet = config("a");
    quiet.bookmark_interval = Duration::from_secs(24 * 60 * 60);
    let fixture = Fixture::with([quiet], allow()).await;
    fixture.put_and_see("a", "x", "").await;
    let control = fixture.member("a").control();
    control.reset_counters();
    pass(Duration::from_secs(200)).await;
    let asked: Vec<_> = control.request_log().into_iter().filter(|line| line.contains("/configmaps")).collect();
    assert!(!asked.is_empty(), "a watch that is silent is resumed");
    for line in asked {
        assert!(line.contains("?limit=1") || line.contains("watch=1&resourceVersion="), "{line}");
    }
}

#[tokio::test]
async fn deleted_collection_does_not_reappear_in_lists() {
    let fixture = Fixture::start(["a", "b"]).await;
    for (cluster, name) in [("a", "x"), ("b", "y"), ("b", "z")] {
        fixture.put_and_see(cluster, name, "").await;
    }
    // The connections are slow. A list that did not wait for the deletion would still contain the objects from memory.
    for name in ["a", "b"] {
        fixture.member(name).control().slow(Some(2_000));
    }
    // A member ignores the query of a DELETE with a body. This DELETE has no body, so it is a dry run.
    let trial = fixture.client().send("DELETE", &format!("{CONFIG_MAPS}?dryRun=All"), &[], "").await;
    assert_eq!(trial.code, 200, "{trial:?}");
    assert_eq!(items(&fixture.get(CONFIG_MAPS).await.ok()).len(), 3, "nothing is waited for that does not come");
    let deleted = fixture.write("DELETE", CONFIG_MAPS, &json!({})).await;
    assert_eq!(deleted.code, 200, "{deleted:?}");
    assert_eq!(items(&fixture.get(CONFIG_MAPS).await.ok()), Vec::<String>::new());
}

#[tokio::test]
async fn read_gets_a_504_until_the_watch_delivers_a_write() {
    let fixture = Fixture::start(["a", "b"]).await;
    fixture.get(CONFIG_MAPS).await.ok();
    let control = fixture.member("b").control();
    control.slow(Some(20));
    let made = fixture.write("POST", CONFIG_MAPS, &config_map_in("b", "x", "1")).await;
    assert_eq!(made.code, 201, "{made:?}");
    for path in [CONFIG_MAPS.to_owned(), format!("{CONFIG_MAPS}/x")] {
        tokio::time::pause();
        let started = tokio::time::Instant::now();
        let answer = fixture.get(&path).await;
        let took = started.elapsed();
        tokio::time::resume();
        answer.refused(504);
        assert_eq!(answer.json()["details"]["causes"][0]["reason"], "ResourceVersionTooLarge");
        assert!(answer.headers.contains_key("retry-after"));
        assert!((Duration::from_secs(3)..Duration::from_secs(4)).contains(&took), "{took:?}");
    }
    let any = fixture.get(&format!("{CONFIG_MAPS}?resourceVersion=0")).await.ok();
    assert!(!items(&any).contains(&"b/x".to_owned()), "whatever is held");
    control.slow(None);
    control.cut_streams();
    let seen =
        tokio::time::timeout(SOON, async { while fixture.get(&format!("{CONFIG_MAPS}/x")).await.code != 200 {} });
    seen.await.expect("it is seen in the end");
}
