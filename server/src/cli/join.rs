//! The flags of `join`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};
use serde::{Deserialize, Serialize};
use tributary_apimachinery::ClusterName;

use super::duration::parse_duration;

/// What stands at the end of its help.
pub(super) const EXAMPLES: &str = "Examples:
  tributary join eu-admin --name eu --config clusters/
      prints what it would do in the cluster of context eu-admin, asks, does it, and writes
      clusters/eu.yaml and clusters/eu.token; then: tributary serve --config clusters/
  tributary join eu-admin --name eu --config clusters/ --profile write --yes
      asks nothing; users may change what their own rights let them change
  tributary join eu-admin --name eu --config clusters/ --dry-run
      prints, and does nothing

What it makes there:
  A namespace, a ServiceAccount with a token, a ClusterRole that names each kind (no '*'), and its
  binding. Run it again after kinds were added to the cluster, or to change the profile: it changes
  what is other than it should be, says so, and keeps what the account was made for (profile,
  impersonation, tokens, the token's lifetime) except for the flags that you give. In the cluster's
  file it sets endpoints, authorities, credentials, impersonation and tokenReview; all other fields
  and all comments stay. To leave, delete the ClusterRoleBinding and the namespace.

Profiles:
  read               lists and watches everything but secrets; users may read
  read-with-secrets  secrets, too
  write              as read; users may change things, exec and forward ports as well
  In each of them a user may do no more than the cluster's own rules let them. Before Kubernetes 1.36,
  with --impersonation any and with --tokens a profile cannot bound what is done in users' names:
  whoever has the account may act as anybody.

Exit codes: 0 done, 1 the cluster does not answer or refuses, 2 a flag or the kubeconfig has to be corrected.";

/// The arguments of `join`.
#[derive(Args, Clone, Debug)]
pub struct JoinArguments {
    /// The context that leads to the cluster, as somebody who may make roles there
    #[arg(value_name = "CONTEXT")]
    pub context: String,
    /// The kubeconfig of the context [default: $KUBECONFIG, else ~/.kube/config]
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// The configuration directory of serve: the UpstreamCluster and the account's token are written there
    #[arg(long, value_name = "DIR")]
    pub config: PathBuf,
    /// The name of the cluster [default: its name in the directory, or else one made from the context]
    #[arg(long, value_name = "NAME")]
    pub name: Option<ClusterName>,
    /// What the account may do [default: as it is there, else read]
    #[arg(long, value_enum)]
    pub profile: Option<Profile>,
    /// How the account may act as users; auto is as it is there, else constrained where the cluster knows that
    #[arg(long, value_enum, default_value = "auto")]
    pub impersonation: ImpersonationChoice,
    /// Tell the cluster the uids of users [default: as it is there, else false]
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub impersonate_uid: Option<bool>,
    /// Tell the cluster these extras of users; '' for none [default: as it is there, else none]
    #[arg(long, value_name = "KEY,...", value_delimiter = ',')]
    pub impersonate_extra: Option<Vec<String>>,
    /// Let the cluster vouch for tokens: those of its ServiceAccounts, and those that it reviews. The account may act
    /// as anybody then, in every way (--impersonation any) [default: as it is there, else false]
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub tokens: Option<bool>,
    /// The namespace of the account
    #[arg(long, value_name = "NAME", default_value = "tributary")]
    pub namespace: String,
    /// The name of the account, its role and its binding
    #[arg(long, value_name = "NAME", default_value = "tributary")]
    pub account: String,
    /// How long the account's token lasts, or never, if it does not end; run join again before it ends [default: as it
    /// is there, else never]
    #[arg(long, value_name = "DURATION")]
    pub token_lifetime: Option<TokenLifetime>,
    /// Print what would be done, and do nothing
    #[arg(long)]
    pub dry_run: bool,
    /// Do not ask
    #[arg(long, short)]
    pub yes: bool,
}

/// What an account may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Profile {
    /// Lists and watches everything but secrets.
    Read,
    /// Secrets, too.
    ReadWithSecrets,
    /// As the first, and users may change what their own rights let them change.
    Write,
}

impl Profile {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Read, Self::ReadWithSecrets, Self::Write];

    /// As the command line has it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::ReadWithSecrets => "read-with-secrets",
            Self::Write => "write",
        }
    }
}

/// How an account may act as users.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ImpersonationChoice {
    /// As it is there; else constrained where the cluster knows that (Kubernetes 1.36 and later), else any.
    Auto,
    /// For what the profile names alone (KEP-5284).
    Constrained,
    /// In every way.
    Any,
}

/// kube-apiserver takes no shorter token (`ValidateTokenRequest` in kubernetes' `pkg/apis/authentication/validation`).
const TOKEN_LIFETIME_MIN: Duration = Duration::from_secs(10 * 60);

/// How long an account's token lasts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub enum TokenLifetime {
    /// It does not end.
    Lasting,
    /// It ends after so long.
    Ends(Duration),
}

/// How [`TokenLifetime::Lasting`] is written.
const NEVER: &str = "never";

impl std::str::FromStr for TokenLifetime {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == NEVER {
            return Ok(Self::Lasting);
        }
        match parse_duration(text)? {
            lifetime if lifetime < TOKEN_LIFETIME_MIN => Err("must be at least 10m".to_owned()),
            lifetime => Ok(Self::Ends(lifetime)),
        }
    }
}

impl std::fmt::Display for TokenLifetime {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Lasting => f.write_str(NEVER),
            Self::Ends(lifetime) => write!(f, "{}s", lifetime.as_secs()),
        }
    }
}

impl From<TokenLifetime> for String {
    fn from(lifetime: TokenLifetime) -> Self {
        lifetime.to_string()
    }
}

impl TryFrom<String> for TokenLifetime {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_lasts_for_10_minutes_at_least_or_for_ever() {
        let ends = |seconds| Ok(TokenLifetime::Ends(Duration::from_secs(seconds)));
        for (text, expected) in [
            ("never", Ok(TokenLifetime::Lasting)),
            ("10m", ends(600)),
            ("3600", ends(3_600)),
            ("8760h", ends(8_760 * 3_600)),
            ("9m59s", Err("must be at least 10m".to_owned())),
            ("0", Err("must be at least 10m".to_owned())),
            ("-1h", Err("must not be below 0".to_owned())),
        ] {
            assert_eq!(text.parse::<TokenLifetime>(), expected, "{text}");
        }
        let lasting = TokenLifetime::Ends(Duration::from_secs(3_600));
        assert_eq!(lasting.to_string().parse::<TokenLifetime>(), Ok(lasting), "what is noted is read again");
    }
}
