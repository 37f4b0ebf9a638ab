//! Validation of an UpstreamCluster.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use tributary_apimachinery::{ClusterName, HostName};
use tributary_policy::PolicyScope;

use super::Problems;
use super::governance::{self, Governance};
use crate::upstream_cluster::INDEX_MAX;
use crate::{Credentials, EndpointProbe, SecretText, SecureServing, UpstreamCluster, UpstreamClusterSpec};

pub(super) fn validate(cluster: &UpstreamCluster, problems: &mut Problems<'_>) {
    if let Err(error) = ClusterName::new(cluster.metadata.name.as_deref().unwrap_or_default()) {
        problems.error("metadata.name", error.to_string());
    }
    let spec = &cluster.spec;
    match &spec.kubeconfig {
        Some(kubeconfig) => {
            if kubeconfig.path.is_empty() {
                problems.error("spec.kubeconfig.path", "is empty; give the path of a kubeconfig");
            }
            nothing_beside_kubeconfig(spec, problems);
        }
        None => {
            endpoints(spec, problems);
            certificate_authorities(spec, problems);
            credentials(spec.credentials.as_ref(), problems);
        }
    }
    // If the cluster has a kubeconfig, these settings are validated when the kubeconfig is read.
    let is_open = spec.insecure_skip_verify || spec.endpoints.iter().any(|endpoint| endpoint.starts_with("http://"));
    if spec.token_pass_through && is_open {
        problems.error(
            "spec.tokenPassThrough",
            "true would send tokens of users to unverified servers; give https:// endpoints with spec.caData or spec.caFile, or remove it",
        );
    }
    if let Some(index) = spec.index.filter(|index| *index > INDEX_MAX) {
        problems.error("spec.index", format!("{index} is out of range; allowed are 0 to {INDEX_MAX}"));
    }
    extras(&spec.impersonation.extra, problems);
    server_names(&spec.server_names, problems);
    if let Some(serving) = &spec.secure_serving {
        secure_serving(serving, !spec.server_names.is_empty(), problems);
    }
    drained_endpoints(spec, problems);
    let governance = Governance {
        policies: &[(PolicyScope::Cluster, &spec.dispatch_policies)],
        flow_control: &spec.flow_control,
        endpoints: Some(&spec.endpoints),
    };
    governance::validate(&governance, problems);
    if let Some(probe) = &spec.endpoint_probe {
        endpoint_probe(probe, problems);
    }
    if let Some(proxy) = &spec.proxy_url {
        let known =
            ["http://", "https://", "socks5://", "socks5h://"].iter().find_map(|scheme| proxy.strip_prefix(scheme));
        let is_address = |rest: &str| !host(rest).is_empty() && (after_host(rest) == ":" || has_valid_port(rest));
        if !known.is_some_and(is_address) {
            // The message omits the address, which may contain a password.
            problems.error(
                "spec.proxyURL",
                "is not the address of a proxy; give http://, https://, socks5:// or socks5h:// with a host and an \
                 optional port from 1 to 65535",
            );
        }
    }
}

/// Checks the keys of extras. The keys must be in lower case, as HTTP headers transmit them. Keys of Kubernetes' own
/// domains are refused, because they name pods and nodes of a single cluster.
fn extras(keys: &[String], problems: &mut Problems<'_>) {
    for (index, key) in keys.iter().enumerate() {
        let field = format!("spec.impersonation.extra[{index}]");
        let domain = key.split_once('/').map(|(domain, _)| domain).unwrap_or_default();
        let is_kubernetes = |own: &str| domain == own || domain.ends_with(&format!(".{own}"));
        if key.is_empty() {
            problems.error(field, "is empty; give the key of an extra");
        } else if *key != key.to_ascii_lowercase() {
            problems.error(field, format!("{key:?} has capital letters; write {:?}", key.to_ascii_lowercase()));
        } else if is_kubernetes("kubernetes.io") || is_kubernetes("k8s.io") {
            problems.error(
                field,
                format!("{key:?} is a key of Kubernetes itself, which is never sent to clusters; remove it"),
            );
        } else if keys[..index].contains(key) {
            problems.error(field, format!("{key:?} is listed twice; remove one entry"));
        }
    }
}

/// Checks the path of the probe. The ranges of the numbers are checked when the object is read.
fn endpoint_probe(probe: &EndpointProbe, problems: &mut Problems<'_>) {
    let is_path = probe.path.starts_with('/') && probe.path.bytes().all(|byte| byte.is_ascii_graphic());
    if !is_path || probe.path.len() > 256 {
        let message =
            format!("{:?} is not a path; give a path that begins with \"/\", such as \"/readyz\"", probe.path);
        problems.error("spec.endpointProbe.path", message);
    }
}

fn server_names(names: &[String], problems: &mut Problems<'_>) {
    for (index, name) in names.iter().enumerate() {
        let field = format!("spec.serverNames[{index}]");
        if let Err(error) = name.parse::<HostName>() {
            problems.error(field, format!("{name:?} {error}; give a host such as eu.example.com"));
        } else if names[..index].iter().any(|other| other.eq_ignore_ascii_case(name)) {
            problems.error(field, format!("{name:?} is listed twice; remove one entry"));
        }
    }
}

fn secure_serving(serving: &SecureServing, has_names: bool, problems: &mut Problems<'_>) {
    let SecureServing { certificate_data, certificate_file, key_data, key_file, client_ca_data, client_ca_file } =
        serving;
    if !has_names {
        problems
            .error("spec.secureServing", "needs spec.serverNames, which is empty; give host names there, or remove it");
    }
    for (data, file, both) in [
        ("certificateData", "certificateFile", certificate_data.is_some() && certificate_file.is_some()),
        ("keyData", "keyFile", key_data.is_some() && key_file.is_some()),
        ("clientCAData", "clientCAFile", client_ca_data.is_some() && client_ca_file.is_some()),
    ] {
        if both {
            let message = format!("is given together with spec.secureServing.{data}; remove one of them");
            problems.error(format!("spec.secureServing.{file}"), message);
        }
    }
    let has_certificate = certificate_data.is_some() || certificate_file.is_some();
    let has_key = key_data.is_some() || key_file.is_some();
    match (has_certificate, has_key) {
        (true, false) => problems
            .error("spec.secureServing.keyData", "is missing, and so is keyFile; a serving certificate needs its key"),
        (false, true) => problems.error(
            "spec.secureServing.certificateData",
            "is missing, and so is certificateFile; a key needs its serving certificate",
        ),
        _ => {}
    }
    let key = key_data.as_ref().map(SecretText::expose);
    for (field, data) in [
        ("certificateData", certificate_data.as_deref()),
        ("keyData", key),
        ("clientCAData", client_ca_data.as_deref()),
    ] {
        if let Some(data) = data {
            pem(&format!("spec.secureServing.{field}"), data, problems);
        }
    }
}

/// Reports fields of the cluster that repeat settings of the kubeconfig context.
fn nothing_beside_kubeconfig(spec: &UpstreamClusterSpec, problems: &mut Problems<'_>) {
    for (field, given) in [
        ("endpoints", !spec.endpoints.is_empty()),
        ("caData", spec.ca_data.is_some()),
        ("caFile", spec.ca_file.is_some()),
        ("insecureSkipVerify", spec.insecure_skip_verify),
        ("tlsServerName", spec.tls_server_name.is_some()),
        ("proxyURL", spec.proxy_url.is_some()),
        ("credentials", spec.credentials.is_some()),
    ] {
        if given {
            problems.error(
                format!("spec.{field}"),
                "is given together with spec.kubeconfig, which also has it; remove one of them",
            );
        }
    }
}

fn endpoints(spec: &UpstreamClusterSpec, problems: &mut Problems<'_>) {
    if spec.endpoints.is_empty() {
        problems
            .error("spec.endpoints", "is empty; give at least one https://host:port, or give spec.kubeconfig instead");
    }
    for (index, endpoint) in spec.endpoints.iter().enumerate() {
        let field = format!("spec.endpoints[{index}]");
        let secure = endpoint.strip_prefix("https://");
        match secure.or_else(|| endpoint.strip_prefix("http://")) {
            Some(rest) if rest.contains(['@', '?', '#', ' ']) => {
                problems.error(field, "has user information, a query, a fragment or a space; only https://host:port with an optional path is allowed");
            }
            Some(rest) if host(rest).is_empty() || !has_valid_port(rest) => {
                problems.error(field, format!("{endpoint:?} has no host or a bad port; give https://host:port"));
            }
            Some(rest) if secure.is_none() && !is_loopback(host(rest)) => {
                problems.error(
                    field,
                    format!(
                        "{endpoint:?} is not encrypted, so anyone on the network path could read the credentials; give https://"
                    ),
                );
            }
            Some(_) if secure.is_none() && !spec.insecure_skip_verify => {
                problems.error(
                    field,
                    format!("{endpoint:?} is not encrypted; give https://, or set spec.insecureSkipVerify: true to accept it on this machine"),
                );
            }
            Some(_) if spec.endpoints[..index].contains(endpoint) => {
                problems.warning(field, format!("{endpoint:?} is listed twice; remove one entry"));
            }
            Some(_) => {}
            None if endpoint.contains('@') => {
                problems.error(field, "is not the address of a server; give https://host:port")
            }
            None => {
                problems.error(field, format!("{endpoint:?} is not the address of a server; give https://host:port"))
            }
        }
    }
}

/// Checks that the drained entries are endpoints. An unknown entry would have no effect, and the user would not notice.
fn drained_endpoints(spec: &UpstreamClusterSpec, problems: &mut Problems<'_>) {
    governance::endpoint_subset(&spec.drained_endpoints, Some(&spec.endpoints), "spec.drainedEndpoints", problems);
    let is_drained = |endpoint: &String| spec.drained_endpoints.contains(endpoint);
    if !spec.endpoints.is_empty() && spec.endpoints.iter().all(is_drained) {
        problems.warning(
            "spec.drainedEndpoints",
            "has all of spec.endpoints, so the cluster gets no requests; remove an entry",
        );
    }
}

/// Returns host and port of an address without its scheme and user information.
fn address(rest: &str) -> &str {
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    authority.rsplit('@').next().unwrap_or_default()
}

/// Returns the host of an address without its scheme.
fn host(rest: &str) -> &str {
    let address = address(rest);
    match address.strip_prefix('[') {
        Some(v6) => v6.split(']').next().unwrap_or_default(),
        None => address.split(':').next().unwrap_or_default(),
    }
}

/// Returns the text between host and path of an address without its scheme: a colon and a port, or the empty text.
fn after_host(rest: &str) -> &str {
    let address = address(rest);
    match address.strip_prefix('[') {
        Some(v6) => v6.split_once(']').map_or("!", |(_, after)| after),
        None => address.find(':').map_or("", |colon| &address[colon..]),
    }
}

/// Returns whether the host is this machine, on which a `kubectl proxy` may listen.
fn is_loopback(host: &str) -> bool {
    host == "localhost" || host.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback())
}

/// Returns whether the host is followed by a valid port or by no port.
fn has_valid_port(rest: &str) -> bool {
    // The check for `+` is necessary, because Rust parses `+80` as a number.
    let is_port = |text: &str| !text.starts_with('+') && text.parse::<u16>().is_ok_and(|port| port > 0);
    let after = after_host(rest);
    after.is_empty() || after.strip_prefix(':').is_some_and(is_port)
}

fn certificate_authorities(spec: &UpstreamClusterSpec, problems: &mut Problems<'_>) {
    match (&spec.ca_data, &spec.ca_file, spec.insecure_skip_verify) {
        (Some(_), Some(_), _) => problems.error("spec.caFile", "is given together with spec.caData; remove one of them"),
        // The Secret may have the authorities.
        (None, None, false) if spec.secret_ref.is_some() => {}
        (None, None, false) => problems.error(
            "spec.caData",
            "is missing, and so is spec.caFile, so server certificates cannot be verified; give one of them, or set spec.insecureSkipVerify: true to disable verification",
        ),
        (None, None, true) => problems.warning(
            "spec.insecureSkipVerify",
            "true disables verification of the servers, so anyone on the network path can read and change all data; give spec.caData or spec.caFile",
        ),
        (_, _, true) => problems.error(
            "spec.insecureSkipVerify",
            "true contradicts spec.caData and spec.caFile; remove one of them",
        ),
        _ => {}
    }
    if let Some(data) = &spec.ca_data {
        pem("spec.caData", data, problems);
    }
}

fn pem(field: &str, data: &str, problems: &mut Problems<'_>) {
    let text: String = data.split_ascii_whitespace().collect();
    let decoded = STANDARD.decode(text).unwrap_or_default();
    if !decoded.windows(10).any(|window| window == b"-----BEGIN") {
        problems.error(field, "is not base64 of PEM text; encode the file with `base64 -w0`, or give the path of the file in the field for files");
    }
}

fn credentials(credentials: Option<&Credentials>, problems: &mut Problems<'_>) {
    let nothing = Credentials::default();
    let credentials = credentials.unwrap_or(&nothing);
    credentials_given_twice(credentials, problems);
    ways_to_authenticate(credentials, problems);
    let Credentials { token, client_certificate_data, client_key_data, .. } = credentials;
    if token
        .as_ref()
        .is_some_and(|token| token.expose().is_empty() || token.expose().contains(|c: char| !c.is_ascii_graphic()))
    {
        problems.error("spec.credentials.token", "is empty, or contains a space or a line break; give only the token");
    }
    if let Some(data) = client_certificate_data {
        pem("spec.credentials.clientCertificateData", data, problems);
    }
    if let Some(data) = client_key_data {
        pem("spec.credentials.clientKeyData", data.expose(), problems);
    }
}

/// Reports each credential that is set both as data and as a file.
fn credentials_given_twice(credentials: &Credentials, problems: &mut Problems<'_>) {
    let Credentials {
        token,
        token_file,
        client_certificate_data,
        client_certificate_file,
        client_key_data,
        client_key_file,
    } = credentials;
    let is_certificate_twice = client_certificate_data.is_some() && client_certificate_file.is_some();
    for (first, second, both) in [
        ("token", "tokenFile", token.is_some() && token_file.is_some()),
        ("clientCertificateData", "clientCertificateFile", is_certificate_twice),
        ("clientKeyData", "clientKeyFile", client_key_data.is_some() && client_key_file.is_some()),
    ] {
        if both {
            let message = format!("is given together with spec.credentials.{first}; remove one of them");
            problems.error(format!("spec.credentials.{second}"), message);
        }
    }
}

/// Checks that the credentials contain either a token, or a client certificate with its key.
fn ways_to_authenticate(credentials: &Credentials, problems: &mut Problems<'_>) {
    let has_token = credentials.token.is_some() || credentials.token_file.is_some();
    let has_certificate =
        credentials.client_certificate_data.is_some() || credentials.client_certificate_file.is_some();
    let has_key = credentials.client_key_data.is_some() || credentials.client_key_file.is_some();
    match (has_certificate, has_key) {
        (true, false) => problems.error(
            "spec.credentials.clientKeyData",
            "is missing, and so is clientKeyFile; a client certificate needs its key",
        ),
        (false, true) => problems.error(
            "spec.credentials.clientCertificateData",
            "is missing, and so is clientCertificateFile; a key needs its client certificate",
        ),
        (true, true) if has_token => {
            problems.error("spec.credentials", "has a token and a client certificate; remove one of them")
        }
        (false, false) if !has_token => problems.warning(
            "spec.credentials",
            "is missing, so the cluster sees anonymous requests; give a token or a client certificate",
        ),
        _ => {}
    }
}
