//! Gives the same audit policy to a real kube-apiserver and to the crate `audit`. Both must choose the same level and
//! stages for each request.

use super::{events, generated};
use crate::context::{TestContext, eventually};
use anyhow::{Context, ensure};
use futures::{StreamExt, TryStreamExt, stream};
use http::Method;
use rand::{SeedableRng, rngs::StdRng};
use serde_json::{Value, json};
use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    time::Duration,
};
use tributary_apimachinery::RequestInfo;
use tributary_audit::{AuditAttributes, AuditPolicy, Level, Stage};
use tributary_e2e::{HttpClient, TestCluster, guard};

const COUNT: usize = 500;

const AT_ONCE: usize = 8;

/// Longest time until an event appears in the kube-apiserver's audit log.
const SOON: Duration = Duration::from_secs(20);

struct Person {
    credential: Option<String>,
    /// Name and groups of the sender; `None` for a sender with a rejected credential.
    user: Option<(&'static str, Vec<String>)>,
}

impl Person {
    fn is_known(&self) -> bool {
        self.credential.is_some() && self.user.is_some()
    }
}

struct AuditedCase<'a> {
    id: String,
    person: &'a Person,
    method: Method,
    target: String,
}

/// Levels and stages of a request's events in the audit log.
type Written = BTreeSet<(&'static str, &'static str)>;

pub(super) async fn audit_policy_selects_the_same_levels_as_in_kube_apiserver(
    context: TestContext,
) -> anyhow::Result<()> {
    let _permit = context.fixture.own_members.acquire().await?;
    let folder = guard::temporary_folder("audit")?;
    let (file, log) = (folder.path().join("policy.yaml"), folder.path().join("audit.log"));
    let mut random = StdRng::seed_from_u64(14);
    let text = generated::policy(&mut random).to_string();
    fs::write(&file, &text)?;
    let member = TestCluster::builder("audited")
        .apiserver_argument(&format!("--audit-policy-file={}", file.display()))
        .apiserver_argument(&format!("--audit-log-path={}", log.display()))
        .start(context.fixture.tools().await?)
        .await?;
    let people = people(member.http()).await?;
    let questions: Vec<_> = (0..COUNT)
        .map(|number| {
            let (method, target) = generated::request(&mut random);
            AuditedCase { id: format!("question-{number}"), person: &people[number % people.len()], method, target }
        })
        .collect();
    let sent = questions.iter().map(|case| send(&member, case));
    stream::iter(sent.collect::<Vec<_>>()).buffer_unordered(AT_ONCE).try_collect::<()>().await?;

    let (policy, warnings) = AuditPolicy::parse(&text)?;
    ensure!(warnings.is_empty(), "{warnings:?}");
    let expected: Vec<_> = questions.iter().map(|case| expected(&policy, case)).collect::<Result<_, _>>()?;
    for level in [Level::Metadata, Level::Request, Level::RequestResponse] {
        let of_level = expected.iter().filter(|(own, _)| *own == level).count();
        ensure!(of_level > COUNT / 20, "only {of_level} of {COUNT} requests are written at {level:?}");
    }
    eventually(SOON, async || {
        let mut written: BTreeMap<String, Written> = BTreeMap::new();
        for event in events(&log)? {
            let (id, one) = event_of(&event)?;
            written.entry(id).or_default().insert(one);
        }
        for (case, (_, expected)) in questions.iter().zip(&expected) {
            let there = written.remove(&case.id).unwrap_or_default();
            let AuditedCase { person, method, target, .. } = case;
            ensure!(there == *expected, "{method} {target} of {:?}: {there:?} there, {expected:?} here", person.user);
        }
        Ok(())
    })
    .await
}

/// Returns the senders: an administrator, a ServiceAccount, a client without credentials, and a client with an invalid
/// credential.
async fn people(http: &HttpClient) -> anyhow::Result<[Person; 4]> {
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "one"}});
    http.post("/api/v1/namespaces", &namespace).send().await?.expect(201)?;
    let accounts = "/api/v1/namespaces/one/serviceaccounts";
    let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "robot"}});
    http.post(accounts, &account).send().await?.expect(201)?;
    let request = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}});
    let issued = http.post(&format!("{accounts}/robot/token"), &request).send().await?.expect(201)?.json()?;
    let token = issued["status"]["token"].as_str().context("no token")?.to_owned();
    let groups = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
    let everybody = "system:authenticated";
    let robots = ["system:serviceaccounts", "system:serviceaccounts:one", everybody];
    Ok([
        Person {
            credential: http.token().map(str::to_owned),
            user: Some(("admin", groups(&["system:masters", everybody]))),
        },
        Person { credential: Some(token), user: Some(("system:serviceaccount:one:robot", groups(&robots))) },
        Person { credential: None, user: Some(("system:anonymous", groups(&["system:unauthenticated"]))) },
        Person { credential: Some("wrong".to_owned()), user: None },
    ])
}

async fn send(member: &TestCluster, case: &AuditedCase<'_>) -> anyhow::Result<()> {
    // A kube-apiserver closes the connection of an unauthenticated client, so each such client gets a new connection.
    let is_known = case.person.is_known();
    let client = match is_known {
        true => member.http().anonymous(),
        false => HttpClient::from_access(&member.access()).await?.anonymous(),
    };
    let mut request = client.request(case.method.clone(), &case.target);
    if let Some(token) = &case.person.credential {
        request = request.header("authorization", &format!("Bearer {token}"));
    }
    if matches!(case.method, Method::POST | Method::PUT | Method::PATCH) {
        request = request.body("application/json", "{}");
    }
    match request.header("audit-id", &case.id).send().await {
        Err(error) if is_known => Err(error),
        // The kube-apiserver may close the connection of an unauthenticated client before the response arrives, so the
        // test ignores the error.
        _ => Ok(()),
    }
}

/// Returns the audit level, and the level and stage of each event, that the crate `audit` expects for a request.
fn expected(policy: &AuditPolicy, case: &AuditedCase<'_>) -> anyhow::Result<(Level, Written)> {
    let (path, query) = match case.target.split_once('?') {
        Some((path, query)) => (path, Some(query)),
        None => (case.target.as_str(), None),
    };
    let info = RequestInfo::parse(case.method.as_str(), path, query)
        .map_err(|status| anyhow::anyhow!("{path}: {}", status.message))?;
    let user = case.person.user.as_ref().map(|(name, groups)| (*name, groups.as_slice()));
    let decision = policy.decide(&AuditAttributes::from_request(&info, user));
    let stages: &[Stage] = match (user, info.class().is_long_running()) {
        // An unauthenticated request has only one event.
        (None, _) => &[Stage::ResponseStarted],
        (Some(_), true) => &[Stage::RequestReceived, Stage::ResponseStarted, Stage::ResponseComplete],
        (Some(_), false) => &[Stage::RequestReceived, Stage::ResponseComplete],
    };
    let written = stages
        .iter()
        .filter(|stage| decision.level != Level::None && !decision.omit_stages.contains(**stage))
        .map(|stage| (decision.level.as_str(), stage.as_str()));
    Ok((decision.level, written.collect()))
}

/// Returns the audit ID, level and stage of an event.
fn event_of(event: &Value) -> anyhow::Result<(String, (&'static str, &'static str))> {
    let text = |key: &str| event[key].as_str().with_context(|| format!("no {key} in {event}"));
    let level = Level::parse(text("level")?).context("an unknown level")?;
    let stage = Stage::parse(text("stage")?).context("an unknown stage")?;
    Ok((text("auditID")?.to_owned(), (level.as_str(), stage.as_str())))
}
