//! The flags of the publication of members in the hub.

use std::path::PathBuf;

use clap::Args;
use tributary_apimachinery::Door;
use tributary_hub::{PublicationSettings, PublishedAddress, PublishedServiceAccount};

/// The flags by which controllers of other systems find the members in the hub.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Hub mode: publication of the members for controllers")]
pub struct PublicationArguments {
    /// Write a ClusterProfile (multicluster.x-k8s.io) for each member into this namespace of the hub. Needs
    /// --hub-kubeconfig or --hub-in-cluster
    #[arg(long, value_name = "NAMESPACE", requires = "publish_address")]
    pub publish_cluster_profiles: Option<String>,
    /// Write a Secret with a kubeconfig for each member into this namespace of the hub, in the form of
    /// multicluster-runtime. Needs --hub-kubeconfig or --hub-in-cluster
    #[arg(long, value_name = "NAMESPACE", requires_all = ["publish_address", "publish_service_account"])]
    pub publish_kubeconfig_secrets: Option<String>,
    /// Write a cluster Secret of Argo CD for each member into this namespace of the hub. Needs --hub-kubeconfig or
    /// --hub-in-cluster
    #[arg(long, value_name = "NAMESPACE", requires_all = ["publish_address", "publish_service_account"])]
    pub publish_argo_cd_secrets: Option<String>,
    /// The URL of Tributary in published objects, such as `https://tributary.example.com:6443`, or the URL of the hub
    /// with the path /apis/aggregation.tributary.dev/v1alpha1 (--aggregated-listen)
    #[arg(long, value_name = "URL")]
    pub publish_address: Option<PublishedAddress>,
    /// The authorities of the certificate at --publish-address, reread on change [default: the authority of Tributary's
    /// generated certificate; with --tls-cert-file, the authorities of the clients' systems]
    #[arg(long, value_name = "FILE")]
    pub publish_ca_file: Option<PathBuf>,
    /// The ServiceAccount of the hub whose token the published Secrets contain. Tributary requests the token and renews
    /// it. Each reader of the Secrets has the rights of this account in all members
    #[arg(long, value_name = "NAMESPACE/NAME")]
    pub publish_service_account: Option<PublishedServiceAccount>,
    /// The audiences of the token in published Secrets, which --authentication-config accepts [default: the hub's
    /// kube-apiserver]
    #[arg(long, value_name = "AUDIENCE,...", value_delimiter = ',')]
    pub publish_token_audiences: Vec<String>,
}

impl PublicationArguments {
    /// Returns whether objects are published.
    pub fn is_given(&self) -> bool {
        let Self { publish_cluster_profiles, publish_kubeconfig_secrets, publish_argo_cd_secrets, .. } = self;
        [publish_cluster_profiles, publish_kubeconfig_secrets, publish_argo_cd_secrets].into_iter().any(Option::is_some)
    }

    /// Returns the settings; `None` if nothing is published. `authorities` are the authorities of a generated serving
    /// certificate in PEM. `instance` is the namespace of the Lease.
    pub fn settings(&self, authorities: Option<&str>, instance: &str) -> Option<PublicationSettings> {
        let address = self.publish_address.clone().filter(|_| self.is_given())?;
        let is_direct = address.door == Door::Direct;
        Some(PublicationSettings {
            cluster_profiles: self.publish_cluster_profiles.clone(),
            kubeconfig_secrets: self.publish_kubeconfig_secrets.clone(),
            argo_cd_secrets: self.publish_argo_cd_secrets.clone(),
            address,
            authorities_file: self.publish_ca_file.clone(),
            authorities: authorities.filter(|_| is_direct).map(str::to_owned),
            service_account: self.publish_service_account.clone(),
            token_audiences: self.publish_token_audiences.clone(),
            instance: instance.to_owned(),
        })
    }
}
