//! The names, indexes, hosts and addresses that only one cluster may have.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;

use http::Uri;
use tributary_apimachinery::{ForeignSystem, Host, without_brackets};

use tributary_cluster_sources::SourceKind;

use super::HubRules;
use crate::in_force::MemberInForce;
use crate::other_sources::OtherSources;
use crate::{ConditionState, OwnEndpoint};

/// Returns whether a URL leads to the listener at `address`. `is_own_host` tells whether the listener serves a host.
pub fn leads_to(address: SocketAddr, url: &Uri, is_own_host: impl Fn(&Host) -> bool) -> bool {
    let default_port = if url.scheme_str() == Some("http") { 80 } else { 443 };
    if url.port_u16().unwrap_or(default_port) != address.port() {
        return false;
    }
    let host = without_brackets(url.host().unwrap_or_default());
    host == "localhost" || host.parse() == Ok(address.ip()) || host.parse().is_ok_and(|host| is_own_host(&host))
}

/// The owner of a name, an index or a host, with its description for messages.
#[derive(Clone)]
enum Owner<'a> {
    /// This endpoint, or a cluster of a different source.
    Other(&'a str),
    /// A cluster that a flag trusts.
    Reserved(&'a str),
    Member(Arc<MemberInForce>),
}

impl fmt::Display for Owner<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Other(description) => f.write_str(description),
            Self::Reserved(name) => write!(f, "A flag trusts cluster {name}, which"),
            Self::Member(member) => f.write_str(&member.origin()),
        }
    }
}

/// The names, indexes and hosts that are in use, each with its owner.
pub(crate) struct Claims<'a> {
    own: &'a OwnEndpoint,
    others: &'a OtherSources<'a>,
    names: HashMap<String, Owner<'a>>,
    indexes: HashMap<u16, Owner<'a>>,
    hosts: BTreeMap<Host, Owner<'a>>,
    /// The server URLs in Argo CD's cluster Secrets. Argo CD identifies clusters by these URLs.
    argo_cd_servers: BTreeMap<String, Owner<'a>>,
    /// The names in foreign systems, by which the doors of these systems find the members.
    foreign_names: BTreeMap<(ForeignSystem, String), Owner<'a>>,
}

impl<'a> Claims<'a> {
    /// Returns the claims of this endpoint and of the other sources, which have priority over the hub.
    pub(crate) fn new(others: &'a OtherSources<'a>, rules: &'a HubRules) -> Self {
        let mut claims = Self {
            own: &rules.own,
            others,
            names: HashMap::new(),
            indexes: HashMap::new(),
            hosts: BTreeMap::new(),
            argo_cd_servers: BTreeMap::new(),
            foreign_names: BTreeMap::new(),
        };
        for spec in &others.configuration.clusters {
            let owner = Owner::Other(&spec.origin);
            claims.indexes.extend(spec.index.map(|index| (index, owner.clone())));
            let hosts = spec.hosts.names.iter().cloned().map(Host::Name);
            claims.hosts.extend(hosts.map(|host| (host, owner.clone())));
            claims.names.insert(spec.name.to_string(), owner);
        }
        for name in &rules.reserved_names {
            claims.names.entry(name.clone()).or_insert(Owner::Reserved(name));
        }
        let merged = rules.own.merged_hosts.iter().map(|host| (host.clone(), "the merged view (--merged-host)"));
        let local = rules.own.local_hosts.iter().map(|host| (host.clone(), "this server itself"));
        claims.hosts.extend(merged.chain(local).map(|(host, owner)| (host, Owner::Other(owner))));
        claims
    }

    /// Claims the name, the index and the hosts of a member.
    ///
    /// # Errors
    /// The state of `Accepted` if another object has one of them, or if an endpoint is this server itself.
    pub(crate) fn claim(&mut self, member: &Arc<MemberInForce>) -> Result<(), ConditionState> {
        let (name, spec) = (&member.object.name, &member.cluster.spec);
        let hosts: Vec<Host> = spec.server_names.iter().filter_map(|host| host.parse().ok()).collect();
        self.check_name(name)?;
        self.check_index(name, spec.index)?;
        self.check_hosts(&hosts)?;
        self.check_endpoints(member, &hosts)?;
        let is_argo_cd = member.item.as_ref().is_some_and(|own| own.item.list == SourceKind::ArgoCdSecrets);
        let server = spec.endpoints.first().filter(|_| is_argo_cd);
        self.check_argo_cd_server(server)?;
        let item = member.item.as_ref().map(|own| &own.item);
        let foreign = item.and_then(|item| Some((item.list.foreign_system()?, item.foreign_name.clone())));
        self.check_foreign_name(foreign.as_ref())?;
        let owner = Owner::Member(Arc::clone(member));
        self.argo_cd_servers.extend(server.map(|server| (server.clone(), owner.clone())));
        self.foreign_names.extend(foreign.map(|foreign| (foreign, owner.clone())));
        self.indexes.extend(spec.index.map(|index| (index, owner.clone())));
        self.hosts.extend(hosts.into_iter().map(|host| (host, owner.clone())));
        self.names.insert(name.clone(), owner);
        Ok(())
    }

    fn check_name(&self, name: &str) -> Result<(), ConditionState> {
        let Some(owner) = self.names.get(name) else { return Ok(()) };
        let message = format!("{owner} already is cluster {name}, and has priority; rename one of them.");
        Err(ConditionState::failed("NameConflict", message))
    }

    fn check_argo_cd_server(&self, server: Option<&String>) -> Result<(), ConditionState> {
        let Some(owner) = server.and_then(|server| self.argo_cd_servers.get(server)) else { return Ok(()) };
        let message = format!(
            "Key \"server\" has the server of {owner}, and Argo CD identifies clusters by their servers; remove one of \
             the Secrets."
        );
        Err(ConditionState::failed("ServerConflict", message))
    }

    /// Refuses a second object that has the same name in a foreign system as an earlier one. Without this check, the
    /// author of the second object could receive the requests for the first object.
    fn check_foreign_name(&self, foreign: Option<&(ForeignSystem, String)>) -> Result<(), ConditionState> {
        let Some((foreign, owner)) = foreign.and_then(|name| self.foreign_names.get_key_value(name)) else {
            return Ok(());
        };
        let (system, name) = foreign;
        let message = format!("{owner} already has the name {name} in {system}, and has priority; rename one of them.");
        Err(ConditionState::failed("NameConflict", message))
    }

    /// Refuses an index that another cluster has, or that a cluster of another source had in the past. Clients may
    /// still use resourceVersions with such an index.
    fn check_index(&self, name: &str, index: Option<u16>) -> Result<(), ConditionState> {
        let Some(index) = index else { return Ok(()) };
        let former = self.others.indexes.owner(index).filter(|owner| owner.as_str() != name);
        let problem = match (self.indexes.get(&index), former) {
            (Some(owner), _) => format!("is already the index of {owner}"),
            (None, Some(owner)) => format!("was the index of cluster {owner} before"),
            (None, None) => return Ok(()),
        };
        let message = format!("spec.index: {index} {problem}; give a number that was never used.");
        Err(ConditionState::failed("IndexConflict", message))
    }

    /// Refuses the hosts of a member if `--merged-host` is not set: as soon as one cluster has a host, the merged view
    /// answers only at the hosts that flags name.
    fn check_hosts(&self, hosts: &[Host]) -> Result<(), ConditionState> {
        if !hosts.is_empty() && self.own.merged_hosts.is_empty() {
            let message = "spec.serverNames: objects of a hub may have hosts only if Tributary runs with --merged-host, \
                           which keeps the hosts of the merged view. Add the flag, or remove the field.";
            return Err(ConditionState::invalid(message.to_owned()));
        }
        let Some((host, owner)) = hosts.iter().find_map(|host| self.hosts.get_key_value(host)) else { return Ok(()) };
        let message =
            format!("spec.serverNames: \"{host}\" is already a host of {owner}; give each host to one of them only.");
        Err(ConditionState::failed("HostConflict", message))
    }

    /// Refuses an endpoint that is this server itself, because requests would loop through it. `hosts` are the hosts of
    /// the member.
    fn check_endpoints(&self, member: &MemberInForce, hosts: &[Host]) -> Result<(), ConditionState> {
        let Some(address) = self.own.address else { return Ok(()) };
        let is_own_host = |host: &Host| self.hosts.contains_key(host) || hosts.contains(host);
        let leads_here = |url: &Uri| leads_to(address, url, is_own_host);
        // The description has the same URLs, already parsed.
        if let Some(spec) = &member.spec
            && let Ok(config) = &spec.config
            && !leads_here(&config.cluster_url)
            && !spec.further_endpoints.iter().any(|further| leads_here(&further.url))
        {
            return Ok(());
        }
        let endpoints = &member.cluster.spec.endpoints;
        let leads_here = |url: &String| url.parse().is_ok_and(|url| leads_here(&url));
        let Some(index) = endpoints.iter().position(leads_here) else { return Ok(()) };
        let message = format!(
            "spec.endpoints[{index}]: the address leads to {address}, which is this server itself; give the address of \
             the cluster."
        );
        Err(ConditionState::failed("RefusedAddress", message))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn url_without_a_port_leads_to_the_default_port_of_its_scheme() {
        let leads = |url: &str, port: u16| {
            let address = SocketAddr::from(([192, 0, 2, 1], port));
            leads_to(address, &url.parse().unwrap(), |host| host.to_string() == "all.example.com")
        };
        assert!(leads("https://all.example.com", 443) && leads("http://192.0.2.1", 80));
        assert!(!leads("https://all.example.com", 6443) && !leads("http://192.0.2.1", 443));
        assert!(leads("https://localhost:6443", 6443) && !leads("https://other.example.com:6443", 6443));
    }
}
