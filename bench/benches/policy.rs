//! The cost of decisions about a request without its body: the resolution of a mount, and dispatch rules.
//!
//! The rules are 1,000, of which the first matching rule counts, and the user has 50 groups. The cases: each rule names
//! another user, as a name or as a prefix; all rules name the same verbs and resources; no rule matches.

use std::hint::black_box;

use criterion::{Criterion, criterion_group, criterion_main};
use tributary_apimachinery::{Mount, RequestInfo};
use tributary_policy::{
    DispatchAttributes, DispatchPolicies, Policy, PolicyList, PolicyScope, Rule, RulePosition, Verdict,
};

const GROUPS: usize = 50;
const RULES: usize = 1_000;
const PATH: &str = "/apis/apps/v1/namespaces/shop/deployments/web";
const AGENT: &str = "kubectl/v1.36.3 (linux/amd64) kubernetes/0000000";

fn texts(text: &str) -> Vec<String> {
    text.split(' ').map(str::to_owned).collect()
}

/// Makes policies with five rules each. Only the last rule of the last policy matches the request.
fn policies(of_rule: impl Fn(usize) -> Rule) -> DispatchPolicies {
    let rules: Vec<_> = (0..RULES).map(of_rule).collect();
    let policies = rules.chunks(5).map(|rules| Policy { rules: rules.to_vec(), ..Policy::default() });
    DispatchPolicies::new(policies.collect())
}

fn workloads(number: usize) -> Rule {
    Rule {
        verbs: texts("get list watch -create"),
        api_groups: texts("apps batch"),
        resources: texts("deployments statefulsets */status"),
        users: vec![format!("robot-{number}"), format!("team-{number}-*")],
        user_agents: texts("kubectl/*"),
        ..Rule::default()
    }
}

fn by_group(number: usize) -> Rule {
    // Each of the user's groups is in twenty rules. Only the very last rule is for the namespace `shop`, and all other
    // rules are for other namespaces.
    let namespaces = if number == RULES - 1 { texts("shop") } else { vec![format!("n{number}")] };
    Rule { user_groups: vec![format!("group-{}", number % GROUPS)], users: Vec::new(), namespaces, ..workloads(number) }
}

fn policy(criterion: &mut Criterion) {
    let groups: Vec<_> = (0..GROUPS).map(|number| format!("group-{number}")).collect();
    let info = RequestInfo::parse("GET", PATH, None).unwrap_or_else(|error| panic!("{error}"));
    let last = RulePosition { list: PolicyList::Dispatch, policy: RULES / 5 - 1, rule: 4 };
    let is_last = |policies: &DispatchPolicies, asked: &DispatchAttributes<'_>| match policies.decide(asked).verdict {
        Verdict::Matched { place, .. } => place == last,
        Verdict::Ungoverned | Verdict::Unmatched => false,
    };
    for (name, user, policies) in [
        ("by user", "team-999-ann", policies(workloads)),
        ("by group and namespace", "ann", policies(by_group)),
        ("none matches", "team-x-ann", policies(workloads)),
    ] {
        let asked = DispatchAttributes::from_request(&info, user, &groups, AGENT);
        assert_eq!(is_last(&policies, &asked), name != "none matches", "{name}");
        criterion.bench_function(&format!("policy: 1,000 rules, {name}"), |bencher| {
            bencher.iter(|| {
                let asked = DispatchAttributes::from_request(black_box(&info), black_box(user), &groups, AGENT);
                black_box(policies.decide(&asked).verdict == Verdict::Unmatched)
            });
        });
    }
    let written: Vec<Policy> = policies(workloads).policies().to_vec();
    criterion.bench_function("policy: 1,000 rules, compiled", |bencher| {
        bencher.iter(|| black_box(DispatchPolicies::new(black_box(&written).clone())));
    });
    criterion.bench_function("policy: 1,000 rules, examined", |bencher| {
        bencher.iter(|| black_box(tributary_policy::examine(black_box(&written), PolicyScope::Cluster)));
    });
}

fn mounts(criterion: &mut Criterion) {
    const AGGREGATED: &str = "/apis/aggregation.tributary.dev/v1alpha1";
    for (name, mount, path) in [
        ("merged view, no mount", Mount::Merged, PATH.to_owned()),
        ("merged view, cluster", Mount::Merged, format!("/clusters/eu{PATH}")),
        ("aggregated, merged view", Mount::aggregated(), format!("{AGGREGATED}/views/all/proxy{PATH}")),
        ("aggregated, cluster", Mount::aggregated(), format!("{AGGREGATED}/clusters/eu/proxy{PATH}")),
    ] {
        criterion.bench_function(&format!("mount: {name}"), |bencher| {
            bencher.iter(|| black_box(mount.resolve(black_box(&path)).is_ok()));
        });
    }
}

criterion_group!(benches, mounts, policy);
criterion_main!(benches);
