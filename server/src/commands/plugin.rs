//! `kubectl tributary`: sends requests to the merged view, as the user of the kubeconfig.
//!
//! The output contains text from clusters, so control characters are escaped.

mod diff;
mod endpoint;
mod found;
mod kubectl;
mod resource_type;
mod which;

use crate::cli::{DiffArguments, ObjectArguments, PluginCommand, RvCommand, WhichArguments};
use crate::exit::{self, Failure};
use crate::output::print;
use endpoint::PluginEndpoint;
use found::{ClusterObject, NamedObject};
use tributary_apimachinery::text::printable;

/// The exit code of `diff` if there are differences.
///
/// Source: diff(1), which kubectl follows.
const DIFFERENT: u8 = 1;

/// Runs a command and returns its exit code.
///
/// # Errors
/// [`Failure`] of the command.
pub async fn run(command: PluginCommand) -> Result<u8, Failure> {
    match command {
        PluginCommand::Which(arguments) => which(&arguments).await.map(|()| exit::OK),
        PluginCommand::Diff(arguments) => diff(&arguments).await.map_err(|failure| match failure {
            // Exit code 1 means that objects differ, so a failure must have another code.
            Failure::Runtime(error) | Failure::Usage(error) => Failure::Usage(error),
        }),
        PluginCommand::Get(arguments) => kubectl::run("get", &arguments).await,
        PluginCommand::Describe(arguments) => kubectl::run("describe", &arguments).await,
        PluginCommand::Logs(arguments) => kubectl::run("logs", &arguments).await,
        PluginCommand::Exec(arguments) => kubectl::run("exec", &arguments).await,
        PluginCommand::Attach(arguments) => kubectl::run("attach", &arguments).await,
        PluginCommand::PortForward(arguments) => kubectl::run("port-forward", &arguments).await,
        PluginCommand::Delete(arguments) => kubectl::run("delete", &arguments).await,
        PluginCommand::Status(arguments) => super::status::status(arguments).await.map(|()| exit::OK),
        PluginCommand::Rv(RvCommand::Decode(arguments)) => {
            print(&super::rv::decode(&arguments)?);
            Ok(exit::OK)
        }
    }
}

async fn which(arguments: &WhichArguments) -> Result<(), Failure> {
    let (_, found) = find(&arguments.object).await?;
    print(&printable(&which::render(&found, arguments.output)));
    Ok(())
}

async fn diff(arguments: &DiffArguments) -> Result<u8, Failure> {
    let (wanted, found) = find(&arguments.object).await?;
    let compared = diff::compared_objects(&wanted, &found, &arguments.clusters).map_err(Failure::usage)?;
    let text = diff::render(&wanted, &compared, arguments.all_fields).map_err(Failure::runtime)?;
    print(&printable(&text));
    Ok(if text.is_empty() { exit::OK } else { DIFFERENT })
}

/// Fetches all objects with this name from the merged view. Returns at least one.
async fn find(arguments: &ObjectArguments) -> Result<(NamedObject, Vec<ClusterObject>), Failure> {
    let (kind, name) = found::type_and_name(&arguments.object).map_err(Failure::usage)?;
    let endpoint = PluginEndpoint::open(&arguments.endpoint).await?;
    let (core, named) = endpoint.discovery().await.map_err(Failure::Runtime)?;
    let resource = resource_type::resolve(kind, &core, &named).map_err(Failure::usage)?;
    let namespace = arguments.namespace.as_deref().unwrap_or(endpoint.namespace());
    let wanted = NamedObject::new(resource, name, namespace);
    let list = endpoint.get(&wanted.path()).await.map_err(Failure::Runtime)?;
    let found = found::items(&wanted, list, endpoint.context()).map_err(Failure::usage)?;
    if found.is_empty() {
        return Err(Failure::Runtime(anyhow::anyhow!("no cluster has {wanted}")));
    }
    Ok((wanted, found))
}
