//! Permit of a request in its flow-control schema. [`flow_control`](crate::flow_control) has the schemas.

use std::sync::Arc;

use http::Response;
use tributary_answers::refusal::{LimitRefusal, Refusal};
use tributary_apimachinery::Permit;
use tributary_fleet::discovery::MergedDiscovery;
use tributary_rights::User;
use tributary_sharing::body::{self, Body};

use crate::caller::Caller;
use crate::flow_control::{PassedSchema, attributes, is_served};
use crate::received::ReceivedRequest;

/// Permit of a request in its schema; empty without a schema.
pub(crate) struct SchemaPermit(Option<Permit>);

/// Admits a request, immediately or after waiting in the schema's queue. `merged_discovery` lists the served resources.
/// The answer's body keeps the returned permit. The caller also passes the permit on to the members, and to the tunnel
/// of an upgraded connection.
///
/// Cancellation is safe: the request leaves the queue.
///
/// # Errors
/// 429.
pub(crate) async fn acquire_schema_permit(
    schema: Option<&PassedSchema>,
    received: ReceivedRequest<'_>,
    user: &User,
    caller: &Caller,
    merged_discovery: &MergedDiscovery,
) -> Result<SchemaPermit, Refusal> {
    let Some(PassedSchema { schema, is_merged, .. }) = schema else { return Ok(SchemaPermit(None)) };
    let ReceivedRequest { info, may_switch, .. } = received;
    let authority = user.authority.name();
    let is_served = is_served(info, merged_discovery);
    let admitted = schema.admit(&attributes(info, is_served, user, &authority, caller)).await;
    let admitted = admitted.map_err(|refused| {
        let cluster = info.cluster.clone().filter(|_| !is_merged);
        LimitRefusal::FlowControl { cluster, refused }
    })?;
    let guard = Arc::new(admitted);
    // A request is admitted once.
    let _is_first = caller.admitted.set(Arc::clone(&guard));
    if let Some(upgrade) = caller.upgrade.as_ref().filter(|_| may_switch) {
        upgrade.permits.push(Permit::from_guard(Arc::clone(&guard)));
    }
    Ok(SchemaPermit(Some(Permit::from_guard(guard))))
}

impl SchemaPermit {
    /// Attaches the permit to the answer's body.
    pub(crate) fn attach_to_answer(self, answer: Result<Response<Body>, Refusal>) -> Result<Response<Body>, Refusal> {
        match self.0 {
            Some(permit) => answer.map(|answer| answer.map(|body| body::attach_permit(body, permit))),
            None => answer,
        }
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderMap;
    use tributary_answers::negotiate::Preferences;
    use tributary_apimachinery::{Door, RequestInfo};
    use tributary_flow_control::{Limited, MaxRequestsInflight, Schema, SchemaKind};
    use tributary_proxy::ClientUpgrade;

    use super::*;
    use crate::dispatch::SchemaName;
    use crate::flow_control::{ActiveSchemas, EntryPointSchemas, FlowSettings};

    /// Tests long-running requests of Kubernetes, and tunnels to an aggregated server.
    #[tokio::test]
    async fn upgraded_connection_keeps_its_flow_control_permits() {
        for path in [
            "/api/v1/namespaces/default/pods/web/exec",
            "/apis/subresources.kubevirt.io/v1/namespaces/default/virtualmachineinstances/vm/console",
        ] {
            keeps_its_place_and_what_it_had(path).await;
        }
    }

    async fn keeps_its_place_and_what_it_had(path: &str) {
        let limit = MaxRequestsInflight { max: 1, count_long_running: true };
        let kind = SchemaKind::MaxRequestsInflight(Limited { limit, by: Vec::new(), queueing: None });
        let schema = Schema { name: "one".into(), kind };
        let merged = EntryPointSchemas { all: Some(schema.name.clone()), schemas: vec![schema] };
        let settings = FlowSettings { merged, ..FlowSettings::default() };
        let places = ActiveSchemas::default().next(settings).unwrap();
        let info = RequestInfo::parse("GET", path, None).unwrap();
        let preferences = Preferences::from_headers(&HeaderMap::new(), None);
        let received = ReceivedRequest {
            info: &info,
            query: None,
            is_head: false,
            may_switch: true,
            door: Door::Direct,
            is_entry_path: false,
            preferences: &preferences,
        };
        let schema = places.schema_of(&info, &SchemaName::Undecided).unwrap();
        let (user, merged_discovery) = (User::named("test", "ann"), MergedDiscovery::default());
        let audited = Arc::new(());
        let upgrade = ClientUpgrade::new(hyper::upgrade::on(http::Request::new(())));
        upgrade.permits.push(Permit::from_guard(Arc::clone(&audited)));
        let mut caller = Caller::named("ann", None);
        caller.upgrade = Some(upgrade.clone());

        let of_answer = acquire_schema_permit(Some(schema), received, &user, &caller, &merged_discovery).await.unwrap();
        let tunnel = upgrade.permits;
        drop((of_answer, caller));
        let caller = Caller::named("ann", None);
        let refused = acquire_schema_permit(Some(schema), received, &user, &caller, &merged_discovery).await;
        assert!(refused.is_err(), "{path} is in use");
        assert_eq!(Arc::strong_count(&audited), 2);
        drop(tunnel);
        assert!(
            acquire_schema_permit(Some(schema), received, &user, &Caller::named("ann", None), &merged_discovery)
                .await
                .is_ok()
        );
        assert_eq!(Arc::strong_count(&audited), 1);
    }
}
