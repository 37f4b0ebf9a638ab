//! Simulates controllers and kubelets. Deployments get their number of pods, new pods run, and owned objects are
//! deleted.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use serde_json::{Value, json};
use tributary_apimachinery::{Object, Status};

use crate::catalog::{CATALOG, DEPLOYMENTS, NAMESPACES, NODES, PODS, REPLICASETS, ResourceIndex};
use crate::generate::{self, layout::mix};
use crate::list::named;
use crate::path::ResourcePath;
use crate::store::{MemberStore, TransactionOutcome};
use crate::write::{self, Request, to_value};

/// The time for which a new pod is Pending.
pub(crate) const STARTS_AFTER: Duration = Duration::from_millis(800);
/// The maximum number of pods of a deployment, so that a typing error does not exhaust the machine.
const REPLICAS_MAX: u64 = 5000;

/// Handles a GET of the subresource `scale`.
pub(crate) fn get(store: &MemberStore, target: &ResourcePath) -> Result<Value, Status> {
    let object = store.view(target.resource).get(&target.key().unwrap_or_default());
    let object = object.ok_or_else(|| Status::not_found(&named(target), target.name.as_deref().unwrap_or_default()))?;
    Ok(scale_object(&object))
}

fn scale_object(object: &Object) -> Value {
    let value = to_value(object);
    let selector = value["spec"]["selector"]["matchLabels"].as_object();
    let selector: Vec<_> =
        selector.into_iter().flatten().map(|(k, v)| format!("{k}={}", v.as_str().unwrap_or_default())).collect();
    json!({
        "kind": "Scale", "apiVersion": "autoscaling/v1",
        "metadata": {
            "name": object.name(), "namespace": object.namespace(), "uid": object.uid(),
            "resourceVersion": object.resource_version().0.to_string(), "creationTimestamp": object.creation_timestamp(),
        },
        "spec": {"replicas": value["spec"]["replicas"]},
        "status": {"replicas": value["status"]["replicas"].as_u64().unwrap_or(0), "selector": selector.join(",")},
    })
}

/// Handles a PUT or PATCH of the subresource `scale`.
pub(crate) fn write(store: &MemberStore, target: &ResourcePath, request: &Request<'_>) -> Result<Value, Status> {
    let name = target.name.clone().unwrap_or_default();
    let patches = request.content_type.contains("patch");
    let change: Value = serde_json::from_slice(request.body)
        .map_err(|error| Status::bad_request(format!("error decoding the body as JSON: {error}")))?;
    let written = store.transact(target.resource, &target.key().unwrap_or_default(), |existing, revision| {
        let existing = existing.ok_or_else(|| Status::not_found(&named(target), &name))?;
        let mut scale = scale_object(existing);
        match (patches, request.content_type) {
            (false, _) => scale = change,
            (true, "application/json-patch+json") => crate::patch::json(&mut scale, change)
                .map_err(|error| Status::new(422, tributary_apimachinery::StatusReason::Invalid, error.to_string()))?,
            (true, _) => crate::patch::merge(&mut scale, change),
        }
        let version = scale["metadata"]["resourceVersion"].as_str().unwrap_or_default();
        if !version.is_empty() && version != existing.resource_version().0.to_string() {
            return Err(Status::stale(&named(target), &name));
        }
        let replicas = scale["spec"]["replicas"].as_u64().unwrap_or(0);
        let mut object = to_value(existing);
        if object["spec"]["replicas"] == replicas {
            return Ok(TransactionOutcome::Unchanged);
        }
        object["spec"]["replicas"] = replicas.into();
        object["metadata"]["generation"] = (object["metadata"]["generation"].as_u64().unwrap_or(0) + 1).into();
        Ok(TransactionOutcome::Put(write::serialize(&mut object, revision)))
    })?;
    written.map(|object| scale_object(&object)).ok_or_else(|| Status::not_found(&named(target), &name))
}

/// Creates or deletes pods, so that each written deployment and ReplicaSet of a namespace has its number of replicas.
pub(crate) fn reconcile(store: &MemberStore, namespace: &str) {
    let deployments: Vec<_> = store.view(DEPLOYMENTS).range(Some(namespace), None).collect();
    for deployment in deployments {
        reconcile_deployment(store, &deployment);
    }
    let replicasets: Vec<_> = store.view(REPLICASETS).range(Some(namespace), None).collect();
    for replicaset in replicasets {
        reconcile_replicaset(store, &replicaset);
    }
}

fn reconcile_deployment(store: &MemberStore, deployment: &Object) {
    let value = to_value(deployment);
    let owned: Vec<_> = store
        .view(REPLICASETS)
        .range(Some(deployment.namespace()), None)
        .filter(|rs| owned_by(rs, deployment.uid()))
        .collect();
    match owned.first() {
        Some(replicaset) => change(store, REPLICASETS, replicaset.key().as_str(), |rs| {
            rs["spec"]["replicas"] = value["spec"]["replicas"].clone();
        }),
        None => {
            let hash = write::suffix(store.entropy());
            let mut template = value["spec"]["template"].clone();
            template["metadata"]["labels"]["pod-template-hash"] = hash.as_str().into();
            let mut selector = value["spec"]["selector"].clone();
            selector["matchLabels"]["pod-template-hash"] = hash.as_str().into();
            let replicaset = json!({
                "kind": "ReplicaSet", "apiVersion": "apps/v1",
                "metadata": {
                    "name": format!("{}-{hash}", deployment.name()), "namespace": deployment.namespace(), "generation": 1,
                    "labels": template["metadata"]["labels"],
                    "ownerReferences": [owner("apps/v1", "Deployment", deployment)],
                },
                "spec": {"replicas": value["spec"]["replicas"], "selector": selector, "template": template},
                "status": {"replicas": 0},
            });
            // The object has a kind, a name and a namespace, so the write succeeds.
            let _ = write::apply(store, replicaset);
        }
    }
    let replicas = value["spec"]["replicas"].as_u64().unwrap_or(0).min(REPLICAS_MAX);
    set_replicas(store, DEPLOYMENTS, deployment.key().as_str(), replicas);
}

/// Creates missing pods of a ReplicaSet, or deletes its youngest pods if it has too many.
fn reconcile_replicaset(store: &MemberStore, replicaset: &Object) {
    let value = to_value(replicaset);
    let wanted = value["spec"]["replicas"].as_u64().unwrap_or(0).min(REPLICAS_MAX) as usize;
    let pods: Vec<_> = store
        .view(PODS)
        .range(Some(replicaset.namespace()), None)
        .filter(|pod| owned_by(pod, replicaset.uid()))
        .collect();
    for _ in pods.len()..wanted {
        let entropy = store.entropy();
        let template = &value["spec"]["template"];
        let pod = json!({
            "kind": "Pod", "apiVersion": "v1",
            "metadata": {
                "name": format!("{}-{}", replicaset.name(), write::suffix(entropy)),
                "generateName": format!("{}-", replicaset.name()), "namespace": replicaset.namespace(), "generation": 1,
                "labels": template["metadata"]["labels"], "annotations": template["metadata"]["annotations"],
                "ownerReferences": [owner("apps/v1", "ReplicaSet", replicaset)],
            },
            "spec": template["spec"],
            "status": {"phase": "Pending", "qosClass": "BestEffort"},
        });
        let _ = write::apply(store, pod);
    }
    for pod in pods.iter().skip(wanted) {
        write::remove(store, PODS, pod.namespace(), pod.name());
    }
    set_replicas(store, REPLICASETS, replicaset.key().as_str(), wanted as u64);
}

/// Updates the numbers of replicas in the status of an object, if the numbers differ.
fn set_replicas(store: &MemberStore, resource: ResourceIndex, key: &str, replicas: u64) {
    change(store, resource, key, |object| {
        let generation = object["metadata"]["generation"].clone();
        let status = &mut object["status"];
        if status["replicas"] == replicas {
            return;
        }
        for member in ["replicas", "readyReplicas", "availableReplicas"] {
            status[member] = replicas.into();
        }
        status[if resource == DEPLOYMENTS { "updatedReplicas" } else { "fullyLabeledReplicas" }] = replicas.into();
        status["observedGeneration"] = generation;
    });
}

/// Starts the written pods of a namespace that are Pending and have no conditions.
pub(crate) fn start_pods(store: &MemberStore, namespace: &str) {
    let pods: Vec<_> = store.view(PODS).range(Some(namespace), None).collect();
    for pod in pods {
        let mut value = to_value(&pod);
        // Only new pods without conditions are started. A generated pod that waits stays Pending, and has a condition
        // with the reason.
        if value["status"]["phase"] == "Pending" && value["status"]["conditions"].is_null() {
            run(store, &mut value);
            change(store, PODS, pod.key().as_str(), |object| {
                object["spec"]["nodeName"] = value["spec"]["nodeName"].take();
                object["status"] = value["status"].take();
            });
        }
    }
}

/// Assigns a pod to a node, and sets the status of a running pod.
pub(crate) fn run(store: &MemberStore, pod: &mut Value) {
    let entropy = store.entropy();
    let now = generate::rfc3339(Timestamp::now().as_second());
    let layout = store.generator().layout();
    if pod["spec"]["nodeName"].is_null() {
        pod["spec"]["nodeName"] = layout.node((entropy % layout.count(NODES).max(1) as u64) as usize).into();
    }
    let ip = format!("10.200.{}.{}", entropy >> 8 & 0xff, 2 + (entropy & 0x7f));
    let conditions = ["Initialized", "Ready", "ContainersReady", "PodScheduled"]
        .map(|name| json!({"type": name, "status": "True", "lastProbeTime": null, "lastTransitionTime": now}));
    let statuses: Vec<_> = pod["spec"]["containers"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|container| {
            json!({
                "name": container["name"], "image": container["image"], "imageID": "", "restartCount": 0, "ready": true, "started": true,
                "containerID": format!("containerd://{:016x}{:016x}", mix(entropy), mix(entropy + 1)),
                "state": {"running": {"startedAt": now}}, "lastState": {},
            })
        })
        .collect();
    pod["status"] = json!({
        "phase": "Running", "conditions": conditions,
        "hostIP": "172.18.0.2", "hostIPs": [{"ip": "172.18.0.2"}], "podIP": ip, "podIPs": [{"ip": ip}],
        "startTime": now, "containerStatuses": statuses, "qosClass": "BestEffort",
    });
}

/// Deletes the dependents of a deleted object: all objects of a namespace, and the dependents by ownerReferences.
pub(crate) fn collect_garbage(store: &MemberStore, target: &ResourcePath, name: &str) {
    if target.resource == NAMESPACES {
        for (resource, _) in CATALOG.iter().enumerate().filter(|(_, described)| described.namespaced) {
            remove_all(store, resource, name, |_| true);
        }
    } else if let Some(namespace) =
        target.namespace.as_deref().filter(|_| matches!(target.resource, DEPLOYMENTS | REPLICASETS))
    {
        let owners = |resource: ResourceIndex| -> Vec<String> {
            store.view(resource).range(Some(namespace), None).map(|object| object.uid().to_owned()).collect()
        };
        let deployments = owners(DEPLOYMENTS);
        remove_all(store, REPLICASETS, namespace, |rs| owner_uid(rs).is_some_and(|uid| !deployments.contains(&uid)));
        let replicasets = owners(REPLICASETS);
        remove_all(store, PODS, namespace, |pod| owner_uid(pod).is_some_and(|uid| !replicasets.contains(&uid)));
    }
}

fn remove_all(store: &MemberStore, resource: ResourceIndex, namespace: &str, is_removed: impl Fn(&Object) -> bool) {
    let objects: Vec<Arc<Object>> =
        store.view(resource).range(Some(namespace), None).filter(|object| is_removed(object)).collect();
    for object in objects {
        write::remove(store, resource, object.namespace(), object.name());
    }
}

fn owner(api_version: &str, kind: &str, object: &Object) -> Value {
    json!({
        "apiVersion": api_version, "kind": kind, "name": object.name(), "uid": object.uid(),
        "controller": true, "blockOwnerDeletion": true,
    })
}

fn owner_uid(object: &Object) -> Option<String> {
    to_value(object)["metadata"]["ownerReferences"][0]["uid"].as_str().map(str::to_owned)
}

fn owned_by(object: &Object, uid: &str) -> bool {
    owner_uid(object).is_some_and(|owner| owner == uid)
}

/// Applies a change to an object. If the change has no effect, the object is not written.
pub(crate) fn change(store: &MemberStore, resource: ResourceIndex, key: &str, change: impl FnOnce(&mut Value)) {
    let _ = store.transact(resource, key, |existing, revision| {
        let Some(existing) = existing else { return Ok(TransactionOutcome::Unchanged) };
        let old = to_value(existing);
        let mut object = old.clone();
        change(&mut object);
        Ok::<_, Infallible>(if object == old {
            TransactionOutcome::Unchanged
        } else {
            TransactionOutcome::Put(write::serialize(&mut object, revision))
        })
    });
}
