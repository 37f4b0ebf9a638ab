//! The keys of an issuer, fetched when a token needs them and kept.
//!
//! As kube-apiserver and go-oidc (`RemoteKeySet`) do: a key that is not known is looked for at the issuer, by one
//! question for all who wait, and while the issuer does not answer the keys that it served last go on. Stricter: the
//! issuer is asked at most each [`FETCH_INTERVAL`], so that invented key ids cost it nothing, and keys older than
//! [`KEYS_AGE`] are fetched anew, so that one that it has withdrawn ends.

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
use crate::jwt::{Token, TokenError, Verified};

/// How often an issuer is asked at most; kube-apiserver asks each 10 s until it answers for the first time.
const FETCH_INTERVAL: Duration = Duration::from_secs(10);
/// The age from which keys are fetched anew at their next use, without anybody waiting for it.
const KEYS_AGE: Duration = Duration::from_secs(300);
/// How long a document may take: clients wait for it.
const FETCH_TIMEOUT: Duration = Duration::from_secs(10);

/// Fetches documents of issuers.
pub trait FetchDocument: Send + Sync + fmt::Debug {
    /// The body of a 200 to a GET over HTTPS, of bounded length. The server must have a certificate of
    /// `certificate_authority` (PEM), or of the system's authorities; no redirect is followed. Whoever asks bounds the
    /// time. Cancel: safe.
    ///
    /// # Errors
    /// Why there is none.
    fn fetch(&self, url: &str, certificate_authority: Option<&str>) -> BoxFuture<'static, Result<Vec<u8>, String>>;
}

/// Why a token of an issuer is not taken.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum IssuerError {
    /// It is not good.
    #[error(transparent)]
    Token(#[from] TokenError),
    /// Nobody can tell: no keys of the issuer are known.
    #[error("the keys of issuer {issuer} cannot be fetched: {problem}")]
    NoKeys {
        /// Its URL.
        issuer: String,
        /// What is wrong.
        problem: Arc<str>,
    },
}

type Keys = Arc<JsonWebKeySet>;
type KeyFetch = Shared<BoxFuture<'static, Result<Keys, Arc<str>>>>;

/// An issuer and its keys.
#[derive(Debug)]
pub(crate) struct IssuerKeys {
    pub(crate) issuer: Arc<JwtAuthenticator>,
    documents: Arc<dyn FetchDocument>,
    state: Mutex<IssuerState>,
}

#[derive(Debug, Default)]
struct IssuerState {
    keys: Option<Keys>,
    /// When the issuer was asked last, and what was wrong then.
    asked: Option<Instant>,
    problem: Option<Arc<str>>,
    flight: Option<KeyFetch>,
}

impl IssuerState {
    /// Whether the issuer was not asked a moment ago.
    fn may_ask(&self) -> bool {
        self.asked.is_none_or(|asked| asked.elapsed() >= FETCH_INTERVAL)
    }
}

impl IssuerKeys {
    pub(crate) fn new(issuer: JwtAuthenticator, documents: Arc<dyn FetchDocument>) -> Arc<Self> {
        Arc::new(Self { issuer: Arc::new(issuer), documents, state: Mutex::default() })
    }

    /// Verifies a token. Waits for the issuer where its key is not known, and where none that is known has made the
    /// signature: a token need not name its key, and an issuer may have another one under the same id. What is fetched
    /// is kept even if the waiter goes away. Must be called within a tokio runtime.
    pub(crate) async fn verify(self: &Arc<Self>, token: &Token<'_>) -> Result<Verified, IssuerError> {
        let keys = self.keys_for(token.key_id()).await?;
        let verified = token.verify(&self.issuer, &keys, SystemTime::now());
        if verified == Err(TokenError::Signature)
            && let Some(newer) = self.newer(&keys).await
        {
            return Ok(token.verify(&self.issuer, &newer, SystemTime::now())?);
        }
        Ok(verified?)
    }

    /// Keys that are known since, or that the issuer serves by now, if it may be asked.
    async fn newer(self: &Arc<Self>, than: &Keys) -> Option<Keys> {
        let flight = {
            let mut state = self.state.lock();
            match (state.keys.clone().filter(|keys| !Arc::ptr_eq(keys, than)), state.flight.clone()) {
                (Some(newer), _) => return Some(newer),
                (None, Some(flight)) => flight,
                (None, None) if state.may_ask() => self.start(&mut state),
                (None, None) => return None,
            }
        };
        flight.await.ok()
    }

    async fn keys_for(self: &Arc<Self>, id: Option<&str>) -> Result<Keys, IssuerError> {
        let flight = {
            let mut state = self.state.lock();
            let is_old = state.asked.is_none_or(|asked| asked.elapsed() >= KEYS_AGE);
            match state.keys.clone() {
                Some(keys) if keys.has(id) => {
                    if is_old && state.flight.is_none() {
                        let _nobody_waits = self.start(&mut state);
                    }
                    return Ok(keys);
                }
                known => match (&state.flight, known) {
                    (Some(flight), _) => flight.clone(),
                    (None, _) if state.may_ask() => self.start(&mut state),
                    (None, Some(keys)) => return Ok(keys),
                    (None, None) => return Err(self.no_keys(state.problem.clone().unwrap_or_default())),
                },
            }
        };
        match flight.await {
            Ok(keys) => Ok(keys),
            Err(problem) => self.state.lock().keys.clone().ok_or_else(|| self.no_keys(problem)),
        }
    }

    fn no_keys(&self, problem: Arc<str>) -> IssuerError {
        IssuerError::NoKeys { issuer: self.issuer.issuer_url.clone(), problem }
    }

    /// Asks the issuer, in a task of its own: whoever waits may go away.
    fn start(self: &Arc<Self>, state: &mut IssuerState) -> KeyFetch {
        let own = Arc::clone(self);
        let task = tokio::spawn(async move {
            let fetched = timeout(FETCH_TIMEOUT, fetch(&own.issuer, &*own.documents)).await;
            let fetched: Result<Keys, Arc<str>> = match fetched {
                Ok(fetched) => fetched.map(Arc::new).map_err(Arc::from),
                Err(_) => Err(format!("no answer within {} s", FETCH_TIMEOUT.as_secs()).into()),
            };
            let mut state = own.state.lock();
            state.flight = None;
            match &fetched {
                Ok(keys) => (state.keys, state.problem) = (Some(Arc::clone(keys)), None),
                Err(problem) => {
                    tracing::warn!(issuer = own.issuer.issuer_url, %problem, "the keys of an issuer cannot be fetched");
                    state.problem = Some(Arc::clone(problem));
                }
            }
            fetched
        });
        let flight =
            task.map(|done| done.unwrap_or_else(|_| Err("the question was broken off".into()))).boxed().shared();
        (state.asked, state.flight) = (Some(Instant::now()), Some(flight.clone()));
        flight
    }
}

/// The discovery document, and the keys that it points to.
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
        return Err(format!("the discovery document is of issuer {:?}", discovery.issuer));
    }
    if !discovery.jwks_uri.starts_with("https://") {
        return Err(format!("jwks_uri {:?} is not https", discovery.jwks_uri));
    }
    let text = documents.fetch(&discovery.jwks_uri, authority).await?;
    JsonWebKeySet::parse(&text).map_err(|_| "jwks_uri serves no key set".to_owned())
}

#[cfg(test)]
mod tests;
