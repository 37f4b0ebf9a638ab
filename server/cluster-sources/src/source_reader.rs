//! Reads the items of a source, with the settings of the source.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::Arc;

use tributary_apimachinery::{Object, ResourceVersion, Snapshot};
use tributary_authentication::IdentityPolicy;
use tributary_crds::cluster_source::DoorAuthorization;
use tributary_crds::{ClusterSource, ConfigurationObjects, IdentityType, InsecureMembers, Severity};

use crate::SourceRefusal;
use crate::access_providers::AccessProviders;
use crate::argo_cd::read_argo_cd_secret;
use crate::cluster_gateway::{self, read_cluster_gateway_secret};
use crate::cluster_profile::read_cluster_profile;
use crate::draft::ItemDraft;
use crate::identity_rules::{parse_identity_rules, read_identity};
use crate::item::{ItemObject, RefusedItem, SourceItem};
use crate::karmada::read_karmada_cluster;
use crate::kube_gateway::read_kube_gateway_cluster;
use crate::kubeconfig_secret::read_kubeconfig_secret;
use crate::managed_cluster::read_managed_cluster;
use crate::secret::Secret;
use crate::server_trust::UnverifiedServers;
use crate::source_kind::SourceKind;
use crate::source_list::SourceList;

/// A placement label that stands for all labels.
const ALL_LABELS: &str = "*";

/// The Secrets of [`SourceList::secrets`], with a record of the Secrets that an item uses.
#[derive(Debug, Default)]
pub struct Secrets<'a> {
    listed: Option<&'a Snapshot>,
    used: RefCell<Vec<UsedSecret>>,
}

/// A Secret that an item uses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UsedSecret {
    /// The namespace and the name of the Secret.
    pub key: String,
    /// The version of the Secret; `None` if the Secret does not exist.
    pub version: Option<ResourceVersion>,
}

impl<'a> Secrets<'a> {
    /// Creates the value from the listed Secrets. `listed` is `None` if the Secrets are not listed, or if the items
    /// need none.
    pub fn new(listed: Option<&'a Snapshot>) -> Self {
        Self { listed, used: RefCell::default() }
    }

    /// Returns the Secrets that items have used so far.
    pub fn into_used(self) -> Vec<UsedSecret> {
        self.used.into_inner()
    }

    fn find(&self, namespace: &str, name: &str) -> Result<Secret, SourceRefusal> {
        let Some(listed) = self.listed else {
            let message = format!("Secret {name}: Tributary has not read the Secrets of the source yet.");
            return Err(SourceRefusal::new("SecretsUnknown", message));
        };
        let key = format!("{namespace}/{name}");
        let found = listed.get(&key);
        self.used.borrow_mut().push(UsedSecret { key, version: found.map(|secret| secret.resource_version()) });
        match found {
            Some(secret) => Secret::decode(secret),
            None => {
                let message = format!(
                    "Secret {name} does not exist in namespace {namespace}. Create it, or correct the name of the \
                     Secret."
                );
                Err(SourceRefusal::new("SecretNotFound", message))
            }
        }
    }
}

/// Reads the items of a source. The reader is made once for each generation of the source.
#[derive(Debug)]
pub struct SourceReader {
    list: SourceList,
    identity: IdentityPolicy,
    authorize: DoorAuthorization,
    /// Whether patterns of rules in annotations must match the whole name.
    is_strict: bool,
    placement_labels: Vec<String>,
    unverified: UnverifiedServers,
    providers: Arc<AccessProviders>,
}

impl SourceReader {
    /// Prepares the reading of a source. `insecure` is the flag of the process for unverified servers, and `providers`
    /// are those of its flag `--cluster-profile-providers`.
    ///
    /// # Errors
    /// The list needs providers, or an identity rule is wrong.
    pub fn new(
        source: &ClusterSource,
        insecure: InsecureMembers,
        providers: Option<&Arc<AccessProviders>>,
    ) -> Result<Self, SourceRefusal> {
        let spec = &source.spec;
        let list = SourceList::from_spec(spec)?;
        if list.kind() == SourceKind::ClusterProfiles && providers.is_none() {
            let message = "spec.clusterProfiles needs a file with access providers. Start Tributary with \
                           --cluster-profile-providers, or name a different list.";
            return Err(SourceRefusal::new("NotSupported", message));
        }
        if spec.identity.kind != IdentityType::Impersonate && list.kind() != SourceKind::ClusterGatewaySecrets {
            let message = format!(
                "spec.identity.type: only clusterGatewaySecrets allow types other than Impersonate, and the list is {}. \
                 Remove spec.identity.",
                list.kind().field()
            );
            return Err(SourceRefusal::new("NotSupported", message));
        }
        if !spec.authorize.is_proxy() && list.kind() != SourceKind::ClusterGatewaySecrets {
            let message = format!(
                "spec.authorize: only clusterGatewaySecrets allow Inner, and the list is {}. Remove spec.authorize.",
                list.kind().field()
            );
            return Err(SourceRefusal::new("NotSupported", message));
        }
        Ok(Self {
            list,
            authorize: spec.authorize,
            identity: read_identity(&spec.identity)?,
            is_strict: spec.identity.strict,
            placement_labels: spec.placement_labels.clone(),
            unverified: UnverifiedServers::new(spec.missing_ca, insecure),
            providers: providers.cloned().unwrap_or_default(),
        })
    }

    /// Returns the list of the source, with the collections to watch.
    pub fn list(&self) -> &SourceList {
        &self.list
    }

    /// Returns the identity of the source, without rules in annotations.
    pub fn identity(&self) -> &IdentityPolicy {
        &self.identity
    }

    /// Returns the rights in the hub that requests through the door of the source's system need.
    pub fn authorize(&self) -> DoorAuthorization {
        self.authorize
    }

    /// Reads an item of the list. The result depends only on the object, the Secrets and the source.
    ///
    /// # Errors
    /// The reason why the object is no member.
    pub fn read_item(&self, object: &Object, secrets: &Secrets<'_>) -> Result<SourceItem, RefusedItem> {
        let read = self.read_draft(object, secrets).and_then(|draft| self.finish(draft));
        read.map_err(|SourceRefusal { reason, message }| RefusedItem {
            name: object.name().to_owned(),
            reason,
            message,
        })
    }

    fn read_draft(&self, object: &Object, secrets: &Secrets<'_>) -> Result<ItemDraft, SourceRefusal> {
        let unverified = self.unverified;
        match &self.list {
            SourceList::ClusterGatewaySecrets(_) => read_cluster_gateway_secret(Secret::decode(object)?, unverified),
            SourceList::KubeconfigSecrets(_) => read_kubeconfig_secret(Secret::decode(object)?, unverified),
            SourceList::ArgoCdSecrets(_) => read_argo_cd_secret(Secret::decode(object)?, unverified),
            SourceList::ClusterProfiles(_) => read_cluster_profile(object, &self.providers, unverified),
            SourceList::KubeGatewayClusters(_) => read_kube_gateway_cluster(object, unverified),
            SourceList::KarmadaClusters(list) => {
                let find_secret = |name: &str| secrets.find(&list.namespace, name);
                read_karmada_cluster(object, &list.namespace, &find_secret, unverified)
            }
            SourceList::ManagedClusters(list) => {
                let find_secret = |namespace: &str| secrets.find(namespace, &list.managed_service_account);
                read_managed_cluster(object, list, &find_secret, unverified)
            }
        }
    }

    /// Adds labels and identity, and checks the member as a whole.
    fn finish(&self, draft: ItemDraft) -> Result<SourceItem, SourceRefusal> {
        let identity = self.identity_of(&draft)?;
        let takes = |key: &str| self.placement_labels.iter().any(|taken| taken == key || taken == ALL_LABELS);
        let metadata = draft.metadata;
        let taken = metadata.labels.clone().into_iter().filter(|(key, _)| takes(key));
        let labels: BTreeMap<String, String> = taken.chain(draft.location).collect();
        let object = ItemObject {
            kind: self.list.items().kind.to_owned(),
            namespace: metadata.namespace,
            name: metadata.name,
            uid: metadata.uid,
            labels: metadata.labels,
            created: metadata.creation_timestamp,
        };
        let item = SourceItem {
            list: self.list.kind(),
            object,
            foreign_name: draft.foreign_name,
            name: draft.name,
            labels,
            spec: draft.spec,
            command: draft.command,
            not_ready: draft.not_ready,
            identity,
            authorize: self.authorize,
            uid: draft.uid,
            impersonator: draft.impersonator,
            proxy_headers: draft.proxy_headers,
            alias: draft.alias,
            scope: draft.scope,
            warnings: draft.warnings,
        };
        check_member(&item)?;
        Ok(item)
    }

    /// Returns the identity of the source, with the rules in the annotation of a cluster-gateway Secret first.
    fn identity_of(&self, draft: &ItemDraft) -> Result<IdentityPolicy, SourceRefusal> {
        let annotation = draft.metadata.annotations.get(cluster_gateway::RULES);
        match (&self.list, &self.identity, annotation) {
            (SourceList::ClusterGatewaySecrets(_), IdentityPolicy::Rules(rules), Some(text)) => {
                let place = format!("annotation {}", cluster_gateway::RULES);
                let own = parse_identity_rules(text, self.is_strict, &place)?;
                Ok(IdentityPolicy::Rules(own.followed_by(rules)))
            }
            _ => Ok(self.identity.clone()),
        }
    }
}

/// Validates a member with the rules for an UpstreamCluster in a file.
fn check_member(item: &SourceItem) -> Result<(), SourceRefusal> {
    let alone = ConfigurationObjects { clusters: vec![item.upstream_cluster()], ..ConfigurationObjects::default() };
    let errors: Vec<String> = alone
        .validate()
        .into_iter()
        .filter(|problem| problem.severity == Severity::Error)
        .map(|problem| format!("{}: {}", problem.field, problem.message))
        .collect();
    if errors.is_empty() { Ok(()) } else { Err(SourceRefusal::new("Invalid", format!("{}.", errors.join("; ")))) }
}
