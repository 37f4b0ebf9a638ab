//! Printers of the group resource.k8s.io, and of pod groups of scheduling.k8s.io.

use jiff::Timestamp;
use serde::de::IgnoredAny;

use super::decode;
use super::metadata::{Condition, Metadata};
use crate::Row;
use crate::time::Time;
use crate::value::{ListValue, TextValue, parts};

parts! {
    struct ResourceClaim<'a> {
        metadata: Metadata<'a>,
        status: ResourceClaimStatus,
    }

    struct ResourceSlice<'a> {
        metadata: Metadata<'a>,
        spec: ResourceSliceSpec<'a>,
    }

    struct ResourceSliceSpec<'a> {
        node_name: TextValue<'a>,
        driver: TextValue<'a>,
        pool: ResourcePool<'a>,
    }

    struct ResourcePool<'a> {
        name: TextValue<'a>,
    }

    struct DeviceTaintRule<'a> {
        metadata: Metadata<'a>,
        spec: DeviceTaintRuleSpec<'a>,
    }

    struct DeviceTaintRuleSpec<'a> {
        taint: DeviceTaint<'a>,
    }

    struct DeviceTaint<'a> {
        key: TextValue<'a>,
        value: TextValue<'a>,
        effect: TextValue<'a>,
        time_added: Option<Time>,
    }

    struct ResourcePoolStatusRequest<'a> {
        metadata: Metadata<'a>,
        spec: ResourcePoolStatusRequestSpec<'a>,
        status: Option<ResourcePoolStatusRequestStatus<'a>>,
    }

    struct ResourcePoolStatusRequestSpec<'a> {
        driver: TextValue<'a>,
    }

    struct ResourcePoolStatusRequestStatus<'a> {
        conditions: ListValue<Condition<'a>>,
        pool_count: Option<i64>,
        pools: ListValue<PoolStatus>,
    }

    struct PodGroup<'a> {
        metadata: Metadata<'a>,
        spec: PodGroupSpec<'a>,
        status: PodGroupStatus<'a>,
    }

    struct PodGroupSpec<'a> {
        pod_group_template_ref: Option<PodGroupTemplateReference<'a>>,
        scheduling_policy: SchedulingPolicy,
    }

    struct PodGroupTemplateReference<'a> {
        workload: WorkloadReference<'a>,
    }

    struct WorkloadReference<'a> {
        workload_name: TextValue<'a>,
    }

    struct PodGroupStatus<'a> {
        conditions: ListValue<Condition<'a>>,
    }
}

parts! {
    struct ResourceClaimStatus {
        allocation: Option<IgnoredAny>,
        reserved_for: ListValue<IgnoredAny>,
    }

    struct PoolStatus {
        total_devices: i64,
        available_devices: i64,
        allocated_devices: i64,
        unavailable_devices: i64,
        validation_error: Option<IgnoredAny>,
    }

    struct SchedulingPolicy {
        gang: Option<IgnoredAny>,
    }
}

pub(super) fn resource_claim(object: &[u8], now: Timestamp, row: &mut Row) -> Result<(), serde_json::Error> {
    let claim: ResourceClaim<'_> = decode(object)?;
    let deleted = claim.metadata.deletion_timestamp.is_some();
    let state = match (&claim.status.allocation, claim.status.reserved_for.is_empty()) {
        (None, _) => (!deleted).then_some("pending"),
        (Some(_), true) => Some("allocated"),
        (Some(_), false) => Some("allocated,reserved"),
    };
    row.text(&claim.metadata.name);
    match (deleted, state) {
        (true, None) => row.text("deleted"),
        (true, Some(state)) => row.format(format_args!("deleted,{state}")),
        (false, state) => row.text(state.unwrap_or_default()),
    }
    row.format(format_args!("{}", claim.metadata.creation_timestamp.since(now)));
    Ok(())
}

pub(super) fn resource_slice(object: &[u8], now: Timestamp, row: &mut Row) -> Result<(), serde_json::Error> {
    let slice: ResourceSlice<'_> = decode(object)?;
    row.text(&slice.metadata.name);
    row.text(&slice.spec.node_name);
    row.text(&slice.spec.driver);
    row.text(&slice.spec.pool.name);
    row.format(format_args!("{}", slice.metadata.creation_timestamp.since(now)));
    Ok(())
}

pub(super) fn device_taint_rule(object: &[u8], now: Timestamp, row: &mut Row) -> Result<(), serde_json::Error> {
    let rule: DeviceTaintRule<'_> = decode(object)?;
    let taint = &rule.spec.taint;
    row.text(&rule.metadata.name);
    row.text(&taint.key);
    row.text(&taint.value);
    row.text(&taint.effect);
    match taint.time_added {
        Some(time) => row.format(format_args!("{}", time.since(now))),
        None => row.text(""),
    }
    row.format(format_args!("{}", rule.metadata.creation_timestamp.since(now)));
    Ok(())
}

pub(super) fn pool_status_request(object: &[u8], now: Timestamp, row: &mut Row) -> Result<(), serde_json::Error> {
    let request: ResourcePoolStatusRequest<'_> = decode(object)?;
    row.text(&request.metadata.name);
    row.text(&request.spec.driver);
    let answered = request.status.is_some();
    let status = request.status.unwrap_or_default();
    let outcome = status.conditions.iter().find(|c| c.is_true() && matches!(&*c.r#type, "Complete" | "Failed"));
    let failed = outcome.is_some_and(|condition| &*condition.r#type == "Failed");
    pool_sums(&status, failed || !answered, row);
    let (count, pools) = (status.pool_count.unwrap_or_default(), status.pools.len());
    row.number(count);
    match outcome {
        None => row.text("Pending"),
        Some(_) if failed => row.text("Failed"),
        Some(_) if count > i64::try_from(pools).unwrap_or(i64::MAX) => {
            row.format(format_args!("Complete ({pools}/{count} pools)"));
        }
        Some(_) => row.text("Complete"),
    }
    match outcome {
        Some(condition) if !failed => row.format(format_args!("{}", condition.last_transition_time.since(now))),
        _ => row.text("<none>"),
    }
    Ok(())
}

/// Writes five cells with sums over the resource pools, or with dashes if the sums are unknown.
fn pool_sums(status: &ResourcePoolStatusRequestStatus<'_>, unknown: bool, row: &mut Row) {
    let sums: [fn(&PoolStatus) -> i64; 5] = [
        |pool| pool.total_devices,
        |pool| pool.available_devices,
        |pool| pool.allocated_devices,
        |pool| pool.unavailable_devices,
        |pool| i64::from(pool.validation_error.is_some()),
    ];
    for of in sums {
        if unknown {
            row.text("-");
        } else {
            row.format(format_args!("{}", status.pools.iter().map(of).sum::<i64>()));
        }
    }
}

pub(super) fn pod_group(object: &[u8], now: Timestamp, row: &mut Row) -> Result<(), serde_json::Error> {
    let group: PodGroup<'_> = decode(object)?;
    // If several conditions have the same type, the last condition is used, as in kube-apiserver's map by type.
    let condition = |r#type: &str| group.status.conditions.iter().rfind(|c| &*c.r#type == r#type);
    let status = match (condition("DisruptionTarget"), condition("PodGroupScheduled")) {
        (Some(disruption), _) => &*disruption.reason,
        (None, Some(scheduled)) if scheduled.is_true() => "Scheduled",
        (None, Some(_)) => "Unschedulable",
        (None, None) => "Pending",
    };
    let workload = group.spec.pod_group_template_ref.as_ref();
    row.text(&group.metadata.name);
    row.text(if group.spec.scheduling_policy.gang.is_some() { "Gang" } else { "Basic" });
    row.text(workload.map_or("<none>", |template| &template.workload.workload_name));
    row.text(status);
    row.format(format_args!("{}", group.metadata.creation_timestamp.since(now)));
    Ok(())
}
