//! The printer of pods.

use std::borrow::Cow;

use jiff::Timestamp;

use super::decode;
use super::metadata::{Condition, Metadata};
use crate::Row;
use crate::time::Time;
use crate::value::{ListValue, TextValue, parts};

const SUCCEEDED: &str =
    r#"[{"type":"Completed","status":"True","reason":"Succeeded","message":"The pod has completed successfully."}]"#;
const FAILED: &str = r#"[{"type":"Completed","status":"True","reason":"Failed","message":"The pod failed."}]"#;

parts! {
    struct Pod<'a> {
        metadata: Metadata<'a>,
        spec: PodSpec<'a>,
        status: PodStatus<'a>,
    }

    struct PodSpec<'a> {
        node_name: TextValue<'a>,
        containers: ListValue<serde::de::IgnoredAny>,
        init_containers: ListValue<InitContainer<'a>>,
        readiness_gates: ListValue<ReadinessGate<'a>>,
    }

    struct InitContainer<'a> {
        name: TextValue<'a>,
        restart_policy: TextValue<'a>,
    }

    struct ReadinessGate<'a> {
        condition_type: TextValue<'a>,
    }

    struct PodStatus<'a> {
        phase: TextValue<'a>,
        reason: TextValue<'a>,
        conditions: ListValue<Condition<'a>>,
        init_container_statuses: ListValue<ContainerStatus<'a>>,
        container_statuses: ListValue<ContainerStatus<'a>>,
        #[serde(rename = "podIP")]
        pod_ip: TextValue<'a>,
        #[serde(rename = "podIPs")]
        pod_ips: ListValue<PodIp<'a>>,
        nominated_node_name: TextValue<'a>,
    }

    struct PodIp<'a> {
        ip: TextValue<'a>,
    }

    struct ContainerStatus<'a> {
        name: TextValue<'a>,
        restart_count: i64,
        ready: bool,
        started: Option<bool>,
        state: ContainerState<'a>,
        last_state: LastState,
    }

    struct ContainerState<'a> {
        waiting: Option<Waiting<'a>>,
        running: Option<serde::de::IgnoredAny>,
        terminated: Option<Terminated<'a>>,
    }

    struct Waiting<'a> {
        reason: TextValue<'a>,
    }

    struct Terminated<'a> {
        reason: TextValue<'a>,
        exit_code: i64,
        signal: i64,
    }
}

parts! {
    struct LastState {
        terminated: Option<LastTerminated>,
    }

    struct LastTerminated {
        finished_at: Time,
    }
}

impl ContainerStatus<'_> {
    /// Returns the time at which the container's previous run ended.
    fn last_finished(&self) -> Time {
        self.last_state.terminated.as_ref().map(|terminated| terminated.finished_at).unwrap_or_default()
    }
}

impl PodSpec<'_> {
    /// Returns whether the init container with this name is a sidecar, which keeps running while the other containers
    /// run.
    fn is_sidecar(&self, name: &str) -> bool {
        // If several containers have the same name, the last container is used, as in kube-apiserver's map by name.
        self.init_containers.iter().rfind(|container| &*container.name == name).is_some_and(InitContainer::is_sidecar)
    }
}

impl InitContainer<'_> {
    fn is_sidecar(&self) -> bool {
        &*self.restart_policy == "Always"
    }
}

/// The number of restarts of containers, and the time of the last restart.
#[derive(Debug, Clone, Copy, Default)]
struct Restarts {
    count: i64,
    last: Time,
}

impl Restarts {
    fn add(&mut self, container: &ContainerStatus<'_>) {
        self.count += container.restart_count;
        self.last = self.last.max(container.last_finished());
    }
}

/// The values of those columns that depend on all containers of a pod.
struct Summary<'a> {
    reason: Cow<'a, str>,
    ready: usize,
    restarts: Restarts,
}

pub(super) fn print(object: &[u8], now: Timestamp, row: &mut Row) -> Result<(), serde_json::Error> {
    let pod: Pod<'_> = decode(object)?;
    match &*pod.status.phase {
        "Succeeded" => row.set_conditions(SUCCEEDED),
        "Failed" => row.set_conditions(FAILED),
        _ => {}
    }
    let total =
        pod.spec.containers.len() + pod.spec.init_containers.iter().filter(|container| container.is_sidecar()).count();
    let summary = summarize(&pod);
    row.text(&pod.metadata.name);
    row.format(format_args!("{}/{total}", summary.ready));
    row.text(&summary.reason);
    match summary.restarts {
        Restarts { count, last } if count != 0 && last.0.is_some() => {
            row.format(format_args!("{count} ({} ago)", last.since(now)));
        }
        Restarts { count, .. } => row.format(format_args!("{count}")),
    }
    row.format(format_args!("{}", pod.metadata.creation_timestamp.since(now)));
    row.text_or(pod_ip(&pod.status), "<none>");
    row.text_or(&pod.spec.node_name, "<none>");
    row.text_or(&pod.status.nominated_node_name, "<none>");
    readiness_gates(&pod, row);
    Ok(())
}

fn summarize<'a>(pod: &'a Pod<'a>) -> Summary<'a> {
    let (spec, status) = (&pod.spec, &pod.status);
    let mut summary = Summary { reason: Cow::Borrowed(&status.phase), ready: 0, restarts: Restarts::default() };
    if !status.reason.is_empty() {
        summary.reason = Cow::Borrowed(&status.reason);
    }
    if status.conditions.iter().any(|c| &*c.r#type == "PodScheduled" && &*c.reason == "SchedulingGated") {
        summary.reason = Cow::Borrowed("SchedulingGated");
    }
    let mut sidecars = Restarts::default();
    let initializing = init_containers(spec, status, &mut summary, &mut sidecars);
    let initialized = status.conditions.iter().find(|c| &*c.r#type == "Initialized").is_some_and(Condition::is_true);
    if !initializing || initialized {
        summary.restarts = sidecars;
        containers(status, &mut summary);
    }
    if pod.metadata.deletion_timestamp.is_some() {
        if &*status.reason == "NodeLost" {
            summary.reason = Cow::Borrowed("Unknown");
        } else if !matches!(&*status.phase, "Succeeded" | "Failed") {
            summary.reason = Cow::Borrowed("Terminating");
        }
    }
    summary
}

/// Summarizes the init containers up to the first unfinished one. Returns whether an init container is unfinished.
fn init_containers<'a>(
    spec: &PodSpec<'a>,
    status: &'a PodStatus<'a>,
    summary: &mut Summary<'a>,
    sidecars: &mut Restarts,
) -> bool {
    for (index, container) in status.init_container_statuses.iter().enumerate() {
        summary.restarts.add(container);
        let sidecar = spec.is_sidecar(&container.name);
        if sidecar {
            sidecars.add(container);
        }
        let (waiting, terminated) = (&container.state.waiting, &container.state.terminated);
        summary.reason = match (waiting, terminated) {
            (_, Some(terminated)) if terminated.exit_code == 0 => continue,
            _ if sidecar && container.started == Some(true) => {
                summary.ready += usize::from(container.ready);
                continue;
            }
            (_, Some(terminated)) => Cow::Owned(format!("Init:{}", termination(terminated))),
            (Some(waiting), None) if !matches!(&*waiting.reason, "" | "PodInitializing") => {
                Cow::Owned(format!("Init:{}", waiting.reason))
            }
            _ => Cow::Owned(format!("Init:{index}/{}", spec.init_containers.len())),
        };
        return true;
    }
    false
}

/// Summarizes the containers from the last to the first, so that the state of the first container is shown.
fn containers<'a>(status: &'a PodStatus<'a>, summary: &mut Summary<'a>) {
    let mut running = false;
    let mut error = None;
    for container in status.container_statuses.iter().rev() {
        summary.restarts.add(container);
        match (&container.state.waiting, &container.state.terminated) {
            (Some(waiting), _) if !waiting.reason.is_empty() => summary.reason = Cow::Borrowed(&waiting.reason),
            (_, Some(terminated)) => {
                summary.reason = termination(terminated);
                if terminated.exit_code != 0 {
                    error = Some(summary.reason.clone());
                }
            }
            _ if container.ready && container.state.running.is_some() => {
                running = true;
                summary.ready += 1;
            }
            _ => {}
        }
    }
    if summary.reason == "Completed" {
        let ready = status.conditions.iter().any(|c| &*c.r#type == "Ready" && c.is_true());
        summary.reason = match error {
            _ if running && ready => Cow::Borrowed("Running"),
            Some(error) => error,
            None if running => Cow::Borrowed("NotReady"),
            None => return,
        };
    }
}

fn termination<'a>(terminated: &'a Terminated<'a>) -> Cow<'a, str> {
    if !terminated.reason.is_empty() {
        Cow::Borrowed(&terminated.reason)
    } else if terminated.signal != 0 {
        Cow::Owned(format!("Signal:{}", terminated.signal))
    } else {
        Cow::Owned(format!("ExitCode:{}", terminated.exit_code))
    }
}

/// Returns the pod's first address. `podIP` takes precedence over `podIPs`, because old kubelets set only `podIP`.
fn pod_ip<'a>(status: &'a PodStatus<'a>) -> &'a str {
    if status.pod_ip.is_empty() { status.pod_ips.first().map_or("", |first| &first.ip) } else { &status.pod_ip }
}

fn readiness_gates(pod: &Pod<'_>, row: &mut Row) {
    let gates = &pod.spec.readiness_gates;
    if gates.is_empty() {
        return row.text("<none>");
    }
    let passed = gates.iter().filter(|gate| {
        pod.status.conditions.iter().find(|c| *c.r#type == *gate.condition_type).is_some_and(Condition::is_true)
    });
    row.format(format_args!("{}/{}", passed.count(), gates.len()));
}
