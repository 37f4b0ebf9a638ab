//! `tributary join`: creates an account for Tributary in a cluster, with the least rights for its purpose, and writes
//! the files for `serve --config`.
//!
//! Before any change, `join` determines the user and the existing objects, and the files that it would write. A
//! server-side dry run checks that the cluster accepts each object. Then `join` asks for consent.

pub mod account;
mod member;
mod owned;
mod plan;
mod purpose;
pub mod resources;
mod wait;
mod written;

use std::io::{IsTerminal, Write};

use anyhow::{Context, anyhow};
use secrecy::SecretString;
use serde_json::Value;
use tributary_sources::kubeconfig::ChosenContext;

use self::account::{Account, Impersonation, Purpose};
use self::plan::{Step, differences};
use self::resources::KnownResources;
use self::written::WrittenFiles;
use super::member::ClusterAccess;
use crate::cli::{JoinArguments, Profile, TokenLifetime};
use crate::exit::Failure;
use crate::output::print;

/// Creates the account, or prints the plan.
///
/// # Errors
/// A usage failure for an invalid flag, kubeconfig or file, and without a terminal for the consent. A runtime failure
/// if the cluster refuses a request.
pub async fn join(arguments: JoinArguments) -> Result<(), Failure> {
    let chosen = ChosenContext::open(arguments.kubeconfig.as_deref(), Some(&arguments.context)).await;
    let target = chosen.map_err(Failure::usage)?.target;
    let (config, proxies) = (target.config, target.proxies);
    let member = ClusterAccess::new(config.clone()).map_err(Failure::usage)?;
    let minor = member.minor().await.map_err(Failure::runtime)?;
    let discovered = member.discovery().await.map_err(Failure::runtime)?;
    let mut known = KnownResources::from_discovery(&discovered);
    known.has_roles().with_context(|| member.url.clone()).map_err(Failure::runtime)?;
    let role = member.role(&arguments.account).await.map_err(Failure::runtime)?;
    let before = AccountState::from_role(role.as_ref());
    let purpose = purpose::read_purpose(&arguments, before.recorded(), minor).map_err(Failure::usage)?;
    let account = Account { name: arguments.account.clone(), namespace: arguments.namespace.clone(), purpose };
    let (user, uid) = futures::try_join!(member.user(), member.uid()).map_err(Failure::runtime)?;
    // The file omits the proxy of this process's environment, because the proxy may contain a password, and the server
    // has its own environment.
    let proxy = proxies.explicit();
    let written = WrittenFiles::plan(&arguments, &uid, &config, proxy, &account.purpose).map_err(Failure::usage)?;
    known.add_rules_of(role.as_ref().unwrap_or(&Value::Null));
    let steps = steps(&member, &account, &known).await?;
    // Whether the Secret exists is unknown if the user may not read Secrets, so `leaves_token` is true in this case.
    let leaves_token = before.may_leave_token(&account) && !matches!(member.secret(&account).await, Ok(None));
    let plan = JoinPlan {
        context: &arguments.context,
        url: &config.cluster_url,
        minor,
        user: &user,
        before: &before,
        account: &account,
        leaves_token,
        known: &known,
        steps: &steps,
        written: &written,
    };
    print(&plan.describe());
    if arguments.dry_run {
        return Ok(());
    }
    if !arguments.yes && !confirm_plan()? {
        return Err(Failure::usage(anyhow!("nothing was done")));
    }
    let token = apply_steps(&member, &account, &steps).await.map_err(Failure::runtime)?;
    let mut own = config;
    own.auth_info = kube::config::AuthInfo { token: Some(token.clone()), ..Default::default() };
    ClusterAccess::new(own).map_err(Failure::runtime)?.wait_for_rights(&account).await.map_err(Failure::runtime)?;
    written.write(&token).map_err(Failure::runtime)?;
    print(&format!(
        "Done. Tested: the account reads, checks the rights of users, and impersonates users.\nServe it: tributary \
         serve --config {}; for many users with --client-ca-file: docs/shared-mode.md\n",
        arguments.config.display()
    ));
    Ok(())
}

/// The state of an account before `join` runs.
enum AccountState {
    /// The account does not exist.
    Nothing,
    /// The account exists, but its ClusterRole stores no purpose.
    Unrecorded,
    /// The account exists, and its ClusterRole stores this purpose.
    Recorded(Purpose),
}

impl AccountState {
    fn from_role(role: Option<&Value>) -> Self {
        match role.map(Purpose::recorded) {
            None => Self::Nothing,
            Some(None) => Self::Unrecorded,
            Some(Some(purpose)) => Self::Recorded(purpose),
        }
    }

    fn recorded(&self) -> Option<&Purpose> {
        match self {
            Self::Recorded(purpose) => Some(purpose),
            Self::Nothing | Self::Unrecorded => None,
        }
    }

    /// Returns whether a Secret with a permanent token of the account may remain in the cluster.
    fn may_leave_token(&self, account: &Account) -> bool {
        let lasting = TokenLifetime::Permanent;
        self.recorded().is_some_and(|before| before.token_lifetime == lasting)
            && account.purpose.token_lifetime != lasting
    }

    /// Describes, for the user, how the account's purpose changes. `leaves_token` tells that a Secret with a permanent
    /// token remains.
    fn describe_change(&self, account: &Account, leaves_token: bool) -> Vec<String> {
        let Account { name, namespace, purpose } = account;
        match self {
            Self::Nothing => vec![format!("  profile {}", purpose.profile.as_str())],
            Self::Unrecorded => vec![format!(
                "  profile {}; the cluster has no record of the account's settings: settings that the flags do not \
                 name are removed",
                purpose.profile.as_str()
            )],
            Self::Recorded(before) => {
                let mut lines = vec![format!("  profile {}", purpose.profile.as_str())];
                let changes = differences(before, purpose).map(|change| format!("  change  {change}"));
                lines.extend(changes);
                if leaves_token {
                    let secret = format!("Secret {namespace}/{name}");
                    lines.push(format!("  keep    {secret}: the token in it is valid until you delete it"));
                }
                lines
            }
        }
    }
}

/// Plans the steps in the cluster. Each step is tried as a dry run. Objects in a missing namespace and bindings of
/// missing roles are not tried, because the cluster would refuse the dry run.
async fn steps(
    member: &ClusterAccess,
    account: &Account,
    known: &KnownResources,
) -> Result<Vec<(Step, Value)>, Failure> {
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

async fn apply_steps(
    member: &ClusterAccess,
    account: &Account,
    steps: &[(Step, Value)],
) -> anyhow::Result<SecretString> {
    for (_, object) in steps.iter().filter(|(step, _)| *step != Step::Keep) {
        member.apply(object, true).await?;
    }
    let error = match member.token(account).await {
        Ok(token) => return Ok(token),
        Err(error) => error,
    };
    let remaining_objects = plan::remaining_objects(account);
    // A new Secret without a token is useless, so it is deleted again.
    let made = steps.iter().find(|(step, object)| *step == Step::Create && object["kind"] == "Secret");
    let Some((_, secret)) = made else { return Err(anyhow!("{error:#}; {remaining_objects}")) };
    Err(match member.delete(secret).await {
        Ok(()) => anyhow!("{error:#}; the Secret for its token was deleted again; {remaining_objects}"),
        Err(left) => anyhow!("{error:#}; the Secret for its token is left behind: {left:#}; {remaining_objects}"),
    })
}

/// The planned changes of `join`.
struct JoinPlan<'a> {
    context: &'a str,
    /// The URL of the cluster's API server.
    url: &'a http::Uri,
    /// The cluster's minor version of Kubernetes.
    minor: u32,
    /// The name of the kubeconfig's user in the cluster.
    user: &'a str,
    /// The state of the account before `join` runs.
    before: &'a AccountState,
    /// The account as `join` will create or change it.
    account: &'a Account,
    /// True if a Secret with a permanent token remains.
    leaves_token: bool,
    known: &'a KnownResources,
    steps: &'a [(Step, Value)],
    /// The UpstreamCluster and the token's file, which `join` writes on this machine.
    written: &'a WrittenFiles,
}

impl JoinPlan<'_> {
    /// Describes the planned changes for the user.
    fn describe(&self) -> String {
        let Self { context, url, minor, user, before, account, leaves_token, known, steps, written } = *self;
        let mut lines =
            vec![format!("Context {context:?} leads to {url} (Kubernetes 1.{minor}), where you are {user:?}.")];
        lines.push("Changes in the cluster:".to_owned());
        lines.extend(before.describe_change(account, leaves_token));
        lines.extend(plan::profile_note(&account.purpose));
        for (step, object) in steps {
            lines.push(plan::line(*step, object));
            match object["kind"].as_str() {
                Some("Secret") => lines.push("            its token, which does not expire".to_owned()),
                Some("ClusterRole") => lines.extend(purposes(account, known).map(|line| format!("            {line}"))),
                _ => {}
            }
        }
        if let TokenLifetime::Ends(lifetime) = account.purpose.token_lifetime {
            lines.push(format!("  request a token that lasts {} s", lifetime.as_secs()));
        }
        lines.extend(known.stale().map(|group| {
        format!(
            "  unknown resources of group {group}: the API server of the group does not answer the cluster; the role \
             keeps its rules for the group, so run join again when the server answers (kubectl get apiservices)"
        )
    }));
        lines.push("Changes on this machine:".to_owned());
        lines.extend(written.describe());
        lines.join("\n") + "\n"
    }
}

/// Describes the rules of the account's ClusterRole for the user.
fn purposes(account: &Account, known: &KnownResources) -> impl Iterator<Item = String> + use<> {
    let (kinds, groups) = account.count_kinds(known);
    let purpose = &account.purpose;
    let secrets = if purpose.profile == Profile::ReadWithSecrets { "with secrets" } else { "without secrets" };
    let acts = match (purpose.impersonation, purpose.profile) {
        (Impersonation::Any, _) => {
            "impersonates any user and group for all requests: protect its token like the token of an administrator"
        }
        (Impersonation::Constrained, Profile::Write) => {
            "impersonates users and groups, as far as their own rights allow"
        }
        (Impersonation::Constrained, Profile::ReadWithSecrets) => {
            "impersonates users and groups, to read all resources"
        }
        (Impersonation::Constrained, Profile::Read) => {
            "impersonates users and groups, to read all resources but secrets"
        }
    };
    let tokens = purpose.tokens.then(|| "reviews tokens, and impersonates ServiceAccounts".to_owned());
    let purposes = [
        format!("lists and watches {kinds} kinds of {groups} groups, {secrets}; reads roles and bindings"),
        "checks the rights of users (subjectaccessreviews)".to_owned(),
        acts.to_owned(),
    ];
    purposes.into_iter().chain(tokens)
}

/// Asks the user for consent at the terminal.
///
/// # Errors
/// A usage failure without a terminal.
fn confirm_plan() -> Result<bool, Failure> {
    if !std::io::stdin().is_terminal() {
        return Err(Failure::usage(anyhow!(
            "there is no terminal to ask for confirmation, so nothing was done; give --yes or --dry-run"
        )));
    }
    print("Go on? [y/N] ");
    std::io::stdout().flush().map_err(Failure::runtime)?;
    let mut answer = String::new();
    std::io::stdin().read_line(&mut answer).map_err(Failure::runtime)?;
    Ok(matches!(answer.trim(), "y" | "Y" | "yes"))
}

/// Returns the objects of an account as a manifest, for users who do not use `join`. `what` is the text of the comment
/// at the manifest's beginning.
///
/// # Errors
/// Errors of the serializer.
pub fn manifest(what: &str, account: &Account, known: &KnownResources) -> Result<String, serde_saphyr::SerializeError> {
    let mut text = format!("# {what}\n");
    for object in account.objects(known) {
        text.push_str("---\n");
        text.push_str(&serde_saphyr::to_string(&object)?);
    }
    Ok(text)
}

/// Returns the manifests of `deploy/members`: file names and texts.
///
/// # Errors
/// Errors of the serializer.
pub fn manifests() -> Result<Vec<(String, String)>, serde_saphyr::SerializeError> {
    let known = KnownResources::usual();
    let mut files = Vec::new();
    for impersonation in [Impersonation::Constrained, Impersonation::Any] {
        for profile in Profile::ALL {
            let (folder, since) = match impersonation {
                Impersonation::Constrained => ("constrained", "of Kubernetes 1.36 and later"),
                // Without constrained impersonation, the profiles `read` and `write` have the same rules.
                Impersonation::Any if profile == Profile::Write => continue,
                Impersonation::Any => ("any", "before Kubernetes 1.36"),
            };
            let what = format!(
                "Tributary's account in a cluster {since}: profile {}. `tributary join` makes the same, with the kinds that \
                 the cluster serves.",
                profile.as_str()
            );
            let name = || "tributary".to_owned();
            let token_lifetime = TokenLifetime::Permanent;
            let purpose =
                Purpose { profile, impersonation, uid: false, extra: Vec::new(), tokens: false, token_lifetime };
            let account = Account { name: name(), namespace: name(), purpose };
            files.push((format!("{folder}/{}.yaml", profile.as_str()), manifest(&what, &account, &known)?));
        }
    }
    Ok(files)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn join_reports_a_permanent_token_that_remains() {
        let minutes = TokenLifetime::Ends(Duration::from_secs(600));
        let of = |token_lifetime| Purpose {
            profile: Profile::Read,
            impersonation: Impersonation::Constrained,
            uid: false,
            extra: Vec::new(),
            tokens: false,
            token_lifetime,
        };
        let name = || "tributary".to_owned();
        for (before, after, may_leave) in [
            (AccountState::Recorded(of(TokenLifetime::Permanent)), minutes, true),
            (AccountState::Recorded(of(TokenLifetime::Permanent)), TokenLifetime::Permanent, false),
            (AccountState::Recorded(of(minutes)), minutes, false),
            (AccountState::Nothing, minutes, false),
            (AccountState::Unrecorded, minutes, false),
        ] {
            let account = Account { name: name(), namespace: name(), purpose: of(after) };
            assert_eq!(before.may_leave_token(&account), may_leave);
            for leaves_token in [false, may_leave] {
                let said = before.describe_change(&account, leaves_token).join("\n");
                let is_told = said.contains("keep    Secret tributary/tributary: the token in it is valid");
                assert_eq!(is_told, leaves_token, "{said}");
            }
        }
    }
}
