//! Whose word counts on which requests are traced, and in which trace.

use http::HeaderMap;
use tributary_apimachinery::{MASTERS_GROUP, RequestInfo};
use tributary_authentication::VerifierName;
use tributary_router::{RequestReading, User};

/// Those who watch over a cluster (apiserver `pkg/authentication/user`, `MonitoringGroup`).
const MONITORING_GROUP: &str = "system:monitoring";

/// W3C's headers of a trace (<https://www.w3.org/TR/trace-context/>).
const HEADERS: [&str; 2] = ["traceparent", "tracestate"];

/// Whether a user may have requests traced, and choose their trace: the one person of personal mode, and the groups
/// whom a kube-apiserver lets (apiserver `pkg/endpoints/filters/traces.go`, `notSystemPrivilegedGroup`), as the
/// authorities of client certificates or a proxy in front know them. To members and issuers these groups are none of
/// theirs to give.
pub(super) fn is_obeyed(user: &User) -> bool {
    let verifier = &user.authority.verifier;
    let is_of_group = || user.info.groups.iter().any(|group| group == MASTERS_GROUP || group == MONITORING_GROUP);
    *verifier == VerifierName::personal()
        || (is_of_group() && [VerifierName::client_certificates(), VerifierName::front_proxy()].contains(verifier))
}

/// Takes out what a request says of its trace, unless its user is obeyed: members know the account by which they are
/// asked, and might obey that. What a workload reads is the client's word to it, and stays.
pub fn forget_unless_obeyed(headers: &mut HeaderMap, reading: &RequestReading, user: &User) {
    if HEADERS.iter().all(|name| !headers.contains_key(*name)) || is_obeyed(user) {
        return;
    }
    if reading.info().is_ok_and(RequestInfo::is_for_workload) {
        return;
    }
    for name in HEADERS {
        headers.remove(name);
    }
}

#[cfg(test)]
mod tests {
    use http::Request;
    use tributary_apimachinery::Mount;

    use super::*;

    #[test]
    fn members_are_told_no_trace_of_whom_nobody_lets_choose_one() {
        const POD: &str = "/api/v1/namespaces/a/pods/p";
        let workload = format!("{POD}/proxy/x");
        for (verifier, path, stays) in [
            (VerifierName::personal(), POD, true),
            (VerifierName::client_certificates(), POD, false),
            (VerifierName::client_certificates(), &*workload, true),
        ] {
            let request = Request::get(path).header("traceparent", "a").header("tracestate", "b").header("x", "c");
            let (mut head, ()) = request.body(()).unwrap().into_parts();
            let reading = RequestReading::parse(&Mount::Merged, "GET", path, None);
            forget_unless_obeyed(&mut head.headers, &reading, &User::named(verifier.clone(), "ann"));
            let left = ["traceparent", "tracestate", "x"].map(|name| head.headers.contains_key(name));
            assert_eq!(left, [stays, stays, true], "{verifier} {path}");
        }
    }
}
