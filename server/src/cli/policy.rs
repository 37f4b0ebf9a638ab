//! The flags of `policy`.

use std::path::PathBuf;
use std::str::FromStr;

use clap::{ArgGroup, Args, Subcommand};
use tributary_apimachinery::ClusterName;

use super::group_resource::GroupResource;

const EXAMPLES: &str = "Examples:
  tributary policy test --config clusters/ --user ann --group dev --verb list --resource pods --namespace shop
      shows the rule of the merged view and of each cluster that matches the request, the matching
      entries, and a verdict for each path
  tributary policy test --config clusters/ --cluster eu --user ann --verb create --resource pods/exec
  tributary policy test --config clusters/ --user system:serviceaccount:shop:web --verb get --path /clusters/eu/version
  tributary policy test --kubeconfig all.kubeconfig --user ann --verb get --path /api/v1/namespaces/shop/secrets/s
      uses the policies of the running server

Exit codes: 0 success, 1 the server does not answer, 2 an error in a flag, the kubeconfig or a configuration file.";

/// The commands about dispatch policies.
#[derive(Debug, Subcommand)]
pub enum PolicyCommand {
    /// Show the rule that matches a request, by configuration files or by a running server
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
    /// The kubeconfig of the server [default: $KUBECONFIG or ~/.kube/config]
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// The context of the server, or of one of its clusters [default: the kubeconfig's current context]
    #[arg(long, value_name = "NAME")]
    pub context: Option<String>,
    /// The user who sends the request
    #[arg(long, value_name = "USER")]
    pub user: String,
    /// A group of the user; may be given several times
    #[arg(long = "group", value_name = "GROUP")]
    pub groups: Vec<String>,
    /// The verb: get, list, watch, create, …; for a non-resource path the HTTP method in lower case
    #[arg(long, value_name = "VERB")]
    pub verb: String,
    /// The path of the request; paths below /clusters/NAME belong to that cluster
    #[arg(long, value_name = "PATH")]
    pub path: Option<String>,
    /// The resource of the request: pods, pods/exec, deployments.apps, deployments.apps/scale
    #[arg(long, value_name = "RESOURCE")]
    pub resource: Option<TestedResource>,
    /// The namespace of the resource
    #[arg(long, value_name = "NAMESPACE", conflicts_with = "path", default_value = "", hide_default_value = true)]
    pub namespace: String,
    /// The name of the object
    #[arg(long, value_name = "NAME", conflicts_with = "path", default_value = "", hide_default_value = true)]
    pub name: String,
    /// The User-Agent header of the client
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
    pub user_agent: String,
    /// Test only the policies of this cluster [default: the policies of the merged view and of each cluster]
    #[arg(long, value_name = "NAME", conflicts_with = "path")]
    pub cluster: Option<ClusterName>,
}

/// A resource with its group and subresource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TestedResource {
    /// The resource with its group.
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
                "must be a resource or resource/subresource, such as pods, pods/exec or deployments.apps/scale"
                    .to_owned(),
            );
        }
        Ok(Self { resource: resource.parse()?, subresource: subresource.to_owned() })
    }
}
