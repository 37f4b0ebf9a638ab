//! `tributary check`: validates configuration files and explains the result. With `--as`, lists the objects that a user
//! can read. With `--hub-kubeconfig`, shows the verdict on each object of the hub.
//!
//! Findings and explanation go to standard output. Only `--as` sends requests to clusters.

mod hub;
mod row;
mod served;
mod user_rights;

use std::fmt::Write;
use std::path::Path;

use tributary_apimachinery::{Consistency, Filtered, ItemResourceVersions, Names, explain};
use tributary_crds::{ConfigurationObjects, Credentials, ResourceRegistry, Severity, UpstreamCluster};
use tributary_sources::policies::{KnownClusters, PolicyFlags, policies};
use tributary_sources::upstream_clusters::{FileSource, cluster_spec, no_objects_message};

use crate::authentication::read_issuers;
use crate::cli::CheckArguments;
use crate::exit::Failure;
use crate::output::print;

/// The error message for a command without a flag that selects a file or a user.
const NOTHING_TO_CHECK: &str = "there is nothing to check; name a configuration file or directory by --config, the \
                                file of serve --authentication-config by --authentication-config, a hub by \
                                --hub-kubeconfig, or a user by --as, whose rights in the clusters are shown; tributary \
                                check --help has examples";

#[derive(Default)]
struct Findings {
    errors: Vec<String>,
    warnings: Vec<String>,
    /// The explanation of the configuration, if it has no errors.
    explanation: String,
}

/// Checks a file or directory and prints the findings.
///
/// # Errors
/// A usage failure (exit code 2) for an invalid configuration. The findings have already been printed.
pub async fn check(arguments: CheckArguments) -> Result<(), Failure> {
    if !arguments.names_anything() {
        return Err(Failure::usage(anyhow::anyhow!(NOTHING_TO_CHECK)));
    }
    let mut findings = match &arguments.config {
        Some(path) => examine(path, arguments.hub.address().is_some()).await,
        None => Findings::default(),
    };
    if let Some(path) = &arguments.authentication_config {
        findings.examine_issuers(path);
    }
    let (errors, warnings) = (findings.errors.len(), findings.warnings.len());
    print(&findings.render());
    if errors > 0 {
        let files = arguments.config.iter().chain(&arguments.authentication_config);
        let files: Vec<_> = files.map(|path| path.display().to_string()).collect();
        let counted = format!("{}, {}", counted(errors, "error"), counted(warnings, "warning"));
        return Err(Failure::usage(anyhow::anyhow!("{}: {counted}", files.join(", "))));
    }
    if let Some(address) = arguments.hub.address() {
        hub::print_verdicts(&address, &arguments).await?;
    }
    match &arguments.as_user {
        Some(user) => user_rights::print_rights(user, &arguments).await,
        None => Ok(()),
    }
}

async fn examine(path: &Path, has_hub: bool) -> Findings {
    let objects = match tributary_crds::load(path) {
        Ok(objects) => objects,
        Err(errors) => {
            let errors = errors.0.iter().map(|error| explain(error)).collect();
            return Findings { errors, warnings: Vec::new(), explanation: String::new() };
        }
    };
    if objects.is_empty() {
        return Findings { errors: vec![no_objects_message(path)], ..Findings::default() };
    }
    let (mut errors, mut warnings) = (Vec::new(), Vec::new());
    errors.extend(objects.need_of_a_hub().filter(|_| !has_hub));
    for problem in objects.validate() {
        let list = if problem.severity == Severity::Error { &mut errors } else { &mut warnings };
        list.push(problem.to_string());
    }
    // Files to which the objects refer are checked only if all objects are valid.
    if errors.is_empty() {
        let source = FileSource::new(path.to_owned());
        for cluster in &objects.clusters {
            if let Err(error) = cluster_spec(cluster, source.base()).await {
                errors.push(format!("UpstreamCluster {:?}: {}", name(cluster), explain(&error)));
            }
        }
        let labels = |cluster: &UpstreamCluster| cluster.metadata.labels.clone().unwrap_or_default();
        let known: KnownClusters = objects
            .clusters
            .iter()
            .filter_map(|cluster| Some((name(cluster).parse().ok()?, labels(cluster))))
            .collect();
        if let Err(error) = policies(&PolicyFlags::default(), &objects.registries, &known) {
            errors.push(explain(&error));
        }
    }
    Findings { errors, warnings, explanation: explanation(&objects) }
}

impl Findings {
    /// Checks an AuthenticationConfiguration. The issuers' keys are not fetched.
    fn examine_issuers(&mut self, path: &Path) {
        match read_issuers(path) {
            Err(error) => self.errors.push(explain(&error)),
            Ok(configuration) => {
                let issuers = configuration.jwt.iter().map(|issuer| {
                    format!(
                        "  {}: for {}; the user is {}{{{}}}\n",
                        issuer.issuer_url,
                        issuer.audiences.join(", "),
                        issuer.username.prefix,
                        issuer.username.claim
                    )
                });
                let issuers: String = issuers.collect();
                let _ = write!(
                    self.explanation,
                    "tokens of {} would be accepted:\n{issuers}",
                    counted(configuration.jwt.len(), "issuer")
                );
            }
        }
    }

    fn render(&self) -> String {
        let mut out = String::new();
        for (severity, findings) in [("error", &self.errors), ("warning", &self.warnings)] {
            for finding in findings {
                // `write!` to a `String` never fails, so its result is ignored.
                let _ = writeln!(out, "{severity}: {finding}");
            }
        }
        if self.errors.is_empty() {
            out.push_str(&self.explanation);
        }
        out
    }
}

fn explanation(objects: &ConfigurationObjects) -> String {
    let mut out = format!("{} would be served", counted(objects.clusters.len(), "cluster"));
    if objects.clusters.is_empty() {
        out.push_str(": add an UpstreamCluster, or contexts by --kubeconfig\n");
    } else {
        out.push_str(":\n");
    }
    for cluster in &objects.clusters {
        let _ = writeln!(out, "  {}: {}", name(cluster), reached(cluster));
    }
    match objects.registries.is_empty() {
        true => out.push_str(
            "every resource that can be listed and watched would be cached on its first use (in shared mode without \
             secrets)\n",
        ),
        false => out.push_str(
            "cached from their first use; requests for other resources would be forwarded to the clusters:\n",
        ),
    }
    for registry in &objects.registries {
        let _ = writeln!(out, "  {}", cached(registry, objects));
    }
    out
}

fn reached(cluster: &UpstreamCluster) -> String {
    let spec = &cluster.spec;
    let mut text = match &spec.kubeconfig {
        Some(reference) => {
            let context = reference.context.as_deref().unwrap_or("the current one");
            format!("context {context} of {}", reference.path)
        }
        None => format!("{}, {}", spec.endpoints.join(", "), authenticated(spec.credentials.as_ref())),
    };
    if spec.insecure_skip_verify {
        text.push_str(", its certificate not verified");
    }
    if let Some(index) = spec.index {
        let _ = write!(text, ", index {index}");
    }
    if !spec.server_names.is_empty() {
        let _ = write!(text, "; its own API is at {}", spec.server_names.join(", "));
    }
    text
}

fn authenticated(credentials: Option<&Credentials>) -> &'static str {
    match credentials {
        Some(Credentials { token: Some(_), .. }) => "a token",
        Some(Credentials { token_file: Some(_), .. }) => "a token from a file",
        Some(
            Credentials { client_certificate_data: Some(_), .. } | Credentials { client_certificate_file: Some(_), .. },
        ) => "a client certificate",
        _ => "no credentials",
    }
}

fn cached(registry: &ResourceRegistry, objects: &ConfigurationObjects) -> String {
    let spec = &registry.spec;
    let registry_name = registry.metadata.name.as_deref().unwrap_or_default();
    let placement = match &spec.placement {
        Some(cluster) => format!("new objects go to {cluster}"),
        None => "new objects must name their cluster".to_owned(),
    };
    let mut text = format!("{registry_name}: {}", spec.resources.join(", "));
    if !spec.clusters.is_all() {
        let selected = objects.clusters.iter().filter(|cluster| spec.clusters.selects(cluster)).map(name);
        let _ = write!(text, "; only of {}", selected.collect::<Vec<_>>().join(", "));
    }
    if !spec.namespaces.is_empty() {
        let _ = write!(text, "; of namespaces {}, requests for others are forwarded", spec.namespaces.join(", "));
    }
    if spec.item_resource_versions == ItemResourceVersions::Integer {
        text.push_str("; objects have Integer resourceVersions");
    }
    if spec.consistency == Consistency::Quorum {
        text.push_str("; reads without a resourceVersion are confirmed by the clusters");
    }
    if spec.names == Names::Unique {
        text.push_str("; each name is of one object in all clusters");
    }
    if spec.filtered == Filtered::Deny {
        text.push_str("; lists are refused for a user who may list only some of the objects");
    }
    let _ = write!(text, "; partial {:?}; {placement}", spec.partial);
    text
}

fn name(cluster: &UpstreamCluster) -> &str {
    cluster.metadata.name.as_deref().unwrap_or_default()
}

fn counted(count: usize, noun: &str) -> String {
    format!("{count} {noun}{}", if count == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn findings(text: &str) -> Findings {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("config.yaml");
        std::fs::write(&path, text).unwrap();
        examine(&path, false).await
    }

    const CLUSTER: &str = "apiVersion: tributary.dev/v1alpha1\nkind: UpstreamCluster\nmetadata: { name: eu }\nspec:\n  \
                           endpoints: [\"https://127.0.0.1:6443\"]\n  insecureSkipVerify: true\n  credentials: { token: hunter2 }\n  \
                           index: 3\n";

    #[tokio::test]
    async fn check_explains_a_valid_configuration_without_its_secrets() {
        let registry = "---\napiVersion: tributary.dev/v1alpha1\nkind: ResourceRegistry\nmetadata: { name: main }\n\
                        spec: { resources: [pods, deployments.apps], partial: Allow, placement: eu }\n\
                        ---\napiVersion: tributary.dev/v1alpha1\nkind: ResourceRegistry\nmetadata: { name: rest }\n\
                        spec: { resources: ['*'], clusters: { names: [eu] }, namespaces: [a, b], \
                        itemResourceVersions: Integer, consistency: Quorum }\n";
        let found = findings(&format!("{CLUSTER}{registry}")).await;
        assert_eq!(found.errors, Vec::<String>::new());
        let text = found.render();
        for part in [
            "1 cluster would be served",
            "eu: https://127.0.0.1:6443, a token, its certificate not verified, index 3",
            "main: pods, deployments.apps; partial Allow; new objects go to eu",
            "rest: *; only of eu; of namespaces a, b, requests for others are forwarded; objects have Integer \
             resourceVersions; reads without a resourceVersion are confirmed by the clusters; partial Deny; new \
             objects must name their cluster",
        ] {
            assert!(text.contains(part), "{part} in {text}");
        }
        assert!(!text.contains("hunter2"));
        // Without a registry, a resource is cached at its first request.
        let text = findings(CLUSTER).await.render();
        assert!(text.ends_with("on its first use (in shared mode without secrets)\n"), "{text}");
    }

    #[tokio::test]
    async fn missing_configuration_error_names_the_path() {
        let directory = tempfile::tempdir().unwrap();
        let at = directory.path().display().to_string();
        let is_refused = async |path: &Path, expected: &str| {
            let found = examine(path, false).await;
            let [error] = &found.errors[..] else { panic!("{:?}", found.errors) };
            assert!(error.starts_with(&at) && error.contains(expected), "{error}");
            assert!(error.contains("tributary join CONTEXT --config"), "{error}");
            assert!(!found.render().contains("would be served"), "{error}");
        };
        is_refused(directory.path(), "no .yaml, .yml or .json file").await;
        std::fs::write(directory.path().join("eu.yaml.txt"), CLUSTER).unwrap();
        is_refused(directory.path(), "no .yaml, .yml or .json file").await;
        let file = directory.path().join("empty.yaml");
        std::fs::write(&file, "# nothing\n---\n").unwrap();
        is_refused(&file, "no configuration object").await;
        std::fs::write(directory.path().join("eu.yaml"), CLUSTER).unwrap();
        assert_eq!(examine(directory.path(), false).await.errors, Vec::<String>::new());
    }

    #[tokio::test]
    async fn cluster_source_of_a_file_needs_a_hub() {
        let directory = tempfile::tempdir().unwrap();
        let source = "apiVersion: tributary.dev/v1alpha1\nkind: ClusterSource\nmetadata: { name: kubevela }\n\
                      spec: { clusterGatewaySecrets: { namespace: vela-system } }\n";
        std::fs::write(directory.path().join("source.yaml"), source).unwrap();
        let without = examine(directory.path(), false).await;
        let [error] = &without.errors[..] else { panic!("{:?}", without.errors) };
        assert!(error.contains("source.yaml") && error.contains("ClusterSource \"kubevela\""), "{error}");
        assert!(error.contains("add --hub-kubeconfig or --hub-in-cluster"), "{error}");
        assert_eq!(examine(directory.path(), true).await.errors, Vec::<String>::new());
        let flags = tributary_sources::ConfigurationFlags {
            config: Some(directory.path()),
            kubeconfig: None,
            contexts: None,
            has_hub: false,
        };
        let without = tributary_sources::ConfigurationSources::new(flags).unwrap().read().await.err().unwrap();
        assert!(without.to_string().contains("is in a hub"), "{without}");
        let with = tributary_sources::ConfigurationFlags { has_hub: true, ..flags };
        let read = tributary_sources::ConfigurationSources::new(with).unwrap().read().await.unwrap();
        assert_eq!(read.objects.sources.len(), 1);
    }

    #[tokio::test]
    async fn configuration_errors_in_syntax_semantics_and_files_are_found() {
        let missing_file = CLUSTER.replace("insecureSkipVerify: true", "caFile: none.pem");
        let registry = "---\napiVersion: tributary.dev/v1alpha1\nkind: ResourceRegistry\nmetadata: { name: main }\n\
                        spec: { resources: [pods], itemResourceVersions: Integer }\n";
        let integer = format!("{}{registry}", CLUSTER.replace("  index: 3\n", ""));
        for (text, expected) in [
            ("kind: Pod\napiVersion: v1\n", "is not supported"),
            (&CLUSTER.replace("endpoints", "endpoint"), "endpoint"),
            (&CLUSTER.replace("name: eu", "name: all"), "reserved"),
            (&missing_file, "spec.caFile: the file"),
            (&integer, "Integer needs a spec.index in UpstreamCluster \"eu\"; give it a number from 0 to 9999"),
        ] {
            let found = findings(text).await;
            assert!(found.errors.iter().any(|error| error.contains(expected)), "{expected} in {:?}", found.errors);
            assert!(!found.render().contains("would be"), "no explanation beside errors");
            assert!(!found.render().contains("hunter2"));
        }
    }

    /// Each warning contains the file name, because a configuration may have many files.
    #[tokio::test]
    async fn policies_with_common_mistakes_get_warnings() {
        let rule = "{verbs: [delete], apiGroups: [core], resources: [namespace, ns]}";
        let text = format!("{CLUSTER}  dispatchPolicies: [{{rules: [{rule}], deny: {{message: never}}}}]\n");
        let found = findings(&text).await;
        assert_eq!(found.errors, Vec::<String>::new());
        for part in [
            "spec.dispatchPolicies[0]: denies, and no later policy allows the remaining requests",
            "spec.dispatchPolicies[0].rules[0].apiGroups[0]: \"core\" never matches: the core group is written \"\"",
            "spec.dispatchPolicies[0].rules[0].resources[0]: \"namespace\" never matches",
            "spec.dispatchPolicies[0].rules[0].resources[1]: \"ns\" never matches",
        ] {
            let told = found.warnings.iter().find(|warning| warning.contains(part));
            let told = told.unwrap_or_else(|| panic!("{part} in {:?}", found.warnings));
            assert!(told.contains("config.yaml: document 1 (line 1): UpstreamCluster \"eu\": "), "{told}");
        }
        let remedy = "append this policy to spec.dispatchPolicies: {rules: [{verbs: [\"*\"], apiGroups: [\"*\"], \
                      resources: [\"*\"], nonResourceURLs: [\"*\"]}]}";
        assert!(found.warnings.iter().any(|warning| warning.contains(remedy)), "{:?}", found.warnings);
    }

    #[tokio::test]
    async fn check_validates_the_authentication_configuration() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("authentication.yaml");
        let good = "apiVersion: apiserver.config.k8s.io/v1\nkind: AuthenticationConfiguration\njwt:\n- issuer: { url: \
                    'https://issuer', audiences: [fleet] }\n  claimMappings: { username: { claim: sub, prefix: 'i:' } }\n";
        let cel = good.replace("claim: sub, prefix: 'i:'", "expression: claims.sub");
        for (text, error) in [
            (good, ""),
            (&good.replace("https://issuer", "http://issuer"), "jwt[0].issuer.url: Invalid value"),
            (&cel, "CEL expressions are not supported"),
            ("apiVersion: v1\nkind: Pod", "expected apiserver.config.k8s.io/v1, kind=AuthenticationConfiguration"),
        ] {
            std::fs::write(&path, text).unwrap();
            let mut found = findings(CLUSTER).await;
            found.examine_issuers(&path);
            let shown = found.render();
            assert_eq!(found.errors.is_empty(), error.is_empty(), "{shown}");
            assert!(shown.contains(error), "{error} in {shown}");
            assert!(!error.is_empty() || shown.contains("https://issuer: for fleet; the user is i:{sub}"), "{shown}");
        }
        let mut found = findings(CLUSTER).await;
        found.examine_issuers(&directory.path().join("none.yaml"));
        assert!(found.render().contains("--authentication-config"), "{}", found.render());
    }
}
