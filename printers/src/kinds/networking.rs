//! Printers of the group networking.k8s.io.

use jiff::Timestamp;
use serde::de::IgnoredAny;

use super::decode;
use super::metadata::{FullMetadata, Metadata};
use super::services::LoadBalancerStatus;
use crate::Row;
use crate::selector::{StructuredLabelSelector, format_label_selector};
use crate::value::{JoinedTexts, ListValue, TextValue, parts};

/// The maximum number of hosts in a cell. If there are more rules, the cell ends with the number of the remaining
/// rules.
const SHOWN_MAX: usize = 3;

parts! {
    struct Ingress<'a> {
        metadata: Metadata<'a>,
        spec: IngressSpec<'a>,
        status: IngressStatus<'a>,
    }

    struct IngressSpec<'a> {
        ingress_class_name: Option<TextValue<'a>>,
        rules: ListValue<IngressRule<'a>>,
        tls: ListValue<IgnoredAny>,
    }

    struct IngressRule<'a> {
        host: TextValue<'a>,
    }

    struct IngressStatus<'a> {
        load_balancer: LoadBalancerStatus<'a>,
    }

    struct IngressClass<'a> {
        metadata: FullMetadata<'a>,
        spec: IngressClassSpec<'a>,
    }

    struct IngressClassSpec<'a> {
        controller: TextValue<'a>,
        parameters: Option<IngressClassParameters<'a>>,
    }

    struct IngressClassParameters<'a> {
        api_group: Option<TextValue<'a>>,
        kind: TextValue<'a>,
        name: TextValue<'a>,
    }

    struct NetworkPolicy<'a> {
        metadata: Metadata<'a>,
        spec: NetworkPolicySpec<'a>,
    }

    struct NetworkPolicySpec<'a> {
        pod_selector: StructuredLabelSelector<'a>,
    }

    struct ServiceCidr<'a> {
        metadata: Metadata<'a>,
        spec: ServiceCidrSpec<'a>,
    }

    struct ServiceCidrSpec<'a> {
        cidrs: ListValue<TextValue<'a>>,
    }

    struct IpAddress<'a> {
        metadata: Metadata<'a>,
        spec: IpAddressSpec<'a>,
    }

    struct IpAddressSpec<'a> {
        parent_ref: Option<ParentReference<'a>>,
    }

    struct ParentReference<'a> {
        group: TextValue<'a>,
        resource: TextValue<'a>,
        namespace: TextValue<'a>,
        name: TextValue<'a>,
    }
}

pub(super) fn ingress(object: &[u8], now: Timestamp, row: &mut Row) -> Result<(), serde_json::Error> {
    let ingress: Ingress<'_> = decode(object)?;
    row.text(&ingress.metadata.name);
    row.text(ingress.spec.ingress_class_name.as_deref().unwrap_or("<none>"));
    row.text(&hosts(&ingress.spec.rules));
    row.text(&ingress.status.load_balancer.addresses());
    row.text(if ingress.spec.tls.is_empty() { "80" } else { "80, 443" });
    row.format(format_args!("{}", ingress.metadata.creation_timestamp.since(now)));
    Ok(())
}

/// Formats the first hosts, and the number of remaining rules with or without a host.
fn hosts(rules: &[IngressRule<'_>]) -> String {
    let mut shown: Vec<&str> = Vec::with_capacity(SHOWN_MAX);
    let mut more = false;
    for rule in rules {
        more |= shown.len() == SHOWN_MAX;
        if !more && !rule.host.is_empty() {
            shown.push(&rule.host);
        }
    }
    match (shown.is_empty(), more) {
        (true, _) => "*".to_owned(),
        (false, false) => JoinedTexts(",", &shown).to_string(),
        (false, true) => format!("{} + {} more...", JoinedTexts(",", &shown), rules.len() - SHOWN_MAX),
    }
}

pub(super) fn ingress_class(object: &[u8], now: Timestamp, row: &mut Row) -> Result<(), serde_json::Error> {
    let class: IngressClass<'_> = decode(object)?;
    let default = class.metadata.annotations.get("ingressclass.kubernetes.io/is-default-class");
    let suffix = if default.is_some_and(|value| &**value == "true") { " (default)" } else { "" };
    row.format(format_args!("{}{suffix}", class.metadata.name));
    row.text(&class.spec.controller);
    match &class.spec.parameters {
        None => row.text("<none>"),
        Some(IngressClassParameters { api_group: Some(group), kind, name }) => {
            row.format(format_args!("{kind}.{group}/{name}"));
        }
        Some(IngressClassParameters { api_group: None, kind, name }) => row.format(format_args!("{kind}/{name}")),
    }
    row.format(format_args!("{}", class.metadata.creation_timestamp.since(now)));
    Ok(())
}

pub(super) fn network_policy(object: &[u8], now: Timestamp, row: &mut Row) -> Result<(), serde_json::Error> {
    let policy: NetworkPolicy<'_> = decode(object)?;
    row.text(&policy.metadata.name);
    row.text(&format_label_selector(Some(&policy.spec.pod_selector)));
    row.format(format_args!("{}", policy.metadata.creation_timestamp.since(now)));
    Ok(())
}

pub(super) fn service_cidr(object: &[u8], now: Timestamp, row: &mut Row) -> Result<(), serde_json::Error> {
    let cidr: ServiceCidr<'_> = decode(object)?;
    row.text(&cidr.metadata.name);
    row.format(format_args!("{}", JoinedTexts(",", cidr.spec.cidrs.iter())));
    row.format(format_args!("{}", cidr.metadata.creation_timestamp.since(now)));
    Ok(())
}

/// Prints three cells for two columns, like kube-apiserver: the cell of the age has no column.
pub(super) fn ip_address(object: &[u8], now: Timestamp, row: &mut Row) -> Result<(), serde_json::Error> {
    let address: IpAddress<'_> = decode(object)?;
    row.text(&address.metadata.name);
    match &address.spec.parent_ref {
        None => row.text("<none>"),
        Some(parent) => {
            let dot = if parent.group.is_empty() { "" } else { "." };
            let slash = if parent.namespace.is_empty() { "" } else { "/" };
            let resource = format!("{}{dot}{}", parent.resource, parent.group).to_lowercase();
            row.format(format_args!("{resource}{slash}{}/{}", parent.namespace, parent.name));
        }
    }
    row.format(format_args!("{}", address.metadata.creation_timestamp.since(now)));
    Ok(())
}
