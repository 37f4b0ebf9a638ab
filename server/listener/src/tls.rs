//! TLS for clients: versions 1.2 and 1.3, and HTTP/2 preferred to HTTP/1.1. Certificates and authorities can be
//! replaced at runtime, and hosts may have their own.
//!
//! TLS sessions belong to one configuration: a client needs a full handshake for a host with different settings, and
//! after the authorities were replaced.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls::{DistinguishedName, ServerConfig};
use tributary_apimachinery::{ClusterName, HostName};
use tributary_authentication::RequestedCertificate;
use tributary_hosts::NamedCertificates;
use tributary_hosts::{HostTable, HostTls};

use crate::settings::TlsVersions;

/// The names (in DER) of the authorities that a TLS handshake lists in its request for a client certificate.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RequestedAuthorities {
    /// The authorities that issue client certificates. A cluster's host may have authorities of its own.
    pub clients: Vec<Vec<u8>>,
    /// The authorities that issue the certificates of front proxies, for all hosts.
    pub proxies: Vec<Vec<u8>>,
}

/// The current serving certificate. Open connections keep their certificate.
pub struct ServingCertificate(ArcSwap<CertifiedKey>);

impl ServingCertificate {
    /// Creates a replaceable serving certificate with its first value.
    pub fn new(certificate: CertifiedKey) -> Arc<Self> {
        Arc::new(Self(ArcSwap::from_pointee(certificate)))
    }

    fn shared(certificate: Arc<CertifiedKey>) -> Arc<Self> {
        Arc::new(Self(ArcSwap::new(certificate)))
    }

    /// Returns the serving certificate for new connections.
    pub fn current(&self) -> Arc<CertifiedKey> {
        self.0.load_full()
    }

    /// Replaces the serving certificate for new connections.
    pub fn replace(&self, certificate: CertifiedKey) {
        self.0.store(Arc::new(certificate));
    }
}

impl ResolvesServerCert for ServingCertificate {
    fn resolve(&self, _hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.0.load_full())
    }
}

impl fmt::Debug for ServingCertificate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ServingCertificate(..)")
    }
}

/// The TLS settings for new connections.
#[derive(Debug)]
pub struct TlsSettings {
    certificates: Arc<CommonCertificates>,
    versions: TlsVersions,
    /// The inputs of the current configurations. The mutex stays locked during each change of the settings, so that
    /// concurrent changes do not overwrite each other.
    inputs: Mutex<TlsInputs>,
    current: ArcSwap<Current>,
}

/// The certificates for hosts without a certificate of their own.
#[derive(Debug)]
struct CommonCertificates {
    default: Arc<ServingCertificate>,
    named: ArcSwap<NamedCertificates>,
}

impl CommonCertificates {
    fn find_by_name(&self, asked: Option<&str>) -> Arc<CertifiedKey> {
        let named = self.named.load();
        asked.and_then(|asked| named.find_by_name(asked)).map_or_else(|| self.default.current(), Arc::clone)
    }
}

impl ResolvesServerCert for CommonCertificates {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.find_by_name(hello.server_name()))
    }
}

/// Selects the certificate for clients without SNI that connect to this IP address.
#[derive(Debug)]
struct CertificateByAddress(Arc<CommonCertificates>, IpAddr);

impl ResolvesServerCert for CertificateByAddress {
    fn resolve(&self, _hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let named = self.0.named.load();
        Some(named.find_by_address(self.1).map_or_else(|| self.0.default.current(), Arc::clone))
    }
}

/// The inputs from which the rustls configurations are built.
#[derive(Debug, Default)]
struct TlsInputs {
    /// The authorities from which client certificates are requested; `None` if none are requested.
    authorities: Option<RequestedAuthorities>,
    hosts: HostTable,
}

/// The rustls configurations: a common one, and one for each cluster with TLS settings of its own.
#[derive(Debug)]
struct Current {
    common: Arc<ServerConfig>,
    clusters: BTreeMap<ClusterName, (Arc<HostTls>, Arc<ServerConfig>)>,
    hosts: HashMap<HostName, Arc<ServerConfig>>,
}

impl TlsSettings {
    /// Creates settings that request no client certificates. A client without ALPN gets HTTP/1.1, or HTTP/2 if it sends
    /// HTTP/2's preface.
    ///
    /// # Errors
    /// The crypto provider does not support these TLS versions, which cannot happen with aws-lc-rs.
    pub fn new(certificate: Arc<ServingCertificate>, versions: TlsVersions) -> Result<Self, rustls::Error> {
        let certificates = Arc::new(CommonCertificates { default: certificate, named: ArcSwap::default() });
        let common = Arc::new(server_config(Arc::clone(&certificates) as _, versions, None)?);
        let current = Current { common, clusters: BTreeMap::new(), hosts: HashMap::new() };
        let inputs = Mutex::default();
        Ok(Self { certificates, versions, inputs, current: ArcSwap::from_pointee(current) })
    }

    /// Replaces the certificates that are chosen by name (`--tls-sni-cert-key`) for new connections. A cluster's host
    /// with a certificate of its own is not affected.
    pub fn replace_named_certificates(&self, named: NamedCertificates) {
        self.certificates.named.store(Arc::new(named));
    }

    /// Returns the certificate of a host without a certificate of its own.
    pub fn certificate_of(&self, host: &HostName) -> Arc<CertifiedKey> {
        self.certificates.find_by_name(Some(host.as_str()))
    }

    /// Requests client certificates of these authorities from new connections. Clients may connect without a
    /// certificate.
    ///
    /// TLS sessions from before the call are not resumed, because the old configuration's session store is dropped.
    ///
    /// # Errors
    /// As [`TlsSettings::new`].
    pub fn request_client_certificates(&self, authorities: RequestedAuthorities) -> Result<(), rustls::Error> {
        let mut inputs = self.inputs.lock();
        let names = Some(names([&authorities.clients, &authorities.proxies]));
        let common = Arc::new(server_config(Arc::clone(&self.certificates) as _, self.versions, names)?);
        let next = TlsInputs { authorities: Some(authorities), hosts: inputs.hosts.clone() };
        self.current.store(Arc::new(self.next(common, &next, &BTreeMap::new())?));
        *inputs = next;
        Ok(())
    }

    /// Applies the TLS settings of these hosts to new connections. TLS sessions of a host are not resumed if its
    /// certificate or authorities have changed.
    ///
    /// # Errors
    /// As [`TlsSettings::new`]; the settings are then unchanged.
    pub fn serve_hosts(&self, hosts: &HostTable) -> Result<(), rustls::Error> {
        let mut inputs = self.inputs.lock();
        let next = TlsInputs { authorities: inputs.authorities.clone(), hosts: hosts.clone() };
        let current = self.current.load();
        let next_current = self.next(Arc::clone(&current.common), &next, &current.clusters)?;
        self.current.store(Arc::new(next_current));
        *inputs = next;
        Ok(())
    }

    /// Returns the configuration for a connection with this SNI.
    pub(super) fn config(&self, server_name: Option<&HostName>) -> Arc<ServerConfig> {
        let current = self.current.load();
        let own = server_name.and_then(|name| current.hosts.get(name));
        Arc::clone(own.unwrap_or(&current.common))
    }

    /// Returns the configuration for a connection without SNI to this IP address.
    pub(super) fn config_at(&self, address: Option<IpAddr>) -> Arc<ServerConfig> {
        let common = self.config(None);
        let is_named = |address: &IpAddr| self.certificates.named.load().find_by_address(*address).is_some();
        let Some(address) = address.filter(is_named) else { return common };
        // The cloned TLS configuration shares the session store of the original.
        let mut config = ServerConfig::clone(&common);
        config.cert_resolver = Arc::new(CertificateByAddress(Arc::clone(&self.certificates), address));
        Arc::new(config)
    }

    /// Builds the configurations. A configuration of `before` with unchanged inputs is reused.
    fn next(
        &self,
        common: Arc<ServerConfig>,
        inputs: &TlsInputs,
        before: &BTreeMap<ClusterName, (Arc<HostTls>, Arc<ServerConfig>)>,
    ) -> Result<Current, rustls::Error> {
        let (mut clusters, mut hosts) = (BTreeMap::new(), HashMap::new());
        for (name, cluster, tls) in inputs.hosts.own_tls() {
            let (_, config) = match clusters.entry(cluster.clone()) {
                Entry::Occupied(known) => known.into_mut(),
                Entry::Vacant(vacant) => {
                    let config = match before.get(cluster).filter(|(known, _)| Arc::ptr_eq(known, tls)) {
                        Some((_, config)) => Arc::clone(config),
                        None => Arc::new(self.host_config(tls, inputs.authorities.as_ref())?),
                    };
                    vacant.insert((Arc::clone(tls), config))
                }
            };
            hosts.insert(name.clone(), Arc::clone(config));
        }
        Ok(Current { common, clusters, hosts })
    }

    /// Returns the TLS configuration of a host, with the host's own certificate and authorities, or else the common
    /// certificate and authorities.
    fn host_config(&self, tls: &HostTls, common: Option<&RequestedAuthorities>) -> Result<ServerConfig, rustls::Error> {
        let own = tls.client_authorities.as_ref().map(|authorities| authorities.subjects());
        let asked = match (&own, common) {
            (Some(own), Some(common)) => Some(names([own, &common.proxies])),
            (Some(own), None) => Some(names([own])),
            (None, Some(common)) => Some(names([&common.clients, &common.proxies])),
            (None, None) => None,
        };
        let resolver: Arc<dyn ResolvesServerCert> = match &tls.serving {
            Some(own) => ServingCertificate::shared(Arc::clone(own)),
            None => Arc::clone(&self.certificates) as _,
        };
        server_config(resolver, self.versions, asked)
    }
}

fn names<'a>(lists: impl IntoIterator<Item = &'a Vec<Vec<u8>>>) -> Vec<DistinguishedName> {
    lists.into_iter().flatten().cloned().map(DistinguishedName::from).collect()
}

fn server_config(
    certificate: Arc<dyn ResolvesServerCert>,
    versions: TlsVersions,
    authorities: Option<Vec<DistinguishedName>>,
) -> Result<ServerConfig, rustls::Error> {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let algorithms = provider.signature_verification_algorithms;
    let builder = ServerConfig::builder_with_provider(provider).with_protocol_versions(versions)?;
    let builder = match authorities {
        None => builder.with_no_client_auth(),
        Some(authorities) => {
            builder.with_client_cert_verifier(Arc::new(RequestedCertificate { authorities, algorithms }))
        }
    };
    let mut config = builder.with_cert_resolver(certificate);
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(config)
}
