//! `tributary join`: makes an account for Tributary in a cluster, with the least rights that serve its purpose, after it
//! has said what it will do; then writes what `serve --config` needs to serve the cluster.
//!
//! Everything that can be known is found out before anything is changed: who asks, what is there, whether the cluster
//! would take each object (a server-side dry run), and what would be written here.

pub mod account;
mod member;
mod plan;
pub mod resources;
mod written;

use std::io::{IsTerminal, Write};

use anyhow::{Context, anyhow};
use secrecy::SecretString;
use serde_json::Value;

use self::account::{Account, Impersonation};
use self::plan::Step;
use self::resources::KnownResources;
use self::written::Written;
use super::member::Member;
use crate::cli::{ImpersonationChoice, JoinArguments, Profile};
use crate::contexts::cluster_name;
use crate::exit::Failure;
use crate::kubeconfig::ChosenContext;
use crate::output::print;

/// From which minor version of Kubernetes constrained impersonation is on by itself (KEP-5284, beta in 1.36).
const CONSTRAINED_SINCE: u32 = 36;

/// Makes the account, or says what it would do.
///
/// # Errors
/// A usage failure for a flag, a kubeconfig or a file that has to be corrected, and where nobody can be asked; a runtime
/// failure for what the cluster refuses.
pub async fn join(arguments: JoinArguments) -> Result<(), Failure> {
    let chosen = ChosenContext::open(arguments.kubeconfig.as_deref(), Some(&arguments.context)).await;
    let config = chosen.map_err(Failure::usage)?.target.config;
    let name = match &arguments.name {
        Some(name) => name.clone(),
        None => cluster_name(&arguments.context)
            .with_context(|| format!("context {:?} gives no name for a cluster; name it by --name", arguments.context))
            .map_err(Failure::usage)?,
    };
    let member = Member::new(config.clone()).map_err(Failure::usage)?;
    let minor = member.minor().await.map_err(Failure::runtime)?;
    let account = account_of(&arguments, minor).map_err(Failure::usage)?;
    let written = Written::plan(&arguments.config, &name, &config, &account).map_err(Failure::usage)?;
    let (known, user) = futures::try_join!(member.discovery(), member.user()).map_err(Failure::runtime)?;
    let known = KnownResources::of(&known);
    let steps = steps(&member, &account, &known).await?;
    print(&said(&arguments, (minor, &user, &config), &account, &known, &steps, &written));
    if arguments.dry_run {
        return Ok(());
    }
    if !arguments.yes && !is_agreed()? {
        return Err(Failure::usage(anyhow!("nothing was done")));
    }
    let token = carry_out(&member, &account, &arguments, &steps).await.map_err(Failure::runtime)?;
    let mut own = config;
    own.auth_info = kube::config::AuthInfo { token: Some(token.clone()), ..Default::default() };
    Member::new(own).map_err(Failure::runtime)?.may_all(&account).await.map_err(Failure::runtime)?;
    written.write(&token).map_err(Failure::runtime)?;
    print(&format!(
        "Done. It was tried: the account reads, asks what users may do, and acts as users.\nServe it: tributary serve --config {}\n",
        arguments.config.display()
    ));
    Ok(())
}

/// What the flags ask for.
///
/// # Errors
/// What constrained impersonation cannot do.
fn account_of(arguments: &JoinArguments, minor: u32) -> anyhow::Result<Account> {
    let impersonation = match arguments.impersonation {
        ImpersonationChoice::Auto if arguments.tokens => Impersonation::Any,
        ImpersonationChoice::Constrained => Impersonation::Constrained,
        ImpersonationChoice::Auto if minor >= CONSTRAINED_SINCE => Impersonation::Constrained,
        ImpersonationChoice::Auto | ImpersonationChoice::Any => Impersonation::Any,
    };
    if impersonation == Impersonation::Constrained {
        // ServiceAccounts by their names alone (`onlyUsernameSet` in apiserver's `filters/impersonation/mode.go`): what the
        // cluster's review says of them could not be told.
        anyhow::ensure!(
            !arguments.tokens,
            "--tokens needs --impersonation any, by which the account may act as anybody"
        );
        let plain = arguments.impersonate_extra.iter().find(|key| !key.contains('/'));
        anyhow::ensure!(
            plain.is_none(),
            "--impersonate-extra {}: constrained impersonation takes keys of a domain alone, such as example.com/team",
            plain.map_or("", String::as_str)
        );
    }
    Ok(Account {
        name: arguments.account.clone(),
        namespace: arguments.namespace.clone(),
        profile: arguments.profile,
        impersonation,
        uid: arguments.impersonate_uid,
        extra: arguments.impersonate_extra.iter().map(|key| key.to_lowercase()).collect(),
        tokens: arguments.tokens,
        has_lasting_token: arguments.token_lifetime.is_none(),
    })
}

/// What there is to do, each step tried where that can be done before those before it are: what is within a namespace
/// that is not there yet, and the binding of a role that is not there yet, cannot.
async fn steps(member: &Member, account: &Account, known: &KnownResources) -> Result<Vec<(Step, Value)>, Failure> {
    let mut steps: Vec<(Step, Value)> = Vec::new();
    for object in account.objects(known) {
        let present = member.present(&object).await.map_err(Failure::runtime)?;
        let step = plan::step(&object, present.as_ref()).map_err(Failure::usage)?;
        let is_new = |kind: &str| steps.iter().any(|(step, own)| *step == Step::Create && own["kind"] == kind);
        let waits = (object["metadata"]["namespace"].is_string() && is_new("Namespace"))
            || (object["kind"] == "ClusterRoleBinding" && is_new("ClusterRole"));
        if step != Step::Keep && !waits {
            member.apply(&object, false).await.map_err(Failure::runtime)?;
        }
        steps.push((step, object));
    }
    Ok(steps)
}

async fn carry_out(
    member: &Member,
    account: &Account,
    arguments: &JoinArguments,
    steps: &[(Step, Value)],
) -> anyhow::Result<SecretString> {
    for (_, object) in steps.iter().filter(|(step, _)| *step != Step::Keep) {
        member.apply(object, true).await?;
    }
    member.token(account, arguments.token_lifetime).await
}

/// What will be done, for people.
fn said(
    arguments: &JoinArguments,
    (minor, user, config): (u32, &str, &kube::Config),
    account: &Account,
    known: &KnownResources,
    steps: &[(Step, Value)],
    written: &Written,
) -> String {
    let mut lines = vec![format!(
        "Context {:?} leads to {} (Kubernetes 1.{minor}), where you are {user:?}.",
        arguments.context, config.cluster_url
    )];
    lines.push("What is to be done there:".to_owned());
    for (step, object) in steps {
        lines.push(plan::line(*step, object));
        match object["kind"].as_str() {
            Some("Secret") => lines.push("            its token, which does not end".to_owned()),
            Some("ClusterRole") => lines.extend(purposes(account, known).map(|line| format!("            {line}"))),
            _ => {}
        }
    }
    if let Some(lifetime) = arguments.token_lifetime {
        lines.push(format!("  ask     a token that lasts {} s", lifetime.as_secs()));
    }
    lines.push("What is to be written here:".to_owned());
    lines.push(format!("  {}  its token", written.token.display()));
    lines.push(format!("  {}  its UpstreamCluster", written.cluster.display()));
    lines.join("\n") + "\n"
}

/// What a role is for.
fn purposes(account: &Account, known: &KnownResources) -> impl Iterator<Item = String> + use<> {
    let (kinds, groups) = account.held(known);
    let secrets = if account.profile == Profile::ReadWithSecrets { "with secrets" } else { "without secrets" };
    let acts = match (account.impersonation, account.profile) {
        (Impersonation::Any, _) => {
            "acts as any user and group, in every way: keep its token as you keep an administrator's"
        }
        (Impersonation::Constrained, Profile::Write) => {
            "acts as users and groups, in what their own rights let them do"
        }
        (Impersonation::Constrained, Profile::ReadWithSecrets) => "acts as users and groups, to read",
        (Impersonation::Constrained, Profile::Read) => "acts as users and groups, to read, but no secrets",
    };
    let tokens = account.tokens.then(|| "has tokens reviewed, and acts as ServiceAccounts".to_owned());
    let purposes = [
        format!("lists and watches {kinds} kinds of {groups} groups, {secrets}; reads roles and bindings"),
        "asks what users may do (subjectaccessreviews)".to_owned(),
        acts.to_owned(),
    ];
    purposes.into_iter().chain(tokens)
}

/// Asks whoever sits at the terminal.
///
/// # Errors
/// A usage failure where nobody does.
fn is_agreed() -> Result<bool, Failure> {
    if !std::io::stdin().is_terminal() {
        return Err(Failure::usage(anyhow!("nobody can be asked, and so nothing was done; say --yes, or --dry-run")));
    }
    print("Go on? [y/N] ");
    std::io::stdout().flush().map_err(Failure::runtime)?;
    let mut answer = String::new();
    std::io::stdin().read_line(&mut answer).map_err(Failure::runtime)?;
    Ok(matches!(answer.trim(), "y" | "Y" | "yes"))
}

/// The objects of an account as a file, for whoever makes accounts by other means than `join`. `what` says what it is.
///
/// # Errors
/// The serializer's.
pub fn manifest(what: &str, account: &Account, known: &KnownResources) -> Result<String, serde_saphyr::SerializeError> {
    let mut text = format!("# {what}\n");
    for object in account.objects(known) {
        text.push_str("---\n");
        text.push_str(&serde_saphyr::to_string(&object)?);
    }
    Ok(text)
}

/// The manifests of `deploy/members`: file name, and text.
///
/// # Errors
/// The serializer's.
pub fn manifests() -> Result<Vec<(String, String)>, serde_saphyr::SerializeError> {
    let known = KnownResources::usual();
    let mut files = Vec::new();
    for impersonation in [Impersonation::Constrained, Impersonation::Any] {
        for profile in Profile::ALL {
            let (folder, since) = match impersonation {
                Impersonation::Constrained => ("constrained", "of Kubernetes 1.36 and later"),
                // What is done in users' names is not bounded: to write takes no more than to read.
                Impersonation::Any if profile == Profile::Write => continue,
                Impersonation::Any => ("any", "before Kubernetes 1.36"),
            };
            let what = format!(
                "Tributary's account in a cluster {since}: profile {}. `tributary join` makes the same, with the kinds that \
                 the cluster serves.",
                profile.as_str()
            );
            let name = || "tributary".to_owned();
            let account = Account {
                name: name(),
                namespace: name(),
                profile,
                impersonation,
                uid: false,
                extra: Vec::new(),
                tokens: false,
                has_lasting_token: true,
            };
            files.push((format!("{folder}/{}.yaml", profile.as_str()), manifest(&what, &account, &known)?));
        }
    }
    Ok(files)
}
