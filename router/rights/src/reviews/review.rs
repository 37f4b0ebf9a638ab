//! An access review: whether a user may make a request in a cluster.

use std::sync::Arc;

use tributary_apimachinery::ClusterName;
use tributary_authentication::UserInfo;
use tributary_authorization::{Attributes, ResourceAttributes};

use crate::actor::texts;

/// A question to a cluster: whether a user may make a request.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct AccessReview {
    pub(crate) cluster: ClusterName,
    pub(super) user: Arc<UserInfo>,
    reviewed: ReviewedAttributes,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum ReviewedAttributes {
    /// Verb, group, version, resource, subresource, namespace and name of the request.
    Resource([Box<str>; 7]),
    Path([Box<str>; 2]),
}

impl AccessReview {
    pub(crate) fn new(cluster: &ClusterName, user: &Arc<UserInfo>, reviewed: &Attributes<'_>) -> Self {
        let reviewed = match reviewed {
            Attributes::Resource(reviewed) => {
                let ResourceAttributes { verb, group, version, resource, subresource, namespace, name } = *reviewed;
                ReviewedAttributes::Resource(
                    [verb, group, version, resource, subresource, namespace, name].map(Box::from),
                )
            }
            Attributes::NonResource { verb, path } => ReviewedAttributes::Path([Box::from(*verb), Box::from(&**path)]),
        };
        Self { cluster: cluster.clone(), user: Arc::clone(user), reviewed }
    }

    /// Returns the size of the strings in bytes. Includes the whole subject, although concurrent reviews share it.
    pub(super) fn bytes(&self) -> usize {
        let reviewed: usize = match &self.reviewed {
            ReviewedAttributes::Resource(texts) => texts.iter().map(|text| text.len()).sum(),
            ReviewedAttributes::Path(texts) => texts.iter().map(|text| text.len()).sum(),
        };
        reviewed + texts(&self.user).map(String::len).sum::<usize>()
    }

    pub(super) fn attributes(&self) -> Attributes<'_> {
        match &self.reviewed {
            ReviewedAttributes::Resource([verb, group, version, resource, subresource, namespace, name]) => {
                Attributes::Resource(ResourceAttributes {
                    verb,
                    group,
                    version,
                    resource,
                    subresource,
                    namespace,
                    name,
                })
            }
            ReviewedAttributes::Path([verb, path]) => Attributes::NonResource { verb, path: (&**path).into() },
        }
    }
}

#[cfg(test)]
pub(super) mod testing {
    use super::*;

    /// The review whether ann may get the role `name` in a cluster.
    pub(in crate::reviews) fn review(cluster: &str, name: &str) -> AccessReview {
        let user = Arc::new(UserInfo { username: "ann".to_owned(), ..UserInfo::default() });
        let reviewed = ResourceAttributes { verb: "get", resource: "roles", name, ..ResourceAttributes::default() };
        AccessReview::new(&ClusterName::new(cluster).unwrap(), &user, &Attributes::Resource(reviewed))
    }
}
