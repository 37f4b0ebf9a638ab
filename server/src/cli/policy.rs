//! The flags of `policy`.

use std::path::PathBuf;
use std::str::FromStr;

use clap::{ArgGroup, Args, Subcommand};
use tributary_apimachinery::ClusterName;

use super::group_resource::GroupResource;

const EXAMPLES: &str = "Examples:
  tributary policy test --config clusters/ --user ann --group dev --verb list --resource pods --namespace shop
      says for the merged view and for each cluster which rule takes the request, and by which
      entries; ends with a verdict for each path
  tributary policy test --config clusters/ --cluster eu --user ann --verb create --resource pods/exec
  tributary policy test --config clusters/ --user system:serviceaccount:shop:web --verb get --path /clusters/eu/version
  tributary policy test --kubeconfig all.kubeconfig --user ann --verb get --path /api/v1/namespaces/shop/secrets/s
      asks the running server, whose policies those are that it goes by now

Exit codes: 0 told, 1 the server does not answer, 2 a flag, the kubeconfig or a configuration file has to be corrected.";

/// The commands about dispatch policies.
#[derive(Debug, Subcommand)]
pub enum PolicyCommand {
    /// Say which rule takes a request, and why, by configuration files or by those of a running server
    #[command(after_help = EXAMPLES)]
    Test(PolicyTestArguments),
}

/// The arguments of `policy test`.
#[derive(Args, Clone, Debug)]
#[command(group = ArgGroup::new("target").required(true).args(["path", "resource"]))]
pub struct PolicyTestArguments {
    /// A YAML file, or a directory with .yaml, .yml and .json files [default: the policies of the running server]
    #[arg(long, value_name = "FILE|DIR", conflicts_with_all = ["kubeconfig", "context"])]
    pub config: Option<PathBuf>,
    /// The kubeconfig of the server [default: $KUBECONFIG, else ~/.kube/config]
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// The context of the server, or of one of its clusters [default: the kubeconfig's current context]
    #[arg(long, value_name = "NAME")]
    pub context: Option<String>,
    /// Who asks
    #[arg(long, value_name = "USER")]
    pub user: String,
    /// A group of the user; may be given several times
    #[arg(long = "group", value_name = "GROUP")]
    pub groups: Vec<String>,
    /// The verb: get, list, watch, create, …; of requests for no resource the method in lower case
    #[arg(long, value_name = "VERB")]
    pub verb: String,
    /// The path that is asked for; below /clusters/NAME it is that cluster's
    #[arg(long, value_name = "PATH")]
    pub path: Option<String>,
    /// The resource that is asked for: pods, pods/exec, deployments.apps, deployments.apps/scale
    #[arg(long, value_name = "RESOURCE")]
    pub resource: Option<TestedResource>,
    /// The namespace of the resource
    #[arg(long, value_name = "NAMESPACE", conflicts_with = "path", default_value = "", hide_default_value = true)]
    pub namespace: String,
    /// The name of the object
    #[arg(long, value_name = "NAME", conflicts_with = "path", default_value = "", hide_default_value = true)]
    pub name: String,
    /// What the client calls itself
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
    pub user_agent: String,
    /// Ask the policies of this cluster alone [default: those of the merged view, and of each cluster]
    #[arg(long, value_name = "NAME", conflicts_with = "path")]
    pub cluster: Option<ClusterName>,
}

/// A resource, its group and subresource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TestedResource {
    /// The resource and its group.
    pub resource: GroupResource,
    /// The subresource; empty for the object itself.
    pub subresource: String,
}

impl FromStr for TestedResource {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (resource, subresource) = text.split_once('/').unwrap_or((text, ""));
        if subresource.contains(['/', '*', ' ']) || text.ends_with('/') {
            return Err(
                "must be a resource, or resource/subresource: pods, pods/exec, deployments.apps/scale".to_owned()
            );
        }
        Ok(Self { resource: resource.parse()?, subresource: subresource.to_owned() })
    }
}
