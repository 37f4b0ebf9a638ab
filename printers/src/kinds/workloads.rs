//! Printers of kinds that own pods, and of related kinds: apps, replication controllers, pod templates, disruption
//! budgets.

use jiff::Timestamp;

use super::decode;
use super::metadata::{Metadata, PodTemplateSpec};
use crate::Row;
use crate::selector::{StructuredLabelSelector, format_label_selector, format_labels, selector_text};
use crate::time::Time;
use crate::value::{Labels, ListValue, TextOrNumber, TextValue, parts};

type Printed = Result<(), serde_json::Error>;

parts! {
    struct PodTemplate<'a> {
        metadata: Metadata<'a>,
        template: PodTemplateSpec<'a>,
    }

    struct ReplicationController<'a> {
        metadata: Metadata<'a>,
        spec: ReplicationControllerSpec<'a>,
        status: ReplicaCounts,
    }

    struct ReplicationControllerSpec<'a> {
        template: Option<PodTemplateSpec<'a>>,
        replicas: i64,
        selector: Labels<'a>,
    }

    /// A ReplicaSet, Deployment, StatefulSet or DaemonSet.
    struct Workload<'a> {
        metadata: Metadata<'a>,
        spec: WorkloadSpec<'a>,
        status: ReplicaCounts,
    }

    struct WorkloadSpec<'a> {
        template: PodTemplateSpec<'a>,
        replicas: i64,
        selector: Option<StructuredLabelSelector<'a>>,
    }

    struct ControllerRevision<'a> {
        metadata: OwnedMetadata<'a>,
        revision: i64,
    }

    struct OwnedMetadata<'a> {
        name: TextValue<'a>,
        creation_timestamp: Time,
        owner_references: ListValue<ControllerReference<'a>>,
    }

    struct ControllerReference<'a> {
        api_version: TextValue<'a>,
        kind: TextValue<'a>,
        name: TextValue<'a>,
        controller: Option<bool>,
    }

    struct PodDisruptionBudget<'a> {
        metadata: Metadata<'a>,
        spec: PodDisruptionBudgetSpec<'a>,
        status: PodDisruptionBudgetStatus,
    }

    struct PodDisruptionBudgetSpec<'a> {
        min_available: Option<TextOrNumber<'a>>,
        max_unavailable: Option<TextOrNumber<'a>>,
    }

    struct Scale<'a> {
        metadata: Metadata<'a>,
        spec: ReplicaCounts,
        status: ReplicaCounts,
    }
}

parts! {
    struct ReplicaCounts {
        replicas: i64,
        ready_replicas: i64,
        updated_replicas: i64,
        available_replicas: i64,
        desired_number_scheduled: i64,
        current_number_scheduled: i64,
        number_ready: i64,
        updated_number_scheduled: i64,
        number_available: i64,
    }

    struct PodDisruptionBudgetStatus {
        disruptions_allowed: i64,
    }
}

pub(super) fn pod_template(object: &[u8], _now: Timestamp, row: &mut Row) -> Printed {
    let template: PodTemplate<'_> = decode(object)?;
    row.text(&template.metadata.name);
    row.text(&template.template.names());
    row.text(&template.template.images());
    row.text(&format_labels(&template.template.metadata.labels));
    Ok(())
}

pub(super) fn replication_controller(object: &[u8], now: Timestamp, row: &mut Row) -> Printed {
    let controller: ReplicationController<'_> = decode(object)?;
    row.text(&controller.metadata.name);
    row.number(controller.spec.replicas);
    row.number(controller.status.replicas);
    row.number(controller.status.ready_replicas);
    row.format(format_args!("{}", controller.metadata.creation_timestamp.since(now)));
    let template = controller.spec.template.unwrap_or_default();
    row.text(&template.names());
    row.text(&template.images());
    row.text(&format_labels(&controller.spec.selector));
    Ok(())
}

pub(super) fn replica_set(object: &[u8], now: Timestamp, row: &mut Row) -> Printed {
    let set: Workload<'_> = decode(object)?;
    row.text(&set.metadata.name);
    row.number(set.spec.replicas);
    row.number(set.status.replicas);
    row.number(set.status.ready_replicas);
    row.format(format_args!("{}", set.metadata.creation_timestamp.since(now)));
    containers_and_selector(&set.spec, row);
    Ok(())
}

pub(super) fn deployment(object: &[u8], now: Timestamp, row: &mut Row) -> Printed {
    let deployment: Workload<'_> = decode(object)?;
    row.text(&deployment.metadata.name);
    row.format(format_args!("{}/{}", deployment.status.ready_replicas, deployment.spec.replicas));
    row.number(deployment.status.updated_replicas);
    row.number(deployment.status.available_replicas);
    row.format(format_args!("{}", deployment.metadata.creation_timestamp.since(now)));
    row.text(&deployment.spec.template.names());
    row.text(&deployment.spec.template.images());
    // For a Deployment, an empty selector gives an empty text, and an invalid selector `<invalid>`. Other kinds show
    // `<none>` and `<error>`.
    row.text(selector_text(deployment.spec.selector.as_ref()).as_deref().unwrap_or("<invalid>"));
    Ok(())
}

pub(super) fn stateful_set(object: &[u8], now: Timestamp, row: &mut Row) -> Printed {
    let set: Workload<'_> = decode(object)?;
    row.text(&set.metadata.name);
    row.format(format_args!("{}/{}", set.status.ready_replicas, set.spec.replicas));
    row.format(format_args!("{}", set.metadata.creation_timestamp.since(now)));
    row.text(&set.spec.template.names());
    row.text(&set.spec.template.images());
    Ok(())
}

pub(super) fn daemon_set(object: &[u8], now: Timestamp, row: &mut Row) -> Printed {
    let set: Workload<'_> = decode(object)?;
    let status = &set.status;
    row.text(&set.metadata.name);
    for number in [
        status.desired_number_scheduled,
        status.current_number_scheduled,
        status.number_ready,
        status.updated_number_scheduled,
        status.number_available,
    ] {
        row.number(number);
    }
    row.text(&format_labels(&set.spec.template.spec.node_selector));
    row.format(format_args!("{}", set.metadata.creation_timestamp.since(now)));
    containers_and_selector(&set.spec, row);
    Ok(())
}

fn containers_and_selector(spec: &WorkloadSpec<'_>, row: &mut Row) {
    row.text(&spec.template.names());
    row.text(&spec.template.images());
    row.text(&format_label_selector(spec.selector.as_ref()));
}

pub(super) fn controller_revision(object: &[u8], now: Timestamp, row: &mut Row) -> Printed {
    let revision: ControllerRevision<'_> = decode(object)?;
    let metadata = &revision.metadata;
    row.text(&metadata.name);
    match metadata.owner_references.iter().find(|owner| owner.controller == Some(true)) {
        None => row.text("<none>"),
        Some(owner) => {
            let kind = owner.kind.to_lowercase();
            match owner.api_version.split_once('/') {
                Some((group, _)) => row.format(format_args!("{kind}.{}/{}", group.to_lowercase(), owner.name)),
                None if kind.is_empty() => row.text(&owner.name),
                None => row.format(format_args!("{kind}/{}", owner.name)),
            }
        }
    }
    row.number(revision.revision);
    row.format(format_args!("{}", metadata.creation_timestamp.since(now)));
    Ok(())
}

pub(super) fn pod_disruption_budget(object: &[u8], now: Timestamp, row: &mut Row) -> Printed {
    let budget: PodDisruptionBudget<'_> = decode(object)?;
    row.text(&budget.metadata.name);
    for limit in [&budget.spec.min_available, &budget.spec.max_unavailable] {
        match limit {
            Some(limit) => row.format(format_args!("{limit}")),
            None => row.text("N/A"),
        }
    }
    row.number(budget.status.disruptions_allowed);
    row.format(format_args!("{}", budget.metadata.creation_timestamp.since(now)));
    Ok(())
}

pub(super) fn scale(object: &[u8], now: Timestamp, row: &mut Row) -> Printed {
    let scale: Scale<'_> = decode(object)?;
    row.text(&scale.metadata.name);
    row.number(scale.spec.replicas);
    row.number(scale.status.replicas);
    row.format(format_args!("{}", scale.metadata.creation_timestamp.since(now)));
    Ok(())
}
