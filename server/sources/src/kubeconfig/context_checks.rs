//! Checks the contexts of kubeconfig files. Each error names the file, the context, the field and the remedy.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use kube::config::{AuthInfo, Cluster, Context, KubeConfigOptions, Kubeconfig, KubeconfigError};
use secrecy::ExposeSecret;
use sha2::{Digest, Sha256};
use tributary_apimachinery::text::hex;
use tributary_proxy::without_user_info;

use super::files::KubeconfigFiles;
use super::mark::EXTENSION;
use super::proxies::{Proxies, is_loopback};
use super::referenced::{ReferenceProblem, Referenced, check_certificates, check_key, check_token, read_file};

/// The reason why kubeconfig files cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum KubeconfigLoadError {
    /// A kubeconfig cannot be opened.
    #[error("kubeconfig {path} cannot be read; name another one by --kubeconfig")]
    Read {
        /// Path of the unreadable kubeconfig.
        path: PathBuf,
        /// The error of the operating system.
        #[source]
        source: io::Error,
    },
    /// A file is not a valid kubeconfig. The parser's message is omitted, because the message quotes the file,
    /// including its secrets.
    #[error(
        "kubeconfig {path} does not parse{place}: {problem}; `kubectl --kubeconfig {path} config view` shows what is wrong"
    )]
    Parse {
        /// Path of the invalid kubeconfig.
        path: PathBuf,
        /// The position of the error: ` at line L, column C`, or nothing.
        place: String,
        /// The kind of the parser's error.
        problem: &'static str,
    },
    /// None of the listed kubeconfig files exists.
    #[error("none of the kubeconfig files exists: {0}; name one by --kubeconfig")]
    AllMissing(KubeconfigFiles),
    /// The kubeconfig files cannot be merged.
    #[error("the kubeconfig files {files} cannot be merged")]
    Merge {
        /// The files of the kubeconfig.
        files: KubeconfigFiles,
        /// The conflict between two kubeconfig files.
        #[source]
        source: Box<KubeconfigError>,
    },
}

/// An error in a kubeconfig context.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ContextProblem {
    /// The kubeconfig file that contains the invalid field.
    pub file: PathBuf,
    /// Name of the invalid context.
    pub context: String,
    /// The invalid field, for example `users[admin].user.client-key`.
    pub field: String,
    /// The problem with the invalid field.
    pub problem: String,
    /// The remedy for the problem with the field.
    pub remedy: String,
}

impl fmt::Display for ContextProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { file, context, field, problem, remedy } = self;
        write!(f, "kubeconfig {}, context {context:?}, {field}: {problem}; {remedy}", file.display())
    }
}

impl std::error::Error for ContextProblem {}

/// The client configuration of a kubeconfig context.
pub struct ContextTarget {
    /// The address and credentials of the cluster.
    pub config: kube::Config,
    /// A fingerprint of the server and its certificate authority, including the content of the authority's file.
    pub fingerprint: String,
    /// A fingerprint of the user, including the content of certificate and key files. The fingerprint is a digest,
    /// which reveals no secrets.
    pub user_fingerprint: String,
    /// The proxies through which the servers are reached.
    pub proxies: Proxies,
    /// The warnings about allowed but dangerous settings of the context.
    pub warnings: Vec<String>,
    /// The files to which the context refers, to be watched for changes.
    pub files: Vec<PathBuf>,
}

/// The parsed kubeconfig files, separately and merged.
pub struct Kubeconfigs {
    parsed: Vec<(PathBuf, Kubeconfig)>,
    merged: Kubeconfig,
}

impl Kubeconfigs {
    /// Reads and merges kubeconfig files. Relative paths in a file start at the file's directory.
    ///
    /// # Errors
    /// [`KubeconfigLoadError`]. The error never quotes the files.
    pub fn load(files: &KubeconfigFiles) -> Result<Self, KubeconfigLoadError> {
        let mut parsed = Vec::new();
        for path in files.paths() {
            match load_file(path) {
                Ok(config) => parsed.push((path.clone(), config)),
                Err(KubeconfigLoadError::Read { source, .. })
                    if files.may_be_missing() && source.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
        }
        if parsed.is_empty() {
            return Err(KubeconfigLoadError::AllMissing(files.clone()));
        }
        let merged = parsed.iter().try_fold(Kubeconfig::default(), |merged, (_, next)| merged.merge(next.clone()));
        let merged =
            merged.map_err(|source| KubeconfigLoadError::Merge { files: files.clone(), source: Box::new(source) })?;
        Ok(Self { parsed, merged })
    }

    /// Wraps a kubeconfig that was built in memory. `path` represents its file in messages.
    pub fn from_parts(path: PathBuf, config: Kubeconfig) -> Self {
        Self { parsed: vec![(path, config.clone())], merged: config }
    }

    /// Returns the kubeconfig's current context, if one is set.
    pub fn current_context(&self) -> Option<&str> {
        self.merged.current_context.as_deref().filter(|context| !context.is_empty())
    }

    /// Returns the names of all contexts, in the order of the files. Contexts that this program has added are omitted,
    /// because the endpoint would serve itself as a cluster.
    pub fn context_names(&self) -> Vec<String> {
        let is_own = |context: &Context| context.extensions.iter().flatten().any(|named| named.name == EXTENSION);
        let others = self.merged.contexts.iter().filter(|named| !named.context.as_ref().is_some_and(is_own));
        others.map(|named| named.name.clone()).collect()
    }

    /// Returns the names of all contexts, including contexts that this program has added.
    pub fn all_context_names(&self) -> impl Iterator<Item = &str> {
        self.merged.contexts.iter().map(|named| &*named.name)
    }

    /// Checks a context and creates its client configuration.
    ///
    /// # Errors
    /// The first [`ContextProblem`].
    pub async fn target(&self, context: &str) -> Result<ContextTarget, ContextProblem> {
        let checked = Checker { configs: self, context }.check()?;
        let options = KubeConfigOptions { context: Some(context.to_owned()), ..KubeConfigOptions::default() };
        let made = kube::Config::from_custom_kubeconfig(self.merged.clone(), &options).await;
        let mut config = made.map_err(|error| {
            let remedy = "correct the cluster and user that the context names".to_owned();
            self.problem(self.file_of_context(context), context, "contexts[]", (error.to_string(), ""), remedy)
        })?;
        let is_explicit = checked.cluster.proxy_url.as_deref().is_some_and(|url| !url.is_empty());
        let explicit = config.proxy_url.take().filter(|_| is_explicit);
        let proxies = explicit.map_or_else(Proxies::from_environment, Proxies::Explicit);
        config.proxy_url = proxies.proxy_for(&config.cluster_url);
        Ok(ContextTarget {
            config,
            fingerprint: checked.fingerprint(),
            user_fingerprint: checked.user_fingerprint(),
            proxies,
            warnings: checked.warnings,
            files: checked.files,
        })
    }

    fn problem(
        &self,
        file: &Path,
        context: &str,
        field: impl Into<String>,
        (problem, _): (String, &str),
        remedy: String,
    ) -> ContextProblem {
        ContextProblem { file: file.to_owned(), context: context.to_owned(), field: field.into(), problem, remedy }
    }

    fn file_of_context(&self, name: &str) -> &Path {
        self.file_where(|config| config.contexts.iter().any(|named| named.name == name))
    }

    /// Returns the first kubeconfig file that satisfies the condition, because earlier files take precedence. If no
    /// file does, returns the first file.
    fn file_where(&self, has: impl Fn(&Kubeconfig) -> bool) -> &Path {
        let first = self.parsed.first().map_or(Path::new(""), |(path, _)| path.as_path());
        self.parsed.iter().find(|(_, config)| has(config)).map_or(first, |(path, _)| path.as_path())
    }
}

fn load_file(path: &Path) -> Result<Kubeconfig, KubeconfigLoadError> {
    Kubeconfig::read_from(path).map_err(|error| match error {
        KubeconfigError::ReadConfig(source, path) => KubeconfigLoadError::Read { path, source },
        KubeconfigError::Parse(error) => {
            let place = error.location().map(|at| format!(" at line {}, column {}", at.line(), at.column()));
            let problem = "the text is not YAML in the form of a kubeconfig";
            KubeconfigLoadError::Parse { path: path.to_owned(), place: place.unwrap_or_default(), problem }
        }
        _ => KubeconfigLoadError::Parse {
            path: path.to_owned(),
            place: String::new(),
            problem: "the documents differ in kind or apiVersion",
        },
    })
}

struct Checker<'a> {
    configs: &'a Kubeconfigs,
    context: &'a str,
}

struct Checked<'a> {
    cluster: &'a Cluster,
    user: Option<&'a AuthInfo>,
    /// The content of the cluster's certificate authority.
    authority: Option<Vec<u8>>,
    /// The content of the user's certificate and key.
    user_contents: Vec<Option<Vec<u8>>>,
    warnings: Vec<String>,
    files: Vec<PathBuf>,
}

impl<'a> Checker<'a> {
    fn check(&self) -> Result<Checked<'a>, ContextProblem> {
        let context = self.context()?;
        let (cluster_name, cluster) = self.cluster(context)?;
        let at_cluster = |field: &str| format!("clusters[{cluster_name}].cluster.{field}");
        let cluster_file = self.configs.file_where(|c| c.clusters.iter().any(|named| named.name == cluster_name));
        let report = |field: &str, problem: ReferenceProblem| self.report(cluster_file, at_cluster(field), problem);

        check_server(cluster).map_err(|problem| report("server", problem))?;
        check_proxy(cluster).map_err(|problem| report("proxy-url", problem))?;
        let authority = authority(cluster);
        let authority_field = field_name(&authority, "certificate-authority");
        let ca = authority.read().map_err(|problem| report(authority_field, problem))?;
        if let Some(pem) = &ca {
            check_certificates(pem).map_err(|problem| report(authority_field, problem))?;
        }
        check_trust(cluster, ca.is_some()).map_err(|problem| report("certificate-authority", problem))?;

        let user = self.user(context)?;
        let mut user_contents = Vec::new();
        if let Some((user_name, user)) = user {
            let user_file = self.configs.file_where(|c| c.auth_infos.iter().any(|named| named.name == user_name));
            let report =
                |field: &str, problem| self.report(user_file, format!("users[{user_name}].user.{field}"), problem);
            user_contents.extend(check_user(user).map_err(|(field, problem)| report(field, problem))?);
        }
        let user = user.map(|(_, user)| user);
        let unchecked = skips_verification(cluster).then(|| {
            let field = at_cluster("insecure-skip-tls-verify");
            format!(
                "{field}: the server's certificate is not verified: anyone on the network path can read and change \
                 all data, including credentials; give its authority in certificate-authority instead"
            )
        });
        let (warnings, files) = (unchecked.into_iter().collect(), files(cluster, user));
        Ok(Checked { cluster, user, authority: ca, user_contents, warnings, files })
    }

    fn context(&self) -> Result<&'a Context, ContextProblem> {
        let named = self.configs.merged.contexts.iter().find(|named| named.name == self.context);
        named.and_then(|named| named.context.as_ref()).ok_or_else(|| {
            let problem = ("the context is empty".to_owned(), "give it a cluster and a user");
            self.report(self.configs.file_of_context(self.context), "contexts[].context".to_owned(), problem)
        })
    }

    fn cluster(&self, context: &'a Context) -> Result<(&'a str, &'a Cluster), ContextProblem> {
        let named = self.configs.merged.clusters.iter().find(|named| named.name == context.cluster);
        let cluster = named.and_then(|named| named.cluster.as_ref()).ok_or_else(|| {
            let problem = format!("there is no cluster {:?}", context.cluster);
            let remedy = "add it under clusters, or correct the name";
            self.report(self.configs.file_of_context(self.context), "context.cluster".to_owned(), (problem, remedy))
        })?;
        Ok((&context.cluster, cluster))
    }

    fn user(&self, context: &'a Context) -> Result<Option<(&'a str, &'a AuthInfo)>, ContextProblem> {
        let Some(name) = context.user.as_deref().filter(|name| !name.is_empty()) else { return Ok(None) };
        let named = self.configs.merged.auth_infos.iter().find(|named| named.name == name);
        let user = named.and_then(|named| named.auth_info.as_ref()).ok_or_else(|| {
            let problem = (format!("there is no user {name:?}"), "add it under users, or correct the name");
            self.report(self.configs.file_of_context(self.context), "context.user".to_owned(), problem)
        })?;
        Ok(Some((name, user)))
    }

    fn report(&self, file: &Path, field: String, problem: ReferenceProblem) -> ContextProblem {
        let remedy = problem.1.to_owned();
        self.configs.problem(file, self.context, field, problem, remedy)
    }
}

fn authority(cluster: &Cluster) -> Referenced<'_> {
    Referenced { data: cluster.certificate_authority_data.as_deref(), file: cluster.certificate_authority.as_deref() }
}

/// Returns the name of the field that provides the data, for a message: the field with inline data if it is set, or
/// else `field`, which contains a path.
fn field_name(referenced: &Referenced<'_>, field: &'static str) -> &'static str {
    match (referenced.data.is_some_and(|data| !data.is_empty()), field) {
        (true, "certificate-authority") => "certificate-authority-data",
        (true, "client-certificate") => "client-certificate-data",
        (true, "client-key") => "client-key-data",
        _ => field,
    }
}

fn check_server(cluster: &Cluster) -> Result<(), ReferenceProblem> {
    const REMEDY: &str = "set it to https://HOST[:PORT][/PATH]";
    let server = cluster.server.as_deref().unwrap_or_default();
    if server.is_empty() {
        return Err(("the field is missing".to_owned(), REMEDY));
    }
    let shown = without_user_info(server);
    let uri: http::Uri = server.parse().map_err(|_| (format!("{shown:?} is not a URL"), REMEDY))?;
    if shown != server {
        let remedy = "put the user into users[].user; the server is https://HOST[:PORT][/PATH]";
        return Err((format!("{shown:?} is given with a user name or password in it"), remedy));
    }
    match (uri.scheme_str(), uri.host()) {
        (Some("https"), Some(_)) => Ok(()),
        // Plain HTTP is allowed for a server on this machine, for example `kubectl proxy`.
        (Some("http"), Some(host)) if is_loopback(host) => Ok(()),
        (Some("http"), Some(_)) => Err((format!("{shown:?} would send credentials without encryption"), REMEDY)),
        _ => Err((format!("{shown:?} is not an https URL"), REMEDY)),
    }
}

/// Refuses a proxy for a server that is reached without TLS.
fn check_proxy(cluster: &Cluster) -> Result<(), ReferenceProblem> {
    let plain = cluster.server.as_deref().is_some_and(|server| server.starts_with("http:"));
    match cluster.proxy_url.as_deref() {
        Some(proxy) if plain && !proxy.is_empty() => Err((
            "the server is http://, so the proxy would see credentials without encryption".to_owned(),
            "remove it, or give the server as https://",
        )),
        _ => Ok(()),
    }
}

fn skips_verification(cluster: &Cluster) -> bool {
    cluster.insecure_skip_tls_verify.unwrap_or(false)
        && cluster.server.as_deref().is_some_and(|server| server.starts_with("https:"))
}

/// Refuses a server whose certificate cannot be verified, unless the kubeconfig disables verification.
fn check_trust(cluster: &Cluster, has_authority: bool) -> Result<(), ReferenceProblem> {
    let insecure = cluster.insecure_skip_tls_verify.unwrap_or(false);
    let https = cluster.server.as_deref().is_some_and(|server| server.starts_with("https:"));
    match (has_authority, insecure, https) {
        (true, true, _) => Err((
            "the field is set together with insecure-skip-tls-verify".to_owned(),
            "remove one of the two (kubectl refuses both as well)",
        )),
        (false, false, true) => Err((
            "the field is missing, and insecure-skip-tls-verify is not set".to_owned(),
            "name the CA of the server; for a public one, name the system's bundle, for example /etc/ssl/certs/ca-certificates.crt",
        )),
        _ => Ok(()),
    }
}

/// Checks the files and data of a kubeconfig user. Returns the content of the certificate and of the key.
fn check_user(user: &AuthInfo) -> Result<Vec<Option<Vec<u8>>>, (&'static str, ReferenceProblem)> {
    let key_data = user.client_key_data.as_ref().map(ExposeSecret::expose_secret);
    let certificate =
        Referenced { data: user.client_certificate_data.as_deref(), file: user.client_certificate.as_deref() };
    let key = Referenced { data: key_data, file: user.client_key.as_deref() };
    match (certificate.is_absent(), key.is_absent()) {
        (false, true) => {
            return Err((
                "client-key",
                ("the field is missing, although client-certificate is set".to_owned(), "add the key"),
            ));
        }
        (true, false) => {
            return Err((
                "client-certificate",
                ("the field is missing, although client-key is set".to_owned(), "add the certificate"),
            ));
        }
        _ => {}
    }
    let certificate_field = field_name(&certificate, "client-certificate");
    let certificate = certificate.read().map_err(|problem| (certificate_field, problem))?;
    if let Some(pem) = &certificate {
        check_certificates(pem).map_err(|problem| (certificate_field, problem))?;
    }
    let key_field = field_name(&key, "client-key");
    let key = key.read().map_err(|problem| (key_field, problem))?;
    if let Some(pem) = &key {
        check_key(pem).map_err(|problem| (key_field, problem))?;
    }
    if let (None, Some(file)) = (&user.token, user.token_file.as_deref().filter(|file| !file.is_empty())) {
        let file = Path::new(file);
        let checked = read_file(file).and_then(|token| check_token(file, &token));
        checked.map_err(|problem| ("tokenFile", problem))?;
    }
    if user.exec.as_ref().is_some_and(|exec| exec.command.as_deref().is_none_or(str::is_empty)) {
        return Err(("exec.command", ("the field is missing".to_owned(), "name the credential plugin")));
    }
    Ok(vec![certificate, key])
}

fn files(cluster: &Cluster, user: Option<&AuthInfo>) -> Vec<PathBuf> {
    let user_files = user.map(|user| [&user.client_certificate, &user.client_key]).into_iter().flatten();
    let files = std::iter::once(&cluster.certificate_authority).chain(user_files);
    files.flatten().filter(|file| !file.is_empty()).map(PathBuf::from).collect()
}

impl Checked<'_> {
    fn fingerprint(&self) -> String {
        // Serialization of a struct of strings cannot fail.
        let cluster = serde_json::to_vec(self.cluster).unwrap_or_default();
        digest([&cluster[..], self.authority.as_deref().unwrap_or_default()])
    }

    fn user_fingerprint(&self) -> String {
        let user = serde_json::to_vec(&self.user).unwrap_or_default();
        let contents = self.user_contents.iter().map(|content| content.as_deref().unwrap_or_default());
        digest(std::iter::once(&user[..]).chain(contents))
    }
}

/// Returns the SHA-256 of the parts, in hexadecimal. Moving a byte from one part to the next changes the digest.
fn digest<'a>(parts: impl IntoIterator<Item = &'a [u8]>) -> String {
    let mut hash = Sha256::new();
    for part in parts {
        hash.update((part.len() as u64).to_le_bytes());
        hash.update(part);
    }
    hex(hash.finalize())
}
