//! The client certificates of a connection, and the cached results of their verification.

use parking_lot::Mutex;
use rustls_pki_types::{CertificateDer, UnixTime};
use tributary_authentication::{CertificateError, ClientCertificates, FrontProxyError, RequestHeaders, UserInfo};

use super::unauthenticated::subject;

/// The client certificates of a connection, leaf first. The list is empty for a client without certificates.
///
/// The TLS handshake proves that the client has the key. Each request checks the issuer and the validity period,
/// because a connection may outlive the certificate and its issuer. Verification takes two signature checks, so its
/// result is cached until the first certificate expires or the authorities are replaced.
#[derive(Debug, Default)]
pub struct ClientChain {
    certificates: Vec<CertificateDer<'static>>,
    user: Mutex<Option<CachedVerification<UserInfo>>>,
    proxy: Mutex<Option<CachedVerification<()>>>,
}

/// A cached verification result of a connection's certificates.
#[derive(Debug)]
struct CachedVerification<T> {
    found: T,
    /// The number of the set of authorities that verified the certificates. Each set of authorities has a unique
    /// number.
    generation: u64,
    until: UnixTime,
}

impl<T: Clone> CachedVerification<T> {
    fn at(&self, generation: u64, now: UnixTime) -> Option<(T, UnixTime)> {
        (self.generation == generation && now <= self.until).then(|| (self.found.clone(), self.until))
    }
}

impl ClientChain {
    /// Stores the client certificates of a TLS handshake.
    pub fn new(certificates: &[CertificateDer<'_>]) -> Self {
        let certificates = certificates.iter().map(|certificate| certificate.clone().into_owned()).collect();
        Self { certificates, ..Self::default() }
    }

    /// Returns whether the client sent no certificates.
    pub fn is_empty(&self) -> bool {
        self.certificates.is_empty()
    }

    /// Returns the subject of the first certificate for the log. The subject is not verified.
    pub(super) fn subject(&self) -> String {
        subject(self.certificates.first())
    }

    /// Returns the user of the certificates, if `authorities` accept them now, and the end of their validity.
    ///
    /// # Errors
    /// [`CertificateError`]. Failures are not cached, because the connection is closed.
    pub(super) fn user(
        &self,
        authorities: &ClientCertificates,
        now: UnixTime,
    ) -> Result<(UserInfo, UnixTime), CertificateError> {
        let verify = || authorities.user(&self.certificates, now);
        cached(&self.user, authorities.generation(), now, verify)
    }

    /// Verifies that the client is a front proxy. Returns the end of the certificates' validity.
    ///
    /// # Errors
    /// [`FrontProxyError`].
    pub(super) fn verify_front_proxy(
        &self,
        proxy: &RequestHeaders,
        now: UnixTime,
    ) -> Result<UnixTime, FrontProxyError> {
        let verify = || proxy.verify_proxy(&self.certificates, now).map(|until| ((), until));
        cached(&self.proxy, proxy.authorities.generation(), now, verify).map(|((), until)| until)
    }
}

/// Returns the cached result, or verifies and caches a new result. The caller reads `generation` before the
/// verification, so that a result of replaced authorities is never reused.
fn cached<T: Clone, E>(
    memory: &Mutex<Option<CachedVerification<T>>>,
    generation: u64,
    now: UnixTime,
    find: impl FnOnce() -> Result<(T, UnixTime), E>,
) -> Result<(T, UnixTime), E> {
    if let Some(found) = memory.lock().as_ref().and_then(|cached| cached.at(generation, now)) {
        return Ok(found);
    }
    let (found, until) = find()?;
    *memory.lock() = Some(CachedVerification { found: found.clone(), generation, until });
    Ok((found, until))
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::time::Duration;

    use super::*;

    #[test]
    fn cached_identity_expires_with_its_certificate_or_authorities() {
        let at = |seconds| UnixTime::since_unix_epoch(Duration::from_secs(seconds));
        let (memory, asked) = (Mutex::new(None), Cell::new(0));
        let find = |generation, now| {
            cached(&memory, generation, at(now), || {
                asked.set(asked.get() + 1);
                if now > 30 { Err("expired") } else { Ok((generation, at(20))) }
            })
        };
        for (generation, now, expected, questions) in [
            (0, 10, Ok((0, at(20))), 1),
            (0, 20, Ok((0, at(20))), 1),
            (0, 21, Ok((0, at(20))), 2),
            (1, 10, Ok((1, at(20))), 3),
            (1, 11, Ok((1, at(20))), 3),
            (1, 31, Err("expired"), 4),
            (1, 31, Err("expired"), 5),
        ] {
            assert_eq!((find(generation, now), asked.get()), (expected, questions), "{generation} {now}");
        }
    }
}
