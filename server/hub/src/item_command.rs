//! Commands that print the credentials of items, as far as the flags of the process allow them.

use std::collections::HashMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use kube::config::{ExecAuthCluster, ExecConfig, ExecInteractiveMode};
use tributary_cluster_sources::{CredentialCommand, Program, SourceItem};
use tributary_crds::UpstreamClusterSpec;
use tributary_proxy::{CommandPolicy, RefusedCommand};

use crate::ConditionState;

/// Returns whether the list of the policy has the program of an item. Does no I/O.
pub(crate) fn is_listed(command: &CredentialCommand, policy: &CommandPolicy) -> bool {
    match &command.program {
        Program::Path(path) => policy.check(path).is_ok(),
        Program::FileName(name) => policy.find_by_file_name(name).is_some(),
    }
}

/// Returns the credential plugin of an item; `None` if no command prints its credential.
///
/// # Errors
/// The policy does not allow the command.
pub(crate) async fn allowed_plugin(
    item: &SourceItem,
    policy: &CommandPolicy,
) -> Result<Option<ExecConfig>, ConditionState> {
    let Some(command) = &item.command else { return Ok(None) };
    let path = match &command.program {
        Program::Path(path) => path.as_str(),
        Program::FileName(name) => policy.find_by_file_name(name).ok_or_else(|| {
            let message = format!(
                "The credential needs the command {name}. Start Tributary with --exec-allow=PATH/{name}, or store a \
                 credential."
            );
            ConditionState::failed("ExecNotAllowed", message)
        })?,
    };
    policy.verify(path).await.map_err(|refused| {
        let reason = match refused {
            RefusedCommand::Relative(_) => "InvalidExec",
            _ => "ExecNotAllowed",
        };
        ConditionState::failed(reason, format!("Tributary does not run the command of the item: {refused}."))
    })?;
    Ok(Some(plugin(path, command, &item.spec)))
}

fn plugin(path: &str, command: &CredentialCommand, spec: &UpstreamClusterSpec) -> ExecConfig {
    let variable = |name: &str, value: &str| {
        HashMap::from([("name".to_owned(), name.to_owned()), ("value".to_owned(), value.to_owned())])
    };
    ExecConfig {
        api_version: Some(command.api_version.clone()),
        command: Some(path.to_owned()),
        args: Some(command.args.clone()),
        env: Some(command.env.iter().map(|(name, value)| variable(name, value.expose())).collect()),
        drop_env: None,
        install_hint: None,
        interactive_mode: Some(ExecInteractiveMode::Never),
        provide_cluster_info: command.provide_cluster_info,
        cluster: command.provide_cluster_info.then(|| ExecAuthCluster {
            server: spec.endpoints.first().cloned(),
            insecure_skip_tls_verify: spec.insecure_skip_verify.then_some(true),
            certificate_authority_data: spec.ca_data.as_ref().and_then(|data| STANDARD.decode(data).ok()),
            proxy_url: spec.proxy_url.clone(),
            tls_server_name: spec.tls_server_name.clone(),
            config: command.cluster_config.clone(),
        }),
        other: std::collections::BTreeMap::new(),
    }
}
