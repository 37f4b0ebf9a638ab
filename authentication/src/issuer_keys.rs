//! The public keys of an issuer, which are fetched when a token needs them, and cached.
//!
//! As in kube-apiserver and go-oidc (`RemoteKeySet`), an unknown key causes one fetch for all waiting requests, and the
//! last keys stay in use while the issuer does not answer. Two rules are stricter. An issuer gets at most one fetch per
//! [`FETCH_INTERVAL`], so that invented key ids cost the issuer nothing. Keys older than [`KEYS_AGE`] are fetched
//! again, so that withdrawn keys become invalid.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use futures::FutureExt;
use futures::future::{BoxFuture, Shared};
use parking_lot::Mutex;
use serde::Deserialize;
use tokio::time::{Instant, timeout};

use crate::configuration::JwtAuthenticator;
use crate::jwk::JsonWebKeySet;
use crate::jwt::{Token, TokenError};
use crate::user::UserInfo;

/// The minimum time between two fetches from an issuer. kube-apiserver retries every 10 s until the first success.
const FETCH_INTERVAL: Duration = Duration::from_secs(10);
/// The age at which the next use of the keys starts another fetch in the background.
const KEYS_AGE: Duration = Duration::from_secs(300);
/// The timeout for one fetch of an issuer's keys. Clients wait for the fetch.
const FETCH_TIMEOUT: Duration = Duration::from_secs(10);

/// Fetches documents from issuers over HTTPS.
pub trait FetchDocument: Send + Sync + fmt::Debug {
    /// Fetches a document over HTTPS and returns the body of a 200 response, of bounded length. The server's
    /// certificate must be issued by `certificate_authority` (PEM) or by an authority of the system. Redirects are not
    /// followed. The caller sets a timeout. Cancel: safe.
    ///
    /// # Errors
    /// The reason why there is no document.
    fn fetch(&self, url: &str, certificate_authority: Option<&str>) -> BoxFuture<'static, Result<Vec<u8>, String>>;
}

/// The reason why a token from a configured issuer is rejected.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum IssuerError {
    /// The token itself is invalid.
    #[error(transparent)]
    Token(#[from] TokenError),
    /// Tributary has no keys of the issuer, so the token cannot be verified.
    #[error("the keys of issuer {issuer} cannot be fetched: {problem}")]
    NoKeys {
        /// The URL of the issuer.
        issuer: String,
        /// The reason why the last fetch of the keys failed.
        problem: Arc<str>,
    },
}

type Keys = Arc<JsonWebKeySet>;
type KeyFetch = Shared<BoxFuture<'static, Result<Keys, Arc<str>>>>;

#[derive(Debug)]
pub(crate) struct IssuerKeys {
    pub(crate) issuer: Arc<JwtAuthenticator>,
    documents: Arc<dyn FetchDocument>,
    state: Mutex<IssuerState>,
}

#[derive(Debug, Default)]
struct IssuerState {
    keys: Option<Keys>,
    last_fetch: Option<Instant>,
    problem: Option<Arc<str>>,
    running_fetch: Option<KeyFetch>,
}

impl IssuerState {
    /// Returns whether [`FETCH_INTERVAL`] has passed since the last fetch.
    fn may_fetch(&self) -> bool {
        self.last_fetch.is_none_or(|last_fetch| last_fetch.elapsed() >= FETCH_INTERVAL)
    }
}

impl IssuerKeys {
    pub(crate) fn new(issuer: JwtAuthenticator, documents: Arc<dyn FetchDocument>) -> Arc<Self> {
        Arc::new(Self { issuer: Arc::new(issuer), documents, state: Mutex::default() })
    }

    /// Verifies a token. Waits for a fetch if the token's key is unknown, or if no known key verifies the signature.
    /// The second case is not always a forged token: a token need not name its key, and an issuer may reuse an id for a
    /// new key. Must be called within a tokio runtime. Cancel: the fetched keys are still cached.
    pub(crate) async fn verify(self: &Arc<Self>, token: &Token<'_>) -> Result<(UserInfo, SystemTime), IssuerError> {
        let keys = self.keys_for(token.key_id()).await?;
        let verified = token.verify(&self.issuer, &keys, SystemTime::now());
        if verified == Err(TokenError::Signature)
            && let Some(newer) = self.newer(&keys).await
        {
            return Ok(token.verify(&self.issuer, &newer, SystemTime::now())?);
        }
        Ok(verified?)
    }

    /// Returns keys that are newer than `than`, from the cache or from a new fetch. Returns `None` if
    /// [`FETCH_INTERVAL`] forbids a fetch now, or if the fetch fails.
    async fn newer(self: &Arc<Self>, than: &Keys) -> Option<Keys> {
        let running_fetch = {
            let mut state = self.state.lock();
            match (state.keys.clone().filter(|keys| !Arc::ptr_eq(keys, than)), state.running_fetch.clone()) {
                (Some(newer), _) => return Some(newer),
                (None, Some(running_fetch)) => running_fetch,
                (None, None) if state.may_fetch() => self.start(&mut state),
                (None, None) => return None,
            }
        };
        running_fetch.await.ok()
    }

    async fn keys_for(self: &Arc<Self>, id: Option<&str>) -> Result<Keys, IssuerError> {
        let running_fetch = {
            let mut state = self.state.lock();
            let is_old = state.last_fetch.is_none_or(|last_fetch| last_fetch.elapsed() >= KEYS_AGE);
            match state.keys.clone() {
                Some(keys) if keys.has(id) => {
                    if is_old && state.running_fetch.is_none() {
                        let _running_fetch = self.start(&mut state);
                    }
                    return Ok(keys);
                }
                cached_keys => match (&state.running_fetch, cached_keys) {
                    (Some(running_fetch), _) => running_fetch.clone(),
                    (None, _) if state.may_fetch() => self.start(&mut state),
                    (None, Some(keys)) => return Ok(keys),
                    (None, None) => return Err(self.no_keys(state.problem.clone().unwrap_or_default())),
                },
            }
        };
        match running_fetch.await {
            Ok(keys) => Ok(keys),
            Err(problem) => self.state.lock().keys.clone().ok_or_else(|| self.no_keys(problem)),
        }
    }

    fn no_keys(&self, problem: Arc<str>) -> IssuerError {
        IssuerError::NoKeys { issuer: self.issuer.issuer_url.clone(), problem }
    }

    /// Starts a fetch of the keys in a separate task. The fetch continues if all waiting callers are cancelled.
    fn start(self: &Arc<Self>, state: &mut IssuerState) -> KeyFetch {
        let own = Arc::clone(self);
        let task = tokio::spawn(async move {
            let fetched = timeout(FETCH_TIMEOUT, fetch(&own.issuer, &*own.documents)).await;
            let fetched: Result<Keys, Arc<str>> = match fetched {
                Ok(fetched) => fetched.map(Arc::new).map_err(Arc::from),
                Err(_) => Err(format!("no answer within {} s", FETCH_TIMEOUT.as_secs()).into()),
            };
            let mut state = own.state.lock();
            state.running_fetch = None;
            match &fetched {
                Ok(keys) => (state.keys, state.problem) = (Some(Arc::clone(keys)), None),
                Err(problem) => {
                    tracing::warn!(issuer = own.issuer.issuer_url, %problem, "the keys of an issuer cannot be fetched");
                    state.problem = Some(Arc::clone(problem));
                }
            }
            fetched
        });
        let running_fetch =
            task.map(|done| done.unwrap_or_else(|_| Err("the fetch was interrupted".into()))).boxed().shared();
        (state.last_fetch, state.running_fetch) = (Some(Instant::now()), Some(running_fetch.clone()));
        running_fetch
    }
}

/// Fetches the discovery document, and then the keys from the `jwks_uri` in this document.
async fn fetch(issuer: &JwtAuthenticator, documents: &dyn FetchDocument) -> Result<JsonWebKeySet, String> {
    #[derive(Deserialize)]
    struct Discovery {
        issuer: String,
        jwks_uri: String,
    }
    let authority = issuer.certificate_authority.as_deref();
    let text = documents.fetch(&issuer.discovery_url, authority).await?;
    let discovery: Discovery =
        serde_json::from_slice(&text).map_err(|_| "the discovery document has no issuer and jwks_uri".to_owned())?;
    if discovery.issuer != issuer.issuer_url {
        return Err(format!("the discovery document names another issuer, {:?}", discovery.issuer));
    }
    if !discovery.jwks_uri.starts_with("https://") {
        return Err(format!("jwks_uri {:?} is not https", discovery.jwks_uri));
    }
    let text = documents.fetch(&discovery.jwks_uri, authority).await?;
    JsonWebKeySet::parse(&text).map_err(|_| "jwks_uri does not serve a JSON Web Key Set".to_owned())
}

#[cfg(test)]
mod tests;
