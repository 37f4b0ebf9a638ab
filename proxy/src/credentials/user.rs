//! As whom a member sees us: the configuration's user, whole.

use std::sync::Arc;

use arc_swap::ArcSwap;
use tributary_apimachinery::ClusterName;

use crate::credentials::identity::{Impersonation, OwnToken};
use crate::credentials::{CredentialTuning, UserCredentials};
use crate::error::ConnectError;

/// The configuration's user. Credentials and `as` fields stand together: a request takes one user and keeps it, so that
/// a new user's token is never sent without the `as` that limits it.
pub(crate) struct MemberUser {
    pub(crate) credentials: Arc<UserCredentials>,
    /// The user's own `as` fields.
    pub(crate) impersonation: Option<Impersonation>,
    /// Whose they are: a 401 to a user's own is the user's to know.
    pub(crate) is_a_clients: bool,
}

/// The user of a client now; shared by all that dial for it.
pub(crate) type CurrentUser = Arc<ArcSwap<MemberUser>>;

impl MemberUser {
    /// Takes the user of a configuration; runs no plugin. `before` is whom the client was used as until now.
    ///
    /// # Errors
    /// [`ConnectError::Credentials`], [`ConnectError::Header`].
    pub(crate) async fn new(
        cluster: &ClusterName,
        config: &kube::Config,
        tuning: &CredentialTuning,
        before: Option<&Self>,
    ) -> Result<Self, ConnectError> {
        let invalid = |problem| ConnectError::Header { cluster: cluster.clone(), field: "as", problem };
        let impersonation = impersonation(config).map_err(invalid)?;
        let before = before.map(|before| &*before.credentials);
        let credentials = UserCredentials::new(cluster, config, tuning, before).await?;
        Ok(Self { credentials, impersonation, is_a_clients: false })
    }

    /// A user who comes with a token of their own, on the connections that this one, who has no credentials, has.
    pub(crate) fn with_token(&self, token: &OwnToken) -> Self {
        let credentials = self.credentials.with_authorization(token.authorization.clone());
        Self { credentials, impersonation: None, is_a_clients: true }
    }
}

/// The kubeconfig user's `as`, `as-groups`, `as-uid` and `as-user-extra`.
fn impersonation(config: &kube::Config) -> Result<Option<Impersonation>, String> {
    let auth = &config.auth_info;
    let groups = auth.impersonate_groups.iter().flatten().map(String::as_str);
    // A kube-apiserver reads the keys that kubectl sends in lower case.
    let extra: Vec<_> =
        auth.impersonate_user_extra.iter().flatten().map(|(key, values)| (key.to_ascii_lowercase(), values)).collect();
    let mut extra =
        extra.iter().flat_map(|(key, values)| values.iter().map(move |value| (key.as_str(), value.as_str())));
    match &auth.impersonate {
        Some(user) => Impersonation::new(user, groups, auth.impersonate_uid.as_deref(), extra)
            .map(Some)
            .map_err(|error| error.to_string()),
        None if auth.impersonate_uid.is_some() || groups.count() > 0 || extra.next().is_some() => {
            Err("as-groups, as-uid and as-user-extra need as".to_owned())
        }
        None => Ok(None),
    }
}
