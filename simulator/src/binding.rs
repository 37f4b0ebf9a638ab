//! Handles Bindings, with which a scheduler assigns a Pod to a node.
//!
//! Source: kubernetes `pkg/registry/core/pod/storage/storage.go` (`BindingREST`).

use serde_json::{Value, json};
use tributary_apimachinery::Status;

use crate::catalog::PODS;
use crate::list::named;
use crate::path::ResourcePath;
use crate::store::{MemberStore, TransactionOutcome};
use crate::write::{self, Request};

/// Returns the path of the Pod that a Binding in a namespace refers to.
///
/// # Errors
/// 400 for a body that is not a JSON object.
pub(crate) fn pod(namespace: String, request: &Request<'_>) -> Result<ResourcePath, Status> {
    let name = request.json()?["metadata"]["name"].as_str().map(str::to_owned);
    let subresource = "binding".to_owned();
    Ok(ResourcePath { resource: PODS, namespace: Some(namespace), name, subresource, watch_path: false })
}

/// Assigns a Pod to the node in the body. Returns the Status of a kube-apiserver's response.
///
/// # Errors
/// 404 for an absent Pod, 409 for a Pod that already has a node.
pub(crate) fn bind(store: &MemberStore, pod: &ResourcePath, request: &Request<'_>) -> Result<Value, Status> {
    let node = request.json()?["target"]["name"].clone();
    let name = pod.name.clone().unwrap_or_default();
    store.transact(pod.resource, &pod.key().unwrap_or_default(), |existing, revision| {
        let mut object = write::to_value(existing.ok_or_else(|| Status::not_found(&named(pod), &name))?);
        if let Some(before) = object["spec"]["nodeName"].as_str().filter(|before| !before.is_empty()) {
            let cause = format!("pod {name} is already assigned to node {before:?}");
            return Err(Status::conflict(&named(pod), &name, &cause));
        }
        object["spec"]["nodeName"] = node;
        Ok(TransactionOutcome::Put(write::serialize(&mut object, revision)))
    })?;
    Ok(json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"}))
}
