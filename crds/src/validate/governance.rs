//! Dispatch policies and flow control of one object, together.

use std::collections::BTreeSet;
use std::time::Duration;

use tributary_apimachinery::duration;
use tributary_policy as policy;

use super::Problems;
use crate::patterns::{WAIT, has_form};
use crate::{DispatchPolicy, FlowControl, FlowControlSchema, LimitBy, Queueing};

/// What of an object governs requests.
pub(super) struct Governance<'a> {
    /// The lists of policies, each with its scope.
    pub(super) policies: &'a [(policy::PolicyScope, &'a [DispatchPolicy])],
    pub(super) flow_control: &'a FlowControl,
    /// The endpoints that policies may choose among; `None` where there are none to choose among.
    pub(super) endpoints: Option<&'a [String]>,
}

const SCHEMAS: &str = "spec.flowControl.flowControlSchemas";

/// How long a request may be let wait: longer than that its client has given up.
const WAIT_MAX: Duration = Duration::from_secs(60);

/// How many hands of queues there may be: 2^60, of which a hash of 64 bits makes each about as likely as the others, as
/// in kube-apiserver's validation of `handSize`.
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
            let message = format!("{:?} is the name of an earlier schema, too; give each one of its own", schema.name);
            problems.error(format!("{path}.name"), message);
        } else if !named.contains(&schema.name) {
            let message =
                format!("{:?} is named by no policy, so it limits nothing; name it in one, or remove it", schema.name);
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
        problems.error(format!("{path}.deny.message"), "is empty; say why, and what to do instead");
    }
    for (field, is_given) in [
        ("flowControlSchemaName", policy.flow_control_schema_name.is_some()),
        ("endpoints", !policy.endpoints.is_empty()),
    ] {
        if is_given {
            let message = format!(
                "is given together with {path}.deny, and what is denied is sent nowhere; remove one of the two"
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
        true => format!("there are none; add it to {SCHEMAS}"),
        false => {
            let names = schemas.iter().map(|schema| schema.name.as_str()).collect::<Vec<_>>().join(", ");
            format!("there are {names}; name one of them, or add it to {SCHEMAS}")
        }
    };
    problems.error(path, format!("{name:?} is no flow-control schema of this object; {remedy}"));
}

/// Whether each of these is one of the endpoints, and once.
pub(super) fn endpoint_subset(
    chosen: &[String],
    endpoints: Option<&[String]>,
    path: &str,
    problems: &mut Problems<'_>,
) {
    for (index, endpoint) in chosen.iter().enumerate() {
        let field = format!("{path}[{index}]");
        // An address may hold a password where it is not one of those that were checked.
        let shown = if endpoint.contains('@') { "it".to_owned() } else { format!("{endpoint:?}") };
        match endpoints {
            None => problems.error(
                field,
                format!("{shown} is an endpoint of one cluster; give it to a policy of that UpstreamCluster"),
            ),
            Some(endpoints) if !endpoints.contains(endpoint) => {
                let remedy = match endpoints.is_empty() {
                    true => "which is empty; give the endpoints there, or remove it here".to_owned(),
                    false => format!("which are {}; write one of them as it stands there", endpoints.join(", ")),
                };
                problems.error(field, format!("{shown} is none of spec.endpoints, {remedy}"));
            }
            Some(_) if chosen[..index].contains(endpoint) => {
                problems.warning(field, format!("{shown} is given twice; remove one of them"));
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
            format!("{name:?} is no name that a header can carry; give letters, digits and signs without spaces");
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
        let has = if given.is_empty() { "nothing that it limits".to_owned() } else { given.join(" and ") };
        problems.error(path, format!("has {has}; give exactly one of exempt, maxRequestsInflight and tokenBucket"));
    }
    if let Some(limit) = max_requests_inflight {
        let path = format!("{path}.maxRequestsInflight");
        limit_by(&limit.limit_by, scope, &path, problems);
        queueing(limit.queueing.as_ref(), &path, problems);
        if limit.max == 0 && limit.queueing.is_some() {
            problems
                .error(format!("{path}.queueing"), "is given with max 0, and nobody would ever be let in; remove it");
        }
    }
    if let Some(bucket) = token_bucket {
        let path = format!("{path}.tokenBucket");
        if let Some(burst) = bucket.burst.filter(|burst| *burst < bucket.qps) {
            let message = format!("{burst} is less than qps, {}; give at least as many, or leave it out", bucket.qps);
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
            problems.warning(field, format!("{one:?} is given twice; remove one of them"));
        } else if *one == LimitBy::Cluster && scope == policy::PolicyScope::Cluster {
            let message =
                "Cluster has no effect: the schemas of an UpstreamCluster are of that cluster alone; remove it";
            problems.warning(field, message);
        } else if *one == LimitBy::Cluster {
            let message = "Cluster is not possible here: a request counts once, where it comes in; remove it, and give \
                           limits of one cluster as spec.flowControl.flowControlSchemas of its UpstreamCluster";
            problems.error(field, message);
        }
    }
}

/// In how many ways so many of these queues are dealt.
fn hands(queues: u16, hand_size: u8) -> f64 {
    (0..u16::from(hand_size)).map(|dealt| f64::from(queues.saturating_sub(dealt))).product()
}

fn queueing(queueing: Option<&Queueing>, path: &str, problems: &mut Problems<'_>) {
    let Some(Queueing { queues, hand_size, max_wait, .. }) = queueing else { return };
    if u16::from(*hand_size) > *queues {
        let message = format!("{hand_size} is more than queues, {queues}; give at most as many");
        problems.error(format!("{path}.queueing.handSize"), message);
    } else if hands(*queues, *hand_size) > HANDS_MAX {
        let message =
            format!("{hand_size} of {queues} queues make more hands than users can be told apart by; give fewer");
        problems.error(format!("{path}.queueing.handSize"), message);
    }
    match duration::parse(max_wait) {
        // A hub cluster takes less than Go does, and a file is refused for the same.
        Ok(_) if !has_form(max_wait, WAIT) => problems.error(
            format!("{path}.queueing.maxWait"),
            format!("{max_wait:?} is not written in ms, s and m; give a duration as \"1s\" or \"750ms\""),
        ),
        Ok(wait) if !wait.is_zero() && wait <= WAIT_MAX => {}
        Ok(_) => problems.error(
            format!("{path}.queueing.maxWait"),
            format!("{max_wait:?} is out of range; give more than nothing and at most {} s", WAIT_MAX.as_secs()),
        ),
        Err(error) => problems
            .error(format!("{path}.queueing.maxWait"), format!("{error}; give a duration as \"1s\" or \"750ms\"")),
    }
}
