//! Which fields of which built-in kind a field selector may name, as in kube-apiserver 1.36.
//!
//! The names are those of `pkg/apis/*/*/conversion.go`, the places and defaults those of
//! `pkg/registry/*/*/strategy.go`. `metadata.name` and `metadata.namespace` are every kind's and come from an object's
//! key; they are not listed here. A custom resource's are those that its definition names (`selectableFields`), each
//! with [`SelectableField::dotted`].

use std::sync::Arc;

use crate::{GroupVersionResource, SelectableField};

/// A field: its name, the dotted places to look for it, its default.
type SelectableFieldRow = (&'static str, &'static [&'static str], &'static str);

const PODS: &[SelectableFieldRow] = &[
    ("spec.nodeName", &["spec.nodeName"], ""),
    ("spec.restartPolicy", &["spec.restartPolicy"], ""),
    ("spec.schedulerName", &["spec.schedulerName"], ""),
    ("spec.serviceAccountName", &["spec.serviceAccountName"], ""),
    ("spec.hostNetwork", &["spec.hostNetwork"], "false"),
    ("status.phase", &["status.phase"], ""),
    ("status.podIP", &["status.podIP"], ""),
    // Accepted, and never filled in by kube-apiserver: every pod's is empty.
    ("status.podIPs", &[], ""),
    ("status.nominatedNodeName", &["status.nominatedNodeName"], ""),
    // The name that clients of old versions send.
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

/// The field that objects are looked up by so often that an index pays: as in kube-apiserver
/// (`pkg/registry/core/pod/strategy.go`, `Indexers`), whose agents on each node list and watch the pods of their node.
fn indexed(resource: &GroupVersionResource) -> Option<&'static str> {
    match (&*resource.group, &*resource.resource) {
        ("", "pods") => Some("spec.nodeName"),
        _ => None,
    }
}

/// The fields that a field selector on this built-in resource may name besides `metadata.name` and
/// `metadata.namespace`. Empty for every other resource.
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
