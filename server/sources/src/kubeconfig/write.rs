//! The kubeconfig for clients of this endpoint: the context `all`, and one context for each cluster.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use tributary_apimachinery::ClusterName;

use super::entries::Entries;
use super::mark::mark;
use crate::data_directory::{create_private, write_private};

/// The name of the extension in files that this program may replace.
const MARKER: &str = "tributary.dev/written-by";
/// The name of the merged view's context, which is the file's current context. No cluster may have this name.
pub const ALL: &str = "all";
/// The prefix of the cluster names in the kubeconfig. Also the user name in the kubeconfig of a personal endpoint.
const USER: &str = "tributary";
/// The name, after the prefix, of the user among the entries for a user's own kubeconfig.
const OWN_USER: &str = "user";

/// The reason why the kubeconfig was not written.
#[derive(Debug, thiserror::Error)]
pub enum KubeconfigWriteError {
    /// The path contains a file that this program did not write for this user.
    #[error(
        "{path} exists and was not written by tributary for user {user:?}, or has entries that tributary did not \
         write; choose another file by {flag}, or remove it first"
    )]
    Foreign {
        /// The path for the kubeconfig, from the flag or the default.
        path: PathBuf,
        /// The user name in the new kubeconfig.
        user: String,
        /// The flag that selects a different path.
        flag: &'static str,
    },
    /// The directory for the kubeconfig does not exist.
    #[error("{path} cannot be written: {directory} is not a directory; make it, or choose another file by {flag}")]
    NoDirectory {
        /// The path for the kubeconfig.
        path: PathBuf,
        /// The flag that selects a different path.
        flag: &'static str,
        /// The missing parent directory.
        directory: PathBuf,
    },
    /// The file at the kubeconfig's path cannot be read.
    #[error("{path} exists and cannot be read")]
    Read {
        /// Path of the unreadable file.
        path: PathBuf,
        /// The error of the operating system.
        #[source]
        source: io::Error,
    },
    /// The kubeconfig cannot be written.
    #[error("{path} cannot be written")]
    Write {
        /// Path of the kubeconfig that cannot be written.
        path: PathBuf,
        /// The error of the operating system.
        #[source]
        source: io::Error,
    },
}

/// A cluster with a context in the kubeconfig.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientContext {
    /// The cluster's name, which is also the name of its context.
    pub cluster: ClusterName,
    /// The default namespace in the cluster's own kubeconfig context; `None` for `default`.
    pub namespace: Option<String>,
}

/// The user name in a kubeconfig, and the flag that selects the kubeconfig's path.
#[derive(Clone, Copy, Debug)]
pub struct Owner<'a> {
    /// The name of the only user in the kubeconfig.
    pub user: &'a str,
    /// The flag that selects the kubeconfig's path.
    pub flag: &'static str,
}

impl Owner<'static> {
    /// The user name and the flag of the kubeconfig of an endpoint in personal mode.
    pub const ONE_USER: Self = Self { user: USER, flag: "--write-kubeconfig" };
}

/// The content of a client's kubeconfig.
pub struct ClientKubeconfig<'a> {
    /// The server's URL, without a path or a trailing slash.
    pub url: &'a str,
    /// The certificate authority in PEM; `None` for the system's authorities.
    pub authority_pem: Option<&'a str>,
    /// The user name and the flag of the kubeconfig.
    pub owner: Owner<'a>,
    /// The client's credential, as the fields of a `user`.
    pub credential: Value,
    /// The clusters, each of which gets a context.
    pub clusters: &'a [ClientContext],
}

impl ClientKubeconfig<'_> {
    /// Serializes the kubeconfig as JSON, which is valid YAML. The text contains the credential.
    pub fn render(&self) -> String {
        let [clusters, contexts, users] =
            self.lists(|name| name.to_owned(), |name| format!("{USER}-{name}"), self.owner.user, None);
        let config = json!({
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": ALL,
            "clusters": clusters,
            "contexts": contexts,
            "users": users,
            "extensions": [{ "name": MARKER, "extension": { "program": "tributary", "version": env!("CARGO_PKG_VERSION") } }],
        });
        format!("{config:#}\n")
    }

    /// Converts the content of a client's kubeconfig to entries for a user's own kubeconfig. The entries' names begin
    /// with `prefix`.
    pub fn entries(&self, prefix: &str) -> Entries {
        let named = |name: &str| format!("{prefix}{name}");
        let lists = self.lists(named, named, &named(OWN_USER), Some(mark(prefix)));
        Entries { prefix: prefix.to_owned(), lists }
    }

    /// Returns the entries of `clusters`, `contexts` and `users`, each entry with these `extensions`.
    fn lists(
        &self,
        context_name: impl Fn(&str) -> String,
        cluster_name: impl Fn(&str) -> String,
        user: &str,
        extensions: Option<Value>,
    ) -> [Vec<Value>; 3] {
        let extended = |mut content: Value| {
            if let Some(extensions) = &extensions {
                content["extensions"] = extensions.clone();
            }
            content
        };
        let cluster = |name: &str| {
            let path = if name == ALL { String::new() } else { format!("/clusters/{name}") };
            let mut content = json!({ "server": format!("{}{path}", self.url) });
            if let Some(authority_pem) = self.authority_pem {
                content["certificate-authority-data"] = STANDARD.encode(authority_pem).into();
            }
            json!({ "name": cluster_name(name), "cluster": extended(content) })
        };
        let context = |name: &str, namespace: Option<&str>| {
            let mut content = json!({ "cluster": cluster_name(name), "user": user });
            if let Some(namespace) = namespace {
                content["namespace"] = namespace.into();
            }
            json!({ "name": context_name(name), "context": extended(content) })
        };
        let all = || std::iter::once((ALL, None));
        let of_clusters = || self.clusters.iter().map(|of| (of.cluster.as_str(), of.namespace.as_deref()));
        let contexts = all().chain(of_clusters()).map(|(name, namespace)| context(name, namespace)).collect();
        let clusters = all().chain(of_clusters()).map(|(name, _)| cluster(name)).collect();
        let user = json!({ "name": user, "user": extended(self.credential.clone()) });
        [clusters, contexts, vec![user]]
    }

    /// Writes the kubeconfig (mode 0600) with a rename. Replaces only a file that this program wrote.
    ///
    /// # Errors
    /// [`KubeconfigWriteError`]; an existing file is then unchanged.
    pub fn write(&self, path: &Path) -> Result<(), KubeconfigWriteError> {
        let write = match check_replaceable(path, self.owner)? {
            Destination::Free => create_private,
            Destination::Ours => write_private,
        };
        write(path, self.render().as_bytes()).map_err(|source| match source.kind() {
            // A second process created the kubeconfig after the check of the path.
            io::ErrorKind::AlreadyExists => foreign(path, self.owner),
            _ => KubeconfigWriteError::Write { path: path.to_owned(), source },
        })
    }
}

/// The state of the path to which a kubeconfig will be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Destination {
    /// The path for the kubeconfig does not exist.
    Free,
    /// The path contains a file that this program wrote.
    Ours,
}

/// Checks that the path does not exist, or contains a file that this program wrote for the same user.
///
/// # Errors
/// [`KubeconfigWriteError`] except `Write`.
pub fn check_replaceable(path: &Path, owner: Owner<'_>) -> Result<Destination, KubeconfigWriteError> {
    let unreadable = |source| KubeconfigWriteError::Read { path: path.to_owned(), source };
    match fs::metadata(path) {
        // A pipe or a terminal is not read, because the read would wait for input.
        Ok(metadata) if !metadata.is_file() => Err(foreign(path, owner)),
        Ok(_) if is_ours(&fs::read(path).map_err(unreadable)?, owner.user) => Ok(Destination::Ours),
        Ok(_) => Err(foreign(path, owner)),
        // A symbolic link without a target was created by the user, so the link must not be replaced.
        Err(error) if error.kind() == io::ErrorKind::NotFound && fs::symlink_metadata(path).is_ok() => {
            Err(foreign(path, owner))
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
            if directory.is_dir() {
                return Ok(Destination::Free);
            }
            Err(KubeconfigWriteError::NoDirectory {
                path: path.to_owned(),
                flag: owner.flag,
                directory: directory.to_owned(),
            })
        }
        Err(source) => Err(unreadable(source)),
    }
}

fn foreign(path: &Path, Owner { user, flag }: Owner<'_>) -> KubeconfigWriteError {
    KubeconfigWriteError::Foreign { path: path.to_owned(), user: user.to_owned(), flag }
}

/// Returns whether this program wrote these bytes for this user, and nobody has added clusters or users since. kubectl
/// rewrites the file as YAML when a user changes the current context, and preserves the marker. kubectl also preserves
/// the marker in the output of `kubectl config view --flatten`, with which users merge files. A merged file contains
/// the users' own clusters, so additions are not allowed. An empty file does not count as written by this program.
fn is_ours(bytes: &[u8], user: &str) -> bool {
    let Ok(text) = std::str::from_utf8(bytes) else { return false };
    let Ok(config) = serde_saphyr::from_str::<Value>(text) else { return false };
    let names = |list: &str| {
        let entries = config.get(list).and_then(Value::as_array).into_iter().flatten();
        entries.map(|entry| entry.get("name").and_then(Value::as_str).unwrap_or_default()).collect::<Vec<_>>()
    };
    let prefix = format!("{USER}-");
    names("extensions").contains(&MARKER)
        && names("users").iter().all(|name| *name == user)
        && names("clusters").iter().all(|name| name.starts_with(&prefix))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn contexts(clusters: &[&str]) -> Vec<ClientContext> {
        let context = |name: &&str| {
            let (name, namespace) = name.split_once('/').map_or((*name, None), |(name, own)| (name, Some(own)));
            ClientContext { cluster: ClusterName::new(name).unwrap(), namespace: namespace.map(str::to_owned) }
        };
        clusters.iter().map(context).collect()
    }

    fn write(path: &Path, clusters: &[&str]) -> Result<(), KubeconfigWriteError> {
        write_for(Owner::ONE_USER, path, clusters)
    }

    fn write_for(owner: Owner<'_>, path: &Path, clusters: &[&str]) -> Result<(), KubeconfigWriteError> {
        let clusters = contexts(clusters);
        let (url, credential) = ("https://127.0.0.1:7443", json!({ "token": "t" }));
        ClientKubeconfig { url, authority_pem: Some("PEM"), owner, credential, clusters: &clusters }.write(path)
    }

    #[test]
    fn written_client_kubeconfig_is_readable_by_kube() {
        let parent = tempfile::tempdir().unwrap();
        let path = parent.path().join("all.kubeconfig");
        write(&path, &["eu", "us"]).unwrap();
        let config = kube::config::Kubeconfig::read_from(&path).unwrap();
        assert_eq!(config.current_context.as_deref(), Some("all"));
        let contexts: Vec<_> = config.contexts.iter().map(|context| context.name.as_str()).collect();
        assert_eq!(contexts, ["all", "eu", "us"]);
        let servers: Vec<_> =
            config.clusters.iter().filter_map(|named| named.cluster.as_ref()?.server.clone()).collect();
        assert_eq!(
            servers,
            ["https://127.0.0.1:7443", "https://127.0.0.1:7443/clusters/eu", "https://127.0.0.1:7443/clusters/us"]
        );
        let ca = config.clusters[0].cluster.as_ref().unwrap().certificate_authority_data.clone().unwrap();
        assert_eq!(STANDARD.decode(ca).unwrap(), b"PEM");
        assert!(config.auth_infos[0].auth_info.as_ref().unwrap().token.is_some());
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    }

    #[test]
    fn client_contexts_keep_the_namespace_of_the_original_context() {
        let parent = tempfile::tempdir().unwrap();
        let path = parent.path().join("all.kubeconfig");
        write(&path, &["eu/shop", "us"]).unwrap();
        let config = kube::config::Kubeconfig::read_from(&path).unwrap();
        let namespaces: Vec<_> =
            config.contexts.iter().map(|named| named.context.as_ref().unwrap().namespace.as_deref()).collect();
        assert_eq!(namespaces, [None, Some("shop"), None]);
        let (clusters, credential) = (contexts(&["eu/shop"]), json!({ "token": "t" }));
        let (url, owner) = ("https://a", Owner::ONE_USER);
        let kubeconfig = ClientKubeconfig { url, authority_pem: None, owner, credential, clusters: &clusters };
        let entries = kubeconfig.entries("tributary-");
        assert_eq!(entries.lists[1][1]["context"]["namespace"], "shop");
        // Replacing the entries keeps a namespace that the user has set in a context.
        let put = super::super::entries::put("", &entries).unwrap().unwrap().replace("shop", "mine");
        assert_eq!(super::super::entries::put(&put, &entries).unwrap(), None);
    }

    #[test]
    fn kubeconfig_of_another_program_is_not_replaced() {
        let parent = tempfile::tempdir().unwrap();
        let path = parent.path().join("config");
        write(&path, &["eu"]).unwrap();
        write(&path, &["eu", "us"]).unwrap();
        let as_yaml = "apiVersion: v1\nkind: Config\nextensions:\n- extension:\n    program: tributary\n  name: tributary.dev/written-by\n";
        fs::write(&path, as_yaml).unwrap();
        write(&path, &["eu"]).unwrap();
        let merged = format!("{as_yaml}users:\n- name: admin\n  user: {{ token: precious }}\n");
        let clusters = format!("{as_yaml}clusters:\n- name: prod\n  cluster: {{ server: 'https://a' }}\n");
        for foreign in
            [&*merged, &*clusters, "apiVersion: v1\nkind: Config\n", "", "# tributary.dev/written-by\n", "{", "\u{0}"]
        {
            fs::write(&path, foreign).unwrap();
            assert!(matches!(write(&path, &["eu"]), Err(KubeconfigWriteError::Foreign { .. })), "{foreign:?}");
            assert_eq!(fs::read_to_string(&path).unwrap(), foreign);
        }
        write(&path.with_extension("own"), &["eu"]).unwrap();
        let ann = Owner { user: "ann", flag: "--output" };
        let refused = write_for(ann, &path.with_extension("own"), &["eu"]).unwrap_err().to_string();
        for part in ["for user \"ann\"", "another file by --output"] {
            assert!(refused.contains(part), "another user's is not replaced: {refused}");
        }
        let missing = parent.path().join("no/such/directory/config");
        assert!(matches!(write(&missing, &[]), Err(KubeconfigWriteError::NoDirectory { .. })));
        assert!(matches!(write(parent.path(), &[]), Err(KubeconfigWriteError::Foreign { .. })), "a directory");
        assert!(matches!(write(Path::new("/dev/null"), &[]), Err(KubeconfigWriteError::Foreign { .. })));
        let dangling = parent.path().join("link");
        std::os::unix::fs::symlink(&missing, &dangling).unwrap();
        assert!(matches!(write(&dangling, &[]), Err(KubeconfigWriteError::Foreign { .. })));
    }
}
