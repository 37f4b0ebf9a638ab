//! Lookup of an object by name in clusters.

use std::sync::Arc;
use std::time::Duration;

use http::{HeaderValue, StatusCode};
use tributary_apimachinery::{ObjectDecodeError, ObjectDecoder, Verb};
use tributary_fleet::metrics::LookupSubject;
use tributary_fleet::topology::Cluster;
use tributary_sharing::body::WHOLE_BODY_BYTES_MAX;

use super::answers::{Answers, FoundObject, LookupKey};
use crate::forward::lookup::{LookupRequest, LookupTimeout, Reply, look_up_in_each};
use crate::request::ClientRequest;

/// Time limit of a lookup in a cluster whose objects memory lacks.
pub(super) const LOOKUP_TIMEOUT: Duration = Duration::from_secs(3);

/// Looks up the object in each chosen cluster that serves the resource, in the client's name. Tributary always sends a
/// new lookup, and uses no earlier answer. A cluster that does not answer in time is unknown.
pub(super) async fn look_up_object(
    request: ClientRequest<'_>,
    within: Duration,
    is_chosen: impl Fn(&Arc<Cluster>) -> bool,
) -> Answers {
    let ClientRequest { router, caller, resource, .. } = request;
    let clusters = request.serving().filter_map(|name| request.cluster(name)).filter(is_chosen);
    let clusters: Vec<_> = clusters.collect();
    let mut path = object_path(request);
    if is_subresource_alone(request) {
        let is_read = request.info.verb == Verb::Get;
        match resource.subresource.as_deref().filter(|_| is_read && clusters.len() > 1) {
            Some(below) => path = format!("{path}/{below}"),
            None => {
                let found = clusters.into_iter().map(|cluster| FoundObject { cluster, object: None }).collect();
                return Answers { found, ..Answers::default() };
            }
        }
    }
    let key = LookupKey {
        share_key: caller.share_key,
        path: path.into(),
        caller: caller.key(),
        clusters: clusters.iter().map(|cluster| cluster.name().clone()).collect(),
        within,
    };
    let put = || {
        let lookup = LookupRequest {
            path: Arc::clone(&key.path),
            review: None,
            accept: HeaderValue::from_static("application/json"),
            caller: caller.for_shared_lookup(),
            held_bytes: Arc::clone(router.held_bytes()),
            answer_bytes_max: WHOLE_BODY_BYTES_MAX,
            timeout_policy: LookupTimeout::Each(within),
            put: router.metrics().lookups(LookupSubject::Name),
        };
        collect_answers(clusters, lookup)
    };
    router.locations().run_or_join(key.clone(), put, Answers::is_nowhere).await
}

/// Looks up the object like [`look_up_object`]. In addition, clusters that may serve the resource without listing it
/// are unknown, and so are clusters whose discovery does not describe the version.
pub(super) async fn look_up_object_everywhere(
    request: ClientRequest<'_>,
    within: Duration,
    is_chosen: impl Fn(&Arc<Cluster>) -> bool,
) -> Answers {
    let mut answers = look_up_object(request, within, is_chosen).await;
    let undescribed = request.undescribed();
    answers.unknown.extend(request.may_serve().iter().map(|cluster| cluster.name().clone()));
    answers.unknown.extend(undescribed.iter().map(|failure| failure.cluster.clone()));
    answers.failures.extend(undescribed);
    answers
}

fn object_path(request: ClientRequest<'_>) -> String {
    let escaped = |text: &str| percent_encoding::utf8_percent_encode(text, PATH_SEGMENT).to_string();
    let resource = request.resource;
    let mut path = resource.resource.path(resource.namespace.as_deref().map(escaped).as_deref());
    path.push('/');
    path.push_str(&escaped(resource.name.as_deref().unwrap_or_default()));
    path
}

/// Returns whether a request is for a subresource whose object cannot be read: servers of custom metrics and of virtual
/// machines list only subresources. Each cluster that serves the subresource may have the object, so a read tries
/// several clusters.
fn is_subresource_alone(request: ClientRequest<'_>) -> bool {
    request.resource.subresource.is_some()
        && !request.resource.resource.is_built_in()
        && !request.served.description.has_verb("get")
}

/// Sends the lookup to the clusters, and sorts their answers by the clusters' names.
async fn collect_answers(clusters: Vec<Arc<Cluster>>, lookup: LookupRequest) -> Answers {
    let mut replies = look_up_in_each(clusters, lookup).await;
    replies.sort_by(|(first, _), (second, _)| first.name().cmp(second.name()));
    let mut answers = Answers::default();
    for (cluster, reply) in replies {
        match reply {
            Reply::Answer(StatusCode::NOT_FOUND, ..) => {}
            Reply::Answer(StatusCode::OK, text, reservation) => match ObjectDecoder::for_forwarding().decode(&text) {
                Ok(object) => answers.add_object(cluster, Some(Arc::new(object)), reservation),
                Err(ObjectDecodeError::Missing(_)) => answers.add_object(cluster, None, reservation),
                Err(error) => answers.add_unknown(&cluster, format!("the answer cannot be read: {error}")),
            },
            Reply::Forbidden(refusal) => {
                answers.forbidden.push(cluster.name().clone());
                answers.denied = Some(refusal);
            }
            Reply::Answer(code, ..) => answers.add_unknown(&cluster, format!("the cluster answered {code}")),
            Reply::Unanswered(cause) => answers.add_unknown(&cluster, cause),
            Reply::NotSent(why) => answers.add_not_sent(&cluster, why),
        }
    }
    answers
}

/// Characters that need an escape in a segment of a path (RFC 3986 `pchar`). Names of RBAC objects may contain such
/// characters.
const PATH_SEGMENT: &percent_encoding::AsciiSet = &percent_encoding::CONTROLS
    .add(b' ')
    .add(b'"')
    .add(b'#')
    .add(b'%')
    .add(b'/')
    .add(b'<')
    .add(b'>')
    .add(b'?')
    .add(b'\\')
    .add(b'`')
    .add(b'{')
    .add(b'}');

#[cfg(test)]
mod tests {
    use prometheus_client::metrics::counter::Counter;
    use tokio::time::timeout;

    use super::*;
    use crate::caller::Caller;

    use crate::{ClusterAuthorization, MemberRules};

    use tributary_apimachinery::ClusterName;
    use tributary_fleet::topology::{ClusterAddress, ClusterSetup, MemberShareMetrics, MemberUnreadBytes};

    use tributary_sharing::flow::fair_semaphore::{FairSemaphore, ShareMetrics};

    #[tokio::test(start_paused = true)]
    async fn cluster_that_got_no_lookup_is_treated_as_unknown() {
        let name = ClusterName::new("a").unwrap();
        let setup = ClusterSetup {
            name: name.clone(),
            client: Err("a test".to_owned()),
            client_generation: 0,
            address: ClusterAddress::from_description(""),
            index: None,
            impersonation: MemberRules::default(),
            authorization: ClusterAuthorization::Auto,
        };
        let cluster = Cluster::new(
            setup,
            Default::default(),
            &Arc::default(),
            &MemberUnreadBytes::default(),
            &MemberShareMetrics::default(),
        );
        let caller = Caller::named("owner", None);
        let within = Duration::from_secs(3);
        let mut turns = Vec::new();
        while let Ok(body_permit) = timeout(within, cluster.lookup(caller.share_key)).await {
            turns.push(body_permit);
        }
        let lookup = LookupRequest {
            path: "/api".into(),
            review: None,
            accept: HeaderValue::from_static("application/json"),
            caller,
            held_bytes: FairSemaphore::new("bytes", WHOLE_BODY_BYTES_MAX, ShareMetrics::default()),
            answer_bytes_max: WHOLE_BODY_BYTES_MAX,
            timeout_policy: LookupTimeout::Each(within),
            put: Counter::default(),
        };
        let answers = collect_answers(vec![cluster], lookup).await;
        assert_eq!(answers.unknown, [name]);
        let code = answers.not_sent.map(|refusal| refusal.status().code);
        assert_eq!(code, Some(429));
    }
}
