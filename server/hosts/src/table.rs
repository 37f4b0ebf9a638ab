//! The table of hosts, which selects an API by host without I/O.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use rustls::sign::CertifiedKey;
use tributary_apimachinery::{ClusterName, Host, HostName, Mount};
use tributary_authentication::ClientCertificates;

use crate::named::NamedHost;
use crate::refusal::HostRefusal;
use crate::tls::HostTls;

/// The host names and TLS settings of one cluster's own API.
#[derive(Clone, Debug, Default)]
pub struct ClusterHosts {
    /// The names of the cluster's hosts (`spec.serverNames`).
    pub names: Vec<HostName>,
    /// The TLS settings of the cluster's hosts. `None` for the listener's common settings.
    pub tls: Option<Arc<HostTls>>,
}

/// A conflict between two claims on the same host name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HostConflict {
    /// A cluster's `serverNames` contain a host of the merged view.
    #[error(
        "UpstreamCluster {cluster:?}: spec.serverNames: {host:?} is a name of the merged view (--merged-host); remove it \
         from one of the two"
    )]
    Merged {
        /// The cluster whose `serverNames` contain the host.
        cluster: ClusterName,
        /// The host in the cluster's `serverNames`.
        host: HostName,
    },
    /// A cluster claims a loopback name, such as `localhost`, although the endpoint listens on loopback.
    #[error(
        "UpstreamCluster {cluster:?}: spec.serverNames: {host:?} is a loopback name of this server itself; give the \
         cluster a different name"
    )]
    Local {
        /// The cluster whose `serverNames` contain the host.
        cluster: ClusterName,
        /// The host in the cluster's `serverNames`.
        host: HostName,
    },
    /// The `serverNames` of two clusters contain the same host.
    #[error(
        "UpstreamCluster {cluster:?}: spec.serverNames: {host:?} is already a name of UpstreamCluster {other:?}; remove \
         it from one of the two"
    )]
    Cluster {
        /// The second of two clusters with the same host.
        cluster: ClusterName,
        /// The first of two clusters with the same host.
        other: ClusterName,
        /// The host of two clusters.
        host: HostName,
    },
}

/// The target of a host: an API, or the paths of this process itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HostTarget<'a> {
    /// The host serves the API of the merged view or of one cluster.
    Api(&'a Mount),
    /// The host serves only the process's own paths, such as `/metrics`.
    Own,
}

/// The targets of all hosts. In an empty table, every host selects the merged view.
#[derive(Clone, Debug, Default)]
pub struct HostTable {
    rows: HashMap<Host, Mount>,
    /// The loopback names, such as `localhost`, of an endpoint that listens on loopback. These hosts select the merged
    /// view, unless the connection's SNI selects a cluster.
    local: Vec<Host>,
    clusters: BTreeMap<ClusterName, Arc<HostTls>>,
}

impl HostTable {
    /// Builds the table from the hosts of `--merged-host`, the loopback hosts `local`, and the clusters. A cluster with
    /// an unchanged TLS fingerprint gets the same `Arc` of TLS settings as in the old table `before`, so that its
    /// rustls configuration can be reused.
    ///
    /// # Errors
    /// [`HostConflict`].
    pub fn new<'a>(
        merged: &[Host],
        local: Vec<Host>,
        clusters: impl IntoIterator<Item = (&'a ClusterName, &'a ClusterHosts)>,
        before: &Self,
    ) -> Result<Self, HostConflict> {
        let merged = merged.iter().map(|host| (host.clone(), Mount::Merged));
        let mut table = Self { rows: merged.collect(), local, clusters: BTreeMap::new() };
        for (cluster, hosts) in clusters {
            for name in &hosts.names {
                table.add(cluster, name)?;
            }
            if let Some(tls) = &hosts.tls {
                let same = before.tls(cluster).filter(|known| known.fingerprint == tls.fingerprint);
                table.clusters.insert(cluster.clone(), Arc::clone(same.unwrap_or(tls)));
            }
        }
        Ok(table)
    }

    fn add(&mut self, cluster: &ClusterName, name: &HostName) -> Result<(), HostConflict> {
        let row = Host::Name(name.clone());
        let (cluster, host) = (cluster.clone(), name.clone());
        if self.local.contains(&row) {
            return Err(HostConflict::Local { cluster, host });
        }
        match self.rows.insert(row, Mount::Cluster(cluster.clone())) {
            Some(Mount::Merged) => Err(HostConflict::Merged { cluster, host }),
            Some(Mount::Cluster(other)) if other != cluster => Err(HostConflict::Cluster { cluster, other, host }),
            _ => Ok(()),
        }
    }

    /// Returns whether any host selects the merged view.
    pub fn has_merged_view(&self) -> bool {
        !self.has_any_host() || !self.local.is_empty() || self.rows.values().any(|mount| *mount == Mount::Merged)
    }

    /// Returns whether the table contains the host.
    pub fn has(&self, host: &Host) -> bool {
        self.rows.contains_key(host) || self.local.contains(host)
    }

    /// Returns whether any host is configured. If none is configured, every request gets the merged view.
    pub fn has_any_host(&self) -> bool {
        !self.rows.is_empty()
    }

    /// Returns the target of a request, by the request's host and the connection's SNI.
    ///
    /// # Errors
    /// [`HostRefusal`].
    pub fn find_target(
        &self,
        named: &NamedHost,
        server_name: Option<&HostName>,
    ) -> Result<HostTarget<'_>, HostRefusal> {
        if !self.has_any_host() {
            return Ok(HostTarget::Api(&Mount::Merged));
        }
        let shaken = server_name.and_then(|name| self.rows.get(&Host::Name(name.clone())));
        let host = match named {
            NamedHost::Host(host) => Some(host),
            NamedHost::None => None,
            NamedHost::Unreadable => return Err(HostRefusal::Unknown),
        };
        if let Some(mount) = host.and_then(|host| self.rows.get(host)) {
            let is_for_it = shaken.map_or_else(|| !self.has_own_tls(mount), |shaken| shaken == mount);
            return if is_for_it { Ok(HostTarget::Api(mount)) } else { Err(HostRefusal::Misdirected) };
        }
        let is_local = host.is_some_and(|host| self.local.contains(host));
        match (shaken, host) {
            (_, Some(Host::Name(_))) if !is_local => Err(HostRefusal::Unknown),
            // The request's host selects no API: it is an IP address, is missing, or is a loopback name. So the host in
            // the connection's SNI selects the API.
            (Some(mount), _) => Ok(HostTarget::Api(mount)),
            (None, _) if is_local => Ok(HostTarget::Api(&Mount::Merged)),
            (None, _) => Ok(HostTarget::Own),
        }
    }

    /// Returns the TLS settings of a cluster's hosts. `None` if the hosts use the listener's common settings.
    pub fn tls(&self, cluster: &ClusterName) -> Option<&Arc<HostTls>> {
        self.clusters.get(cluster)
    }

    /// Iterates over the hosts of all clusters with TLS settings of their own.
    pub fn own_tls(&self) -> impl Iterator<Item = (&HostName, &ClusterName, &Arc<HostTls>)> {
        self.rows.iter().filter_map(|(host, mount)| match (host, mount) {
            (Host::Name(name), Mount::Cluster(cluster)) => Some((name, cluster, self.tls(cluster)?)),
            _ => None,
        })
    }

    /// Returns the serving certificate of each configured host name. For a host without a certificate of its own,
    /// `elsewhere` returns the certificate.
    pub fn certificates(
        &self,
        elsewhere: impl Fn(&HostName) -> Arc<CertifiedKey>,
    ) -> impl Iterator<Item = (&HostName, Arc<CertifiedKey>)> {
        self.rows.iter().filter_map(move |(host, mount)| {
            let Host::Name(name) = host else { return None };
            let tls = if let Mount::Cluster(cluster) = mount { self.tls(cluster) } else { None };
            let own = tls.and_then(|tls| tls.serving.as_ref());
            Some((name, own.map_or_else(|| elsewhere(name), Arc::clone)))
        })
    }

    /// Iterates over the clusters with their own authorities for client certificates.
    pub fn clusters_with_authorities(&self) -> impl Iterator<Item = (&ClusterName, &ClientCertificates)> {
        self.clusters.iter().filter_map(|(cluster, tls)| Some((cluster, tls.client_authorities.as_deref()?)))
    }

    fn has_own_tls(&self, mount: &Mount) -> bool {
        matches!(mount, Mount::Cluster(cluster) if self.clusters.contains_key(cluster))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cluster(name: &str) -> ClusterName {
        ClusterName::new(name).unwrap()
    }

    fn host(text: &str) -> Host {
        text.parse().unwrap()
    }

    fn hosts(names: &[&str], tls: Option<&str>) -> ClusterHosts {
        let own = |it: &str| HostTls { fingerprint: it.to_owned(), serving: None, client_authorities: None };
        let names = names.iter().map(|name| name.parse().unwrap()).collect();
        ClusterHosts { names, tls: tls.map(own).map(Arc::new) }
    }

    fn table(merged: &[&str], local: &[&str], clusters: &[(&str, ClusterHosts)]) -> Result<HostTable, HostConflict> {
        let (merged, local): (Vec<_>, _) =
            (merged.iter().map(|it| host(it)).collect(), local.iter().map(|it| host(it)).collect());
        let named: Vec<_> = clusters.iter().map(|(name, hosts)| (cluster(name), hosts)).collect();
        HostTable::new(&merged, local, named.iter().map(|(name, hosts)| (name, *hosts)), &HostTable::default())
    }

    /// Returns the target of a host as text: `merged`, `own`, a cluster's name, or the refusal.
    fn find_target(table: &HostTable, named: &str, server_name: &str) -> String {
        let named = match named {
            "" => NamedHost::None,
            "?" => NamedHost::Unreadable,
            named => NamedHost::Host(host(named)),
        };
        let server_name = Some(server_name).filter(|name| !name.is_empty()).map(|name| name.parse().unwrap());
        match table.find_target(&named, server_name.as_ref()) {
            Ok(HostTarget::Api(Mount::Merged)) => "merged".to_owned(),
            Ok(HostTarget::Api(Mount::Cluster(cluster))) => cluster.to_string(),
            Ok(HostTarget::Api(other)) => panic!("{other:?} has no host"),
            Ok(HostTarget::Own) => "own".to_owned(),
            Err(refusal) => format!("{refusal:?}"),
        }
    }

    #[test]
    fn empty_host_table_maps_every_host_to_the_merged_view() {
        let none = table(&[], &["localhost"], &[("eu", hosts(&[], None))]).unwrap();
        for (named, server_name) in [("", ""), ("?", ""), ("x.example", "y.example"), ("10.0.0.1", "")] {
            assert_eq!(find_target(&none, named, server_name), "merged", "{named} {server_name}");
        }
    }

    #[test]
    fn requested_host_selects_the_api_and_must_not_contradict_sni() {
        let clusters = [("eu", hosts(&["eu.test"], None)), ("us", hosts(&["us.test", "america.test"], Some("own")))];
        let far = table(&["all.test", "10.0.0.9"], &[], &clusters).unwrap();
        let near = table(&[], &["localhost", "127.0.0.1"], &clusters).unwrap();
        for (table, named, server_name, expected) in [
            (&far, "all.test", "all.test", "merged"),
            (&far, "all.test", "", "merged"),
            (&far, "all.test", "elsewhere.test", "merged"),
            (&far, "all.test", "eu.test", "Misdirected"),
            (&far, "all.test", "us.test", "Misdirected"),
            (&far, "eu.test", "eu.test", "eu"),
            (&far, "eu.test", "", "eu"),
            (&far, "eu.test", "all.test", "Misdirected"),
            (&far, "eu.test", "us.test", "Misdirected"),
            (&far, "us.test", "us.test", "us"),
            (&far, "us.test", "america.test", "us"),
            // In these rows, the SNI is no host of the cluster `us`, so the TLS handshake used the common certificate
            // and the common authorities. A request for a host of `us` is refused on such a connection.
            (&far, "us.test", "", "Misdirected"),
            (&far, "us.test", "elsewhere.test", "Misdirected"),
            (&far, "us.test", "eu.test", "Misdirected"),
            (&far, "nope.test", "", "Unknown"),
            (&far, "nope.test", "eu.test", "Unknown"),
            (&far, "localhost", "", "Unknown"),
            (&far, "?", "eu.test", "Unknown"),
            // An IP address selects no API, unless it is configured.
            (&far, "10.0.0.1", "", "own"),
            (&far, "10.0.0.1", "elsewhere.test", "own"),
            (&far, "10.0.0.1", "us.test", "us"),
            (&far, "10.0.0.1", "all.test", "merged"),
            (&far, "10.0.0.9", "", "merged"),
            (&far, "10.0.0.9", "us.test", "Misdirected"),
            (&far, "127.0.0.1", "", "own"),
            (&far, "", "", "own"),
            (&far, "", "eu.test", "eu"),
            // These hosts appear in the kubeconfig for an endpoint on loopback.
            (&near, "127.0.0.1", "", "merged"),
            (&near, "localhost", "localhost", "merged"),
            (&near, "localhost", "us.test", "us"),
            (&near, "127.0.0.1", "eu.test", "eu"),
            (&near, "127.0.0.2", "", "own"),
            (&near, "nope.test", "", "Unknown"),
            (&near, "", "", "own"),
        ] {
            assert_eq!(find_target(table, named, server_name), expected, "{named:?} by {server_name:?}");
        }
    }

    #[test]
    fn host_name_with_two_targets_is_an_error() {
        let clusters = |name: &str| [("eu", hosts(&["eu.test", "EU.test"], None)), ("us", hosts(&[name], None))];
        assert!(table(&["all.test"], &["localhost"], &clusters("us.test")).is_ok());
        for (name, expected) in [
            (
                "eu.test",
                "UpstreamCluster \"us\": spec.serverNames: \"eu.test\" is already a name of UpstreamCluster \"eu\"",
            ),
            (
                "all.test",
                "UpstreamCluster \"us\": spec.serverNames: \"all.test\" is a name of the merged view (--merged-host)",
            ),
            ("LOCALHOST", "UpstreamCluster \"us\": spec.serverNames: \"localhost\" is a loopback name of this server"),
        ] {
            let conflict = table(&["all.test"], &["localhost"], &clusters(name)).unwrap_err().to_string();
            assert!(conflict.starts_with(expected), "{conflict}");
        }
    }

    #[test]
    fn unchanged_host_tls_settings_are_reused_in_a_new_table() {
        let (eu, us) = (cluster("eu"), cluster("us"));
        let of = |own: &str, before: &HostTable| {
            let (first, second) = (hosts(&["eu.test"], Some(own)), hosts(&["us.test"], Some("us")));
            HostTable::new(&[], Vec::new(), [(&eu, &first), (&us, &second)], before).unwrap()
        };
        let before = of("one", &HostTable::default());
        for (own, is_same) in [("one", true), ("two", false)] {
            let after = of(own, &before);
            assert_eq!(Arc::ptr_eq(before.tls(&eu).unwrap(), after.tls(&eu).unwrap()), is_same);
            assert!(Arc::ptr_eq(before.tls(&us).unwrap(), after.tls(&us).unwrap()));
        }
        assert_eq!(before.own_tls().count(), 2);
        assert!(!before.has_merged_view() && HostTable::default().has_merged_view());
    }
}
