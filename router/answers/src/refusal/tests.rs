//! Tests of each refusal's Status and message.

use std::time::Duration;

use tributary_apimachinery::{ClusterName, GroupVersionResource, StatusReason};

use super::*;
use crate::ground::Ground;

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
fn refusal_type_takes_at_most_sixteen_bytes() {
    assert!(size_of::<Refusal>() <= 16, "{}", size_of::<Refusal>());
}

/// kube-apiserver's `sanitizer` also escapes HTML in the user's request, and leaves the reason and the preceding name
/// unchanged.
#[test]
fn refusal_message_escapes_html_from_the_request() {
    let request = ForbiddenRequest {
        user: "<b>&\"".to_owned(),
        verb: "get".into(),
        resource: pods(),
        subresource: "<i>".to_owned(),
        namespace: "a&b".to_owned(),
        name: "<x>".to_owned(),
        clusters: Vec::new(),
        reason: "RBAC: role.rbac.authorization.k8s.io \"<r>\" not found".to_owned(),
    };
    let refused = status(RequestRefusal::Forbidden(Box::new(request)));
    assert_eq!(
        refused.message,
        "pods \"<x>\" is forbidden: User \"&lt;b&gt;&amp;\\\"\" cannot get resource \"pods/&lt;i&gt;\" in API group \"\" in the \
         namespace \"a&amp;b\": RBAC: role.rbac.authorization.k8s.io \"<r>\" not found"
    );
    let (user, path, reason) = ("ann".to_owned(), "/metrics/<x>&".to_owned(), String::new());
    let refused = status(RequestRefusal::ForbiddenPath(ForbiddenPath { user, verb: "get".into(), path, reason }));
    assert_eq!(refused.message, "forbidden: User \"ann\" cannot get path \"/metrics/&lt;x&gt;&amp;\"");
}

#[test]
fn refusal_messages_name_the_clusters() {
    let clusters = names();
    let path = "/api/v1/namespaces/n/pods/p".to_owned();
    let name = || "p".to_owned();
    let ambiguous = status(ClusterRefusal::NameInSeveral {
        resource: pods(),
        name: name(),
        clusters: clusters[..2].to_vec(),
        path,
    });
    assert_eq!((ambiguous.code, &ambiguous.reason), (409, &StatusReason::BadRequest));
    assert_eq!(
        ambiguous.message,
        "kubectl --context c0 … or kubectl --context c1 …: pods \"p\" exists in more than one cluster: c0, c1; \
         the path of each is /clusters/<name>/api/v1/namespaces/n/pods/p"
    );
    assert_eq!(causes(&ambiguous), ["c0", "c1"]);
    let failure = |cluster: &ClusterName| ClusterFailure {
        cluster: cluster.clone(),
        cause: "refused".to_owned(),
        age: Some(Duration::from_secs(7)),
    };
    let unknown = |is_lasting| {
        let unknown = clusters.iter().map(failure).collect();
        status(ClusterRefusal::Unknown { resource: pods(), name: name(), unknown, is_lasting })
    };
    assert_eq!((unknown(false).code, unknown(false).retry_after_seconds()), (503, Some(1)));
    assert_eq!((unknown(true).code, unknown(true).retry_after_seconds()), (503, None));
    let unknown = unknown(false);
    assert!(unknown.message.contains("c9 (for 7 s: refused) and 2 more"), "{unknown}");
    assert!(!unknown.message.contains("c10"), "{unknown}");
}

#[test]
fn refusal_names_the_cluster_of_an_object_that_cannot_move() {
    let owner = &names()[0];
    let elsewhere = |named: &str| {
        let (name, named) = ("p".to_owned(), named.to_owned());
        status(ClusterRefusal::Elsewhere { resource: pods(), name, named, owner: owner.clone() })
    };
    let status = elsewhere("c1");
    assert_eq!((status.code, &status.reason, causes(&status)), (409, &StatusReason::BadRequest, vec!["c0"]));
    assert_eq!(
        status.message,
        "kubectl --context c0 … for the existing object, or kubectl --context c1 … for a different object with this \
         name: pods \"p\" is in cluster \"c0\", and the annotation tributary.dev/cluster names \"c1\"; an object \
         cannot move to a different cluster"
    );
    // A suggested command must not contain an invalid name of a cluster.
    assert!(elsewhere("$(no)").message.starts_with("kubectl --context c0 … for the existing object: pods"));
}

#[test]
fn refusal_of_an_unread_cluster_has_its_cause_and_retry_after() {
    let clusters = names();
    let reasons = vec![(clusters[0].clone(), "it is silent".into())];
    let unread = |retry_after| {
        let (clusters, reasons) = (clusters[..1].to_vec(), reasons.clone());
        Refusal::from(ClusterRefusal::Unread { resource: pods(), clusters, reasons, retry_after })
    };
    assert_eq!((unread(None).status().code, unread(None).status().retry_after_seconds()), (429, None));
    let unread = unread(Some(3));
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
    assert!(late.message.ends_with("cluster \"c3\": the cluster did not reach this version within 3 s"), "{late}");
    for (missing, end) in [
        (vec![], "(the server's --request-timeout: 60s)"),
        (clusters[..2].to_vec(), "(the server's --request-timeout: 60s; no answer yet from c0, c1)"),
    ] {
        let over = status(LimitRefusal::Time { limit: Duration::from_secs(60), is_own: false, clusters: missing });
        assert_eq!((over.code, over.retry_after_seconds()), (504, None));
        assert!(over.message.ends_with(end), "{over}");
    }
}

#[test]
fn refusals_of_members_differ_from_refusals_of_tributary() {
    let from_member = Refusal::from(MemberRefusal::MemberStatus(Status::not_found(&pods(), "p")));
    let own = Refusal::from(ClusterRefusal::NotFound { resource: pods(), name: "p".to_owned(), warnings: Vec::new() });
    assert_eq!(from_member.status(), own.status());
    assert!(from_member.member_status().is_some_and(is_unserved_by_status) && !from_member.may_be_elsewhere());
    assert!(own.member_status().is_none() && own.may_be_elsewhere());
    assert!(from_member.is_about_request() && !own.is_about_request());
    // If a cluster refuses to impersonate, or returns an error, the refusal does not concern the request itself.
    let acting = Refusal::from(MemberRefusal::ForbidsImpersonation(Status::forbidden(None, "", "no")));
    assert!(
        acting.is_impersonation_forbidden_by_cluster() && acting.is_about_impersonation() && !acting.is_about_request()
    );
    assert!(acting.member_status().is_none() && acting.status().code == 403);
}

#[test]
fn refusal_of_an_unwatchable_resource_names_the_remedy() {
    let cached = vec!["m".to_owned(), "n".to_owned()];
    for (remedy, text) in [
        (WatchRemedy::Namespaces(cached), "(spec.namespaces): m, n; watch one of them, or one cluster (kubectl "),
        (WatchRemedy::Register, ": add the resource to --resources or to a ResourceRegistry, or watch one cluster ("),
        (WatchRemedy::List, ": the clusters do not support watches of the resource; list it instead"),
    ] {
        let message = status(RequestRefusal::NotWatched { resource: pods(), remedy }).message;
        assert!(message.contains(text), "{message}");
    }
}

#[test]
fn refusals_at_the_aggregated_entry_name_paths_below_the_api_group() {
    const PATH: &str = "/apis/aggregation.tributary.dev/v1alpha1/clusters/";
    let clusters = names();
    let (c0, name) = (|| clusters[0].clone(), || "p".to_owned());
    let refusals: [Refusal; 6] = [
        ClusterRefusal::NameInSeveral {
            resource: pods(),
            name: name(),
            clusters: clusters.clone(),
            path: "/api".into(),
        }
        .into(),
        ClusterRefusal::NotNamed { resource: pods(), name: name(), clusters: clusters.clone().into() }.into(),
        RequestRefusal::NotWatched { resource: pods(), remedy: WatchRemedy::Register }.into(),
        RequestRefusal::NotNumbered { resource: pods(), cluster: c0() }.into(),
        VersionRefusal::OfOtherCluster { cluster: c0() }.into(),
        PreconditionRefusal::OfOtherContext { resource: pods(), name: name(), cluster: c0() }.into(),
    ];
    for refusal in refusals {
        let (direct, aggregated) = (refusal.status(), refusal.status_at(Door::Aggregated));
        assert!(direct.message.contains("/clusters/") || direct.message.contains("kubectl --context "), "{direct:?}");
        let message = &aggregated.message;
        assert!(message.contains(PATH) && !message.contains("--context"), "{message}");
        assert!(!message.replace(PATH, "").contains("/clusters/"), "{message}");
        assert_eq!((direct.code, direct.reason), (aggregated.code, aggregated.reason));
    }
}

fn silent(cluster: &ClusterName) -> ClusterFailure {
    ClusterFailure { cluster: cluster.clone(), cause: "refused".to_owned(), age: Some(Duration::from_secs(12)) }
}

#[test]
fn refusal_of_an_unsure_write_names_commands_and_missing_clusters() {
    let clusters = names();
    let unsure = |ground, name: &str, unknown: &[ClusterName]| {
        let (known, unknown) = (clusters[0].clone(), unknown.iter().map(silent).collect());
        status(ClusterRefusal::Unsure { resource: pods(), name: name.to_owned(), ground, known, unknown })
    };
    let (one, two) = (&clusters[1..2], &clusters[1..3]);
    let cannot = "and cannot be queried (for 12 s: refused)";
    for (unsure_status, expected) in [
        (
            unsure(Ground::Name, "p", one),
            format!("kubectl --context c0 … if you mean the object in c0: c1 may have pods \"p\", too, {cannot}"),
        ),
        (
            unsure(Ground::Name, "p", two),
            "kubectl --context c0 … if you mean the object in c0: c1, c2 may have pods \"p\", too, and cannot be \
             queried (c1 for 12 s: refused, c2 for 12 s: refused)"
                .to_owned(),
        ),
        (
            unsure(Ground::Namespace, "p", one),
            format!("kubectl --context c0 … to create pods \"p\" in c0: c1 may have its namespace, too, {cannot}"),
        ),
        // The object has no name yet, because the cluster generates it.
        (
            unsure(Ground::Node, "", one),
            format!("kubectl --context c0 … to create pods in c0: c1 may have the Pod or its node, too, {cannot}"),
        ),
        (
            unsure(Ground::Release, "p", one),
            format!(
                "kubectl --context c0 … if you mean the Helm release in c0, whose records are ConfigMaps, which anyone \
                 may make: c1 may have the records in Secrets, {cannot}"
            ),
        ),
        (
            unsure(Ground::Kind, "", one),
            format!("kubectl --context c0 … to create pods in c0: c1 may serve pods, too, {cannot}"),
        ),
    ] {
        assert_eq!(
            (unsure_status.code, unsure_status.retry_after_seconds(), &unsure_status.message),
            (503, None, &expected)
        );
    }
    // The failure of a single request has no duration.
    let met = |cluster: &ClusterName| ClusterFailure {
        age: None,
        cause: "the cluster answered 500".to_owned(),
        ..silent(cluster)
    };
    for (unknown, why) in [
        (vec![met(&clusters[1])], "(the cluster answered 500)"),
        (vec![met(&clusters[1]), silent(&clusters[2])], "(c1: the cluster answered 500, c2 for 12 s: refused)"),
    ] {
        let (resource, name, ground) = (pods(), "p".to_owned(), Ground::Name);
        let refusal = ClusterRefusal::Unsure { resource, name, ground, known: clusters[0].clone(), unknown };
        assert!(status(refusal).message.ends_with(&format!("and cannot be queried {why}")), "{why}");
    }
    let text = silent(&clusters[1]).doubt(&pods(), "p");
    assert_eq!(text, "cluster c1 may have pods \"p\", too, but cannot be queried (for 12 s: refused)");
}

#[test]
fn refusal_names_a_helm_release_as_helm_does() {
    let clusters = names();
    let (resource, name) = (pods(), "p".to_owned());
    let release = Box::new(ReleaseName { namespace: "default".to_owned(), name: Some("r".to_owned()) });
    let unknown = |unknown: &[ClusterName]| {
        let (resource, name, release) = (resource.clone(), name.clone(), release.clone());
        let unknown = unknown.iter().map(silent).collect();
        status(ClusterRefusal::ReleaseUnsure { resource, name, release, unknown })
    };
    let one = unknown(&clusters[..1]);
    assert_eq!((one.code, one.retry_after_seconds()), (503, None));
    assert_eq!(
        one.message,
        "helm --kube-context <name> …: the release \"r\" of namespace \"default\" may be in c0, which cannot be \
         queried (for 12 s: refused); try again when it can be queried, or set the annotation tributary.dev/cluster"
    );
    let two = unknown(&clusters[..2]).message;
    let end = "may be in c0, c1, which cannot be queried (c0 for 12 s: refused, c1 for 12 s: refused); try again when \
               they can be queried, or set the annotation tributary.dev/cluster";
    assert!(two.ends_with(end), "{two}");
    let clusters = clusters[..2].to_vec();
    let hidden = {
        let (resource, name, release, clusters) = (resource.clone(), name.clone(), release.clone(), clusters.clone());
        status(ClusterRefusal::ReleaseForbidden { resource, name, release, clusters })
    };
    assert_eq!((hidden.code, &hidden.reason), (403, &StatusReason::Forbidden));
    assert_eq!(
        hidden.message,
        "kubectl --context <name> …, or set the annotation tributary.dev/cluster: pods \"p\" belongs to a Helm \
         release (the release \"r\" of namespace \"default\"), and you may not list the records of the release in any \
         cluster, so the cluster of the release is unknown: c0, c1"
    );
    let several = status(ClusterRefusal::ReleaseInSeveral { resource, name, release, clusters });
    assert_eq!((several.code, &several.reason), (409, &StatusReason::BadRequest));
    assert_eq!(causes(&several), ["c0", "c1"]);
    assert_eq!(
        several.message,
        "helm --kube-context c0 … or helm --kube-context c1 …: the release \"r\" of namespace \"default\" is in more \
         than one cluster: c0, c1"
    );
}

#[test]
fn control_characters_of_a_member_are_escaped() {
    let refusal = Refusal::from_member_answer(
        StatusCode::FORBIDDEN,
        br#"{"kind":"Status","code":403,"message":"no\u202eon\u001b[2J\n- x"}"#,
    );
    assert_eq!(refusal.status().message, "no\\u{202e}on\\u{1b}[2J\n- x");
}

#[test]
fn uid_in_several_clusters_is_refused_with_their_names() {
    let (resource, clusters) = (pods(), names()[..2].to_vec());
    let several = status(ClusterRefusal::UidInSeveral { resource, name: "p".to_owned(), clusters });
    assert_eq!((several.code, &several.reason), (409, &StatusReason::BadRequest));
    assert_eq!(causes(&several), ["c0", "c1"]);
    assert_eq!(
        several.message,
        "kubectl --context c0 … or kubectl --context c1 …, or set the annotation tributary.dev/cluster: pods \"p\" has the \
         same uid in more than one cluster: c0, c1"
    );
}

#[test]
fn refusal_names_the_clusters_that_have_a_missing_namespace() {
    let clusters = names();
    let missing = |namespace: &str, ground, elsewhere: &[ClusterName]| {
        let (namespace, cluster) = (namespace.into(), clusters[0].clone());
        let (resource, elsewhere) = (pods(), elsewhere.to_vec());
        status(ClusterRefusal::NoNamespace { resource, namespace, cluster, ground, elsewhere })
    };
    let there = missing("n", Ground::Annotation, &clusters[1..3]);
    assert_eq!((there.code, &there.reason), (404, &StatusReason::NotFound));
    assert_eq!(
        there.message,
        "kubectl --context c1 …: namespaces \"n\" not found in c0, which was chosen because the annotation \
         tributary.dev/cluster names this cluster; the namespace is in c1, c2"
    );
    let nowhere = "namespaces \"n\" not found in c0, which was chosen because --create-in, or placement of a \
                   ResourceRegistry, names this cluster; no other cluster that serves pods is known to have the \
                   namespace";
    let message = missing("n", Ground::Placement, &[]).message;
    assert_eq!(message, format!("kubectl --context c0 create namespace n: {nowhere}"));
    // A suggested command must not contain an invalid name of a namespace.
    assert!(missing("$(no)", Ground::Owner, &[]).message.starts_with("namespaces \"$(no)\" not found in c0, which"));
}

#[test]
fn refusal_of_a_new_object_explains_how_to_name_a_cluster() {
    let not_named = |name: &str, clusters: &[ClusterName]| {
        status(ClusterRefusal::NotNamed { resource: pods(), name: name.to_owned(), clusters: clusters.into() })
    };
    let ways = "; or set the annotation tributary.dev/cluster, or use the path /clusters/<name>, or set a default: \
                --create-in, or placement of a ResourceRegistry";
    for (name, count, expected) in [
        ("p", 2, "kubectl --context c0 … (or c1): no rule selects the cluster in which to create pods \"p\""),
        ("", 1, "kubectl --context c0 …: no rule selects the cluster in which to create pods"),
        ("", 0, "kubectl --context <name> …: no rule selects the cluster in which to create pods"),
    ] {
        let status = not_named(name, &names()[..count]);
        assert_eq!((status.code, status.message), (400, format!("{expected}{ways}")));
    }
    // For a Helm release record, the suggested command is `helm`, whose flag for the cluster differs from kubectl's
    // flag.
    let secrets = || GroupVersionResource::new("", "v1", "secrets");
    let (clusters, path) = (names()[..2].to_vec(), "/api/v1/namespaces/n/secrets/s".to_owned());
    for (name, expected) in [
        (
            "sh.helm.release.v1.web.v1",
            ["helm --kube-context c0 … (or c1): no rule selects", "helm --kube-context c0 … or helm"],
        ),
        ("web", ["kubectl --context c0 … (or c1): no rule selects", "kubectl --context c0 … or kubectl"]),
    ] {
        let (name, clusters, path) = (|| name.to_owned(), clusters.clone(), path.clone());
        let not_named =
            ClusterRefusal::NotNamed { resource: secrets(), name: name(), clusters: clusters.clone().into() };
        let ambiguous = ClusterRefusal::NameInSeveral { resource: secrets(), name: name(), clusters, path };
        for (refusal, expected) in [not_named, ambiguous].into_iter().zip(expected) {
            let message = status(refusal).message;
            assert!(message.starts_with(expected), "{message}");
        }
    }
}

#[test]
fn refusal_of_another_clusters_object_names_the_right_context() {
    let cluster = || names().remove(0);
    let annotated = |named: &str, is_configured| {
        let (resource, name, named) = (pods(), "p".to_owned(), named.to_owned());
        status(ClusterRefusal::OfOtherContext { resource, name, named, is_configured, cluster: cluster() })
    };
    let other_context = annotated("c1", true);
    assert_eq!((other_context.code, &other_context.reason), (409, &StatusReason::BadRequest));
    assert_eq!(
        other_context.message,
        "kubectl --context c1 …, or remove the annotation: pods \"p\" has tributary.dev/cluster: \"c1\", and this is \
         the path of cluster \"c0\""
    );
    let cause = &other_context.details.as_ref().unwrap().causes[0];
    assert_eq!((&*cause.reason, &*cause.field), ("FieldValueInvalid", "metadata.annotations[tributary.dev/cluster]"));
    assert_eq!(cause.message, "Invalid value: \"c1\": must be \"c0\"");
    assert!(annotated("c1", false).message.starts_with("remove the annotation: pods \"p\" has "));
    let versioned = |name: &str| {
        status(PreconditionRefusal::OfOtherContext { resource: pods(), name: name.to_owned(), cluster: cluster() })
    };
    let of_other = "the resourceVersion is of another cluster than c0";
    for (name, expected) in
        [("p", "kubectl --context c0 get pods p: "), ("", "kubectl --context c0 get pods: "), ("$(no)", "")]
    {
        let status = versioned(name);
        assert_eq!((status.code, &status.reason), (409, &StatusReason::Conflict));
        assert_eq!(status.message, format!("{expected}{of_other}"));
    }
    let read = status(VersionRefusal::OfOtherCluster { cluster: cluster() });
    assert_eq!(
        (read.code, &*read.message),
        (410, "list /clusters/c0 again: the resourceVersion has no component of cluster c0")
    );
}

#[test]
fn cluster_name_appears_once_in_a_message() {
    let cluster = &names()[1];
    for (cause, expected) in [
        (
            "unreachable: cluster c1 at 10.0.0.1:443 is silent: no answer",
            "unreachable: 10.0.0.1:443 is silent: no answer",
        ),
        ("cluster c1 cannot be reached at x: refused", "it cannot be reached at x: refused"),
        ("cluster c1: no credentials: the plugin failed", "no credentials: the plugin failed"),
        ("cluster c10 cannot be reached", "cluster c10 cannot be reached"),
        ("refused", "refused"),
    ] {
        assert_eq!(without_name(cause, cluster), expected);
    }
    let met = "discovery of /api failed: cluster c1 cannot be reached at x: refused";
    assert_eq!(cause_alone(met, cluster), "discovery of /api failed: x: refused");
    let silent = ClusterFailure { cause: "cluster c1 at x is silent".to_owned(), ..silent(cluster) };
    assert_eq!(silent.to_string(), "c1 (for 12 s: x is silent)");
}
