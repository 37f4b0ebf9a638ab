//! Renders the chart with Helm.

use super::deploy;
use serde_json::Value;
use tributary_e2e::{Kubectl, kubectl::KubectlOutput};

pub(super) const NAMESPACE: &str = "tributary";

/// Renders the chart for a release. If Helm refuses the values, the refusal is an output, not an error.
pub(super) async fn run(helm: &Kubectl, release: &str, further: &[&str]) -> anyhow::Result<KubectlOutput> {
    let chart = deploy("helm/tributary");
    // Without this flag, a Helm that is built from its Go module assumes Kubernetes 1.20.
    let own = ["template", release, &chart, "--namespace", NAMESPACE, "--kube-version", "1.36.0"];
    helm.run(&[&own[..], further].concat()).await
}

/// Renders the chart, and returns its objects.
pub(crate) async fn chart(helm: &Kubectl, further: &[&str]) -> anyhow::Result<Vec<Value>> {
    objects(&run(helm, "tributary", further).await?.success()?)
}

/// Parses the objects of a manifest.
pub(super) fn objects(text: &str) -> anyhow::Result<Vec<Value>> {
    // Strings in objects are indented, so the line `---` always separates two objects.
    let documents = text.split("\n---\n").map(|document| document.trim_start_matches("---\n"));
    documents
        .filter(|document| document.contains("apiVersion"))
        .map(|document| Ok(serde_saphyr::from_str(document)?))
        .collect()
}
