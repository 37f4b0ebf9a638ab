//! Tests of a client's trace headers (`traceparent`): which servers receive these headers.

use http::Request;
use http_body_util::Empty;

use crate::hosts::Endpoint;
use crate::precedents::{Member, router_to};

/// Members may trust trace headers from Tributary's service account, so they must not receive the trace headers of
/// untrusted users. A workload behind `proxy/` gets the client's headers.
#[tokio::test]
async fn trace_headers_of_untrusted_users_are_not_forwarded_to_members() {
    let member = Member::start().await;
    let endpoint = Endpoint::before(router_to(&member).await).await;
    let mut ann = endpoint.client(Some(&endpoint.people.sign("ann", &[])), "all.test").await;
    for (path, is_told) in [
        ("/api/v1/namespaces/default/configmaps/untold", false),
        ("/api/v1/namespaces/default/services/told/proxy/", true),
    ] {
        let request = Request::get(format!("https://all.test:6443/clusters/one{path}"))
            .header("traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
            .header("tracestate", "vendor=1");
        let answer = ann.sender.send_request(request.body(Empty::new()).unwrap()).await.unwrap();
        assert_eq!(answer.status(), 200, "{path}");
        let asked = member.recorded_requests(path);
        let told: Vec<_> = asked
            .iter()
            .map(|seen| ["traceparent", "tracestate"].map(|name| seen.headers.contains_key(name)))
            .collect();
        assert_eq!(told, [[is_told; 2]], "{path}");
    }
}
