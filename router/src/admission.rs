//! Whether a request is let in: what may refuse it before it is decided who answers, in this order.
//!
//! ```text
//! bounds    its names and its parameters are of a size that is looked at   400
//! caller    whom it speaks for is clear, and not denied everything         400, 403, 431
//! place     there is room for it among the requests in flight; where many  429
//!           users are served, among what lasts if it does
//! ```
//!
//! The time that it may take runs from here on (`deadline`). What the route of its path asks is a part of the plan.

use http::Request;
use tributary_apimachinery::{RequestInfo, ResourceRequest};

use crate::body::Body;
use crate::caller::Caller;
use crate::flow::fair_share::Portion;
use crate::flow::long_running::LongRunningPlace;
use crate::limits::{NAME_BYTES, QUERY_PARAMETERS};
use crate::refusal::{Refusal, RequestRefusal};
use crate::{Router, User, health};

/// A request that was let in.
pub(crate) struct Admitted {
    /// Who sends it.
    pub(crate) caller: Caller,
    /// Its place, as long as this is held.
    pub(crate) place: Place,
}

/// The place that a request takes.
pub(crate) enum Place {
    /// None: how this process does is told however busy it is, and what lasts takes none where one person owns the
    /// endpoint.
    None,
    /// Among the requests in flight, until its answer begins.
    Short(#[expect(dead_code, reason = "it is dropped, never read")] Portion),
    /// Among what lasts, until it has ended.
    LongRunning(LongRunningPlace),
}

/// Lets a request in, or says why not.
///
/// # Errors
/// 400 and 429, as the table above says.
pub(crate) fn admit(
    router: &Router,
    info: &RequestInfo,
    query: Option<&str>,
    message: &Request<Body>,
    user: &User,
) -> Result<Admitted, Refusal> {
    bounded(info, query)?;
    let caller = Caller::of(message.headers(), message.extensions(), user, router.rights())?;
    let place = match router.long_running() {
        _ if health::is_check(info) => Place::None,
        Some(shares) if info.class().is_long_running() => {
            Place::LongRunning(shares.take(caller.holder, message.headers())?)
        }
        None if info.class().is_long_running() => Place::None,
        _ => Place::Short(router.requests().take(caller.holder, 1)?),
    };
    Ok(Admitted { caller, place })
}

/// Whether what a request names and asks for is of a size that is looked at. A cluster's own view, and what is passed
/// on to workloads, is their receiver's to bound.
///
/// # Errors
/// 400 that names the bound.
fn bounded(info: &RequestInfo, query: Option<&str>) -> Result<(), RequestRefusal> {
    if info.cluster.is_some() {
        return Ok(());
    }
    let request = info.resource();
    for (what, text) in [
        ("name", request.and_then(|request| request.name.as_deref())),
        ("namespace", request.and_then(|request| request.namespace.as_deref())),
    ] {
        if text.is_some_and(|text| text.len() > NAME_BYTES) {
            return Err(RequestRefusal::TooLong { what, max: NAME_BYTES });
        }
    }
    let is_opaque = request.is_some_and(ResourceRequest::is_opaque);
    if !is_opaque && query.is_some_and(|query| query.split('&').count() > QUERY_PARAMETERS) {
        return Err(RequestRefusal::TooManyParameters { max: QUERY_PARAMETERS });
    }
    Ok(())
}
