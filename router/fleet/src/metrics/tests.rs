//! Tests of the series and labels in which requests are counted. The tests compare the text of the exposition.

use std::borrow::Cow;
use std::sync::Arc;

use serde_json::json;
use tributary_apimachinery::{ClusterName, GroupVersionResource, RequestInfo};

use super::*;
use crate::discovery::model::GroupList;
use crate::discovery::{MemberDiscovery, MergedDiscovery};

/// Discovery of Pods, and of Deployments of `apps`, each with one subresource.
fn merged_discovery() -> MergedDiscovery {
    let document = |group: &str, (name, kind): (&str, &str), below: &str| -> GroupList {
        let response_kind = json!({"group": group, "version": "v1", "kind": kind});
        let resource = json!({
            "resource": name,
            "responseKind": response_kind,
            "scope": "Namespaced",
            "verbs": ["get", "list", "watch"],
            "subresources": [{"subresource": below, "verbs": ["get"]}],
        });
        let group = json!({"metadata": {"name": group}, "versions": [{"version": "v1", "resources": [resource]}]});
        let (kind, version) = ("APIGroupDiscoveryList", "apidiscovery.k8s.io/v2");
        serde_json::from_value(json!({"kind": kind, "apiVersion": version, "items": [group]})).unwrap()
    };
    let (core, named) =
        (document("", ("pods", "Pod"), "status"), document("apps", ("deployments", "Deployment"), "scale"));
    let member = MemberDiscovery { core: core.into(), named: named.into() };
    MergedDiscovery::new(&[(ClusterName::new("eu").unwrap(), Arc::new(member))])
}

/// Parses a request from the tables below, written as method and path.
fn read(written: &str) -> RequestInfo {
    let (method, target) = written.split_once(' ').unwrap();
    let (path, query) = target.split_once('?').map_or((target, None), |(path, query)| (path, Some(query)));
    RequestInfo::parse(method, path, query).unwrap()
}

fn count(metrics: &Metrics, times: usize, request: &CountedRequest<'_>, code: u16) {
    let code = StatusCode::from_u16(code).unwrap();
    (0..times).for_each(|_| metrics.observe(request, code, Duration::from_millis(1)));
}

/// Lines of the exposition about requests, sorted. A histogram is represented by its line with the count.
fn lines(metrics: &Metrics) -> Vec<String> {
    let is_of_requests = |line: &&str| {
        let names = [
            "apiserver_request_duration_seconds_count{",
            "apiserver_request_total{",
            "tributary_expired_total{",
            "tributary_requests_total{",
        ];
        names.iter().any(|name| line.starts_with(name)) && !line.ends_with(" 0")
    };
    let mut lines: Vec<_> = metrics.expose().lines().filter(is_of_requests).map(str::to_owned).collect();
    lines.sort();
    lines
}

/// Like `lines`, without the names of metrics and labels.
fn values(metrics: &Metrics) -> Vec<String> {
    let short = |line: &String| {
        let labels: Vec<&str> = line.split('"').skip(1).step_by(2).collect();
        format!("{}{}", labels.join("|"), line.rsplit('}').next().unwrap())
    };
    lines(metrics).iter().map(short).collect()
}

#[test]
fn counted_request_is_exposed_with_its_labels() {
    let (merged_discovery, metrics) = (merged_discovery(), Metrics::default());
    let info = read("PATCH /apis/apps/v1/namespaces/n/deployments/d/scale");
    let request = CountedRequest {
        verb: info.verb,
        resource: CountedResource::from_request(&info, &merged_discovery),
        source: RequestSource::Member,
        cluster: CountedCluster::One(ClusterName::new("eu").unwrap()),
        decision: Decision::Forwarded,
        client: ClientClass::Kubectl,
    };
    count(&metrics, 2, &request, 410);
    let resource = r#"group="apps",version="v1",resource="deployments""#;
    let below = r#"subresource="scale",scope="resource",source="member",code="410""#;
    let named = r#"verb="patch",resource="deployments.apps/scale",decision="forwarded",client="kubectl""#;
    let expected = [
        format!("apiserver_request_duration_seconds_count{{{resource}}} 2"),
        format!("apiserver_request_total{{verb=\"PATCH\",{resource},{below}}} 2"),
        format!("tributary_expired_total{{verb=\"PATCH\",{resource}}} 2"),
        format!("tributary_requests_total{{cluster=\"eu\",{named}}} 2"),
    ];
    assert_eq!(lines(&metrics), expected);
}

/// Columns: request; source, outcome and cluster; status code; expected values of the series for duration, requests,
/// 410 responses, and requests by cluster.
type Case<'a> = (&'static str, (RequestSource, Decision, &'a CountedCluster), u16, &'static [&'static str]);

#[test]
fn requests_are_counted_by_resource_and_outcome() {
    use RequestSource::{Member, Memory, Own, Refused};
    let merged_discovery = merged_discovery();
    let (none, several) = (CountedCluster::None, CountedCluster::Several);
    let eu = CountedCluster::One(ClusterName::new("eu").unwrap());
    let memory = (Memory, Decision::Memory, &none);
    let cases: [Case<'_>; 10] = [
        (
            "GET /api/v1/namespaces/n/pods/p",
            memory,
            200,
            &["|v1|pods 3", "GET||v1|pods||resource|memory|200 3", "|get|pods|memory|kubectl 3"],
        ),
        (
            "GET /api/v1/namespaces/n/pods",
            memory,
            200,
            &["|v1|pods 3", "LIST||v1|pods||namespace|memory|200 3", "|list|pods|memory|kubectl 3"],
        ),
        (
            "GET /api/v1/pods?watch=1",
            memory,
            200,
            &["WATCH||v1|pods||cluster|memory|200 3", "|watch|pods|memory|kubectl 3"],
        ),
        (
            "GET /apis/apps/v1/deployments",
            memory,
            410,
            &[
                "apps|v1|deployments 3",
                "LIST|apps|v1|deployments||cluster|memory|410 3",
                "LIST|apps|v1|deployments 3",
                "|list|deployments.apps|memory|kubectl 3",
            ],
        ),
        (
            "GET /api/v1/pods?watch=1",
            memory,
            410,
            &["WATCH||v1|pods||cluster|memory|410 3", "WATCH||v1|pods 3", "|watch|pods|memory|kubectl 3"],
        ),
        // The labels of a subresource or resource that discovery lacks are empty.
        (
            "GET /api/v1/namespaces/n/pods/p/invented",
            (Member, Decision::Forwarded, &eu),
            404,
            &["|v1|pods 3", "GET||v1|pods||resource|member|404 3", "eu|get|pods|forwarded|kubectl 3"],
        ),
        (
            "GET /apis/x.io/v1/foos/f",
            (Refused, Decision::Refused, &none),
            404,
            &["|| 3", "GET|||||||404 3", "|get||refused|kubectl 3"],
        ),
        (
            "PUT /apis/apps/v1/namespaces/n/deployments/d",
            (Refused, Decision::Denied, &eu),
            403,
            &[
                "apps|v1|deployments 3",
                "PUT|apps|v1|deployments||resource||403 3",
                "eu|update|deployments.apps|denied|kubectl 3",
            ],
        ),
        (
            "DELETE /api/v1/namespaces/n/pods",
            (Member, Decision::Forwarded, &several),
            200,
            &[
                "|v1|pods 3",
                "DELETECOLLECTION||v1|pods||namespace|member|200 3",
                "*|deletecollection|pods|forwarded|kubectl 3",
            ],
        ),
        ("HEAD /version", (Own, Decision::Own, &none), 200, &["|| 3", "HEAD||||||self|200 3", "|head||self|kubectl 3"]),
    ];
    for (written, (source, decision, cluster), code, expected) in cases {
        let (info, metrics) = (read(written), Metrics::default());
        let (verb, resource, client) =
            (info.verb, CountedResource::from_request(&info, &merged_discovery), ClientClass::Kubectl);
        let request = CountedRequest { verb, resource, source, cluster: cluster.clone(), decision, client };
        count(&metrics, 3, &request, code);
        assert_eq!(values(&metrics), expected, "{written}");
    }
}

#[test]
fn unparsable_requests_are_counted_without_resource_labels() {
    let metrics = Metrics::default();
    let request = CountedRequest::unread(Decision::Refused, ClientClass::Other);
    count(&metrics, 2, &request, 400);
    assert_eq!(values(&metrics), ["|| 2", "|||||||400 2", "|||refused|other 2"]);
}

#[test]
fn requests_above_the_series_limit_share_one_series() {
    const MORE: usize = 7;
    let metrics = Metrics::default();
    let request = |number: usize| {
        let resource = GroupVersionResource::new("", "v1", &format!("r{number}"));
        let (resource, subresource) = (Cow::Owned(resource), Cow::Borrowed("status"));
        let cluster = CountedCluster::One(ClusterName::new("eu").unwrap());
        CountedRequest {
            verb: Verb::Get,
            resource: Some(CountedResource { resource, subresource, scope: "resource" }),
            source: RequestSource::Member,
            cluster,
            decision: Decision::Forwarded,
            client: ClientClass::Kubectl,
        }
    };
    for number in 0..REQUEST_SERIES_MAX + MORE {
        count(&metrics, 1, &request(number), 200);
        assert!(metrics.known_requests.len() <= REQUEST_SERIES_MAX, "{number}");
    }
    for number in [0, REQUEST_SERIES_MAX + MORE] {
        count(&metrics, 2, &request(number), 200);
    }
    let series = values(&metrics);
    let others = REQUEST_SERIES_MAX + MORE - RESOURCES_MAX + 2;
    for expected in [
        "|v1|r0 3".to_owned(),
        "GET||v1|r0|status|resource|member|200 3".to_owned(),
        "eu|get|r0/status|forwarded|kubectl 3".to_owned(),
        format!("||other {others}"),
        format!("GET|||other|||member|200 {}", MORE + 2),
        format!("other|get|other|forwarded|kubectl {}", MORE + 2),
    ] {
        assert!(series.contains(&expected), "{expected}");
    }
    assert_eq!(series.len(), 2 * (REQUEST_SERIES_MAX + 1) + RESOURCES_MAX + 1);
}
