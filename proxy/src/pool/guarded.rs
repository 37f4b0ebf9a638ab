//! Checks of addresses before each dial, for members that the hub configures.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::task::{Context, Poll};

use futures::FutureExt as _;
use futures::future::BoxFuture;
use http::Uri;
use hyper_util::client::legacy::connect::dns::Name;
use tower::Service;
use tributary_apimachinery::body::BoxError;
use tributary_apimachinery::without_brackets;

use crate::dial_policy::DialPolicy;

/// A resolver that checks the addresses of each lookup. One refused address refuses the lookup, because the next dial
/// could use it.
#[derive(Clone)]
pub(crate) struct CheckedResolver<R> {
    pub(crate) inner: R,
    pub(crate) policy: Option<Arc<DialPolicy>>,
}

impl<R> Service<Name> for CheckedResolver<R>
where
    R: Service<Name>,
    R::Response: Iterator<Item = SocketAddr> + Send,
    R::Error: Into<BoxError>,
    R::Future: Send + 'static,
{
    type Response = std::vec::IntoIter<SocketAddr>;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Self::Response, BoxError>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.inner.poll_ready(cx).map_err(Into::into)
    }

    fn call(&mut self, name: Name) -> Self::Future {
        let (resolving, policy) = (self.inner.call(name), self.policy.clone());
        async move {
            let addresses: Vec<SocketAddr> = resolving.await.map_err(Into::into)?.collect();
            if let Some(policy) = policy {
                addresses.iter().try_for_each(|address| policy.check(address.ip()))?;
            }
            Ok(addresses.into_iter())
        }
        .boxed()
    }
}

/// A connector that checks IP addresses in URLs, which no resolver sees.
#[derive(Clone)]
pub(crate) struct Guarded<C> {
    pub(crate) inner: C,
    pub(crate) policy: Option<Arc<DialPolicy>>,
}

impl<C> Service<Uri> for Guarded<C>
where
    C: Service<Uri>,
    C::Response: Send + 'static,
    C::Error: Into<BoxError>,
    C::Future: Send + 'static,
{
    type Response = C::Response;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<C::Response, BoxError>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.inner.poll_ready(cx).map_err(Into::into)
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        if let (Some(policy), Some(address)) = (&self.policy, literal_address(&uri))
            && let Err(refused) = policy.check(address)
        {
            return std::future::ready(Err(refused.into())).boxed();
        }
        let connecting = self.inner.call(uri);
        async move { connecting.await.map_err(Into::into) }.boxed()
    }
}

fn literal_address(uri: &Uri) -> Option<IpAddr> {
    without_brackets(uri.host()?).parse().ok()
}

/// Checks the target behind a proxy as far as this machine can, although the proxy itself resolves the target's name. A
/// name that this machine cannot resolve is allowed, because a proxy often leads to a network with names of its own.
/// Such a name cannot lead to this machine: only the proxy resolves the name, and the policy has checked the proxy's
/// address.
#[derive(Clone)]
pub(crate) struct CheckedTarget<C, R> {
    pub(crate) inner: C,
    pub(crate) resolver: R,
    pub(crate) policy: Option<Arc<DialPolicy>>,
}

impl<C, R> Service<Uri> for CheckedTarget<C, R>
where
    C: Service<Uri> + Clone + Send + 'static,
    C::Response: Send + 'static,
    C::Error: Into<BoxError>,
    C::Future: Send + 'static,
    R: Service<Name> + Clone + Send + 'static,
    R::Response: Iterator<Item = SocketAddr> + Send,
    R::Future: Send + 'static,
{
    type Response = C::Response;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<C::Response, BoxError>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.inner.poll_ready(cx).map_err(Into::into)
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        let connector = self.inner.clone();
        // The connector that `poll_ready` has prepared makes the call.
        let mut connector = std::mem::replace(&mut self.inner, connector);
        let (mut resolver, policy) = (self.resolver.clone(), self.policy.clone());
        async move {
            if let Some(policy) = policy {
                match (literal_address(&uri), uri.host().and_then(|host| host.parse::<Name>().ok())) {
                    (Some(address), _) => policy.check(address)?,
                    (None, Some(name)) => {
                        if let Ok(mut addresses) = resolver.call(name).await {
                            addresses.try_for_each(|address| policy.check(address.ip()))?;
                        }
                    }
                    (None, None) => {}
                }
            }
            connector.call(uri).await.map_err(Into::into)
        }
        .boxed()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use hyper_util::client::legacy::connect::HttpConnector;
    use tower::ServiceExt as _;

    use super::*;

    /// A resolver whose answer changes after the first lookup, as in an attack by DNS rebinding.
    fn rebinding_resolver()
    -> impl Service<Name, Response = std::vec::IntoIter<SocketAddr>, Error = BoxError, Future: Send> + Clone {
        let lookups = Arc::new(AtomicUsize::new(0));
        tower::service_fn(move |_: Name| {
            let is_first = lookups.fetch_add(1, Ordering::Relaxed) == 0;
            let address: SocketAddr = if is_first { "192.0.2.1:0" } else { "127.0.0.1:0" }.parse().unwrap();
            async move { Ok(vec![address].into_iter()) }
        })
    }

    #[tokio::test]
    async fn address_from_each_dns_lookup_is_checked_against_the_dial_policy() {
        let policy = Some(Arc::new(DialPolicy::default()));
        let mut resolver = CheckedResolver { inner: rebinding_resolver(), policy };
        let name: Name = "eu.example".parse().unwrap();
        assert_eq!(resolver.call(name.clone()).await.unwrap().count(), 1);
        let error = resolver.call(name).await.unwrap_err().to_string();
        assert!(error.starts_with("127.0.0.1 is a loopback address"), "{error}");
    }

    #[tokio::test]
    async fn addresses_in_urls_and_behind_a_proxy_are_checked_against_the_dial_policy() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url: Uri = format!("http://{}", listener.local_addr().unwrap()).parse().unwrap();
        let refusing = Some(Arc::new(DialPolicy::default()));
        let allowing = Some(Arc::new(DialPolicy::new(vec!["127.0.0.0/8".parse().unwrap()], Vec::new())));
        for (policy, is_dialed) in [(refusing.clone(), false), (allowing, true), (None, true)] {
            let guarded = Guarded { inner: HttpConnector::new(), policy };
            assert_eq!(guarded.oneshot(url.clone()).await.is_ok(), is_dialed);
        }
        for (target, is_refused) in [("https://127.0.0.1", true), ("https://[::1]", true), ("https://192.0.2.7", false)]
        {
            let inner = tower::service_fn(|_: Uri| async { Ok::<_, BoxError>(()) });
            let checked = CheckedTarget { inner, resolver: rebinding_resolver(), policy: refusing.clone() };
            assert_eq!(checked.oneshot(target.parse().unwrap()).await.is_err(), is_refused, "{target}");
        }
        let mut resolver = rebinding_resolver();
        let _the_first_answer_is_allowed = resolver.call("eu.example".parse().unwrap()).await;
        let inner = tower::service_fn(|_: Uri| async { Ok::<_, BoxError>(()) });
        let checked = CheckedTarget { inner, resolver, policy: refusing };
        assert!(checked.oneshot("https://eu.example".parse().unwrap()).await.is_err());
    }
}
