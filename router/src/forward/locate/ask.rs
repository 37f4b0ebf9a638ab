//! The question where an object is, put to members that are asked live.

use std::sync::Arc;

use http::StatusCode;
use tributary_apimachinery::{ObjectDecodeError, ObjectDecoder};
use tributary_fleet::topology::Cluster;

use crate::forward::ask::{Question, Reply, ask_each};
use crate::located::Located;

/// Asks these clusters where an object is.
pub(super) async fn ask_clusters(clusters: Vec<Arc<Cluster>>, question: Question) -> Located {
    let mut replies = ask_each(clusters, question).await;
    replies.sort_by(|(first, _), (second, _)| first.name().cmp(second.name()));
    let mut located = Located::default();
    for (cluster, reply) in replies {
        match reply {
            Reply::Answer(StatusCode::NOT_FOUND, ..) => {}
            Reply::Answer(StatusCode::OK, text, room) => match ObjectDecoder::for_forwarding().decode(&text) {
                Ok(object) => located.add(cluster, Some(Arc::new(object)), room),
                Err(ObjectDecodeError::Missing(_)) => located.add(cluster, None, room),
                Err(error) => located.not_told(&cluster, format!("its answer cannot be read: {error}")),
            },
            Reply::Forbidden(refusal) => {
                located.forbidden.push(cluster.name().clone());
                located.denied = Some(refusal);
            }
            Reply::Answer(code, ..) => located.not_told(&cluster, format!("it answered {code}")),
            Reply::Unanswered(cause) => located.not_told(&cluster, cause),
            Reply::NotPut(why) => located.not_asked(&cluster, why),
        }
    }
    located
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;
    use prometheus_client::metrics::counter::Counter;
    use tokio::time::timeout;

    use super::*;
    use crate::caller::Caller;
    use crate::forward::ask::Patience;
    use crate::{ClusterAuthorization, MemberRules};
    use std::time::Duration;
    use tributary_apimachinery::ClusterName;
    use tributary_fleet::topology::{ClusterAddress, ClusterSetup, MemberShareMetrics, MemberUnreadBytes};
    use tributary_sharing::body::WHOLE_BODY_BYTES_MAX;
    use tributary_sharing::flow::fair_share::{FairShare, ShareMetrics};

    #[tokio::test(start_paused = true)]
    async fn who_was_not_asked_is_not_known() {
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
        while let Ok(turn) = timeout(within, cluster.question(caller.holder)).await {
            turns.push(turn);
        }
        let question = Question {
            path: "/api".into(),
            review: None,
            accept: HeaderValue::from_static("application/json"),
            caller,
            held_bytes: FairShare::new("bytes", WHOLE_BODY_BYTES_MAX, ShareMetrics::default()),
            answer_bytes_max: WHOLE_BODY_BYTES_MAX,
            patience: Patience::Each(within),
            put: Counter::default(),
        };
        let located = ask_clusters(vec![cluster], question).await;
        assert_eq!(located.unknown, [name]);
        let said = located.not_put.map(|refusal| refusal.status().code);
        assert_eq!(said, Some(429));
    }
}
