//! Reasons for which the rights of users in a cluster are unknown, for the log and the report. This module does no I/O.

use std::fmt;

use tributary_authorization::NAMED_SUBJECTS_MAX;
use tributary_cacher::{CacherState, StaleReason};

use super::decider::{Decider, ReviewCause};
use super::mirror_state::BEHIND_MAX;

/// Reason for which the rights of users in a cluster are unknown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum UnknownRightsReason {
    /// A cacher of roles or bindings is not up to date.
    Unread {
        resource: &'static str,
        /// Reason for which the cacher is not up to date. `None` during its first read.
        reason: Option<StaleReason>,
    },
    /// Tributary has not detected the cluster's method of authorization yet.
    Undecided,
    /// The cluster's bindings name more subjects than Tributary compiles.
    TooManySubjects,
    /// The cluster decides by access reviews, but does not answer them.
    Unanswered(ReviewCause),
    /// The cluster decides by access reviews, but gets none because of `dispatch: DenyAll`.
    Frozen,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ReviewState {
    Sent,
    /// The cluster gets no requests, because of `dispatch: DenyAll`.
    Frozen,
}

impl UnknownRightsReason {
    /// Returns the reason for unknown rights that follows from the states of roles and bindings and from the method.
    /// `None` if the rights are known. `holds`: the last known rights are still valid.
    pub(super) fn from_collections(
        states: &[(&'static str, CacherState)],
        holds: bool,
        decider: &Decider,
        review_state: ReviewState,
    ) -> Option<Self> {
        let unread = states.iter().filter_map(|(resource, state)| match state {
            CacherState::Synced => None,
            CacherState::Stale { reason, .. } => Some((*resource, Some(reason.clone()))),
            CacherState::Syncing { reason, .. } => Some((*resource, reason.clone())),
        });
        match decider {
            // If several collections are not up to date, names a collection with a reason rather than one in its first
            // read.
            _ if !holds => {
                let (resource, reason) = unread.max_by_key(|(_, reason)| reason.is_some())?;
                Some(Self::Unread { resource, reason })
            }
            Decider::Undecided => Some(Self::Undecided),
            Decider::Review(_) if review_state == ReviewState::Frozen => Some(Self::Frozen),
            Decider::Review(cause @ (ReviewCause::ReviewsForbidden { .. } | ReviewCause::Unanswered)) => {
                Some(Self::Unanswered(cause.clone()))
            }
            Decider::Review(_) | Decider::Rbac => None,
        }
    }

    /// Returns whether the reason is a fault, and not only an unfinished read or detection.
    pub(super) fn is_trouble(&self) -> bool {
        !matches!(self, Self::Undecided | Self::Unread { reason: None, .. })
    }

    /// Returns whether the rights stay unknown until an administrator removes the cause.
    pub(super) fn lasts(&self) -> bool {
        match self {
            Self::Unread { reason, .. } => matches!(
                reason,
                Some(
                    StaleReason::Unauthorized
                        | StaleReason::Forbidden
                        | StaleReason::NotFound
                        | StaleReason::TooLarge(_)
                        | StaleReason::MemoryLimitReached { .. }
                        | StaleReason::OpaqueVersions(_)
                )
            ),
            Self::Undecided => false,
            Self::TooManySubjects | Self::Unanswered(_) | Self::Frozen => true,
        }
    }

    /// Returns a remedy for an administrator of the cluster, if known.
    pub(super) fn remedy(&self) -> Option<&'static str> {
        match self {
            Self::Unread { reason: Some(StaleReason::Forbidden), .. }
            | Self::Unanswered(ReviewCause::ReviewsForbidden { .. }) => Some(
                "tributary join CONTEXT makes an account with this right, or grant the right (docs/shared-mode.md)",
            ),
            Self::TooManySubjects => Some("name groups, or fewer subjects, in the bindings"),
            _ => None,
        }
    }
}

impl fmt::Display for UnknownRightsReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unread { resource, reason: Some(reason) } => {
                write!(f, "the {resource} of the cluster cannot be watched: {reason}")?
            }
            Self::Unread { resource, reason: None } => {
                write!(f, "the {resource} of the cluster are being read for the first time")?;
            }
            Self::Undecided => {
                f.write_str("it is not known yet whether roles and bindings alone decide in the cluster")?
            }
            Self::TooManySubjects => {
                write!(f, "the bindings of the cluster name more than {NAMED_SUBJECTS_MAX} subjects, the limit")?;
            }
            Self::Unanswered(cause) => write!(f, "{cause}")?,
            Self::Frozen => write!(
                f,
                "the cluster decides rights by access reviews, which dispatch: DenyAll prevents; the last answers are \
                 valid for {} minutes",
                BEHIND_MAX.as_secs() / 60
            )?,
        }
        self.remedy().map_or(Ok(()), |remedy| write!(f, "; {remedy}"))
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::Instant;

    use super::*;

    #[test]
    fn unknown_rights_are_reported_with_cause_and_remedy() {
        let syncing = |reason| CacherState::Syncing { since: Instant::now(), reason };
        let forbidden = || syncing(Some(StaleReason::Forbidden));
        let impersonation_forbidden =
            || Decider::Review(ReviewCause::ReviewsForbidden { resource: "subjectaccessreviews", code: 403 });
        // The message, whether it is about a fault, and whether the fault lasts.
        type Told<'a> = (&'a str, bool, bool);
        type Row<'a> = (&'a [(&'static str, CacherState)], bool, Decider, Option<Told<'a>>);
        let overloaded = || syncing(Some(StaleReason::TooManyRequests));
        let rows: [Row<'_>; 7] = [
            (&[("roles", CacherState::Synced)], true, Decider::Rbac, None),
            (
                &[("roles", syncing(None)), ("clusterroles", forbidden())],
                false,
                Decider::Undecided,
                Some((
                    "the clusterroles of the cluster cannot be watched: forbidden: Tributary's account may not",
                    true,
                    true,
                )),
            ),
            (
                &[("roles", syncing(None))],
                false,
                Decider::Rbac,
                Some(("the roles of the cluster are being read", false, false)),
            ),
            (
                &[("roles", overloaded())],
                false,
                Decider::Rbac,
                Some(("the roles of the cluster cannot be watched: too", true, false)),
            ),
            (&[("roles", forbidden())], true, Decider::Rbac, None),
            (&[("roles", CacherState::Synced)], true, Decider::Undecided, Some(("it is not known yet", false, false))),
            (
                &[("roles", CacherState::Synced)],
                true,
                impersonation_forbidden(),
                Some((
                    "the cluster answers subjectaccessreviews with 403: Tributary's account needs the verb create on \
                     them; tributary",
                    true,
                    true,
                )),
            ),
        ];
        for (states, holds, decider, expected) in rows {
            let found = UnknownRightsReason::from_collections(states, holds, &decider, ReviewState::Sent);
            let reported = found.as_ref().map(|own| (own.to_string(), own.is_trouble(), own.lasts()));
            let is_it = match (&reported, expected) {
                (Some((text, failure, lasting)), Some((begin, is_trouble, lasts))) => {
                    text.starts_with(begin) && (*failure, *lasting) == (is_trouble, lasts)
                }
                (reported, expected) => reported.is_none() && expected.is_none(),
            };
            assert!(is_it, "{reported:?}, expected {expected:?}");
        }
        // A cluster that decides by roles needs no access reviews.
        let states = [("roles", CacherState::Synced)];
        let frozen = UnknownRightsReason::from_collections(
            &states,
            true,
            &Decider::Review(ReviewCause::Configured),
            ReviewState::Frozen,
        )
        .unwrap();
        assert!(frozen.is_trouble() && frozen.lasts() && frozen.to_string().contains("dispatch: DenyAll"), "{frozen}");
        assert!(frozen.to_string().ends_with("valid for 5 minutes"), "{frozen}");
        assert_eq!(UnknownRightsReason::from_collections(&states, true, &Decider::Rbac, ReviewState::Frozen), None);
        let forbidden = UnknownRightsReason::Unread { resource: "roles", reason: Some(StaleReason::Forbidden) };
        assert!(forbidden.to_string().contains("tributary join CONTEXT"), "{forbidden}");
    }
}
