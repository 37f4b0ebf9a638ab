//! An access review: whether a user may make a request in a cluster.

use std::sync::Arc;

use tributary_apimachinery::ClusterName;
use tributary_authorization::{Attributes, ResourceAttributes};

use crate::subject::Subject;

/// An access review: whether a user may make a request in a cluster.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Question {
    pub(crate) cluster: ClusterName,
    pub(super) who: Arc<Subject>,
    asked: Asked,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Asked {
    /// Verb, group, version, resource, subresource, namespace and name of the request.
    Resource([Box<str>; 7]),
    Path([Box<str>; 2]),
}

impl Question {
    pub(crate) fn new(cluster: &ClusterName, who: &Arc<Subject>, asked: &Attributes<'_>) -> Self {
        let asked = match asked {
            Attributes::Resource(asked) => {
                let ResourceAttributes { verb, group, version, resource, subresource, namespace, name } = *asked;
                Asked::Resource([verb, group, version, resource, subresource, namespace, name].map(Box::from))
            }
            Attributes::NonResource { verb, path } => Asked::Path([Box::from(*verb), Box::from(&**path)]),
        };
        Self { cluster: cluster.clone(), who: Arc::clone(who), asked }
    }

    /// Size of the strings in bytes. Counts the subject in full, although concurrent reviews share it.
    pub(super) fn bytes(&self) -> usize {
        let asked: usize = match &self.asked {
            Asked::Resource(texts) => texts.iter().map(|text| text.len()).sum(),
            Asked::Path(texts) => texts.iter().map(|text| text.len()).sum(),
        };
        asked + self.who.bytes()
    }

    pub(super) fn attributes(&self) -> Attributes<'_> {
        match &self.asked {
            Asked::Resource([verb, group, version, resource, subresource, namespace, name]) => {
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
            Asked::Path([verb, path]) => Attributes::NonResource { verb, path: (&**path).into() },
        }
    }
}

#[cfg(test)]
pub(super) mod testing {
    use tributary_authorization::RbacUser;

    use super::*;

    /// The review whether ann may get the role `name` in a cluster.
    pub(in crate::reviews) fn question(cluster: &str, name: &str) -> Question {
        let who = Arc::new(Subject::from(RbacUser { name: "ann", groups: &[] }));
        let asked = ResourceAttributes { verb: "get", resource: "roles", name, ..ResourceAttributes::default() };
        Question::new(&ClusterName::new(cluster).unwrap(), &who, &Attributes::Resource(asked))
    }
}
