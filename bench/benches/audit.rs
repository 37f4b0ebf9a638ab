//! The cost of an audit line at level Metadata: the policy's decision, the event and the JSON of the event. The user
//! has 50 groups. The policy has 30 rules, of which the last rule matches.

use std::hint::black_box;
use std::time::SystemTime;

use criterion::{Criterion, criterion_group, criterion_main};
use serde_json::json;
use tributary_apimachinery::{RequestInfo, UserInfo};
use tributary_audit::{Annotation, AuditAttributes, AuditPolicy, Event, MicroTime, RequestFacts, Stage, source_ips};

const GROUPS: usize = 50;
const RULES: usize = 30;
const URI: &str = "/apis/apps/v1/namespaces/shop/deployments/web?fieldManager=kubectl&timeout=30s";

fn policy() -> AuditPolicy {
    let narrow = |number: usize| {
        json!({"level": "None", "verbs": ["get", "watch"], "userGroups": [format!("robots{number}")],
            "resources": [{"group": "", "resources": ["events", format!("things{number}/status")]}]})
    };
    let rules: Vec<_> = (1..RULES).map(narrow).chain([json!({"level": "Metadata"})]).collect();
    let text = json!({"apiVersion": "audit.k8s.io/v1", "kind": "Policy", "rules": rules}).to_string();
    AuditPolicy::parse(&text).unwrap_or_else(|error| panic!("{error}")).0
}

fn line(policy: &AuditPolicy, user: &UserInfo) -> Vec<u8> {
    let (path, query) = URI.split_once('?').unwrap_or((URI, ""));
    let info = RequestInfo::parse("GET", path, Some(query)).unwrap_or_else(|error| panic!("{error}"));
    let attributes = AuditAttributes::from_request(&info, Some((&user.username, &user.groups)));
    let decision = policy.decide(&attributes);
    let peer = [10, 0, 0, 7].into();
    let facts = RequestFacts {
        audit_id: "2f0c5c2e-6a3b-4c1e-9d57-0d3f6f1f6a11".into(),
        uri: URI,
        info: Some(&info),
        user: Some(user),
        impersonated_user: None,
        source_ips: source_ips("", "", peer),
        user_agent: "kubectl/v1.36.3 (linux/amd64) kubernetes/0000000",
        received: MicroTime::from_system_time(SystemTime::now()),
    };
    let mut event = Event::received(decision, &attributes, &facts).unwrap_or_else(|| panic!("it is audited"));
    event.set_response_code(200);
    event.annotate(Annotation::Decision, "allow");
    event.annotate(Annotation::AnsweredBy, "memory");
    event.line(Stage::ResponseComplete, MicroTime::from_system_time(SystemTime::now()))
}

fn audit(criterion: &mut Criterion) {
    let policy = policy();
    let groups = (0..GROUPS).map(|number| format!("team-{number}")).collect();
    let user = UserInfo { username: "jane@example.com".to_owned(), groups, ..UserInfo::default() };
    criterion.bench_function("audit: a line at Metadata, 50 groups, 30 rules", |bencher| {
        bencher.iter(|| black_box(line(black_box(&policy), black_box(&user))));
    });
}

criterion_group!(benches, audit);
criterion_main!(benches);
