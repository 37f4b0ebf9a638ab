//! User of a member's configuration: credentials and `as` fields.

use std::sync::Arc;

use arc_swap::ArcSwap;
use http::HeaderValue;
use tributary_apimachinery::ClusterName;

use crate::credentials::identity::Impersonation;
use crate::credentials::{CredentialTuning, UserCredentials};
use crate::error::ConnectError;

/// Remedy for a rejected token of a member's impersonator.
const IMPERSONATOR_REMEDY: &str = "renew the Secret in spec.impersonatorSecretRef of its Cluster in Karmada";

/// User of a member's configuration: credentials and `as` fields. Each request uses one value from its start to its
/// end. With values of two users, a request could carry a new user's token without the `as` fields that limit the
/// token's rights.
pub(crate) struct MemberUser {
    pub(crate) credentials: Arc<UserCredentials>,
    /// The user of the kubeconfig's `as` fields.
    pub(crate) impersonation: Option<Impersonation>,
    /// Whether the credentials are a client's own token. The client then gets the cluster's 401 unchanged.
    pub(crate) is_user_token: bool,
}

/// The current user of a client. All connection attempts read this shared value.
pub(crate) type CurrentUser = Arc<ArcSwap<MemberUser>>;

impl MemberUser {
    /// Creates the user of a configuration, without running a plugin. `before` is the replaced user.
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
        Ok(Self { credentials, impersonation, is_user_token: false })
    }

    /// Returns a user with the client's own token, for the connections without Tributary's credentials.
    pub(crate) fn with_token(&self, authorization: &HeaderValue) -> Self {
        let credentials = self.credentials.with_authorization(authorization.clone(), self.credentials.remedy());
        Self { credentials, impersonation: None, is_user_token: true }
    }

    /// Returns a user with the `Authorization` header of the member's impersonator.
    pub(crate) fn with_impersonator(&self, authorization: &HeaderValue) -> Self {
        let credentials = self.credentials.with_authorization(authorization.clone(), IMPERSONATOR_REMEDY);
        Self { credentials, impersonation: None, is_user_token: false }
    }
}

fn impersonation(config: &kube::Config) -> Result<Option<Impersonation>, String> {
    let auth = &config.auth_info;
    let groups = auth.impersonate_groups.iter().flatten().map(String::as_str);
    // A kube-apiserver converts keys of extra fields to lower case.
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
