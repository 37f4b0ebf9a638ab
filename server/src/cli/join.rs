//! The flags of `join`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};
use serde::{Deserialize, Serialize};
use tributary_apimachinery::ClusterName;

use super::duration::parse_duration;

/// The text below the flags in `tributary join --help`.
pub(super) const EXAMPLES: &str = "Examples:
  tributary join eu-admin --name eu --config clusters/
      prints the changes to the cluster of context eu-admin, asks for confirmation, makes the changes,
      and writes clusters/eu.yaml and clusters/eu.token; then: tributary serve --config clusters/
  tributary join eu-admin --name eu --config clusters/ --profile write --yes
      does not ask; users can also write, as far as the rules of the cluster allow
  tributary join eu-admin --name eu --config clusters/ --dry-run
      prints the changes and makes none

Objects in the cluster:
  A namespace, a ServiceAccount with a token, a ClusterRole that names each resource (no '*'), and a
  ClusterRoleBinding. Run the command again to change the profile, or after resources were added to
  the cluster: it prints and corrects the differences, and keeps the settings of the account (profile,
  impersonation, tokens, lifetime of the token) except for flags that you give. In the file of the
  cluster it sets endpoints, certificate authorities, credentials, impersonation and tokenReview; all
  remaining fields and all comments stay. To undo it, delete the ClusterRoleBinding and the namespace.

Profiles:
  read               Tributary caches all resources but Secrets; users can read these resources
  read-with-secrets  Tributary caches all resources; users can read them
  write              as read; users can also write, exec, forward ports and read Secrets
  Under each profile, a user can do no more than the rules of the cluster allow. Before Kubernetes
  1.36, with --impersonation any, and with --tokens, the cluster does not enforce the profile for
  impersonated users: a person with the account's token can act as any user.

Exit codes: 0 done, 1 the cluster does not answer or refuses, 2 an error in a flag or the kubeconfig.";

/// The arguments of `join`.
#[derive(Args, Clone, Debug)]
pub struct JoinArguments {
    /// The context of the cluster, with a user who may create roles there
    #[arg(value_name = "CONTEXT")]
    pub context: String,
    /// The kubeconfig of the context [default: $KUBECONFIG or ~/.kube/config]
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// The directory of serve --config, for the UpstreamCluster and the token of the account
    #[arg(long, value_name = "DIR")]
    pub config: PathBuf,
    /// The name of the cluster [default: its name in the directory, or a name made from the context]
    #[arg(long, value_name = "NAME")]
    pub name: Option<ClusterName>,
    /// The rights of the account [default: unchanged; read for a new account]
    #[arg(long, value_enum)]
    pub profile: Option<Profile>,
    /// The rights of the account to impersonate users
    #[arg(long, value_enum, default_value = "auto")]
    pub impersonation: ImpersonationChoice,
    /// Send the uids of users to the cluster [default: unchanged; false for a new account]
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub impersonate_uid: Option<bool>,
    /// Send these extras of users to the cluster; '' for no extras [default: unchanged; no extras for a new account]
    #[arg(long, value_name = "KEY,...", value_delimiter = ',')]
    pub impersonate_extra: Option<Vec<String>>,
    /// Authenticate tokens by the cluster: ServiceAccount tokens, and tokens that the cluster reviews. The account can
    /// then impersonate any user (--impersonation any) [default: unchanged; false for a new account]
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub tokens: Option<bool>,
    /// The namespace of the account
    #[arg(long, value_name = "NAME", default_value = "tributary")]
    pub namespace: String,
    /// The name of the ServiceAccount, its ClusterRole and its ClusterRoleBinding
    #[arg(long, value_name = "NAME", default_value = "tributary")]
    pub account: String,
    /// The lifetime of the token of the account, at least 10m, or never for a token without an end. Run join again
    /// before the token expires [default: unchanged; never for a new account]
    #[arg(long, value_name = "DURATION")]
    pub token_lifetime: Option<TokenLifetime>,
    /// Print the changes without making them
    #[arg(long)]
    pub dry_run: bool,
    /// Make the changes without asking
    #[arg(long, short)]
    pub yes: bool,
}

/// The rights of an account.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Profile {
    /// Cache all resources but Secrets; users can read these resources.
    Read,
    /// Cache all resources; users can read them.
    ReadWithSecrets,
    /// As read; users can also write, exec, forward ports and read Secrets, as far as their rights allow.
    Write,
}

impl Profile {
    /// All profiles of `join`, from the fewest rights to the most rights.
    pub const ALL: [Self; 3] = [Self::Read, Self::ReadWithSecrets, Self::Write];

    /// Returns the value of `--profile`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::ReadWithSecrets => "read-with-secrets",
            Self::Write => "write",
        }
    }
}

/// The rights of an account to impersonate users.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ImpersonationChoice {
    /// Unchanged; for a new account constrained if the cluster supports it (Kubernetes 1.36 and later), or any.
    Auto,
    /// Impersonate users only for the requests that the profile names (KEP-5284).
    Constrained,
    /// Impersonate users for all requests.
    Any,
}

/// The shortest lifetime that kube-apiserver accepts (`ValidateTokenRequest` in `pkg/apis/authentication/validation`).
const TOKEN_LIFETIME_MIN: Duration = Duration::from_secs(10 * 60);

/// The lifetime of the token that `join` creates for an account.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub enum TokenLifetime {
    /// The token does not expire.
    Permanent,
    /// The token expires after this time.
    Ends(Duration),
}

const NEVER: &str = "never";

impl std::str::FromStr for TokenLifetime {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == NEVER {
            return Ok(Self::Permanent);
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
            Self::Permanent => f.write_str(NEVER),
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
    fn token_lifetime_is_at_least_10_minutes_or_never() {
        let ends = |seconds| Ok(TokenLifetime::Ends(Duration::from_secs(seconds)));
        for (text, expected) in [
            ("never", Ok(TokenLifetime::Permanent)),
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
        assert_eq!(lasting.to_string().parse::<TokenLifetime>(), Ok(lasting), "the text parses to the same value");
    }
}
