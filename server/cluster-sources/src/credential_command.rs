//! Commands that print the credential of a member. Source: client-go `plugin/pkg/client/auth/exec`, and ExecConfig in
//! `tools/clientcmd/api/v1/types.go`.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use tributary_crds::SecretText;

use crate::SourceRefusal;
use crate::object_metadata::or_null;

/// The versions of the protocol.
const VERSIONS: [&str; 2] = ["client.authentication.k8s.io/v1", "client.authentication.k8s.io/v1beta1"];

/// A command that prints the credential of a member. The process decides whether the command may run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CredentialCommand {
    /// The program.
    pub program: Program,
    /// The arguments of the program.
    pub args: Vec<String>,
    /// The environment of the program, which has no further variables.
    pub env: BTreeMap<String, SecretText>,
    /// The version of the protocol.
    pub api_version: String,
    /// Whether the program gets the address and the authorities of the cluster.
    pub provide_cluster_info: bool,
    /// The field `spec.cluster.config` of the program's input.
    pub cluster_config: Option<Value>,
}

/// The program of a command.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Program {
    /// An absolute path.
    Path(String),
    /// The file name of an allowed command, for a program that the foreign system has in its image.
    FileName(String),
}

/// A variable of the environment of a command.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct EnvironmentVariable {
    pub(crate) name: String,
    #[serde(default, deserialize_with = "or_null")]
    pub(crate) value: SecretText,
}

/// A command in the form of client-go's ExecConfig. Hints and the interactive mode are for people.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct CommandFields {
    #[serde(deserialize_with = "or_null")]
    pub(crate) api_version: String,
    #[serde(deserialize_with = "or_null")]
    pub(crate) command: String,
    #[serde(deserialize_with = "or_null")]
    pub(crate) args: Vec<String>,
    #[serde(deserialize_with = "or_null")]
    pub(crate) env: Vec<EnvironmentVariable>,
    #[serde(deserialize_with = "or_null")]
    pub(crate) provide_cluster_info: bool,
}

impl CommandFields {
    /// Checks a command of a foreign object. `place` is the field, for messages.
    ///
    /// # Errors
    /// The command is no absolute path, has variables, or has an unknown version of the protocol.
    pub(crate) fn check_foreign(self, place: &str) -> Result<CredentialCommand, SourceRefusal> {
        if !self.env.is_empty() {
            return Err(refuse_variables(place));
        }
        self.check().map_err(|problem| SourceRefusal::new("InvalidExec", format!("{place}: {problem}.")))
    }

    /// Checks a command.
    ///
    /// # Errors
    /// The problem and the remedy, without a full stop.
    pub(crate) fn check(self) -> Result<CredentialCommand, String> {
        let Self { api_version, command, args, env, provide_cluster_info } = self;
        if !command.starts_with('/') {
            return Err(format!("the command {command:?} is not an absolute path. Give an absolute path"));
        }
        if !VERSIONS.contains(&api_version.as_str()) {
            return Err(format!("apiVersion is {api_version:?}. Give {} or {}", VERSIONS[0], VERSIONS[1]));
        }
        let env = env.into_iter().map(|variable| (variable.name, variable.value)).collect();
        Ok(CredentialCommand {
            program: Program::Path(command),
            args,
            env,
            api_version,
            provide_cluster_info,
            cluster_config: None,
        })
    }
}

/// Refuses variables of a foreign object, such as `LD_PRELOAD`, which would change the program.
pub(crate) fn refuse_variables(place: &str) -> SourceRefusal {
    let message = format!(
        "{place}: env is not allowed, because commands run with an empty environment. Remove env, or allow a script \
         that sets the variables."
    );
    SourceRefusal::new("ExecNotAllowed", message)
}

/// Returns the command of Argo CD's `awsAuthConfig`. Source: argoproj/argo-cd `RawRestConfig` in
/// `pkg/apis/application/v1alpha1/types.go`.
pub(crate) fn aws_command(cluster_name: &str, role: &str, profile: &str) -> CredentialCommand {
    let mut args = vec!["aws".to_owned(), "--cluster-name".to_owned(), cluster_name.to_owned()];
    for (flag, value) in [("--role-arn", role), ("--profile", profile)] {
        if !value.is_empty() {
            args.extend([flag.to_owned(), value.to_owned()]);
        }
    }
    CredentialCommand {
        program: Program::FileName("argocd-k8s-auth".to_owned()),
        args,
        env: BTreeMap::new(),
        api_version: VERSIONS[1].to_owned(),
        provide_cluster_info: false,
        cluster_config: None,
    }
}
