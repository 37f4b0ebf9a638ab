//! `tributary policy test`: which rule takes a request, and why.

mod told;

use anyhow::Context;
use tributary_apimachinery::{RequestInfo, Verb};
use tributary_crds::{ConfigurationObjects, DispatchPolicy, Severity, UpstreamCluster};
use tributary_policy::{DispatchAttributes, DispatchPolicies, DispatchTarget, DispatchedResource, Policy};

use crate::cli::PolicyTestArguments;
use crate::exit::Failure;

/// Whose policies are asked.
struct Subject<'a> {
    object: String,
    denies_all: bool,
    policies: &'a [DispatchPolicy],
}

/// Says which rule takes the request.
///
/// # Errors
/// A usage failure for files or flags that have to be corrected.
pub fn test(arguments: &PolicyTestArguments) -> Result<String, Failure> {
    let objects = tributary_crds::load(&arguments.config).map_err(Failure::usage)?;
    let errors: Vec<_> = objects.validate().into_iter().filter(|problem| problem.severity == Severity::Error).collect();
    if !errors.is_empty() {
        let lines = errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n");
        return Err(Failure::usage(anyhow::anyhow!("{} has errors:\n{lines}", arguments.config.display())));
    }
    told_of(&objects, arguments).map_err(Failure::usage)
}

fn told_of(objects: &ConfigurationObjects, arguments: &PolicyTestArguments) -> anyhow::Result<String> {
    let info = arguments.path.as_deref().map(|path| request_of(&arguments.verb, path)).transpose()?;
    let asked = match &info {
        Some(info) => DispatchAttributes::of(info, &arguments.user, &arguments.groups, &arguments.user_agent),
        None => attributes(arguments)?,
    };
    let cluster = info.as_ref().and_then(|info| info.cluster.as_ref()).or(arguments.cluster.as_ref());
    let subjects = subjects(objects, cluster.map(|cluster| cluster.as_str()))?;
    let mut out = String::new();
    for Subject { object, denies_all, policies } in subjects {
        let policies = DispatchPolicies::new(policies.iter().map(Policy::from).collect());
        out.push_str(&told::told(&object, denies_all, &policies, &asked));
    }
    Ok(out)
}

/// The request of `--resource`.
fn attributes(arguments: &PolicyTestArguments) -> anyhow::Result<DispatchAttributes<'_>> {
    let resource = arguments.resource.as_ref().context("give --resource or --path")?;
    let target = DispatchedResource {
        group: &resource.resource.group,
        resource: &resource.resource.resource,
        subresource: &resource.subresource,
        namespace: &arguments.namespace,
        name: &arguments.name,
    };
    Ok(DispatchAttributes {
        user: &arguments.user,
        groups: &arguments.groups,
        user_agent: &arguments.user_agent,
        verb: target.verb(&arguments.verb),
        target: DispatchTarget::Resource(target),
    })
}

/// The request for a path, by the method that has the verb.
fn request_of(verb: &str, path: &str) -> anyhow::Result<RequestInfo> {
    let (path, query) = path.split_once('?').map_or((path, None), |(path, query)| (path, Some(query)));
    let (method, query) = match verb {
        "list" => ("GET".to_owned(), query),
        "watch" => ("GET".to_owned(), Some("watch=1")),
        "create" => ("POST".to_owned(), query),
        "update" => ("PUT".to_owned(), query),
        "deletecollection" => ("DELETE".to_owned(), query),
        method => (method.to_uppercase(), query),
    };
    let info = RequestInfo::parse(&method, path, query)
        .map_err(|status| anyhow::anyhow!("--path {path}: {}", status.message))?;
    let is_meant = info.requested_verb() == verb || info.verb == Verb::NonResource("head");
    anyhow::ensure!(
        is_meant,
        "--path {path} is never asked for by the verb {verb:?}: {method} of it is {:?}",
        info.requested_verb()
    );
    Ok(info)
}

/// Whose policies a request passes: those of its cluster, or those of the merged view and of whatever clusters follow.
fn subjects<'a>(objects: &'a ConfigurationObjects, cluster: Option<&str>) -> anyhow::Result<Vec<Subject<'a>>> {
    let of_cluster = |cluster: &'a UpstreamCluster| Subject {
        object: format!("UpstreamCluster {}", cluster.metadata.name.as_deref().unwrap_or_default()),
        denies_all: !cluster.spec.dispatch.is_by_policies(),
        policies: &cluster.spec.dispatch_policies,
    };
    if let Some(name) = cluster {
        let cluster =
            objects.cluster(name).with_context(|| format!("there is no UpstreamCluster {name:?} in these files"))?;
        return Ok(vec![of_cluster(cluster)]);
    }
    let merged = Subject {
        object: format!("MergedEndpoint {}", tributary_crds::MERGED_ENDPOINT),
        denies_all: false,
        policies: objects
            .merged_endpoints
            .first()
            .map(|endpoint| &*endpoint.spec.dispatch_policies)
            .unwrap_or_default(),
    };
    Ok(std::iter::once(merged).chain(objects.clusters.iter().map(of_cluster)).collect())
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use clap::Parser;

    use super::*;
    use crate::cli::{Cli, Command, PolicyCommand};

    const FILES: &str = "apiVersion: tributary.dev/v1alpha1\nkind: UpstreamCluster\nmetadata: {name: eu}\nspec:\n  endpoints: \
                         ['https://a', 'https://b']\n  caFile: ca.pem\n  credentials: {tokenFile: t}\n  dispatchPolicies:\n  - \
                         rules:\n    - {verbs: [get, list], apiGroups: [''], resources: [secrets]}\n    - {verbs: [create], \
                         apiGroups: [''], resources: [pods/exec], users: ['-admin', '-root-*']}\n    deny: {message: ask the \
                         team}\n  - rules: [{verbs: [watch], apiGroups: ['*'], resources: ['*']}]\n    mode: Audit\n    deny: \
                         {message: later}\n  - rules: [{verbs: ['*'], apiGroups: ['*'], resources: ['*'], nonResourceURLs: \
                         ['/healthz*']}]\n    endpoints: ['https://b']\n    flowControlSchemaName: slow\n  flowControl: \
                         {flowControlSchemas: [{name: slow, tokenBucket: {qps: 1}}]}\n---\napiVersion: \
                         tributary.dev/v1alpha1\nkind: UpstreamCluster\nmetadata: {name: us}\nspec: {kubeconfig: {path: a}, \
                         dispatch: DenyAll}\n";

    fn tested(line: &str) -> Result<String, String> {
        let line = format!("tributary policy test --config x --user ann {line}");
        let Command::Policy(PolicyCommand::Test(arguments)) =
            Cli::try_parse_from(line.split_whitespace()).map_err(|error| error.to_string())?.command
        else {
            panic!("{line}")
        };
        let objects = tributary_crds::parse(FILES, Path::new("x")).unwrap();
        told_of(&objects, &arguments).map_err(|error| format!("{error:#}"))
    }

    #[test]
    fn the_rule_that_takes_a_request_is_told_with_what_matched_and_what_did_not_before() {
        assert_eq!(
            tested("--cluster eu --verb get --resource pods/exec --namespace shop").unwrap(),
            "UpstreamCluster eu:\n  \
             spec.dispatchPolicies[0].rules[0] does not match:\n    \
             verbs: none of \"get\", \"list\" matches \"create\"\n    \
             resources: none of \"secrets\" matches \"pods/exec\"\n  \
             spec.dispatchPolicies[0].rules[1] takes it:\n    \
             verbs[0]: \"create\" matches \"create\"\n    \
             users: none of \"-admin\", \"-root-*\" excludes \"ann\"\n    \
             userGroups: empty, so all match\n    \
             userAgents: empty, so all match\n    \
             apiGroups[0]: \"\" matches \"\"\n    \
             resources[0]: \"pods/exec\" matches \"pods/exec\"\n    \
             resourceNames: empty, so all match\n    \
             namespaces: empty, so all match\n  \
             It is denied (403): ask the team\n"
        );
    }

    #[test]
    fn every_end_is_told() {
        for (line, expected) in [
            (
                "--verb watch --resource pods --cluster eu",
                "spec.dispatchPolicies[1].rules[0] would take it; mode Audit, so it is counted",
            ),
            (
                "--verb watch --resource pods --cluster eu",
                "It goes on, to https://b alone, as flow-control schema \"slow\" lets it\n",
            ),
            ("--verb get --path /clusters/eu/version", "No rule takes it: it is refused (500)\n"),
            (
                "--verb get --path /clusters/eu/healthz/etcd",
                "nonResourceURLs[0]: \"/healthz*\" matches \"/healthz/etcd\"",
            ),
            ("--verb get --path /version", "MergedEndpoint all:\n  There are no policies that act: it goes on\n"),
            (
                "--verb get --path /version",
                "UpstreamCluster us:\n  dispatch is DenyAll: it is refused (429), whoever asks\n",
            ),
            ("--verb get --path /api/v1/namespaces/shop/secrets/s", "spec.dispatchPolicies[0].rules[0] takes it"),
            ("--verb watch --path /api/v1/pods", "would take it"),
        ] {
            let told = tested(line).unwrap();
            assert!(told.contains(expected), "{line}: {told}");
        }
        for (line, expected) in [
            (
                "--verb get --path /api/v1/pods",
                "--path /api/v1/pods is never asked for by the verb \"get\": GET of it is \"list\"",
            ),
            ("--verb get --path nonsense", "--path nonsense: "),
            ("--verb get --resource pods --cluster asia", "there is no UpstreamCluster \"asia\""),
            ("--verb get --resource pods/", "must be a resource, or resource/subresource"),
        ] {
            let error = tested(line).unwrap_err();
            assert!(error.contains(expected), "{line}: {error}");
        }
    }
}
