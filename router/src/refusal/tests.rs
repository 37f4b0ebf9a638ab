//! What clients read of refusals.

use std::time::Duration;

use tributary_apimachinery::{ClusterName, GroupVersionResource, StatusReason};

use super::*;

fn pods() -> GroupVersionResource {
    GroupVersionResource::new("", "v1", "pods")
}

fn names() -> Vec<ClusterName> {
    (0..12).map(|number| ClusterName::new(&format!("c{number}")).unwrap()).collect()
}

fn status(refusal: impl Into<Refusal>) -> Status {
    refusal.into().status()
}

fn causes(status: &Status) -> Vec<&str> {
    status.details.iter().flat_map(|details| &details.causes).map(|cause| cause.message.as_str()).collect()
}

#[test]
fn results_stay_small() {
    assert!(size_of::<Refusal>() <= 16, "{}", size_of::<Refusal>());
}

#[test]
fn clusters_are_named() {
    let clusters = names();
    let path = "/api/v1/namespaces/n/pods/p".to_owned();
    let name = || "p".to_owned();
    let ambiguous =
        status(ClusterRefusal::Ambiguous { resource: pods(), name: name(), clusters: clusters[..2].to_vec(), path });
    assert_eq!((ambiguous.code, &ambiguous.reason), (409, &StatusReason::BadRequest));
    assert_eq!(
        ambiguous.message,
        "kubectl --context c0 … or kubectl --context c1 …: pods \"p\" exists in more than one cluster: c0, c1; \
         the path of each is /clusters/<name>/api/v1/namespaces/n/pods/p"
    );
    assert_eq!(causes(&ambiguous), ["c0", "c1"]);
    let trouble = |cluster: &ClusterName| Trouble {
        cluster: cluster.clone(),
        cause: "refused".to_owned(),
        age: Duration::from_secs(7),
    };
    let unknown = |is_gone| {
        let unknown = clusters.iter().map(trouble).collect();
        status(ClusterRefusal::Unknown { resource: pods(), name: name(), unknown, is_gone })
    };
    assert_eq!((unknown(false).code, unknown(false).retry_after_seconds()), (503, Some(1)));
    assert_eq!((unknown(true).code, unknown(true).retry_after_seconds()), (503, None));
    let unknown = unknown(false);
    assert!(unknown.message.contains("c9 (for 7 s: refused) and 2 more"), "{unknown}");
    assert!(!unknown.message.contains("c10"), "{unknown}");
}

#[test]
fn an_object_that_cannot_move_is_named_where_it_is() {
    let owner = &names()[0];
    let elsewhere = |named: &str| {
        let (name, named) = ("p".to_owned(), named.to_owned());
        status(ClusterRefusal::Elsewhere { resource: pods(), name, named, owner: owner.clone() })
    };
    let told = elsewhere("c1");
    assert_eq!((told.code, &told.reason, causes(&told)), (409, &StatusReason::BadRequest, vec!["c0"]));
    assert_eq!(
        told.message,
        "kubectl --context c0 … for the object that exists, or kubectl --context c1 … for another object of the name: \
         pods \"p\" is in cluster \"c0\", and the annotation tributary.dev/cluster names \"c1\"; an object cannot move"
    );
    // What is no cluster's name is not to be typed.
    assert!(elsewhere("$(no)").message.starts_with("kubectl --context c0 … for the object that exists: pods"));
}

#[test]
fn who_is_to_wait_is_told_for_what_and_how_long() {
    let clusters = names();
    let reasons = vec![(clusters[0].clone(), "it is silent".into())];
    let unread = ClusterRefusal::Unread { resource: pods(), clusters: clusters[..1].to_vec(), reasons, retry_after: 3 };
    let unread = Refusal::from(unread);
    assert!(unread.is_unread());
    assert_eq!((unread.status().code, unread.status().retry_after_seconds()), (429, Some(3)));
    assert_eq!(unread.to_string(), "pods of these clusters have not been read yet: c0; c0: it is silent");
    let late = status(VersionRefusal::NotReached {
        cluster: clusters[3].clone(),
        version: tributary_apimachinery::ResourceVersion(9).into(),
        current: tributary_apimachinery::ResourceVersion(7).into(),
        within: Duration::from_secs(3),
    });
    assert_eq!((late.code, late.retry_after_seconds()), (504, Some(1)));
    assert_eq!(late.details.as_ref().unwrap().causes[0].reason, "ResourceVersionTooLarge");
    assert!(late.message.ends_with("cluster \"c3\": it did not reach that version within 3 s"), "{late}");
    let over = status(LimitRefusal::Time { limit: Duration::from_secs(60), is_own: false });
    assert_eq!((over.code, over.retry_after_seconds()), (504, None));
    assert!(over.message.ends_with("(the server's --request-timeout: 60s)"), "{over}");
}

#[test]
fn what_members_say_is_told_from_what_is_said_here() {
    let said = Refusal::from(MemberRefusal::Said(Status::not_found(&pods(), "p")));
    let own = Refusal::from(ClusterRefusal::NotFound { resource: pods(), name: "p".to_owned() });
    assert_eq!(said.status(), own.status());
    assert!(said.said_by_member().is_some_and(says_not_served) && !said.is_not_found());
    assert!(own.said_by_member().is_none() && own.is_not_found());
    assert!(said.is_of_request() && !own.is_of_request());
}

#[test]
fn a_watch_is_told_what_to_do_instead() {
    let refusal = RequestRefusal::NotWatched { resource: pods(), remedy: "register it".to_owned() };
    assert!(status(refusal).message.ends_with(": register it"));
}
