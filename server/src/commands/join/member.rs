//! Sends the requests of `join` to a cluster, first with the user's credentials, then with the credentials of the new
//! account.

use anyhow::{Context, bail};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::{Method, StatusCode};
use secrecy::SecretString;
use serde_json::{Value, json};
use tributary_apimachinery::NOBODY;
use tributary_apimachinery::text::printable;

use super::account::{Account, Impersonation};
use super::wait::{WAIT_TIMEOUT, wait_until_some};
use crate::cli::TokenLifetime;
use crate::commands::member::{ClusterAccess, MemberError};
use crate::output::print;

/// The field manager of `join` in `managedFields`.
const MANAGER: &str = "tributary-join";

impl ClusterAccess {
    /// Returns the cluster's minor version of Kubernetes.
    pub(super) async fn minor(&self) -> anyhow::Result<u32> {
        let version = self.send_request(Method::GET, "/version", None, &[]).await?;
        let minor = version["minor"].as_str().unwrap_or_default().trim_end_matches(|c: char| !c.is_ascii_digit());
        minor.parse().with_context(|| format!("{} does not report its version", self.url))
    }

    /// Returns the kubeconfig user's name in the cluster.
    pub(super) async fn user(&self) -> anyhow::Result<String> {
        self.user_as(&[]).await
    }

    async fn user_as(&self, headers: &[(&str, &str)]) -> anyhow::Result<String> {
        let review = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"});
        let path = "/apis/authentication.k8s.io/v1/selfsubjectreviews";
        let answer = self.send_request(Method::POST, path, Some(&review), headers).await?;
        Ok(printable(answer["status"]["userInfo"]["username"].as_str().unwrap_or_default()).into_owned())
    }

    /// Reads the existing object with the same kind and name; returns `None` if there is none.
    pub(super) async fn present(&self, object: &Value) -> anyhow::Result<Option<Value>> {
        match self.send_request(Method::GET, &path(object)?, None, &[]).await {
            Ok(present) => Ok(Some(present)),
            Err(error) => match error.downcast_ref::<MemberError>() {
                Some(MemberError { code: StatusCode::NOT_FOUND, .. }) => Ok(None),
                _ => Err(error),
            },
        }
    }

    /// Reads the ClusterRole with this name; returns `None` if there is none.
    pub(super) async fn role(&self, name: &str) -> anyhow::Result<Option<Value>> {
        self.present(&json!({"kind": "ClusterRole", "metadata": {"name": name}})).await
    }

    /// Reads the Secret with the account's permanent token; returns `None` if there is none.
    pub(super) async fn secret(&self, Account { name, namespace, .. }: &Account) -> anyhow::Result<Option<Value>> {
        self.present(&json!({"kind": "Secret", "metadata": {"name": name, "namespace": namespace}})).await
    }

    /// Returns the uid of the namespace kube-system, which identifies the cluster.
    pub(super) async fn uid(&self) -> anyhow::Result<String> {
        let namespace = self.send_request(Method::GET, "/api/v1/namespaces/kube-system", None, &[]).await?;
        let uid = namespace["metadata"]["uid"].as_str();
        Ok(uid
            .with_context(|| {
                format!("{}: the namespace kube-system has no uid, so the cluster cannot be identified", self.url)
            })?
            .to_owned())
    }

    pub(super) async fn delete(&self, object: &Value) -> anyhow::Result<()> {
        self.send_request(Method::DELETE, &path(object)?, None, &[]).await.map(drop)
    }

    /// Applies an object on the server side, `for_real` or as a dry run. Overwrites the changes of other field
    /// managers, because the object's label marks it as Tributary's.
    pub(super) async fn apply(&self, object: &Value, for_real: bool) -> anyhow::Result<()> {
        let dry_run = if for_real { "" } else { "&dryRun=All" };
        let path = format!("{}?fieldManager={MANAGER}&force=true{dry_run}", path(object)?);
        let applied = self.send_request(Method::PATCH, &path, Some(object), &[]).await;
        applied.map(drop).with_context(|| format!("{} {}", object["kind"], object["metadata"]["name"]))
    }

    /// Returns a token of the account: the permanent token of its Secret, or a new token with a limited lifetime.
    pub(super) async fn token(&self, account: &Account) -> anyhow::Result<SecretString> {
        let Account { name, namespace, purpose } = account;
        if let TokenLifetime::Ends(lifetime) = purpose.token_lifetime {
            let path = format!("/api/v1/namespaces/{namespace}/serviceaccounts/{name}/token");
            let request = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest",
                "spec": {"expirationSeconds": lifetime.as_secs()}});
            let answer = self.send_request(Method::POST, &path, Some(&request), &[]).await?;
            let token = answer["status"]["token"].as_str().context("the cluster's TokenRequest has no token")?;
            return Ok(token.to_owned().into());
        }
        let path = format!("/api/v1/namespaces/{namespace}/secrets/{name}");
        let what = format!("the cluster's kube-controller-manager has put a token into Secret {namespace}/{name}");
        let token = wait_until_some(&what, print, async || {
            let secret = self.send_request(Method::GET, &path, None, &[]).await?;
            Ok(secret["data"]["token"].as_str().map(str::to_owned))
        });
        let Some(data) = token.await? else { bail!(no_token(account)) };
        let bytes = STANDARD.decode(data).context("the token of the Secret is not base64")?;
        Ok(String::from_utf8(bytes).context("the token of the Secret is not text")?.into())
    }

    /// Waits until the cluster's authorizer grants all of the account's rights.
    pub(super) async fn wait_for_rights(&self, account: &Account) -> anyhow::Result<()> {
        let mut refused = None;
        let tried = wait_until_some("the cluster applies the rights of the account", print, async || {
            refused = self.tried(account).await.err();
            Ok(refused.is_none().then_some(()))
        });
        let tried = tried.await?;
        match (tried, refused) {
            (None, Some(error)) => Err(error),
            _ => Ok(()),
        }
    }

    async fn tried(&self, account: &Account) -> anyhow::Result<()> {
        let Account { name, namespace, .. } = account;
        let (user, expected) = (self.user().await?, format!("system:serviceaccount:{namespace}:{name}"));
        if user != expected {
            bail!("the cluster authenticates the account's token as {user:?} instead of {expected:?}");
        }
        for path in ["/api/v1/pods?limit=1", "/apis/rbac.authorization.k8s.io/v1/clusterroles?limit=1"] {
            self.send_request(Method::GET, path, None, &[]).await.context("the account cannot read")?;
        }
        let review = json!({"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview",
            "spec": {"user": NOBODY, "resourceAttributes": {"verb": "get", "resource": "pods"}}});
        let path = "/apis/authorization.k8s.io/v1/subjectaccessreviews";
        self.send_request(Method::POST, path, Some(&review), &[])
            .await
            .context("the account cannot create subjectaccessreviews")?;
        let (whom, groups) = (("Impersonate-User", NOBODY), ("Impersonate-Group", NOBODY));
        let other = self.user_as(&[whom, groups]).await;
        let other = other.with_context(|| match account.purpose.impersonation {
            Impersonation::Constrained => {
                "the account cannot impersonate users; if the cluster's feature ConstrainedImpersonation is off, give \
                 --impersonation any"
            }
            Impersonation::Any => "the account cannot impersonate users",
        })?;
        if other != NOBODY {
            bail!(
                "the cluster authenticates an impersonation of {NOBODY:?} as {other:?}: a proxy in front of the \
                 cluster removes the impersonation headers"
            );
        }
        Ok(())
    }
}

/// Returns the remedy for a cluster that stores no token in the account's Secret.
fn no_token(Account { name, namespace, .. }: &Account) -> String {
    format!(
        "the cluster has put no token into Secret {namespace}/{name} within {} s; start its kube-controller-manager, \
         which creates the token, or run join again with --token-lifetime 8760h: kube-apiserver itself creates such a \
         token, which expires",
        WAIT_TIMEOUT.as_secs()
    )
}

/// Returns the API path of an account's object.
fn path(object: &Value) -> anyhow::Result<String> {
    let metadata = &object["metadata"];
    let name = metadata["name"].as_str().context("an object without a name")?;
    let within = metadata["namespace"].as_str().map(|namespace| format!("namespaces/{namespace}/")).unwrap_or_default();
    let (root, plural) = match object["kind"].as_str() {
        Some("Namespace") => ("/api/v1", "namespaces"),
        Some("ServiceAccount") => ("/api/v1", "serviceaccounts"),
        Some("Secret") => ("/api/v1", "secrets"),
        Some("ClusterRole") => ("/apis/rbac.authorization.k8s.io/v1", "clusterroles"),
        Some("ClusterRoleBinding") => ("/apis/rbac.authorization.k8s.io/v1", "clusterrolebindings"),
        kind => bail!("{kind:?} is not a kind of an account's objects"),
    };
    Ok(format!("{root}/{within}{plural}/{name}"))
}
