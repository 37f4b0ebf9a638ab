//! The kinds that kube-apiserver prints with a kind-specific printer
//! (`k8s.io/kubernetes/pkg/printers/internalversion/printers.go`).
//!
//! kube-apiserver prints the internal form of an object, so all versions of a kind share a printer. The printers of
//! this module read the JSON of any version: the fields that all versions share, and the different fields of each
//! version.

mod admission;
mod autoscaling;
mod batch;
mod certificates;
// The module is a table with one line for each column, so rustfmt must not wrap its lines.
#[rustfmt::skip]
mod columns;
mod control_plane;
mod core;
mod devices;
mod events;
mod metadata;
mod networking;
mod pods;
mod rbac;
mod services;
mod storage;
mod workloads;

use jiff::Timestamp;
use serde::Deserialize;

use crate::{Column, Row};

/// A function that prints an object into the cells of a row.
pub(crate) type Print = fn(&[u8], Timestamp, &mut Row) -> Result<(), serde_json::Error>;

#[derive(Debug)]
pub(crate) struct BuiltInPrinter {
    pub(crate) group: &'static str,
    pub(crate) resource: &'static str,
    pub(crate) columns: &'static [Column],
    pub(crate) print: Print,
}

/// The printer of `autoscaling/v1` Scale. Scale is only the response of subresources, so the table of resources does
/// not contain it.
pub(crate) static SCALE: BuiltInPrinter = kind("autoscaling", "scale", columns::SCALE, workloads::scale);

/// The printer of kinds without a specific printer.
pub(crate) static DEFAULT: BuiltInPrinter = kind("", "", columns::DEFAULT, core::name_and_created_at);

/// Returns the printer of a resource, for any version.
pub(crate) fn find(group: &str, resource: &str) -> Option<&'static BuiltInPrinter> {
    KINDS.iter().find(|kind| kind.resource == resource && kind.group == group)
}

/// Decodes an object. The whole text is validated as UTF-8 once, which is cheaper than validating each string.
fn decode<'a, T: Deserialize<'a>>(object: &'a [u8]) -> Result<T, serde_json::Error> {
    match std::str::from_utf8(object) {
        Ok(text) => serde_json::from_str(text),
        // If the text is not UTF-8, serde_json parses it again, because only serde_json's error contains the position.
        Err(_) => serde_json::from_slice(object),
    }
}

const fn kind(group: &'static str, resource: &'static str, columns: &'static [Column], print: Print) -> BuiltInPrinter {
    BuiltInPrinter { group, resource, columns, print }
}

const ADMISSION: &str = "admissionregistration.k8s.io";
const CERTIFICATES: &str = "certificates.k8s.io";
const COORDINATION: &str = "coordination.k8s.io";
const FLOW_CONTROL: &str = "flowcontrol.apiserver.k8s.io";
const NETWORKING: &str = "networking.k8s.io";
const RBAC: &str = "rbac.authorization.k8s.io";
const RESOURCE: &str = "resource.k8s.io";
const SCHEDULING: &str = "scheduling.k8s.io";
const STORAGE: &str = "storage.k8s.io";

/// The table also has the kinds for which kube-apiserver has no specific printer, so that `find` returns a printer for
/// these kinds, too.
static KINDS: &[BuiltInPrinter] = &[
    kind("", "pods", columns::PODS, pods::print),
    kind("", "componentstatuses", columns::COMPONENTSTATUSES, core::component_status),
    kind("", "configmaps", columns::CONFIGMAPS, core::config_map),
    kind("", "endpoints", columns::ENDPOINTS, services::endpoints),
    kind("", "events", columns::EVENTS, events::print),
    kind("", "limitranges", columns::DEFAULT, core::name_and_created_at),
    kind("", "namespaces", columns::NAMESPACES, core::namespace),
    kind("", "nodes", columns::NODES, core::node),
    kind("", "persistentvolumeclaims", columns::PERSISTENTVOLUMECLAIMS, storage::persistent_volume_claim),
    kind("", "persistentvolumes", columns::PERSISTENTVOLUMES, storage::persistent_volume),
    kind("", "podtemplates", columns::PODTEMPLATES, workloads::pod_template),
    kind("", "replicationcontrollers", columns::REPLICATIONCONTROLLERS, workloads::replication_controller),
    kind("", "resourcequotas", columns::RESOURCEQUOTAS, core::resource_quota),
    kind("", "secrets", columns::SECRETS, core::secret),
    kind("", "serviceaccounts", columns::NAME_AND_AGE, core::name_and_age),
    kind("", "services", columns::SERVICES, services::service),
    kind(ADMISSION, "mutatingadmissionpolicies", columns::MUTATINGADMISSIONPOLICIES, admission::policy),
    kind(
        ADMISSION,
        "mutatingadmissionpolicybindings",
        columns::MUTATINGADMISSIONPOLICYBINDINGS,
        admission::policy_binding,
    ),
    kind(
        ADMISSION,
        "mutatingwebhookconfigurations",
        columns::MUTATINGWEBHOOKCONFIGURATIONS,
        admission::webhook_configuration,
    ),
    kind(ADMISSION, "validatingadmissionpolicies", columns::VALIDATINGADMISSIONPOLICIES, admission::policy),
    kind(
        ADMISSION,
        "validatingadmissionpolicybindings",
        columns::VALIDATINGADMISSIONPOLICYBINDINGS,
        admission::policy_binding,
    ),
    kind(
        ADMISSION,
        "validatingwebhookconfigurations",
        columns::VALIDATINGWEBHOOKCONFIGURATIONS,
        admission::webhook_configuration,
    ),
    kind("apiextensions.k8s.io", "customresourcedefinitions", columns::DEFAULT, core::name_and_created_at),
    kind("apiregistration.k8s.io", "apiservices", columns::APISERVICES, control_plane::api_service),
    kind("apps", "controllerrevisions", columns::CONTROLLERREVISIONS, workloads::controller_revision),
    kind("apps", "daemonsets", columns::DAEMONSETS, workloads::daemon_set),
    kind("apps", "deployments", columns::DEPLOYMENTS, workloads::deployment),
    kind("apps", "replicasets", columns::REPLICASETS, workloads::replica_set),
    kind("apps", "statefulsets", columns::STATEFULSETS, workloads::stateful_set),
    kind("autoscaling", "horizontalpodautoscalers", columns::HORIZONTALPODAUTOSCALERS, autoscaling::print),
    kind("batch", "cronjobs", columns::CRONJOBS, batch::cron_job),
    kind("batch", "jobs", columns::JOBS, batch::job),
    kind(
        CERTIFICATES,
        "certificatesigningrequests",
        columns::CERTIFICATESIGNINGREQUESTS,
        certificates::signing_request,
    ),
    kind(CERTIFICATES, "clustertrustbundles", columns::CLUSTERTRUSTBUNDLES, certificates::cluster_trust_bundle),
    kind(
        CERTIFICATES,
        "podcertificaterequests",
        columns::PODCERTIFICATEREQUESTS,
        certificates::pod_certificate_request,
    ),
    kind(COORDINATION, "leasecandidates", columns::LEASECANDIDATES, control_plane::lease_candidate),
    kind(COORDINATION, "leases", columns::LEASES, control_plane::lease),
    kind("discovery.k8s.io", "endpointslices", columns::ENDPOINTSLICES, services::endpoint_slice),
    kind("events.k8s.io", "events", columns::EVENTS, events::print),
    kind(FLOW_CONTROL, "flowschemas", columns::FLOWSCHEMAS, control_plane::flow_schema),
    kind(
        FLOW_CONTROL,
        "prioritylevelconfigurations",
        columns::PRIORITYLEVELCONFIGURATIONS,
        control_plane::priority_level,
    ),
    kind("internal.apiserver.k8s.io", "storageversions", columns::STORAGEVERSIONS, control_plane::storage_version),
    kind(NETWORKING, "ingressclasses", columns::INGRESSCLASSES, networking::ingress_class),
    kind(NETWORKING, "ingresses", columns::INGRESSES, networking::ingress),
    kind(NETWORKING, "ipaddresses", columns::IPADDRESSES, networking::ip_address),
    kind(NETWORKING, "networkpolicies", columns::NETWORKPOLICIES, networking::network_policy),
    kind(NETWORKING, "servicecidrs", columns::SERVICECIDRS, networking::service_cidr),
    kind("node.k8s.io", "runtimeclasses", columns::RUNTIMECLASSES, control_plane::runtime_class),
    kind("policy", "poddisruptionbudgets", columns::PODDISRUPTIONBUDGETS, workloads::pod_disruption_budget),
    kind(RBAC, "clusterrolebindings", columns::CLUSTERROLEBINDINGS, rbac::binding),
    kind(RBAC, "clusterroles", columns::DEFAULT, core::name_and_created_at),
    kind(RBAC, "rolebindings", columns::ROLEBINDINGS, rbac::binding),
    kind(RBAC, "roles", columns::DEFAULT, core::name_and_created_at),
    kind(RESOURCE, "deviceclasses", columns::NAME_AND_AGE, core::name_and_age),
    kind(RESOURCE, "devicetaintrules", columns::DEVICETAINTRULES, devices::device_taint_rule),
    kind(RESOURCE, "resourceclaims", columns::RESOURCECLAIMS, devices::resource_claim),
    kind(RESOURCE, "resourceclaimtemplates", columns::NAME_AND_AGE, core::name_and_age),
    kind(RESOURCE, "resourcepoolstatusrequests", columns::RESOURCEPOOLSTATUSREQUESTS, devices::pool_status_request),
    kind(RESOURCE, "resourceslices", columns::RESOURCESLICES, devices::resource_slice),
    kind(SCHEDULING, "podgroups", columns::PODGROUPS, devices::pod_group),
    kind(SCHEDULING, "priorityclasses", columns::PRIORITYCLASSES, control_plane::priority_class),
    kind(SCHEDULING, "workloads", columns::NAME_AND_AGE, core::name_and_age),
    kind(STORAGE, "csidrivers", columns::CSIDRIVERS, storage::csi_driver),
    kind(STORAGE, "csinodes", columns::CSINODES, storage::csi_node),
    kind(STORAGE, "csistoragecapacities", columns::DEFAULT, core::name_and_created_at),
    kind(STORAGE, "storageclasses", columns::STORAGECLASSES, storage::storage_class),
    kind(STORAGE, "volumeattachments", columns::VOLUMEATTACHMENTS, storage::volume_attachment),
    kind(STORAGE, "volumeattributesclasses", columns::VOLUMEATTRIBUTESCLASSES, storage::volume_attributes_class),
    kind(
        "storagemigration.k8s.io",
        "storageversionmigrations",
        columns::STORAGEVERSIONMIGRATIONS,
        control_plane::storage_version_migration,
    ),
];
