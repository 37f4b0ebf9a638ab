//! Printers of control-plane kinds: flow control, leases, priority classes and runtime classes, API services, storage
//! versions.

use jiff::Timestamp;

use super::decode;
use super::metadata::{Condition, Metadata};
use crate::Row;
use crate::value::{ListValue, TextValue, first_and_more, parts};

/// The maximum number of storage versions in a cell. If there are more versions, the cell ends with the number of the
/// remaining versions.
const SHOWN_MAX: usize = 3;

parts! {
    struct FlowSchema<'a> {
        metadata: Metadata<'a>,
        spec: FlowSchemaSpec<'a>,
        status: Conditions<'a>,
    }

    struct FlowSchemaSpec<'a> {
        priority_level_configuration: Name<'a>,
        matching_precedence: i64,
        distinguisher_method: Option<Distinguisher<'a>>,
    }

    struct Name<'a> {
        name: TextValue<'a>,
    }

    struct Distinguisher<'a> {
        r#type: TextValue<'a>,
    }

    struct Conditions<'a> {
        conditions: ListValue<Condition<'a>>,
    }

    struct PriorityLevelConfiguration<'a> {
        metadata: Metadata<'a>,
        spec: PriorityLevelConfigurationSpec<'a>,
    }

    struct PriorityLevelConfigurationSpec<'a> {
        r#type: TextValue<'a>,
        limited: Option<Limited>,
    }

    struct Lease<'a> {
        metadata: Metadata<'a>,
        spec: LeaseSpec<'a>,
    }

    struct LeaseSpec<'a> {
        holder_identity: TextValue<'a>,
    }

    struct LeaseCandidate<'a> {
        metadata: Metadata<'a>,
        spec: LeaseCandidateSpec<'a>,
    }

    struct LeaseCandidateSpec<'a> {
        lease_name: TextValue<'a>,
        binary_version: TextValue<'a>,
        emulation_version: TextValue<'a>,
    }

    struct PriorityClass<'a> {
        metadata: Metadata<'a>,
        value: i64,
        global_default: bool,
        preemption_policy: TextValue<'a>,
    }

    struct RuntimeClass<'a> {
        metadata: Metadata<'a>,
        handler: TextValue<'a>,
    }

    struct ApiService<'a> {
        metadata: Metadata<'a>,
        spec: ApiServiceSpec<'a>,
        status: Conditions<'a>,
    }

    struct ApiServiceSpec<'a> {
        service: Option<ServiceReference<'a>>,
    }

    struct ServiceReference<'a> {
        namespace: TextValue<'a>,
        name: TextValue<'a>,
    }

    struct StorageVersion<'a> {
        metadata: Metadata<'a>,
        status: StorageVersionStatus<'a>,
    }

    struct StorageVersionStatus<'a> {
        common_encoding_version: Option<TextValue<'a>>,
        storage_versions: ListValue<ServerStorageVersion<'a>>,
    }

    struct ServerStorageVersion<'a> {
        #[serde(rename = "apiServerID")]
        api_server_id: TextValue<'a>,
        encoding_version: TextValue<'a>,
    }

    struct StorageVersionMigration<'a> {
        metadata: Metadata<'a>,
        spec: StorageVersionMigrationSpec<'a>,
        status: Conditions<'a>,
    }

    struct StorageVersionMigrationSpec<'a> {
        resource: GroupResource<'a>,
    }

    struct GroupResource<'a> {
        group: TextValue<'a>,
        resource: TextValue<'a>,
    }
}

parts! {
    struct Limited {
        nominal_concurrency_shares: Option<i64>,
        limit_response: LimitResponse,
    }

    struct LimitResponse {
        queuing: Option<Queuing>,
    }

    struct Queuing {
        queues: i64,
        hand_size: i64,
        queue_length_limit: i64,
    }
}

pub(super) fn flow_schema(object: &[u8], now: Timestamp, row: &mut Row) -> Result<(), serde_json::Error> {
    let schema: FlowSchema<'_> = decode(object)?;
    let dangling = schema.status.conditions.iter().find(|condition| &*condition.r#type == "Dangling");
    row.text(&schema.metadata.name);
    row.text(&schema.spec.priority_level_configuration.name);
    row.number(schema.spec.matching_precedence);
    row.text(schema.spec.distinguisher_method.as_ref().map_or("<none>", |method| &method.r#type));
    row.format(format_args!("{}", schema.metadata.creation_timestamp.since(now)));
    row.text(dangling.map_or("?", |condition| &condition.status));
    Ok(())
}

pub(super) fn priority_level(object: &[u8], now: Timestamp, row: &mut Row) -> Result<(), serde_json::Error> {
    let level: PriorityLevelConfiguration<'_> = decode(object)?;
    let limited = level.spec.limited.as_ref();
    let queuing = limited.and_then(|limited| limited.limit_response.queuing.as_ref());
    let shares = limited.map(|limited| limited.nominal_concurrency_shares.unwrap_or_default());
    let cells = [
        shares,
        queuing.map(|queuing| queuing.queues),
        queuing.map(|queuing| queuing.hand_size),
        queuing.map(|queuing| queuing.queue_length_limit),
    ];
    row.text(&level.metadata.name);
    row.text(&level.spec.r#type);
    for cell in cells {
        match cell {
            Some(cell) => row.number(cell),
            None => row.text("<none>"),
        }
    }
    row.format(format_args!("{}", level.metadata.creation_timestamp.since(now)));
    Ok(())
}

pub(super) fn lease(object: &[u8], now: Timestamp, row: &mut Row) -> Result<(), serde_json::Error> {
    let lease: Lease<'_> = decode(object)?;
    row.text(&lease.metadata.name);
    row.text(&lease.spec.holder_identity);
    row.format(format_args!("{}", lease.metadata.creation_timestamp.since(now)));
    Ok(())
}

pub(super) fn lease_candidate(object: &[u8], now: Timestamp, row: &mut Row) -> Result<(), serde_json::Error> {
    let candidate: LeaseCandidate<'_> = decode(object)?;
    row.text(&candidate.metadata.name);
    row.text(&candidate.spec.lease_name);
    row.text(&candidate.spec.binary_version);
    row.text(&candidate.spec.emulation_version);
    row.format(format_args!("{}", candidate.metadata.creation_timestamp.since(now)));
    Ok(())
}

pub(super) fn priority_class(object: &[u8], now: Timestamp, row: &mut Row) -> Result<(), serde_json::Error> {
    let class: PriorityClass<'_> = decode(object)?;
    row.text(&class.metadata.name);
    row.number(class.value);
    row.boolean(class.global_default);
    row.format(format_args!("{}", class.metadata.creation_timestamp.since(now)));
    row.text(&class.preemption_policy);
    Ok(())
}

pub(super) fn runtime_class(object: &[u8], now: Timestamp, row: &mut Row) -> Result<(), serde_json::Error> {
    let class: RuntimeClass<'_> = decode(object)?;
    row.text(&class.metadata.name);
    row.text(&class.handler);
    row.format(format_args!("{}", class.metadata.creation_timestamp.since(now)));
    Ok(())
}

/// Prints an APIService like `k8s.io/kube-aggregator/pkg/registry/apiservice/etcd/etcd.go`.
pub(super) fn api_service(object: &[u8], now: Timestamp, row: &mut Row) -> Result<(), serde_json::Error> {
    let service: ApiService<'_> = decode(object)?;
    row.text(&service.metadata.name);
    match &service.spec.service {
        Some(reference) => row.format(format_args!("{}/{}", reference.namespace, reference.name)),
        None => row.text("Local"),
    }
    match service.status.conditions.iter().find(|condition| &*condition.r#type == "Available") {
        None => row.text("Unknown"),
        Some(condition) if condition.is_true() || condition.reason.is_empty() => row.text(&condition.status),
        Some(condition) => row.format(format_args!("{} ({})", condition.status, condition.reason)),
    }
    row.format(format_args!("{}", service.metadata.creation_timestamp.since(now)));
    Ok(())
}

pub(super) fn storage_version(object: &[u8], now: Timestamp, row: &mut Row) -> Result<(), serde_json::Error> {
    let version: StorageVersion<'_> = decode(object)?;
    let servers: Vec<String> = version
        .status
        .storage_versions
        .iter()
        .map(|server| format!("{}={}", server.api_server_id, server.encoding_version))
        .collect();
    row.text(&version.metadata.name);
    row.text(version.status.common_encoding_version.as_deref().unwrap_or("<unset>"));
    row.text(&first_and_more(&servers, SHOWN_MAX, ",", "<unset>"));
    row.format(format_args!("{}", version.metadata.creation_timestamp.since(now)));
    Ok(())
}

pub(super) fn storage_version_migration(
    object: &[u8],
    _now: Timestamp,
    row: &mut Row,
) -> Result<(), serde_json::Error> {
    let migration: StorageVersionMigration<'_> = decode(object)?;
    let GroupResource { group, resource } = &migration.spec.resource;
    row.text(&migration.metadata.name);
    row.format(format_args!("{resource}{}{group}", if group.is_empty() { "" } else { "." }));
    let status = migration
        .status
        .conditions
        .iter()
        .rfind(|condition| condition.is_true() && matches!(&*condition.r#type, "Running" | "Failed" | "Succeeded"));
    row.text(status.map_or("Unknown", |condition| &condition.r#type));
    Ok(())
}
