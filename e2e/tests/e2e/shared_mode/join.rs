//! Tests `tributary join`. The account that the command creates in real members must have enough rights to serve users,
//! and no rights beyond its profile.

use super::{SOON, Shared, grant, make_config_map};
use crate::context::{Case, TestContext, cases, eventually};
use anyhow::{Context as _, ensure};
use serde_json::{Value, json};
use std::{collections::BTreeSet, os::unix::fs::PermissionsExt, path::Path};
use tokio::time::Instant;
use tributary_e2e::{Kubectl, Tributary, guard, kubectl::KubectlOutput, namespace, tributary};

pub(super) fn cases() -> Vec<Case> {
    cases!["shared_mode::join";
        kube_apiserver_accepts_the_member_manifests, account_created_by_join_has_exactly_the_rights_of_its_profile,
        second_join_of_a_cluster_keeps_the_settings_of_the_first_join, join_without_an_issued_token_deletes_its_secret,
        join_without_confirmation_changes_nothing,
    ]
}

/// Runs `tributary join` with the flags that all tests use. The account has a unique name.
async fn join(
    context: &TestContext,
    member: &str,
    directory: &Path,
    account: &str,
    further: &[&str],
) -> anyhow::Result<KubectlOutput> {
    let kubeconfig = context.fixture.pair_kubeconfig().await?;
    let (kubeconfig, directory) = (kubeconfig.display().to_string(), directory.display().to_string());
    let own = ["join", member, "--kubeconfig", &kubeconfig, "--config", &directory];
    let account = ["--account", account, "--namespace", account];
    tributary::run(&[&own[..], &account, further].concat()).await
}

fn done(output: &KubectlOutput) -> anyhow::Result<()> {
    ensure!(output.code == Some(0), "{}\n{}\n{}", output.command, output.stdout, output.stderr);
    Ok(())
}

async fn account_created_by_join_has_exactly_the_rights_of_its_profile(context: TestContext) -> anyhow::Result<()> {
    let members = context.fixture.pair().await?.clone();
    let (directory, account) = (guard::temporary_folder("join")?, namespace::unique_name("tributary"));
    let folder = directory.path();
    for member in &members {
        let made = join(&context, member.name(), folder, &account, &["--yes"]).await?;
        done(&made)?;
        for part in [
            "where you are",
            "create  ClusterRole",
            "without secrets",
            "to read all resources but secrets",
            "Done. Tested",
        ] {
            ensure!(made.stdout.contains(part), "{part}: {}", made.stdout);
        }
        let mode = folder.join(format!("{}.token", member.name())).metadata()?.permissions().mode();
        ensure!(mode & 0o077 == 0, "{mode:o}");
        let again = join(&context, member.name(), folder, &account, &["--yes"]).await?;
        done(&again)?;
        ensure!(!again.stdout.contains("create ") && !again.stdout.contains("change "), "{}", again.stdout);
    }
    // The account must be able to serve users, each with the user's rights in the cluster.
    let shared = Shared::of(&context, members.clone(), Tributary::configured(folder), &[]).await?;
    let (own, ann) = (context.namespace("join", &members).await?, namespace::unique_name("ann"));
    let rules = json!([{"apiGroups": [""], "resources": ["configmaps", "secrets"], "verbs": ["get", "list", "watch", "create"]}]);
    for member in &members {
        grant(member, &own, &ann, &ann, rules.clone()).await?;
        make_config_map(member, &own, &format!("of-{}", member.name()), 1).await?;
    }
    let kubectl = shared.kubectl(&context, &ann, &["dev"]).await?;
    eventually(SOON, async || {
        let listed = kubectl.ok(&["get", "configmaps", "-n", &own, "-o", "name"]).await?;
        for member in &members {
            ensure!(listed.contains(&format!("of-{}", member.name())), "{listed}");
        }
        Ok(())
    })
    .await?;
    // `tributary check`, run with the account, must predict the objects that the user sees.
    let config = folder.display().to_string();
    let resources = "configmaps,secrets,deployments.apps";
    let check = ["check", "--config", &config, "--as", &ann, "--group", "dev", "--resources", resources];
    let seen = tributary::run(&check).await?;
    done(&seen)?;
    let by = format!("in {own}, by RoleBinding \"{ann}/{own}\" of Role \"{ann}\" to User \"{ann}\"");
    ensure!(seen.stdout.matches(&by).count() == 4, "{}", seen.stdout);
    ensure!(seen.stdout.matches("nothing").count() == 2, "{}", seen.stdout);
    // Tributary does not cache Secrets, and an account with this profile cannot list Secrets as the user.
    ensure!(seen.stdout.matches("but not through Tributary").count() == 2, "{}", seen.stdout);
    ensure!(seen.stdout.contains("--profile read-with-secrets"), "{}", seen.stdout);
    let typed = ["check", "--config", &config, "--as", &ann, "--resources", "pods,deploments.apps"];
    let typed = tributary::run(&typed).await?;
    ensure!(typed.code == Some(2) && typed.stderr.contains("did you mean deployments.apps"), "{typed:?}");
    let context_of = members[0].name();
    kubectl.ok(&["--context", context_of, "get", "configmaps", "-n", &own]).await?;
    kubectl.ok(&["--context", context_of, "auth", "can-i", "list", "configmaps", "-n", &own]).await?;
    // If the cluster denies the user a request, the user must get the cluster's message.
    let delete = kubectl.run(&["--context", context_of, "delete", "configmap", "x", "-n", &own]).await?;
    let words = format!(
        "configmaps \"x\" is forbidden: User \"{ann}\" cannot delete resource \"configmaps\" in API group \"\" in"
    );
    ensure!(delete.code != Some(0) && delete.stderr.contains(&words), "{}", delete.stderr);
    // The cluster allows the user these requests, but does not allow Tributary's account to send them as the user.
    let create = ["--context", context_of, "create", "configmap", "hers", "-n", &own];
    for refused in [&create[..], &["--context", context_of, "get", "secrets", "-n", &own]] {
        let answer = kubectl.run(refused).await?;
        let says = answer.stderr.contains("not allow") || answer.stderr.contains("act as");
        ensure!(answer.code != Some(0) && says, "{}: {}", answer.command, answer.stderr);
    }
    let write = join(&context, context_of, folder, &account, &["--yes", "--profile", "write"]).await?;
    done(&write)?;
    ensure!(write.stdout.contains("change  ClusterRole"), "{}", write.stdout);
    eventually(SOON, async || kubectl.ok(&create).await.map(drop)).await?;
    kubectl.ok(&["--context", context_of, "get", "secrets", "-n", &own]).await?;
    // The account of the second cluster has the profile `read`. A list over both clusters must be refused at once, with
    // a selector in the message that excludes the second cluster.
    let begun = Instant::now();
    let both = kubectl.run(&["get", "secrets", "-n", &own]).await?;
    let says = format!("cluster \"{}\" does not allow Tributary to list secrets for you", members[1].name());
    ensure!(both.code != Some(0) && both.stderr.contains(&says), "{}", both.stderr);
    ensure!(begun.elapsed() < SOON, "client-go comes again where it is told to: {:?}", begun.elapsed());
    let others = format!("tributary.dev/cluster!={}", members[1].name());
    ensure!(both.stderr.contains(&others), "{}", both.stderr);
    kubectl.ok(&["get", "secrets", "-n", &own, "-l", &others]).await?;
    // The administrator chose this refusal with the profile. The log must mention the refusal, but must not warn that
    // the account lacks rights.
    let log = shared.tributary.log();
    ensure!(
        log.contains("the cluster refuses a request because the profile of Tributary's account lacks the right"),
        "{log}"
    );
    ensure!(!log.contains("does not allow Tributary's account to impersonate users"), "{log}");
    // The account's role must have no wildcards.
    let roles = members[0].http().get(&format!("/apis/rbac.authorization.k8s.io/v1/clusterroles/{account}"));
    let role: Value = roles.send().await?.expect(200)?.json()?;
    let rules = role["rules"].as_array().into_iter().flatten();
    let words = rules.flat_map(|rule| ["verbs", "apiGroups", "resources"].map(|field| rule[field].to_string()));
    ensure!(words.into_iter().all(|words| !words.contains('*')), "{role}");
    Ok(())
}

/// Returns the rules of a role for Kubernetes' API groups, as triples of verb, group and resource.
fn rules_of(role: &Value) -> BTreeSet<[String; 3]> {
    let words = |rule: &Value, field: &str| -> Vec<String> {
        let words = rule[field].as_array().into_iter().flatten();
        words.filter_map(|word| word.as_str().map(str::to_owned)).collect()
    };
    let mut rules = BTreeSet::new();
    for rule in role["rules"].as_array().into_iter().flatten() {
        for group in words(rule, "apiGroups").iter().filter(|group| *group != "metrics.k8s.io") {
            for resource in words(rule, "resources") {
                let verbs = words(rule, "verbs").into_iter();
                rules.extend(verbs.map(|verb| [verb, group.clone(), resource.clone()]));
            }
        }
    }
    rules
}

/// A second `join` must keep settings of the first `join`, unless its flags change them. For Kubernetes' own kinds, the
/// role in a real member must equal the role in the repository's manifest.
async fn second_join_of_a_cluster_keeps_the_settings_of_the_first_join(context: TestContext) -> anyhow::Result<()> {
    let [one, two] = context.fixture.pair().await?.clone();
    let (directory, account) = (guard::temporary_folder("join")?, namespace::unique_name("tributary"));
    let folder = directory.path();
    let made = ["--yes", "--profile", "write", "--token-lifetime", "1h"];
    done(&join(&context, one.name(), folder, &account, &made).await?)?;
    let path = format!("/apis/rbac.authorization.k8s.io/v1/clusterroles/{account}");
    let role: Value = one.http().get(&path).send().await?.expect(200)?.json()?;
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy/members/constrained/write.yaml");
    let manifest = std::fs::read_to_string(manifest)?;
    let manifest = manifest.split("---\n").find(|object| object.contains("kind: ClusterRole\n"));
    let manifest: Value = serde_saphyr::from_str(manifest.context("no ClusterRole")?)?;
    let (joined, written) = (rules_of(&role), rules_of(&manifest));
    let own = |rule: &&[String; 3]| !rule[1].contains('.') || rule[1].ends_with(".k8s.io");
    let (missing, further): (Vec<_>, Vec<_>) =
        (joined.difference(&written).filter(own).collect(), written.difference(&joined).collect());
    ensure!(missing.is_empty() && further.is_empty(), "the manifest lacks {missing:?}, and has {further:?} more");
    // Without flags, a second `join` must leave the settings unchanged.
    let again = join(&context, one.name(), folder, &account, &["--yes"]).await?;
    done(&again)?;
    ensure!(again.stdout.contains("profile write") && !again.stdout.contains("change "), "{}", again.stdout);
    ensure!(again.stdout.contains("a token that lasts 3600 s"), "{}", again.stdout);
    let secret = format!("/api/v1/namespaces/{account}/secrets/{account}");
    one.http().get(&secret).send().await?.expect(404)?;
    let less = join(&context, one.name(), folder, &account, &["--dry-run", "--profile", "read"]).await?;
    done(&less)?;
    for says in ["change  profile write to read", "change  ClusterRole"] {
        ensure!(less.stdout.contains(says), "{says}: {}", less.stdout);
    }
    // The second `join` must keep the cluster's name, and fields and comments that the user has added.
    let file = folder.join(format!("{}.yaml", one.name()));
    let policies = "  # by whom all is taken\n  dispatchPolicies:\n  - rules:\n    - { verbs: [\"*\"], apiGroups: [\"*\"], \
                    resources: [\"*\"], nonResourceURLs: [\"*\"] }\n";
    let changed = std::fs::read_to_string(&file)? + policies;
    std::fs::write(&file, &changed)?;
    let again = join(&context, one.name(), folder, &account, &["--yes"]).await?;
    done(&again)?;
    ensure!(again.stdout.contains("which stays as it is"), "{}", again.stdout);
    ensure!(std::fs::read_to_string(&file)? == changed);
    let twice = join(&context, one.name(), folder, &account, &["--yes", "--name", "twice"]).await?;
    for part in [&format!("as \"{}\"", one.name()), "as \"twice\"", "omit --name"] {
        ensure!(twice.code == Some(2) && twice.stderr.contains(part), "{part}: {twice:?}");
    }
    // `join` must refuse to use the file of one cluster for a different cluster.
    let other = join(&context, two.name(), folder, &account, &["--yes", "--name", one.name()]).await?;
    ensure!(other.code == Some(2) && other.stderr.contains("is of another cluster than"), "{other:?}");
    let path = format!("/api/v1/namespaces/{account}");
    two.http().get(&path).send().await?.expect(404)?;
    Ok(())
}

/// Without a kube-controller-manager, the token Secret never gets a token, so `join` must fail and delete the Secret.
async fn join_without_an_issued_token_deletes_its_secret(context: TestContext) -> anyhow::Result<()> {
    let bare = context.fixture.bare().await?;
    let (directory, account) = (guard::temporary_folder("join")?, namespace::unique_name("tributary"));
    let (kubeconfig, folder) = (bare.kubeconfig().display().to_string(), directory.path().display().to_string());
    let join = ["join", bare.name(), "--kubeconfig", &kubeconfig, "--config", &folder, "--yes"];
    let said = tributary::run(&[&join[..], &["--account", &account, "--namespace", &account]].concat()).await?;
    ensure!(said.code == Some(1) && said.stderr.contains("was deleted again"), "{said:?}");
    ensure!(said.stderr.contains("kube-controller-manager") && said.stderr.contains("--token-lifetime"), "{said:?}");
    ensure!(said.stdout.contains("Waiting until the cluster's kube-controller-manager"), "{said:?}");
    bare.http().get(&format!("/api/v1/namespaces/{account}/secrets/{account}")).send().await?.expect(404)?;
    ensure!(directory.path().read_dir()?.next().is_none(), "nothing is written");
    Ok(())
}

/// The member must accept the manifests in the repository under strict validation.
async fn kube_apiserver_accepts_the_member_manifests(context: TestContext) -> anyhow::Result<()> {
    let members = context.fixture.pair().await?.clone();
    let kubectl = Kubectl::new(context.fixture.tools().await?, &members[1].kubeconfig())?;
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy/members");
    for folder in ["constrained", "any"] {
        for file in std::fs::read_dir(root.join(folder))? {
            let file = file?.path().display().to_string();
            kubectl.ok(&["apply", "--server-side", "--force-conflicts", "--validate=strict", "-f", &file]).await?;
        }
    }
    let file = root.join("constrained/read.yaml").display().to_string();
    kubectl.ok(&["delete", "--wait=false", "--ignore-not-found", "-f", &file]).await.map(drop)
}

async fn join_without_confirmation_changes_nothing(context: TestContext) -> anyhow::Result<()> {
    let members = context.fixture.pair().await?.clone();
    let (directory, account) = (guard::temporary_folder("join")?, namespace::unique_name("tributary"));
    let folder = directory.path();
    for (further, code, says) in [
        (&["--dry-run"][..], 0, "create  ClusterRoleBinding"),
        (&[], 2, "there is no terminal to ask for confirmation, so nothing was done; give --yes or --dry-run"),
        (&["--token-lifetime", "1m"], 2, "at least 10m"),
    ] {
        let said = join(&context, members[0].name(), folder, &account, further).await?;
        ensure!(said.code == Some(code), "{said:?}");
        ensure!(format!("{}{}", said.stdout, said.stderr).contains(says), "{said:?}");
        ensure!(folder.read_dir()?.next().is_none(), "nothing is written");
    }
    members[0].http().get(&format!("/api/v1/namespaces/{account}")).send().await?.expect(404)?;
    // With this flag, `join` requests a token with a limited lifetime. It must not change an existing role with a
    // different owner.
    let made = join(&context, members[0].name(), folder, &account, &["--yes", "--token-lifetime", "1h"]).await?;
    done(&made)?;
    let secret = format!("/api/v1/namespaces/{account}/secrets/{account}");
    members[0].http().get(&secret).send().await?.expect(404)?;
    let theirs = join(&context, members[0].name(), folder, "view", &["--yes"]).await?;
    ensure!(theirs.code == Some(2) && theirs.stderr.contains("ClusterRole \"view\""), "{theirs:?}");
    for (file, name) in [("mine.yaml", "mine"), ("own.token", "own")] {
        std::fs::write(folder.join(file), "# mine\n")?;
        let mine = join(&context, members[0].name(), folder, &account, &["--yes", "--name", name]).await?;
        ensure!(mine.code == Some(2) && mine.stderr.contains(&format!("{file} exists already")), "{mine:?}");
        ensure!(std::fs::read_to_string(folder.join(file))? == "# mine\n");
    }
    Ok(())
}
