//! Writes a Helm chart with common objects: a ConfigMap, a Deployment, and a hook.

use anyhow::Context;
use std::fs;
use tributary_e2e::guard;

/// Helm chart on disk. Its values:
///
/// * `step`: the data of the ConfigMap.
/// * `more`: adds a second ConfigMap, and a hook that creates a third.
/// * `label`: adds the release's name to the hook's object.
/// * `node`: the node of the Deployment's pods.
pub(crate) struct Chart {
    path: String,
    _folder: tempfile::TempDir,
}

const FILES: [(&str, &str); 6] = [
    ("Chart.yaml", "{apiVersion: v2, name: shop, version: 0.1.0}"),
    ("values.yaml", "{step: 1, more: false, label: true, node: ''}"),
    (
        "templates/map.yaml",
        r#"
apiVersion: v1
kind: ConfigMap
metadata:
  name: {{ .Release.Name }}-map
data:
  step: "{{ .Values.step }}"
"#,
    ),
    (
        "templates/more.yaml",
        r#"
{{ if .Values.more }}
apiVersion: v1
kind: ConfigMap
metadata:
  name: {{ .Release.Name }}-more
{{ end }}
"#,
    ),
    (
        "templates/hook.yaml",
        r#"
{{ if .Values.more }}
apiVersion: v1
kind: ConfigMap
metadata:
  name: {{ .Release.Name }}-hook
  {{ if .Values.label }}
  labels:
    app.kubernetes.io/instance: {{ .Release.Name }}
  {{ end }}
  annotations:
    helm.sh/hook: pre-upgrade
{{ end }}
"#,
    ),
    (
        "templates/deployment.yaml",
        r#"
apiVersion: apps/v1
kind: Deployment
metadata:
  name: {{ .Release.Name }}
spec:
  replicas: 1
  selector:
    matchLabels: {app: {{ .Release.Name }}}
  template:
    metadata:
      labels: {app: {{ .Release.Name }}}
    spec:
      nodeName: "{{ .Values.node }}"
      containers:
      - {name: main, image: "example.test/main:{{ .Values.step }}"}
"#,
    ),
];

impl Chart {
    pub(crate) fn write() -> anyhow::Result<Self> {
        let folder = guard::temporary_folder("chart")?;
        fs::create_dir(folder.path().join("templates")).context("make a folder")?;
        for (name, text) in FILES {
            fs::write(folder.path().join(name), text).with_context(|| format!("write {name}"))?;
        }
        let path = folder.path().to_str().context("a temporary path is not UTF-8")?.to_owned();
        Ok(Self { path, _folder: folder })
    }

    pub(crate) fn path(&self) -> &str {
        &self.path
    }
}
