//! Search for the cluster that owns the object of a request.
//!
//! ```text
//! Write ──(grounds, evidence)──▶ Claim ──┐
//! Search ──(memory, clusters)──▶ Searched ──▶ Complete ──▶ Result<FoundObject, OwnerError>
//! ```
//!
//! `decision` is pure: it judges the [`Evidence`](decision::Evidence) that the other files gather. Only a [`Complete`]
//! search names an owner.

pub(crate) mod answers;
pub(crate) mod decision;
pub(crate) mod evidence;
mod existing;
pub(crate) mod helm;
mod may_write;
mod object_lookup;
mod refusal;
mod search;
mod searched;
mod write;

pub(crate) use self::answers::FoundObject;
pub(crate) use self::decision::{Claim, OwnerError};
pub(crate) use self::existing::unnamed_claim;
pub(crate) use self::refusal::{MissingOwner, UnknownClusters};
pub(crate) use self::search::{LookupScope, Search};
pub(crate) use self::searched::Complete;
pub(crate) use self::write::{OwnerTarget, Write};
