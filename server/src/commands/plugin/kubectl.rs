//! `kubectl tributary get|exec|logs|…`: runs kubectl against the API of one cluster.
//!
//! In the merged view, kubectl would select the pods of a Deployment or Service among the pods of all clusters. Below
//! `/clusters/NAME`, kubectl finds only the cluster's own pods.

use std::ffi::{OsStr, OsString};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;

use http::Uri;
use tributary_router::{Report, report};
use tributary_sources::kubeconfig::ChosenContext;

use super::super::running_server::{Page, RunningServer, merged_view};
use crate::cli::KubectlCommand;
use crate::exit::Failure;
use crate::output::terminal::plain;

/// The reason why the arguments select no cluster.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum KubectlArgumentsError {
    /// The arguments contain no `--cluster`.
    #[error("--cluster is missing: kubectl tributary {verb} … --cluster NAME{}", known.as_ref().map(|known| format!("; the clusters are: {known}")).unwrap_or_default())]
    NoCluster {
        /// The kubectl command, for example `get`.
        verb: &'static str,
        /// The clusters' names, if the server returns them.
        known: Option<String>,
    },
    /// The last argument is a flag that needs a value.
    #[error("{0} has no value")]
    NoValue(&'static str),
    /// The arguments contain a flag of kubectl that selects a server.
    #[error("{0} cannot be combined with --cluster, which sets the server")]
    Server(String),
    /// The server has no cluster with the name in `--cluster`.
    #[error("--cluster: there is no cluster {cluster:?}; the clusters are: {known}")]
    Unknown {
        /// The value of `--cluster`.
        cluster: String,
        /// The names of the server's clusters.
        known: String,
    },
}

/// A kubectl command's arguments, split into Tributary's flags and kubectl's arguments.
#[derive(Debug, Default, PartialEq, Eq)]
struct SplitArguments {
    cluster: Option<String>,
    kubeconfig: Option<PathBuf>,
    context: Option<String>,
    /// The arguments that are passed to kubectl.
    others: Vec<OsString>,
}

/// Replaces this process by kubectl. Returns only after a failure.
///
/// # Errors
/// A usage failure for invalid arguments, an invalid kubeconfig or an unknown cluster. A runtime failure if kubectl
/// cannot be run.
pub(super) async fn run(verb: &'static str, arguments: &KubectlCommand) -> Result<u8, Failure> {
    let split = split_arguments(&arguments.arguments).map_err(Failure::usage)?;
    let (kubeconfig, context) = (split.kubeconfig.as_deref(), split.context.as_deref());
    let chosen = ChosenContext::open(kubeconfig, context).await.map_err(Failure::usage)?;
    let known = fetch_cluster_names(&split).await;
    let cluster = check_cluster(verb, split.cluster.as_deref(), known).map_err(Failure::usage)?;
    let mut command = Command::new("kubectl");
    command.arg(verb).arg("--context").arg(&chosen.context);
    command.arg("--server").arg(cluster_server(&chosen.target.config.cluster_url, cluster));
    if let Some(kubeconfig) = kubeconfig {
        command.arg("--kubeconfig").arg(kubeconfig);
    }
    let error = command.args(&split.others).exec();
    Err(Failure::Runtime(anyhow::anyhow!("kubectl cannot be run; it has to be on the PATH: {error}")))
}

/// Checks the value of `--cluster` against the known clusters.
///
/// # Errors
/// [`KubectlArgumentsError`].
fn check_cluster<'a>(
    verb: &'static str,
    named: Option<&'a str>,
    known: Option<Vec<String>>,
) -> Result<&'a str, KubectlArgumentsError> {
    let list = |known: &[String]| plain(&known.join(", "));
    match (named, known) {
        (None, known) => Err(KubectlArgumentsError::NoCluster { verb, known: known.as_deref().map(list) }),
        (Some(name), Some(known)) if !known.iter().any(|known| known == name) => {
            Err(KubectlArgumentsError::Unknown { cluster: name.to_owned(), known: list(&known) })
        }
        (Some(name), _) => Ok(name),
    }
}

/// Fetches the clusters' names from the server. Returns `None` if the server refuses the request, because the user may
/// lack the permission. If the cluster is unknown, kubectl then receives the server's 404.
async fn fetch_cluster_names(split: &SplitArguments) -> Option<Vec<String>> {
    let server = RunningServer::from_kubeconfig(split.kubeconfig.as_deref(), split.context.as_deref()).await.ok()?;
    let page = Page { path: report::PATH, query: String::new(), label: "its report" };
    let report: Report = serde_json::from_str(&server.fetch_page(&page).await.ok()?).ok()?;
    Some(report.clusters.into_iter().map(|cluster| cluster.name).collect())
}

/// Removes Tributary's flags from the arguments. The arguments after `--` belong to the command of an exec.
///
/// # Errors
/// [`KubectlArgumentsError`].
fn split_arguments(arguments: &[OsString]) -> Result<SplitArguments, KubectlArgumentsError> {
    let mut split = SplitArguments::default();
    let mut arguments = arguments.iter();
    while let Some(argument) = arguments.next() {
        let text = argument.to_str().unwrap_or_default();
        let (flag, joined) = text.split_once('=').map_or((text, None), |(flag, value)| (flag, Some(value)));
        let mut value = |flag| -> Result<String, KubectlArgumentsError> {
            let next = || arguments.next().map(|next| next.to_string_lossy().into_owned());
            joined.map(str::to_owned).or_else(next).ok_or(KubectlArgumentsError::NoValue(flag))
        };
        match flag {
            "--cluster" => split.cluster = Some(value("--cluster")?),
            "--context" => split.context = Some(value("--context")?),
            "--kubeconfig" => split.kubeconfig = Some(value("--kubeconfig")?.into()),
            "--server" | "-s" => return Err(KubectlArgumentsError::Server(flag.to_owned())),
            _ => split.others.push(argument.clone()),
        }
        if argument == OsStr::new("--") {
            break;
        }
    }
    split.others.extend(arguments.cloned());
    Ok(split)
}

/// Returns the URL of a cluster's own API, from the server URL of any context.
fn cluster_server(url: &Uri, cluster: &str) -> String {
    format!("{}/clusters/{cluster}", merged_view(url).to_string().trim_end_matches('/'))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn split_text(arguments: &str) -> Result<SplitArguments, KubectlArgumentsError> {
        split_arguments(&arguments.split_whitespace().map(OsString::from).collect::<Vec<_>>())
    }

    #[test]
    fn plugin_passes_all_arguments_except_its_own_flags_to_kubectl() {
        for (arguments, cluster, context, others) in [
            ("deploy/web --cluster eu", "eu", "", "deploy/web"),
            (
                "--cluster=eu -n shop deploy/web -c main -it -- sh -c x",
                "eu",
                "",
                "-n shop deploy/web -c main -it -- sh -c x",
            ),
            ("svc/web 8080:80 --cluster eu --address=::1", "eu", "", "svc/web 8080:80 --address=::1"),
            ("pod/a --cluster eu -- x --cluster us --server=y", "eu", "", "pod/a -- x --cluster us --server=y"),
            ("-l app=web --context all --cluster eu", "eu", "all", "-l app=web"),
            ("pods --context=tributary-all", "", "tributary-all", "pods"),
            ("", "", "", ""),
        ] {
            let split = split_text(arguments).unwrap();
            let text = |text: &Option<String>| text.clone().unwrap_or_default();
            assert_eq!((&*text(&split.cluster), &*text(&split.context)), (cluster, context), "{arguments}");
            let expected: Vec<OsString> = others.split_whitespace().map(OsString::from).collect();
            assert_eq!(split.others, expected, "{arguments}");
        }
        let given = split_text("get pods --kubeconfig all.kubeconfig").unwrap();
        assert_eq!(given.kubeconfig, Some("all.kubeconfig".into()));
    }

    #[test]
    fn plugin_refuses_kubectl_arguments_that_select_a_server() {
        for (arguments, expected) in [
            ("pods --cluster", KubectlArgumentsError::NoValue("--cluster")),
            ("pods --server https://other --cluster eu", KubectlArgumentsError::Server("--server".to_owned())),
            ("pods --server=https://other", KubectlArgumentsError::Server("--server".to_owned())),
            ("-s https://other pods", KubectlArgumentsError::Server("-s".to_owned())),
        ] {
            assert_eq!(split_text(arguments), Err(expected), "{arguments}");
        }
    }

    #[test]
    fn error_for_an_unknown_cluster_lists_the_clusters() {
        let known = || Some(vec!["eu".to_owned(), "us".to_owned()]);
        assert_eq!(check_cluster("logs", Some("eu"), known()), Ok("eu"));
        assert_eq!(check_cluster("logs", Some("euu"), None), Ok("euu"), "the server says it");
        let message = |named, known| check_cluster("logs", named, known).unwrap_err().to_string();
        assert_eq!(message(Some("euu"), known()), "--cluster: there is no cluster \"euu\"; the clusters are: eu, us");
        assert_eq!(
            message(None, known()),
            "--cluster is missing: kubectl tributary logs … --cluster NAME; the clusters are: eu, us"
        );
        assert_eq!(message(None, None), "--cluster is missing: kubectl tributary logs … --cluster NAME");
    }

    #[test]
    fn kubectl_server_url_is_the_path_of_the_cluster() {
        for (url, expected) in [
            ("https://127.0.0.1:7443", "https://127.0.0.1:7443/clusters/eu"),
            ("https://127.0.0.1:7443/clusters/us", "https://127.0.0.1:7443/clusters/eu"),
            ("https://host/base/", "https://host/base/clusters/eu"),
        ] {
            assert_eq!(cluster_server(&url.parse().unwrap(), "eu"), expected, "{url}");
        }
    }
}
