//! User of the configuration, as a cluster sees it.

use std::sync::Arc;

use arc_swap::ArcSwap;
use tributary_apimachinery::ClusterName;

use crate::credentials::identity::{Impersonation, OwnToken};
use crate::credentials::{CredentialTuning, UserCredentials};
use crate::error::ConnectError;

/// User of the configuration: credentials and `as` fields together. A request keeps one user, so a new user's token is
/// never sent without the `as` that limits it.
pub(crate) struct MemberUser {
    pub(crate) credentials: Arc<UserCredentials>,
    /// The user's own `as` fields.
    pub(crate) impersonation: Option<Impersonation>,
    /// Whether the credentials are a client's own. The client then gets a 401 as it is.
    pub(crate) is_a_clients: bool,
}

/// Current user of a client; shared with all dials.
pub(crate) type CurrentUser = Arc<ArcSwap<MemberUser>>;

impl MemberUser {
    /// Makes the user of a configuration; runs no plugin. `before` is the replaced user.
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

    /// A user with a token of its own, on the connections without credentials.
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
