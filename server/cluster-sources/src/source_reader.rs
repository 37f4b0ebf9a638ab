//! Reads the items of a source, with the settings of the source.

use std::collections::BTreeMap;
use std::sync::Arc;

use tributary_apimachinery::{Object, Snapshot};
use tributary_crds::{ClusterSource, ConfigurationObjects, InsecureMembers, Severity};

use crate::SourceRefusal;
use crate::argo_cd::read_argo_cd_secret;
use crate::cluster_gateway::{self, read_cluster_gateway_secret};
use crate::draft::ItemDraft;
use crate::identity_rules::{IdentityPolicy, IdentityRules};
use crate::item::{RefusedItem, SourceItem};
use crate::karmada::read_karmada_cluster;
use crate::kube_gateway::read_kube_gateway_cluster;
use crate::kubeconfig_secret::read_kubeconfig_secret;
use crate::managed_cluster::read_managed_cluster;
use crate::reading::{SourceReading, settle_items};
use crate::secret::Secret;
use crate::server_trust::UnverifiedServers;
use crate::source_list::SourceList;

/// A placement label that stands for all labels.
const ALL_LABELS: &str = "*";

/// The Secrets of [`SourceList::secrets`]; `None` until they are listed, or if the list has no such Secrets.
pub type Secrets<'a> = Option<&'a Snapshot>;

/// Reads the items of a source. The reader is made once for each generation of the source.
#[derive(Debug)]
pub struct SourceReader {
    list: SourceList,
    identity: IdentityPolicy,
    /// Whether patterns of rules in annotations must match the whole name.
    is_strict: bool,
    placement_labels: Vec<String>,
    unverified: UnverifiedServers,
}

impl SourceReader {
    /// Prepares the reading of a source. `insecure` is the flag of the process for unverified servers.
    ///
    /// # Errors
    /// The list is not supported, or an identity rule is wrong.
    pub fn new(source: &ClusterSource, insecure: InsecureMembers) -> Result<Self, SourceRefusal> {
        let spec = &source.spec;
        Ok(Self {
            list: SourceList::from_spec(spec)?,
            identity: IdentityPolicy::new(&spec.identity)?,
            is_strict: spec.identity.strict,
            placement_labels: spec.placement_labels.clone(),
            unverified: UnverifiedServers::new(spec.missing_ca, insecure),
        })
    }

    /// Returns the list of the source, with the collections to watch.
    pub fn list(&self) -> &SourceList {
        &self.list
    }

    /// Reads all items of a list.
    pub fn read_items<'a>(
        &self,
        objects: impl IntoIterator<Item = &'a Arc<Object>>,
        secrets: Secrets<'_>,
    ) -> SourceReading {
        self.settle(objects.into_iter().map(|object| self.read_item(object, secrets)).collect())
    }

    /// Refuses items that conflict with an older item of the list. The rest stays as read. A caller that keeps the
    /// results of [`read_item`](Self::read_item) reads only changed objects again.
    pub fn settle(&self, read: Vec<Result<SourceItem, RefusedItem>>) -> SourceReading {
        settle_items(&self.list, read)
    }

    /// Reads an item of the list. The result depends only on the object, the Secrets and the source.
    ///
    /// # Errors
    /// The reason why the object is no member.
    pub fn read_item(&self, object: &Object, secrets: Secrets<'_>) -> Result<SourceItem, RefusedItem> {
        let read = self.read_draft(object, secrets).and_then(|draft| self.finish(draft, object.name()));
        read.map_err(|SourceRefusal { reason, message }| RefusedItem {
            name: object.name().to_owned(),
            reason,
            message,
        })
    }

    fn read_draft(&self, object: &Object, secrets: Secrets<'_>) -> Result<ItemDraft, SourceRefusal> {
        let unverified = self.unverified;
        match &self.list {
            SourceList::ClusterGatewaySecrets(_) => read_cluster_gateway_secret(Secret::decode(object)?, unverified),
            SourceList::KubeconfigSecrets(_) => read_kubeconfig_secret(Secret::decode(object)?, unverified),
            SourceList::ArgoCdSecrets(_) => read_argo_cd_secret(Secret::decode(object)?, unverified),
            SourceList::KubeGatewayClusters(_) => read_kube_gateway_cluster(object, unverified),
            SourceList::KarmadaClusters(list) => {
                let find_secret = |name: &str| find_secret(secrets, &list.namespace, name);
                read_karmada_cluster(object, &list.namespace, &find_secret, unverified)
            }
            SourceList::ManagedClusters(list) => {
                let find_secret = |namespace: &str| find_secret(secrets, namespace, &list.managed_service_account);
                read_managed_cluster(object, &find_secret, unverified)
            }
        }
    }

    /// Adds labels and identity, and checks the member as a whole.
    fn finish(&self, draft: ItemDraft, object_name: &str) -> Result<SourceItem, SourceRefusal> {
        let identity = self.identity_of(&draft)?;
        let takes = |key: &str| self.placement_labels.iter().any(|taken| taken == key || taken == ALL_LABELS);
        let labels = draft.metadata.labels.into_iter().filter(|(key, _)| takes(key));
        let labels: BTreeMap<String, String> = labels.chain(draft.location).collect();
        let item = SourceItem {
            object_name: object_name.to_owned(),
            foreign_name: draft.foreign_name,
            name: draft.name,
            labels,
            spec: draft.spec,
            identity,
            uid: draft.uid,
            impersonator: draft.impersonator,
            proxy_headers: draft.proxy_headers,
            alias: draft.alias,
            scope: draft.scope,
            warnings: draft.warnings,
            created: draft.metadata.creation_timestamp,
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
                let own = IdentityRules::parse(text, self.is_strict, &place)?;
                Ok(IdentityPolicy::Rules(own.followed_by(rules)))
            }
            _ => Ok(self.identity.clone()),
        }
    }
}

fn find_secret(secrets: Secrets<'_>, namespace: &str, name: &str) -> Result<Secret, SourceRefusal> {
    let Some(secrets) = secrets else {
        let message = format!("Secret {name}: Tributary has not read the Secrets of the source yet.");
        return Err(SourceRefusal::new("SecretsUnknown", message));
    };
    match secrets.get(&format!("{namespace}/{name}")) {
        Some(secret) => Secret::decode(secret),
        None => {
            let message = format!(
                "Secret {name} does not exist in namespace {namespace}. Create it, or correct the name of the Secret."
            );
            Err(SourceRefusal::new("SecretNotFound", message))
        }
    }
}

/// Checks a member like an UpstreamCluster of a file.
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
