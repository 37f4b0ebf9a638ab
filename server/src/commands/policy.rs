//! `tributary policy test`: shows the dispatch policy rule that matches a described request, and the reasons. The
//! policies come from configuration files, or from a running server.

mod checks;

use tributary_crds::{ConfigurationObjects, Severity};
use tributary_sources::dispatch_settings;

use super::running_server::{Page, RunningServer};
use crate::cli::PolicyTestArguments;
use crate::exit::Failure;
use crate::front::policy_test::{self, PolicyTestRequest, PolicyTestResource, PolicyTestTarget};
use crate::output::terminal::plain_json;

/// Returns the text that explains which rule matches the described request. Begins with a warning about a resource that
/// Kubernetes does not have.
///
/// # Errors
/// A usage failure for invalid files, flags or kubeconfigs, and a runtime failure if the server does not answer.
pub async fn test(arguments: &PolicyTestArguments) -> Result<String, Failure> {
    let test_request = test_request(arguments);
    checks::check_verb(&test_request).map_err(Failure::usage)?;
    let told = evaluate_policies(arguments, &test_request).await?;
    Ok(checks::warning(&test_request).unwrap_or_default() + &told)
}

async fn evaluate_policies(
    arguments: &PolicyTestArguments,
    test_request: &PolicyTestRequest,
) -> Result<String, Failure> {
    let Some(config) = &arguments.config else { return fetch_verdict(arguments, test_request).await };
    let objects = tributary_crds::load(config).map_err(Failure::usage)?;
    let errors: Vec<_> = objects.validate().into_iter().filter(|problem| problem.severity == Severity::Error).collect();
    if !errors.is_empty() {
        let lines = errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n");
        return Err(Failure::usage(anyhow::anyhow!("{} has errors:\n{lines}", config.display())));
    }
    explain_objects(&objects, test_request).map_err(Failure::usage)
}

fn explain_objects(objects: &ConfigurationObjects, test_request: &PolicyTestRequest) -> anyhow::Result<String> {
    test_request.evaluate(&dispatch_settings(objects))
}

/// Fetches the verdict of a running server's policies.
async fn fetch_verdict(arguments: &PolicyTestArguments, test_request: &PolicyTestRequest) -> Result<String, Failure> {
    let server = RunningServer::from_kubeconfig(arguments.kubeconfig.as_deref(), arguments.context.as_deref()).await?;
    let page = Page { path: policy_test::PATH, query: test_request.to_query(), label: "what its policies say" };
    // Other people wrote the names and messages in the policies, so the text may contain control characters.
    Ok(plain_json(&server.fetch_page(&page).await?))
}

/// Converts the command's flags into the described request.
fn test_request(arguments: &PolicyTestArguments) -> PolicyTestRequest {
    let target = match (&arguments.path, &arguments.resource) {
        (Some(path), _) => PolicyTestTarget::Path(path.clone()),
        (None, resource) => PolicyTestTarget::Resource(PolicyTestResource {
            group: resource.as_ref().map(|of| of.resource.group.clone()).unwrap_or_default(),
            resource: resource.as_ref().map(|of| of.resource.resource.clone()).unwrap_or_default(),
            subresource: resource.as_ref().map(|of| of.subresource.clone()).unwrap_or_default(),
            namespace: arguments.namespace.clone(),
            name: arguments.name.clone(),
        }),
    };
    PolicyTestRequest {
        user: arguments.user.clone(),
        groups: arguments.groups.clone(),
        user_agent: arguments.user_agent.clone(),
        verb: arguments.verb.clone(),
        target,
        cluster: arguments.cluster.clone(),
    }
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
        explain_objects(&objects, &test_request(&arguments)).map_err(|error| format!("{error:#}"))
    }

    #[test]
    fn policy_test_prints_the_matching_rule_and_earlier_mismatches() {
        assert_eq!(
            tested("--cluster eu --verb get --resource pods/exec --namespace shop").unwrap(),
            "UpstreamCluster eu:\n  spec.dispatchPolicies[0].rules[0] does not match:\n    verbs: none of \"get\", \
             \"list\" matches \"create\"\n    resources: none of \"secrets\" matches \"pods/exec\"\n  \
             spec.dispatchPolicies[0].rules[1] applies:\n    verbs[0]: \"create\" matches \"create\"\n    users: none \
             of \"-admin\", \"-root-*\" excludes \"ann\"\n    userGroups: empty, so all match\n    userAgents: empty, \
             so all match\n    apiGroups[0]: \"\" matches \"\"\n    resources[0]: \"pods/exec\" matches \
             \"pods/exec\"\n    resourceNames: empty, so all match\n    namespaces: empty, so all match\n  The \
             request is denied (403): ask the team\nVerdict:\n  /clusters/eu: The request is denied (403): ask the \
             team (spec.dispatchPolicies[0].rules[1])\n"
        );
    }

    /// The policies of clusters apply only to resources, not to the paths of the endpoint itself.
    #[test]
    fn policy_test_evaluates_only_policies_that_apply_to_the_request() {
        let merged = "MergedEndpoint all:\n  No policy is enforced: the request continues\n";
        let of_itself = "MergedEndpoint all:\n  Tributary answers the request itself, without policies\n";
        for (path, expected) in [
            ("/version", merged),
            ("/apis", merged),
            ("/openapi/v3", merged),
            ("/metrics", of_itself),
            ("/readyz?verbose", of_itself),
            ("/tributary/status", of_itself),
        ] {
            let told = tested(&format!("--verb get --path {path}")).unwrap();
            let (told, verdict) = told.split_once("Verdict:\n").unwrap();
            assert_eq!(told, expected, "{path}");
            let lines: Vec<_> = verdict.lines().map(|line| line.split_once(": ").unwrap().0.trim()).collect();
            assert_eq!(lines, ["the merged view", "/clusters/eu", "/clusters/us"], "{path}");
        }
        let own = tested("--verb get --path /clusters/eu/healthz").unwrap();
        assert!(own.starts_with("UpstreamCluster eu:\n") && own.contains("\"/healthz*\" matches"), "{own}");
    }

    /// The server adds these groups to all authenticated users.
    #[test]
    fn policy_test_adds_the_implicit_groups_of_a_user() {
        let text = "apiVersion: tributary.dev/v1alpha1\nkind: MergedEndpoint\nmetadata: {name: all}\nspec:\n  \
                    dispatchPolicies:\n  - rules: [{verbs: ['*'], apiGroups: ['*'], resources: ['*'], userGroups: [none]}]\n";
        let objects = tributary_crds::parse(text, Path::new("x")).unwrap();
        for (who, groups) in [
            ("ann", "\"system:authenticated\""),
            ("ann --group dev", "\"dev\", \"system:authenticated\""),
            ("system:anonymous", "\"system:unauthenticated\""),
            (
                "system:serviceaccount:shop:robot",
                "\"system:serviceaccounts\", \"system:serviceaccounts:shop\", \"system:authenticated\"",
            ),
        ] {
            let line = format!("tributary policy test --config x --verb list --resource pods --user {who}");
            let parsed = Cli::try_parse_from(line.split_whitespace()).unwrap();
            let Command::Policy(PolicyCommand::Test(arguments)) = parsed.command else { panic!("{line}") };
            let told = explain_objects(&objects, &test_request(&arguments)).unwrap();
            assert!(told.contains(&format!("userGroups: none of \"none\" matches {groups}\n")), "{told}");
        }
    }

    const MERGED: &str = "apiVersion: tributary.dev/v1alpha1\nkind: MergedEndpoint\nmetadata: {name: all}\nspec:\n  \
                          dispatchPolicies:\n  - rules: [{verbs: [delete], apiGroups: [''], resources: [namespaces], \
                          namespaces: [kube-*]}]\n    deny: {message: never}\n  - rules: [{verbs: ['*'], apiGroups: ['*'], \
                          resources: ['*'], users: [ann]}]\n    flowControlSchemaName: fast\n  - rules: [{verbs: ['*'], \
                          apiGroups: ['*'], resources: ['*'], users: [-bob]}]\n    flowControlSchemaName: slow\n  flowControl: \
                          {flowControlSchemas: [{name: fast, exempt: {}}, {name: slow, exempt: {}}]}\n";

    fn of_merged(line: &str) -> String {
        let line = format!("tributary policy test --config x {line}");
        let parsed = Cli::try_parse_from(line.split_whitespace()).unwrap();
        let Command::Policy(PolicyCommand::Test(arguments)) = parsed.command else { panic!("{line}") };
        let objects = tributary_crds::parse(MERGED, Path::new("x")).unwrap();
        explain_objects(&objects, &test_request(&arguments)).unwrap()
    }

    /// As for a Role, a request for a Namespace object is treated as a request in the namespace of that name.
    #[test]
    fn namespace_object_matches_rules_for_its_own_namespace() {
        let told = of_merged("--user ann --verb delete --resource namespaces --name kube-system");
        assert!(told.contains("namespaces[0]: \"kube-*\" matches \"kube-system\"\n"), "{told}");
        assert!(told.contains("The request is denied (403): never\n"), "{told}");
    }

    /// A policy that denies a request in the merged view does not deny it at the paths of clusters.
    #[test]
    fn policy_test_output_ends_with_a_verdict_for_each_path() {
        const EVERYTHING: &str = "{verbs: ['*'], apiGroups: ['*'], resources: ['*'], nonResourceURLs: ['*']}";
        let deny = "{rules: [{verbs: [delete], apiGroups: [''], resources: [pods]}], deny: {message: never}}";
        let pass = format!("{{rules: [{EVERYTHING}]}}");
        let cluster = |name: &str, spec: &str| {
            format!(
                "---\napiVersion: tributary.dev/v1alpha1\nkind: UpstreamCluster\nmetadata: {{name: {name}}}\nspec: \
                 {{kubeconfig: {{path: a}}{spec}}}\n"
            )
        };
        let endpoint = |spec: &str| {
            format!(
                "apiVersion: tributary.dev/v1alpha1\nkind: MergedEndpoint\nmetadata: {{name: all}}\nspec: {{{spec}}}\n"
            )
        };
        let verdict = |text: &str, line: &str| {
            let line = format!("tributary policy test --config x --user ann {line}");
            let parsed = Cli::try_parse_from(line.split_whitespace()).unwrap();
            let Command::Policy(PolicyCommand::Test(arguments)) = parsed.command else { panic!("{line}") };
            let objects = tributary_crds::parse(text, Path::new("x")).unwrap();
            let told = explain_objects(&objects, &test_request(&arguments)).unwrap();
            told.split_once("Verdict:\n").unwrap().1.to_owned()
        };
        let delete = "--verb delete --resource pods --name web --namespace shop";
        let (eu, frozen) = (cluster("eu", ""), cluster("us", ", dispatch: DenyAll"));
        let of_merged = format!("{}{eu}{frozen}", endpoint(&format!("dispatchPolicies: [{deny}, {pass}]")));
        assert_eq!(
            verdict(&of_merged, delete),
            "  the merged view: The request is denied (403): never (spec.dispatchPolicies[0].rules[0])\n  \
             /clusters/eu: The request continues\n  /clusters/us: The request is refused (429): dispatch is DenyAll\n"
        );
        let global = format!("{}{eu}", endpoint(&format!("globalDispatchPolicies: [{deny}]")));
        let denied = "The request is denied (403): never (spec.globalDispatchPolicies[0].rules[0])";
        assert_eq!(verdict(&global, delete), format!("  the merged view: {denied}\n  /clusters/eu: {denied}\n"));
        assert_eq!(verdict(&global, &format!("{delete} --cluster eu")), format!("  /clusters/eu: {denied}\n"));
        assert_eq!(
            verdict(&global, "--verb get --path /version"),
            "  the merged view: The request continues\n  /clusters/eu: The request continues\n"
        );
        // The configuration files do not contain the clusters of kubeconfig contexts. The line for `NAME` is valid for
        // each of these clusters.
        let alone = endpoint(&format!("dispatchPolicies: [{deny}, {pass}]"));
        assert!(
            verdict(&alone, delete).ends_with("  /clusters/NAME: The request continues\n"),
            "{}",
            verdict(&alone, delete)
        );
        let one_refuses = format!("{}{}{eu}", endpoint(""), cluster("asia", &format!(", dispatchPolicies: [{deny}]")));
        assert_eq!(
            verdict(&one_refuses, delete),
            "  the merged view: The request continues; clusters left out, because their policies refuse the request: asia\n  \
             /clusters/asia: The request is denied (403): never (spec.dispatchPolicies[0].rules[0])\n  /clusters/eu: \
             The request continues\n"
        );
    }

    #[test]
    fn policy_test_explains_the_decision_for_users_of_one_cluster() {
        let otherwise = "If only one cluster authenticates \"ann\" (its ServiceAccounts, tokenReview), the policies \
                         of the merged view";
        let told = of_merged("--user ann --verb list --resource pods");
        assert!(told.contains("The request continues, limited by flow-control schema \"fast\"\n"), "{told}");
        assert!(told.contains(otherwise), "{told}");
        assert!(
            told.contains(
                "spec.dispatchPolicies[2].rules[0] applies. The request continues, limited by flow-control schema \
                 \"slow\"\n"
            ),
            "{told}"
        );
        for same in [
            "--user ann --verb delete --resource namespaces --name kube-system",
            "--user cid --verb list --resource pods",
            "--user bob --verb list --resource pods",
            "--user system:serviceaccount:ci:robot --verb list --resource pods",
        ] {
            let told = of_merged(same);
            assert!(!told.contains("If only one cluster"), "{told}");
        }
    }

    #[test]
    fn policy_test_prints_every_kind_of_verdict() {
        for (line, expected) in [
            (
                "--verb watch --resource pods --cluster eu",
                "spec.dispatchPolicies[1].rules[0] matches; mode Audit, so the request is counted",
            ),
            (
                "--verb watch --resource pods --cluster eu",
                "The request continues, only to https://b, limited by flow-control schema \"slow\"\n",
            ),
            ("--verb get --path /clusters/eu/version", "No rule matches: the request is refused (500)\n"),
            (
                "--verb get --path /clusters/eu/healthz/etcd",
                "nonResourceURLs[0]: \"/healthz*\" matches \"/healthz/etcd\"",
            ),
            ("--verb get --path /version", "MergedEndpoint all:\n  No policy is enforced: the request continues\n"),
            (
                "--verb get --path /clusters/us/version",
                "UpstreamCluster us:\n  dispatch is DenyAll: the request is refused (429) for every user\n",
            ),
            (
                "--verb list --resource pods",
                "UpstreamCluster us:\n  dispatch is DenyAll: requests to the cluster are refused (429), and reads \
                 from the cache follow its policies\n  No policy is enforced: the request continues\n",
            ),
            ("--verb get --path /api/v1/namespaces/shop/secrets/s", "spec.dispatchPolicies[0].rules[0] applies"),
            ("--verb watch --path /api/v1/pods", "matches; mode Audit"),
        ] {
            let told = tested(line).unwrap();
            assert!(told.contains(expected), "{line}: {told}");
        }
        for (line, expected) in [
            (
                "--verb get --path /api/v1/pods",
                "no request for the path /api/v1/pods has the verb \"get\": its GET has the verb \"list\"",
            ),
            ("--verb get --path nonsense", "the path nonsense: "),
            ("--verb get --resource pods --cluster asia", "there is no UpstreamCluster \"asia\""),
            ("--verb get --resource pods/", "must be a resource or resource/subresource"),
        ] {
            let error = tested(line).unwrap_err();
            assert!(error.contains(expected), "{line}: {error}");
        }
    }
}
