//! The files that `join` writes into the configuration directory: an UpstreamCluster, and the account's token. A second
//! `join` changes only the fields that `join` owns.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail, ensure};
use http::Uri;
use secrecy::{ExposeSecret, SecretString};
use serde_json::Value;
use tributary_apimachinery::ClusterName;
use tributary_crds::Severity;
use tributary_sources::contexts::cluster_name;
use tributary_sources::data_directory::write_private;
use tributary_sources::yaml::fields::with_fields;

use super::account::Purpose;
use super::owned::{OwnedFields, list_changes};
use crate::cli::JoinArguments;

/// The first words of each file that `join` writes. `join` never changes a file without these words.
const MARK: &str = "# Written by tributary join";

/// The first line of a new or changed UpstreamCluster file.
const FIRST_LINE: &str = "# Written by tributary join. Another run of join sets endpoints, authorities, credentials, \
    impersonation and tokenReview; all other changes stay.";

#[derive(Debug)]
pub(super) struct WrittenFiles {
    /// Path of the file with the UpstreamCluster.
    pub(super) cluster: PathBuf,
    /// Path of the file with the token.
    pub(super) token: PathBuf,
    /// The changes of an existing UpstreamCluster, one line per field; `None` for a new UpstreamCluster.
    pub(super) changes: Option<Vec<String>>,
    text: String,
}

impl WrittenFiles {
    /// Plans the files for the cluster with this uid from its kubeconfig. `proxy` is the proxy in the kubeconfig.
    ///
    /// # Errors
    /// The kubeconfig has a setting that an UpstreamCluster does not support; an existing file was not written by
    /// `join`, or belongs to a different cluster; or the directory contains the cluster under a name that differs from
    /// `--name`.
    pub(super) fn plan(
        arguments: &JoinArguments,
        uid: &str,
        config: &kube::Config,
        proxy: Option<&Uri>,
        purpose: &Purpose,
    ) -> anyhow::Result<Self> {
        let directory = &arguments.config;
        if !directory.is_dir() {
            bail!("--config {}: is not a directory; make it first", directory.display());
        }
        let owned = OwnedFields::new(arguments, uid, config, proxy, purpose)?;
        let same = WrittenCluster::find_in(directory, &owned);
        let name = choose_name(arguments, &same)?;
        let (cluster, token) = (directory.join(format!("{name}.yaml")), directory.join(format!("{name}.token")));
        let present = read_present(&cluster, &token)?;
        if present.is_some() && !same.iter().any(|known| known.file == cluster) {
            bail!(
                "{} is of another cluster than {}; choose another --name, or delete it first",
                cluster.display(),
                owned.url()
            )
        }
        if let Some(other) = same.iter().find(|known| known.name != name.as_str()) {
            bail!("{}", other.refuse_name(Some(&name)));
        }
        let (text, changes) = match present {
            Some(text) => {
                let updated = update_text(&text, &name, &owned).with_context(|| cluster.display().to_string())?;
                (updated.0, Some(updated.1))
            }
            None => (format!("{FIRST_LINE}\n{}", serde_saphyr::to_string(&owned.apply_to(&name, None))?), None),
        };
        Ok(Self { cluster, token, changes, text })
    }

    /// Writes the token's file and then the UpstreamCluster, because a running server reads the UpstreamCluster at
    /// once.
    ///
    /// # Errors
    /// The error of the operating system, with the path.
    pub(super) fn write(&self, token: &SecretString) -> anyhow::Result<()> {
        let write = |path: &Path, bytes: &[u8]| {
            write_private(path, bytes).with_context(|| format!("{} cannot be written", path.display()))
        };
        write(&self.token, token.expose_secret().as_bytes())?;
        write(&self.cluster, self.text.as_bytes())
    }

    /// Describes the files and the changes for the user.
    pub(super) fn describe(&self) -> Vec<String> {
        let mut lines = vec![format!("  {}  its token", self.token.display())];
        let cluster = self.cluster.display();
        match &self.changes {
            None => lines.push(format!("  {cluster}  its UpstreamCluster")),
            Some(changes) if changes.is_empty() => {
                lines.push(format!("  {cluster}  its UpstreamCluster, which stays as it is"));
            }
            Some(changes) => {
                lines.push(format!("  {cluster}  its UpstreamCluster; all other fields stay:"));
                lines.extend(changes.iter().map(|change| format!("            {change}")));
            }
        }
        lines
    }
}

struct WrittenCluster {
    file: PathBuf,
    name: String,
    is_ours: bool,
}

impl WrittenCluster {
    /// Finds the UpstreamClusters in the directory that describe the same cluster.
    fn find_in(directory: &Path, owned: &OwnedFields) -> Vec<Self> {
        let documents = tributary_crds::read_all_documents(directory);
        let same = documents
            .into_iter()
            .filter(|(_, document)| document["kind"] == "UpstreamCluster" && owned.describe_same_cluster(document));
        let known = same.map(|(origin, document)| {
            let name = document["metadata"]["name"].as_str().unwrap_or_default().to_owned();
            let is_ours = fs::read_to_string(&origin.file).is_ok_and(|text| text.starts_with(MARK));
            let is_ours = is_ours && origin.file == directory.join(format!("{name}.yaml"));
            Self { file: origin.file, name, is_ours }
        });
        known.collect()
    }

    /// Returns the error message for a second name of the same cluster.
    fn refuse_name(&self, name: Option<&ClusterName>) -> String {
        let Self { file, name: own, is_ours } = self;
        let file = file.display();
        let wanted = name.map(|name| format!(", to have it as {:?}", name.as_str())).unwrap_or_default();
        match is_ours {
            true => format!(
                "{file} already has this cluster, as {own:?}; omit --name to update it, or delete the file \
                 first{wanted}"
            ),
            false => format!(
                "{file} already has this cluster, as {own:?}, and was not written by tributary join; change it by \
                 hand, or delete it first{wanted}"
            ),
        }
    }
}

/// Returns the name of the cluster: `--name`, or else the name in the directory, or else a name that is derived from
/// the context.
fn choose_name(arguments: &JoinArguments, same: &[WrittenCluster]) -> anyhow::Result<ClusterName> {
    if let Some(name) = &arguments.name {
        return Ok(name.clone());
    }
    let derived = cluster_name(&arguments.context);
    match same {
        [] => derived
            .with_context(|| format!("context {:?} gives no name for a cluster; name it by --name", arguments.context)),
        [known] if known.is_ours => Ok(ClusterName::new(&known.name)?),
        [known] => bail!("{}", known.refuse_name(derived.ok().as_ref())),
        [one, other, ..] => bail!(
            "{} names this cluster {:?}, and {} names it {:?}; delete one of the two UpstreamClusters first",
            one.file.display(),
            one.name,
            other.file.display(),
            other.name
        ),
    }
}

/// Reads the file of the UpstreamCluster; returns `None` without a file.
///
/// # Errors
/// `join` did not write the file, or the token's file exists without an UpstreamCluster.
fn read_present(cluster: &Path, token: &Path) -> anyhow::Result<Option<String>> {
    let foreign = |path: &Path| {
        anyhow::anyhow!(
            "{} exists already and was not written by tributary join; choose another --name",
            path.display()
        )
    };
    match fs::read_to_string(cluster) {
        Ok(text) if text.starts_with(MARK) => Ok(Some(text)),
        Ok(_) => Err(foreign(cluster)),
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(error).with_context(|| cluster.display().to_string())
        }
        // A token file without an UpstreamCluster file was not written by `join`, so it must not be overwritten.
        Err(_) if token.symlink_metadata().is_ok() => Err(foreign(token)),
        Err(_) => Ok(None),
    }
}

/// Sets the fields that `join` owns in the text of an UpstreamCluster. Returns the new text and the changed fields.
///
/// # Errors
/// The file contains more than one object, or the result would be invalid.
fn update_text(text: &str, name: &ClusterName, owned: &OwnedFields) -> anyhow::Result<(String, Vec<String>)> {
    let file = PathBuf::from(format!("{name}.yaml"));
    let objects: Vec<_> = tributary_crds::documents(text, &file).collect();
    ensure!(
        objects.len() == 1,
        "the file has {} objects, and join changes only a file with a single UpstreamCluster; move the other objects \
         to a different file",
        objects.len()
    );
    tributary_crds::parse(text, &file).context("the file is invalid; correct it first")?;
    let before: Value = serde_saphyr::from_str(text)?;
    let after = owned.apply_to(name, Some(&before));
    let mut changes = list_changes(&before, &after);
    let changed = if before == after { Some(text.to_owned()) } else { with_fields(text, &before, &after) };
    let written = match changed {
        Some(changed) => format!("{FIRST_LINE}\n{}", changed.split_once('\n').map_or("", |(_, body)| body)),
        None => {
            changes.push("write   the whole file anew, without comments: it has braces or anchors".to_owned());
            format!("{FIRST_LINE}\n{}", serde_saphyr::to_string(&after)?)
        }
    };
    let (was, is) = (validation_errors(text), validation_errors(&written));
    let new: Vec<_> = is.iter().filter(|error| !was.contains(error)).map(String::as_str).collect();
    ensure!(new.is_empty(), "the file would be invalid with the fields that join sets: {}", new.join("; "));
    Ok((written, changes))
}

/// Returns the validation errors of the objects in a text.
fn validation_errors(text: &str) -> Vec<String> {
    let Ok(objects) = tributary_crds::parse(text, Path::new("")) else { return Vec::new() };
    let errors = objects.validate().into_iter().filter(|problem| problem.severity == Severity::Error);
    errors.map(|problem| problem.to_string()).collect()
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::cli::{Cli, Command};
    use crate::commands::join::purpose;

    struct Folder(tempfile::TempDir);

    impl Folder {
        fn new() -> Self {
            Self(tempfile::tempdir().unwrap())
        }

        fn file(&self, name: &str) -> PathBuf {
            self.0.path().join(name)
        }

        fn read(&self, name: &str) -> String {
            fs::read_to_string(self.file(name)).unwrap()
        }

        /// Plans the files of `join CONTEXT FLAGS` for the cluster with this uid and URL.
        fn plan(&self, line: &str, (uid, url): (&str, &str), proxy: Option<&Uri>) -> anyhow::Result<WrittenFiles> {
            let line = format!("tributary join --config {} {line}", self.0.path().display());
            let Command::Join(arguments) = Cli::parse_from(line.split_whitespace()).command else { panic!("{line}") };
            let mut config = kube::Config::new(url.parse().unwrap());
            config.root_cert = Some(vec![b"authority".to_vec()]);
            // This proxy is from the environment and not from the kubeconfig, whose proxy is the argument `proxy`.
            config.proxy_url = Some(Uri::from_static("http://me:hunter2@proxy.example:3128"));
            let purpose = purpose::read_purpose(&arguments, None, 36).unwrap();
            WrittenFiles::plan(&arguments, uid, &config, proxy, &purpose)
        }

        /// Writes the files, and returns their description.
        fn join(&self, line: &str, cluster: (&str, &str)) -> String {
            let planned = self.plan(line, cluster, None).unwrap();
            planned.write(&SecretString::from("t")).unwrap();
            planned.describe().join("\n")
        }

        fn refused(&self, line: &str, cluster: (&str, &str)) -> String {
            format!("{:#}", self.plan(line, cluster, None).unwrap_err())
        }
    }

    const ONE: (&str, &str) = ("u1", "https://one");

    /// The written UpstreamCluster must be valid for `serve`.
    #[test]
    fn join_writes_a_proxy_only_if_the_kubeconfig_names_it() {
        let folder = Folder::new();
        let named = Uri::from_static("socks5h://proxy.example:1080");
        let plan = |proxy| folder.plan("eu", ONE, proxy).unwrap();
        assert!(!plan(None).text.contains("proxy"), "{}", plan(None).text);
        let text = plan(Some(&named)).text;
        let read = tributary_crds::load::parse(&text, Path::new("eu.yaml")).unwrap();
        assert_eq!(read.clusters[0].spec.proxy_url.as_deref(), Some("socks5h://proxy.example:1080/"));
        let problems: Vec<_> = read.validate().iter().map(ToString::to_string).collect();
        assert_eq!(problems, Vec::<String>::new());
    }

    #[test]
    fn second_join_keeps_policies_and_comments() {
        let folder = Folder::new();
        folder.join("eu", ONE);
        let written = folder.read("eu.yaml");
        let policies = "  # no writes before the audit\n  dispatchPolicies:\n  - rules: # until June\n    - { verbs: [delete], apiGroups: [\"*\"], resources: [\"*\"] }\n    deny: { message: freeze }\n";
        let own = written.replace("metadata:\n", "# our cluster\nmetadata:\n").replacen(
            "\nspec:\n",
            &format!("\nspec:\n{policies}"),
            1,
        );
        assert!(own.contains("freeze"), "{own}");
        fs::write(folder.file("eu.yaml"), &own).unwrap();
        let said = folder.join("eu", ONE);
        assert_eq!(folder.read("eu.yaml"), own, "nothing changes");
        assert!(said.ends_with("eu.yaml  its UpstreamCluster, which stays as it is"), "{said}");
        let said = folder.join("eu --tokens", ("u1", "https://moved"));
        let changed = own.replace("https://one", "https://moved");
        assert_eq!(folder.read("eu.yaml"), format!("{changed}  tokenReview: true\n"));
        for part in
            [r#"change  spec.endpoints: ["https://one"] to ["https://moved"]"#, "add     spec.tokenReview: true"]
        {
            assert!(said.contains(part), "{part} in {said}");
        }
        // Single fields of an object in YAML's flow style (`{…}`) cannot be replaced, so `join` writes the whole file
        // anew.
        let object: Value = serde_saphyr::from_str(&own).unwrap();
        fs::write(folder.file("eu.yaml"), format!("{MARK} once\n{object}\n")).unwrap();
        let said = folder.join("eu --tokens", ONE);
        assert!(said.contains("write   the whole file anew"), "{said}");
        let read: Value = serde_saphyr::from_str(&folder.read("eu.yaml")).unwrap();
        assert_eq!(read["spec"]["dispatchPolicies"], object["spec"]["dispatchPolicies"]);
        assert!(folder.read("eu.yaml").starts_with(FIRST_LINE));
    }

    #[test]
    fn join_plan_does_not_change_existing_files() {
        let folder = Folder::new();
        folder.join("eu", ONE);
        let written = folder.read("eu.yaml");
        for (text, expected) in [
            (format!("{written}---\n{written}"), "the file has 2 objects"),
            (written.replace("spec:\n", "spec:\n  endpoint: x\n"), "the file is invalid; correct it first"),
            (written.replacen(FIRST_LINE, "# mine", 1), "exists already and was not written by tributary join"),
            (
                written.replace("spec:\n", "spec:\n  caFile: eu.crt\n"),
                // An empty text expects a plan that succeeds and writes no file.
                "",
            ),
        ] {
            fs::write(folder.file("eu.yaml"), &text).unwrap();
            match expected {
                "" => drop(folder.plan("eu --name eu", ONE, None).unwrap()),
                expected => {
                    let refused = folder.refused("eu --name eu", ONE);
                    assert!(refused.contains("eu.yaml") && refused.contains(expected), "{refused}");
                }
            }
            assert_eq!(folder.read("eu.yaml"), text);
        }
    }

    #[test]
    fn join_refuses_the_file_of_another_cluster() {
        let folder = Folder::new();
        folder.join("eu", ONE);
        folder.join("eu", ("u1", "https://moved"));
        let refused = folder.refused("eu", ("u2", "https://moved"));
        assert!(refused.contains("eu.yaml is of another cluster than https://moved"), "{refused}");
        // Early versions of `join` stored no uid in the UpstreamCluster, so only the URL identifies the cluster.
        let text = folder.read("eu.yaml");
        let lines: Vec<_> =
            text.lines().filter(|line| !line.contains("annotations") && !line.contains("cluster-uid")).collect();
        fs::write(folder.file("eu.yaml"), lines.join("\n")).unwrap();
        assert!(folder.plan("eu", ("u2", "https://moved"), None).is_ok());
        assert!(folder.plan("eu", ("u2", "https://one"), None).is_err());
    }

    #[test]
    fn join_keeps_the_name_of_a_known_cluster() {
        let folder = Folder::new();
        folder.join("eu-admin --name eu", ONE);
        // Without `--name`, `join` updates the same file for every context, even if no name can be derived from the
        // context.
        for context in ["eu-admin", "other", "_"] {
            let planned = folder.plan(context, ONE, None).unwrap();
            assert_eq!(planned.cluster, folder.file("eu.yaml"), "{context}");
        }
        let refused = folder.refused("eu-admin --name europe", ONE);
        for part in ["eu.yaml already has this cluster, as \"eu\"", "omit --name", "as \"europe\""] {
            assert!(refused.contains(part), "{part} in {refused}");
        }
        // The second cluster has no `--name`, so its name is derived from its context.
        assert_eq!(folder.plan("us", ("u2", "https://two"), None).unwrap().cluster, folder.file("us.yaml"));
        // A user wrote this UpstreamCluster, in a file with a second object, so `join` must refuse to change the file.
        let by_hand = folder.read("eu.yaml").replacen(FIRST_LINE, "# mine", 1);
        fs::remove_file(folder.file("eu.yaml")).unwrap();
        fs::write(folder.file("all.yml"), format!("{}---\n{by_hand}", by_hand.replace("eu", "us").replace("u1", "u3")))
            .unwrap();
        let refused = folder.refused("eu-admin", ONE);
        for part in ["all.yml already has this cluster, as \"eu\"", "was not written by", "as \"eu-admin\""] {
            assert!(refused.contains(part), "{part} in {refused}");
        }
        fs::write(folder.file("two.yaml"), by_hand.replace("name: eu", "name: two")).unwrap();
        let refused = folder.refused("eu-admin", ONE);
        for part in ["all.yml", "\"eu\"", "two.yaml", "\"two\"", "delete one of the two UpstreamClusters first"] {
            assert!(refused.contains(part), "{part} in {refused}");
        }
    }
}
