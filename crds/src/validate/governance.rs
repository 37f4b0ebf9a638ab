//! Validation of the dispatch policies and the flow control of an object.

use std::collections::BTreeSet;
use std::time::Duration;

use tributary_apimachinery::duration;
use tributary_policy as policy;

use super::Problems;
use crate::patterns::{WAIT, matches_pattern};
use crate::{DispatchPolicy, FlowControl, FlowControlSchema, LimitBy, Queueing};

pub(super) struct Governance<'a> {
    /// The lists of policies, each with its scope.
    pub(super) policies: &'a [(policy::PolicyScope, &'a [DispatchPolicy])],
    pub(super) flow_control: &'a FlowControl,
    /// The endpoints that policies can select; `None` for the merged view, which has no endpoints.
    pub(super) endpoints: Option<&'a [String]>,
}

const SCHEMAS: &str = "spec.flowControl.flowControlSchemas";

/// The longest permitted `maxWait`. 60 s: most clients time out earlier.
const WAIT_MAX: Duration = Duration::from_secs(60);

/// The maximum number of hands (ordered selections of `handSize` queues): 2^60. With more hands, a 64-bit hash would
/// not select all hands with about equal probability. Source: the validation of `handSize` in kube-apiserver.
const HANDS_MAX: f64 = (1_u64 << 60) as f64;

pub(super) fn validate(governance: &Governance<'_>, problems: &mut Problems<'_>) {
    for (scope, policies) in governance.policies {
        list(governance, (*scope, policies), problems);
    }
    let is_cluster = governance.policies.iter().any(|(scope, _)| *scope == policy::PolicyScope::Cluster);
    let scope = if is_cluster { policy::PolicyScope::Cluster } else { policy::PolicyScope::MergedView };
    let named: BTreeSet<_> = governance
        .policies
        .iter()
        .flat_map(|(_, policies)| policies.iter())
        .filter_map(|policy| policy.flow_control_schema_name.as_ref())
        .collect();
    let schemas = &governance.flow_control.flow_control_schemas;
    for (index, schema) in schemas.iter().enumerate() {
        let path = format!("{SCHEMAS}[{index}]");
        if schemas[..index].iter().any(|other| other.name == schema.name) {
            let message =
                format!("{:?} is also the name of an earlier schema; give each schema a unique name", schema.name);
            problems.error(format!("{path}.name"), message);
        } else if !named.contains(&schema.name) {
            let message = format!(
                "no policy names {:?}, so the schema has no effect; name it in a policy, or remove it",
                schema.name
            );
            problems.warning(format!("{path}.name"), message);
        }
        flow_control_schema(schema, scope, &path, problems);
    }
}

/// Validates the policies of one list.
fn list(
    governance: &Governance<'_>,
    (scope, policies): (policy::PolicyScope, &[DispatchPolicy]),
    problems: &mut Problems<'_>,
) {
    let written: Vec<policy::Policy> = policies.iter().map(policy::Policy::from).collect();
    for policy::Finding { severity, path, message } in policy::examine(&written, scope) {
        match severity {
            policy::Severity::Error => problems.error(path, message),
            policy::Severity::Warning => problems.warning(path, message),
        }
    }
    for (index, policy) in policies.iter().enumerate() {
        let path = format!("{}[{index}]", scope.list().path());
        denial(policy, &path, problems);
        if let Some(name) = &policy.flow_control_schema_name {
            known_schema(name, governance.flow_control, &format!("{path}.flowControlSchemaName"), problems);
        }
        endpoint_subset(&policy.endpoints, governance.endpoints, &format!("{path}.endpoints"), problems);
    }
}

fn denial(policy: &DispatchPolicy, path: &str, problems: &mut Problems<'_>) {
    let Some(deny) = &policy.deny else { return };
    if deny.message.trim().is_empty() {
        problems.error(format!("{path}.deny.message"), "is empty; give the reason, and the remedy");
    }
    for (field, is_given) in [
        ("flowControlSchemaName", policy.flow_control_schema_name.is_some()),
        ("endpoints", !policy.endpoints.is_empty()),
    ] {
        if is_given {
            let message = format!(
                "is given together with {path}.deny, but a denied request reaches no endpoint; remove one of them"
            );
            problems.error(format!("{path}.{field}"), message);
        }
    }
}

fn known_schema(name: &str, flow_control: &FlowControl, path: &str, problems: &mut Problems<'_>) {
    let schemas = &flow_control.flow_control_schemas;
    if schemas.iter().any(|schema| schema.name == name) {
        return;
    }
    let remedy = match schemas.is_empty() {
        true => format!("the object has no schemas; add it to {SCHEMAS}"),
        false => {
            let names = schemas.iter().map(|schema| schema.name.as_str()).collect::<Vec<_>>().join(", ");
            format!("its schemas are {names}; name one of them, or add it to {SCHEMAS}")
        }
    };
    problems.error(path, format!("{name:?} is not a flow-control schema of this object; {remedy}"));
}

/// Checks that each entry of `chosen` is an endpoint of the cluster, and that no entry occurs twice.
pub(super) fn endpoint_subset(
    chosen: &[String],
    endpoints: Option<&[String]>,
    path: &str,
    problems: &mut Problems<'_>,
) {
    for (index, endpoint) in chosen.iter().enumerate() {
        let field = format!("{path}[{index}]");
        // The message omits an entry with `@`, because the text before `@` may be a password.
        let shown = if endpoint.contains('@') { "the entry".to_owned() } else { format!("{endpoint:?}") };
        match endpoints {
            None => problems.error(
                field,
                format!("{shown} is an endpoint of a single cluster; give it in a policy of that UpstreamCluster"),
            ),
            Some(endpoints) if !endpoints.contains(endpoint) => {
                let remedy = match endpoints.is_empty() {
                    true => "which is empty; add it there, or remove it here".to_owned(),
                    false => format!("which has {}; copy an entry exactly", endpoints.join(", ")),
                };
                problems.error(field, format!("{shown} is not in spec.endpoints, {remedy}"));
            }
            Some(_) if chosen[..index].contains(endpoint) => {
                problems.warning(field, format!("{shown} is listed twice; remove one entry"));
            }
            Some(_) => {}
        }
    }
}

fn flow_control_schema(
    schema: &FlowControlSchema,
    scope: policy::PolicyScope,
    path: &str,
    problems: &mut Problems<'_>,
) {
    let FlowControlSchema { name, exempt, max_requests_inflight, token_bucket } = schema;
    if name.is_empty() || !name.bytes().all(|byte| byte.is_ascii_graphic()) {
        let message =
            format!("{name:?} cannot be sent in a header; use only printable ASCII characters without spaces");
        problems.error(format!("{path}.name"), message);
    }
    let given: Vec<&str> = [
        ("exempt", exempt.is_some()),
        ("maxRequestsInflight", max_requests_inflight.is_some()),
        ("tokenBucket", token_bucket.is_some()),
    ]
    .into_iter()
    .filter_map(|(field, is_given)| is_given.then_some(field))
    .collect();
    if given.len() != 1 {
        let has = if given.is_empty() { "no limit".to_owned() } else { given.join(" and ") };
        problems.error(path, format!("has {has}; give exactly one of exempt, maxRequestsInflight and tokenBucket"));
    }
    if let Some(limit) = max_requests_inflight {
        let path = format!("{path}.maxRequestsInflight");
        limit_by(&limit.limit_by, scope, &path, problems);
        queueing(limit.queueing.as_ref(), &path, problems);
        if limit.max == 0 && limit.queueing.is_some() {
            problems.error(
                format!("{path}.queueing"),
                "has no effect with max 0, because no request is ever admitted; remove it",
            );
        }
    }
    if let Some(bucket) = token_bucket {
        let path = format!("{path}.tokenBucket");
        if let Some(burst) = bucket.burst.filter(|burst| *burst < bucket.qps) {
            let message = format!("{burst} is less than qps ({}); give at least qps, or remove burst", bucket.qps);
            problems.error(format!("{path}.burst"), message);
        }
        limit_by(&bucket.limit_by, scope, &path, problems);
        queueing(bucket.queueing.as_ref(), &path, problems);
    }
}

fn limit_by(by: &[LimitBy], scope: policy::PolicyScope, path: &str, problems: &mut Problems<'_>) {
    for (index, one) in by.iter().enumerate() {
        let field = format!("{path}.limitBy[{index}]");
        if by[..index].contains(one) {
            problems.warning(field, format!("{one:?} is listed twice; remove one entry"));
        } else if *one == LimitBy::Cluster && scope == policy::PolicyScope::Cluster {
            let message = "Cluster has no effect in an UpstreamCluster, whose schemas limit only requests to that cluster; remove it";
            problems.warning(field, message);
        } else if *one == LimitBy::Cluster {
            let message = "Cluster is not allowed in a MergedEndpoint, where a request counts once; remove it, and limit a single \
                           cluster by spec.flowControl.flowControlSchemas of its UpstreamCluster";
            problems.error(field, message);
        }
    }
}

/// Returns the number of hands (ordered selections of `hand_size` queues).
fn hands(queues: u16, hand_size: u8) -> f64 {
    (0..u16::from(hand_size)).map(|dealt| f64::from(queues.saturating_sub(dealt))).product()
}

fn queueing(queueing: Option<&Queueing>, path: &str, problems: &mut Problems<'_>) {
    let Some(Queueing { queues, hand_size, max_wait, .. }) = queueing else { return };
    if u16::from(*hand_size) > *queues {
        let message = format!("{hand_size} is more than queues ({queues}); give at most that number");
        problems.error(format!("{path}.queueing.handSize"), message);
    } else if hands(*queues, *hand_size) > HANDS_MAX {
        let message =
            format!("{hand_size} of {queues} queues have too many combinations for a 64-bit hash; give a lower number");
        problems.error(format!("{path}.queueing.handSize"), message);
    }
    match duration::parse(max_wait) {
        // The schema of a hub cluster accepts fewer duration units than Go's syntax. Files must follow the same rule.
        Ok(_) if !matches_pattern(max_wait, WAIT) => problems.error(
            format!("{path}.queueing.maxWait"),
            format!("{max_wait:?} must use only the units ms, s and m; give a duration such as \"1s\" or \"750ms\""),
        ),
        Ok(wait) if !wait.is_zero() && wait <= WAIT_MAX => {}
        Ok(_) => problems.error(
            format!("{path}.queueing.maxWait"),
            format!("{max_wait:?} is out of range; give a duration above 0 and at most {}s", WAIT_MAX.as_secs()),
        ),
        Err(error) => problems
            .error(format!("{path}.queueing.maxWait"), format!("{error}; give a duration such as \"1s\" or \"750ms\"")),
    }
}
