//! Printers of the core group, except pods, services and volumes.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::fmt::Write;

use jiff::Timestamp;
use serde::de::IgnoredAny;

use super::decode;
use super::metadata::{Condition, FullMetadata, Metadata, MetadataOnly};
use crate::Row;
use crate::value::{JoinedTexts, ListValue, Map, Quantity, TextOrNumber, TextValue, parts};

parts! {
    struct Node<'a> {
        metadata: FullMetadata<'a>,
        spec: NodeSpec,
        status: NodeStatus<'a>,
    }

    struct NodeStatus<'a> {
        conditions: ListValue<Condition<'a>>,
        addresses: ListValue<NodeAddress<'a>>,
        node_info: NodeSystemInfo<'a>,
    }

    struct NodeAddress<'a> {
        r#type: TextValue<'a>,
        address: TextValue<'a>,
    }

    struct NodeSystemInfo<'a> {
        kubelet_version: TextValue<'a>,
        os_image: TextValue<'a>,
        kernel_version: TextValue<'a>,
        container_runtime_version: TextValue<'a>,
        architecture: TextValue<'a>,
    }

    struct Namespace<'a> {
        metadata: Metadata<'a>,
        status: NamespaceStatus<'a>,
    }

    struct NamespaceStatus<'a> {
        phase: TextValue<'a>,
    }

    struct ConfigMap<'a> {
        metadata: Metadata<'a>,
        data: Map<'a, IgnoredAny>,
        binary_data: Map<'a, IgnoredAny>,
    }

    struct Secret<'a> {
        metadata: Metadata<'a>,
        r#type: TextValue<'a>,
        data: Map<'a, IgnoredAny>,
    }

    struct ComponentStatus<'a> {
        metadata: Metadata<'a>,
        conditions: ListValue<ComponentCondition<'a>>,
    }

    struct ComponentCondition<'a> {
        r#type: TextValue<'a>,
        status: TextValue<'a>,
        message: TextValue<'a>,
        error: TextValue<'a>,
    }

    struct ResourceQuota<'a> {
        metadata: Metadata<'a>,
        status: ResourceQuotaStatus<'a>,
    }

    struct ResourceQuotaStatus<'a> {
        hard: Map<'a, TextOrNumber<'a>>,
        used: Map<'a, TextOrNumber<'a>>,
    }
}

parts! {
    struct NodeSpec {
        unschedulable: bool,
    }
}

pub(super) fn node(object: &[u8], now: Timestamp, row: &mut Row) -> Result<(), serde_json::Error> {
    let node: Node<'_> = decode(object)?;
    let info = &node.status.node_info;
    row.text(&node.metadata.name);
    row.format(format_args!("{}", JoinedTexts(",", node_status(&node))));
    row.text_or(&roles(&node), "<none>");
    row.format(format_args!("{}", node.metadata.creation_timestamp.since(now)));
    row.text(&info.kubelet_version);
    for r#type in ["InternalIP", "ExternalIP"] {
        let address = node.status.addresses.iter().find(|address| &*address.r#type == r#type);
        row.text(address.map_or("<none>", |address| &address.address));
    }
    row.text_or(&info.os_image, "<unknown>");
    let kernel = if info.kernel_version.is_empty() { "<unknown>" } else { &info.kernel_version };
    if info.architecture.is_empty() {
        row.text(kernel);
    } else {
        row.format(format_args!("{kernel} ({})", info.architecture));
    }
    row.text_or(&info.container_runtime_version, "<unknown>");
    Ok(())
}

fn node_status(node: &Node<'_>) -> Vec<&'static str> {
    // If several conditions have the same type, the last condition is used, as in kube-apiserver's map by type.
    let ready = node.status.conditions.iter().rfind(|condition| &*condition.r#type == "Ready");
    let mut status = vec![match ready {
        Some(condition) if condition.is_true() => "Ready",
        Some(_) => "NotReady",
        None => "Unknown",
    }];
    if node.spec.unschedulable {
        status.push("SchedulingDisabled");
    }
    status
}

/// Returns the node's roles from its labels, sorted and without duplicates.
fn roles(node: &Node<'_>) -> String {
    let mut roles = BTreeSet::new();
    for (key, value) in node.metadata.labels.iter() {
        let role = match key.strip_prefix("node-role.kubernetes.io/") {
            Some(role) => role,
            None if key == "kubernetes.io/role" => value,
            None => continue,
        };
        if !role.is_empty() {
            roles.insert(role);
        }
    }
    JoinedTexts(",", &roles).to_string()
}

pub(super) fn namespace(object: &[u8], now: Timestamp, row: &mut Row) -> Result<(), serde_json::Error> {
    let namespace: Namespace<'_> = decode(object)?;
    row.text(&namespace.metadata.name);
    row.text(&namespace.status.phase);
    row.format(format_args!("{}", namespace.metadata.creation_timestamp.since(now)));
    Ok(())
}

pub(super) fn config_map(object: &[u8], now: Timestamp, row: &mut Row) -> Result<(), serde_json::Error> {
    let map: ConfigMap<'_> = decode(object)?;
    row.text(&map.metadata.name);
    row.number(i64::try_from(map.data.len() + map.binary_data.len()).unwrap_or(i64::MAX));
    row.format(format_args!("{}", map.metadata.creation_timestamp.since(now)));
    Ok(())
}

pub(super) fn secret(object: &[u8], now: Timestamp, row: &mut Row) -> Result<(), serde_json::Error> {
    let secret: Secret<'_> = decode(object)?;
    row.text(&secret.metadata.name);
    row.text(&secret.r#type);
    row.number(i64::try_from(secret.data.len()).unwrap_or(i64::MAX));
    row.format(format_args!("{}", secret.metadata.creation_timestamp.since(now)));
    Ok(())
}

pub(super) fn component_status(object: &[u8], _now: Timestamp, row: &mut Row) -> Result<(), serde_json::Error> {
    let status: ComponentStatus<'_> = decode(object)?;
    row.text(&status.metadata.name);
    match status.conditions.iter().find(|condition| &*condition.r#type == "Healthy") {
        Some(condition) => {
            row.text(if &*condition.status == "True" { "Healthy" } else { "Unhealthy" });
            row.text(&condition.message);
            row.text(&condition.error);
        }
        None => {
            row.text("Unknown");
            row.text("");
            row.text("");
        }
    }
    Ok(())
}

pub(super) fn resource_quota(object: &[u8], now: Timestamp, row: &mut Row) -> Result<(), serde_json::Error> {
    let quota: ResourceQuota<'_> = decode(object)?;
    let (mut requests, mut limits) = (String::new(), String::new());
    for (resource, hard) in quota.status.hard.iter() {
        let cell = if resource.starts_with("limits.") { &mut limits } else { &mut requests };
        let comma = if cell.is_empty() { "" } else { ", " };
        let used = Quantity(quota.status.used.get(resource));
        // Writing to memory cannot fail.
        let _ = write!(cell, "{comma}{resource}: {used}/{hard}");
    }
    row.text(&quota.metadata.name);
    row.text(&requests);
    row.text(&limits);
    row.format(format_args!("{}", quota.metadata.creation_timestamp.since(now)));
    Ok(())
}

pub(super) fn name_and_age(object: &[u8], now: Timestamp, row: &mut Row) -> Result<(), serde_json::Error> {
    let object: MetadataOnly<'_> = decode(object)?;
    row.text(&object.metadata.name);
    row.format(format_args!("{}", object.metadata.creation_timestamp.since(now)));
    Ok(())
}

/// Prints a kind without a specific printer, like `k8s.io/apiserver/pkg/registry/rest/table.go`.
pub(super) fn name_and_created_at(object: &[u8], _now: Timestamp, row: &mut Row) -> Result<(), serde_json::Error> {
    let object: MetadataOnly<'_> = decode(object)?;
    let created = match object.metadata.creation_timestamp.0 {
        Some(time) => Cow::Owned(format!("{time:.0}")),
        None => Cow::Borrowed("0001-01-01T00:00:00Z"),
    };
    row.text(&object.metadata.name);
    row.text(&created);
    Ok(())
}
