//! Printers of Services, Endpoints and EndpointSlices.

use std::collections::BTreeSet;
use std::fmt::Write;

use jiff::Timestamp;

use super::decode;
use super::metadata::Metadata;
use crate::Row;
use crate::selector::format_labels;
use crate::value::{JoinedTexts, Labels, ListValue, TextValue, first_and_more, parts};

/// The maximum number of addresses or ports in a cell. If there are more, the cell ends with the number of the
/// remaining addresses or ports.
const SHOWN_MAX: usize = 3;

parts! {
    struct Service<'a> {
        metadata: Metadata<'a>,
        spec: ServiceSpec<'a>,
        status: ServiceStatus<'a>,
    }

    struct ServiceSpec<'a> {
        r#type: TextValue<'a>,
        #[serde(rename = "clusterIP")]
        cluster_ip: TextValue<'a>,
        #[serde(rename = "clusterIPs")]
        cluster_ips: ListValue<TextValue<'a>>,
        #[serde(rename = "externalIPs")]
        external_ips: ListValue<TextValue<'a>>,
        external_name: TextValue<'a>,
        ports: ListValue<ServicePort<'a>>,
        selector: Labels<'a>,
    }

    struct ServicePort<'a> {
        protocol: TextValue<'a>,
        port: i64,
        node_port: i64,
    }

    struct ServiceStatus<'a> {
        load_balancer: LoadBalancerStatus<'a>,
    }

    /// The addresses of a Service's or an Ingress's load balancer.
    struct LoadBalancerStatus<'a> {
        ingress: ListValue<LoadBalancerIngress<'a>>,
    }

    struct LoadBalancerIngress<'a> {
        ip: TextValue<'a>,
        hostname: TextValue<'a>,
    }

    struct CoreEndpoints<'a> {
        metadata: Metadata<'a>,
        subsets: ListValue<EndpointSubset<'a>>,
    }

    struct EndpointSubset<'a> {
        addresses: ListValue<EndpointAddress<'a>>,
        ports: ListValue<EndpointPort<'a>>,
    }

    struct EndpointAddress<'a> {
        ip: TextValue<'a>,
    }

    struct EndpointSlice<'a> {
        metadata: Metadata<'a>,
        address_type: TextValue<'a>,
        ports: ListValue<EndpointPort<'a>>,
        endpoints: ListValue<SliceEndpoint<'a>>,
    }

    struct EndpointPort<'a> {
        name: Option<TextValue<'a>>,
        port: Option<i64>,
    }

    struct SliceEndpoint<'a> {
        addresses: ListValue<TextValue<'a>>,
    }
}

impl LoadBalancerStatus<'_> {
    /// Returns the addresses of the load balancer, sorted and without duplicates.
    pub(super) fn addresses(&self) -> String {
        let addresses: BTreeSet<&str> = self
            .ingress
            .iter()
            .map(|ingress| if ingress.ip.is_empty() { &*ingress.hostname } else { &*ingress.ip })
            .filter(|address| !address.is_empty())
            .collect();
        JoinedTexts(",", &addresses).to_string()
    }
}

pub(super) fn service(object: &[u8], now: Timestamp, row: &mut Row) -> Result<(), serde_json::Error> {
    let service: Service<'_> = decode(object)?;
    let spec = &service.spec;
    row.text(&service.metadata.name);
    row.text(&spec.r#type);
    row.text_or(spec.cluster_ips.first().unwrap_or(&spec.cluster_ip), "<none>");
    row.text(&external_ip(&service));
    row.text_or(&ports(&spec.ports), "<none>");
    row.format(format_args!("{}", service.metadata.creation_timestamp.since(now)));
    row.text(&format_labels(&spec.selector));
    Ok(())
}

fn external_ip(service: &Service<'_>) -> String {
    let spec = &service.spec;
    let external = JoinedTexts(",", spec.external_ips.iter());
    match &*spec.r#type {
        "ClusterIP" | "NodePort" if spec.external_ips.is_empty() => "<none>".to_owned(),
        "ClusterIP" | "NodePort" => external.to_string(),
        "LoadBalancer" => {
            let balancer = service.status.load_balancer.addresses();
            match (balancer.is_empty(), spec.external_ips.is_empty()) {
                (true, true) => "<pending>".to_owned(),
                (false, true) => balancer,
                (true, false) => external.to_string(),
                (false, false) => format!("{balancer},{external}"),
            }
        }
        "ExternalName" => spec.external_name.to_string(),
        _ => "<unknown>".to_owned(),
    }
}

fn ports(ports: &[ServicePort<'_>]) -> String {
    let mut text = String::new();
    for (index, port) in ports.iter().enumerate() {
        if index > 0 {
            text.push(',');
        }
        // Writing to memory cannot fail.
        let _ = match port.node_port {
            1.. => write!(text, "{}:{}/{}", port.port, port.node_port, port.protocol),
            _ => write!(text, "{}/{}", port.port, port.protocol),
        };
    }
    text
}

pub(super) fn endpoints(object: &[u8], now: Timestamp, row: &mut Row) -> Result<(), serde_json::Error> {
    let endpoints: CoreEndpoints<'_> = decode(object)?;
    row.text(&endpoints.metadata.name);
    if endpoints.subsets.is_empty() {
        row.text("<none>");
    } else {
        // If no subset has an address, the cell is an empty text, and not `<none>`.
        row.text(&first_and_more(&addresses(&endpoints.subsets), SHOWN_MAX, ",", ""));
    }
    row.format(format_args!("{}", endpoints.metadata.creation_timestamp.since(now)));
    Ok(())
}

/// Returns each address with each port of its subset. A subset without ports, as for headless Services, has only
/// addresses.
fn addresses(subsets: &[EndpointSubset<'_>]) -> Vec<String> {
    let mut list = Vec::new();
    for subset in subsets {
        if subset.ports.is_empty() {
            list.extend(subset.addresses.iter().map(|address| address.ip.to_string()));
        }
        for port in &*subset.ports {
            list.extend(subset.addresses.iter().map(|address| host_port(&address.ip, port.port.unwrap_or_default())));
        }
    }
    list
}

/// Formats a host and a port; IPv6 addresses have brackets.
fn host_port(host: &str, port: i64) -> String {
    if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
}

pub(super) fn endpoint_slice(object: &[u8], now: Timestamp, row: &mut Row) -> Result<(), serde_json::Error> {
    let slice: EndpointSlice<'_> = decode(object)?;
    let ports: Vec<String> = slice
        .ports
        .iter()
        .map(|port| match (port.port, &port.name) {
            (Some(port), _) => port.to_string(),
            (None, Some(name)) => name.to_string(),
            (None, None) => "*".to_owned(),
        })
        .collect();
    let addresses: Vec<&TextValue<'_>> =
        slice.endpoints.iter().flat_map(|endpoint| endpoint.addresses.iter()).collect();
    row.text(&slice.metadata.name);
    row.text(&slice.address_type);
    row.text(&first_and_more(&ports, SHOWN_MAX, ",", "<unset>"));
    row.text(&first_and_more(&addresses, SHOWN_MAX, ",", "<unset>"));
    row.format(format_args!("{}", slice.metadata.creation_timestamp.since(now)));
    Ok(())
}
