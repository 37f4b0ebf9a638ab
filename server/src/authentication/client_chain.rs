//! The certificates that a connection proved itself by, and what they were last found to mean.

use parking_lot::Mutex;
use rustls_pki_types::{CertificateDer, UnixTime};
use tributary_authentication::{CertificateError, ClientCertificates, FrontProxyError, RequestHeaders, UserInfo};

use super::unauthenticated::subject;

/// A connection's certificates, leaf first; none where the client sent none.
///
/// The handshake shows that the client has the key. Who vouches for the certificate, and whether its time is over, is
/// asked at each request: a connection outlives both. That takes two signature checks, so the answer is remembered
/// until the first certificate ends or the authorities are exchanged.
#[derive(Debug, Default)]
pub struct ClientChain {
    certificates: Vec<CertificateDer<'static>>,
    user: Mutex<Option<Remembered<UserInfo>>>,
    proxy: Mutex<Option<Remembered<()>>>,
}

/// What was found, and for how long.
#[derive(Debug)]
struct Remembered<T> {
    found: T,
    /// Of the authorities that were asked.
    generation: u64,
    until: UnixTime,
}

impl<T: Clone> Remembered<T> {
    fn at(&self, generation: u64, now: UnixTime) -> Option<(T, UnixTime)> {
        (self.generation == generation && now <= self.until).then(|| (self.found.clone(), self.until))
    }
}

impl ClientChain {
    /// The certificates of a handshake.
    pub fn new(certificates: &[CertificateDer<'_>]) -> Self {
        let certificates = certificates.iter().map(|certificate| certificate.clone().into_owned()).collect();
        Self { certificates, ..Self::default() }
    }

    /// Whether the client sent none.
    pub fn is_empty(&self) -> bool {
        self.certificates.is_empty()
    }

    /// Whom its first certificate is for, by its own word, for the log.
    pub(super) fn subject(&self) -> String {
        subject(self.certificates.first())
    }

    /// The user whom the certificates name, if `authorities` vouch for them now, and until when they do.
    ///
    /// # Errors
    /// [`CertificateError`]. Failures are not remembered: their connection is closed.
    pub(super) fn user(
        &self,
        authorities: &ClientCertificates,
        now: UnixTime,
    ) -> Result<(UserInfo, UnixTime), CertificateError> {
        let verify = || authorities.user(&self.certificates, now);
        remembered(&self.user, authorities.generation(), now, verify)
    }

    /// Checks that the connection is a front proxy's, and says until when.
    ///
    /// # Errors
    /// [`FrontProxyError`].
    pub(super) fn is_of_proxy(&self, proxy: &RequestHeaders, now: UnixTime) -> Result<UnixTime, FrontProxyError> {
        let verify = || proxy.verify_proxy(&self.certificates, now).map(|until| ((), until));
        remembered(&self.proxy, proxy.authorities.generation(), now, verify).map(|((), until)| until)
    }
}

/// What is remembered, else what is found now, and until when it holds. The generation is that of before the question,
/// so that what was found while the authorities were exchanged is not believed afterwards.
fn remembered<T: Clone, E>(
    memory: &Mutex<Option<Remembered<T>>>,
    generation: u64,
    now: UnixTime,
    find: impl FnOnce() -> Result<(T, UnixTime), E>,
) -> Result<(T, UnixTime), E> {
    if let Some(found) = memory.lock().as_ref().and_then(|remembered| remembered.at(generation, now)) {
        return Ok(found);
    }
    let (found, until) = find()?;
    *memory.lock() = Some(Remembered { found: found.clone(), generation, until });
    Ok((found, until))
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::time::Duration;

    use super::*;

    #[test]
    fn what_was_found_holds_until_a_certificate_ends_or_the_authorities_change() {
        let at = |seconds| UnixTime::since_unix_epoch(Duration::from_secs(seconds));
        let (memory, asked) = (Mutex::new(None), Cell::new(0));
        let find = |generation, now| {
            remembered(&memory, generation, at(now), || {
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
