//! Configures kwok: the stages that simulate nodes and pods, and the responses of its kubelet to logs, exec, attach and
//! port-forward.

use anyhow::Context;
use serde_json::json;
use std::{fs, os::unix::fs::PermissionsExt, path::Path};

/// Stage files to use, relative to the folder `kustomize/stage` of kwok's Go module.
const STAGES: [&str; 5] = [
    "node/fast/node-initialize.yaml",
    "node/heartbeat/node-heartbeat.yaml",
    "pod/fast/pod-ready.yaml",
    "pod/fast/pod-complete.yaml",
    "pod/fast/pod-delete.yaml",
];

/// Line before the conditions of a stage, and an additional condition. The condition excludes pods whose command is
/// `sleep`. Without the condition, kwok completes these pods at once, and Kubernetes specs that wait for a running job
/// rarely see it running.
const CONDITIONS: &str = "    matchExpressions:\n";
const DOES_NOT_SLEEP: &str = "    - {key: '.spec.containers.[].command.[0]', operator: NotIn, values: [sleep]}\n";

/// Folder in the member's folder with programs that replace programs of this machine in the commands of pods.
pub(crate) const PROGRAMS: &str = "programs";

/// Replacement of `tar` in the commands of pods. kwok never closes the standard input of a command, and GNU tar waits
/// for the end of its input. Python's tarfile module stops at the end of the archive.
const TAR: &str = r#"#!/bin/sh
case " $* " in
  *" -xmf - "*)
    while [ "$1" != -C ]; do shift; done
    exec python3 -c 'import sys, tarfile
tarfile.open(fileobj=sys.stdin.buffer, mode="r|", bufsize=512).extractall(sys.argv[1])' "$2"
    ;;
esac
PATH=${PATH#*:}
exec tar "$@"
"#;

/// Writes kwok's configuration for the member `name` into `folder`, and the container log that kwok serves.
///
/// Every pod has the same log, [`log_line`] for `hello`. An exec runs the command on this machine, with `MEMBER` set to
/// the member's name. Port 8080 of every pod leads to `forward_port` on 127.0.0.1.
pub(crate) fn write_configuration(folder: &Path, stages: &Path, name: &str, forward_port: u16) -> anyhow::Result<()> {
    let programs = folder.join(PROGRAMS);
    fs::create_dir_all(&programs).context("make a folder for programs")?;
    fs::write(programs.join("tar"), TAR).context("write tar")?;
    fs::set_permissions(programs.join("tar"), fs::Permissions::from_mode(0o755)).context("make tar a program")?;
    let log = folder.join("container.log");
    fs::write(&log, log_line(&format!("hello from {name}"))).context("write the container log")?;
    let mut documents = Vec::new();
    for stage in STAGES {
        let path = stages.join(stage);
        let mut document = fs::read_to_string(&path).with_context(|| format!("read {}", path.display()))?;
        if stage.ends_with("pod-complete.yaml") {
            let at = document.find(CONDITIONS).with_context(|| format!("{} has no conditions", path.display()))?;
            document.insert_str(at + CONDITIONS.len(), DOES_NOT_SLEEP);
        }
        documents.push(document);
    }
    let of_kind = |kind: &str, spec: serde_json::Value| {
        json!({"apiVersion": "kwok.x-k8s.io/v1alpha1", "kind": kind, "metadata": {"name": "all"}, "spec": spec})
            .to_string()
    };
    documents.push(of_kind("ClusterLogs", json!({"logs": [{"logsFile": log, "follow": true}]})));
    documents.push(of_kind("ClusterAttach", json!({"attaches": [{"logsFile": log}]})));
    documents
        .push(of_kind("ClusterExec", json!({"execs": [{"local": {"envs": [{"name": "MEMBER", "value": name}]}}]})));
    documents.push(of_kind(
        "ClusterPortForward",
        json!({"forwards": [{"ports": [8080], "target": {"port": forward_port, "address": "127.0.0.1"}}]}),
    ));
    fs::write(folder.join("kwok.yaml"), documents.join("\n---\n")).context("write kwok's configuration")
}

/// One line of a container log in the format of the container runtime interface.
pub(crate) fn log_line(text: &str) -> String {
    format!("2026-01-01T00:00:00.000000000Z stdout F {text}\n")
}
