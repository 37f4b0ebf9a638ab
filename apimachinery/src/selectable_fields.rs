//! The selectable fields of each built-in kind, as in kube-apiserver 1.36.
//!
//! The names come from `pkg/apis/*/*/conversion.go`, the paths and defaults from `pkg/registry/*/*/strategy.go`.
//! `metadata.name` and `metadata.namespace` are selectable for each kind and come from an object's key, so they are not
//! listed. The selectable fields of a custom resource come from its definition (`selectableFields`), each as
//! [`SelectableField::dotted`].

use std::sync::Arc;

use crate::{GroupVersionResource, SelectableField};

/// A selectable field: its name, the dotted paths to try, its default.
type SelectableFieldRow = (&'static str, &'static [&'static str], &'static str);

const PODS: &[SelectableFieldRow] = &[
    ("spec.nodeName", &["spec.nodeName"], ""),
    ("spec.restartPolicy", &["spec.restartPolicy"], ""),
    ("spec.schedulerName", &["spec.schedulerName"], ""),
    ("spec.serviceAccountName", &["spec.serviceAccountName"], ""),
    ("spec.hostNetwork", &["spec.hostNetwork"], "false"),
    ("status.phase", &["status.phase"], ""),
    ("status.podIP", &["status.podIP"], ""),
    // kube-apiserver accepts this field but never sets it: the value is empty for each pod.
    ("status.podIPs", &[], ""),
    ("status.nominatedNodeName", &["status.nominatedNodeName"], ""),
    // The old name of `spec.nodeName`, which old clients still use.
    ("spec.host", &["spec.nodeName"], ""),
];

const EVENTS_CORE: &[SelectableFieldRow] = &[
    ("involvedObject.kind", &["involvedObject.kind"], ""),
    ("involvedObject.namespace", &["involvedObject.namespace"], ""),
    ("involvedObject.name", &["involvedObject.name"], ""),
    ("involvedObject.uid", &["involvedObject.uid"], ""),
    ("involvedObject.apiVersion", &["involvedObject.apiVersion"], ""),
    ("involvedObject.resourceVersion", &["involvedObject.resourceVersion"], ""),
    ("involvedObject.fieldPath", &["involvedObject.fieldPath"], ""),
    ("reason", &["reason"], ""),
    ("reportingComponent", &["reportingComponent"], ""),
    ("source", &["source.component", "reportingComponent"], ""),
    ("type", &["type"], ""),
];

const EVENTS: &[SelectableFieldRow] = &[
    ("regarding.kind", &["regarding.kind"], ""),
    ("regarding.namespace", &["regarding.namespace"], ""),
    ("regarding.name", &["regarding.name"], ""),
    ("regarding.uid", &["regarding.uid"], ""),
    ("regarding.apiVersion", &["regarding.apiVersion"], ""),
    ("regarding.resourceVersion", &["regarding.resourceVersion"], ""),
    ("regarding.fieldPath", &["regarding.fieldPath"], ""),
    ("reason", &["reason"], ""),
    ("reportingController", &["reportingController"], ""),
    ("type", &["type"], ""),
];

const SIGNER: &[SelectableFieldRow] = &[("spec.signerName", &["spec.signerName"], "")];

const POD_CERTIFICATE_REQUESTS: &[SelectableFieldRow] = &[
    ("spec.signerName", &["spec.signerName"], ""),
    ("spec.podName", &["spec.podName"], ""),
    ("spec.nodeName", &["spec.nodeName"], ""),
];

const RESOURCE_SLICES: &[SelectableFieldRow] =
    &[("spec.nodeName", &["spec.nodeName"], ""), ("spec.driver", &["spec.driver"], "")];

fn rows(group: &str, resource: &str) -> &'static [SelectableFieldRow] {
    match (group, resource) {
        ("", "pods") => PODS,
        ("", "events") => EVENTS_CORE,
        ("events.k8s.io", "events") => EVENTS,
        ("", "nodes") => &[("spec.unschedulable", &["spec.unschedulable"], "false")],
        ("", "namespaces") => &[("status.phase", &["status.phase"], "")],
        ("", "secrets") => &[("type", &["type"], "")],
        ("", "services") => &[("spec.clusterIP", &["spec.clusterIP"], ""), ("spec.type", &["spec.type"], "")],
        ("", "replicationcontrollers") => &[("status.replicas", &["status.replicas"], "0")],
        ("batch", "jobs") => &[("status.successful", &["status.succeeded"], "0")],
        ("certificates.k8s.io", "certificatesigningrequests" | "clustertrustbundles") => SIGNER,
        ("certificates.k8s.io", "podcertificaterequests") => POD_CERTIFICATE_REQUESTS,
        ("resource.k8s.io", "resourceslices") => RESOURCE_SLICES,
        _ => &[],
    }
}

/// Returns the field by whose values snapshots have an index. As in kube-apiserver
/// (`pkg/registry/core/pod/strategy.go`, `Indexers`), this is `spec.nodeName` of pods, because the agents on each node
/// list and watch the pods of their node.
fn indexed(resource: &GroupVersionResource) -> Option<&'static str> {
    match (&*resource.group, &*resource.resource) {
        ("", "pods") => Some("spec.nodeName"),
        _ => None,
    }
}

/// Returns the selectable fields of a built-in resource besides `metadata.name` and `metadata.namespace`. Empty for any
/// other resource.
pub fn selectable_fields(resource: &GroupVersionResource) -> Arc<[SelectableField]> {
    rows(&resource.group, &resource.resource)
        .iter()
        .map(|(name, places, default)| SelectableField {
            name: (*name).into(),
            paths: places.iter().map(|place| place.split('.').map(Into::into).collect()).collect(),
            default: (*default).into(),
            indexed: indexed(resource) == Some(*name),
        })
        .collect()
}
