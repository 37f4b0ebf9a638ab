//! The file with the access providers of ClusterProfiles. Source: kubernetes-sigs/cluster-inventory-api
//! `pkg/access/config.go`.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tributary_crds::SecretText;

use crate::SourceRefusal;
use crate::credential_command::{CommandFields, CredentialCommand, EnvironmentVariable};

/// Extensions of a cluster in a profile. The first is client-go's.
pub(crate) const CLUSTER_CONFIG: &str = "client.authentication.k8s.io/exec";
const ADDITIONAL_ARGS: &str = "clusterprofiles.multicluster.x-k8s.io/exec/additional-args";
const ADDITIONAL_ENVS: &str = "clusterprofiles.multicluster.x-k8s.io/exec/additional-envs";

/// The commands that print credentials for the clusters of ClusterProfiles, in the order of the file.
#[derive(Clone, Debug, Default)]
pub struct AccessProviders(Vec<AccessProvider>);

/// A command with the rules for arguments and variables of profiles.
#[derive(Clone, Debug)]
pub(crate) struct AccessProvider {
    pub(crate) name: String,
    command: CredentialCommand,
    args: ArgumentPolicy,
    env: VariablePolicy,
}

#[derive(Clone, Copy, Debug, Default, Deserialize)]
enum ArgumentPolicy {
    Append,
    #[default]
    #[serde(alias = "")]
    Ignore,
}

#[derive(Clone, Copy, Debug, Default, Deserialize)]
enum VariablePolicy {
    /// The variables of the file have priority.
    AppendIfNotExists,
    /// The variables of the profile have priority.
    Replace,
    #[default]
    #[serde(alias = "")]
    Ignore,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ProviderFile {
    providers: Vec<ProviderEntry>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct ProviderEntry {
    name: String,
    exec_config: ExecFields,
    #[serde(rename = "profileSourcedCLIArgsPolicy", default)]
    args: ArgumentPolicy,
    #[serde(rename = "profileSourcedEnvVarsPolicy", default)]
    env: VariablePolicy,
}

/// The fields of ExecConfig. Commands run without a terminal, so `installHint` and `interactiveMode` have no effect.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct ExecFields {
    api_version: String,
    command: String,
    #[serde(default)]
    args: Option<Vec<String>>,
    #[serde(default)]
    env: Option<Vec<EnvironmentVariable>>,
    #[serde(default)]
    provide_cluster_info: bool,
    #[serde(default, rename = "installHint")]
    _install_hint: Value,
    #[serde(default, rename = "interactiveMode")]
    _interactive_mode: Value,
}

impl AccessProviders {
    /// Reads the text of a file.
    ///
    /// # Errors
    /// The problem, for people. The message contains no value of a variable.
    pub fn parse(text: &str) -> Result<Self, String> {
        let file: ProviderFile = serde_json::from_str(text).map_err(|error| match error.classify() {
            // The message of a wrong type can quote a variable.
            serde_json::error::Category::Data if !error.to_string().contains("field `") => {
                format!("a field has a wrong type or value at line {}, column {}", error.line(), error.column())
            }
            _ => error.to_string(),
        })?;
        file.providers.into_iter().map(AccessProvider::new).collect::<Result<_, _>>().map(Self)
    }

    /// Returns the first provider of the file for which a profile has a cluster, with the cluster.
    pub(crate) fn choose<'a, T>(&self, cluster_of: impl Fn(&str) -> Option<&'a T>) -> Option<(&AccessProvider, &'a T)> {
        self.0.iter().find_map(|provider| Some((provider, cluster_of(&provider.name)?)))
    }

    /// Returns the command of each provider.
    pub fn commands(&self) -> impl Iterator<Item = &CredentialCommand> {
        self.0.iter().map(|provider| &provider.command)
    }

    /// Returns the names of the providers, for messages.
    pub(crate) fn names(&self) -> String {
        self.0.iter().map(|provider| provider.name.as_str()).collect::<Vec<_>>().join(", ")
    }
}

impl AccessProvider {
    fn new(entry: ProviderEntry) -> Result<Self, String> {
        let ProviderEntry { name, exec_config: exec, args, env } = entry;
        let fields = CommandFields {
            api_version: exec.api_version,
            command: exec.command,
            args: exec.args.unwrap_or_default(),
            env: exec.env.unwrap_or_default(),
            provide_cluster_info: exec.provide_cluster_info,
        };
        let command = fields.check().map_err(|problem| format!("provider {name:?}: execConfig: {problem}"))?;
        Ok(Self { name, command, args, env })
    }

    /// Returns the command for a cluster with these extensions. Empty data counts as no extension.
    ///
    /// # Errors
    /// Additional arguments or variables have a wrong form.
    pub(crate) fn command_for(
        &self,
        extensions: &BTreeMap<String, Value>,
        place: &str,
    ) -> Result<CredentialCommand, SourceRefusal> {
        let mut command = self.command.clone();
        if let ArgumentPolicy::Append = self.args {
            command.args.extend(read_extension::<Vec<String>>(extensions, ADDITIONAL_ARGS, place)?);
        }
        let given = |policy| match policy {
            VariablePolicy::Ignore => Ok(BTreeMap::new()),
            _ => read_extension::<BTreeMap<String, SecretText>>(extensions, ADDITIONAL_ENVS, place),
        };
        for (name, value) in given(self.env)? {
            if changes_program(&name) {
                let message = format!(
                    "{place}: extension {ADDITIONAL_ENVS}: the variable {name:?} could change the program or its \
                     connections. Remove it, or set it in the file of providers."
                );
                return Err(SourceRefusal::new("ExecNotAllowed", message));
            }
            if let VariablePolicy::Replace = self.env {
                command.env.insert(name, value);
            } else {
                command.env.entry(name).or_insert(value);
            }
        }
        command.cluster_config = extensions.get(CLUSTER_CONFIG).filter(|data| !is_empty(data)).cloned();
        Ok(command)
    }
}

/// Returns whether a variable of the environment can load other code into a program, or send its requests elsewhere.
fn changes_program(variable: &str) -> bool {
    const NAMES: [&str; 12] = [
        "PATH",
        "ENV",
        "BASH_ENV",
        "IFS",
        "PYTHONPATH",
        "PYTHONHOME",
        "PYTHONSTARTUP",
        "PERL5LIB",
        "PERL5OPT",
        "RUBYOPT",
        "NODE_OPTIONS",
        "JAVA_TOOL_OPTIONS",
    ];
    let name = variable.to_ascii_uppercase();
    name.starts_with("LD_") || name.starts_with("DYLD_") || name.ends_with("_PROXY") || NAMES.contains(&&*name)
}

/// Returns whether an extension has no data.
fn is_empty(data: &Value) -> bool {
    match data {
        Value::Null => true,
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.is_empty(),
        Value::Bool(_) | Value::Number(_) => false,
    }
}

fn read_extension<T: DeserializeOwned + Default>(
    extensions: &BTreeMap<String, Value>,
    name: &str,
    place: &str,
) -> Result<T, SourceRefusal> {
    let Some(data) = extensions.get(name).filter(|data| !is_empty(data)) else { return Ok(T::default()) };
    T::deserialize(data).map_err(|_| {
        let message = format!(
            "{place}: the extension {name} has a wrong form. Give a list of texts, or a map of texts for envs."
        );
        SourceRefusal::new("InvalidExec", message)
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn providers(entry: &Value) -> Result<AccessProviders, String> {
        let mut whole = json!({"name": "a", "execConfig": {
            "apiVersion": "client.authentication.k8s.io/v1", "command": "/bin/a", "args": ["get"],
            "env": [{"name": "A", "value": "file"}], "interactiveMode": "Never", "installHint": "x",
        }});
        whole.as_object_mut().unwrap().extend(entry.as_object().unwrap().clone());
        AccessProviders::parse(&json!({"providers": [whole]}).to_string())
    }

    fn command(policies: &Value, extensions: &Value) -> Result<CredentialCommand, SourceRefusal> {
        let extensions = serde_json::from_value(extensions.clone()).unwrap();
        providers(policies).unwrap().0[0].command_for(&extensions, "cluster")
    }

    #[test]
    fn arguments_and_variables_of_a_profile_are_ignored_unless_the_file_allows_them() {
        let extensions = json!({ADDITIONAL_ARGS: ["-x"], ADDITIONAL_ENVS: {"A": "profile", "B": "profile"}});
        let result = |policies: Value| {
            let command = command(&policies, &extensions).unwrap();
            let env: Vec<String> =
                command.env.iter().map(|(name, value)| format!("{name}={}", value.expose())).collect();
            (command.args.join(" "), env.join(" "))
        };
        let expected = |args: &str, env: &str| (args.to_owned(), env.to_owned());
        assert_eq!(result(json!({})), expected("get", "A=file"));
        let ignore = json!({"profileSourcedCLIArgsPolicy": "Ignore", "profileSourcedEnvVarsPolicy": ""});
        assert_eq!(result(ignore), expected("get", "A=file"));
        let append =
            json!({"profileSourcedCLIArgsPolicy": "Append", "profileSourcedEnvVarsPolicy": "AppendIfNotExists"});
        assert_eq!(result(append.clone()), expected("get -x", "A=file B=profile"));
        assert_eq!(result(append), expected("get -x", "A=file B=profile"), "arguments do not pile up");
        assert_eq!(result(json!({"profileSourcedEnvVarsPolicy": "Replace"})), expected("get", "A=profile B=profile"));
    }

    #[test]
    fn empty_extension_counts_as_no_extension() {
        let all = json!({"profileSourcedCLIArgsPolicy": "Append", "profileSourcedEnvVarsPolicy": "Replace"});
        let without = command(&all, &json!({})).unwrap();
        for empty in [json!(null), json!(""), json!({}), json!([])] {
            let extensions = json!({ADDITIONAL_ARGS: empty, ADDITIONAL_ENVS: empty, CLUSTER_CONFIG: empty});
            assert_eq!(command(&all, &extensions).unwrap(), without, "{empty}");
        }
        let wrong = command(&all, &json!({ADDITIONAL_ARGS: {"a": "hunter2"}})).unwrap_err();
        assert!(wrong.reason == "InvalidExec" && !wrong.message.contains("hunter2"), "{wrong:?}");
    }

    #[test]
    fn wrong_file_is_refused_without_its_secrets() {
        let exec = |fields: Value| {
            let mut exec = json!({"apiVersion": "client.authentication.k8s.io/v1", "command": "/bin/a"});
            exec.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
            providers(&json!({ "execConfig": exec })).unwrap_err()
        };
        for (problem, text) in [
            (exec(json!({"command": "a"})), "not an absolute path"),
            (exec(json!({"apiVersion": "v1"})), "apiVersion is \"v1\""),
            (exec(json!({"unknown": 1})), "unknown field `unknown`"),
            (exec(json!({"env": "hunter2"})), "wrong type"),
            (exec(json!({"env": [{"name": "A", "value": {"hunter2": 1}}]})), "wrong type"),
            (providers(&json!({"profileSourcedCLIArgsPolicy": "hunter2"})).unwrap_err(), "wrong type or value"),
            (AccessProviders::parse("{}").unwrap_err(), "missing field `providers`"),
            (AccessProviders::parse("hunter2").unwrap_err(), "expected value"),
        ] {
            assert!(problem.contains(text) && !problem.contains("hunter2"), "{text}: {problem}");
        }
    }
}
