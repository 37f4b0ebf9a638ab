//! `tributary convert`: converts KubeGateway's manifests into configuration files, and lists the differences.

use std::fmt::Write;
use std::io::Read;
use std::path::{Path, PathBuf};

use anyhow::Context;
use serde_json::Value;
use tributary_crds::kubegateway::{self, Converted};
use tributary_crds::{ConfigurationObjects, documents};

use crate::cli::ConvertArguments;
use crate::exit::Failure;
use crate::output::print;

struct Conversion {
    yaml: String,
    /// The notes about differences, one per line.
    notes: Vec<String>,
}

/// Prints the configuration to standard output, and the differences to standard error.
///
/// # Errors
/// A runtime failure for an unreadable file, and a usage failure for an invalid manifest.
pub fn convert(arguments: &ConvertArguments) -> Result<(), Failure> {
    let files: Vec<(PathBuf, String)> = arguments.files.iter().map(|path| read(path)).collect::<Result<_, _>>()?;
    let Conversion { yaml, notes } = convert_files(&files).map_err(Failure::usage)?;
    for note in notes {
        eprintln!("{note}");
    }
    print(&yaml);
    Ok(())
}

fn read(path: &Path) -> Result<(PathBuf, String), Failure> {
    if path == Path::new("-") {
        let mut text = String::new();
        std::io::stdin().read_to_string(&mut text).context("standard input").map_err(Failure::runtime)?;
        return Ok((PathBuf::from("standard input"), text));
    }
    let text = std::fs::read_to_string(path).with_context(|| path.display().to_string()).map_err(Failure::runtime)?;
    Ok((path.to_owned(), text))
}

fn convert_files(files: &[(PathBuf, String)]) -> anyhow::Result<Conversion> {
    let mut objects = ConfigurationObjects::default();
    let mut conversion = Conversion { yaml: String::new(), notes: Vec::new() };
    for (path, text) in files {
        for (origin, document) in documents(text, path) {
            for manifest in manifests(document?) {
                let name = manifest.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default().to_owned();
                if !kubegateway::is_manifest(&manifest) {
                    let kind = manifest.get("kind").and_then(Value::as_str).unwrap_or_default();
                    conversion
                        .notes
                        .push(format!("{origin}: {kind} {name:?} is not an UpstreamCluster of KubeGateway; omitted"));
                    continue;
                }
                let Converted { cluster, differences } =
                    kubegateway::convert(manifest).with_context(|| format!("{origin}: UpstreamCluster {name:?}"))?;
                let told = differences.iter().map(|line| format!("{origin}: UpstreamCluster {name:?}: {line}"));
                conversion.notes.extend(told);
                let yaml =
                    serde_saphyr::to_string(&cluster).context("the UpstreamCluster cannot be written as YAML")?;
                // `write!` to a `String` never fails, so its result is ignored.
                let _ = write!(conversion.yaml, "---\n{yaml}");
                objects.clusters.push(cluster);
            }
        }
    }
    anyhow::ensure!(
        !objects.clusters.is_empty(),
        "there is no UpstreamCluster of {} in these files",
        kubegateway::API_VERSION
    );
    conversion
        .notes
        .extend(objects.validate().iter().map(|problem| format!("as it is written: {}", explain_problem(problem))));
    Ok(conversion)
}

fn explain_problem(problem: &tributary_crds::ValidationProblem) -> String {
    let severity = match problem.severity {
        tributary_crds::Severity::Error => "error",
        tributary_crds::Severity::Warning => "warning",
    };
    format!("{severity}: {problem}")
}

/// Returns the objects of a YAML document. A document may be a List, as `kubectl get -o yaml` prints it.
fn manifests(mut document: Value) -> Vec<Value> {
    let is_list = document.get("kind").and_then(Value::as_str).is_some_and(|kind| kind.ends_with("List"));
    match document.get_mut("items").map(Value::take) {
        Some(Value::Array(items)) if is_list => items,
        _ => vec![document],
    }
}

#[cfg(test)]
mod tests {
    use tributary_apimachinery::explain;
    use tributary_flow_control::SchemaKind;
    use tributary_sources::upstream_clusters::FileSource;

    use super::*;

    fn convert(text: &str) -> anyhow::Result<Conversion> {
        convert_files(&[(PathBuf::from("a.yaml"), text.to_owned())])
    }

    const MANIFEST: &str = "apiVersion: proxy.kubegateway.io/v1alpha1\nkind: UpstreamCluster\nmetadata: {name: eu}\nspec:\n  \
                            servers: [{endpoint: 'https://a'}]\n  clientConfig: {insecure: true, bearerToken: aHVudGVyMg==}\n  \
                            dispatchPolicies:\n  - rules: [{verbs: ['*'], nonResourceURLs: ['*']}]\n    upsteamSubset: ['https://a']\n";

    #[test]
    fn converted_files_and_lists_are_valid_configuration() {
        let list = serde_json::json!({"kind": "List", "apiVersion": "v1", "items": [
            {"apiVersion": "proxy.kubegateway.io/v1alpha1", "kind": "UpstreamCluster", "metadata": {"name": "us"},
                "spec": {"servers": [{"endpoint": "https://b"}], "clientConfig": {"insecure": true}}},
            {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}},
        ]});
        let converted = convert(&format!("{MANIFEST}---\n{list}\n")).unwrap();
        let read = tributary_crds::parse(&converted.yaml, Path::new("out.yaml")).unwrap();
        let names: Vec<_> = read.clusters.iter().map(|cluster| cluster.metadata.name.as_deref().unwrap()).collect();
        assert_eq!(names, ["eu", "us"]);
        assert_eq!(read.clusters[0].spec.dispatch_policies[0].endpoints, ["https://a"]);
        let notes = converted.notes.join("\n");
        for part in [
            "a.yaml: document 2 (line 10): Secret \"s\" is not an UpstreamCluster of KubeGateway; omitted",
            "as it is written: warning: UpstreamCluster \"eu\": spec.insecureSkipVerify: true disables verification of the servers",
        ] {
            assert!(notes.contains(part), "{part} in {notes}");
        }
        assert!(!notes.contains("hunter2"), "{notes}");
    }

    /// With the converted configuration, flow control limits requests as in KubeGateway.
    #[tokio::test]
    async fn converted_configuration_is_accepted_by_serve() {
        let governed = MANIFEST.replace("    upsteamSubset: ['https://a']\n", "    flowControlSchemaName: few\n")
            + "  flowControl:\n    flowControlSchemas:\n    - {name: few, maxRequestsInflight: {max: 1}}\n    - {name: slow, \
             tokenBucket: {qps: 5, burst: 10}}\n    - {name: free, exempt: {}}\n";
        let converted = convert(&governed).unwrap();
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("out.yaml"), &converted.yaml).unwrap();
        let taken = FileSource::new(folder.path().to_owned()).read(&[]).await.unwrap();
        let schemas = &taken.flow_control.clusters["eu"].schemas;
        assert_eq!(schemas.iter().map(|schema| &*schema.name).collect::<Vec<_>>(), ["few", "slow", "free"]);
        let SchemaKind::MaxRequestsInflight(few) = &schemas[0].kind else { panic!("{schemas:?}") };
        assert!(few.limit.max == 1 && few.limit.count_long_running);
    }

    #[test]
    fn conversion_error_names_the_problem() {
        for (text, part) in [
            ("apiVersion: v1\nkind: Pod\n", "there is no UpstreamCluster of proxy.kubegateway.io/v1alpha1"),
            ("kind: [\n", "a.yaml: document 1 (line 1): the document is not valid YAML"),
            (
                &*MANIFEST.replace("insecure: true", "insecure: maybe"),
                "UpstreamCluster \"eu\": a field of the UpstreamCluster",
            ),
        ] {
            let error = convert(text).err().unwrap();
            let shown = format!("{error:#} {}", explain(&*error));
            assert!(shown.contains(part), "{shown}");
        }
    }
}
