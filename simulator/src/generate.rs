//! Generates the initial objects of a member. Each object is a function of the configuration and an index.
//!
//! A million pods cost no memory until a request reads them. Generating the text of a pod takes about 5 µs.

use std::fmt::Write as _;

use jiff::{SignedDuration, Timestamp};

use crate::SimulatorConfig;
use crate::catalog::{
    CONFIGMAPS, DEPLOYMENTS, EVENTS, NAMESPACES, NODES, PODS, REPLICASETS, ResourceIndex, SERVICEACCOUNTS, SERVICES,
};

pub(crate) mod layout;
pub(crate) mod template;

use layout::{Layout, mix};
use template::Template;

/// All generated objects were created within this number of seconds before the configured epoch.
const CREATED_WITHIN: u64 = 30 * 24 * 60 * 60;
/// The number of seconds between a pod's creation and the start of its container.
const STARTED_AFTER: i64 = 4;

pub(crate) struct Generator {
    layout: Layout,
    epoch: i64,
    pod: Template,
    running: Template,
    crashing: Template,
    pending: Template,
    deployment: Template,
    replicaset: Template,
    service: Template,
    configmap: Template,
    serviceaccount: Template,
    namespace: Template,
    event: Template,
    node: Template,
}

/// The state of a pod, chosen by the pod's hash: of 100 pods, 95 run, 3 crash and 2 wait.
#[derive(Clone, Copy, PartialEq, Eq)]
enum PodState {
    Running,
    Crashing,
    Pending,
}

/// The properties of a pod that its text is generated from.
struct GeneratedPod {
    index: usize,
    deployment: usize,
    hash: u64,
    state: PodState,
    node: usize,
    name: String,
    namespace: String,
    app: &'static str,
    replicaset: String,
}

impl GeneratedPod {
    fn new(layout: &Layout, index: usize) -> Self {
        let deployment = layout.pod_deployment(index);
        let hash = layout.hash(PODS, index, 3);
        let state = match hash % 100 {
            0..3 => PodState::Crashing,
            3..5 => PodState::Pending,
            _ => PodState::Running,
        };
        Self {
            index,
            deployment,
            hash,
            state,
            node: layout.pod_node(index),
            name: layout.pod(index),
            namespace: layout.deployment_namespace(deployment),
            app: layout.app(deployment),
            replicaset: layout.replicaset(deployment),
        }
    }
}

impl Generator {
    pub(crate) fn new(config: &SimulatorConfig) -> Self {
        Self {
            layout: Layout::new(config),
            epoch: config.epoch,
            pod: Template::new(include_str!("generate/templates/pod.json")),
            running: Template::new(include_str!("generate/templates/pod-running.json")),
            crashing: Template::new(include_str!("generate/templates/pod-crashing.json")),
            pending: Template::new(include_str!("generate/templates/pod-pending.json")),
            deployment: Template::new(include_str!("generate/templates/deployment.json")),
            replicaset: Template::new(include_str!("generate/templates/replicaset.json")),
            service: Template::new(include_str!("generate/templates/service.json")),
            configmap: Template::new(include_str!("generate/templates/configmap.json")),
            serviceaccount: Template::new(include_str!("generate/templates/serviceaccount.json")),
            namespace: Template::new(include_str!("generate/templates/namespace.json")),
            event: Template::new(include_str!("generate/templates/event.json")),
            node: Template::new(include_str!("generate/templates/node.json")),
        }
    }

    pub(crate) fn layout(&self) -> &Layout {
        &self.layout
    }

    /// Returns the object's text with `kind`, `apiVersion` and the initial resourceVersion.
    pub(crate) fn text(&self, resource: ResourceIndex, index: usize) -> String {
        let mut out = String::with_capacity(5120);
        match resource {
            PODS => self.pod(index, &mut out),
            DEPLOYMENTS => self.deployment_value(&self.deployment, DEPLOYMENTS, index, &mut out),
            REPLICASETS => self.deployment_value(&self.replicaset, REPLICASETS, index, &mut out),
            SERVICES => self.deployment_value(&self.service, SERVICES, index, &mut out),
            CONFIGMAPS => self.deployment_value(&self.configmap, CONFIGMAPS, index, &mut out),
            SERVICEACCOUNTS => self.namespace_value(&self.serviceaccount, resource, index, &mut out),
            NAMESPACES => self.namespace_value(&self.namespace, resource, index, &mut out),
            EVENTS => self.event(index, &mut out),
            NODES => self.node(index, &mut out),
            _ => {}
        }
        out
    }

    fn pod(&self, index: usize, out: &mut String) {
        let pod = GeneratedPod::new(&self.layout, index);
        let status = match pod.state {
            PodState::Running => &self.running,
            PodState::Crashing => &self.crashing,
            PodState::Pending => &self.pending,
        };
        self.pod.render(out, |place, out| match place {
            "status" => status.render(out, |place, out| self.pod_value(&pod, place, out)),
            _ => self.pod_value(&pod, place, out),
        });
    }

    /// Writes the value of a placeholder in the template of a pod.
    fn pod_value(&self, pod: &GeneratedPod, place: &str, out: &mut String) {
        let layout = &self.layout;
        let GeneratedPod { index, deployment, hash, state, node, .. } = *pod;
        let created = || self.created(PODS, index);
        match place {
            "name" => out.push_str(&pod.name),
            "namespace" => out.push_str(&pod.namespace),
            "app" => out.push_str(pod.app),
            "replicaset" => out.push_str(&pod.replicaset),
            "deployment" => out.push_str(&layout.deployment(deployment)),
            "hash" => out.push_str(&layout.template_hash(deployment)),
            "uid" => self.uid(PODS, index, out),
            "replicaset_uid" => self.uid(REPLICASETS, deployment, out),
            "version" => display(out, layout.revision(PODS, index)),
            "created" => time(out, created()),
            "started" => time(out, created() + STARTED_AFTER),
            "slice" => display(out, format_args!("s{:02}", hash / 100 % 100)),
            "tier" => out.push_str(tier(pod.app)),
            "image_tag" => image_tag(out, layout.hash(DEPLOYMENTS, deployment, 2)),
            "checksum" => hex64(out, layout.hash(DEPLOYMENTS, deployment, 3)),
            "container_id" => hex64(out, hash),
            "volume" => display(out, format_args!("{:05x}", hash & 0xf_ffff)),
            "memory" => display(out, 64 << (hash / 7 % 5)),
            "cpu" => display(out, 50 * (1 + hash / 11 % 10)),
            "node" if state == PodState::Pending => {}
            "node" => display(out, format_args!("\"nodeName\":\"{}\",", layout.node(node))),
            "nodes" => display(out, layout.count(NODES)),
            "host_ip" => host_ip(out, node),
            "pod_ip" => {
                display(out, format_args!("10.{}.{}.{}", 64 + node / 256 % 64, node % 256, 2 + hash / 13 % 250));
            }
            "restarts" if state == PodState::Crashing => display(out, 5 + hash / 17 % 400),
            "restarts" => display(out, u64::from((hash / 17).is_multiple_of(20))),
            _ => {}
        }
    }

    fn deployment_value(&self, template: &Template, resource: ResourceIndex, index: usize, out: &mut String) {
        let layout = &self.layout;
        let hash = layout.hash(resource, index, 3);
        template.render(out, |place, out| match place {
            "deployment" => out.push_str(&layout.deployment(index)),
            "namespace" => out.push_str(&layout.deployment_namespace(index)),
            "app" => out.push_str(layout.app(index)),
            "tier" => out.push_str(tier(layout.app(index))),
            "replicaset" => out.push_str(&layout.replicaset(index)),
            "hash" => out.push_str(&layout.template_hash(index)),
            "replicaset_uid" => self.uid(REPLICASETS, index, out),
            // The owner of a ReplicaSet is the Deployment with the same index.
            "uid" if resource == REPLICASETS => self.uid(DEPLOYMENTS, index, out),
            "uid" => self.uid(resource, index, out),
            "version" => display(out, layout.revision(resource, index)),
            "created" => time(out, self.created(DEPLOYMENTS, index)),
            "replicas" | "ready" => display(out, layout.deployment_replicas(index)),
            "image_tag" => image_tag(out, layout.hash(DEPLOYMENTS, index, 2)),
            "checksum" => hex64(out, layout.hash(DEPLOYMENTS, index, 3)),
            "cluster_ip" => display(out, format_args!("10.96.{}.{}", hash % 256, 1 + hash / 256 % 254)),
            _ => {}
        });
    }

    fn namespace_value(&self, template: &Template, resource: ResourceIndex, index: usize, out: &mut String) {
        template.render(out, |place, out| match place {
            "namespace" => out.push_str(&self.layout.namespace(index)),
            "uid" => self.uid(resource, index, out),
            "version" => display(out, self.layout.revision(resource, index)),
            "created" => time(out, self.created(NAMESPACES, index)),
            _ => {}
        });
    }

    fn event(&self, index: usize, out: &mut String) {
        let layout = &self.layout;
        let pod = layout.event_pod(index);
        self.event.render(out, |place, out| match place {
            "event" => out.push_str(&layout.event(index)),
            "namespace" => out.push_str(&layout.deployment_namespace(layout.pod_deployment(pod))),
            "name" => out.push_str(&layout.pod(pod)),
            "uid" => self.uid(EVENTS, index, out),
            "pod_uid" => self.uid(PODS, pod, out),
            "version" => display(out, layout.revision(EVENTS, index)),
            "pod_version" => display(out, layout.revision(PODS, pod)),
            "started" => time(out, self.created(PODS, pod) + STARTED_AFTER),
            _ => {}
        });
    }

    fn node(&self, index: usize, out: &mut String) {
        let layout = &self.layout;
        let created = self.created(NODES, index);
        self.node.render(out, |place, out| match place {
            "name" => out.push_str(&layout.node(index)),
            "uid" => self.uid(NODES, index, out),
            "version" => display(out, layout.revision(NODES, index)),
            "created" => time(out, created),
            "started" => time(out, self.epoch),
            "zone" => display(out, format_args!("zone-{}", (b'a' + (index % 3) as u8) as char)),
            "pod_cidr" => display(out, format_args!("10.{}.{}.0/24", 64 + index / 256 % 64, index % 256)),
            "host_ip" => host_ip(out, index),
            "checksum" => {
                display(out, format_args!("{:016x}{:016x}", layout.hash(NODES, index, 4), layout.hash(NODES, index, 5)))
            }
            _ => {}
        });
    }

    /// Returns the creation time of an object, in seconds since 1970.
    fn created(&self, resource: ResourceIndex, index: usize) -> i64 {
        self.epoch - (self.layout.hash(resource, index, 6) % CREATED_WITHIN) as i64 - STARTED_AFTER - 1
    }

    fn uid(&self, resource: ResourceIndex, index: usize, out: &mut String) {
        let high = self.layout.hash(resource, index, 7);
        out.push_str(&uid(high, mix(high)));
    }
}

/// Generates the texts of the initial objects of a resource (`pods`, `deployments.apps`) in key order, without starting
/// a member. Returns an empty iterator if the resource is not served.
pub fn generated(config: &SimulatorConfig, resource: &str) -> impl Iterator<Item = String> + use<> {
    let generator = Generator::new(config);
    let resource = crate::catalog::CATALOG.iter().position(|r| r.qualified() == resource);
    let count = resource.map_or(0, |resource| generator.layout().count(resource));
    (0..count).map(move |index| generator.text(resource.unwrap_or_default(), index))
}

/// Creates a UUID of version 4 (random) from two hashes.
pub(crate) fn uid(high: u64, low: u64) -> String {
    format!(
        "{:08x}-{:04x}-4{:03x}-{:04x}-{:012x}",
        high >> 32,
        (high >> 16) & 0xffff,
        high & 0xfff,
        0x8000 | (low >> 48) & 0x3fff,
        low & 0xffff_ffff_ffff
    )
}

/// Formats a time in RFC 3339 with whole seconds, like metav1.Time.
pub(crate) fn rfc3339(seconds: i64) -> String {
    Timestamp::UNIX_EPOCH.saturating_add(SignedDuration::from_secs(seconds)).unwrap_or_default().to_string()
}

fn display(out: &mut String, value: impl std::fmt::Display) {
    // Writing to a String cannot fail.
    let _ = write!(out, "{value}");
}

fn time(out: &mut String, seconds: i64) {
    out.push_str(&rfc3339(seconds));
}

fn hex64(out: &mut String, hash: u64) {
    for salt in 0..4 {
        let _ = write!(out, "{:016x}", mix(hash ^ salt));
    }
}

fn image_tag(out: &mut String, hash: u64) {
    let _ = write!(out, "v{}.{}.{}", 1 + hash % 4, hash / 4 % 30, hash / 120 % 10);
}

fn host_ip(out: &mut String, node: usize) {
    let _ = write!(out, "172.18.{}.{}", node / 250 % 256, 2 + node % 250);
}

fn tier(app: &str) -> &'static str {
    match app {
        "frontend" | "gateway" => "edge",
        "crawler" | "mailer" | "queue" | "worker" => "background",
        _ => "service",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::CATALOG;

    #[test]
    fn generated_objects_are_valid_and_match_their_keys() {
        let config = SimulatorConfig { pods: 300, ..SimulatorConfig::default() };
        let generator = Generator::new(&config);
        for (resource, described) in CATALOG.iter().enumerate() {
            for index in 0..generator.layout().count(resource) {
                let text = generator.text(resource, index);
                let value: serde_json::Value = serde_json::from_str(&text).unwrap_or_else(|e| panic!("{e}: {text}"));
                let start = format!(
                    "{{\"kind\":\"{}\",\"apiVersion\":\"{}\",\"metadata\":{{",
                    described.kind,
                    described.api_version()
                );
                assert!(text.starts_with(&start), "{text}");
                assert!(!text.contains("{{") || !text.contains("}}\""), "an unfilled placeholder: {text}");
                let name = value["metadata"]["name"].as_str().unwrap();
                let key = match value["metadata"]["namespace"].as_str() {
                    Some(namespace) => format!("{namespace}/{name}"),
                    None => name.to_owned(),
                };
                assert_eq!(key, generator.layout().key(resource, index));
                assert_eq!(
                    value["metadata"]["resourceVersion"],
                    generator.layout().revision(resource, index).to_string()
                );
                assert!(!value["metadata"]["creationTimestamp"].as_str().unwrap().is_empty());
            }
        }
    }

    #[test]
    fn generated_pods_have_realistic_size_and_state() {
        let config = SimulatorConfig { pods: 2000, ..SimulatorConfig::default() };
        let generator = Generator::new(&config);
        let (mut bytes, mut running) = (0, 0);
        for index in 0..config.pods {
            let text = generator.text(PODS, index);
            bytes += text.len();
            running += usize::from(text.contains(r#""ready":true"#));
        }
        let mean = bytes / config.pods;
        assert!((4000..5600).contains(&mean), "{mean} bytes a pod");
        assert!((1800..1990).contains(&running), "{running} of {} run", config.pods);
    }

    #[test]
    fn owner_references_have_the_uids_of_generated_objects() {
        let generator = Generator::new(&SimulatorConfig::default());
        let parse =
            |resource, index| serde_json::from_str::<serde_json::Value>(&generator.text(resource, index)).unwrap();
        for pod in 0..100 {
            let deployment = generator.layout().pod_deployment(pod);
            let (pod, replicaset, deployment) =
                (parse(PODS, pod), parse(REPLICASETS, deployment), parse(DEPLOYMENTS, deployment));
            assert_eq!(pod["metadata"]["ownerReferences"][0]["uid"], replicaset["metadata"]["uid"]);
            assert_eq!(replicaset["metadata"]["ownerReferences"][0]["uid"], deployment["metadata"]["uid"]);
        }
    }
}
