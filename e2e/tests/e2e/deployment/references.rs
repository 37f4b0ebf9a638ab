//! The chart's objects refer only to objects that exist, and grant the server no rights outside hub mode. A
//! kube-apiserver would accept a selector that selects nothing, an unused port, and a role with all rights.

use super::{VALUES, VALUES_WITH_RIGHTS, deploy, helm, render, render::NAMESPACE, values};
use crate::context::{Case, TestContext, cases};
use anyhow::{Context as _, ensure};
use serde_json::Value;
use std::{collections::BTreeSet, fs};

pub(super) fn cases() -> Vec<Case> {
    cases!["deployment::references";
        chart_objects_refer_only_to_existing_objects, chart_grants_no_rights_and_member_roles_have_no_wildcards,
        chart_grants_only_the_documented_rights_in_a_hub,
    ]
}

fn of<'a>(objects: &'a [Value], kind: &'a str) -> impl Iterator<Item = &'a Value> {
    objects.iter().filter(move |object| object["kind"] == kind)
}

/// The entries of a list; empty for other values.
fn items(list: &Value) -> impl Iterator<Item = &Value> {
    list.as_array().into_iter().flatten()
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// Returns whether a non-empty selector matches these labels. An empty selector would match everything.
fn selects(asked: &Value, labels: &Value) -> bool {
    let asked = asked.as_object().filter(|asked| !asked.is_empty());
    asked.is_some_and(|asked| asked.iter().all(|(label, value)| labels.get(label) == Some(value)))
}

/// The DNS name of a Service from other namespaces.
fn host(service: &Value) -> String {
    format!("{}.{NAMESPACE}.svc", text(&service["metadata"]["name"]))
}

fn template(objects: &[Value]) -> anyhow::Result<&Value> {
    of(objects, "Deployment").next().map(|deployment| &deployment["spec"]["template"]).context("no Deployment")
}

async fn chart_objects_refer_only_to_existing_objects(context: TestContext) -> anyhow::Result<()> {
    for version in [3, 4] {
        let helm = helm(&context, version).await?;
        for name in VALUES {
            let objects = render::chart(&helm, &["--values", &values(name)]).await?;
            let checks = [
                pods_are_selected,
                ports_are_listened_at,
                scraped_once,
                certificates_are_mounted,
                replicas_are_found,
                roles_are_bound,
            ];
            for check in checks {
                check(&objects).with_context(|| format!("helm {version}, {name}"))?;
            }
            // With all values switched on, the chart must have an object of each checked kind.
            let kinds =
                ["Certificate", "NetworkPolicy", "PersistentVolumeClaim", "PodDisruptionBudget", "ServiceMonitor"];
            let missing: Vec<_> = kinds.into_iter().filter(|kind| of(&objects, kind).next().is_none()).collect();
            ensure!(name != "everything" || missing.is_empty(), "helm {version}: {missing:?}");
        }
    }
    Ok(())
}

/// Checks that the selectors of all objects select the pods.
fn pods_are_selected(objects: &[Value]) -> anyhow::Result<()> {
    let template = template(objects)?;
    let by = [
        ("Deployment", "/spec/selector/matchLabels"),
        ("NetworkPolicy", "/spec/podSelector/matchLabels"),
        ("PodDisruptionBudget", "/spec/selector/matchLabels"),
        ("Service", "/spec/selector"),
    ];
    let of_objects =
        by.into_iter().flat_map(|(kind, selector)| of(objects, kind).map(move |one| one.pointer(selector)));
    let spread = items(&template["spec"]["topologySpreadConstraints"]);
    let spread = spread.map(|constraint| constraint.pointer("/labelSelector/matchLabels"));
    for selector in of_objects.chain(spread) {
        let selector = selector.context("something selects nothing")?;
        let labels = &template["metadata"]["labels"];
        ensure!(selects(selector, labels), "{selector} does not select {labels}");
    }
    Ok(())
}

/// Services, probes and network policies refer to ports by name. Checks that each name is a port of the container, and
/// that a network policy allows each port.
fn ports_are_listened_at(objects: &[Value]) -> anyhow::Result<()> {
    let template = template(objects)?;
    let container = &template["spec"]["containers"][0];
    let listens: BTreeSet<&str> = items(&container["ports"]).map(|port| text(&port["name"])).collect();
    for probe in ["startupProbe", "livenessProbe", "readinessProbe"] {
        let port = text(&container[probe]["httpGet"]["port"]);
        ensure!(listens.contains(port), "{probe} asks at {port:?}, and the container has {listens:?}");
    }
    for service in of(objects, "Service") {
        for port in items(&service["spec"]["ports"]) {
            ensure!(listens.contains(text(&port["targetPort"])), "{port} leads to none of {listens:?}");
        }
    }
    for policy in of(objects, "NetworkPolicy") {
        let rules = || items(&policy["spec"]["ingress"]);
        let let_in: BTreeSet<&str> =
            rules().flat_map(|rule| items(&rule["ports"])).map(|port| text(&port["port"])).collect();
        ensure!(let_in == listens, "{let_in:?} are let in, and the container has {listens:?}");
    }
    Ok(())
}

/// Checks that a ServiceMonitor scrapes each pod once: only one of the selected Services has the port.
fn scraped_once(objects: &[Value]) -> anyhow::Result<()> {
    for monitor in of(objects, "ServiceMonitor") {
        let selector = &monitor["spec"]["selector"]["matchLabels"];
        for endpoint in items(&monitor["spec"]["endpoints"]) {
            let selected = of(objects, "Service").filter(|service| selects(selector, &service["metadata"]["labels"]));
            let has_port =
                |service: &&Value| items(&service["spec"]["ports"]).any(|port| port["name"] == endpoint["port"]);
            let scraped = selected.filter(has_port).count();
            ensure!(scraped == 1, "{scraped} Services are scraped by {endpoint}");
        }
    }
    Ok(())
}

/// Checks that the pods mount the certificates that cert-manager makes, that the certificates name a Service, and that
/// mounted claims exist.
fn certificates_are_mounted(objects: &[Value]) -> anyhow::Result<()> {
    let volumes: Vec<&Value> = items(&template(objects)?["spec"]["volumes"]).collect();
    let hosts: Vec<String> = of(objects, "Service").map(host).collect();
    for certificate in of(objects, "Certificate") {
        let spec = &certificate["spec"];
        let is_mounted = volumes.iter().any(|volume| volume["secret"]["secretName"] == spec["secretName"]);
        ensure!(is_mounted, "nobody mounts {}", spec["secretName"]);
        let is_for_us = items(&spec["dnsNames"]).any(|name| hosts.iter().any(|host| host == text(name)));
        ensure!(is_for_us, "{} for none of {hosts:?}", spec["dnsNames"]);
    }
    for claim in volumes.iter().filter_map(|volume| volume["persistentVolumeClaim"]["claimName"].as_str()) {
        ensure!(of(objects, "PersistentVolumeClaim").any(|made| made["metadata"]["name"] == claim), "no {claim}");
    }
    Ok(())
}

/// Tributary counts replicas by the DNS name of a headless Service. Checks that the Service also lists unready pods,
/// because they may still serve requests.
fn replicas_are_found(objects: &[Value]) -> anyhow::Result<()> {
    let mut arguments = items(&template(objects)?["spec"]["containers"][0]["args"]).filter_map(Value::as_str);
    let name = arguments.find_map(|argument| argument.strip_prefix("--replica-dns-name=")).context("no name")?;
    let service = of(objects, "Service").find(|service| host(service) == name);
    let spec = &service.with_context(|| format!("no Service is {name}"))?["spec"];
    ensure!(spec["clusterIP"] == "None" && spec["publishNotReadyAddresses"] == true, "{name}: {spec}");
    Ok(())
}

/// Checks that each binding has an existing role in its namespace, and the ServiceAccount of the pods.
fn roles_are_bound(objects: &[Value]) -> anyhow::Result<()> {
    let account = &template(objects)?["spec"]["serviceAccountName"];
    let mut bound = BTreeSet::new();
    for binding in ["RoleBinding", "ClusterRoleBinding"].into_iter().flat_map(|kind| of(objects, kind)) {
        let subjects: Vec<&Value> = items(&binding["subjects"]).collect();
        let is_own = |subject: &Value| subject["name"] == *account && subject["namespace"] == NAMESPACE;
        ensure!(subjects.len() == 1 && is_own(subjects[0]), "{binding}");
        let (role, namespace) = (&binding["roleRef"], &binding["metadata"]["namespace"]);
        let is_role =
            |one: &&Value| one["metadata"]["name"] == role["name"] && one["metadata"]["namespace"] == *namespace;
        ensure!(of(objects, text(&role["kind"])).any(|one| is_role(&one)), "{binding} has no role");
        bound.insert(text(&role["name"]));
    }
    let roles = ["Role", "ClusterRole"].into_iter().flat_map(|kind| of(objects, kind));
    let unbound: Vec<_> = roles.filter(|role| !bound.contains(text(&role["metadata"]["name"]))).collect();
    ensure!(unbound.is_empty(), "{unbound:?}");
    Ok(())
}

const OF_RIGHTS: [&str; 4] = ["Role", "ClusterRole", "RoleBinding", "ClusterRoleBinding"];

/// One right: API group, resource, verbs and names of objects.
type Right = (String, String, Vec<String>, Vec<String>);

/// All rights of the roles of a kind.
fn rights(objects: &[Value], kind: &str) -> BTreeSet<Right> {
    let texts = |list: &Value| -> Vec<String> { items(list).map(|one| text(one).to_owned()).collect() };
    let rules = of(objects, kind).flat_map(|role| items(&role["rules"]));
    rules
        .flat_map(|rule| {
            let (verbs, names) = (texts(&rule["verbs"]), texts(&rule["resourceNames"]));
            let groups = texts(&rule["apiGroups"]);
            let resources = texts(&rule["resources"]);
            groups.into_iter().flat_map(move |group| {
                let (verbs, names) = (verbs.clone(), names.clone());
                resources.clone().into_iter().map(move |one| (group.clone(), one, verbs.clone(), names.clone()))
            })
        })
        .collect()
}

fn right(group: &str, resource: &str, verbs: &[&str], names: &[&str]) -> Right {
    let owned = |list: &[&str]| list.iter().map(|one| (*one).to_owned()).collect();
    (group.to_owned(), resource.to_owned(), owned(verbs), owned(names))
}

/// In a hub, the chart grants the server only these rights.
async fn chart_grants_only_the_documented_rights_in_a_hub(context: TestContext) -> anyhow::Result<()> {
    let helm = helm(&context, 4).await?;
    let own = values(VALUES_WITH_RIGHTS);
    let reads = ["get", "list", "watch"];
    let kinds = ["upstreamclusters", "resourceregistries", "mergedendpoints", "deniedusers"];
    let plain: BTreeSet<Right> = kinds
        .into_iter()
        .flat_map(|kind| {
            let status = right("tributary.dev", &format!("{kind}/status"), &["patch"], &[]);
            [right("tributary.dev", kind, &reads, &[]), status]
        })
        .collect();
    let in_namespace = [
        right("", "secrets", &reads, &[]),
        right("coordination.k8s.io", "leases", &["create"], &[]),
        right("coordination.k8s.io", "leases", &["get", "update"], &["tributary-status"]),
    ];
    let objects = render::chart(&helm, &["--values", &own]).await?;
    ensure!(rights(&objects, "ClusterRole") == plain, "{:?}", rights(&objects, "ClusterRole"));
    ensure!(rights(&objects, "Role").into_iter().eq(BTreeSet::from(in_namespace)), "{:?}", rights(&objects, "Role"));
    let pod = &template(&objects)?["spec"];
    ensure!(pod["automountServiceAccountToken"] == true, "the pod has no token for the hub");
    Ok(())
}

/// Outside hub mode, the chart grants the server no rights in its own cluster. The manifests for served clusters have
/// no wildcards.
async fn chart_grants_no_rights_and_member_roles_have_no_wildcards(context: TestContext) -> anyhow::Result<()> {
    let helm = helm(&context, 4).await?;
    for name in VALUES.into_iter().filter(|name| *name != VALUES_WITH_RIGHTS) {
        let objects = render::chart(&helm, &["--values", &values(name)]).await?;
        let given: Vec<_> = OF_RIGHTS.into_iter().flat_map(|kind| of(&objects, kind)).collect();
        ensure!(given.is_empty(), "{name}: {given:?}");
        let pod = &template(&objects)?["spec"];
        let own = of(&objects, "ServiceAccount").find(|own| own["metadata"]["name"] == pod["serviceAccountName"]);
        let own = own.with_context(|| format!("{name}: no {}", pod["serviceAccountName"]))?;
        for mounts_token in [&own["automountServiceAccountToken"], &pod["automountServiceAccountToken"]] {
            ensure!(*mounts_token == false, "{name}: the pod has a token");
        }
    }
    let mut files = 0;
    for folder in fs::read_dir(deploy("members"))? {
        for file in fs::read_dir(folder?.path())? {
            let path = file?.path();
            let rights = fs::read_to_string(&path)?;
            // Only a whole `*` is a wildcard. Paths of discovery end with an asterisk, too.
            let is_wild = rights.contains("'*'") || rights.contains("\"*\"");
            ensure!(!is_wild, "{} gives a right by a wildcard", path.display());
            files += 1;
        }
    }
    ensure!(files > 3, "{files} files of accounts");
    Ok(())
}
