//! Checks that the chart's objects refer only to objects that exist, and grant the server no RBAC rights outside hub
//! mode. A kube-apiserver accepts a selector that selects nothing, an unused port, and a role with all rights, so it
//! finds no such mistake. The manifests of the hub must grant the same RBAC rights as the chart.

use super::{VALUES, VALUES_WITH_RIGHTS, deploy, helm, render, render::NAMESPACE, values};
use crate::context::{Case, TestContext, cases};
use anyhow::{Context as _, ensure};
use serde_json::Value;
use std::{collections::BTreeSet, fs};

pub(super) fn cases() -> Vec<Case> {
    cases!["deployment::references";
        chart_objects_refer_only_to_existing_objects, chart_grants_no_rights_and_member_roles_have_no_wildcards,
        chart_grants_only_the_documented_rights_in_a_hub, hub_manifests_grant_the_rights_of_the_chart,
    ]
}

fn of<'a>(objects: &'a [Value], kind: &'a str) -> impl Iterator<Item = &'a Value> {
    objects.iter().filter(move |object| object["kind"] == kind)
}

/// Returns the entries of a list. Other values have no entries.
fn items(list: &Value) -> impl Iterator<Item = &Value> {
    list.as_array().into_iter().flatten()
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// Returns whether a selector is not empty and matches these labels. Kubernetes matches an empty selector with
/// everything, which the chart must not use.
fn selects(asked: &Value, labels: &Value) -> bool {
    let asked = asked.as_object().filter(|asked| !asked.is_empty());
    asked.is_some_and(|asked| asked.iter().all(|(label, value)| labels.get(label) == Some(value)))
}

/// Returns the DNS name of a Service for clients in other namespaces.
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
                api_service_leads_to_a_port,
            ];
            for check in checks {
                check(&objects).with_context(|| format!("helm {version}, {name}"))?;
            }
            let account = text(&template(&objects)?["spec"]["serviceAccountName"]);
            roles_are_bound(&objects, account, NAMESPACE).with_context(|| format!("helm {version}, {name}"))?;
            // With all features on, the chart must make an object of each kind that the test checks.
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

/// Checks that a ServiceMonitor scrapes each pod once: exactly one of the Services that it selects has the port.
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

/// Checks that the pods mount the certificates that cert-manager issues, that these certificates name a Service, and
/// that mounted PersistentVolumeClaims exist.
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

/// Checks that an APIService refers to a port of a Service. Only this Service has the port, so that a load balancer
/// does not expose the port.
fn api_service_leads_to_a_port(objects: &[Value]) -> anyhow::Result<()> {
    for api_service in of(objects, "APIService") {
        let target = &api_service["spec"]["service"];
        ensure!(target["namespace"] == NAMESPACE, "{target}");
        let has_port = |service: &&Value| items(&service["spec"]["ports"]).any(|port| port["port"] == target["port"]);
        let services: Vec<_> = of(objects, "Service").filter(has_port).map(|one| &one["metadata"]["name"]).collect();
        ensure!(services == [&target["name"]], "{target}: {services:?}");
    }
    Ok(())
}

/// Kubernetes role that may read the certificate authorities of front proxies.
const AUTHENTICATION_READER: &str = "extension-apiserver-authentication-reader";

/// Checks that each binding refers to an existing role in its namespace, and has only this ServiceAccount as subject.
fn roles_are_bound(objects: &[Value], account: &str, account_namespace: &str) -> anyhow::Result<()> {
    let mut bound = BTreeSet::new();
    for binding in ["RoleBinding", "ClusterRoleBinding"].into_iter().flat_map(|kind| of(objects, kind)) {
        let subjects: Vec<&Value> = items(&binding["subjects"]).collect();
        let is_own = |subject: &Value| subject["name"] == account && subject["namespace"] == account_namespace;
        ensure!(subjects.len() == 1 && is_own(subjects[0]), "{binding}");
        let (role, namespace) = (&binding["roleRef"], &binding["metadata"]["namespace"]);
        if role["name"] == AUTHENTICATION_READER {
            ensure!(*namespace == "kube-system", "{binding}");
            continue;
        }
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

/// Returns whether the account may read the certificate authorities of front proxies.
fn reads_front_proxies(objects: &[Value]) -> bool {
    of(objects, "RoleBinding").any(|binding| binding["roleRef"]["name"] == AUTHENTICATION_READER)
}

const OF_RIGHTS: [&str; 4] = ["Role", "ClusterRole", "RoleBinding", "ClusterRoleBinding"];

/// RBAC right: API group, resource, verbs and names of objects.
type Right = (String, String, Vec<String>, Vec<String>);

/// Returns all RBAC rights that roles of this kind grant.
fn rights(objects: &[Value], kind: &str) -> BTreeSet<Right> {
    let texts = |list: &Value| -> Vec<String> { items(list).map(|one| text(one).to_owned()).collect() };
    let rules = of(objects, kind).flat_map(|role| items(&role["rules"]));
    rules
        .flat_map(|rule| {
            let (verbs, names) = (texts(&rule["verbs"]), texts(&rule["resourceNames"]));
            let groups = texts(&rule["apiGroups"]);
            let resources = texts(&rule["resources"]);
            let of_groups =
                groups.iter().flat_map(|group| resources.iter().map(move |one| (group.clone(), one.clone())));
            let paths = texts(&rule["nonResourceURLs"]).into_iter().map(|path| (String::new(), path));
            let all: Vec<_> = of_groups.chain(paths).collect();
            all.into_iter().map(move |(group, one)| (group, one, verbs.clone(), names.clone()))
        })
        .collect()
}

fn right(group: &str, resource: &str, verbs: &[&str], names: &[&str]) -> Right {
    let owned = |list: &[&str]| list.iter().map(|one| (*one).to_owned()).collect();
    (group.to_owned(), resource.to_owned(), owned(verbs), owned(names))
}

async fn chart_grants_only_the_documented_rights_in_a_hub(context: TestContext) -> anyhow::Result<()> {
    let helm = helm(&context, 4).await?;
    let reads = ["get", "list", "watch"];
    let kinds = ["upstreamclusters", "resourceregistries", "mergedendpoints", "deniedusers", "clustersources"];
    let of_kinds = kinds.into_iter().flat_map(|kind| {
        let status = right("tributary.dev", &format!("{kind}/status"), &["patch"], &[]);
        [right("tributary.dev", kind, &reads, &[]), status]
    });
    let reviews = [
        right("authentication.k8s.io", "tokenreviews", &["create"], &[]),
        right("authorization.k8s.io", "subjectaccessreviews", &["create"], &[]),
        right("", "/openid/v1/jwks", &["get"], &[]),
    ];
    let api_service = "v1alpha1.aggregation.tributary.dev";
    let authority = right("apiregistration.k8s.io", "apiservices", &["get", "patch"], &[api_service]);
    let in_namespace = [
        right("", "secrets", &reads, &[]),
        right("coordination.k8s.io", "leases", &["create"], &[]),
        right("coordination.k8s.io", "leases", &["get", "update"], &["tributary-status"]),
    ];
    let certificate = right("", "secrets", &["create", "update", "patch"], &["tributary-aggregated-serving"]);
    let of_files = "aggregation.servingSecretName=x,aggregation.caBundle=eA==";
    for (set, has_reviews, makes_certificate) in
        [("aggregation.enabled=false", false, false), (of_files, true, false), ("aggregation.enabled=true", true, true)]
    {
        let mut cluster: BTreeSet<Right> = of_kinds.clone().collect();
        let mut namespace = BTreeSet::from(in_namespace.clone());
        if has_reviews {
            cluster.extend(reviews.clone());
        }
        if makes_certificate {
            cluster.insert(authority.clone());
            namespace.insert(certificate.clone());
        }
        let objects = render::chart(&helm, &["--values", &values("aggregation"), "--set", set]).await?;
        ensure!(rights(&objects, "ClusterRole") == cluster, "{set}: {:?}", rights(&objects, "ClusterRole"));
        ensure!(rights(&objects, "Role") == namespace, "{set}: {:?}", rights(&objects, "Role"));
        ensure!(reads_front_proxies(&objects) == has_reviews, "{set}");
        let pod = &template(&objects)?["spec"];
        ensure!(pod["automountServiceAccountToken"] == true, "{set}: the pod has no token for the hub");
    }
    Ok(())
}

/// An administrator that does not use the chart applies `deploy/hub`. The roles there must equal the chart's roles for
/// a hub.
async fn hub_manifests_grant_the_rights_of_the_chart(context: TestContext) -> anyhow::Result<()> {
    let helm = helm(&context, 4).await?;
    let read = |file: &str| render::objects(&fs::read_to_string(deploy(&format!("hub/{file}")))?);
    let (hub, aggregated, published) = (read("rbac.yaml")?, read("aggregated-api.yaml")?, read("publish.yaml")?);
    let (gateways, managed) = (read("cluster-gateway.yaml")?, read("ocm.yaml")?);
    let accounts: Vec<_> = of(&hub, "ServiceAccount").map(|account| &account["metadata"]["name"]).collect();
    ensure!(accounts == ["tributary-server"], "{accounts:?}");
    for (values_file, manifests) in [
        ("hub", hub.clone()),
        ("aggregation", [hub.clone(), aggregated.clone()].concat()),
        ("publish", [hub.clone(), published].concat()),
        ("doors", [hub, aggregated, gateways, managed].concat()),
    ] {
        roles_are_bound(&manifests, "tributary-server", "tributary-system")?;
        let chart = render::chart(&helm, &["--values", &values(values_file)]).await?;
        for kind in ["ClusterRole", "Role"] {
            let (of_chart, of_manifests) = (rights(&chart, kind), rights(&manifests, kind));
            let differing: Vec<_> = of_chart.symmetric_difference(&of_manifests).collect();
            ensure!(differing.is_empty() && !of_chart.is_empty(), "{values_file}, {kind}: {differing:?}");
        }
        ensure!(reads_front_proxies(&chart) == reads_front_proxies(&manifests), "{values_file}");
    }
    Ok(())
}

/// Outside hub mode, the chart must grant the server no RBAC rights in its own cluster. The manifests for served
/// clusters must not have wildcards.
async fn chart_grants_no_rights_and_member_roles_have_no_wildcards(context: TestContext) -> anyhow::Result<()> {
    let helm = helm(&context, 4).await?;
    for name in VALUES.into_iter().filter(|name| !VALUES_WITH_RIGHTS.contains(name)) {
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
            // Only a whole `*` is a wildcard. Discovery paths also end with an asterisk, but are allowed.
            let is_wild = rights.contains("'*'") || rights.contains("\"*\"");
            ensure!(!is_wild, "{} gives a right by a wildcard", path.display());
            files += 1;
        }
    }
    ensure!(files > 3, "{files} files of accounts");
    Ok(())
}
