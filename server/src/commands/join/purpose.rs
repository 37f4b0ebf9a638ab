//! Determines the purpose of an account from the flags and from the purpose that the cluster stores. Without I/O.

use anyhow::ensure;

use super::account::{Impersonation, Purpose};
use crate::cli::{ImpersonationChoice, JoinArguments, Profile, TokenLifetime};

/// The first minor version of Kubernetes that enables constrained impersonation by default (KEP-5284, beta in 1.36).
const CONSTRAINED_SINCE: u32 = 36;

/// Returns the account's purpose. Flags take precedence over the stored purpose `before`. Without a stored purpose, the
/// default has the least rights.
///
/// # Errors
/// A combination of flags that constrained impersonation does not support.
pub(super) fn read_purpose(arguments: &JoinArguments, before: Option<&Purpose>, minor: u32) -> anyhow::Result<Purpose> {
    let tokens = arguments.tokens.or(before.map(|before| before.tokens)).unwrap_or(false);
    let extra = match &arguments.impersonate_extra {
        Some(keys) => keys.iter().filter(|key| !key.is_empty()).map(|key| key.to_lowercase()).collect(),
        None => before.map(|before| before.extra.clone()).unwrap_or_default(),
    };
    // If `--tokens` was removed, the account no longer needs full impersonation.
    let kept = before.filter(|before| before.tokens == tokens).map(|before| before.impersonation);
    let impersonation = match arguments.impersonation {
        ImpersonationChoice::Constrained => Impersonation::Constrained,
        ImpersonationChoice::Any => Impersonation::Any,
        ImpersonationChoice::Auto if tokens => Impersonation::Any,
        ImpersonationChoice::Auto => kept.unwrap_or(match minor {
            CONSTRAINED_SINCE.. => Impersonation::Constrained,
            _ => Impersonation::Any,
        }),
    };
    if impersonation == Impersonation::Constrained {
        // Constrained impersonation of ServiceAccounts allows names only (`onlyUsernameSet` in apiserver's
        // `filters/impersonation/mode.go`), so the attributes of a TokenReview could not be sent.
        ensure!(!tokens, "--tokens needs --impersonation any, with which the account can impersonate any user");
        let plain = extra.iter().find(|key| !key.contains('/'));
        ensure!(
            plain.is_none(),
            "--impersonate-extra {}: constrained impersonation accepts only keys with a domain, such as \
             example.com/team",
            plain.map_or("", String::as_str)
        );
    }
    Ok(Purpose {
        profile: arguments.profile.or(before.map(|before| before.profile)).unwrap_or(Profile::Read),
        impersonation,
        uid: arguments.impersonate_uid.or(before.map(|before| before.uid)).unwrap_or(false),
        extra,
        tokens,
        token_lifetime: arguments
            .token_lifetime
            .or(before.map(|before| before.token_lifetime))
            .unwrap_or(TokenLifetime::Permanent),
    })
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::cli::{Cli, Command};

    fn asked(flags: &str, before: Option<&Purpose>, minor: u32) -> anyhow::Result<Purpose> {
        let line = format!("tributary join eu --config x {flags}");
        let cli = Cli::parse_from(line.split_whitespace());
        let Command::Join(arguments) = cli.command else { panic!("{line}") };
        read_purpose(&arguments, before, minor)
    }

    fn text(purpose: &Purpose) -> String {
        purpose.choices().map(|(_, choice)| choice).join(" ")
    }

    #[test]
    fn second_join_keeps_settings_without_a_flag() {
        let of = |flags: &str, before: Option<&Purpose>, minor| text(&asked(flags, before, minor).unwrap());
        assert_eq!(of("", None, 36), "read constrained false  false never");
        assert_eq!(of("", None, 35), "read any false  false never");
        let made = "--profile write --token-lifetime 1h --impersonate-extra example.com/Team --impersonate-uid";
        let before = asked(made, None, 36).unwrap();
        assert_eq!(text(&before), "write constrained true example.com/team false 3600s");
        assert_eq!(of("", Some(&before), 36), text(&before));
        for (flags, expected) in [
            ("--profile read", "read constrained true example.com/team false 3600s"),
            ("--token-lifetime never", "write constrained true example.com/team false never"),
            ("--impersonate-uid=false", "write constrained false example.com/team false 3600s"),
            ("--impersonate-extra=", "write constrained true  false 3600s"),
            ("--tokens", "write any true example.com/team true 3600s"),
            ("--impersonation any", "write any true example.com/team false 3600s"),
        ] {
            assert_eq!(of(flags, Some(&before), 36), expected, "{flags}");
        }
        // The cluster was upgraded, or `--tokens` was removed.
        let any = asked("--impersonation any", None, 36).unwrap();
        assert_eq!(of("", Some(&any), 36), text(&any));
        let reviewing = asked("--tokens", None, 36).unwrap();
        assert_eq!(of("--tokens=false", Some(&reviewing), 36), "read constrained false  false never");
    }

    #[test]
    fn join_flags_that_constrained_impersonation_cannot_support_are_refused() {
        for (flags, says) in [
            ("--tokens --impersonation constrained", "--tokens needs --impersonation any"),
            (
                "--impersonate-extra team",
                "--impersonate-extra team: constrained impersonation accepts only keys with a domain",
            ),
        ] {
            let error = asked(flags, None, 36).unwrap_err().to_string();
            assert!(error.starts_with(says), "{error}");
        }
        assert!(asked("--impersonate-extra team", None, 35).is_ok());
    }
}
